# SPDX-License-Identifier: BSD-3-Clause
"""Discrete particle filter of rows with other test paths (Bouchard-Côté & Roth)."""

from skdpm._validation import check_choice
from skdpm.features.samplers.discrete_particle_filter import DiscreteParticleFilter
from skdpm.papers._test_paths import TEST_PATHS, PathDiscreteFilterKernel


def make(test_path, **params):
    """Make a variant with another test path, for reproductions.

    Parameters
    ----------
    test_path : str
        Values of the undecided features, as in `skdpm.papers.particle_gibbs`.
    **params
        Parameters of `DiscreteParticleFilter` to change; `column_moves` is 0.
    """
    return PaperDiscreteParticleFilter(test_path, **params)


class PaperDiscreteParticleFilter(DiscreteParticleFilter):
    """The filter with a test path and no moves of columns."""

    def __init__(self, test_path="zeros", n_particles=20, annealing_power=1.0, column_moves=0):
        super().__init__(n_particles, annealing_power, column_moves)
        self.test_path = test_path

    def kernel(self):
        path = check_choice(self.test_path, f"{type(self).__name__}.test_path", TEST_PATHS)
        return PathDiscreteFilterKernel(path, *self._filter_params())
