/* SPDX-License-Identifier: BSD-3-Clause
 * Cholesky factors of small symmetric matrices, packed by columns: column j holds the entries
 * j, ..., n - 1, so that inner loops run along contiguous memory and the compiler vectorises them
 * (by rows, a solve at n = 128 is several times slower). The diagonal of a factor is stored
 * inverted: it is only ever divided by. */
#ifndef SKDPM_CHOLESKY_H
#define SKDPM_CHOLESKY_H

#include <math.h>
#include <stddef.h>

/* A -> L with A = L L', in place. Returns 0, and leaves log_det NaN, where A is not positive
 * definite. O(n^3 / 3). */
static inline int cholesky(double *packed, ptrdiff_t n, double *log_det)
{
    double *column = packed;
    *log_det = NAN;
    double total = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const double pivot = column[0];
        if (!(pivot > 0.0 && pivot < INFINITY))
            return 0;
        const double inverse = 1.0 / sqrt(pivot);
        total += log(pivot);
        column[0] = inverse;
        for (ptrdiff_t i = 1; i < n - j; i++)
            column[i] *= inverse;
        double *restrict target = column + (n - j);
        for (ptrdiff_t k = 1; k < n - j; k++) {
            const double *restrict source = column + k;
            const double by = column[k];
            for (ptrdiff_t i = 0; i < n - j - k; i++)
                target[i] -= by * source[i];
            target += n - j - k;
        }
        column += n - j;
    }
    *log_det = total;
    return 1;
}

/* L -> factor of L L' + sign v v', in place; v is destroyed and log_det brought up to date. By
 * plane rotations (Golub & Van Loan, section 6.5.4). Returns 0 where a downdate (sign = -1) would
 * leave too few digits of a pivot; the factor is then spoilt. O(n^2). */
static inline int cholesky_update(
    double *packed, ptrdiff_t n, double *restrict v, double sign, double *log_det)
{
    double *restrict column = packed;
    double ratio = 1.0; /* product of the pivots' ratios: one logarithm instead of n */
    double change = 0.0;
    for (ptrdiff_t j = 0; j < n; j++) {
        const double s = v[j] * column[0];
        const double square = 1.0 + sign * s * s;
        if (!(square > 1e-10 && square < INFINITY))
            return 0;
        const double c = sqrt(square);
        const double inverse = 1.0 / c;
        const double by = sign * s;
        column[0] *= inverse;
        ratio *= c;
        if (!(ratio > 1e-100 && ratio < 1e100)) {
            change += log(ratio);
            ratio = 1.0;
        }
        for (ptrdiff_t i = 1; i < n - j; i++) {
            const double entry = (column[i] + by * v[j + i]) * inverse;
            v[j + i] = c * v[j + i] - s * entry;
            column[i] = entry;
        }
        column += n - j;
    }
    *log_det += 2.0 * (change + log(ratio));
    return 1;
}

/* |L^-1 v|^2 by forward substitution; v is destroyed. O(n^2 / 2). */
static inline double solve_squared(const double *packed, ptrdiff_t n, double *restrict v)
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
        const double p = w[0] * a[0];
        const double r = (w[1] - p * a[1]) * b[0];
        const double s = (w[2] - p * a[2] - r * b[1]) * c[0];
        const double t = (w[3] - p * a[3] - r * b[2] - s * c[1]) * d[0];
        q += p * p + r * r + s * s + t * t;
        for (ptrdiff_t i = 4; i < m; i++)
            w[i] -= p * a[i] + r * b[i - 1] + s * c[i - 2] + t * d[i - 3];
        a = d + m - 3;
    }
    for (; j < n; j++) {
        const double z = v[j] * a[0];
        q += z * z;
        for (ptrdiff_t i = 1; i < n - j; i++)
            v[j + i] -= z * a[i];
        a += n - j;
    }
    return q;
}

#endif
