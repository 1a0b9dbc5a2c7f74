# SPDX-License-Identifier: BSD-3-Clause
"""Known classes of rows, as columns of a `ProductModel`: rows of two classes are never together.

Let c_1, ..., c_m be the classes of those items of a cluster that have one. The term of the cluster
is

    log_marginal = -APART sum_{i < j} (c_i - c_j)^2 = -APART (m sum c^2 - (sum c)^2),

0 for items of one class. All other clusters have no weight beside it: exp(-APART) is 0. The term
is finite, so differences of it are never NaN, and it is a sum over pairs, so an item of class c
changes it by -APART (m c^2 - 2 c sum c + sum c^2), whatever the cluster.

Row: m, sum c, sum c^2. They are whole numbers below 2^53, so all sums are exact.
"""
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, read_row, row

# Far above the difference of any two log densities of data.
cdef double APART = 1e15

N_CLASS_STATS = 3


cdef class ClassModel(ClusterModel):
    """Kernel of the `codes` of a `Classified`, for clusters of at most `n_max` items."""
    cdef const Py_ssize_t[::1] codes

    def __init__(self, const Py_ssize_t[::1] codes, n_max):
        self.codes = codes
        self.n_samples = codes.shape[0]
        self.n_max = n_max
        self.allocate(N_CLASS_STATS, N_CLASS_STATS)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        cdef double* stats = row(self, slot)
        cdef double c = <double>self.codes[i]
        if c >= 0.0:
            stats[0] += by
            stats[1] += by * c
            stats[2] += by * c * c

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef double* stats = row(self, slot)
        if stats[0] == 0.0:
            return 0.0
        # The mean of equal classes is exact, and so is this product. That of the two sums is not.
        return -APART * (stats[2] - stats[1] * (stats[1] / stats[0])) * stats[0]

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef double c = <double>self.codes[i]
        for k in range(slots.n):
            out[k] = 0.0
            if c >= 0.0:
                stats = read_row(self, slots.at[k])
                out[k] -= APART * (c * (stats[0] * c - 2.0 * stats[1]) + stats[2])
