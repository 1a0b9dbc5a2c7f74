# SPDX-License-Identifier: BSD-3-Clause
"""Rows in blocks, by where the rows of X are."""

from skdpm._validation import is_dask
from skdpm.mixture.blocks.rows import MemoryRows


def open_rows(X, block_size, n_threads=1):
    """Cut X into blocks.

    Parameters
    ----------
    X : ndarray, CSR array or dask array of shape (n_samples, n_features)
        A dask array as `dask_rows.check_dask` returns it.
    block_size : int
        Maximum number of rows in a block.
    n_threads : int, default=1
        Number of threads for rows in memory; Dask has its own.

    Returns
    -------
    rows : Rows
    """
    if is_dask(X):
        from skdpm.mixture.blocks.dask_rows import DaskRows  # dask is optional

        return DaskRows(X, block_size)
    return MemoryRows(X, block_size, n_threads)
