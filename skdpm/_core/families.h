/* SPDX-License-Identifier: BSD-3-Clause
 * Small matrices of many columns side by side. The family of a column has `size` members: columns on
 * which it depends, then itself. Entry (l, j), j <= l, of the matrices of all families is a run of
 * `ld` doubles, number l (l + 1) / 2 + j, and member l of all families another; `ld` is the number of
 * columns rounded up to a multiple of SKDPM_WIDTH. So inner loops run over columns. */
#ifndef SKDPM_FAMILIES_H
#define SKDPM_FAMILIES_H

#include <math.h>
#include <stddef.h>

#include "versions.h"

#define SKDPM_WIDTH 8
#define SKDPM_LARGEST_FAMILY 17

/* C += by v v'. */
SKDPM_VERSIONS
SKDPM_UNUSED static void families_add(
    double *scatter, const double *v, double by, ptrdiff_t ld, ptrdiff_t size)
{
    double *restrict entry = scatter;
    for (ptrdiff_t l = 0; l < size; l++)
        for (ptrdiff_t j = 0; j <= l; j++, entry += ld)
            for (ptrdiff_t d = 0; d < ld; d++)
                entry[d] += by * v[l * ld + d] * v[j * ld + d];
}

/* Cholesky factors of diag(scale) + C + pull v v', with inverse diagonals. No pivot is below its
 * entry of `scale`, because the rest is positive semidefinite: one that rounding has made smaller is
 * replaced by it. */
SKDPM_VERSIONS
SKDPM_UNUSED static void families_factor(
    const double *scatter, const double *scale, const double *v, double pull, ptrdiff_t ld,
    ptrdiff_t size, double *factor)
{
    for (ptrdiff_t first = 0; first < ld; first += SKDPM_WIDTH) {
        ptrdiff_t t = 0;
        for (ptrdiff_t l = 0; l < size; l++) {
            const ptrdiff_t row = t;
            for (ptrdiff_t j = 0; j <= l; j++, t++) {
                const double *c = scatter + t * ld + first;
                const double *a = v + l * ld + first, *b = v + j * ld + first;
                const double *s = scale + l * ld + first;
                double *out = factor + t * ld + first;
                double x[SKDPM_WIDTH];
                for (int w = 0; w < SKDPM_WIDTH; w++)
                    x[w] = c[w] + pull * a[w] * b[w] + (j == l ? s[w] : 0.0);
                for (ptrdiff_t k = 0; k < j; k++) {
                    const double *y = factor + (row + k) * ld + first;
                    const double *z = factor + (j * (j + 1) / 2 + k) * ld + first;
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        x[w] -= y[w] * z[w];
                }
                const double *pivot = factor + (j * (j + 3) / 2) * ld + first;
                if (j < l)
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        out[w] = x[w] * pivot[w];
                else
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        out[w] = 1.0 / sqrt(x[w] > s[w] ? x[w] : s[w]);
            }
        }
    }
}

/* Sum of the logarithms of n positive numbers, with few logarithms. Infinity counts as 1e300. */
SKDPM_INLINE double skdpm_log_product(const double *x, ptrdiff_t n)
{
    double product = 1.0, total = 0.0;
    for (ptrdiff_t d = 0; d < n; d++)
        product *= x[d];
    if (product > 1e-290 && product < 1e290)
        return log(product);
    for (ptrdiff_t d = 0; d < n; d++)
        total += log(x[d] < 1e300 ? x[d] : 1e300);
    return total;
}

/* Sum over n columns of half log a - (half + 1/2) log(a + e^2), a = c + |w|^2, where w, and e for
 * the column itself, solve (factor) (w, e) = x - center. Each term is at most 0, so a sum of some
 * that is below `least` is returned in place of that of all. */
SKDPM_VERSIONS
SKDPM_UNUSED static double families_log_density(
    const double *x, const double *center, const double *factor, ptrdiff_t n, ptrdiff_t ld,
    ptrdiff_t size, double c, double half, double least)
{
    double total = 0.0;
    for (ptrdiff_t first = 0; first < n && !(total < least); first += SKDPM_WIDTH) {
        const ptrdiff_t left = n - first < SKDPM_WIDTH ? n - first : SKDPM_WIDTH;
        double solved[SKDPM_LARGEST_FAMILY][SKDPM_WIDTH], spread[SKDPM_WIDTH], tail[SKDPM_WIDTH];
        const double *entry = factor + first;
        for (int w = 0; w < SKDPM_WIDTH; w++)
            tail[w] = c;
        for (ptrdiff_t l = 0; l < size; l++) {
            double *y = solved[l];
            for (int w = 0; w < SKDPM_WIDTH; w++)
                y[w] = x[l * ld + first + w] - center[l * ld + first + w];
            for (ptrdiff_t j = 0; j < l; j++, entry += ld)
                for (int w = 0; w < SKDPM_WIDTH; w++)
                    y[w] -= entry[w] * solved[j][w];
            for (int w = 0; w < SKDPM_WIDTH; w++) {
                y[w] *= entry[w];
                spread[w] = tail[w];
                tail[w] += y[w] * y[w];
            }
            entry += ld;
        }
        total += half * skdpm_log_product(spread, left);
        total -= (half + 0.5) * skdpm_log_product(tail, left);
    }
    return total;
}

/* Log density of rows, side by side in columns of length ld_rows, from parameters as of
 * `ParametricGaussianSparse`; `families` has the members, n if there is none. */
SKDPM_VERSIONS
SKDPM_UNUSED static void families_log_normal(
    const double *x, ptrdiff_t ld_rows, ptrdiff_t n_rows, const double *params,
    const ptrdiff_t *families, ptrdiff_t n, ptrdiff_t ld, ptrdiff_t size, double *out)
{
    enum { STRIP = 64 };
    for (ptrdiff_t first = 0; first < n_rows; first += STRIP) {
        const ptrdiff_t m = n_rows - first < STRIP ? n_rows - first : STRIP;
        const double *a = params + 1;
        double squares[STRIP] = {0.0}, e[STRIP];
        for (ptrdiff_t d = 0; d < n; d++, a += size + 1) {
            for (ptrdiff_t i = 0; i < m; i++)
                e[i] = -a[size];
            for (ptrdiff_t l = 0; l < size; l++) {
                const ptrdiff_t column = families[l * ld + d];
                if (column < n) {
                    const double *restrict y = x + column * ld_rows + first;
                    for (ptrdiff_t i = 0; i < m; i++)
                        e[i] += a[l] * y[i];
                }
            }
            for (ptrdiff_t i = 0; i < m; i++)
                squares[i] += e[i] * e[i];
        }
        for (ptrdiff_t i = 0; i < m; i++)
            out[first + i] = params[0] - 0.5 * squares[i];
    }
}

#endif
