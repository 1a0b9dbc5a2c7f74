/* SPDX-License-Identifier: BSD-3-Clause
 * Draws of clusters for a tile of items from log weights: among all clusters (tile_categorical), from
 * some that mostly suffice (tile_select), between the two halves of a cluster (tile_halves). Arrays
 * are as in tiles.h. */
#ifndef SKDPM_DRAWS_H
#define SKDPM_DRAWS_H

#include "tiles.h"

/* Draws a category for each item with probability proportional to exp(w[k][i]), from uniform u on
 * [0, 1). w: (n_terms, ld), overwritten; u, top, total: (n,), the last two scratch. Returns 0 if an
 * item has no finite weight or a weight that is NaN. */
SKDPM_KERNEL int tile_categorical(
    double *restrict w, ptrdiff_t n_terms, ptrdiff_t ld, ptrdiff_t n, double *restrict u,
    double *restrict top, double *restrict total, ptrdiff_t *restrict out)
{
    int good = 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        top[i] = w[i];
        total[i] = 0.0;
        out[i] = 0;
    }
    for (ptrdiff_t k = 1; k < n_terms; k++) {
        const double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++)
            top[i] = row[i] > top[i] ? row[i] : top[i];
    }
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++) {
            row[i] = exp_negative(row[i] - top[i]);
            total[i] += row[i];
        }
    }
    /* The total is NaN if a weight is, or if the top is infinite. */
    for (ptrdiff_t i = 0; i < n; i++)
        good &= total[i] < INFINITY;
    if (!good)
        return 0;
    for (ptrdiff_t i = 0; i < n; i++)
        u[i] *= total[i];
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        const double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++) {
            u[i] -= row[i];
            out[i] += u[i] >= 0.0;
        }
    }
    /* Rounding may leave u at 0 or above after the last positive weight: never choose a weight of
     * zero. The loop ends, because the largest weight is 1. */
    for (ptrdiff_t i = 0; i < n; i++)
        if (out[i] == n_terms) {
            do
                out[i]--;
            while (w[out[i] * ld + i] == 0.0);
        }
    return good;
}

/* The same draws from some of the terms. The weight of term k for item i is exp(w_ki + by[k]), at
 * most 1. The sum of the weights of all other terms is at most `rest` for every item. out[i] is -1 if
 * these or rounding could change the draw, or if there is no distribution (proof in `_culling.pxd`).
 * scratch: (3 n,). */
SKDPM_KERNEL void tile_select(
    double *restrict w, const double *restrict by, ptrdiff_t n_terms, ptrdiff_t ld, ptrdiff_t n,
    const double *restrict u, double rest, double *restrict scratch, ptrdiff_t *restrict out)
{
    double *restrict low = scratch, *restrict high = scratch + n, *restrict total = high + n;
    double largest = 0.0;
    for (ptrdiff_t i = 0; i < n; i++)
        total[i] = 0.0;
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        double *restrict row = w + k * ld;
        const double by_k = by[k];
        largest = fabs(by_k) > largest ? fabs(by_k) : largest;
        for (ptrdiff_t i = 0; i < n; i++) {
            row[i] = exp_negative(row[i] + by_k);
            total[i] += row[i];
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        /* Rounding error of logarithms of this size. */
        const double slack = (1e-11 + 1e-15 * largest) * total[i];
        low[i] = u[i] * total[i] - rest - slack;
        high[i] = u[i] * (total[i] + rest) + slack;
        out[i] = low[i] >= 0.0 ? 0 : -n_terms - 1;
    }
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        const double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++) {
            low[i] -= row[i];
            high[i] -= row[i];
            /* Stays below 0 if low and high disagree. */
            out[i] += low[i] >= 0.0 ? 1 : high[i] >= 0.0 ? -n_terms - 1 : 0;
        }
    }
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = (out[i] >= 0) & (out[i] < n_terms) ? out[i] : -1;
}

/* For items with keys[i] == key, out[i] is 2 * code or 2 * code + 1, with probabilities proportional
 * to exp(a_i + by_a) and exp(b_i + by_b), drawn as by `tile_categorical`; -2 if there is no
 * distribution. */
SKDPM_KERNEL void tile_halves(
    const double *restrict a, const double *restrict b, double by_a, double by_b, ptrdiff_t n,
    const double *restrict u, const ptrdiff_t *restrict keys, ptrdiff_t key, ptrdiff_t code,
    ptrdiff_t *restrict out)
{
    const ptrdiff_t left = 2 * code, right = 2 * code + 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double log_a = a[i] + by_a, log_b = b[i] + by_b, gap = log_a - log_b;
        const double most = log_a > log_b ? log_a : log_b;
        const double less = exp_negative(gap < 0.0 ? gap : -gap);
        const double first = gap < 0.0 ? less : 1.0; /* out of 1 + less */
        const ptrdiff_t draw = u[i] * (1.0 + less) >= first ? right : left;
        const ptrdiff_t known = (gap == gap) & (most < INFINITY) ? draw : -2;
        out[i] = keys[i] == key ? known : out[i];
    }
}

/* Number of items with keys[i] == key. */
SKDPM_KERNEL ptrdiff_t tile_count(
    const ptrdiff_t *restrict keys, ptrdiff_t n, ptrdiff_t key)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        count += keys[i] == key;
    return count;
}

#endif
