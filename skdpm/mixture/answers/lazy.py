# SPDX-License-Identifier: BSD-3-Clause
"""Functions of rows, applied at once to arrays in memory and lazily to dask arrays."""

import numpy as np

from skdpm._validation import is_dask


def over_rows(function, X, *, check, check_chunk, n_features, dtype, n_columns=None):
    """Apply a function to the rows of X; for a dask array, lazily to each chunk.

    - `function`: callable. Function of an array of checked rows that returns one entry per row, or
      `n_columns` entries. It is sent to every worker.
    - `X`: array-like or dask.array.Array of shape (n_samples, n_features).
    - `check, check_chunk`: callable. Functions that check X in memory, or a chunk, and return the
      checked rows.
    - `n_features`: int. Expected number of columns.
    - `dtype`: dtype. Dtype of the result.
    - `n_columns`: int or None.

    Returns `out`: ndarray or dask.array.Array of shape (n_samples,) or (n_samples, n_columns).

    Raises ValueError if X does not fit the model. The entries of a dask array are checked when it
    is computed.
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
    """Yield (rows, is_last) for each batch of the X of `partial_fit`."""
    if not is_dask(X) or X.ndim != 2:
        yield X, True
        return
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
    rows = X.partitions[0].compute()
    for b in range(1, X.npartitions):
        following = X.partitions[b].compute()
        if following.shape[0] == 0:
            continue
        if rows.shape[0] > 0:
            yield rows, False
        rows = following
    yield rows, True
