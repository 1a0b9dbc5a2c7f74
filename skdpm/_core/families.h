/* SPDX-License-Identifier: BSD-3-Clause
 * Small matrices of many columns side by side. The family of a column has `size` members: columns on
 * which it depends, then itself. Entry (l, j), j <= l, of the matrices of all families is a run of
 * `ld` doubles, number l (l + 1) / 2 + j, and member l of all families another; `ld` is the number of
 * columns rounded up to a multiple of SKDPM_WIDTH. So inner loops run over columns. */
#ifndef SKDPM_FAMILIES_H
#define SKDPM_FAMILIES_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "tiles.h"
#include "versions.h"

#define SKDPM_WIDTH 8
#define SKDPM_LARGEST_FAMILY 17

/* C += by v v'. */
SKDPM_KERNEL void families_add(
    double *scatter, const double *v, double by, ptrdiff_t ld, ptrdiff_t size)
{
    double *restrict entry = scatter;
    for (ptrdiff_t l = 0; l < size; l++)
        for (ptrdiff_t j = 0; j <= l; j++, entry += ld)
            for (ptrdiff_t d = 0; d < ld; d++)
                entry[d] += by * v[l * ld + d] * v[j * ld + d];
}

/* L D L' = diag(scale) + C + pull v v': L below its diagonal, and 1 / D. No entry of D is below its
 * entry of `scale`, because the rest is positive semidefinite: one that rounding has made smaller is
 * replaced by it. */
SKDPM_KERNEL void families_factor(
    const double *scatter, const double *scale, const double *v, double pull, ptrdiff_t ld,
    ptrdiff_t size, double *factor)
{
    for (ptrdiff_t first = 0; first < ld; first += SKDPM_WIDTH) {
        const double *c = scatter + first;
        double *out = factor + first;
        for (ptrdiff_t l = 0; l < size; l++) {
            const double *a = v + l * ld + first, *b = v + first, *s = scale + l * ld + first;
            const double *z = factor + first;
            double x[SKDPM_WIDTH], y[SKDPM_WIDTH], undivided[SKDPM_LARGEST_FAMILY * SKDPM_WIDTH];
            for (ptrdiff_t j = 0; j <= l; j++, b += ld, c += ld, z += ld, out += ld) {
                for (int w = 0; w < SKDPM_WIDTH; w++)
                    x[w] = c[w] + pull * a[w] * b[w];
                for (ptrdiff_t k = 0; k < j; k++, z += ld)
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        x[w] -= undivided[k * SKDPM_WIDTH + w] * z[w];
                memcpy(undivided + j * SKDPM_WIDTH, x, sizeof x);
                memcpy(y, j < l ? z : s, sizeof y);
                if (j == l)
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        y[w] = 1.0 / ((x[w] > 0.0 ? x[w] : 0.0) + y[w]);
                else
                    for (int w = 0; w < SKDPM_WIDTH; w++)
                        y[w] *= x[w];
                memcpy(out, y, sizeof y);
            }
        }
    }
}

/* 1 / (S^-1)_mm - scale for a member m of S = L D L': of S without the last member (unset if that is
 * m), and of S. Rounding makes no rest negative. */
SKDPM_KERNEL void families_rests(
    const double *factor, double scale, ptrdiff_t ld, ptrdiff_t size, ptrdiff_t member,
    double *of_parents, double *of_all)
{
    for (ptrdiff_t first = 0; first < ld; first += SKDPM_WIDTH) {
        double y[SKDPM_WIDTH], solved[SKDPM_LARGEST_FAMILY * SKDPM_WIDTH];
        double sum[SKDPM_WIDTH] = {0.0};
        for (ptrdiff_t l = member; l < size; l++) {
            const double *entry = factor + l * (l + 1) / 2 * ld + first;
            double *rest = (l + 1 < size ? of_parents : of_all) + first;
            for (int w = 0; w < SKDPM_WIDTH; w++)
                y[w] = l == member;
            for (ptrdiff_t j = member; j < l; j++)
                for (int w = 0; w < SKDPM_WIDTH; w++)
                    y[w] -= entry[j * ld + w] * solved[j * SKDPM_WIDTH + w];
            memcpy(solved + l * SKDPM_WIDTH, y, sizeof y);
            for (int w = 0; w < SKDPM_WIDTH; w++)
                sum[w] += y[w] * y[w] * entry[l * ld + w];
            for (int w = 0; w < SKDPM_WIDTH; w++)
                y[w] = 1.0 / sum[w] - scale;
            for (int w = 0; w < SKDPM_WIDTH; w++)
                rest[w] = y[w] > 0.0 ? y[w] : 0.0;
        }
    }
}

/* Sum of the logarithms of n positive numbers, with few logarithms. Infinity counts as 1e300. */
SKDPM_INLINE double skdpm_log_product(const double *x, ptrdiff_t n)
{
    double product = 1.0, least = 1.0, total = 0.0;
    for (ptrdiff_t d = 0; d < n; d++) {
        product *= x[d];
        least = product < least ? product : least;  // smaller numbers lose digits
    }
    if (least > 1e-290 && product < 1e290)
        return log_positive(product);
    for (ptrdiff_t d = 0; d < n; d++)
        total += log(x[d] < 1e300 ? x[d] : 1e300);
    return total;
}

/* Sum over n columns of half log a - (half + sign / 2) log(a + sign e), a = c + sign w, where w and e
 * are the squares of L^-1 (x - center) over D: the sum of those of the parents, and that of the
 * column itself. With sign = 1 each term is at most 0, so a sum of some that is below `least` is
 * returned in place of that of all. Infinity means that a difference (sign = -1) has too few
 * digits. */
SKDPM_KERNEL double families_log_density(
    const double *x, const double *center, const double *factor, ptrdiff_t n, ptrdiff_t ld,
    ptrdiff_t size, double sign, double c, double half, double least)
{
    double total = 0.0;
    for (ptrdiff_t first = 0; first < n && !(total < least); first += SKDPM_WIDTH) {
        const ptrdiff_t left = n - first < SKDPM_WIDTH ? n - first : SKDPM_WIDTH;
        double solved[SKDPM_LARGEST_FAMILY * SKDPM_WIDTH], y[SKDPM_WIDTH];
        double spread[SKDPM_WIDTH], tail[SKDPM_WIDTH];
        const double *entry = factor + first;
        for (int w = 0; w < SKDPM_WIDTH; w++)
            tail[w] = c;
        for (ptrdiff_t l = 0; l < size; l++, entry += ld) {
            for (int w = 0; w < SKDPM_WIDTH; w++)
                y[w] = x[l * ld + first + w] - center[l * ld + first + w];
            for (ptrdiff_t j = 0; j < l; j++, entry += ld)
                for (int w = 0; w < SKDPM_WIDTH; w++)
                    y[w] -= entry[w] * solved[j * SKDPM_WIDTH + w];
            memcpy(solved + l * SKDPM_WIDTH, y, sizeof y);
            memcpy(spread, tail, sizeof tail);
            for (int w = 0; w < SKDPM_WIDTH; w++)
                tail[w] += sign * (y[w] * y[w] * entry[w]);
        }
        for (ptrdiff_t w = 0; w < left; w++)
            if (sign < 0.0 && !(tail[w] > 1e-6))
                return INFINITY;
        total += half * skdpm_log_product(spread, left);
        total -= (half + 0.5 * sign) * skdpm_log_product(tail, left);
    }
    return total;
}

/* Log density of rows, side by side in columns of length ld_rows, from parameters as of
 * `ParametricGaussianSparse`; `families` has the members, n if there is none. */
SKDPM_KERNEL void families_log_normal(
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
