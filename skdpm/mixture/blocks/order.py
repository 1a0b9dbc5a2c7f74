# SPDX-License-Identifier: BSD-3-Clause
"""The order in which a sweep visits the rows of a block, in which close rows follow one another.

The order depends on the rows alone: results depend neither on where a block is computed nor on
whether its order was kept. Making an order takes longer than most sweeps.
"""

import threading
import zlib
from collections import OrderedDict

import numpy as np

from skdpm.mixture.blocks._visit import BATCH_ROWS, TILE_ROWS
from skdpm.mixture.state._tiles import RowTiles

# With fewer clusters bounds cost more than they save.
FEWEST_CLUSTERS = 8

# Maximum memory, in bytes, of orders that belong to no `Rows`.
MOST_BYTES = 2**28


def uses_order(task):
    """Whether a task visits close rows together, if the likelihood has bounds."""
    sweep = task.sweep
    return sweep is not None and sweep.in_tiles and task.n_clusters >= FEWEST_CLUSTERS


def row_order(likelihood, X):
    """Make the order of a block's rows X: ndarray of shape (n_rows,), int32, or None if the
    resolved likelihood has no bounds for these rows."""
    if likelihood.parametric(X[:0]).n_dimensions == 0:
        return None
    points = likelihood.box_points(likelihood.encode(X))
    if points is None:
        return None
    tiles = RowTiles(points, TILE_ROWS, BATCH_ROWS // TILE_ROWS)
    return np.asarray(tiles.order, dtype=np.int32)


class KeptOrders:
    """Cache of the orders last used, looked up by the rows of the block, in at most `most_bytes`.

    It serves workers of Dask, where nothing else lasts as long as a fit. Threads may share it.
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
        # Likelihoods that make different points of the same rows differ in the first point.
        key = (first.tobytes(), X.dtype.str, X.shape, zlib.crc32(np.ascontiguousarray(X)))
        key = (*key, X.ctypes.data)
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
