# SPDX-License-Identifier: BSD-3-Clause
"""Particle filters of rows with other test paths (Bouchard-Côté & Roth)."""

from skdpm._validation import check_choice, parameters
from skdpm.features.samplers.particle_gibbs import DiscreteParticleFilter, ParticleGibbs
from skdpm.papers._test_paths import TEST_PATHS, PathDiscreteFilterKernel, PathParticleGibbsKernel


def make(test_path, **params):
    """Make a variant with another test path, for reproductions.

    >>> from skdpm.features.samplers import ParticleGibbs
    >>> ParticleGibbs.from_paper("two_stage", n_particles=10)
    PaperParticleGibbs(n_particles=10, test_path='two_stage')

    The samplers deviate from the paper in these points. In algorithm 4 the retained particle has
    the weight max(w, 1 / c), and in algorithm 5 children start from the weights of the particles
    that survived. With `LinearGaussian`, features that only one row has are drawn from their full
    conditional after warm-up. The paper's random walks are replaced: the concentration is drawn
    exactly or by a slice, weights of links by blocks and slices, prevalences of clones by slices.
    Chains start at draws of the prior only with `init="prior"`.

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
    return PaperParticleGibbs(test_path=test_path, **params)


def make_discrete(test_path, **params):
    """`make` with parameters of `DiscreteParticleFilter`."""
    return PaperDiscreteParticleFilter(test_path=test_path, **params)


@parameters
class PaperParticleGibbs(ParticleGibbs):
    """Particle Gibbs with a test path and no moves of columns."""

    _with_path = PathParticleGibbsKernel

    column_moves: int = 0
    test_path: str = "zeros"

    def kernel(self):
        path = check_choice(self.test_path, f"{type(self).__name__}.test_path", TEST_PATHS)
        return self._with_path(path, *self._filter_params())


@parameters
class PaperDiscreteParticleFilter(DiscreteParticleFilter):
    """The filter with a test path and no moves of columns."""

    _with_path = PathDiscreteFilterKernel

    column_moves: int = 0
    test_path: str = "zeros"

    kernel = PaperParticleGibbs.kernel
