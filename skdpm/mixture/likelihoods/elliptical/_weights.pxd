# SPDX-License-Identifier: BSD-3-Clause
cdef enum:
    MOST_WEIGHTS = 8


cdef class RowWeights:
    """Weights of rows that a chain draws with the clusters."""
    cdef readonly Py_ssize_t n_rows
    cdef readonly Py_ssize_t n_weights      # G
    cdef readonly Py_ssize_t n_lanes        # of `values` and `log_probabilities`: see tiles.h
    cdef readonly Py_ssize_t n_sets
    cdef object law                         # tails.Tails
    cdef unsigned char[::1] chosen          # (n_rows,): number of the weight of each row
    cdef unsigned char[::1] is_open         # (n_rows,): whether the row has no weight now
    cdef bint drawn                         # whether weights are draws, not those of the start
    cdef double[::1] relative               # (G,): weights, up to the factor of their set
    cdef Py_ssize_t[::1] sets               # (G,)
    cdef double[::1] factors                # (n_sets,): for current hyperparameters
    cdef double[::1] values                 # (n_lanes,): the weights, then ones
    cdef double[::1] log_probabilities      # (n_lanes,), -infinity at the end

    cdef int take(self, parameters) except -1
