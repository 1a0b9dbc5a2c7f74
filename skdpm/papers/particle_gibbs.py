# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs of rows with other test paths (Bouchard-Côté & Roth)."""

from skdpm._validation import check_choice
from skdpm.features.samplers.particle_gibbs import ParticleGibbs
from skdpm.papers._test_paths import TEST_PATHS, PathParticleGibbsKernel


def make(test_path, **params):
    """Make a variant with another test path, for reproductions.

    >>> from skdpm.features.samplers import ParticleGibbs
    >>> ParticleGibbs.from_paper("two_stage", n_particles=10)
    PaperParticleGibbs(n_particles=10, test_path='two_stage')

    Parameters
    ----------
    test_path : {"zeros", "ones", "random", "unconditional", "conditional", "two_stage"}
        Values of the undecided features: all zero, all one, a fair coin each, or drawn by a
        first run without the present value ("unconditional"). "conditional" takes the present
        values, "two_stage" draws them by a first run along those. The last two give no valid
        updates: they are used in warm-up only, with "zeros" after it.
    **params
        Parameters of `ParticleGibbs` to change; `column_moves` is 0.
    """
    return PaperParticleGibbs(test_path, **params)


class PaperParticleGibbs(ParticleGibbs):
    """Particle Gibbs with a test path and no moves of columns."""

    def __init__(
        self,
        test_path="zeros",
        n_particles=20,
        annealing_power=1.0,
        resample_threshold=0.5,
        column_moves=0,
    ):
        super().__init__(n_particles, annealing_power, resample_threshold, column_moves)
        self.test_path = test_path

    def kernel(self):
        path = check_choice(self.test_path, f"{type(self).__name__}.test_path", TEST_PATHS)
        return PathParticleGibbsKernel(path, *self._filter_params())
