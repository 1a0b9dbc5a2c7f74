# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of feature allocations."""

from skdpm.features.samplers.gibbs import ElementGibbs, RowGibbs
from skdpm.features.samplers.particle_gibbs import DiscreteParticleFilter, ParticleGibbs

# The registry: one line per sampler. A name is the snake case of its class.
SAMPLERS = {
    "discrete_particle_filter": DiscreteParticleFilter,
    "element_gibbs": ElementGibbs,
    "particle_gibbs": ParticleGibbs,
    "row_gibbs": RowGibbs,
}

__all__ = [cls.__name__ for cls in SAMPLERS.values()]
