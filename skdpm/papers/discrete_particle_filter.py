# SPDX-License-Identifier: BSD-3-Clause
"""Discrete particle filter of rows with other test paths (Bouchard-Côté & Roth)."""

from skdpm._validation import check_choice, parameters
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
    return PaperDiscreteParticleFilter(test_path=test_path, **params)


@parameters
class PaperDiscreteParticleFilter(DiscreteParticleFilter):
    """The filter with a test path and no moves of columns."""

    column_moves: int = 0
    test_path: str = "zeros"

    def kernel(self):
        path = check_choice(self.test_path, f"{type(self).__name__}.test_path", TEST_PATHS)
        return PathDiscreteFilterKernel(path, *self._filter_params())
