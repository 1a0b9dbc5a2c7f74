# SPDX-License-Identifier: BSD-3-Clause
"""Directions: rows of unit length with von Mises-Fisher laws (Banerjee et al. 2005; Gopal & Yang
2014, with the concentrations on a grid).

In D columns, nu = D / 2 - 1. With the function

    F(t) = log 0F1(; D / 2; t^2 / 4) = log[Gamma(nu + 1) (2 / t)^nu I_nu(t)],   F(0) = 0,

the density on the sphere of area A is f(x | mu, kappa) = exp(kappa mu'x - F(kappa)) / A. The mean
direction mu is uniform on the sphere. The concentration is one of G points that are even in the
logarithm, kappa_g = c exp(s t_g), t_g = -1, ..., 1, with equal probabilities. With n rows of sum r
in a cluster,

    p(cluster)     = A^-n sum_g exp(L_g) / G,   L_g = F(kappa_g |r|) - n F(kappa_g),
    p(x | cluster) = p(cluster and x) / p(cluster),   |r + x|^2 = |r|^2 + 2 r'x + 1.

The factors 1 / A are the items' `log_constants` and left out below. A row of zeros has no known
direction: its density is 1 in every cluster, and n counts the other rows.

As a function of kappa, L rises up to one point and falls from there: its derivative is
|r| a(kappa |r|) - n a(kappa), a = F' = I_{nu+1} / I_nu, and a(kappa |r|) / a(kappa) decreases for
|r| > 1. So a sum starts at the largest L_g of the cluster and stops where terms are negligible.

F is computed by the uniform expansion of I_nu (Abramowitz & Stegun 9.7.7, in logarithms) for large
nu. For small nu, 0F1(; b; z) = 0F1(; b + 1; z) + z / (b (b + 1)) 0F1(; b + 2; z) leads down from
an order that is large enough. All its terms are positive. This takes time, so kernels interpolate
F: each octave of 1 + t has 256 polynomials of degree 5.

Hyperparameters: c, s. Row: number of rows, r (D), number of rows of zeros | |r|^2,
log sum_g exp(L_g), the g of the largest L_g.
"""
cimport cython
from libc.math cimport NAN, exp, fabs, log, log1p, sqrt
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from functools import cache, lru_cache
from fractions import Fraction

import numpy as np

from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport (
    bit_generator_pointer, bitgen_t, categorical_log, random_beta, random_standard_exponential,
    random_standard_normal
)
from skdpm.mixture.likelihoods.contract._base cimport (
    ClusterModel, Indices, as_indices, read_row, row,
)
from skdpm.mixture.likelihoods.contract._parametric cimport (
    SKDPM_LANES, TILE, ParametricModel, tile_entries
)


cdef extern from "tiles.h" nogil:
    double tile_dot(const double* a, const double* b, Py_ssize_t n)
    void tile_dots(
        const double* x, Py_ssize_t n_features, const Py_ssize_t* items, Py_ssize_t n,
        const double* params, Py_ssize_t n_params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out, Py_ssize_t ld
    )


cdef enum:
    # Points of the grid. Rows cannot tell neighbours apart before n step^2 is about 8 log(n), with
    # the step of log kappa: then a cluster between two points would be split.
    _N_POINTS = 64
    MOST_TERMS = 8
    # Interpolation of F for 1 + t below 2^N_OCTAVES.
    N_OCTAVES = 30
    LOG_PIECES = 8      # log2 of the number of pieces of an octave
    N_COEFFICIENTS = 6

N_POINTS = _N_POINTS

# Smallest order of the expansion, and the error of F there: below 1e-15 of F, and 1e-14.
cdef double LEAST_ORDER = 25.0
# Larger concentrations count as this one, because doubles hold no angles that small.
MOST_CONCENTRATED = 1e9
cdef double LARGEST = MOST_CONCENTRATED
# Terms this far below the largest, in logarithms, add nothing to a sum.
cdef double NEGLIGIBLE = 45.0


@cache
def expansion():
    """Coefficients of D_1, ..., D_8 of the expansion, highest powers first. With U_k of Abramowitz
    & Stegun 9.3.9, log sum_k U_k(p) / nu^k = sum_k D_k(p) / nu^k, and D_k(p) is p^k times a
    polynomial of degree k in p^2."""
    one = Fraction(1)
    terms, logs = [np.array([one])], [None]     # by powers of p
    for k in range(1, MOST_TERMS + 1):
        last = terms[k - 1]
        e = np.arange(len(last)) * one
        up = last * (e / 2 + 1 / (8 * (e + 1)))
        down = last * (e / 2 + 5 / (8 * (e + 3)))
        terms.append(np.pad(up, (1, 2)) - np.pad(down, (3, 0)))
        products = [np.convolve(j * logs[j], terms[k - j]) for j in range(1, k)]
        logs.append(terms[k] - sum(products, 0 * one) / k)
    return np.array([float(c) for k in range(1, MOST_TERMS + 1) for c in logs[k][k::2][::-1]])


cdef struct Bessel:
    # F of one nu.
    double nu
    Py_ssize_t n_steps          # of the recurrence, from the order nu + n_steps
    Py_ssize_t n_terms
    const double* coefficients
    double constants[2]         # of the series at the orders nu + n_steps and one more
    const double* pieces        # (pieces of all octaves, N_COEFFICIENTS): polynomials of F


cdef struct Points:
    # The grid: kappa_g and F(kappa_g).
    double kappa[_N_POINTS]
    double norm[_N_POINTS]


cdef double series(const Bessel* bessel, double nu, double a) noexcept nogil:
    """sum_k D_k(nu / a) / nu^k."""
    cdef const double* c = bessel.coefficients
    cdef double inverse = 1.0 / a
    cdef double p2 = nu * inverse * (nu * inverse)
    cdef double power = 1.0, total = 0.0
    for k in range(1, bessel.n_terms + 1):
        power *= inverse
        value = c[0]
        for j in range(1, k + 1):
            value = value * p2 + c[j]
        c += k + 1
        total += value * power
    return total


cdef inline double expanded(const Bessel* bessel, Py_ssize_t which, double t) noexcept nogil:
    """F(t) of the order nu + n_steps + which, by the expansion."""
    cdef double nu = bessel.nu + bessel.n_steps + which
    cdef double a = sqrt(nu * nu + t * t)
    cdef double above = t * t / ((a + nu) * nu)     # (a - nu) / nu
    return (
        nu * (above - log1p(0.5 * above)) - 0.5 * log1p(above)
        + (series(bessel, nu, a) - bessel.constants[which])
    )


cdef inline double log_0f1(const Bessel* bessel, double t) noexcept nogil:
    """F(t), t >= 0."""
    cdef double x = 1.0 + t
    cdef uint64_t bits
    if not x < <double>(1 << N_OCTAVES):
        return log_0f1_at(bessel, t)
    # The exponent and the first digits of x tell the piece, the other digits the place in it.
    memcpy(&bits, &x, sizeof(bits))
    c = bessel.pieces + N_COEFFICIENTS * (
        (bits >> (52 - LOG_PIECES)) - (<uint64_t>1023 << LOG_PIECES)
    )
    bits &= (<uint64_t>1 << (52 - LOG_PIECES)) - 1
    s = <double>bits * (2.0 / (<uint64_t>1 << (52 - LOG_PIECES))) - 1.0
    return c[0] + s * (c[1] + s * (c[2] + s * (c[3] + s * (c[4] + s * c[5]))))


cdef double log_0f1_at(const Bessel* bessel, double t) noexcept nogil:
    """F(t), t >= 0, without interpolation."""
    cdef double total = expanded(bessel, 0, t)
    cdef double product = 1.0
    if bessel.n_steps == 0:
        return total
    # The ratio of 0F1(; b + 1) to 0F1(; b), from b at the top down.
    ratio = exp(expanded(bessel, 1, t) - total)
    z = 0.25 * t * t
    for m in range(bessel.n_steps, 0, -1):
        b = bessel.nu + m
        ratio = 1.0 / (1.0 + z / (b * (b + 1.0)) * ratio)
        product *= ratio
        if product < 1e-200:
            total -= log(product)
            product = 1.0
    return total - log(product)


cdef int prepare(Bessel* bessel, double nu, const double[:, ::1] pieces) except -1:
    """Fill the numbers of F; `pieces`, of `interpolation` or None, belong to the caller."""
    cdef const double[::1] coefficients = expansion()
    bessel.nu = nu
    bessel.n_steps = 0
    while nu + bessel.n_steps < LEAST_ORDER:    # at most 25 turns, as nu >= 0
        bessel.n_steps += 1
    top = nu + bessel.n_steps
    bessel.n_terms = MOST_TERMS if top < 40.0 else 6 if top < 150.0 else 4
    bessel.coefficients = &coefficients[0]      # which the cache keeps
    bessel.pieces = NULL if pieces is None else &pieces[0, 0]
    bessel.constants[0] = series(bessel, top, top)
    bessel.constants[1] = series(bessel, top + 1.0, top + 1.0)


@lru_cache(maxsize=16)
def interpolation(double nu):
    """Polynomials of F in s = -1, ..., 1 over the pieces, through its values at Chebyshev nodes:
    (N_OCTAVES * 2**LOG_PIECES, N_COEFFICIENTS)."""
    n_pieces = 1 << LOG_PIECES
    nodes = np.cos(np.pi * (np.arange(N_COEFFICIENTS) + 0.5) / N_COEFFICIENTS)
    centres = 1.0 + (np.arange(n_pieces) + 0.5) / n_pieces
    x = np.multiply.outer(
        2.0 ** np.arange(N_OCTAVES), np.add.outer(centres, 0.5 * nodes / n_pieces)
    )
    values = _values(x.reshape(-1, N_COEFFICIENTS) - 1.0, nu, False)
    # Differences have fewer digits to lose.
    first = values[:, :1].copy()
    solve = np.linalg.inv(np.vander(nodes, increasing=True))
    pieces = (values - first) @ solve.T
    pieces[:, 0] += first[:, 0]
    pieces.flags.writeable = False
    return pieces


cdef inline double point(Py_ssize_t g, double concentration, double spread) noexcept nogil:
    """kappa_g."""
    return min(concentration * exp(spread * (2.0 * g / (_N_POINTS - 1) - 1.0)), LARGEST)


cdef void fill_points(
    Points* points, const Bessel* bessel, double concentration, double spread
) noexcept nogil:
    cdef Py_ssize_t g
    for g in range(_N_POINTS):
        points.kappa[g] = point(g, concentration, spread)
        points.norm[g] = log_0f1(bessel, points.kappa[g])


cdef inline double log_term(
    const Points* points, const Bessel* bessel, Py_ssize_t g, double length, double n
) noexcept nogil:
    """L_g of n items whose sum has this length."""
    return log_0f1(bessel, points.kappa[g] * length) - n * points.norm[g]


cdef inline bint any_entry(const double* x, Py_ssize_t n) noexcept nogil:
    """Whether any of the entries is not 0."""
    for d in range(n):
        if x[d] != 0.0:
            return True
    return False


cdef double log_sum(
    const Points* points, const Bessel* bessel, double square, double n, double* mode
) noexcept nogil:
    """log sum_g exp(L_g) of n items, |r|^2 = square; `mode` is where to start, and on return the g
    of the largest term."""
    cdef double terms[_N_POINTS]
    cdef double length = sqrt(square) if square > 0.0 else 0.0
    if n <= 1.0:
        mode[0] = _N_POINTS // 2
        return log(<double>_N_POINTS)       # all L_g are 0
    first = last = start = <Py_ssize_t>mode[0]
    top = terms[start] = log_term(points, bessel, start, length, n)
    for step in range(1, -2, -2):       # up from the start, then down
        g = start + step
        while 0 <= g < _N_POINTS:
            terms[g] = log_term(points, bessel, g, length, n)
            first, last = min(first, g), max(last, g)
            if terms[g] > top:
                top = terms[g]
                mode[0] = g
            elif terms[g] < top - NEGLIGIBLE:
                break
            g += step
    total = 0.0
    for g in range(first, last + 1):
        total += exp(terms[g] - top)
    return top + log(total)


cdef void draw_direction(
    double* out, const double* mean, double concentration, Py_ssize_t n, bitgen_t* rng
) noexcept nogil:
    """Draw from a von Mises-Fisher law: Wood (1994), with 1 - w in place of w, the cosine of the
    angle to the mean, so that no digits are lost near it."""
    cdef double m = n - 1.0
    cdef double b = m / (2.0 * concentration + sqrt(4.0 * concentration * concentration + m * m))
    cdef double gap = 2.0 * b / (1.0 + b)       # 1 - x_0 of the paper
    cdef double along
    # Ends: more than half of the proposals are accepted (Wood 1994), whatever the concentration.
    while True:
        z = random_beta(rng, 0.5 * m, 0.5 * m)
        rest = 2.0 * b * z / (1.0 - (1.0 - b) * z)      # 1 - w
        if not (
            concentration * (gap - rest)
            + m * log((gap + (1.0 - gap) * rest) / (gap * (2.0 - gap)))
            < -random_standard_exponential(rng)
        ):
            break
    square = along = 0.0
    for d in range(n):
        out[d] = random_standard_normal(rng)
        along += out[d] * mean[d]
    for d in range(n):
        out[d] -= along * mean[d]
        square += out[d] * out[d]
    square = sqrt(rest * (2.0 - rest) / square)
    for d in range(n):
        out[d] = (1.0 - rest) * mean[d] + square * out[d]


@cython.final
cdef class Directions:
    """Rows of unit length, or of zeros: `data["X"]` or, if that is None, CSR `indptr`, `indices`
    and `entries`; and `n_features`."""
    cdef Py_ssize_t n_features
    cdef const double* X            # NULL: there are none, or they are sparse
    cdef const Py_ssize_t* indptr   # NULL: they are dense
    cdef const int* indices
    cdef const double* entries
    cdef object data

    def __init__(self, data):
        cdef const double[:, ::1] X
        cdef const Py_ssize_t[::1] indptr
        cdef const int[::1] indices
        cdef const double[::1] entries
        self.data = data
        self.n_features = data["n_features"]
        if data["X"] is not None:
            X = data["X"]
            self.X = &X[0, 0] if X.shape[0] else NULL
        else:
            indptr, indices, entries = data["indptr"], data["indices"], data["entries"]
            self.indptr = &indptr[0]
            self.indices = &indices[0] if indices.shape[0] else NULL
            self.entries = &entries[0] if entries.shape[0] else NULL

    cdef inline double dot(self, const double* r, Py_ssize_t i) noexcept nogil:
        """r'x_i."""
        cdef double total = 0.0
        if self.indptr == NULL:
            return tile_dot(r, self.X + i * self.n_features, self.n_features)
        for m in range(self.indptr[i], self.indptr[i + 1]):
            total += r[self.indices[m]] * self.entries[m]
        return total

    cdef inline void add(self, double* r, Py_ssize_t i, double by) noexcept nogil:
        """r + by x_i, in place of r."""
        if self.indptr == NULL:
            x = self.X + i * self.n_features
            for d in range(self.n_features):
                r[d] += by * x[d]
        else:
            for m in range(self.indptr[i], self.indptr[i + 1]):
                r[self.indices[m]] += by * self.entries[m]

    cdef inline bint has_direction(self, Py_ssize_t i) noexcept nogil:
        if self.indptr == NULL:
            return any_entry(self.X + i * self.n_features, self.n_features)
        return any_entry(self.entries + self.indptr[i], self.indptr[i + 1] - self.indptr[i])


@cython.final
cdef class VonMisesFisherModel(ClusterModel):
    """Kernel of directions.

    - `data`: dict. See `Directions`, and `log_constants`, (n_samples,).
    - `tables`: dict. `n_max`, and `polynomials` of `interpolation`.
    - `concentration`, `spread`: c and s.
    """
    cdef Py_ssize_t n_features
    cdef Directions rows
    cdef const double[:, ::1] pieces
    cdef Bessel bessel
    cdef Points points

    def __init__(self, data, tables, double concentration, double spread):
        self.n_samples = len(data["log_constants"])
        self.n_features = data["n_features"]
        self.n_max = tables["n_max"]
        self.rows = Directions(data)
        self.pieces = tables["polynomials"]
        self.drifts = True
        self.keep_log_constants(data["log_constants"])
        prepare(&self.bessel, 0.5 * self.n_features - 1.0, self.pieces)
        self.declare_hyperparameters(("concentration", "spread"), (concentration, spread))
        self.allocate(2 + self.n_features, 5 + self.n_features)
        self.retabulate()

    cdef int retabulate(self) except -1:
        fill_points(&self.points, &self.bessel, self.hyper[0], self.hyper[1])
        self.cache_terms(self.empty)

    cdef inline double directed(self, const double* stats) noexcept nogil:
        """Number of rows with a direction."""
        return stats[0] - stats[self.n_stats - 1]

    cdef void cache_sum(self, double* stats) noexcept nogil:
        """Compute the last two cached terms."""
        cdef double* cached = stats + self.n_stats
        cached[1] = log_sum(
            &self.points, &self.bessel, cached[0], self.directed(stats), &cached[2]
        )

    cdef void cache_terms(self, double* stats) noexcept nogil:
        stats[self.n_stats] = tile_dot(stats + 1, stats + 1, self.n_features)
        stats[self.n_stats + 2] = _N_POINTS // 2
        self.cache_sum(stats)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        cdef double* stats = row(self, slot)
        stats[0] += by
        if not self.rows.has_direction(i):
            stats[self.n_stats - 1] += by
            return
        stats[self.n_stats] += 2.0 * by * self.rows.dot(stats + 1, i) + 1.0
        self.rows.add(stats + 1, i, by)
        self.cache_sum(stats)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        if stats[0] == 1.0:
            memcpy(stats, self.empty, self.width * sizeof(double))
        else:
            self.change(slot, i, -1.0)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.cache_terms(row(self, slot))

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        return row(self, slot)[self.n_stats + 1] - log(<double>_N_POINTS)

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        return self.log_likelihood_at(as_indices(&slot, 1), hyper, 0)

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        cdef Points points
        cdef double total = 0.0
        fill_points(&points, &self.bessel, hyper[0], hyper[1])
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            mode = stats[self.n_stats + 2]
            total += (
                log_sum(&points, &self.bessel, stats[self.n_stats], self.directed(stats), &mode)
                - log(<double>_N_POINTS)
            )
        return total

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        if not self.rows.has_direction(i):
            for k in range(slots.n):
                out[k] = 0.0
            return
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            cached = stats + self.n_stats
            mode = cached[2]
            square = cached[0] + 2.0 * self.rows.dot(stats + 1, i) + 1.0
            out[k] = (
                log_sum(&self.points, &self.bessel, square, self.directed(stats) + 1.0, &mode)
                - cached[1]
            )


@cython.final
cdef class ParametricVonMisesFisher(ParametricModel):
    """Directions under a drawn mean and concentration. Parameters: -F(kappa), kappa mu (D)."""
    cdef Py_ssize_t n_features
    cdef Directions rows
    cdef double[::1] table      # (n_features * SKDPM_LANES,), if the rows are sparse
    cdef double[::1] mean       # (n_features,)
    cdef const double[:, ::1] pieces
    cdef Bessel bessel
    cdef Points points

    def __init__(self, data, Py_ssize_t n_samples, double concentration, double spread):
        self.n_samples = n_samples
        self.n_features = data["n_features"]
        self.n_params = 1 + self.n_features
        self.n_stats = 2 + self.n_features
        self.rows = Directions(data)
        if data["X"] is None:
            self.table = np.empty(self.n_features * SKDPM_LANES)
        self.mean = np.empty(self.n_features)
        self.pieces = interpolation(0.5 * self.n_features - 1.0)
        prepare(&self.bessel, 0.5 * self.n_features - 1.0, self.pieces)
        fill_points(&self.points, &self.bessel, concentration, spread)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef double log_w[_N_POINTS]
        cdef double length = sqrt(tile_dot(stats + 1, stats + 1, self.n_features))
        for g in range(_N_POINTS):
            log_w[g] = (
                log_0f1(&self.bessel, self.points.kappa[g] * power * length)
                - power * (stats[0] - stats[self.n_stats - 1]) * self.points.norm[g]
            )
        g = categorical_log(rng, log_w, _N_POINTS)
        if g < 0:
            params[0] = NAN
            return
        kappa = self.points.kappa[g]
        for d in range(self.n_features):
            self.mean[d] = stats[1 + d] / length if length > 0.0 else d == 0
        draw_direction(params + 1, &self.mean[0], kappa * power * length, self.n_features, rng)
        params[0] = -self.points.norm[g]
        for d in range(self.n_features):
            params[1 + d] *= kappa

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        if self.rows.indptr == NULL:
            tile_dots(
                self.rows.X, self.n_features, items.at, items.n, params, self.n_params, which.at,
                which.n, out, TILE
            )
        else:
            tile_entries(
                params + 1, self.n_params, which.at, which.n, self.n_features, items.at, items.n,
                self.rows.indptr, 0, self.rows.indices, self.rows.entries, &self.table[0], out,
                TILE
            )
            for k in range(which.n):
                for i in range(items.n):
                    out[k * TILE + i] += params[which.at[k] * self.n_params]
        for i in range(items.n):
            if not self.rows.has_direction(items.at[i]):
                for k in range(which.n):
                    out[k * TILE + i] = 0.0

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        stats[0] += items.n
        for i in range(items.n):
            if not self.rows.has_direction(items.at[i]):
                stats[self.n_stats - 1] += 1.0
            self.rows.add(stats + 1, items.at[i], 1.0)


# For Python.

def grid(double concentration, double spread):
    """The concentrations of the grid: ndarray of shape (N_POINTS,)."""
    cdef Py_ssize_t g
    return np.array([point(g, concentration, spread) for g in range(_N_POINTS)])


def log_hypergeometric(t, double nu):
    """F of the module's docstring, log 0F1(; nu + 1; t^2 / 4), for nonnegative numbers t: ndarray
    of their shape."""
    return _values(t, nu, True)


def _values(t, double nu, bint interpolated):
    """F of numbers t: ndarray of their shape."""
    cdef Bessel bessel
    cdef const double[:, ::1] pieces = interpolation(nu) if interpolated else None
    cdef const double[::1] flat = np.ascontiguousarray(t, dtype=np.float64).ravel()
    cdef double[::1] out = np.empty(flat.shape[0])
    prepare(&bessel, nu, pieces)
    for i in range(flat.shape[0]):
        out[i] = log_0f1(&bessel, flat[i]) if interpolated else log_0f1_at(&bessel, flat[i])
    return np.asarray(out).reshape(np.shape(t))


def draw_directions(const double[:, ::1] means, const double[::1] concentrations, bit_generator):
    """Draw a direction from each of some von Mises-Fisher laws: ndarray (n_laws, n_features)."""
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    expect_shape("concentrations", concentrations, (means.shape[0],))
    cdef double[:, ::1] out = np.empty((means.shape[0], means.shape[1]))
    with bit_generator.lock, nogil:
        for k in range(means.shape[0]):
            draw_direction(&out[k, 0], &means[k, 0], concentrations[k], means.shape[1], rng)
    return np.asarray(out)


def unit_rows(X):
    """Rows scaled to unit length, float64; rows of zeros stay."""
    starts = np.arange(X.shape[0] + 1) * X.shape[1]
    return unit_entries(starts, np.array(X, dtype=np.float64).ravel()).reshape(X.shape)


def unit_entries(const Py_ssize_t[::1] indptr, const double[::1] entries):
    """`unit_rows` for the entries of sparse rows: ndarray of shape (n_entries,)."""
    cdef double[::1] scaled = np.array(entries)
    with nogil:
        for i in range(indptr.shape[0] - 1):
            scale = square = 0.0
            for m in range(indptr[i], indptr[i + 1]):
                scale = max(scale, fabs(scaled[m]))
            if scale == 0.0:
                continue
            # First by the largest, because squares may overflow or underflow.
            for m in range(indptr[i], indptr[i + 1]):
                scaled[m] /= scale
                square += scaled[m] * scaled[m]
            square = sqrt(square)
            for m in range(indptr[i], indptr[i + 1]):
                scaled[m] /= square
    return np.asarray(scaled)
