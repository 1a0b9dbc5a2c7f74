/* SPDX-License-Identifier: BSD-3-Clause
 * Cholesky factors without roots, A = L D L' with ones on the diagonal of L, of small symmetric
 * matrices, packed by columns: column j holds the entries j, ..., n - 1, so that inner loops run
 * along contiguous memory and the compiler vectorises them (by rows, a solve at n = 128 is several
 * times slower). In place of the diagonal of L stands that of D, inverted: it is only ever divided
 * by. Products are taken in an order in which only a result that is too large overflows. */
#ifndef SKDPM_CHOLESKY_H
#define SKDPM_CHOLESKY_H

#include <math.h>
#include <stddef.h>

#include "versions.h"

/* A -> its factor, in place. Returns 0, and leaves log_det NaN, if A is not positive definite.
 * O(n^3 / 3).
 *
 * `least` is NULL, or the factor of a matrix S of which A is known to be the sum with a positive
 * semidefinite one. Then no pivot of A is below that of S (Schur complements keep the order of
 * matrices): one that rounding has made smaller, or negative, is replaced by it. */
static inline int cholesky_above(
    double *packed, ptrdiff_t n, const double *least, double *log_det)
{
    double *column = packed;
    *log_det = NAN;
    double total = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) {
        double pivot = column[0];
        if (least) {
            if (pivot * least[0] < 1.0)
                pivot = 1.0 / least[0];
            least += n - j;
        }
        if (!(pivot > 0.0 && pivot < INFINITY))
            return 0;
        const double inverse = 1.0 / pivot;
        if (!(inverse < INFINITY))
            return 0;
        total += log(pivot);
        column[0] = inverse;
        double *restrict target = column + (n - j);
        for (ptrdiff_t k = 1; k < n - j; k++) {
            const double *restrict source = column + k;
            const double by = column[k] * inverse;
            for (ptrdiff_t i = 0; i < n - j - k; i++)
                target[i] -= by * source[i];
            target += n - j - k;
            column[k] = by;
        }
        column += n - j;
    }
    *log_det = total;
    return 1;
}

static inline int cholesky(double *packed, ptrdiff_t n, double *log_det)
{
    return cholesky_above(packed, n, NULL, log_det);
}

/* The same from the lower triangle of a matrix whose rows are `stride` apart. */
static inline int factorize(
    const double *matrix, ptrdiff_t n, ptrdiff_t stride, double *packed, double *log_det)
{
    double *to = packed;
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t i = j; i < n; i++)
            *to++ = matrix[i * stride + j];
    return cholesky(packed, n, log_det);
}

/* Factor of A -> factor of A + alpha v v', in place; v is destroyed and log_det brought up to date.
 * By one elementary transformation per column (Gill, Golub, Murray & Saunders 1974, method C1).
 * Returns 0 if a downdate (alpha < 0) would leave too few digits of a pivot, or if a number is no
 * double; the factor is then spoilt. O(n^2). */
SKDPM_KERNEL int cholesky_update(
    double *packed, ptrdiff_t n, double *restrict v, double alpha, double *log_det)
{
    double *restrict column = packed;
    double ratio = 1.0; /* product of the pivots' ratios: one logarithm instead of n */
    double change = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const ptrdiff_t m = n - j;
        double *restrict w = v + j;
        const double p = w[0];
        const double square = 1.0 + alpha * (p * (p * column[0]));
        if (!(square > 1e-10 && square < 1e300)) {
            /* The 1 in a square that large has no digit left: the limits of what stands below. */
            const double scaled = p * column[0];
            const double inverse = (1.0 / (alpha * p)) / p;
            if (!(alpha > 0.0 && square > 1.0 && inverse > 0.0))
                return 0;
            change += log(alpha) + log(fabs(p)) + log(fabs(scaled));
            column[0] = inverse;
            alpha = (1.0 / p) / scaled;
            for (ptrdiff_t i = 1; i < m; i++) {
                w[i] -= p * column[i];
                column[i] += w[i] / p;
            }
            column += m;
            continue;
        }
        const double inverse = 1.0 / square;
        column[0] *= inverse;
        ratio *= square;
        if (!(ratio > 1e-100 && ratio < 1e100)) {
            change += log(ratio);
            ratio = 1.0;
        }
        const double by = alpha * (p * column[0]);
        alpha *= inverse;
        if (m > 2) {
            /* The next column too, if it is an ordinary one: v is then read and written once for
             * both. Every number has the bits of one column at a time. */
            double *restrict next = column + m;
            const double r = w[1] - p * column[1];
            const double second = 1.0 + alpha * (r * (r * next[0]));
            const double together = ratio * second;
            if (second > 1e-10 && second < 1e300 && together > 1e-100 && together < 1e100) {
                const double other = 1.0 / second;
                next[0] *= other;
                ratio = together;
                const double step = alpha * (r * next[0]);
                alpha *= other;
                column[1] += by * r;
                for (ptrdiff_t i = 2; i < m; i++) {
                    const double z = w[i] - p * column[i];
                    column[i] += by * z;
                    w[i] = z - r * next[i - 1];
                    next[i - 1] += step * w[i];
                }
                column = next + m - 1;
                j++;
                continue;
            }
        }
        for (ptrdiff_t i = 1; i < m; i++) {
            w[i] -= p * column[i];
            column[i] += by * w[i];
        }
        column += m;
    }
    *log_det += change + log(ratio);
    return 1;
}

/* A -> A + by v v'. */
SKDPM_KERNEL void add_square(
    double *restrict packed, ptrdiff_t n, const double *restrict v, double by)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        const double scaled = by * v[j];
        for (ptrdiff_t i = j; i < n; i++)
            packed[i - j] += scaled * v[i];
        packed += n - j;
    }
}

/* Two doubles side by side: gcc does not find them in loops over four vectors by itself. */
#if defined(__GNUC__)
typedef double skdpm_pair __attribute__((vector_size(16), aligned(8), may_alias));
#define SKDPM_PAIR(p) (*(skdpm_pair *)(p))
#define SKDPM_BOTH(x) ((skdpm_pair){(x), (x)})
#endif

/* V -> L^-1 V for four vectors side by side, V of shape (n, 4). O(2 n^2). */
static inline void substitute_four(const double *packed, ptrdiff_t n, double *v)
{
    const double *a = packed;
    for (ptrdiff_t j = 0; j + 1 < n; j += 2) {
        const ptrdiff_t m = n - j;
        const double *b = a + m;
        double *w = v + 4 * j;
#if defined(__GNUC__)
        const skdpm_pair p = SKDPM_PAIR(w), r = SKDPM_PAIR(w + 2);
        const skdpm_pair q = SKDPM_PAIR(w + 4) - SKDPM_BOTH(a[1]) * p;
        const skdpm_pair s = SKDPM_PAIR(w + 6) - SKDPM_BOTH(a[1]) * r;
        SKDPM_PAIR(w + 4) = q;
        SKDPM_PAIR(w + 6) = s;
        for (ptrdiff_t i = 2; i < m; i++) {
            const skdpm_pair x = SKDPM_BOTH(a[i]), y = SKDPM_BOTH(b[i - 1]);
            SKDPM_PAIR(w + 4 * i) -= x * p + y * q;
            SKDPM_PAIR(w + 4 * i + 2) -= x * r + y * s;
        }
#else
        for (int k = 0; k < 4; k++) {
            const double p = w[k], q = w[4 + k] -= p * a[1];
            for (ptrdiff_t i = 2; i < m; i++)
                w[4 * i + k] -= a[i] * p + b[i - 1] * q;
        }
#endif
        a = b + m - 1;
    }
}

/* A' D^-1 B for matrices of shape (n, 4), from the diagonal of D^-1: out of shape (4, 4). */
static inline void products_of_four(
    const double *a, const double *b, const double *weight, ptrdiff_t n, double *out)
{
#if defined(__GNUC__)
    skdpm_pair sum[4][2] = {{{0.0, 0.0}}};
    for (ptrdiff_t d = 0; d < n; d++) {
        const skdpm_pair w = SKDPM_BOTH(weight[d]);
        const skdpm_pair x = w * SKDPM_PAIR(b + 4 * d), y = w * SKDPM_PAIR(b + 4 * d + 2);
        for (int r = 0; r < 4; r++) {
            sum[r][0] += SKDPM_BOTH(a[4 * d + r]) * x;
            sum[r][1] += SKDPM_BOTH(a[4 * d + r]) * y;
        }
    }
    for (int r = 0; r < 16; r++)
        out[r] = sum[r / 4][r % 4 / 2][r % 2];
#else
    for (int r = 0; r < 16; r++) {
        out[r] = 0.0;
        for (ptrdiff_t d = 0; d < n; d++)
            out[r] += a[4 * d + r / 4] * weight[d] * b[4 * d + r % 4];
    }
#endif
}

/* sum of x_i y_i */
static inline double dot(const double *restrict x, const double *restrict y, ptrdiff_t n)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    ptrdiff_t i = 0;
    for (; n - i >= 4; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++)
        a += x[i] * y[i];
    return (a + b) + (c + d);
}

/* v' A^-1 v by forward substitution; v is destroyed. O(n^2 / 2). */
SKDPM_KERNEL double solve_squared(const double *packed, ptrdiff_t n, double *restrict v)
{
    const double *restrict a = packed;
    double q = 0.0;
    ptrdiff_t j = 0;
    /* Four columns at a time read and write v once for the four. */
    for (; n - j >= 8; j += 4) {
        const ptrdiff_t m = n - j;
        const double *restrict b = a + m;
        const double *restrict c = b + m - 1;
        const double *restrict d = c + m - 2;
        double *restrict w = v + j;
        const double p = w[0];
        const double r = w[1] - p * a[1];
        const double s = w[2] - p * a[2] - r * b[1];
        const double t = w[3] - p * a[3] - r * b[2] - s * c[1];
        q += p * (p * a[0]) + r * (r * b[0]) + s * (s * c[0]) + t * (t * d[0]);
        for (ptrdiff_t i = 4; i < m; i++)
            w[i] -= p * a[i] + r * b[i - 1] + s * c[i - 2] + t * d[i - 3];
        a = d + m - 3;
    }
    for (; j < n; j++) {
        const double z = v[j];
        q += z * (z * a[0]);
        for (ptrdiff_t i = 1; i < n - j; i++)
            v[j + i] -= z * a[i];
        a += n - j;
    }
    return q;
}

/* The same of x - c; v is scratch. */
static inline double gap_squared(
    const double *packed, ptrdiff_t n, const double *x, const double *c, double *restrict v)
{
    if (n == 2) { /* in registers */
        const double p = x[0] - c[0];
        const double r = (x[1] - c[1]) - p * packed[1];
        return p * (p * packed[0]) + r * (r * packed[2]);
    }
    for (ptrdiff_t i = 0; i < n; i++)
        v[i] = x[i] - c[i];
    return solve_squared(packed, n, v);
}

/* b -> a draw from N(A^-1 b, A^-1), of standard normal variates: forward substitution, and back
 * after they have joined; A^-1 b if `noise` is NULL. O(n^2). */
static inline void draw_normal(
    const double *packed, ptrdiff_t n, double *restrict b, const double *noise)
{
    const double *a = packed;
    for (ptrdiff_t j = 0; j < n; j++) {
        for (ptrdiff_t i = 1; i < n - j; i++)
            b[j + i] -= b[j] * a[i];
        b[j] *= a[0];
        if (noise)
            b[j] += sqrt(a[0]) * noise[j];
        a += n - j;
    }
    for (ptrdiff_t j = n - 1; j >= 0; j--) {
        a -= n - j;
        for (ptrdiff_t i = 1; i < n - j; i++)
            b[j] -= a[i] * b[j + i];
    }
}

#endif
