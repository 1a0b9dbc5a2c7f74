/* SPDX-License-Identifier: BSD-3-Clause
 * Clusters whose parameter is on a grid: the arithmetic of likelihoods/_grid.pyx, which states the
 * law and the layout of a row. Points are in chunks of SKDPM_CHUNK, one or several vector registers.
 * The last chunk of a block is filled with points of weight 0 and relative likelihood 1. Sums have
 * SKDPM_CHUNK lanes, so that their bits do not depend on the instruction set. */
#ifndef SKDPM_GRID_H
#define SKDPM_GRID_H

#include "tiles.h"

#define SKDPM_CHUNK 8
/* Log of the smallest term, relative to the largest, that can change a sum. */
#define SKDPM_NO_TERM (-50.0)
/* exp_negative is 0 below this. */
#define SKDPM_NO_WEIGHT (-700.0)
/* Log likelihood of an impossible entry, relative to the best point of its item and block. */
#define SKDPM_IMPOSSIBLE (-1e10)
/* Smallest dot product that is accurate although terms below 1e-300 are lost. */
#define SKDPM_LEAST_DOT 1e-280

typedef struct {
    ptrdiff_t n_blocks;         /* D */
    ptrdiff_t n_points;         /* M */
    ptrdiff_t n_chunks;         /* C */
    ptrdiff_t n_layers;         /* L: values of a hyperparameter, each with log likelihoods */
    ptrdiff_t layer;            /* the one whose log likelihoods count */
    const double *log_weights;  /* (D, M) */
    double *log_totals;         /* (D,): log of the sum of w */
} skdpm_grid;

/* Statistics before those of points: sums (L, D, M) and counts (D, M). The cached terms of a row end
 * with one group for each block: the first chunk with a weight, the chunk after the last one, the
 * largest log w + S of each chunk (C,), weights (C * SKDPM_CHUNK,). */
#define SKDPM_GRID_HEAD 2

SKDPM_INLINE ptrdiff_t skdpm_grid_n_stats(const skdpm_grid *grid)
{
    return SKDPM_GRID_HEAD + (grid->n_layers + 1) * grid->n_blocks * grid->n_points;
}

SKDPM_INLINE ptrdiff_t skdpm_grid_block_width(const skdpm_grid *grid)
{
    return 2 + (1 + SKDPM_CHUNK) * grid->n_chunks;
}

SKDPM_INLINE const double *skdpm_grid_block(
    const skdpm_grid *grid, const double *stats, ptrdiff_t d)
{
    return stats + skdpm_grid_n_stats(grid) + grid->n_blocks + d * skdpm_grid_block_width(grid);
}

SKDPM_INLINE double skdpm_chunk_sum(const double *x)
{
    double four[4], two[2];
    for (int j = 0; j < 4; j++)
        four[j] = x[j] + x[j + 4];
    for (int j = 0; j < 2; j++)
        two[j] = four[j] + four[j + 2];
    return two[0] + two[1];
}

SKDPM_INLINE double skdpm_larger(double a, double b)
{
    return a > b ? a : b;
}

SKDPM_INLINE double skdpm_chunk_max(const double *x)
{
    double lane[4];
    for (int j = 0; j < 4; j++)
        lane[j] = skdpm_larger(x[j], x[j + 4]);
    return skdpm_larger(skdpm_larger(lane[0], lane[2]), skdpm_larger(lane[1], lane[3]));
}

/* log w + S of n points from point m of block d, plus the log likelihoods of an item unless that is
 * NULL. */
SKDPM_INLINE void skdpm_grid_logs(
    const skdpm_grid *grid, const double *stats, ptrdiff_t d, ptrdiff_t m, ptrdiff_t n,
    const double *item, double *restrict out)
{
    const ptrdiff_t first = d * grid->n_points + m;
    const double *w = grid->log_weights + first;
    const ptrdiff_t n_entries = grid->n_blocks * grid->n_points;
    const double *sums = stats + SKDPM_GRID_HEAD + grid->layer * n_entries + first;
    for (ptrdiff_t j = 0; j < n; j++)
        out[j] = w[j] + sums[j];
    if (item)
        for (ptrdiff_t j = 0; j < n; j++)
            out[j] += item[first + j];
    if (stats[1] > 0.0) {
        const double *counts = stats + SKDPM_GRID_HEAD + grid->n_layers * n_entries + first;
        for (ptrdiff_t j = 0; j < n; j++)
            out[j] += SKDPM_IMPOSSIBLE * counts[j];
    }
}

/* The same for a chunk; -inf after the last point. */
SKDPM_INLINE void skdpm_grid_chunk(
    const skdpm_grid *grid, const double *stats, ptrdiff_t d, ptrdiff_t c, const double *item,
    double *out)
{
    const ptrdiff_t left = grid->n_points - c * SKDPM_CHUNK;
    if (left >= SKDPM_CHUNK) {
        skdpm_grid_logs(grid, stats, d, c * SKDPM_CHUNK, SKDPM_CHUNK, item, out);
        return;
    }
    skdpm_grid_logs(grid, stats, d, c * SKDPM_CHUNK, left, item, out);
    for (ptrdiff_t j = left; j < SKDPM_CHUNK; j++)
        out[j] = -INFINITY;
}

/* Computes the cached terms of a row from its statistics. */
SKDPM_KERNEL void skdpm_grid_compute(const skdpm_grid *grid, double *stats)
{
    double *log_norms = stats + skdpm_grid_n_stats(grid);
    for (ptrdiff_t d = 0; d < grid->n_blocks; d++) {
        double *bounds = (double *)skdpm_grid_block(grid, stats, d);
        double *ceilings = bounds + 2;
        double *p = ceilings + grid->n_chunks;
        double lane[SKDPM_CHUNK] = {0.0};
        double top = -INFINITY, total;
        ptrdiff_t first = 0, stop = grid->n_chunks;
        skdpm_grid_logs(grid, stats, d, 0, grid->n_points, NULL, p);
        for (ptrdiff_t m = grid->n_points; m < grid->n_chunks * SKDPM_CHUNK; m++)
            p[m] = -INFINITY;
        for (ptrdiff_t c = 0; c < grid->n_chunks; c++) {
            ceilings[c] = skdpm_chunk_max(p + c * SKDPM_CHUNK);
            top = skdpm_larger(ceilings[c], top);
        }
        /* These loops end, because a chunk has the largest value. */
        while (ceilings[first] - top <= SKDPM_NO_WEIGHT)
            first++;
        while (ceilings[stop - 1] - top <= SKDPM_NO_WEIGHT)
            stop--;
        for (ptrdiff_t m = 0; m < first * SKDPM_CHUNK; m++)
            p[m] = 0.0;
        for (ptrdiff_t m = first * SKDPM_CHUNK; m < stop * SKDPM_CHUNK; m++)
            p[m] = exp_negative(p[m] - top);
        for (ptrdiff_t m = stop * SKDPM_CHUNK; m < grid->n_chunks * SKDPM_CHUNK; m++)
            p[m] = 0.0;
        for (ptrdiff_t c = first; c < stop; c++)
            for (int j = 0; j < SKDPM_CHUNK; j++)
                lane[j] += p[c * SKDPM_CHUNK + j];
        bounds[0] = first;
        bounds[1] = stop;
        total = skdpm_chunk_sum(lane);
        for (ptrdiff_t m = first * SKDPM_CHUNK; m < stop * SKDPM_CHUNK; m++)
            p[m] *= 1.0 / total;
        log_norms[d] = top + log(total) - grid->log_totals[d];
    }
}

/* Sum over blocks of log Z, from the statistics of a row. */
SKDPM_KERNEL double skdpm_grid_log_norm(const skdpm_grid *grid, const double *stats)
{
    double log_norm = 0.0;
    for (ptrdiff_t d = 0; d < grid->n_blocks; d++) {
        double x[SKDPM_CHUNK], lane[SKDPM_CHUNK] = {0.0}, top = -INFINITY;
        for (ptrdiff_t c = 0; c < grid->n_chunks; c++) {
            skdpm_grid_chunk(grid, stats, d, c, NULL, x);
            top = skdpm_larger(skdpm_chunk_max(x), top);
        }
        for (ptrdiff_t c = 0; c < grid->n_chunks; c++) {
            skdpm_grid_chunk(grid, stats, d, c, NULL, x);
            for (int j = 0; j < SKDPM_CHUNK; j++)
                lane[j] += exp_negative(x[j] - top);
        }
        log_norm += top + log(skdpm_chunk_sum(lane)) - grid->log_totals[d];
    }
    return log_norm;
}

/* sums += by * x. */
SKDPM_KERNEL void skdpm_grid_shift(
    double *restrict sums, const double *restrict x, ptrdiff_t n, double by)
{
    for (ptrdiff_t m = 0; m < n; m++)
        sums[m] += by * x[m];
}

/* The same if entries of x may be impossible; these are counted. */
SKDPM_KERNEL void skdpm_grid_shift_possible(
    double *restrict sums, double *restrict counts, const double *restrict x, ptrdiff_t n,
    double by)
{
    for (ptrdiff_t m = 0; m < n; m++) {
        sums[m] += x[m] > SKDPM_IMPOSSIBLE ? by * x[m] : 0.0;
        counts[m] += x[m] > SKDPM_IMPOSSIBLE ? 0.0 : by;
    }
}

/* log p(block d of an item | cluster) relative to the best point, from the logarithms of the chunks
 * that matter. item: (D, M), relative log likelihoods; highest: (C,), their largest in each chunk of
 * the block. */
SKDPM_INLINE double skdpm_grid_log_sum(
    const skdpm_grid *grid, const double *stats, ptrdiff_t d, const double *item,
    const double *highest)
{
    const double *ceilings = skdpm_grid_block(grid, stats, d) + 2;
    double x[SKDPM_CHUNK], lane[SKDPM_CHUNK] = {0.0};
    double best = -INFINITY;
    ptrdiff_t likely = 0;
    for (ptrdiff_t c = 0; c < grid->n_chunks; c++)
        if (ceilings[c] + highest[c] > best) {
            best = ceilings[c] + highest[c];
            likely = c;
        }
    /* The largest term. */
    skdpm_grid_chunk(grid, stats, d, likely, item, x);
    best = skdpm_chunk_max(x);
    for (ptrdiff_t c = 0; c < grid->n_chunks; c++)
        if (c != likely && ceilings[c] + highest[c] > best) {
            skdpm_grid_chunk(grid, stats, d, c, item, x);
            best = skdpm_larger(skdpm_chunk_max(x), best);
        }
    /* The sum of the terms that can change it. */
    for (ptrdiff_t c = 0; c < grid->n_chunks; c++)
        if (ceilings[c] + highest[c] - best > SKDPM_NO_TERM) {
            skdpm_grid_chunk(grid, stats, d, c, item, x);
            for (int j = 0; j < SKDPM_CHUNK; j++)
                lane[j] += exp_negative(x[j] - best);
        }
    return best + log(skdpm_chunk_sum(lane)) - grid->log_totals[d]
        - stats[skdpm_grid_n_stats(grid) + d];
}

/* Sums of p r in each lane, over the chunks in which a block has weights. */
SKDPM_INLINE void skdpm_grid_lanes(
    const double *block, ptrdiff_t n_chunks, const double *r, double *restrict out)
{
    const double *p = block + 2 + n_chunks;
    const ptrdiff_t stop = (ptrdiff_t)block[1];
    ptrdiff_t c = (ptrdiff_t)block[0];
    double even[SKDPM_CHUNK] = {0.0}, odd[SKDPM_CHUNK] = {0.0};
    for (; c + 2 <= stop; c += 2) {
        const double *a = p + c * SKDPM_CHUNK, *b = r + c * SKDPM_CHUNK;
        for (int j = 0; j < SKDPM_CHUNK; j++) {
            even[j] += a[j] * b[j];
            odd[j] += a[SKDPM_CHUNK + j] * b[SKDPM_CHUNK + j];
        }
    }
    if (c < stop)
        for (int j = 0; j < SKDPM_CHUNK; j++)
            even[j] += p[c * SKDPM_CHUNK + j] * r[c * SKDPM_CHUNK + j];
    for (int j = 0; j < SKDPM_CHUNK; j++)
        out[j] = even[j] + odd[j];
}

/* Whether `skdpm_grid_predict_without` loses no terms: weights that are rounded to 0 are negligible
 * without the item too. lowest: (D, C), the smallest log likelihood of the item in each chunk. */
SKDPM_KERNEL int skdpm_grid_may_stay(
    const skdpm_grid *grid, const double *stats, const double *lowest)
{
    for (ptrdiff_t d = 0; d < grid->n_blocks; d++) {
        const double *block = skdpm_grid_block(grid, stats, d);
        const double *ceilings = block + 2, *low = lowest + d * grid->n_chunks;
        const ptrdiff_t first = (ptrdiff_t)block[0], stop = (ptrdiff_t)block[1];
        const double total = stats[skdpm_grid_n_stats(grid) + d] + grid->log_totals[d];
        for (ptrdiff_t c = 0; c < grid->n_chunks; c++) {
            const int has_weight = first <= c && c < stop;
            const double most = has_weight ? SKDPM_NO_WEIGHT : ceilings[c] - total;
            if (!(most - low[c] < SKDPM_NO_TERM))
                return 0;
        }
    }
    return 1;
}

/* log p(item | other items of its cluster): minus the log of the posterior mean of the inverse
 * likelihood. */
SKDPM_KERNEL double skdpm_grid_predict_without(
    const skdpm_grid *grid, const double *stats, const double *relative)
{
    const ptrdiff_t n_padded = grid->n_chunks * SKDPM_CHUNK;
    double total = 0.0;
    for (ptrdiff_t d = 0; d < grid->n_blocks; d++) {
        const double *block = skdpm_grid_block(grid, stats, d);
        const double *p = block + 2 + grid->n_chunks;
        double lane[SKDPM_CHUNK] = {0.0};
        for (ptrdiff_t c = (ptrdiff_t)block[0]; c < (ptrdiff_t)block[1]; c++)
            for (int j = 0; j < SKDPM_CHUNK; j++)
                lane[j] += p[c * SKDPM_CHUNK + j]
                    / relative[d * n_padded + c * SKDPM_CHUNK + j];
        total -= log_positive(skdpm_chunk_sum(lane));
    }
    return total;
}

/* log p(item | cluster) relative to the best points, for the clusters of some slots. SKDPM_CHUNK
 * clusters at a time share vector sums and logarithms. relative: (D, C * SKDPM_CHUNK), exp of `item`. */
SKDPM_KERNEL void skdpm_grid_predict(
    const skdpm_grid *grid, const double *arena, ptrdiff_t stride, const ptrdiff_t *slots,
    ptrdiff_t n_slots, const double *item, const double *highest, const double *relative,
    double *out)
{
    const ptrdiff_t n_padded = grid->n_chunks * SKDPM_CHUNK;
    for (ptrdiff_t k = 0; k < n_slots; k += SKDPM_CHUNK) {
        const ptrdiff_t n = n_slots - k < SKDPM_CHUNK ? n_slots - k : SKDPM_CHUNK;
        double total[SKDPM_CHUNK], dot[SKDPM_CHUNK];
        double lanes[SKDPM_CHUNK][SKDPM_CHUNK] = {{0.0}};
        for (int l = 0; l < SKDPM_CHUNK; l++)
            total[l] = 0.0;
        for (ptrdiff_t d = 0; d < grid->n_blocks; d++) {
            for (ptrdiff_t l = 0; l < n; l++)
                skdpm_grid_lanes(
                    skdpm_grid_block(grid, arena + slots[k + l] * stride, d), grid->n_chunks,
                    relative + d * n_padded, lanes[l]);
            for (int l = 0; l < SKDPM_CHUNK; l++)
                for (int j = 0; j < 4; j++)
                    lanes[l][j] += lanes[l][j + 4];
            for (int l = 0; l < SKDPM_CHUNK; l++)
                for (int j = 0; j < 2; j++)
                    lanes[l][j] += lanes[l][j + 2];
            for (int l = 0; l < SKDPM_CHUNK; l++)
                dot[l] = lanes[l][0] + lanes[l][1];
            for (ptrdiff_t l = 0; l < n; l++)
                if (!(dot[l] > SKDPM_LEAST_DOT)) {
                    total[l] += skdpm_grid_log_sum(
                        grid, arena + slots[k + l] * stride, d, item,
                        highest + d * grid->n_chunks);
                    dot[l] = 1.0;
                }
            for (int l = 0; l < SKDPM_CHUNK; l++)
                total[l] += log_positive(dot[l]);
        }
        for (ptrdiff_t l = 0; l < n; l++)
            out[k + l] = total[l];
    }
}

#endif
