# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs sampling of rows, and the discrete particle filter."""

from skdpm._papers import paper_variants
from skdpm._validation import check_integer, check_real, check_share, parameters
from skdpm.features.samplers._particle_gibbs import DiscreteFilterKernel, ParticleGibbsKernel
from skdpm.features.samplers.base import FeatureSampler


class RowFilter(FeatureSampler):
    """Base class of the samplers that update a row by a particle filter."""

    def _filter_params(self):
        name = type(self).__name__
        return (
            check_integer(self.n_particles, f"{name}.n_particles", low=2, high=2**20),
            check_real(self.annealing_power, f"{name}.annealing_power", low=0.0, closed=True),
        )


# Of the paper.
TEST_PATHS = "zeros", "ones", "random", "unconditional", "conditional", "two_stage"


@parameters
class ParticleGibbs(RowFilter):
    """Particle Gibbs update of a row of Z, at a cost linear in the number of features.

    Parameters
    ----------
    n_particles : int, default=20
        Number of particles, at least 2, including the row's present value.
    annealing_power : float, default=1.0
        Exponent of the annealing: after t of T features the likelihood is raised to the power
        (t / T) ** annealing_power; 0: no annealing.
    resample_threshold : float, default=0.5
        Effective sample size over `n_particles`, below which particles are resampled; in [0, 1].
    column_moves : int, default=1
        As in `DiscreteParticleFilter`; 0: none, as in the paper.

    References
    ----------
    Bouchard-Côté & Roth, algorithm 3.
    """

    n_particles: int = 20
    annealing_power: float = 1.0
    resample_threshold: float = 0.5
    column_moves: int = 1

    from_paper = paper_variants("particle_gibbs", TEST_PATHS, "another test path")

    def kernel(self):
        return ParticleGibbsKernel(*self._filter_params())

    def _filter_params(self):
        name = f"{type(self).__name__}.resample_threshold"
        return (*super()._filter_params(), check_share(self.resample_threshold, name))


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
    Bouchard-Côté & Roth, algorithms 4 and 5; Fearnhead & Clifford (2003); Whiteley, Andrieu &
    Doucet (2010).
    """

    n_particles: int = 20
    annealing_power: float = 1.0
    column_moves: int = 1

    from_paper = paper_variants("particle_gibbs", TEST_PATHS, "another test path", "make_discrete")

    def kernel(self):
        return DiscreteFilterKernel(*self._filter_params())
