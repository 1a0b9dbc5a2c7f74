# SPDX-License-Identifier: BSD-3-Clause
"""Functions of rows, called where the rows are: in memory at once, on Dask lazily."""

import numpy as np

from skdpm._validation import is_dask


def over_rows(function, X, *, check, check_chunk, n_features, dtype, n_columns=None):
    """function(rows) of X; for a dask array, a lazy one over its chunks.

    Parameters
    ----------
    function : callable
        Of an array of checked rows; gives an entry per row, or `n_columns` of them. It goes to
        every worker.
    X : array-like or dask.array.Array of shape (n_samples, n_features)
    check, check_chunk : callable
        Of X in memory, and of a chunk; give checked rows.
    n_features : int
        Expected.
    dtype : dtype
        Of the result.
    n_columns : int or None

    Returns
    -------
    out : ndarray or dask.array.Array of shape (n_samples,) or (n_samples, n_columns)

    Raises
    ------
    ValueError
        Where X is not what was fitted; for the entries of a dask array, when it is computed.
    """
    if not is_dask(X):
        return function(check(X))
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, but {n_features} features are expected as input")
    X = X.rechunk({1: -1})
    shape = (0,) if n_columns is None else (0, n_columns)
    layout = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
    empty = np.empty(shape, dtype=dtype)
    return X.map_blocks(_of_chunk, function, check_chunk, empty, dtype=dtype, meta=empty, **layout)


def _of_chunk(X, function, check, empty):
    return function(check(X)) if X.shape[0] else empty


def row_chunks(X):
    """Yield the batches of the X of `partial_fit`, and whether each is the last: (rows, bool)."""
    if not is_dask(X) or X.ndim != 2:
        yield X, True
        return
    X = X.rechunk({1: -1})
    rows = X.blocks[0].compute()
    for b in range(1, X.numblocks[0]):
        following = X.blocks[b].compute()
        if following.shape[0] == 0:
            continue
        if rows.shape[0] > 0:
            yield rows, False
        rows = following
    yield rows, True
