# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs sampling of rows."""

from skdpm._validation import check_choice, check_integer, check_real
from skdpm.features.samplers._particle_gibbs import TEST_PATHS, RowFilterKernel
from skdpm.features.samplers.base import FeatureSampler


class ParticleGibbs(FeatureSampler):
    """Particle Gibbs update of a row of Z, at a cost linear in the number of features.

    Parameters
    ----------
    n_particles : int, default=20
        At least 2, the row's present value included.
    annealing_power : float, default=1.0
        After t of T features the likelihood counts with the power (t / T) ** annealing_power;
        0: no annealing.
    resample_threshold : float, default=0.5
        Particles are resampled where their effective sample size, relative to their number, is
        below this, in [0, 1].
    test_path : {"zeros", "ones", "random", "unconditional", "conditional", "two_stage"}, \
default="zeros"
        Values of the features that have not come yet: none, all, a fair coin each, or drawn by
        a first run without the present value. "conditional" takes the present values,
        "two_stage" draws them by a first run along those: no valid updates, so they hold in
        warm-up only and become "zeros" after it.
    column_moves : int, default=1
        Proposals that follow each sweep over the rows, to replace some features by others (such
        as split and merge), where the likelihood can; 0: no moves of whole columns, the sampler
        of the paper.

    References
    ----------
    Bouchard-Côté & Roth, Particle-Gibbs sampling for Bayesian feature allocation models,
    algorithm 3.
    """

    def __init__(
        self,
        n_particles=20,
        annealing_power=1.0,
        resample_threshold=0.5,
        test_path="zeros",
        column_moves=1,
    ):
        self.n_particles = n_particles
        self.annealing_power = annealing_power
        self.resample_threshold = resample_threshold
        self.test_path = test_path
        self.column_moves = column_moves

    def kernel(self):
        threshold = check_real(
            self.resample_threshold, "ParticleGibbs.resample_threshold", low=0.0, closed=True
        )
        if threshold > 1.0:
            raise ValueError(
                f"ParticleGibbs.resample_threshold must be at most 1, got {threshold}"
            )
        return RowFilterKernel(
            check_integer(self.n_particles, "ParticleGibbs.n_particles", low=2, high=2**20),
            check_real(
                self.annealing_power, "ParticleGibbs.annealing_power", low=0.0, closed=True
            ),
            threshold,
            check_choice(self.test_path, "ParticleGibbs.test_path", TEST_PATHS),
            False,
        )
