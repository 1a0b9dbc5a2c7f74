# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Product`, for tables of columns of different kinds."""

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition

from skdpm._validation import check_bool, check_nested
from skdpm.mixture.likelihoods.composite._product import ParametricProduct, ProductModel
from skdpm.mixture.likelihoods.composite.joined import (
    JoinedAnswers,
    JoinedHyperparameters,
    OfParts,
    OfRows,
    Once,
)
from skdpm.mixture.likelihoods.composite.registry import SINGLE
from skdpm.mixture.likelihoods.composite.selection import Selection
from skdpm.mixture.likelihoods.composite.tables import JoinedTables, as_slice
from skdpm.mixture.likelihoods.contract.base import MOST_BOXED, Likelihood, bounds, read_only
from skdpm.mixture.likelihoods.gaussian.gaussian import BLOCK_ENTRIES, BLOCK_ROWS
from skdpm.mixture.likelihoods.laws.recorded import Spread, copies_in


class Product(JoinedHyperparameters, JoinedTables, JoinedAnswers, _BaseComposition, Likelihood):
    """Columns in parts, each part with its likelihood.

    >>> import pandas as pd
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Categorical, Gaussian, Poisson, Product
    >>> X = pd.DataFrame({
    ...     "height": [1.2, 1.1, 1.3, 9.8, 9.7, 9.9],
    ...     "visits": [0, 1, 0, 40, 37, 45],
    ...     "colour": ["red", "red", None, "blue", "blue", "blue"],
    ... })
    >>> likelihood = Product([
    ...     ("size", Gaussian(covariance_type="diag"), ["height"]),
    ...     ("counts", Poisson(), ["visits"]),
    ...     ("kind", Categorical(), ["colour"]),
    ... ])
    >>> mixture = DPMixture(likelihood=likelihood, n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> mixture.labels_
    array([0, 0, 0, 1, 1, 1])
    >>> list(mixture.cluster_params_)
    ['size', 'counts', 'kind']

    The parts of a row are independent given its cluster: their log densities add up. Columns in no
    part are not modelled; `sample` and `impute` compute numbers that sums or products of others
    determine.

    Parameters
    ----------
    parts : list of tuples (name, likelihood, columns)
        Parts: a name, for parameters ``name__parameter``; a likelihood or its name, not
        `Relational`; and columns as in `sklearn.compose.ColumnTransformer`.
    select : bool, default=False
        Whether to learn which columns are in the clustering (`relevance_` of the estimator). The
        others have one law for all rows.

    Attributes
    ----------
    hyperparameters : tuple of str
        Names ``name__parameter`` for all parts, also used for draws.

    References
    ----------
    Tadesse, Sha & Vannucci (2005).
    """

    # What is computed once, after `resolve`, and the units of selection.
    _known = None
    _selected = _places = None

    allow_nan = OfParts(any)
    constants_vary = OfParts(any)
    draws_gaps = OfParts(any)
    exposed = OfParts(any)
    fitted_gaps = OfParts(any)
    has_points = OfParts(all)
    reads_numbers = OfParts(any)
    weighs_rows = OfParts(any)
    discrete = OfParts(all)

    log_constants = OfRows(sum)
    n_drawn = OfRows(sum)
    needs_laws = OfRows(np.logical_or.reduce)
    parametric = OfRows(ParametricProduct)
    # None if a part has none, because k-means would ignore it.
    coordinates = OfRows(
        lambda parts: None if any(part is None for part in parts) else np.hstack(parts)
    )
    uninformative = OfRows(np.logical_and.reduce)

    def __init__(self, parts=(), select=False):
        self.parts = parts
        self.select = select

    def __repr__(self, N_CHAR_MAX=700):
        """Python code of the whole object. That of scikit-learn shortens long lists of columns."""
        if not isinstance(self.parts, (list, tuple)):
            return super().__repr__(N_CHAR_MAX)
        parts = "".join(f"\n    {part!r}," for part in self.parts)
        select = f", select={self.select!r}" if self.select else ""
        return f"{type(self).__name__}([{parts}\n]{select})"

    # Nested parameters.

    @property
    def _named(self):
        """Names and likelihoods of the parts, in the form of `_BaseComposition`."""
        try:
            return [(name, likelihood) for name, likelihood, _ in self.parts]
        except (TypeError, ValueError):
            return self.parts

    @_named.setter
    def _named(self, named):
        self.parts = [
            (name, likelihood, columns)
            for (name, likelihood), (_, _, columns) in zip(named, self.parts, strict=True)
        ]

    def get_params(self, deep=True):
        """Get the parameters, with `deep` also those of the parts, ``name__parameter``: dict."""
        return self._get_params("_named", deep=deep)

    def set_params(self, **params):
        """Set parameters, also those of the parts, ``name__parameter``, and return self."""
        if "parts" in params:
            self.parts = params.pop("parts")  # first, because the others may belong to these
        check_nested(params, self.get_params())
        self._set_params("_named", **params)
        self._known = None  # what followed from the old ones
        return self

    def _checked_parts(self):
        """Check the parts, and replace names of likelihoods by objects: list of tuples."""
        parts = self.parts
        check_bool(self.select, "Product.select")
        if not isinstance(parts, (list, tuple)) or len(parts) == 0:
            raise ValueError(
                f"Product.parts must be a list of (name, likelihood, columns), got {parts!r}"
            )
        checked = []
        for part in parts:
            try:
                name, likelihood, columns = part
            except (TypeError, ValueError):
                raise ValueError(
                    f"a part of Product must be (name, likelihood, columns), got {part!r}"
                ) from None
            if not isinstance(name, str):
                raise ValueError(f"the name of a part of Product must be a str, got {name!r}")
            if isinstance(likelihood, str) and likelihood in SINGLE:
                likelihood = SINGLE[likelihood]()
            if not isinstance(likelihood, Likelihood):
                raise ValueError(
                    f"Product: part {name!r} must be a Likelihood object or one of "
                    f"{', '.join(sorted(SINGLE))}; got {likelihood!r}"
                )
            if isinstance(likelihood, Product):
                raise ValueError(
                    f"Product: part {name!r} is a Product; put its parts into this one"
                )
            if "product" not in likelihood.capabilities:
                raise ValueError(
                    f"Product: part {name!r} cannot be {type(likelihood).__name__}, because its "
                    "clusters are not independent given the partition"
                )
            checked.append((name, likelihood, columns))
        self._validate_names([name for name, _, _ in checked])
        return checked

    def _with_objects(self):
        """The parts, checked unless their columns are known."""
        return self.parts if hasattr(self, "_positions") else self._checked_parts()

    def _likelihoods(self):
        """Likelihoods of the parts. Empty if parts are invalid, which tags must not raise for."""
        try:
            return [likelihood for _, likelihood, _ in self._with_objects()]
        except ValueError:
            return []

    @Once
    def capabilities(self):
        of_parts = [likelihood.capabilities for likelihood in self._likelihoods()]
        if self.select:
            of_parts.append(Likelihood.capabilities)  # rows are not independent given parameters
        return frozenset.intersection(*of_parts) if of_parts else Likelihood.capabilities

    def suits_blocks(self, n_samples, n_features):
        """Whether X is large and has several parts, of which none draws weights of rows."""
        large = n_samples >= BLOCK_ROWS and n_samples * n_features >= BLOCK_ENTRIES
        return large and len(self._likelihoods()) > 1 and not self.weighs_rows

    def for_columns(self, X):
        bound = super().for_columns(X)
        return SelectingProduct.of(bound) if self.select and bound is not self else bound

    def columns_of_parts(self):
        """Positions of the columns of each part, by its name: dict. Only after a fit."""
        return {name: positions for name, _, positions in self.grouped()}

    def _bound(self):
        """Name, likelihood and positions of the columns of each part."""
        return [
            (name, likelihood, positions)
            for (name, likelihood, _), positions in zip(self.parts, self._positions, strict=True)
        ]

    def independent(self, X, completion=None):
        """The columns of the parts, side by side."""
        parts = []
        for _, likelihood, part in self._split(X):
            values = None
            n_drawn = 0 if completion is None else likelihood.n_drawn(part)
            if n_drawn > 0:
                values, completion = completion[:n_drawn], completion[n_drawn:]
            parts.append(likelihood.independent(part, values))
        return np.hstack(parts)

    def with_exposure(self):
        """The exposures go to the parts that take them."""
        return self._with(
            lambda _, part: part if part.lacks("with_exposure") else part.with_exposure()
        )

    def _columns_of(self, likelihood, positions):
        """Positions of the columns of a part, and of the exposures if it takes them."""
        return np.append(positions, self._n_features) if likelihood.exposed else positions

    def _split(self, X):
        """Names and likelihoods of the parts, with their columns of the rows X."""
        return [
            (name, likelihood, X[:, as_slice(self._columns_of(likelihood, positions))])
            for name, likelihood, positions in self._bound()
        ]

    # Summaries, for `resolve`.

    def summarise(self, X):
        """Summaries of the parts, and the first row."""
        bound = self._on(X)
        summaries = []
        for name, likelihood, part in bound._split(X):
            with bound._errors_of(name):
                summaries.append(likelihood.summarise(part))
        return {"parts": summaries, "row": np.array(X[:1], dtype=np.float64)}

    def merge_summaries(self, first, second):
        likelihoods = self._on(first["row"])._likelihoods()
        parts = zip(likelihoods, first["parts"], second["parts"], strict=True)
        merged = [likelihood.merge_summaries(*own) for likelihood, *own in parts]
        return {"parts": merged, "row": first["row"] if len(first["row"]) else second["row"]}

    def resolve(self, X):
        bound = self._on(X)
        return super().resolve(X) if bound is self else bound.resolve(X)

    def resolve_summary(self, summary):
        row = summary["row"]
        bound, summaries = self._on(row), iter(summary["parts"])

        def resolve(name, likelihood):
            with bound._errors_of(name):
                return likelihood.resolve_summary(next(summaries))

        resolved = bound._with(resolve)
        resolved._known, resolved._n_stats, resolved._n_params = {}, [], []
        for _, likelihood, part in resolved._split(row):
            data = likelihood.encode(part)
            resolved._n_stats.append(likelihood.bind(data, likelihood.tables(data, 1)).n_stats)
            if "instantiated" in likelihood.capabilities:
                resolved._n_params.append(likelihood.parametric(part).n_params)
        return resolved

    def by_columns(self, n_features):
        return list(zip(self._likelihoods(), self._positions, strict=True))

    def changed_by_columns(self, change, X):
        parts = {name: part for name, _, part in self._split(X)}
        return self._with(lambda name, likelihood: change(likelihood, parts[name]))

    # Rows.

    def _moved(self, X, move):
        """X with what move(likelihood, columns) has for columns of parts; X itself if all stay."""
        out = X
        for (_, likelihood, part), positions in zip(self._split(X), self._positions, strict=True):
            found = move(likelihood, part)
            if found is not part:
                out = np.array(X, dtype=np.float64) if out is X else out
                out[:, positions] = found
        return out

    def as_seen(self, X, first=None):
        if isinstance(X, Spread):
            return X
        rows = self._moved(X, lambda likelihood, part: likelihood.as_seen(part, first))
        return rows if rows is X else rows.view(Spread)

    def scaled(self, X):
        return self._moved(X, lambda likelihood, part: likelihood.scaled(part))

    def copies(self, X, classes=None):
        parts = [(likelihood, part) for _, likelihood, part in self._split(X)]
        if all(likelihood.copies(part, classes) is None for likelihood, part in parts):
            return None
        return copies_in(np.hstack([part for _, part in parts]), classes)

    def encode_new(self, X):
        return self.encode(X, "encode_new")

    def encode(self, X, method="encode"):
        parts, points = [], []
        bounded = True
        for name, likelihood, columns in self._split(X):
            with self._errors_of(name):
                parts.append(getattr(likelihood, method)(columns))
            found = likelihood.box_points(parts[-1])
            points.append(np.empty((len(X), 0)) if found is None else found)
            # Probabilities are bounded by 1 without a box. Densities are not.
            bounded = bounded and (found is not None or likelihood.discrete)
        n_coordinates = tuple(part.shape[1] for part in points)
        bounded = bounded and 0 < sum(n_coordinates) <= MOST_BOXED
        return read_only(
            {
                "parts": tuple(parts),
                "points": np.ascontiguousarray(np.hstack(points)) if bounded else None,
                "n_coordinates": n_coordinates if bounded else (0,) * len(parts),
            }
        )

    def box_points(self, data):
        return data["points"]

    def tables(self, data, n_max):
        parts = zip(self._likelihoods(), data["parts"], strict=True)
        parts = tuple(likelihood.tables(part, n_max) for likelihood, part in parts)
        return read_only({"n_max": bounds(n_max)[0], "parts": parts})

    def bind(self, data, tables):
        parts = zip(self._likelihoods(), data["parts"], tables["parts"], strict=True)
        return ProductModel(
            [likelihood.bind(*own) for likelihood, *own in parts],
            self.hyper_names(),
            data["n_coordinates"],
            [likelihood.discrete for likelihood in self._likelihoods()],
            self._selected,
            self._places,
        )

    def sum_varying_constants(self):
        return sum(likelihood.sum_varying_constants() for likelihood in self._likelihoods())

    def divergences(self, params):
        parts = np.split(params, np.cumsum(self._n_params)[:-1], axis=1)
        parts = zip(self._likelihoods(), parts, strict=True)
        return sum(likelihood.divergences(part) for likelihood, part in parts)


class SelectingProduct(Selection, Product):
    """A `Product` with select=True for known columns."""

    def __sklearn_clone__(self):
        return Product([(name, clone(unit), columns) for name, unit, columns in self.parts], True)
