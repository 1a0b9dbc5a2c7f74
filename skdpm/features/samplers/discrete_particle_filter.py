# SPDX-License-Identifier: BSD-3-Clause
"""Discrete particle filter for rows."""

from skdpm._validation import check_choice, check_integer, check_real
from skdpm.features.samplers._particle_gibbs import TEST_PATHS, RowFilterKernel
from skdpm.features.samplers.base import FeatureSampler


class DiscreteParticleFilter(FeatureSampler):
    """Particle Gibbs update of a row of Z in which no two particles are the same.

    Both continuations of every particle are made; those of large weight are kept, the others
    resampled. With 2^K at most `n_particles` it enumerates the row and is `RowGibbs`.

    Parameters
    ----------
    n_particles : int, default=20
        Expected number of particles that are kept, at least 2.
    annealing_power, test_path
        As in `ParticleGibbs`.
    column_moves : int, default=1
        Proposals that follow each sweep over the rows, to replace some features by others (such
        as split and merge), where the likelihood can; 0: no moves of whole columns, the sampler
        of the paper.

    References
    ----------
    Bouchard-Côté & Roth, Particle-Gibbs sampling for Bayesian feature allocation models,
    algorithms 4 and 5.
    Fearnhead & Clifford (2003), On-line inference for hidden Markov models via particle filters.
    Whiteley, Andrieu & Doucet (2010), Efficient Bayesian inference for switching state-space
    models using discrete particle Markov chain Monte Carlo methods.
    """

    def __init__(self, n_particles=20, annealing_power=1.0, test_path="zeros", column_moves=1):
        self.n_particles = n_particles
        self.annealing_power = annealing_power
        self.test_path = test_path
        self.column_moves = column_moves

    def kernel(self):
        name = "DiscreteParticleFilter"
        return RowFilterKernel(
            check_integer(self.n_particles, f"{name}.n_particles", low=2, high=2**20),
            check_real(self.annealing_power, f"{name}.annealing_power", low=0.0, closed=True),
            0.0,
            check_choice(self.test_path, f"{name}.test_path", TEST_PATHS),
            True,
        )
