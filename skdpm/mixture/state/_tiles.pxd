# SPDX-License-Identifier: BSD-3-Clause
cdef class RowTiles:
    """Rows in an order in which close rows follow one another, in tiles and groups of tiles."""
    cdef readonly Py_ssize_t n_rows, n_features
    cdef readonly Py_ssize_t tile_size      # maximum number of rows in a tile
    cdef readonly Py_ssize_t group_size     # the same of a group, divided by tile_size
    cdef readonly Py_ssize_t n_tiles, n_groups
    cdef readonly Py_ssize_t[::1] order     # (n_rows,)
    cdef readonly Py_ssize_t[::1] starts    # (n_tiles + 1,): place of each tile in the order
    cdef Py_ssize_t[::1] group_starts       # (n_groups + 1,): first tile of each group
    # Boxes around tiles and groups: see `_core/_culling`.
    cdef readonly double[:, :, ::1] boxes   # (n_tiles, 2, n_features)
    cdef double[:, :, ::1] group_boxes      # (n_groups, 2, n_features)
