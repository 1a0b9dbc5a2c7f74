# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the rows given to estimators, under a likelihood."""

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array, validate_data

from skdpm._tables import as_table, kind_of
from skdpm._validation import ColumnError

# Parts of the messages of NumPy and pandas for tables that cannot become doubles.
NO_NUMBERS = (
    "argument must be a string or a real number",
    "Cannot cast",
    "could not be promoted",
    "could not convert string",
)


def validate_rows(estimator, X, likelihood, reset, **allowed):
    """X as contiguous doubles or a CSR matrix, its entries checked.

    Parameters
    ----------
    estimator : ChainEstimator
    X : array-like
    likelihood : Likelihood or FeatureLikelihood
    reset : bool
        Whether the number and names of columns are new.
    **allowed : bool
        Further arguments of `check_entries`.

    Returns
    -------
    X : array of shape (n_samples, n_features)

    Raises
    ------
    TypeError, ValueError
    """
    rows = numbers_of_table(estimator, X, likelihood, reset)
    if rows is None:
        if sp.issparse(X) and not likelihood.accept_sparse:
            raise TypeError(
                f"X is sparse, but the likelihood {type(likelihood).__name__} needs dense rows: "
                "pass X.toarray(), in a pipeline by FunctionTransformer(lambda X: X.toarray())"
                f"{estimator._ways_with_sparse}"
            )
        try:
            rows = validate_data(
                estimator,
                X,
                reset=reset,
                dtype=np.float64,
                order="C",
                accept_sparse="csr" if likelihood.accept_sparse else False,
                ensure_all_finite=False,
            )
            rows = dense_if_needed(rows, likelihood)
        except (TypeError, ValueError) as error:
            if not any(words in str(error) for words in NO_NUMBERS):
                raise
            if isinstance(error, TypeError) and not hasattr(X, "iloc"):
                raise  # the error of NumPy is clear for an array
            ways = likelihood.text_hint
            if ways is None:
                ways = estimator._ways_with_text
            raise ValueError(_what_is_no_number(X, error, ways)) from error
    try:
        likelihood.check_entries(rows, **allowed)
    except ColumnError as error:
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            raise
        raise error.named(names) from None
    return rows


def with_exposure(rows, likelihood, exposure=None):
    """Checked rows, with their exposures as a further column if the likelihood takes them.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features)
    likelihood : Likelihood
    exposure : array-like of shape (n_samples,) or None
        None: 1 for every row.

    Returns
    -------
    rows : array of shape (n_samples, n_features), or one column more

    Raises
    ------
    ValueError
    """
    if not likelihood.exposed:
        if exposure is None:
            return rows
        raise ValueError("the fit had no exposure, so new rows have none; pass exposure to fit")
    if exposure is None:
        return np.column_stack([rows, np.ones(rows.shape[0])])
    try:
        checked = np.asarray(exposure, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"exposure must hold numbers, got {exposure!r}") from None
    if checked.shape != (rows.shape[0],):
        raise ValueError(
            f"exposure must have one number for each of the {rows.shape[0]} rows of X, got an "
            f"array of shape {checked.shape}"
        )
    bad = np.flatnonzero(~((checked > 0.0) & np.isfinite(checked)))
    if len(bad):
        raise ValueError(
            f"exposure must be positive and finite, but is {checked[bad[0]]:g} for row {bad[0]}; "
            "drop rows without an exposure, of which nothing can be known"
        )
    return np.column_stack([rows, checked])


def dense_if_needed(X, likelihood):
    """CSR rows as an array, if the likelihood accepts them but does not compute with them."""
    return X.toarray() if sp.issparse(X) and likelihood.accept_sparse == "as dense" else X


def numbers_of_table(estimator, X, likelihood, reset):
    """Check the columns of a table and convert it to numbers by `Likelihood.read`.

    Returns None if X is not a table, or the likelihood does not read tables.
    """
    table = as_table(X) if likelihood.reads_tables else None
    if table is None:
        return None
    validate_data(estimator, table.X, reset=reset, skip_check_array=True)
    return check_array(
        likelihood.read(table),
        dtype=np.float64,
        order="C",
        ensure_all_finite=False,
        estimator=estimator,
        input_name="X",
    )


def _what_is_no_number(X, error, ways_with_text):
    """Message about the first column of X that does not hold numbers, which led to `error`."""
    table = X if hasattr(X, "iloc") else np.asarray(X, dtype=object)
    names = getattr(table, "columns", range(np.shape(table)[-1]))
    for j, name in enumerate(names):
        column = table.iloc[:, j] if hasattr(table, "iloc") else table[..., j]
        kind = kind_of(column)
        if kind == "category":
            try:
                np.asarray(column, dtype=np.float64)  # categories such as 1 and 2 are accepted
            except (TypeError, ValueError) as found:
                return f"{found}, in column {name!r} of X{ways_with_text}"
        elif kind not in ("float", "integer", "bool"):
            return (
                f"column {name!r} of X holds {kind}, not numbers: drop it or convert it to numbers"
            )
    return str(error)
