# SPDX-License-Identifier: BSD-3-Clause
"""The order in which a sweep visits the rows of a block: close ones one after the other.

It depends on nothing but the rows, so that results do not depend on where a block is computed, or
on whether the order was kept from the last time. It takes longer to make than most sweeps.
"""

import threading
import zlib
from collections import OrderedDict

import numpy as np

from skdpm.mixture.blocks._visit import BATCH_ROWS, TILE_ROWS
from skdpm.mixture.state._tiles import RowTiles

# With fewer clusters, bounds of what they weigh cost more than they save.
FEWEST_CLUSTERS = 8

# Most memory that orders take which belong to no `Rows`.
MOST_BYTES = 2**28


def uses_order(task):
    """Tell whether close rows are visited together in a task, if the likelihood lets them."""
    sweep = task.sweep
    return sweep is not None and sweep.groups is None and task.n_clusters >= FEWEST_CLUSTERS


def row_order(likelihood, X):
    """Make the order of a block's rows.

    Parameters
    ----------
    likelihood : Likelihood
        Resolved.
    X : ndarray or CSR array
        The block's rows.

    Returns
    -------
    order : ndarray of shape (n_rows,), int32, or None
        None where the likelihood has no bounds, or none of use with these rows.
    """
    if likelihood.parametric(X[:0]).n_dimensions == 0:
        return None
    points = likelihood.box_points(likelihood.encode(X))
    if points is None:
        return None
    tiles = RowTiles(points, TILE_ROWS, BATCH_ROWS // TILE_ROWS)
    return tiles.row_order().astype(np.int32)


class KeptOrders:
    """Orders of the blocks that were asked for last, told by the rows that are in them.

    For workers of Dask, where nothing lasts as long as a fit. Threads may share it.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes):
        self.most_bytes = most_bytes
        self.n_bytes = 0
        self.orders = OrderedDict()
        self._lock = threading.Lock()

    def find(self, likelihood, X):
        """Return what `row_order` does."""
        first = likelihood.box_points(likelihood.encode(X[:1]))
        if first is None or not isinstance(X, np.ndarray):
            return row_order(likelihood, X)
        # The first point tells likelihoods apart that make other points of the same rows.
        X = np.ascontiguousarray(X)
        key = (first.tobytes(), X.dtype.str, X.shape, zlib.crc32(X), X.ctypes.data)
        with self._lock:
            if key in self.orders:
                self.orders.move_to_end(key)
                return self.orders[key]
        order = row_order(likelihood, X)
        with self._lock:
            if key not in self.orders:
                self.orders[key] = order
                self.n_bytes += _size(order)
            while self.n_bytes > self.most_bytes:
                self.n_bytes -= _size(self.orders.popitem(last=False)[1])
        return order


def _size(order):
    return 0 if order is None else order.nbytes


KEPT_ORDERS = KeptOrders(MOST_BYTES)
