# SPDX-License-Identifier: BSD-3-Clause
"""Discrete particle filter for rows."""

from skdpm._papers import paper_variants
from skdpm._validation import parameters
from skdpm.features.samplers._particle_gibbs import DiscreteFilterKernel
from skdpm.features.samplers.particle_gibbs import RowFilter


@parameters
class DiscreteParticleFilter(RowFilter):
    """Particle Gibbs update of a row of Z in which all particles differ.

    Every particle is continued with both values of a feature. Particles of large weight are kept,
    the others resampled. If 2^K is at most `n_particles`, the row is enumerated as in `RowGibbs`.

    Parameters
    ----------
    n_particles : int, default=20
        Expected number of particles, at least 2.
    annealing_power : float, default=1.0
        Exponent of the annealing, as in `ParticleGibbs`.
    column_moves : int, default=1
        Number of proposals after each sweep to replace whole features (by splits and merges, for
        example), if the likelihood supports them; 0: none, as in the paper.

    References
    ----------
    Bouchard-Côté & Roth, Particle-Gibbs sampling for Bayesian feature allocation models,
    algorithms 4 and 5.
    Fearnhead & Clifford (2003), On-line inference for hidden Markov models via particle filters.
    Whiteley, Andrieu & Doucet (2010), Efficient Bayesian inference for switching state-space
    models using discrete particle Markov chain Monte Carlo methods.
    """

    n_particles: int = 20
    annealing_power: float = 1.0
    column_moves: int = 1

    from_paper = paper_variants("discrete_particle_filter", "a variant with another test path")

    def kernel(self):
        return DiscreteFilterKernel(*self._filter_params())
