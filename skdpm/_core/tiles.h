/* SPDX-License-Identifier: BSD-3-Clause
 * Arithmetic on tiles: a few hundred items at a time, each array contiguous along the items, so
 * that every inner loop is vectorised over items that do not depend on each other. The compiler
 * makes a version for each instruction set and the loader chooses; as no sum runs along a vector
 * register, and none is contracted, all versions give the same bits. */
#ifndef SKDPM_TILES_H
#define SKDPM_TILES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Versions by instruction set need the loader of glibc; without it there is one version. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) \
    && !defined(__SANITIZE_ADDRESS__)
#define SKDPM_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SKDPM_VERSIONS
#endif
#if defined(__GNUC__)
#define SKDPM_UNUSED __attribute__((unused))
#else
#define SKDPM_UNUSED
#endif

/* exp(x) for x <= 0, within two units in the last place; 0 below -700. */
static inline double exp_negative(double x)
{
    const double shift = 0x1.8p52; /* adding it rounds to an integer, in the low bits */
    const double bounded = x > -700.0 ? x : -700.0;
    const double rounded = bounded * 0x1.71547652b82fep0 + shift;
    const double n = rounded - shift;
    const double r = (bounded - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;
    /* Taylor's series on |r| <= log(2) / 2; the first term left out is below 2e-18. */
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits, scale;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&scale, &rounded, sizeof scale);
    bits += scale << 52;
    memcpy(&p, &bits, sizeof p);
    return x > -700.0 ? p : 0.0;
}

/* A category per item, with probability proportional to exp(w[k][i]), from uniforms u on [0, 1).
 * w: (n_terms, ld), destroyed; u, top, total: (n,), the last two scratch. Returns 0 where an item
 * has no finite weight. */
SKDPM_VERSIONS
SKDPM_UNUSED static int tile_categorical(
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
    for (ptrdiff_t i = 0; i < n; i++)
        good &= top[i] > -INFINITY && top[i] < INFINITY;
    if (!good)
        return 0;
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++) {
            row[i] = exp_negative(row[i] - top[i]);
            total[i] += row[i];
        }
    }
    for (ptrdiff_t i = 0; i < n; i++)
        u[i] *= total[i];
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        const double *restrict row = w + k * ld;
        for (ptrdiff_t i = 0; i < n; i++) {
            u[i] -= row[i];
            out[i] += u[i] >= 0.0;
        }
    }
    /* Rounding may leave u at 0 or above past the last positive weight: never choose a weight of
     * zero. */
    for (ptrdiff_t i = 0; i < n; i++)
        if (out[i] == n_terms) {
            do
                out[i]--;
            while (w[out[i] * ld + i] == 0.0);
        }
    return good;
}

/* Items in strips: the columns of 32 items one after the other, then those of the next 32. So all
 * that a strip needs is in the fastest cache, and the sums of a row of W stay in registers. */
#define SKDPM_STRIP 32

/* out[i] = top - |W x_i - c|^2 / 2, with x in strips and W lower triangular, packed by rows; -inf
 * where that is NaN or overflows. */
SKDPM_VERSIONS
SKDPM_UNUSED static void tile_gaussian(
    const double *restrict x, ptrdiff_t n, ptrdiff_t n_features, const double *restrict w,
    const double *restrict c, double top, double *restrict out)
{
    for (ptrdiff_t first = 0; first < n; first += SKDPM_STRIP) {
        const ptrdiff_t m = n - first < SKDPM_STRIP ? n - first : SKDPM_STRIP;
        const double *restrict row = w;
        double squares[SKDPM_STRIP] = {0.0};
        for (ptrdiff_t j = 0; j < n_features; j++) {
            const double *restrict a = x;
            double sums[SKDPM_STRIP];
            ptrdiff_t d = 0;
            for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                sums[i] = -c[j];
            for (; d + 4 <= j + 1; d += 4) {
                const double w0 = row[d], w1 = row[d + 1], w2 = row[d + 2], w3 = row[d + 3];
                for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                    sums[i] += (w0 * a[i] + w1 * a[SKDPM_STRIP + i])
                        + (w2 * a[2 * SKDPM_STRIP + i] + w3 * a[3 * SKDPM_STRIP + i]);
                a += 4 * SKDPM_STRIP;
            }
            for (; d <= j; d++) {
                for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                    sums[i] += row[d] * a[i];
                a += SKDPM_STRIP;
            }
            for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                squares[i] += sums[i] * sums[i];
            row += j + 1;
        }
        for (ptrdiff_t i = 0; i < m; i++)
            out[first + i] = squares[i] < INFINITY ? top - 0.5 * squares[i] : -INFINITY;
        x += SKDPM_STRIP * n_features;
    }
}

/* out += sum_i x_i x_i', packed by columns of the lower triangle; x: (n, n_features), row by row. */
SKDPM_VERSIONS
SKDPM_UNUSED static void tile_scatter(
    const double *restrict x, ptrdiff_t n, ptrdiff_t n_features, double *restrict out)
{
    if (n_features <= 4) { /* columns are too short to be vectorised */
        for (ptrdiff_t d = 0; d < n_features; d++)
            for (ptrdiff_t e = d; e < n_features; e++) {
                double sum = 0.0;
                for (ptrdiff_t i = 0; i < n; i++)
                    sum += x[i * n_features + d] * x[i * n_features + e];
                *out++ += sum;
            }
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        double *restrict column = out;
        for (ptrdiff_t d = 0; d < n_features; d++) {
            const double by = x[d];
            for (ptrdiff_t e = 0; e < n_features - d; e++)
                column[e] += by * x[d + e];
            column += n_features - d;
        }
        x += n_features;
    }
}

#endif
