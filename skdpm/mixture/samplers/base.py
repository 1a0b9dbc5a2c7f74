# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a sampler: a scikit-learn object that makes a kernel and runs a program."""

from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_n_features, validate_data

from skdpm._rows import numbers_of_table, validate_rows
from skdpm._validation import is_dask
from skdpm.mixture.blocks.program import BlockProgram
from skdpm.mixture.chains.program import RowProgram


class Sampler(BaseEstimator):
    """Base class of samplers; a subclass writes `kernel`.

    Attributes
    ----------
    requires : str
        The capability that a likelihood must state (`Likelihood.capabilities`).
    n_replicas : int
        States that a chain has side by side, each with its own random stream and hyperparameters,
        while one kernel serves them all. Draws are those of the first; the others start from
        random partitions.
    n_companions : int
        Further replicas, that the chain has in warm-up only.
    online : bool
        Whether it takes the rows one after the other, once, rather than as a Markov chain.
    """

    requires = "joint"
    online = False
    n_replicas = 1
    n_companions = 0

    @classmethod
    def automatic(cls, likelihood, n_samples, make_prior):
        """Make the object that `sampler="auto"` stands for, where it is this class.

        Parameters
        ----------
        likelihood : Likelihood
            As the user gave it.
        n_samples : int
        make_prior : callable
            The prior over partitions of a number of rows.

        Returns
        -------
        sampler : Sampler or None
            None: it had best be another.
        """
        return cls()

    def kernel(self):
        """Make a fresh `PartitionKernel` of one chain, parameters checked.

        Raises
        ------
        ValueError
            Naming the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")

    def check_prior(self, prior):
        """Raise a ValueError where the sampler cannot deal with a `PartitionPrior`."""

    def objection(self, likelihood, X):
        """Say why the sampler cannot sample a mixture with this likelihood of these rows.

        Parameters
        ----------
        likelihood : Likelihood
            As the user gave it.
        X : array-like
            As it was given to `fit`.

        Returns
        -------
        reason : str or None
            None: it can.
        """
        if is_dask(X):
            return (
                f"{type(self).__name__} needs all rows in memory; for a dask array choose "
                "sampler=SubCluster() or, with FiniteMixture, BlockedGibbs()"
            )
        return self._lacking(likelihood)

    def _lacking(self, likelihood):
        """The objection that the likelihood lacks the capability, or None."""
        if self.requires in likelihood.capabilities:
            return None
        return (
            f"{self!r} cannot sample a mixture with the likelihood "
            f"{type(likelihood).__name__}: it needs the capability {self.requires!r}, "
            f"and {type(likelihood).__name__} has {', '.join(sorted(likelihood.capabilities))}"
            '; sampler="auto" chooses one that can'
        )

    def validate(self, estimator, X, likelihood, reset):
        """Check the X of `fit`, and set what scikit-learn remembers of it.

        Parameters
        ----------
        estimator : BaseMixture
        X : array-like
        likelihood : Likelihood
        reset : bool
            Whether the number and names of columns are new.

        Returns
        -------
        X : array of shape (n_samples, n_features)

        Raises
        ------
        ValueError
        """
        return validate_rows(estimator, X, likelihood, reset)

    def program(self, X, likelihood, **settings):
        """The `ChainProgram` of a fit: see `RowProgram.prepare`."""
        return RowProgram.prepare(X, likelihood, **settings)

    def batch_program(self, X, likelihood, *, n_before, first, makes_draws, **settings):
        """The program of a batch of `partial_fit`, where the sampler is `online`: see
        `StreamProgram.prepare`."""
        raise NotImplementedError(f"{type(self).__name__} must write `batch_program`")


class BlockSampler(Sampler):
    """Base class of samplers that visit the rows in blocks, given drawn parameters.

    They have a parameter `block_size`, and their kernel is a `BlockKernel`.
    """

    requires = "instantiated"
    needs_labels = False  # do new labels depend on the last ones?

    def objection(self, likelihood, X):
        return self._lacking(likelihood)

    def validate(self, estimator, X, likelihood, reset):
        """As they are, whatever their type and order: a block at a time is brought into form, and
        looked at for infinities and NaN."""
        if is_dask(X):
            from skdpm.mixture.blocks.dask_rows import check_dask

            X = check_dask(X, self, init=estimator.init, point_estimate=estimator.point_estimate)
            _check_n_features(estimator, X, reset=reset)
            return X
        numbers = numbers_of_table(estimator, X, likelihood, reset)
        if numbers is not None:
            return numbers
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype="numeric",
            accept_sparse="csr" if likelihood.accept_sparse else False,
            ensure_all_finite=False,
        )

    def program(self, X, likelihood, **settings):
        return BlockProgram.prepare(X, likelihood, block_size=self.block_size, **settings)
