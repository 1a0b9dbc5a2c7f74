# SPDX-License-Identifier: BSD-3-Clause
"""Independent geometric columns with Beta priors.

With n items in a cluster, the sum s_d of their counts in column d and B the beta function,

    p(x_i | cluster) = prod_d B(a + n + 1, b + s_d + x_id) / B(a + n, b + s_d),
    p(cluster)       = prod_d B(a + n, b + s_d) / B(a, b).

Row: n, s_d (n_features) | log B(a + n, b + s_d) (n_features).
"""
from libc.math cimport lgamma

from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, row


cdef double log_beta(double a, double b) noexcept nogil:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


cdef class GeometricModel(ClusterModel):
    """Kernel of geometric clusters.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Counts.
    a, b : float
    n_max : int
        Largest number of items of a cluster; a kernel with tables by count needs it.
    """
    cdef Py_ssize_t n_features
    cdef const double* X
    cdef double a, b
    cdef object _owner      # keeps X alive

    def __init__(self, const double[:, ::1] X, double a, double b, Py_ssize_t n_max):
        self._owner = X
        self.n_samples = X.shape[0]
        self.n_features = X.shape[1]
        self.n_max = n_max
        self.X = &X[0, 0]
        self.a = a
        self.b = b
        # Sums of counts stay integers, exact in doubles, so rows do not drift (`drifts` is False).
        self.allocate(1 + self.n_features, 1 + 2 * self.n_features)
        self.compute_log_norms(self.empty)

    cdef void compute_log_norms(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        cdef double* log_norms = stats + self.n_stats
        for d in range(self.n_features):
            log_norms[d] = log_beta(self.a + stats[0], self.b + stats[1 + d])

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        """Add (by = 1) or remove (by = -1) item i."""
        cdef Py_ssize_t d
        cdef double* stats = row(self, slot)
        cdef const double* x = self.X + i * self.n_features
        stats[0] += by
        for d in range(self.n_features):
            stats[1 + d] += by * x[d]
        self.compute_log_norms(stats)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute_log_norms(row(self, slot))

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* log_norms = row(self, slot) + self.n_stats
        cdef double total = -self.n_features * log_beta(self.a, self.b)
        for d in range(self.n_features):
            total += log_norms[d]
        return total

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * n_features)."""
        cdef Py_ssize_t d, k
        cdef const double* x = self.X + i * self.n_features
        cdef const double* stats
        cdef double total
        for k in range(slots.n):
            stats = row(self, slots.at[k])
            total = 0.0
            for d in range(self.n_features):
                total += log_beta(self.a + stats[0] + 1.0, self.b + stats[1 + d] + x[d])
                total -= stats[self.n_stats + d]
            out[k] = total
