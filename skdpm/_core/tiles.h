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

/* out[i] = top - |W x_i - c|^2 / 2, with x (n_features, ld) and W lower triangular, packed by
 * rows; -inf where that is NaN or overflows. y: (n,), scratch. */
SKDPM_VERSIONS
SKDPM_UNUSED static void tile_gaussian(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t n_features,
    const double *restrict w, const double *restrict c, double top, double *restrict y,
    double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = 0.0;
    for (ptrdiff_t j = 0; j < n_features; j++) {
        const double *restrict a = x;
        ptrdiff_t d = 0;
        const double shift = c[j];
        for (ptrdiff_t i = 0; i < n; i++)
            y[i] = -shift;
        for (; d + 8 <= j + 1; d += 8) {
            const double w0 = w[d], w1 = w[d + 1], w2 = w[d + 2], w3 = w[d + 3];
            const double w4 = w[d + 4], w5 = w[d + 5], w6 = w[d + 6], w7 = w[d + 7];
            for (ptrdiff_t i = 0; i < n; i++)
                y[i] += ((w0 * a[i] + w1 * a[ld + i]) + (w2 * a[2 * ld + i] + w3 * a[3 * ld + i]))
                    + ((w4 * a[4 * ld + i] + w5 * a[5 * ld + i])
                       + (w6 * a[6 * ld + i] + w7 * a[7 * ld + i]));
            a += 8 * ld;
        }
        for (; d + 2 <= j + 1; d += 2) {
            const double w0 = w[d], w1 = w[d + 1];
            for (ptrdiff_t i = 0; i < n; i++)
                y[i] += w0 * a[i] + w1 * a[ld + i];
            a += 2 * ld;
        }
        if (d <= j) {
            const double w0 = w[d];
            for (ptrdiff_t i = 0; i < n; i++) {
                const double z = y[i] + w0 * a[i];
                out[i] += z * z;
            }
        } else {
            for (ptrdiff_t i = 0; i < n; i++)
                out[i] += y[i] * y[i];
        }
        w += j + 1;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = out[i] < INFINITY ? top - 0.5 * out[i] : -INFINITY;
}

/* Sum of a_i b_i; eight running sums, in a fixed order. */
SKDPM_VERSIONS
SKDPM_UNUSED static double tile_dot(const double *restrict a, const double *restrict b, ptrdiff_t n)
{
    double sums[8] = {0.0};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (ptrdiff_t j = 0; j < 8; j++)
            sums[j] += a[i + j] * b[i + j];
    double total = ((sums[0] + sums[1]) + (sums[2] + sums[3]))
        + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

/* Sum of a_i, likewise. */
SKDPM_VERSIONS
SKDPM_UNUSED static double tile_sum(const double *restrict a, ptrdiff_t n)
{
    double sums[8] = {0.0};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (ptrdiff_t j = 0; j < 8; j++)
            sums[j] += a[i + j];
    double total = ((sums[0] + sums[1]) + (sums[2] + sums[3]))
        + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < n; i++)
        total += a[i];
    return total;
}

#endif
