/* SPDX-License-Identifier: BSD-3-Clause
 * The yardstick of the Gibbs sweep over Gaussian rows of two columns: for every row and cluster the
 * predictive density (Student t: a solve against the Cholesky factor, log1p, the log weight), then
 * exp-normalise and draw a label. The clusters stay as they are: nothing is added or removed. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    double center[2];
    double a, b, c;     /* of the Cholesky factor: inverse diagonal a, c, entry b below it */
    double ratio;       /* rho / (rho + 1) */
    double power;       /* (nu + n + 1) / 2 */
    double constant;    /* log normaliser, -log |S_n| / 2 and log weight */
} cluster;

/* xorshift64*: random numbers must not be what is measured. */
static inline double uniform(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (double)((x * 0x2545F4914F6CDD1DULL) >> 11) * 0x1p-53;
}

static inline double squared(const cluster *c, const double *x)
{
    const double y = (x[0] - c->center[0]) * c->a;
    const double z = (x[1] - c->center[1] - y * c->b) * c->c;
    return (y * y + z * z) * c->ratio;
}

void log_densities(const double *X, ptrdiff_t n, const cluster *clusters, ptrdiff_t k, double *out)
{
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < k; j++)
            out[i * k + j] = clusters[j].constant
                - clusters[j].power * log1p(squared(clusters + j, X + 2 * i));
}

static inline ptrdiff_t draw(const double *w, ptrdiff_t k, double total, uint64_t *state)
{
    double u = uniform(state) * total;
    ptrdiff_t j = 0;
    while (j < k - 1 && (u -= w[j]) >= 0.0)
        j++;
    return j;
}

void sweep(
    const double *X, ptrdiff_t n, const cluster *clusters, ptrdiff_t k, uint64_t *state, double *w,
    ptrdiff_t *labels)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double top = -INFINITY;
        double total = 0.0;
        for (ptrdiff_t j = 0; j < k; j++) {
            const cluster *c = clusters + j;
            w[j] = c->constant - c->power * log1p(squared(c, X + 2 * i));
            if (w[j] > top)
                top = w[j];
        }
        for (ptrdiff_t j = 0; j < k; j++) {
            w[j] = exp(w[j] - top);
            total += w[j];
        }
        labels[i] = draw(w, k, total, state);
    }
}

/* The same with two shortcuts that the kernels of skdpm take: log(1 + q) for log1p(q), and no
 * exponential of terms that cannot change the sum. */
void sweep_with_shortcuts(
    const double *X, ptrdiff_t n, const cluster *clusters, ptrdiff_t k, uint64_t *state, double *w,
    ptrdiff_t *labels)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double top = -INFINITY;
        double total = 0.0;
        for (ptrdiff_t j = 0; j < k; j++) {
            const cluster *c = clusters + j;
            w[j] = c->constant - c->power * log(1.0 + squared(c, X + 2 * i));
            if (w[j] > top)
                top = w[j];
        }
        for (ptrdiff_t j = 0; j < k; j++) {
            w[j] = w[j] - top < -50.0 ? 0.0 : exp(w[j] - top);
            total += w[j];
        }
        labels[i] = draw(w, k, total, state);
    }
}
