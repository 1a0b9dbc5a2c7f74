# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of feature allocations."""

from skdpm.features.samplers.discrete_particle_filter import DiscreteParticleFilter
from skdpm.features.samplers.element_gibbs import ElementGibbs
from skdpm.features.samplers.particle_gibbs import ParticleGibbs
from skdpm.features.samplers.row_gibbs import RowGibbs

# The registry: one line per sampler. A name is the snake case of its class.
SAMPLERS = {
    "discrete_particle_filter": DiscreteParticleFilter,
    "element_gibbs": ElementGibbs,
    "particle_gibbs": ParticleGibbs,
    "row_gibbs": RowGibbs,
}

__all__ = [cls.__name__ for cls in SAMPLERS.values()]
