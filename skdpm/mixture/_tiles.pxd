# SPDX-License-Identifier: BSD-3-Clause
cdef extern from *:
    """
    /* What rounding may take from a bound: far more than it does, and far too little to matter.
     * Factors of what a distance is made of, and a share of the terms of a logarithm. */
    #define SKDPM_BELOW (1.0 - 1e-9)
    #define SKDPM_ABOVE (1.0 + 1e-9)
    #define SKDPM_SLACK 1e-11
    """
    const double BELOW "SKDPM_BELOW"
    const double ABOVE "SKDPM_ABOVE"
    const double SLACK "SKDPM_SLACK"


cdef void enclose(
    const double* x, Py_ssize_t n_features, const Py_ssize_t* order, Py_ssize_t n, double* box
) noexcept nogil


cdef class RowTiles:
    """Rows in an order in which close ones follow one another, in tiles, and these in groups."""
    cdef readonly Py_ssize_t n_rows
    cdef readonly Py_ssize_t n_features
    cdef readonly Py_ssize_t tile_size      # rows in a tile; the last one may have fewer
    cdef readonly Py_ssize_t group_size     # tiles in a group; likewise
    cdef readonly Py_ssize_t n_tiles
    cdef readonly Py_ssize_t n_groups
    cdef Py_ssize_t* order                  # (n_rows,)
    # A box is the coordinates of its centre, then half its widths: 2 n_features doubles.
    cdef double* boxes                      # (n_tiles, 2 n_features)
    cdef double* group_boxes                # (n_groups, 2 n_features)
