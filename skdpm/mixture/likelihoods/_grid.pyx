# SPDX-License-Identifier: BSD-3-Clause
"""Clusters whose parameter is one of the points of a grid, under any likelihood.

    theta_d ~ sum_m w_dm delta(theta_m),  log p(x_i | theta) = sum_d l_idm where theta_d = theta_m,

in D independent blocks of M points. With S_dm the sum of l_idm over the items of a cluster and
Z_d = sum_m w_dm exp(S_dm),

    p(cluster)       = prod_d Z_d,
    p(x_i | cluster) = prod_d sum_m p_dm exp(l_idm),   p_dm = w_dm exp(S_dm) / Z_d.

The sums over m are dot products of p_dm and exp(l_idm - max_m l_idm), both of which are 0 below
TINY. A dot product so small that the terms lost might matter is computed from logarithms instead.
Most items rejoin the cluster that they have left, so its row is set aside and then brought back.

Row: n, how many l_idm are -inf, S_dm of the others (D, M), how many of them are -inf (D, M)
| log Z_d (D), p_dm (D, M).
"""
from libc.math cimport INFINITY, log
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from skdpm.mixture.likelihoods._base cimport ClusterModel, row


cdef extern from *:
    """
    #include "tiles.h"

    /* Sums and maxima run in so many lanes, whatever the instruction set: the same bits. */
    #define SKDPM_LANES 16

    SKDPM_INLINE double skdpm_lanes_sum(double *lane)
    {
        for (int width = SKDPM_LANES / 2; width; width /= 2)
            for (int j = 0; j < width; j++)
                lane[j] += lane[j + width];
        return lane[0];
    }

    SKDPM_VERSIONS
    static double skdpm_grid_dot(const double *p, const double *r, ptrdiff_t n)
    {
        double lane[SKDPM_LANES] = {0.0};
        ptrdiff_t m = 0;
        for (; m + SKDPM_LANES <= n; m += SKDPM_LANES)
            for (int j = 0; j < SKDPM_LANES; j++)
                lane[j] += p[m + j] * r[m + j];
        for (int j = 0; m + j < n; j++)
            lane[j] += p[m + j] * r[m + j];
        return skdpm_lanes_sum(lane);
    }

    SKDPM_VERSIONS
    static void skdpm_grid_scale(double *p, ptrdiff_t n, double by)
    {
        for (ptrdiff_t m = 0; m < n; m++)
            p[m] *= by;
    }

    /* x = exp(x - max x). Returns the sum of x, and the maximum in top; all 0 where it is -inf. */
    SKDPM_VERSIONS
    static double skdpm_grid_exp(double *x, ptrdiff_t n, double *top)
    {
        double lane[SKDPM_LANES] = {0.0};
        double high[SKDPM_LANES];
        ptrdiff_t m = 0;
        double t;
        for (int j = 0; j < SKDPM_LANES; j++)
            high[j] = -INFINITY;
        for (; m + SKDPM_LANES <= n; m += SKDPM_LANES)
            for (int j = 0; j < SKDPM_LANES; j++)
                high[j] = x[m + j] > high[j] ? x[m + j] : high[j];
        for (int j = 0; m + j < n; j++)
            high[j] = x[m + j] > high[j] ? x[m + j] : high[j];
        t = high[0];
        for (int j = 1; j < SKDPM_LANES; j++)
            t = high[j] > t ? high[j] : t;
        *top = t;
        if (!(t > -INFINITY)) {
            for (m = 0; m < n; m++)
                x[m] = 0.0;
            return 0.0;
        }
        for (m = 0; m < n; m++)
            x[m] = exp_negative(x[m] - t);
        m = 0;
        for (; m + SKDPM_LANES <= n; m += SKDPM_LANES)
            for (int j = 0; j < SKDPM_LANES; j++)
                lane[j] += x[m + j];
        for (int j = 0; m + j < n; j++)
            lane[j] += x[m + j];
        return skdpm_lanes_sum(lane);
    }
    """
    double grid_dot "skdpm_grid_dot"(
        const double* p, const double* r, Py_ssize_t n
    ) noexcept nogil
    void grid_scale "skdpm_grid_scale"(double* p, Py_ssize_t n, double by) noexcept nogil
    double grid_exp "skdpm_grid_exp"(double* x, Py_ssize_t n, double* top) noexcept nogil


cdef enum:
    N_HEAD = 2      # statistics before those of points

# exp(-690); smaller terms are 0, so that no entry is a denormal number, with which arithmetic is
# slow.
TINY = 1e-300

cdef double LEAST_DOT = 1e-280      # what is lost is beyond the digits of this


cdef class GridModel(ClusterModel):
    """Kernel of likelihoods on a grid.

    Parameters
    ----------
    data : dict
        log_likelihoods : ndarray of shape (n_samples, n_blocks, n_points)
            -inf where a point cannot have made the item.
        likelihoods : ndarray of the same shape
            exp of them after the largest of each item and block has been subtracted; 0 in place of
            what is below TINY.
        tops : ndarray of shape (n_samples, n_blocks)
            These largest.
        top_sums : ndarray of shape (n_samples,)
            Their sums.
        impossible : ndarray of shape (n_samples,), uint8
            Whether an item has an entry of -inf.
    tables : dict
        n_max : int
            Most items that one cluster may hold.
        log_weights : ndarray of shape (n_blocks, n_points)
            log w, up to a constant of each block.
    """
    cdef Py_ssize_t n_blocks        # D
    cdef Py_ssize_t n_points        # M
    cdef Py_ssize_t n_entries       # D M
    cdef const double* log_likelihoods
    cdef const double* likelihoods
    cdef const double* tops
    cdef const double* top_sums
    cdef const unsigned char* impossible
    cdef const double* log_weights
    cdef double* log_totals         # (n_blocks,): log of the sum of w
    cdef double* scratch            # (n_points,)
    # The row of a slot before an item left, and its statistics afterwards.
    cdef double* kept
    cdef double* left
    cdef Py_ssize_t kept_slot       # -1: none
    cdef Py_ssize_t kept_item
    cdef object _owners

    def __init__(self, data, tables):
        cdef const double[:, ::1] log_weights = tables["log_weights"]
        cdef const double[:, :, ::1] log_likelihoods = data["log_likelihoods"]
        cdef const double[:, :, ::1] likelihoods = data["likelihoods"]
        cdef const double[:, ::1] tops = data["tops"]
        cdef const double[::1] top_sums = data["top_sums"]
        cdef const unsigned char[::1] impossible = data["impossible"]
        self._owners = (log_likelihoods, likelihoods, tops, top_sums, impossible, log_weights)
        self.n_samples = log_likelihoods.shape[0]
        self.n_blocks = log_likelihoods.shape[1]
        self.n_points = log_likelihoods.shape[2]
        self.n_entries = self.n_blocks * self.n_points
        self.n_max = tables["n_max"]
        self.log_likelihoods = &log_likelihoods[0, 0, 0]
        self.likelihoods = &likelihoods[0, 0, 0]
        self.tops = &tops[0, 0]
        self.top_sums = &top_sums[0]
        self.impossible = &impossible[0]
        self.log_weights = &log_weights[0, 0]
        self.drifts = True
        self.kept_slot = -1
        self.allocate(N_HEAD + 2 * self.n_entries, N_HEAD + 3 * self.n_entries + self.n_blocks)
        self.log_totals = <double*>calloc(self.n_blocks, sizeof(double))
        self.scratch = <double*>malloc(self.n_points * sizeof(double))
        self.kept = <double*>malloc(self.width * sizeof(double))
        self.left = <double*>malloc(self.n_stats * sizeof(double))
        if (
            self.log_totals == NULL or self.scratch == NULL or self.kept == NULL
            or self.left == NULL
        ):
            raise MemoryError
        self.compute(self.empty)
        memcpy(self.log_totals, self.log_norms(self.empty), self.n_blocks * sizeof(double))
        self.compute(self.empty)

    def __dealloc__(self):
        free(self.log_totals)
        free(self.scratch)
        free(self.kept)
        free(self.left)

    # Cached terms of a row.

    cdef inline double* log_norms(self, double* stats) noexcept nogil:
        return stats + self.n_stats

    cdef inline double* weights(self, double* stats) noexcept nogil:
        return stats + self.n_stats + self.n_blocks

    cdef void weigh(
        self, const double* stats, Py_ssize_t d, const double* extra, double* out
    ) noexcept nogil:
        """log w + S of a block, and the log likelihoods of an item unless `extra` is NULL."""
        cdef Py_ssize_t m
        cdef const double* log_w = self.log_weights + d * self.n_points
        cdef const double* sums = stats + N_HEAD + d * self.n_points
        cdef const double* counts = sums + self.n_entries
        for m in range(self.n_points):
            out[m] = log_w[m] + sums[m]
        if extra != NULL:
            for m in range(self.n_points):
                out[m] += extra[m]
        if stats[1] > 0.0:
            for m in range(self.n_points):
                if counts[m] > 0.0:
                    out[m] = -INFINITY

    cdef void compute_block(self, double* stats, Py_ssize_t d) noexcept nogil:
        cdef double top, total
        cdef double* p = self.weights(stats) + d * self.n_points
        self.weigh(stats, d, NULL, p)
        total = grid_exp(p, self.n_points, &top)
        if total > 0.0:
            grid_scale(p, self.n_points, 1.0 / total)
            self.log_norms(stats)[d] = top + log(total) - self.log_totals[d]
        else:
            self.log_norms(stats)[d] = top      # -inf: no point can have made these items

    cdef void compute(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_blocks):
            self.compute_block(stats, d)

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Let item i enter (by = 1) or leave (by = -1) the statistics."""
        cdef Py_ssize_t m
        cdef const double* x = self.log_likelihoods + i * self.n_entries
        cdef double* sums = stats + N_HEAD
        cdef double* counts = sums + self.n_entries
        stats[0] += by
        if not self.impossible[i]:
            for m in range(self.n_entries):
                sums[m] += by * x[m]
            return
        for m in range(self.n_entries):
            if x[m] > -INFINITY:
                sums[m] += by * x[m]
            else:
                counts[m] += by
                stats[1] += by

    cdef void settle(self) noexcept nogil:
        """Forget the row that was set aside."""
        self.kept_slot = -1

    cdef double log_likelihood(self, const Py_ssize_t* slots, Py_ssize_t n_slots) noexcept nogil:
        # Asked for after every iteration: what a chain does next depends on its rows alone, so
        # that one which is saved and goes on has the same draws.
        self.settle()
        return ClusterModel.log_likelihood(self, slots, n_slots)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        if (
            slot == self.kept_slot and i == self.kept_item
            and memcmp(stats, self.left, self.n_stats * sizeof(double)) == 0
        ):
            memcpy(stats, self.kept, self.width * sizeof(double))
            self.kept_slot = -1
            return
        self.kept_slot = -1
        self.change(stats, i, 1.0)
        self.compute(stats)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        memcpy(self.kept, stats, self.width * sizeof(double))
        if stats[0] == 1.0:
            memcpy(stats, self.empty, self.width * sizeof(double))
        else:
            self.change(stats, i, -1.0)
            self.compute(stats)
        memcpy(self.left, stats, self.n_stats * sizeof(double))
        self.kept_slot = slot
        self.kept_item = i

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.kept_slot = -1
        self.compute(row(self, slot))

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* log_norms = self.log_norms(row(self, slot))
        cdef double total = 0.0
        for d in range(self.n_blocks):
            total += log_norms[d]
        return total

    cdef double log_predictive_block(
        self, double* stats, Py_ssize_t d, Py_ssize_t i
    ) noexcept nogil:
        """log p(block d of x_i | cluster), from logarithms."""
        cdef double top, total
        cdef double log_norm = self.log_norms(stats)[d]
        if not log_norm > -INFINITY:
            return -INFINITY
        self.weigh(
            stats, d, self.log_likelihoods + i * self.n_entries + d * self.n_points, self.scratch
        )
        total = grid_exp(self.scratch, self.n_points, &top)
        return top + log(total) - self.log_totals[d] - log_norm if total > 0.0 else -INFINITY

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * D * M); -inf where the cluster is itself
        impossible, which an item must be able to leave."""
        cdef Py_ssize_t d, k
        cdef const double* r = self.likelihoods + i * self.n_entries
        cdef const double* tops = self.tops + i * self.n_blocks
        cdef double* stats
        cdef const double* p
        cdef double dot, product, total
        for k in range(n_slots):
            stats = row(self, slots[k])
            p = self.weights(stats)
            total = self.top_sums[i]
            product = 1.0
            for d in range(self.n_blocks):
                dot = grid_dot(p + d * self.n_points, r + d * self.n_points, self.n_points)
                if dot > LEAST_DOT:
                    product *= dot
                    if product < 1e-25:     # so that the next factor cannot make it underflow
                        total += log(product)
                        product = 1.0
                else:
                    total += self.log_predictive_block(stats, d, i) - tops[d]
            out[k] = total + log(product)
