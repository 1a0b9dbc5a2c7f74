# SPDX-License-Identifier: BSD-3-Clause
"""What kernels of columns of counts share; missing entries drop out.

Row: n, sum of log x! over the large entries (in two parts: whole numbers and the rest), s_d (D),
n_d (D) | terms that a likelihood caches. s_d and n_d are the sum and the number of the entries of
a column; if items have exposures, n_d is the sum of the exposures of the entries. A likelihood
without separate terms of large entries has none: their sum is 0.

Parameters of a cluster: log densities of a row are linear in its counts,

    sum_d x_d l_d - c_d,    stored as -sum_d c_d, l_d (D), c_d (D).
"""
from libc.math cimport floor
from libc.string cimport memset

import numpy as np

from skdpm._core._math cimport log_gamma_function
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, row
from skdpm.mixture.likelihoods.contract._parametric cimport LD, TILE, ParametricModel, tile_gather


cdef extern from "tiles.h" nogil:
    void tile_poisson(
        const double* x, Py_ssize_t ld, Py_ssize_t n, Py_ssize_t n_features,
        const double* log_rate, const double* rate, double top, bint missing, double* out
    )


LARGE_COUNT = LARGE


cdef class CountModel(ClusterModel):

    cdef int take_counts(self, data, tables) except -1:
        """Keep counts `X`, NaN for missing entries; `log_large`, sums of log x! over the large
        entries of the items; `drifts`, whether there are such entries or exposures; `exposure` of
        the items, if any; and of the tables `n_max` and whether entries may be `missing`."""
        self.X = data["X"]
        self.n_samples = self.X.shape[0]
        self.n_features = self.X.shape[1]
        self.exposure = data.get("exposure")
        if self.exposure is not None and self.exposure.shape[0] != self.n_samples:
            raise ValueError(f"{len(self.exposure)} exposures for {self.n_samples} items")
        self.n_max = tables["n_max"]
        self.log_large = data["log_large"]
        self.drifts = data["drifts"]
        self.missing = tables["missing"]

    cdef void move(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Add item i to the statistics (by = 1) or remove it (by = -1)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = &self.X[i, 0]
        cdef double* sums = stats + N_HEAD
        cdef double* counts = sums + n_features
        cdef double exposure = by if self.exposure is None else by * self.exposure[i]
        stats[0] += by
        if stats[0] == 0.0:
            stats[1] = stats[2] = 0.0
        elif self.log_large[i] > 0.0:
            # Whole numbers add up exactly; the sum of the rest is small, and so is its rounding.
            whole = floor(self.log_large[i])
            stats[1] += by * whole
            stats[2] += by * (self.log_large[i] - whole)
        if self.exposure is not None and stats[0] == 0.0:
            # Without what rounding has left of the exposures.
            memset(sums, 0, 2 * n_features * sizeof(double))
            return
        if not self.missing:
            for d in range(n_features):
                sums[d] += by * x[d]
                counts[d] = stats[0] if self.exposure is None else counts[d] + exposure
            return
        for d in range(n_features):
            if x[d] == x[d]:
                sums[d] += by * x[d]
                counts[d] += exposure

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        """`move`, and update the cached terms."""
        self.move(row(self, slot), i, by)
        self.compute(row(self, slot))

    cdef void compute(self, double* stats) noexcept nogil:
        """Cached terms from the statistics."""

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute(row(self, slot))


cdef class ParametricCounts(ParametricModel):
    """Rows of counts, NaN for missing entries, under drawn parameters. Entries of this or another
    block may be `missing`, or `large` with separate terms."""

    def __init__(
        self, const double[:, ::1] X, double shape, double rate, bint missing, bint large
    ):
        self.X = X
        self.shape = shape
        self.rate = rate
        self.n_samples = X.shape[0]
        self.n_features = X.shape[1]
        self.n_stats = N_HEAD + 2 * self.n_features
        self.n_params = 1 + 2 * self.n_features
        self.missing = missing
        self.large = large
        self.work = np.empty(self.n_features * LD)

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        tile_gather(&self.X[0, 0], self.n_features, items.at, items.n, &self.work[0], LD)
        for k in range(which.n):
            theta = params + which.at[k] * self.n_params
            tile_poisson(
                &self.work[0], LD, items.n, self.n_features, theta + 1,
                theta + 1 + self.n_features, theta[0], self.missing, out + k * TILE
            )
        for i in range(items.n if self.large else 0):
            log_large = self.log_large_of(items.at[i])
            for k in range(which.n):
                out[k * TILE + i] -= log_large

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        cdef double* sums = stats + N_HEAD
        cdef double* counts = sums + self.n_features
        stats[0] += items.n
        for i in range(items.n):
            x = &self.X[items.at[i], 0]
            for d in range(self.n_features):
                sums[d] += x[d] if x[d] == x[d] else 0.0
                counts[d] += 1.0 if x[d] == x[d] else 0.0
            if self.large:
                log_large = self.log_large_of(items.at[i])
                whole = floor(log_large)
                stats[1] += whole
                stats[2] += log_large - whole

    cdef double log_large_of(self, Py_ssize_t i) noexcept nogil:
        """Sum of log x! over the large entries of an item."""
        cdef const double* x = &self.X[i, 0]
        cdef double total = 0.0
        for d in range(self.n_features):
            if x[d] >= LARGE:
                total += log_gamma_function(x[d] + 1.0)
        return total
