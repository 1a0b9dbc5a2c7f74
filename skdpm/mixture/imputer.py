# SPDX-License-Identifier: BSD-3-Clause
"""The transformer `MixtureImputer`."""

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpm._estimator import all_or_nothing
from skdpm._rows import given_rows
from skdpm._tables import Table, listed, take_columns, with_columns, with_zeros
from skdpm._validation import check_bool, is_dask, parameters, warn
from skdpm.mixture.estimators import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods.composite.automatic import suggest_likelihood
from skdpm.mixture.likelihoods.counts.bernoulli import Bernoulli
from skdpm.mixture.questions import complete, rows_with_gaps


@parameters
class MixtureImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing entries by a mixture that learns from incomplete rows.

    >>> import numpy as np
    >>> from skdpm import DPMixture, MixtureImputer
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))]
    >>> X[:5, 1] = np.nan
    >>> imputer = MixtureImputer(DPMixture(random_state=0)).fit(X)
    >>> imputer.transform([[9.0, np.nan]]).round()
    array([[9., 9.]])

    `fit` learns clusters of the rows from their known entries, and `transform` fills an entry with
    its posterior mean given the other entries of its row (numbers) or with its most probable value
    (binary columns and categories). See `DPMixture.impute`, which also draws several completed
    tables.

    `transform` treats the X of `fit` as rows of the fit: each is in its clusters of the draws.
    Other rows, also some of these, are new. Their clusters follow from their known entries.
    Entries in columns without any entry in `fit` have no effect on others.

    A data frame gives a data frame with the same index and types of columns, except for integers,
    whose means are floats. Use an `estimator` with a `random_state` for repeatable results.

    Parameters
    ----------
    estimator : DPMixture or FiniteMixture, default=None
        Mixture to fit, which is cloned. Its likelihood must allow missing entries if the X of
        `fit` has some. None: a `DPMixture` with `likelihood="auto"` for numbers. With other
        columns, also flags, it has `likelihood="mixed"`, or `suggest_likelihood(X)` if there are
        whole numbers, too. Columns of no likelihood keep their gaps.
    keep_empty_features : bool, default=False
        Whether to keep columns without any entry in `fit`, as in `SimpleImputer`. False:
        `transform` drops them, with a warning. True: their missing entries become 0.

    Attributes
    ----------
    estimator_ : DPMixture or FiniteMixture
        The fitted mixture.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has names that are all strings.
    """

    estimator: object = None
    _: KW_ONLY
    keep_empty_features: bool = False

    @all_or_nothing
    def fit(self, X, y=None, **fit_params) -> Self:
        """Fit the mixture to the rows of X.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows; NaN, None or `pandas.NA` marks a missing entry.
        y : ignored
        **fit_params : object
            Parameters of the `fit` of `estimator`, such as `known_labels`. If metadata routing is
            enabled, those that `estimator` requests by `set_fit_request`.
        """
        X = given_rows(X)
        if self.estimator is not None:
            if not isinstance(self.estimator, (DPMixture, FiniteMixture)):
                raise ValueError(
                    "estimator must be a DPMixture or FiniteMixture, such as "
                    f'DPMixture(likelihood="mixed"), got {self.estimator!r}'
                )
            estimator = clone(self.estimator)
        else:
            kinds = {column.kind for column in X.columns()} if isinstance(X, Table) else set()
            likelihood = "mixed" if kinds & {"category", "bool"} else "auto"
            if likelihood == "mixed" and "integer" in kinds:
                likelihood = suggest_likelihood(X)  # "mixed" refuses whole numbers
                hot = [name for name, *_ in likelihood.parts if name.startswith("one_hot")]
                likelihood.set_params(**{name: Bernoulli() for name in hot})  # which can impute
            estimator = DPMixture(likelihood=likelihood)
        if not hasattr(estimator, "impute"):
            raise ValueError(
                f"estimator must have a likelihood that can impute, got {estimator!r}"
            )
        check_bool(self.keep_empty_features, "keep_empty_features")
        if _routing_enabled():
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
        self.estimator_ = estimator.fit(X, **fit_params)
        rows = X if is_dask(X) else rows_with_gaps(self.estimator_, X)
        self._empty = np.flatnonzero(np.isnan(rows).all(axis=0))
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def transform(self, X) -> Any:
        """Fill the missing entries of X.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features_out)
            A completed copy.
        """
        check_is_fitted(self)
        X, empty = given_rows(X), self._empty
        if isinstance(X, Table):
            X = X.X
            validate_data(self, X, reset=False, skip_check_array=True)
        else:
            X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        if not len(empty):
            return self.estimator_.impute(X)
        gaps = with_columns(X, dict.fromkeys(empty))
        completed = complete(self.estimator_, gaps, ignored=empty)
        if self.keep_empty_features:
            return with_columns(completed, {d: with_zeros(X, d) for d in empty})
        named = listed(empty, getattr(self, "feature_names_in_", None))
        warn(
            f"{named} of X had no observed value in fit, so transform drops "
            f"{'it' if len(empty) == 1 else 'them'}. To keep such columns, filled with 0, set "
            "keep_empty_features=True",
        )
        return take_columns(completed, self._kept)

    @property
    def _kept(self):
        dropped = () if self.keep_empty_features else self._empty
        return np.delete(np.arange(self.n_features_in_), dropped)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        return super().get_feature_names_out(input_features)[self._kept]

    def get_metadata_routing(self) -> Any:
        """Parameters that `fit` passes on: a `MetadataRouter` of scikit-learn."""
        estimator = DPMixture() if self.estimator is None else self.estimator
        fits = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(estimator=estimator, method_mapping=fits)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        if self.estimator is not None:
            tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags
