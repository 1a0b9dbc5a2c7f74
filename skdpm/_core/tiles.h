/* SPDX-License-Identifier: BSD-3-Clause
 * Arithmetic on tiles: at most a few hundred items at a time, each array contiguous along the items,
 * so that every inner loop is vectorised over items that do not depend on each other. The compiler
 * makes a version for each instruction set and the loader chooses one. No sum runs along a vector
 * register and none is contracted, so all versions give the same bits. draws.h draws clusters from
 * the densities. */
#ifndef SKDPM_TILES_H
#define SKDPM_TILES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "versions.h"

/* Exponentials and logarithms. */

/* exp(x) for x <= 0, within two units in the last place; 0 below -700, NaN for NaN. */
static inline double exp_negative(double x)
{
    /* Adding this rounds to an integer n and puts n + 1023, the exponent of 2^n, in the low bits. */
    const double shift = 0x1.8p52 + 1023.0;
    const double bounded = x < -700.0 ? -700.0 : x;
    const double rounded = bounded * 0x1.71547652b82fep0 + shift;
    const double n = rounded - shift;
    const double r = (bounded - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;
    /* Taylor's series on |r| <= log(2) / 2; the first omitted term is below 2e-18. */
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
    uint64_t bits;
    double scale;
    memcpy(&bits, &rounded, sizeof bits);
    bits <<= 52;
    memcpy(&scale, &bits, sizeof scale);
    return p * (x > -700.0 ? scale : 0.0);
}

/* exp(x) for n numbers x <= 0, in place. */
SKDPM_KERNEL void tile_exp(double *x, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] = exp_negative(x[i]);
}

/* log(x) for normal x > 0, within two units in the last place; 709.78... for infinity. */
SKDPM_INLINE double log_positive(double x)
{
    /* x = 2^e m with m between the square roots of 1/2 and 2; m has the bits of x except for the
     * exponent. log(m) = 2 artanh(s). */
    uint64_t bits, biased;
    double m, e;
    memcpy(&bits, &x, sizeof bits);
    biased = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52; /* e + 1023 */
    bits -= (biased << 52) - 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    biased |= 0x4330000000000000u; /* the bits of 2^52 + e + 1023 */
    memcpy(&e, &biased, sizeof e);
    e -= 0x1p52 + 1023.0;
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s, z2 = z * z, z4 = z2 * z2;
    /* The series up to s^21, |s| < 0.1716; few products depend on others. */
    const double p = ((1.0 / 3.0 + 1.0 / 5.0 * z) + (1.0 / 7.0 + 1.0 / 9.0 * z) * z2)
        + (((1.0 / 11.0 + 1.0 / 13.0 * z) + (1.0 / 15.0 + 1.0 / 17.0 * z) * z2)
            + (1.0 / 19.0 + 1.0 / 21.0 * z) * z4) * z4;
    const double t = s + s;
    return e * 0x1.62e42fefa0000p-1 + (e * 0x1.cf79abc9e3b3ap-40 + (t + t * (z * p)));
}

/* log(x) of n numbers, a multiple of 8, in place. */
SKDPM_KERNEL void tile_log(double *x, ptrdiff_t n)
{
    for (ptrdiff_t first = 0; first < n; first += 8)
        for (ptrdiff_t i = 0; i < 8; i++)
            x[first + i] = log_positive(x[first + i]);
}

/* out = shifts + (n + counts) for m places, and the product of these numbers. */
SKDPM_KERNEL double tile_count_product(
    const double *restrict shifts, const double *restrict counts, double n, ptrdiff_t m,
    double *restrict out)
{
    double products[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    ptrdiff_t i = 0;
    for (; i + 8 <= m; i += 8)
        for (ptrdiff_t l = 0; l < 8; l++) {
            out[i + l] = shifts[i + l] + (n + counts[i + l]);
            products[l] *= out[i + l];
        }
    for (; i < m; i++) {
        out[i] = shifts[i] + (n + counts[i]);
        products[i % 8] *= out[i];
    }
    return ((products[0] * products[1]) * (products[2] * products[3]))
        * ((products[4] * products[5]) * (products[6] * products[7]));
}

/* Rows with weights w, for which a cluster is Student's t with a factor h = rho w / (rho + w) of
 * squared distances. There are 2 or 8 weights; those that do not exist have log_p = -infinity. */

/* out = log_p + half log(h), then h. */
SKDPM_KERNEL void tile_weigh(
    double rho, const double *restrict w, const double *restrict log_p, double half,
    ptrdiff_t n_weights, double *restrict out)
{
    double h[8];
    for (ptrdiff_t i = 0; i < 8; i++) {
        const double weight = w[i % n_weights];
        h[i] = rho * weight / (rho + weight);
    }
    double logs[8];
    for (ptrdiff_t i = 0; i < 8; i++)
        logs[i] = log_positive(h[i]);
    for (ptrdiff_t i = 0; i < n_weights; i++) {
        out[i] = log_p[i] + half * logs[i];
        out[n_weights + i] = h[i];
    }
}

/* `tile_mixtures` of one cluster, in registers, if the number of weights is known to the compiler. */
SKDPM_INLINE void sum_mixture(double *restrict v, ptrdiff_t n_weights, double *restrict logs)
{
    double most[8], sums[8];
    memcpy(most, v, n_weights * sizeof(double));
    for (ptrdiff_t m = n_weights / 2; m > 0; m /= 2)
        for (ptrdiff_t g = 0; g < m; g++)
            most[g] = most[g] > most[g + m] ? most[g] : most[g + m];
    for (ptrdiff_t g = 0; g < n_weights; g++)
        sums[g] = v[g] = exp_negative(v[g] - most[0]);
    for (ptrdiff_t m = n_weights / 2; m > 0; m /= 2)
        for (ptrdiff_t g = 0; g < m; g++)
            sums[g] += sums[g + m];
    logs[0] = most[0] + log_positive(sums[0]);
}

/* `tile_scale_mixtures` of one cluster. */
SKDPM_INLINE void scale_mixture(
    double square, double exponent, const double *restrict w, ptrdiff_t n_weights,
    double *restrict shares, double *restrict logs)
{
    for (ptrdiff_t g = 0; g < n_weights; g++)
        shares[g] = w[g] - exponent * log_positive(1.0 + square * w[n_weights + g]);
    sum_mixture(shares, n_weights, logs);
}

/* logs = log of the sum over weights of exp(v), for v = shares of n clusters: (n, n_weights); and
 * shares = exp(v - the largest v). There must be room for n rounded up to a multiple of 8. */
SKDPM_KERNEL void tile_mixtures(
    double *restrict shares, ptrdiff_t n, ptrdiff_t n_weights, double *restrict logs)
{
    double top[512];
    const ptrdiff_t n_all = n * n_weights, padded = (n_all + 7) / 8 * 8;
    if (n == 1 && n_weights == 8) {
        sum_mixture(shares, 8, logs);
        return;
    }
    if (n == 1) {
        sum_mixture(shares, 2, logs);
        return;
    }
    for (ptrdiff_t k = 0; k < n; k++) {
        const double *restrict v = shares + k * n_weights;
        double *restrict to = top + k * n_weights;
        double most;
        if (n_weights == 8) {
            const double a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
            const double c = v[4] > v[5] ? v[4] : v[5], d = v[6] > v[7] ? v[6] : v[7];
            const double ab = a > b ? a : b, cd = c > d ? c : d;
            most = ab > cd ? ab : cd;
        } else {
            most = v[0] > v[1] ? v[0] : v[1];
        }
        for (ptrdiff_t g = 0; g < n_weights; g++)
            to[g] = most;
        logs[k] = most;
    }
    for (ptrdiff_t i = n_all; i < padded; i++)
        shares[i] = top[i] = 0.0;
    for (ptrdiff_t i = 0; i < padded; i++)
        shares[i] = exp_negative(shares[i] - top[i]);
    double *restrict sums = top;
    for (ptrdiff_t k = 0; k < n; k++) {
        const double *v = shares + k * n_weights;
        sums[k] = v[0] + v[1];
        if (n_weights == 8)
            sums[k] = (sums[k] + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
    for (ptrdiff_t k = n; k < (n + 7) / 8 * 8; k++)
        sums[k] = 1.0;
    for (ptrdiff_t k = 0; k < (n + 7) / 8 * 8; k++)
        sums[k] = log_positive(sums[k]);
    for (ptrdiff_t k = 0; k < n; k++)
        logs[k] += sums[k];
}

/* The same for v = out - exponent log(1 + square h), with out and h of tile_weigh. */
SKDPM_KERNEL void tile_scale_mixtures(
    const double *squares, const double *exponents, const double *const *weighed, ptrdiff_t n,
    ptrdiff_t n_weights, double *restrict shares, double *restrict logs)
{
    double exponent[512];
    const ptrdiff_t n_all = n * n_weights, padded = (n_all + 7) / 8 * 8;
    if (n == 1 && n_weights == 8) {
        scale_mixture(squares[0], exponents[0], weighed[0], 8, shares, logs);
        return;
    }
    if (n == 1) {
        scale_mixture(squares[0], exponents[0], weighed[0], 2, shares, logs);
        return;
    }
    for (ptrdiff_t k = 0; k < n; k++) {
        const double *restrict h = weighed[k] + n_weights;
        double *restrict to = shares + k * n_weights, *restrict by = exponent + k * n_weights;
        for (ptrdiff_t g = 0; g < n_weights; g++) {
            to[g] = 1.0 + squares[k] * h[g];
            by[g] = exponents[k];
        }
    }
    for (ptrdiff_t i = n_all; i < padded; i++)
        shares[i] = exponent[i] = 1.0;
    for (ptrdiff_t i = 0; i < padded; i++)
        shares[i] = -exponent[i] * log_positive(shares[i]);
    for (ptrdiff_t k = 0; k < n; k++) {
        const double *restrict w = weighed[k];
        double *restrict v = shares + k * n_weights;
        for (ptrdiff_t g = 0; g < n_weights; g++)
            v[g] += w[g];
    }
    tile_mixtures(shares, n, n_weights, logs);
}

/* out = -exponent times the log of the product over columns of 1 + t^2 h, t = (x - center) spread,
 * for h that do not increase; 8 numbers, and h again and again if there are fewer. Returns whether
 * no square is too large for the product. */
SKDPM_KERNEL int tile_scale_products(
    const double *restrict x, const double *restrict center, const double *restrict spread,
    ptrdiff_t n_features, const double *restrict h, ptrdiff_t n_weights, double exponent,
    double *restrict out)
{
    double scale[8], product[8], total[8];
    for (ptrdiff_t i = 0; i < 8; i++) {
        scale[i] = h[i % n_weights];
        product[i] = 1.0;
        total[i] = 0.0;
    }
    for (ptrdiff_t d = 0; d < n_features; d++) {
        const double t = (x[d] - center[d]) * spread[d], square = t * t;
        if (!(square < 1e100))
            return 0;
        for (ptrdiff_t i = 0; i < 8; i++)
            product[i] *= 1.0 + square * scale[i];
        if (product[0] > 1e180) {
            for (ptrdiff_t i = 0; i < 8; i++) {
                total[i] += log_positive(product[i]);
                product[i] = 1.0;
            }
        }
    }
    for (ptrdiff_t i = 0; i < 8; i++)
        out[i] = -exponent * (total[i] + log_positive(product[i]));
    return 1;
}

/* At most log(x), by up to 0.06, for normal x > 0: linear between powers of 2. */
SKDPM_INLINE double log_below(double x)
{
    uint64_t bits;
    int64_t above;
    memcpy(&bits, &x, sizeof bits);
    above = (int64_t)(bits - 0x3ff0000000000000u);  /* 2^52 (e + m - 1), for x = 2^e m */
    return (double)above * (0x1.62e42fefa39efp-1 * 0x1p-52);
}

/* At least exp(x), by a factor of up to 1.07, for x <= 0: the same line. */
SKDPM_INLINE double exp_above(double x)
{
    const double bounded = x < -700.0 ? -700.0 : x;
    const int64_t above = (int64_t)(bounded * (0x1.71547652b82fep0 * 0x1p52));
    const uint64_t bits = (uint64_t)above + 0x3ff0000000000000u;
    double y;
    memcpy(&y, &bits, sizeof y);
    return y * (1.0 + 1e-10);
}

/* Sums. */

/* Sum of log(1 / (1 + exp(-u))) over u = y + by * effects, with running sums in a fixed order.
 * One logarithm serves 960 factors 1 + exp(-|u|), which are between 1 and 2. */
SKDPM_KERNEL double tile_log_sigmoids(
    const double *restrict y, const double *restrict effects, double by, ptrdiff_t n)
{
    double total = 0.0;
    for (ptrdiff_t i = 0; i < n;) {
        const ptrdiff_t last = n - i < 960 ? n : i + 960;
        double sums[8] = {0.0}, products[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
        for (; i + 8 <= last; i += 8)
            for (ptrdiff_t j = 0; j < 8; j++) {
                const double u = y[i + j] + by * effects[i + j];
                sums[j] += u < 0.0 ? u : 0.0;
                products[j] *= 1.0 + exp_negative(-fabs(u));
            }
        for (; i < last; i++) {
            const double u = y[i] + by * effects[i];
            sums[0] += u < 0.0 ? u : 0.0;
            products[0] *= 1.0 + exp_negative(-fabs(u));
        }
        for (ptrdiff_t j = 1; j < 8; j++) {
            sums[0] += sums[j];
            products[0] *= products[j];
        }
        total += sums[0] - log(products[0]);
    }
    return total;
}

/* For each row, adds to total the sum of exp(w - top) over those of n_terms lines of w, in the given
 * order, that are not below `limit`. w: (n_terms, n); top, limit, total: (n,). */
SKDPM_KERNEL void tile_sum_exp(
    const double *restrict w, const ptrdiff_t *restrict order, ptrdiff_t n_terms, ptrdiff_t n,
    const double *restrict top, const double *restrict limit, double *restrict total)
{
    for (ptrdiff_t k = 0; k < n_terms; k++) {
        const double *restrict line = w + order[k] * n;
        for (ptrdiff_t i = 0; i < n; i++) {
            const double term = exp_negative(line[i] - top[i]);
            total[i] += line[i] < limit[i] ? 0.0 : term;
        }
    }
}

/* out[i] = sum over j of by[j] table[j * n + i]. */
SKDPM_KERNEL void tile_combine(
    const double *restrict table, const double *restrict by, ptrdiff_t n_rows, ptrdiff_t n,
    double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = 0.0;
    for (ptrdiff_t j = 0; j < n_rows; j++, table += n)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] += by[j] * table[i];
}

/* Sum of a_i b_i: eight running sums, in a fixed order. */
SKDPM_INLINE double dot_of_lanes(
    const double *restrict a, const double *restrict b, ptrdiff_t n)
{
    double sums[8] = {0.0};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (ptrdiff_t j = 0; j < 8; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sums[0] += a[i] * b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3]))
        + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Sums of a, a sigma and a r, where a = w / (n_rows - sigma k + r) is scratch. */
SKDPM_KERNEL void tile_averages(
    const double *restrict w, const double *restrict sigmas, const double *restrict r,
    double n_rows, double k, ptrdiff_t n, const double *restrict ones, double *restrict a,
    double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        a[i] = w[i] / (n_rows - sigmas[i] * k + r[i]);
    out[0] = dot_of_lanes(a, ones, n);
    out[1] = dot_of_lanes(a, sigmas, n);
    out[2] = dot_of_lanes(a, r, n);
}

/* w *= scale (size - sigma) / (n_rows - sigma k + r). */
SKDPM_KERNEL void tile_multiply(
    double *restrict w, const double *restrict sigmas, const double *restrict r, double n_rows,
    double k, double size, double scale, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        w[i] *= scale * (size - sigmas[i]) / (n_rows - sigmas[i] * k + r[i]);
}

/* Sum of a b: sixteen running sums, in a fixed order. */
SKDPM_KERNEL double tile_dot(
    const double *restrict a, const double *restrict b, ptrdiff_t n)
{
    double sums[16] = {0.0}, total = 0.0;
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (ptrdiff_t j = 0; j < 16; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        total += a[i] * b[i];
    for (ptrdiff_t j = 0; j < 8; j++)
        sums[j] += sums[j + 8];
    return (((sums[0] + sums[4]) + (sums[1] + sums[5]))
        + ((sums[2] + sums[6]) + (sums[3] + sums[7]))) + total;
}

enum { DOT_ITEMS = 32, DOT_COLUMNS = 64 };

/* out[k * ld + i] = theta_k[0] + sum over d of theta_k[1 + d] x[items[i] * n_features + d], with
 * theta_k = params + which[k] * n_params. A block of items and columns is used for all k while it is
 * in the first cache. */
SKDPM_KERNEL void tile_dots(
    const double *restrict x, ptrdiff_t n_features, const ptrdiff_t *restrict items, ptrdiff_t n,
    const double *restrict params, ptrdiff_t n_params, const ptrdiff_t *restrict which,
    ptrdiff_t n_which, double *restrict out, ptrdiff_t ld)
{
    double block[DOT_COLUMNS][DOT_ITEMS];
    for (ptrdiff_t first = 0; first < n; first += DOT_ITEMS) {
        const ptrdiff_t n_items = n - first < DOT_ITEMS ? n - first : DOT_ITEMS;
        for (ptrdiff_t start = 0; start < n_features; start += DOT_COLUMNS) {
            const ptrdiff_t rest = n_features - start;
            const ptrdiff_t n_columns = rest < DOT_COLUMNS ? rest : DOT_COLUMNS;
            for (ptrdiff_t i = 0; i < n_items; i++) {
                const double *restrict row = x + items[first + i] * n_features + start;
                for (ptrdiff_t d = 0; d < n_columns; d++)
                    block[d][i] = row[d];
            }
            for (ptrdiff_t k = 0; k < n_which; k++) {
                const double *restrict theta = params + which[k] * n_params;
                const double *restrict t = theta + 1 + start;
                double *restrict sums = out + k * ld + first;
                ptrdiff_t d = 0;
                if (start == 0)
                    for (ptrdiff_t i = 0; i < n_items; i++)
                        sums[i] = theta[0];
                for (; d + 8 <= n_columns; d += 8)
                    for (ptrdiff_t i = 0; i < n_items; i++)
                        sums[i] += ((t[d] * block[d][i] + t[d + 1] * block[d + 1][i])
                                       + (t[d + 2] * block[d + 2][i] + t[d + 3] * block[d + 3][i]))
                            + ((t[d + 4] * block[d + 4][i] + t[d + 5] * block[d + 5][i])
                                + (t[d + 6] * block[d + 6][i] + t[d + 7] * block[d + 7][i]));
                for (; d < n_columns; d++)
                    for (ptrdiff_t i = 0; i < n_items; i++)
                        sums[i] += t[d] * block[d][i];
            }
        }
    }
}

/* Rows and columns. */

/* Columns of chosen rows: out[d * ld + i] = x[items[i] * n_features + d]. */
SKDPM_UNUSED static void tile_gather(
    const double *restrict x, ptrdiff_t n_features, const ptrdiff_t *restrict items, ptrdiff_t n,
    double *restrict out, ptrdiff_t ld)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *restrict row = x + items[i] * n_features;
        for (ptrdiff_t d = 0; d < n_features; d++)
            out[d * ld + i] = row[d];
    }
}

/* Coordinates of rows on axes: out[i * n_axes + j] = sum over d of (x_id - center_d) axes[d][j], in
 * an order that is the same for all rows. */
SKDPM_KERNEL void tile_rotate(
    const double *restrict x, ptrdiff_t n, ptrdiff_t n_features, const double *restrict center,
    const double *restrict axes, ptrdiff_t n_axes, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++, x += n_features, out += n_axes) {
        const double *restrict axis = axes;
        ptrdiff_t d = 0;
        for (ptrdiff_t j = 0; j < n_axes; j++)
            out[j] = 0.0;
        for (; d + 4 <= n_features; d += 4, axis += 4 * n_axes) {
            const double x0 = x[d] - center[d], x1 = x[d + 1] - center[d + 1];
            const double x2 = x[d + 2] - center[d + 2], x3 = x[d + 3] - center[d + 3];
            for (ptrdiff_t j = 0; j < n_axes; j++)
                out[j] += (x0 * axis[j] + x1 * axis[n_axes + j])
                    + (x2 * axis[2 * n_axes + j] + x3 * axis[3 * n_axes + j]);
        }
        for (; d < n_features; d++, axis += n_axes) {
            const double x0 = x[d] - center[d];
            for (ptrdiff_t j = 0; j < n_axes; j++)
                out[j] += x0 * axis[j];
        }
    }
}

/* The smallest box around items, x (n_features, ld): its centre and half its widths, rounded up. */
SKDPM_KERNEL void tile_enclose(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t n_features,
    double *restrict box)
{
    for (ptrdiff_t d = 0; d < n_features; d++, x += ld) {
        double lows[8], highs[8], low = x[0], high = x[0];
        ptrdiff_t i = 0;
        for (ptrdiff_t j = 0; j < 8; j++)
            lows[j] = highs[j] = x[0];
        for (; i + 8 <= n; i += 8)
            for (ptrdiff_t j = 0; j < 8; j++) {
                lows[j] = x[i + j] < lows[j] ? x[i + j] : lows[j];
                highs[j] = x[i + j] > highs[j] ? x[i + j] : highs[j];
            }
        for (; i < n; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        for (ptrdiff_t j = 0; j < 8; j++) {
            low = lows[j] < low ? lows[j] : low;
            high = highs[j] > high ? highs[j] : high;
        }
        const double centre = 0.5 * low + 0.5 * high;
        const double half = high - centre > centre - low ? high - centre : centre - low;
        box[d] = centre;
        box[n_features + d] = half + 4.0 * 0x1p-52 * (fabs(centre) + half) + 0x1p-1022;
    }
}

/* Statistics. */

/* out += sum_i x_i x_i', packed by columns of the lower triangle; x: (n, n_features), row by row. */
SKDPM_KERNEL void tile_scatter(
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

/* Number of entries of x that are not NaN, their mean, and the sum of squares about it: eight
 * running sums, in a fixed order. */
SKDPM_KERNEL void tile_moments(
    const double *restrict x, ptrdiff_t n, double *count, double *mean, double *squares)
{
    double counts[8] = {0.0}, sums[8] = {0.0};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (ptrdiff_t j = 0; j < 8; j++) {
            const int known = x[i + j] == x[i + j];
            counts[j] += known ? 1.0 : 0.0;
            sums[j] += known ? x[i + j] : 0.0;
        }
    for (; i < n; i++)
        if (x[i] == x[i]) {
            counts[0] += 1.0;
            sums[0] += x[i];
        }
    *count = ((counts[0] + counts[1]) + (counts[2] + counts[3]))
        + ((counts[4] + counts[5]) + (counts[6] + counts[7]));
    const double total = ((sums[0] + sums[1]) + (sums[2] + sums[3]))
        + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    const double center = *mean = *count > 0.0 ? total / *count : 0.0;
    for (ptrdiff_t j = 0; j < 8; j++)
        sums[j] = 0.0;
    for (i = 0; i + 8 <= n; i += 8)
        for (ptrdiff_t j = 0; j < 8; j++) {
            const double gap = x[i + j] - center;
            sums[j] += gap == gap ? gap * gap : 0.0;
        }
    for (; i < n; i++)
        if (x[i] == x[i])
            sums[0] += (x[i] - center) * (x[i] - center);
    *squares = ((sums[0] + sums[1]) + (sums[2] + sums[3]))
        + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Moments of the items whose key is `key`, x (n_features, ld) without infinities: their number,
 * mean (D) and scatter about it (lower triangle, packed by columns). The work grows with n.
 * gaps: (n_features + 1, ld), scratch. */
SKDPM_KERNEL void tile_keyed_moments(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, const ptrdiff_t *restrict keys,
    ptrdiff_t key, ptrdiff_t n_features, double *restrict gaps, double *restrict out)
{
    double *restrict here = gaps + n_features * ld;
    double count = 0.0;
    ptrdiff_t number = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        here[i] = keys[i] == key ? 1.0 : 0.0;
        number += keys[i] == key;
    }
    *out++ = count = (double)number;
    for (ptrdiff_t d = 0; d < n_features; d++) {
        const double mean = count > 0.0 ? dot_of_lanes(x + d * ld, here, n) / count : 0.0;
        for (ptrdiff_t i = 0; i < n; i++)
            gaps[d * ld + i] = (x[d * ld + i] - mean) * here[i];
        *out++ = mean;
    }
    for (ptrdiff_t d = 0; d < n_features; d++)
        for (ptrdiff_t e = d; e < n_features; e++)
            *out++ = dot_of_lanes(gaps + d * ld, gaps + e * ld, n);
}

/* Gaussian densities. */

/* Items in strips of 32. All that a strip needs is then in the fastest cache, and the sums of a row
 * of W stay in registers. */
#define SKDPM_STRIP 32

/* out[i] = top - |W x_i - c|^2 / 2, with W lower triangular, packed by rows; -inf if that is NaN or
 * overflows. x: (n_features, ld), with a strip to read behind each column. */
SKDPM_KERNEL void tile_gaussian_columns(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t n_features,
    const double *restrict w, const double *restrict c, double top, double *restrict out)
{
    for (ptrdiff_t first = 0; first < n; first += SKDPM_STRIP, x += SKDPM_STRIP) {
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
                    sums[i] += (w0 * a[i] + w1 * a[ld + i]) + (w2 * a[2 * ld + i] + w3 * a[3 * ld + i]);
                a += 4 * ld;
            }
            for (; d <= j; d++) {
                for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                    sums[i] += row[d] * a[i];
                a += ld;
            }
            for (ptrdiff_t i = 0; i < SKDPM_STRIP; i++)
                squares[i] += sums[i] * sums[i];
            row += j + 1;
        }
        for (ptrdiff_t i = 0; i < m; i++)
            out[first + i] = squares[i] < INFINITY ? top - 0.5 * squares[i] : -INFINITY;
    }
}

/* out[i] = sum over d of log_w_d - (w_d x_id - c_d)^2 / 2, with x (n_features, ld); the sum of
 * log_w is `top`. -inf if the squares overflow. With `missing`, NaN entries of x add no term. */
SKDPM_KERNEL void tile_gaussian_diag(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t n_features,
    const double *restrict w, const double *restrict c, const double *restrict log_w, double top,
    int missing, double *restrict out)
{
    ptrdiff_t d = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = 0.0;
    if (missing) {
        for (; d < n_features; d++, x += ld) {
            const double w0 = w[d], c0 = c[d], l0 = -2.0 * log_w[d];
            for (ptrdiff_t i = 0; i < n; i++) {
                const double z = w0 * x[i] - c0;
                const double term = z * z + l0;
                out[i] += x[i] == x[i] ? term : 0.0;
            }
        }
        top = 0.0;
    } else {
        for (; d + 4 <= n_features; d += 4, x += 4 * ld) {
            const double w0 = w[d], w1 = w[d + 1], w2 = w[d + 2], w3 = w[d + 3];
            const double c0 = c[d], c1 = c[d + 1], c2 = c[d + 2], c3 = c[d + 3];
            for (ptrdiff_t i = 0; i < n; i++) {
                const double z0 = w0 * x[i] - c0, z1 = w1 * x[ld + i] - c1;
                const double z2 = w2 * x[2 * ld + i] - c2, z3 = w3 * x[3 * ld + i] - c3;
                out[i] += (z0 * z0 + z1 * z1) + (z2 * z2 + z3 * z3);
            }
        }
        for (; d < n_features; d++, x += ld) {
            const double w0 = w[d], c0 = c[d];
            for (ptrdiff_t i = 0; i < n; i++) {
                const double z = w0 * x[i] - c0;
                out[i] += z * z;
            }
        }
    }
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = out[i] < INFINITY ? top - 0.5 * out[i] : -INFINITY;
}

/* out[i] = 1 + by (x_i - c)' A^-1 (x_i - c), infinity unless it is below 1e300, for the first
 * `width` items of a strip of columns x (n_features, SKDPM_STRIP) and the factor of A as in
 * cholesky.h; z is as large as x. Two columns at a time read z once for both. */
SKDPM_INLINE void strip_tails(
    const double *restrict x, ptrdiff_t n_features, const double *restrict packed,
    const double *restrict c, double by, int width, double *restrict z, double *restrict out)
{
    double q[SKDPM_STRIP] = {0.0};
    ptrdiff_t d = 0;
    for (; d + 1 < n_features; d += 2, x += 2 * SKDPM_STRIP) {
        const double *restrict factor = packed + d;
        double a[SKDPM_STRIP], b[SKDPM_STRIP];
        for (int i = 0; i < width; i++) {
            a[i] = x[i] - c[d];
            b[i] = x[SKDPM_STRIP + i] - c[d + 1];
        }
        for (ptrdiff_t e = 0; e < d; e++) {
            const double f = factor[0], g = factor[1];
            const double *restrict before = z + e * SKDPM_STRIP;
            for (int i = 0; i < width; i++) {
                a[i] -= f * before[i];
                b[i] -= g * before[i];
            }
            factor += n_features - e - 1;
        }
        const double f = factor[0], g = factor[1], h = factor[n_features - d];
        double *restrict now = z + d * SKDPM_STRIP;
        for (int i = 0; i < width; i++) {
            now[i] = a[i];
            q[i] += a[i] * (a[i] * f);
            b[i] -= g * a[i];
            now[SKDPM_STRIP + i] = b[i];
            q[i] += b[i] * (b[i] * h);
        }
    }
    for (; d < n_features; d++) {
        const double *restrict factor = packed + d;
        double a[SKDPM_STRIP];
        for (int i = 0; i < width; i++)
            a[i] = x[i] - c[d];
        for (ptrdiff_t e = 0; e < d; e++) {
            for (int i = 0; i < width; i++)
                a[i] -= factor[0] * z[e * SKDPM_STRIP + i];
            factor += n_features - e - 1;
        }
        for (int i = 0; i < width; i++)
            q[i] += a[i] * (a[i] * factor[0]);
    }
    for (int i = 0; i < width; i++)
        out[i] = q[i] < 1e300 ? 1.0 + q[i] * by : INFINITY;
}

/* The same for n items, and possibly some behind them: the compiler knows both widths. */
SKDPM_KERNEL void tile_tails(
    const double *restrict x, ptrdiff_t n, ptrdiff_t n_features, const double *restrict packed,
    const double *restrict c, double by, double *restrict z, double *restrict out)
{
    if (n <= 8)
        strip_tails(x, n_features, packed, c, by, 8, z, out);
    else
        strip_tails(x, n_features, packed, c, by, SKDPM_STRIP, z, out);
}

/* Densities of counts and categories. */

#define SKDPM_LANES 8 /* clusters side by side */

/* Sums over the entries of items: out[k * ld + i] = sum over e of counts[e] theta_k[t_e], with
 * t_e = indices[e] and theta_k = params + which[k] * n_params, for the entries
 * indptr[items[i]] <= e < indptr[items[i] + 1]. Without `indptr` each item has `n_entries`; without
 * `counts` each entry counts once. Sums are in the order of the entries, even and odd ones apart.
 * table: (n_levels * SKDPM_LANES,), scratch. */
SKDPM_INLINE void entries_of_items(
    const double *restrict params, ptrdiff_t n_params, const ptrdiff_t *restrict which,
    ptrdiff_t n_which, ptrdiff_t n_levels, const ptrdiff_t *restrict items, ptrdiff_t n,
    const ptrdiff_t *restrict indptr, ptrdiff_t n_entries, const int *restrict indices,
    const double *restrict counts, double *restrict table, double *restrict out, ptrdiff_t ld)
{
    ptrdiff_t total = n * n_entries;
    if (indptr) {
        total = 0;
        for (ptrdiff_t i = 0; i < n; i++)
            total += indptr[items[i] + 1] - indptr[items[i]];
    }
    for (ptrdiff_t k = 0; k < n_which; k += SKDPM_LANES) {
        const ptrdiff_t n_lanes = n_which - k < SKDPM_LANES ? n_which - k : SKDPM_LANES;
        const double *theta[SKDPM_LANES];
        for (ptrdiff_t j = 0; j < SKDPM_LANES; j++)
            theta[j] = params + which[j < n_lanes ? k + j : k] * n_params;
        /* Side by side in memory, the terms of an entry for all clusters are one load. */
        const int side_by_side = total >= n_levels;
        if (side_by_side)
            for (ptrdiff_t t = 0; t < n_levels; t++)
                for (ptrdiff_t j = 0; j < SKDPM_LANES; j++)
                    table[t * SKDPM_LANES + j] = theta[j][t];
        for (ptrdiff_t first = 0; first < n; first += SKDPM_LANES) {
            const ptrdiff_t n_block = n - first < SKDPM_LANES ? n - first : SKDPM_LANES;
            double block[SKDPM_LANES][SKDPM_LANES];
            for (ptrdiff_t i = 0; i < n_block; i++) {
                const ptrdiff_t item = items[first + i];
                ptrdiff_t e = indptr ? indptr[item] : item * n_entries;
                const ptrdiff_t stop = indptr ? indptr[item + 1] : e + n_entries;
                double a[SKDPM_LANES] = {0.0}, b[SKDPM_LANES] = {0.0};
                if (side_by_side) {
                    for (; e + 2 <= stop; e += 2) {
                        const double x = counts ? counts[e] : 1.0;
                        const double y = counts ? counts[e + 1] : 1.0;
                        const double *restrict p = table + (ptrdiff_t)indices[e] * SKDPM_LANES;
                        const double *restrict q = table + (ptrdiff_t)indices[e + 1] * SKDPM_LANES;
                        for (ptrdiff_t j = 0; j < SKDPM_LANES; j++) {
                            a[j] += x * p[j];
                            b[j] += y * q[j];
                        }
                    }
                } else {
                    for (; e + 2 <= stop; e += 2) {
                        const double x = counts ? counts[e] : 1.0;
                        const double y = counts ? counts[e + 1] : 1.0;
                        for (ptrdiff_t j = 0; j < SKDPM_LANES; j++) {
                            a[j] += x * theta[j][indices[e]];
                            b[j] += y * theta[j][indices[e + 1]];
                        }
                    }
                }
                if (e < stop)
                    for (ptrdiff_t j = 0; j < SKDPM_LANES; j++)
                        a[j] += (counts ? counts[e] : 1.0) * theta[j][indices[e]];
                for (ptrdiff_t j = 0; j < SKDPM_LANES; j++)
                    block[j][i] = a[j] + b[j];
            }
            for (ptrdiff_t j = 0; j < n_lanes; j++)
                for (ptrdiff_t i = 0; i < n_block; i++)
                    out[(k + j) * ld + first + i] = block[j][i];
        }
    }
}

/* For items with entries and counts in rows of a sparse matrix, or with the same number of entries,
 * each counted once, without `indptr` and `counts`: the compiler knows which. */
SKDPM_KERNEL void tile_entries(
    const double *restrict params, ptrdiff_t n_params, const ptrdiff_t *restrict which,
    ptrdiff_t n_which, ptrdiff_t n_levels, const ptrdiff_t *restrict items, ptrdiff_t n,
    const ptrdiff_t *restrict indptr, ptrdiff_t n_entries, const int *restrict indices,
    const double *restrict counts, double *restrict table, double *restrict out, ptrdiff_t ld)
{
    if (counts)
        entries_of_items(
            params, n_params, which, n_which, n_levels, items, n, indptr, 0, indices, counts, table,
            out, ld);
    else
        entries_of_items(
            params, n_params, which, n_which, n_levels, items, n, NULL, n_entries, indices, NULL,
            table, out, ld);
}

#define SKDPM_COLUMNS 16 /* clusters of a mirror that are evaluated together */
/* Of n products p: add the exponents to e, and leave numbers from 1 to 2. */
SKDPM_INLINE void split_exponents(double *restrict p, double *restrict e, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t bits, biased;
        double exponent;
        memcpy(&bits, &p[i], sizeof bits);
        biased = (bits >> 52) | 0x4330000000000000u; /* the bits of 2^52 + exponent + 1023 */
        bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
        memcpy(&p[i], &bits, sizeof bits);
        memcpy(&exponent, &biased, sizeof exponent);
        e[i] += exponent - (0x1p52 + 1023.0);
    }
}

/* p[k] = log of the product over m < n of a + offsets[m] + c_k, for adjacent clusters. Here c_k is
 * the count of cluster k in column d = columns[m] of X: counts[d] of a single cluster, or
 * mirror[d * stride + k]; and a is pseudo[d], or pseudo[0] if uniform. Factors are between 1e-18 and
 * 1e18, so that the product of 16 of them and a number from 1 to 2 is normal. n_clusters is 1 or a
 * multiple of SKDPM_COLUMNS; e is scratch of the same size. */
SKDPM_INLINE void products_of_factors(
    const double *restrict counts, const float *restrict mirror, ptrdiff_t stride,
    ptrdiff_t n_clusters, const int *restrict columns, const unsigned char *restrict offsets,
    ptrdiff_t n, const double *restrict pseudo, int uniform, double *restrict p,
    double *restrict e)
{
    ptrdiff_t m = 0;
    for (ptrdiff_t k = 0; k < n_clusters; k++) {
        p[k] = 1.0;
        e[k] = 0.0;
    }
    /* Eight at a time, so that few multiplications wait for each other. All clusters take them
     * before the next eight: a column's counts are then read from memory once, one after another. */
    for (; m + 8 <= n; m += 8) {
        double a[8];
        for (ptrdiff_t j = 0; j < 8; j++)
            a[j] = pseudo[uniform ? 0 : columns[m + j]] + (double)offsets[m + j];
        if (mirror) {
            const float *restrict f[8];
            for (ptrdiff_t j = 0; j < 8; j++)
                f[j] = mirror + columns[m + j] * stride;
            for (ptrdiff_t first = 0; first < n_clusters; first += SKDPM_COLUMNS) {
                for (ptrdiff_t k = first; k < first + SKDPM_COLUMNS; k++)
                    p[k] *= (((a[0] + (double)f[0][k]) * (a[1] + (double)f[1][k]))
                                * ((a[2] + (double)f[2][k]) * (a[3] + (double)f[3][k])))
                        * (((a[4] + (double)f[4][k]) * (a[5] + (double)f[5][k]))
                            * ((a[6] + (double)f[6][k]) * (a[7] + (double)f[7][k])));
                if (m % 16)
                    split_exponents(p + first, e + first, SKDPM_COLUMNS);
            }
        } else {
            const int *restrict d = columns + m;
            p[0] *= (((a[0] + counts[d[0]]) * (a[1] + counts[d[1]]))
                        * ((a[2] + counts[d[2]]) * (a[3] + counts[d[3]])))
                * (((a[4] + counts[d[4]]) * (a[5] + counts[d[5]]))
                    * ((a[6] + counts[d[6]]) * (a[7] + counts[d[7]])));
            if (m % 16)
                split_exponents(p, e, 1);
        }
    }
    for (; m < n; m++) {
        const double a = pseudo[uniform ? 0 : columns[m]] + (double)offsets[m];
        if (mirror)
            for (ptrdiff_t k = 0; k < n_clusters; k++)
                p[k] *= a + (double)mirror[columns[m] * stride + k];
        else
            p[0] *= a + counts[columns[m]];
    }
    split_exponents(p, e, n_clusters);
    for (ptrdiff_t k = 0; k < n_clusters; k++)
        p[k] = e[k] * 0x1.62e42fefa39efp-1 + log_positive(p[k]);
}

/* For a single cluster. */
SKDPM_UNUSED static double factors_of_counts(
    const double *restrict counts, const int *restrict columns,
    const unsigned char *restrict offsets, ptrdiff_t n, const double *restrict pseudo, int uniform)
{
    double p, e;
    if (uniform)
        products_of_factors(counts, NULL, 0, 1, columns, offsets, n, pseudo, 1, &p, &e);
    else
        products_of_factors(counts, NULL, 0, 1, columns, offsets, n, pseudo, 0, &p, &e);
    return p;
}

/* For n_clusters clusters of a mirror, a multiple of SKDPM_COLUMNS. */
SKDPM_KERNEL void tile_factors(
    const float *restrict mirror, ptrdiff_t stride, ptrdiff_t n_clusters,
    const int *restrict columns, const unsigned char *restrict offsets, ptrdiff_t n,
    const double *restrict pseudo, int uniform, double *restrict out, double *restrict scratch)
{
    products_of_factors(
        NULL, mirror, stride, n_clusters, columns, offsets, n, pseudo, uniform, out, scratch);
}

/* log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2], z >= 20. */
SKDPM_INLINE double stirling_rest(double z)
{
    const double u = 1.0 / (z * z);
    return (1.0 / 12 - u * (1.0 / 360 - u * (1.0 / 1260 - u / 1680))) / z;
}

/* out[k] = log Gamma(z[k] + v) - log Gamma(z[k]) of n numbers, a multiple of 8, z >= 20 and v >= 0.
 * Terms that both have cancel before they are computed. Numbers below 20: of no use. */
SKDPM_KERNEL void tile_log_rising(
    const double *restrict z, double v, ptrdiff_t n, double *restrict out)
{
    for (ptrdiff_t first = 0; first < n; first += 8)
        for (ptrdiff_t i = first; i < first + 8; i++) {
            const double y = v / z[i], u = 1.0 + y, sum = z[i] + v;
            const double log1p_y = log_positive(u) + (y - (u - 1.0)) / u;
            out[i] = (z[i] - 0.5) * log1p_y + v * (log_positive(sum) - 1.0)
                + (stirling_rest(sum) - stirling_rest(z[i]));
        }
}

/* out[i] = sum over d of x_id log_rate_d - rate_d, with x (n_features, ld); the sum of the rates
 * is -top. With `missing`, NaN entries of x add no term. */
SKDPM_KERNEL void tile_poisson(
    const double *restrict x, ptrdiff_t ld, ptrdiff_t n, ptrdiff_t n_features,
    const double *restrict log_rate, const double *restrict rate, double top, int missing,
    double *restrict out)
{
    ptrdiff_t d = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = missing ? 0.0 : top;
    if (missing) {
        for (; d < n_features; d++, x += ld) {
            const double l0 = log_rate[d], r0 = rate[d];
            for (ptrdiff_t i = 0; i < n; i++) {
                const double term = x[i] * l0 - r0;
                out[i] += x[i] == x[i] ? term : 0.0;
            }
        }
        return;
    }
    for (; d + 4 <= n_features; d += 4, x += 4 * ld) {
        const double l0 = log_rate[d], l1 = log_rate[d + 1];
        const double l2 = log_rate[d + 2], l3 = log_rate[d + 3];
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] += (l0 * x[i] + l1 * x[ld + i]) + (l2 * x[2 * ld + i] + l3 * x[3 * ld + i]);
    }
    for (; d < n_features; d++, x += ld) {
        const double l0 = log_rate[d];
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] += l0 * x[i];
    }
}

#endif
