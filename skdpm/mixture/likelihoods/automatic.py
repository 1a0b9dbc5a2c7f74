# SPDX-License-Identifier: BSD-3-Clause
"""The likelihoods that `likelihood="auto"` and `likelihood="mixed"` choose by the columns of X."""

import numpy as np

from skdpm._tables import as_table, called, identifies, listed
from skdpm._validation import given_shape, has_nan, is_dask, warn
from skdpm.mixture.likelihoods.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.categorical import Categorical
from skdpm.mixture.likelihoods.gaussian import Gaussian
from skdpm.mixture.likelihoods.product import Product
from skdpm.mixture.likelihoods.subspace import Subspace

# Smallest number of columns for which "auto" is `Subspace`; below it is `Gaussian`.
MANY_COLUMNS = 33

# Fewest rows for which "mixed" refuses columns of identifiers. In fewer rows, nearly all entries
# of a column of 50 categories may be different by chance.
FEWEST_IDENTIFIED = 50


def _parts():
    """Name and likelihood of the part of "mixed" for each kind of column."""
    return {
        "float": ("numeric", Gaussian(covariance_type="diag")),
        "bool": ("boolean", Bernoulli()),
        "category": ("categorical", Categorical()),
    }


class Automatic(Gaussian):
    """ "auto". Its tags, before columns are known, hold for `Gaussian` and for `Subspace`."""

    def for_columns(self, X):
        likelihood = _of_columns((*given_shape(X), 1, 1)[1])
        if not likelihood.allow_nan and not is_dask(X) and has_nan(X):
            warn(
                "X has missing entries, so the likelihood is Gaussian() instead of Subspace(), "
                "which is slower in many columns. Leave out these rows, or fill the gaps first "
                "(MixtureImputer); likelihood=Gaussian() silences this",
                UserWarning,
            )
            return Gaussian()
        return likelihood

    def for_batch(self, X):
        return (
            Gaussian().keeping_columns()
        )  # a batch contains too little information about principal axes

    def suits_blocks(self, n_samples, n_features):
        return _of_columns(n_features).suits_blocks(n_samples, n_features)


def _of_columns(n_features):
    return Subspace() if n_features >= MANY_COLUMNS else Gaussian()


class Mixed(Product):
    """ "mixed": a likelihood for each type of column."""

    def __init__(self):
        super().__init__([(name, likelihood, []) for name, likelihood in _parts().values()])

    def get_params(self, deep=True):
        return {}

    def for_columns(self, X):
        """The `Product` for the columns of X. Raises ValueError for columns whose type does not
        determine a likelihood."""
        kinds = _kinds_of_columns(X)
        _refuse_identifiers(X, kinds)
        return _of_kinds(kinds, X)

    def for_batch(self, X):
        """See `Likelihood`. Later rows may have the categories of a batch again."""
        return _of_kinds(_kinds_of_columns(X), X).keeping_columns()


def _of_kinds(kinds, X):
    """The `Product` for columns of these kinds."""
    return Product(
        [
            (name, likelihood, [d for d, other in enumerate(kinds) if other == kind])
            for kind, (name, likelihood) in _parts().items()
            if kind in kinds or not kinds
        ]
    ).for_columns(X)


def _refuse_identifiers(X, kinds):
    """Raise ValueError for columns of categories of which nearly all are different."""
    table = as_table(X)
    if table is None or table.shape[0] < FEWEST_IDENTIFIED:
        return
    identifiers = [
        d for d, kind in enumerate(kinds) if kind == "category" and identifies(table.column(d))
    ]
    if identifiers:
        raise ValueError(
            f'likelihood="mixed": nearly all entries of {listed(identifiers, table.names)} of X '
            "are different, as in names or identifiers, which contain no information about "
            f"clusters; drop {'it' if len(identifiers) == 1 else 'them'}"
        )


def _kinds_of_columns(X):
    """Kind of each column of X, a key of `_parts()`."""
    table = as_table(X)
    names = None if table is None else table.names
    if table is None:
        if not hasattr(X, "dtype"):
            X = np.asarray(X)
        shape = given_shape(X)
        n_features = shape[1] if len(shape) == 2 else 0
        kind = {"f": "float", "b": "bool", "i": "integer", "u": "integer"}.get(X.dtype.kind)
        kinds = [kind or str(X.dtype)] * n_features
    else:
        kinds = [column.kind for column in table.columns()]

    def those(columns):
        return ", ".join(called(d, names).removesuffix(" of X") for d in columns)

    integers = [d for d, kind in enumerate(kinds) if kind == "integer"]
    if integers:
        raise ValueError(
            f'likelihood="mixed" does not guess what integers mean ({those(integers)}). Use '
            "Product([(name, likelihood, columns), ...]) with NegativeBinomial() or Poisson() "
            "for counts or Categorical() for codes of categories; or convert measurements to "
            "floats, X.astype({column: float})"
        )
    others = [d for d, kind in enumerate(kinds) if kind not in _parts()]
    if others:
        raise ValueError(
            f'likelihood="mixed" has no likelihood for {those(others)} of X, of type '
            f"{', '.join(sorted({kinds[d] for d in others}))}; drop or convert "
            f"{'it' if len(others) == 1 else 'them'} (to numbers or strings)"
        )
    return kinds
