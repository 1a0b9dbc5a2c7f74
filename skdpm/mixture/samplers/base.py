# SPDX-License-Identifier: BSD-3-Clause
"""Base classes of samplers: scikit-learn objects that make kernels and programs."""

from sklearn.base import BaseEstimator

from skdpm._rows import converted, lazy_rows, validate_rows
from skdpm._validation import check_integer, has_nan, is_dask, parameters
from skdpm.mixture.blocks.program import BlockProgram, gaps_objection
from skdpm.mixture.chains.program import RowProgram

# What a likelihood without a capability is like.
LACKS = {
    "product": "whose clusters depend on each other",
    "instantiated": "whose parameters of clusters cannot be drawn",
}


class Sampler(BaseEstimator):
    """Base class of samplers; a subclass overrides `kernel`.

    - `requires`: str. Capability that a likelihood must have (`Likelihood.capabilities`).
    - `draws_gaps`: bool. Whether it can draw missing entries with the clusters of their rows.
    - `weighs_rows`: bool. Whether it draws weights of rows with their clusters (`Gaussian.tails`).
    - `n_replicas`: int. Number of states of a chain, each with its own random stream and
      hyperparameters. One kernel serves them all. Draws are those of the first; the others start
      from random partitions.
    - `n_companions`: int. Number of further replicas in warm-up.
    - `online`: bool. Whether it takes each row once, one after the other; it is no Markov chain.
    - `takes_noise`: bool. Whether the kernel keeps the law of states in which some items are
      noise, in no cluster (`MixtureState.labels`). `False` unless it says so.
    """

    requires = "joint"
    draws_gaps = True
    weighs_rows = True
    online = False
    takes_noise = False
    n_replicas = 1
    n_companions = 0

    @classmethod
    def automatic(cls, likelihood, shape, make_prior):
        """Make the sampler that `sampler="auto"` uses if it chooses this class; None: another
        class is better. The likelihood is as given by the user, `shape` that of X, and
        `make_prior` a function from a number of rows to the prior over their partitions."""
        return cls()

    def kernel(self):
        """Check the parameters and make the `PartitionKernel` of a chain. A ValueError names a
        parameter that is not valid."""
        raise NotImplementedError(f"{type(self).__name__} must implement `kernel`")

    def check_prior(self, prior):
        """Raise a ValueError if the sampler does not support a `PartitionPrior`."""

    def objection(self, likelihood, X):
        """Return why the sampler does not support a likelihood and X, both as given by the user;
        None if it does."""
        if is_dask(X):
            return (
                f"{type(self).__name__} needs all rows in memory; for a dask array choose "
                "sampler=SubCluster() or, with FiniteMixture, BlockedGibbs()"
            )
        return self._lacking(likelihood, X)

    def _lacking(self, likelihood, X):
        """Return the objection to a likelihood without the capability, or to NaN in X; or None."""
        if likelihood.weighs_rows and not self.weighs_rows:
            return (
                f"{type(self).__name__} cannot draw the weights of rows of a Gaussian likelihood "
                'with tails; use a sampler of rows in memory, such as "auto", "gibbs" or "sams", '
                "or Gaussian(tails=None)"
            )
        if self.requires in likelihood.capabilities:
            if self.draws_gaps or not likelihood.draws_gaps or is_dask(X) or not has_nan(X):
                return None
            return gaps_objection(type(self).__name__)
        if likelihood.select:
            return self._cannot_select()
        if likelihood.exposed:
            return (
                f"{type(self).__name__} takes rows in blocks, which have no exposures; set "
                'sampler="auto", or leave exposure out'
            )
        return (
            f"{self!r} cannot sample a mixture with the likelihood {type(likelihood).__name__}, "
            f"{LACKS.get(self.requires, f'which lacks the capability {self.requires!r}')}; "
            'sampler="auto" chooses one that can'
        )

    def _cannot_select(self):
        return (
            f"{type(self).__name__} cannot select columns, because it does not have all rows at "
            "once; choose another sampler or Product(select=False)"
        )

    def validate(self, estimator, X, likelihood, reset):
        """Check the X of `fit` and return it as an array, as `validate_rows` does."""
        return validate_rows(estimator, X, likelihood, reset)

    def program(self, X, likelihood, **settings):
        """Make the `ChainProgram` of a fit; see `RowProgram.prepare`."""
        return RowProgram.prepare(X, likelihood, **settings)

    def batch_program(self, X, likelihood, *, n_before, first, kept, pool, **settings):
        """Make the program of a batch of `partial_fit`, if `online`: a `StreamProgram`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `batch_program`")


@parameters
class BlockSampler(Sampler):
    """Base class of samplers that visit rows in blocks, given parameters, by a `BlockKernel`."""

    requires = "instantiated"
    draws_gaps = False
    weighs_rows = False
    needs_labels = False  # whether new labels depend on the previous ones

    block_size: int = 65536

    def objection(self, likelihood, X):
        return self._lacking(likelihood, X)

    def validate(self, estimator, X, likelihood, reset):
        """Return the rows unchanged, with any type and order. Blocks are converted one at a time,
        and checked for infinities and NaN."""
        if is_dask(X):
            from skdpm.mixture.blocks.dask_rows import check_dask

            X = lazy_rows(estimator, X, likelihood, reset)
            return check_dask(
                X, self, init=estimator.init, point_estimate=estimator.point_estimate
            )
        return converted(estimator, X, likelihood, reset, dtype="numeric")

    def program(self, X, likelihood, **settings):
        block_size = check_integer(self.block_size, f"{type(self).__name__}.block_size", low=1)
        return BlockProgram.prepare(X, likelihood, block_size=block_size, **settings)
