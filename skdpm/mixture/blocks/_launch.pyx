# SPDX-License-Identifier: BSD-3-Clause
"""Sides of unions of clusters, drawn row by row under two sets of parameters each.

Side 0 of row i has probability w_0 p(x_i | theta_0) / sum_s w_s p(x_i | theta_s). Rows are
independent, so the log probability of sides is a sum over rows, and over blocks. Each union has
four such sums: of the sides drawn and of the opposite sides; then, if the union is two clusters,
of the sides that the rows are on now and of the opposite sides.
"""
from libc.math cimport exp, log1p

import numpy as np

from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, uniform
from skdpm.mixture.likelihoods.contract._parametric cimport (
    TILE, Indices, ParametricModel, as_indices,
)


cdef void draw_tile(
    ParametricModel model, Indices items,
    const double* params, const double* log_weights,    # of the two sides
    bitgen_t* rng,
    double* log_density,        # (2, TILE): scratch
    double* log_p,              # OUT (2, TILE): log probabilities of the sides
    Py_ssize_t* sides           # OUT (items.n,)
) noexcept nogil:
    """Draw the side of each item."""
    cdef Py_ssize_t[2] which = [0, 1]
    model.log_density_many(items, params, as_indices(which, 2), log_density)
    for i in range(items.n):
        gap = log_density[TILE + i] + log_weights[1] - log_density[i] - log_weights[0]
        # log p_0 = -log(1 + e^gap) and log p_1 = -log(1 + e^-gap), without overflow.
        if gap > 0.0:
            log_p[TILE + i] = -log1p(exp(-gap))
            log_p[i] = log_p[TILE + i] - gap
        else:
            log_p[i] = -log1p(exp(gap))
            log_p[TILE + i] = log_p[i] + gap
        sides[i] = uniform(rng) >= exp(log_p[i])


def launch_sides(ParametricModel model, const int[::1] codes, launch, list bit_generators):
    """Draw sides for the rows of unions of clusters, in a block; no code changes. The model is
    bound to the rows, and each union has a bit generator.

    Returns the statistics of the two sides of each union, the first row of each side (-1: it has
    none) and the four sums of each union, (n_unions, 4).
    """
    cdef Py_ssize_t j, k, m, s
    cdef Py_ssize_t n_unions = len(launch.unions)
    cdef Py_ssize_t n_codes = 1 + int(np.asarray(codes).max(initial=0))
    cdef double[2 * TILE] log_density, log_p
    cdef Py_ssize_t[TILE] sides, chosen
    cdef const double[:, ::1] params = np.ascontiguousarray(launch.params)
    cdef const double[::1] log_weights = np.ascontiguousarray(launch.log_weights)
    cdef double[:, ::1] stats = np.zeros((2 * n_unions, model.n_stats))
    cdef Py_ssize_t[::1] first_rows = np.full(2 * n_unions, -1, dtype=np.intp)
    cdef double[:, ::1] log_q = np.zeros((n_unions, 4))
    expect_shape("codes", codes, (model.n_samples,))
    expect_shape("params", params, (2 * n_unions, model.n_params))
    expect_shape("log_weights", log_weights, (2 * n_unions,))
    # For each cluster, its union (n_unions: none), and which side of it that is; last, for noise.
    union_of = np.full(n_codes // 2 + 2, n_unions, dtype=np.min_scalar_type(n_unions))
    side_of = np.zeros(len(union_of), dtype=np.intp)
    for j, clusters in enumerate(launch.unions):
        for s, k in enumerate(clusters):
            if k < len(union_of) - 1:
                union_of[k] = j
                side_of[k] = s
    # The rows of each union, in their order.
    of_rows = union_of[np.asarray(codes) >> 1]
    cdef const Py_ssize_t[::1] present = side_of
    cdef const Py_ssize_t[::1] items = np.argsort(of_rows, kind="stable")
    sizes = np.bincount(of_rows, minlength=n_unions)
    cdef const Py_ssize_t[::1] starts = np.append(0, np.cumsum(sizes))
    for j in range(n_unions):
        rng = bit_generator_pointer(bit_generators[j])
        with bit_generators[j].lock, nogil:
            for k in range((starts[j + 1] - starts[j] + TILE - 1) // TILE):
                first = starts[j] + k * TILE
                n = min(<Py_ssize_t>TILE, starts[j + 1] - first)
                draw_tile(
                    model, as_indices(&items[first], n), &params[2 * j, 0], &log_weights[2 * j],
                    rng, log_density, log_p, sides
                )
                for i in range(n):
                    same, other = log_p[sides[i] * TILE + i], log_p[(1 - sides[i]) * TILE + i]
                    log_q[j, 0] += same
                    log_q[j, 1] += other
                    s = present[codes[items[first + i]] // 2]
                    log_q[j, 2] += log_p[s * TILE + i]
                    log_q[j, 3] += log_p[(1 - s) * TILE + i]
                for s in range(2):
                    m = 0
                    for i in range(n):
                        if sides[i] == s:
                            chosen[m] = items[first + i]
                            m += 1
                    if m > 0:
                        model.accumulate(&stats[2 * j + s, 0], as_indices(chosen, m))
                        if first_rows[2 * j + s] < 0:
                            first_rows[2 * j + s] = chosen[0]
    return np.asarray(stats), np.asarray(first_rows), np.asarray(log_q)


def draw_sides(ParametricModel model, int[::1] codes, split, bit_generator):
    """Carry out a split that `launch_sides` drew, in place, from the same stream.

    Side 0 stays in the cluster and side 1 moves to the new one, both to left sub-clusters.
    """
    cdef Py_ssize_t[TILE] sides
    cdef double[2 * TILE] log_density, log_p
    cdef const double[:, ::1] params = np.ascontiguousarray(split.params)
    cdef const double[::1] log_weights = np.ascontiguousarray(split.log_weights)
    cdef int[2] new_codes = [2 * split.cluster, 2 * split.new_cluster]
    cdef const Py_ssize_t[::1] items = np.flatnonzero(np.asarray(codes) >> 1 == split.cluster)
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    expect_shape("codes", codes, (model.n_samples,))
    expect_shape("params", params, (2, model.n_params))
    expect_shape("log_weights", log_weights, (2,))
    with bit_generator.lock, nogil:
        for k in range((items.shape[0] + TILE - 1) // TILE):
            first = k * TILE
            n = min(<Py_ssize_t>TILE, items.shape[0] - first)
            draw_tile(
                model, as_indices(&items[first], n), &params[0, 0], &log_weights[0], rng,
                log_density, log_p, sides
            )
            for m in range(n):
                codes[items[first + m]] = new_codes[sides[m]]
