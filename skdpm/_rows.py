# SPDX-License-Identifier: BSD-3-Clause
"""The rows given to estimators: what they may be, and their checks under a likelihood."""

import functools
import os
from typing import cast

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import _check_n_features, check_array, validate_data

from skdpm._tables import NUMBERS, Table, as_table, is_frame, numeric_column
from skdpm._typing import F
from skdpm._validation import FARTHEST, WORDS_HINT, ColumnError, is_dask, is_dask_frame, warn
from skdpm.networks import WITHOUT_WEIGHTS, Adjacency, is_graph, network_of

# The category by which dask marks that it does not know the categories of a column.
UNKNOWN = "__UNKNOWN_CATEGORIES__"
OF_FIT = "; the column held numbers in `fit`, so pass a number, or NaN if it is missing"


def given_rows(X):
    """What a user passes as X, without masks: a `Table`, an array of numbers, a sparse matrix, the
    `Adjacency` of a graph, or a dask array or data frame; else X, which scikit-learn refuses.

    Raises TypeError if X is something else for which the way to an array is known.
    """
    if is_graph(X):
        return network_of(X)
    refuse_what_has_no_rows(X)
    if isinstance(X, (list, tuple)) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.stack(X)
    if is_dask(X):
        if isinstance(X._meta, np.ma.MaskedArray):
            X = X.map_blocks(_without_mask, dtype=np.float64, meta=np.empty((0, 0)))
        return X
    if isinstance(X, np.ma.MaskedArray):
        X = _without_mask(X)
    elif hasattr(X, "__array__") and not (
        isinstance(X, (np.ndarray, Table)) or sp.issparse(X) or is_frame(X) or hasattr(X, "iloc")
    ):
        X = np.asarray(X)  # so that its dates, say, are seen
    table = as_table(X)
    if table is not None and isinstance(table.X, np.ndarray) and table.X.dtype.kind == "O":
        table = as_table(_without_numpy_strings(table.X))
    return X if table is None else table


# Messages show strings of numpy as np.str_('a').
_without_numpy_strings = np.frompyfunc(lambda x: str(x) if type(x) is np.str_ else x, 1, 1)


def _without_mask(X):
    """An array with NaN, or None for objects, in place of masked entries."""
    if X.dtype.kind in "biuf":
        return np.where(np.ma.getmaskarray(X), np.nan, X.data)
    if X.dtype.kind == "c" or not np.ma.is_masked(X):
        return X.data
    out = X.data.astype(object)
    out[np.ma.getmaskarray(X)] = None
    return out


def refuse_what_has_no_rows(X):
    """Raise TypeError if X is no table, but stands for one or has one."""
    what, way = f"a {type(X).__name__}", None
    if X is None:
        what, way = "None", "pass the rows"
    elif isinstance(X, (str, bytes, os.PathLike)) or callable(getattr(X, "read", None)):
        what += f", {X!r:.60}"
        way = "read the file first, such as X = pandas.read_csv(path)"
    elif hasattr(type(X), "__next__"):
        way = 'pass all rows at once, np.array(list(X)), or with sampler="smc" pass batches of '
        way += "rows to partial_fit"
    elif isinstance(X, dict) and not sp.issparse(X):
        way = "pass a data frame, pandas.DataFrame(X)"
    elif hasattr(X, "collect") and hasattr(X, "collect_schema"):
        way = "pass the rows, X.collect()"
    elif getattr(getattr(X, "dtype", None), "names", None) is not None:
        what = "a structured array"
        way = "pass a data frame, pandas.DataFrame(X)"
        if isinstance(X, np.ma.MaskedArray):
            way = "pass a data frame with a column for each field, such as X[name].filled(np.nan)"
    if way is not None:
        raise TypeError(f"X is {what}, not an array or a data frame: {way}")


def names_columns(method: F) -> F:
    """Decorate a method of an estimator: its errors about columns of X have the names of these,
    and of rows if X is a data frame of pandas."""

    @functools.wraps(method)
    def named(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except ColumnError as error:
            frames = (getattr(X, "X", X) for X in args)
            index = next((frame.index for frame in frames if hasattr(frame, "iloc")), None)
            if error.row == FARTHEST and args and not is_dask(args[0]):
                error = error.with_farthest(numeric_column(args[0], error.column), index)
            raise error.named(getattr(self, "feature_names_in_", None), index) from None

    return cast(F, named)


def named_call(names, function, *args, **kwargs):
    """Call a function, with the names of columns in its errors about columns. None: no names."""
    try:
        return function(*args, **kwargs)
    except ColumnError as error:
        raise error.named(names) from None


def validate_rows(estimator, X, likelihood, reset, **allowed):
    """X as contiguous doubles or a CSR matrix, its entries checked: (n_samples, n_features).

    With `reset` the number and names of columns are new. `allowed` are further arguments of
    `check_entries`. Raises TypeError, ValueError.
    """
    rows = converted(estimator, X, likelihood, reset, dtype=np.float64, order="C")
    likelihood.check_entries(rows, **allowed)
    return likelihood.rebuilt(rows)


def converted(estimator, X, likelihood, reset, **form):
    """X as an array or a CSR matrix. `form` is the dtype and order of arrays of numbers; tables
    become doubles."""
    X = given_rows(X)
    if reset:
        for name in ("_nodes", "_columns"):
            vars(estimator).pop(name, None)
    if isinstance(X, Table):
        if reset and X.names is None and hasattr(X.X, "iloc"):
            estimator._columns = X.X.columns.to_numpy()
        validate_data(estimator, X.X, reset=reset, skip_check_array=True)
        X.advice = OF_FIT if likelihood.text_hint is None and not reset else ""
        return check_array(
            _numbers_of(X, likelihood, estimator._ways_with_text),
            dtype=np.float64,
            order="C",
            ensure_all_finite=False,
            estimator=estimator,
            input_name="X",
        )
    if isinstance(X, Adjacency):
        return _of_network(estimator, X, likelihood, reset)
    if is_dask_frame(X):
        raise TypeError("X is a dask data frame, but rows must be in memory: pass X.compute()")
    if sp.issparse(X) and not likelihood.accept_sparse:
        raise TypeError(
            f"X is sparse, but the likelihood {type(likelihood).__name__} needs dense rows: "
            f"{estimator._ways_with_sparse}pass X.toarray(), in a pipeline by "
            "FunctionTransformer(lambda X: X.toarray())"
        )
    try:
        rows = validate_data(
            estimator,
            X,
            reset=reset,
            accept_sparse="csr" if likelihood.accept_sparse else False,
            ensure_all_finite=False,
            **form,
        )
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        advice = WORDS_HINT if np.ndim(X) == 1 else likelihood.text_hint
        advice = estimator._ways_with_text if advice is None else advice
        raise ValueError(f"{error}, in X{advice}") from error
    rows = dense_if_needed(rows, likelihood)
    return likelihood.read(Table(rows)) if likelihood.reads_numbers else rows


def _of_network(estimator, X, likelihood, reset):
    """The CSR matrix of a network; its nodes become or must be the names of columns."""
    if not likelihood.pairwise:
        raise TypeError(
            'X is a network: use likelihood="relational", or FeatureAllocation(likelihood="lfrm")'
        )
    rows = check_array(
        X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, input_name="X"
    )
    _check_n_features(estimator, rows, reset=reset)
    if reset:
        vars(estimator).pop("feature_names_in_", None)
        estimator._nodes = X.nodes
        if X.lacks_weights and not getattr(likelihood, "weights", None):
            warn(WITHOUT_WEIGHTS)
        if X.nodes not in (None, list(range(rows.shape[1]))):  # 0, 1, ... are no names
            estimator.feature_names_in_ = np.array([str(node) for node in X.nodes], dtype=object)
    # Strings would not tell 1 from "1". Nodes of arrays and slices are not known.
    names = list(getattr(estimator, "feature_names_in_", []))
    nodes = getattr(estimator, "_nodes", names or None)
    if None not in (nodes, X.nodes) and nodes != X.nodes:
        raise ValueError(
            "X must have the nodes of fit, in the same order: for a graph G, pass "
            "skdpm.networks.adjacency(G, nodes=list(F)), where F is the graph of fit"
        )
    return rows


def _numbers_of(table, likelihood, ways_with_text):
    """The columns of a `Table` as doubles, by `Likelihood.read` if it reads other values."""
    if likelihood.read is not None:
        return likelihood.read(table)
    advice = likelihood.text_hint
    return table.numbers(ways_with_text if advice is None else advice)


def lazy_rows(estimator, X, likelihood, reset):
    """A dask data frame or array as a dask array with the right number and names of columns."""
    if not is_dask_frame(X):
        _check_n_features(estimator, X, reset=reset)
        if not likelihood.reads_numbers:
            return X
        return X.rechunk({1: -1}).map_blocks(_of_partition, likelihood.read, meta=np.empty((0, 0)))
    table = as_table(X)
    validate_data(estimator, table.X, reset=reset, skip_check_array=True)
    for j, column in enumerate(table.columns()):
        if column.kind == "category" and UNKNOWN in (column.categories or [UNKNOWN]):
            raise ValueError(
                f"{table.called(j)} holds strings, and their values are not known before all rows "
                "are read: pass X.categorize(), or drop the column"
            )
    _numbers_of(table, likelihood, estimator._ways_with_text)
    # Other likelihoods are left out, so that the array has the same name in all calls.
    read = likelihood.read or Table.numbers
    return X.map_partitions(_of_partition, read, meta=np.empty((0, X.shape[1])))


def _of_partition(frame, read):
    return read(as_table(frame, numbers=True))


def with_exposure(rows, likelihood, exposure=None):
    """Checked rows, with their exposures as a further column if the likelihood takes them. Raises
    ValueError also if there are exposures and the likelihood takes none, or the other way round.
    """
    if not likelihood.exposed:
        if exposure is None:
            return rows
        raise ValueError("the fit had no exposure, so new rows have none; pass exposure to fit")
    if exposure is None:
        raise ValueError(
            "the rows of fit had exposures, so these need them too: pass exposure=, a number for "
            "each row of X, such as np.ones(len(X)) for exposures of 1. For cross_val_score, call "
            "sklearn.set_config(enable_metadata_routing=True) and set_score_request(exposure=True)"
        )
    checked = _numbers_of_rows(exposure)
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


def unit_exposure(n_rows, likelihood):
    """Exposures of 1 if the likelihood takes exposures; otherwise None."""
    return np.ones(n_rows) if likelihood.exposed else None


def _numbers_of_rows(exposure):
    if isinstance(exposure, np.ma.MaskedArray):
        exposure = _without_mask(exposure)
    values = np.asarray(exposure)
    if values.dtype.kind == "O" and values.ndim == 1:
        column = Table(values[:, None]).column(0)
        values = column.values if column.kind in NUMBERS else values
    if values.dtype.kind not in "biuf":
        what = repr(values.ravel()[:1].tolist())[1:-1]
        raise ValueError(
            f"exposure must hold numbers, but it holds {what:.60}; convert it, such as by "
            "pd.to_numeric, and pass its values, not the name of a column"
        )
    return values.astype(np.float64)


def dense_if_needed(X, likelihood):
    """CSR rows as an array, if the likelihood accepts them but does not compute with them."""
    return X.toarray() if sp.issparse(X) and likelihood.accept_sparse == "as dense" else X
