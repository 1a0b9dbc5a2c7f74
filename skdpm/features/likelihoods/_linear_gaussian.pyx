# SPDX-License-Identifier: BSD-3-Clause
"""Linear Gaussian features (Griffiths & Ghahramani 2011), not collapsed:

    x_i | z_i, V, b ~ N(b + sum_k z_ik v_k, I / tau_x),
    v_k ~ N(0, I / tau_v),    b ~ N(m, I / tau_b),

tau_x and tau_v are fixed or under Gamma priors, m and tau_b fixed; without an intercept b = m = 0.
The intercept acts as the component of a feature that all rows have, with precision tau_b. A
missing entry drops out of every sum. A candidate is its residual x_i - b - sum_k z_k v_k, 0 in
missing entries; flipping a feature costs O(D).

Rows are stored less m, and so is b, as `offset`.

`LinearGaussian` keeps precisions within [1e-140, 1e140] and data within 1e60 of 0, so that no
product of three of them over- or underflows.
"""
from libc.math cimport M_PI as PI, INFINITY, exp, isfinite, lgamma, log, sqrt
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._cholesky cimport cholesky, dot
from skdpm._core._rng cimport (
    bitgen_t, log_gamma_variate, random_poisson, random_standard_normal, uniform,
)
from skdpm.features.likelihoods._base cimport FeatureModel, InterceptFeatureModel, add_scaled

LOWEST_PRECISION = 1e-140
LARGEST_PRECISION = 1e140

cdef double LOWEST = LOWEST_PRECISION
cdef double LARGEST = LARGEST_PRECISION

cdef enum:
    # Largest number of singletons of a row, unless the prior expects many. Hundreds mean that the
    # scales of data and priors are far apart, and steps of K^3 would not end.
    MOST_TERMS = 256


cdef enum Purpose:
    EVALUATE
    DRAW
    AVERAGE


cdef inline double draw_precision(bitgen_t* rng, double shape, double rate) noexcept nogil:
    """Draw from Gamma(shape, rate) by its logarithm: under a small shape variates underflow."""
    cdef double tau = exp(log_gamma_variate(rng, shape) - log(rate))
    if tau < LOWEST:
        return LOWEST
    return LARGEST if tau > LARGEST else tau


cdef void solve_lower(
    const double* factor, Py_ssize_t n, double* rows, Py_ssize_t stride, Py_ssize_t width   # INOUT
) noexcept nogil:
    """Multiply the n x width matrix by L^-1; its row j begins at rows[j * stride]."""
    cdef const double* column = factor
    for j in range(n):
        for i in range(1, n - j):
            add_scaled(rows + (j + i) * stride, -column[i], rows + j * stride, width)
        column += n - j


cdef void solve_upper(
    const double* factor, Py_ssize_t n, double* rows, Py_ssize_t stride, Py_ssize_t width   # INOUT
) noexcept nogil:
    """Multiply the matrix by L'^-1."""
    cdef const double* column = factor + n * (n + 1) // 2
    for j in range(n - 1, -1, -1):
        column -= n - j
        for i in range(1, n - j):
            add_scaled(rows + j * stride, -column[i], rows + (j + i) * stride, width)


cdef class LinearGaussianModel(InterceptFeatureModel):
    """Kernel of `LinearGaussian`.

    - `data`: dict. "X", (n_samples, n_features), less "mean", the intercept's prior mean, and 0 if
      missing; "observed", uint8 of the same shape, or None if nothing is missing; "missing_rows"
      and "missing_starts", the rows in which each column is missing, column by column.
    - `noise_precision`, `component_precision`: tau_x and tau_v. None: under their priors.
    - `intercept_precision`: tau_b. None: no intercept.
    """
    cdef object data
    cdef Py_ssize_t d
    cdef const double[:, ::1] X         # (n_samples, d)
    cdef double[:, ::1] residuals       # X of a restricted model
    cdef const unsigned char[:, ::1] observed   # (n_samples, d) or None
    cdef const Py_ssize_t[::1] missing_rows
    cdef const Py_ssize_t[::1] missing_starts   # (d + 1,)
    cdef const double[::1] mean         # (d,)
    cdef double n_observed, tau_b
    cdef double[::1] intercept          # (d,): b
    cdef double[::1] offset             # (d,): b less its prior mean
    cdef public double tau_x, tau_v
    cdef bint draws_tau_x, draws_tau_v
    cdef double x_shape, x_rate, v_shape, v_rate
    cdef Py_ssize_t capacity
    cdef double[:, ::1] V               # (capacity, d)
    cdef double[::1] norms              # (capacity,): squared norms of V's rows
    # The same for the row under update: zeros in missing entries.
    cdef double[:, ::1] masked          # (capacity, d)
    cdef double[::1] masked_norms       # (capacity,)
    cdef const double* row_V
    cdef const double* row_norms
    cdef const unsigned char* row_observed  # (d,) or NULL
    cdef Py_ssize_t row_d               # its entries that are observed
    cdef double row_tau                 # their precision, with new features integrated out
    # Scratch of the components' posterior; the intercept comes last.
    cdef double[::1] gram               # packed by columns: Z'Z
    cdef double[::1] factor             # packed by columns: Cholesky factor of the precision
    cdef double[:, ::1] solution        # (capacity + 1, d)
    cdef Py_ssize_t[::1] active         # (capacity + 1,)

    def __init__(
        self, data, noise_precision, noise_precision_prior, component_precision,
        component_precision_prior, intercept_precision
    ):
        self.data = data
        self.X, self.mean, self.observed = data["X"], data["mean"], data["observed"]
        self.missing_rows, self.missing_starts = data["missing_rows"], data["missing_starts"]
        self.n_samples = self.X.shape[0]
        self.d = self.width = self.X.shape[1]
        self.n_observed = self.n_samples * self.d - self.missing_starts[self.d]
        self.draws_tau_x = noise_precision is None
        self.draws_tau_v = component_precision is None
        self.x_shape, self.x_rate = noise_precision_prior
        self.v_shape, self.v_rate = component_precision_prior
        self.tau_x = 1.0 if self.draws_tau_x else noise_precision
        self.tau_v = 1.0 if self.draws_tau_v else component_precision
        self.has_intercept = intercept_precision is not None
        self.tau_b = intercept_precision if self.has_intercept else 1.0
        self.offset = np.zeros(self.d)
        self.intercept = data["mean"].copy()
        self.reserve_candidates(1)
        self.reserve(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        cdef Py_ssize_t n = self.n_latent
        cdef Py_ssize_t packed = (n_latent + 1) * (n_latent + 2) // 2
        if n_latent <= self.capacity:
            return 0
        V, norms = np.empty((n_latent, self.d)), np.empty(n_latent)
        if n > 0:
            V[:n], norms[:n] = self.V[:n], self.norms[:n]
        self.V, self.norms = V, norms
        self.masked, self.masked_norms = np.empty((n_latent, self.d)), np.empty(n_latent)
        self.gram, self.factor = np.empty(packed), np.empty(packed)
        self.solution = np.empty((n_latent + 1, self.d))
        self.active = np.empty(n_latent + 1, dtype=np.intp)
        self.capacity = n_latent

    cdef void round_intercept(self) noexcept nogil:
        """Compute b from its offset, then the offset from b, as `load` does."""
        for j in range(self.d):
            self.intercept[j] = self.mean[j] + self.offset[j]
            self.offset[j] = self.intercept[j] - self.mean[j]

    # The row under update.

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        cdef Py_ssize_t d = self.d
        cdef double* residual = self.candidates
        self.row_V = &self.V[0, 0]
        self.row_norms = &self.norms[0]
        self.row_d = d
        self.row_tau = self.tau_x
        for j in range(d):
            residual[j] = self.X[i, j] - self.offset[j]
        self.row_observed = NULL
        if self.observed is not None:
            self.row_observed = &self.observed[i, 0]
            self.row_d = 0
            for j in range(d):
                self.row_d += self.row_observed[j]
            if self.row_d < d:
                for j in range(d):
                    residual[j] = residual[j] if self.row_observed[j] else 0.0
                for k in range(self.n_latent):
                    for j in range(d):
                        self.masked[k, j] = self.V[k, j] if self.row_observed[j] else 0.0
                    self.masked_norms[k] = dot(&self.masked[k, 0], &self.masked[k, 0], d)
                self.row_V = &self.masked[0, 0]
                self.row_norms = &self.masked_norms[0]
        for k in range(self.n_latent):
            if z[k]:
                add_scaled(residual, -1.0, self.row_V + k * d, d)

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on, double* out
    ) noexcept nogil:
        cdef Py_ssize_t d = self.d
        cdef const double* v = self.row_V + k * d
        cdef double half = 0.5 * self.row_norms[k]
        cdef double sign = 1.0 if on else -1.0
        for j in range(n):
            out[j] = self.row_tau * (sign * dot(self.candidates + candidates[j] * d, v, d) - half)

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        add_scaled(
            self.candidates + candidate * self.d, -1.0 if on else 1.0, self.row_V + k * self.d,
            self.d
        )

    cdef void log_rows(
        self, const Py_ssize_t* features, const double* log_odds, Py_ssize_t n, double* out
    ) noexcept nogil:
        """By doubling, in O(1) per value: what feature j adds is linear in the values of the
        features before it. These gains are tabulated, also by doubling, in the place of the sums.
        """
        out[0] = 0.0
        for j in range(n):
            half = (<Py_ssize_t>1) << j
            gains = out + half
            v = self.row_V + features[j] * self.d
            gains[0] = log_odds[j] + self.row_tau * (
                dot(self.candidates, v, self.d) - 0.5 * self.row_norms[features[j]]
            )
            for l in range(j):
                inner = self.row_tau * dot(v, self.row_V + features[l] * self.d, self.d)
                quarter = (<Py_ssize_t>1) << l
                for r in range(quarter):
                    gains[quarter + r] = gains[r] - inner
            for r in range(half):
                gains[r] += out[r]

    # A row's singletons. The residual r without them is N(0, s_k I) given their number k, where
    # s_k = 1/tau_x + k/tau_v.

    cdef Py_ssize_t draw_n_singletons(
        self, Py_ssize_t n, double rate, bint adapting, bitgen_t* rng
    ) except? -1 nogil:
        """In warm-up a Metropolis step that proposes from the prior, later a draw from the
        conditional law. While components fit badly, that law would give every row singletons,
        which stay; proposals from the prior leave time to share components."""
        cdef double square = dot(self.candidates, self.candidates, self.d)
        cdef double top = -INFINITY, total = 0.0
        cdef Py_ssize_t chosen = 0
        if adapting:
            chosen = random_poisson(rng, rate)
            log_ratio = self.log_density_of_singletons(
                square, 1.0 / self.tau_x + chosen / self.tau_v
            ) - self.log_density_of_singletons(square, 1.0 / self.tau_x + n / self.tau_v)
            if log_ratio != log_ratio:
                return -1
            return chosen if uniform(rng) < exp(log_ratio) else n
        log_rate = log(rate)
        # Terms are added until the next ones must be below exp(-40) of the sum.
        for k in range(<Py_ssize_t>max(<double>MOST_TERMS, 4.0 * rate)):
            log_poisson = k * log_rate - lgamma(k + 1.0)
            s = 1.0 / self.tau_x + k / self.tau_v
            # The density of r is largest at s = |r|^2 / D.
            largest = max(s, square / max(self.row_d, 1))
            if k > 2.0 * rate and (
                log_poisson + self.log_density_of_singletons(square, largest) < top - 40.0
            ):
                return chosen
            log_w = log_poisson + self.log_density_of_singletons(square, s)
            if not isfinite(log_w):
                return -1
            if log_w > top:
                total *= exp(top - log_w)
                top = log_w
            w = exp(log_w - top)
            total += w
            if uniform(rng) * total < w:
                chosen = k
        return -1

    cdef double log_density_of_singletons(self, double square, double s) noexcept nogil:
        return -0.5 * (self.row_d * log(s) + square / s)

    cdef int draw_singletons(
        self, const Py_ssize_t* features, Py_ssize_t n, bitgen_t* rng
    ) except -1 nogil:
        """Draw parameters and noise from the prior, then shift them to agree with the residual."""
        cdef double gain = self.tau_x / (self.tau_v + n * self.tau_x)
        cdef double v_deviation = 1.0 / sqrt(self.tau_v)
        cdef double x_deviation = 1.0 / sqrt(self.tau_x)
        cdef double missing     # what the draws leave of the residual
        for j in range(self.d):
            missing = self.candidates[j] - x_deviation * random_standard_normal(rng)
            for k in range(n):
                self.V[features[k], j] = v_deviation * random_standard_normal(rng)
                missing -= self.V[features[k], j]
            if self.row_observed == NULL or self.row_observed[j]:
                for k in range(n):
                    self.V[features[k], j] += gain * missing
        for k in range(n):
            self.set_norm(features[k])

    # Features.

    cdef inline void set_norm(self, Py_ssize_t k) noexcept nogil:
        self.norms[k] = dot(&self.V[k, 0], &self.V[k, 0], self.d)

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        for j in range(self.d):
            self.V[self.n_latent, j] = random_standard_normal(rng) / sqrt(self.tau_v)
        self.set_norm(self.n_latent)
        self.n_latent += 1

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        cdef Py_ssize_t last = self.n_latent - 1
        if k != last:
            memcpy(&self.V[k, 0], &self.V[last, 0], self.d * sizeof(double))
            self.norms[k] = self.norms[last]
        self.n_latent = last

    # Exchanges of features that the intercept makes up for: no row's mean changes.

    cdef double log_complement(self, Py_ssize_t k) noexcept nogil:
        return -self.tau_b * (dot(&self.offset[0], &self.V[k, 0], self.d) + 0.5 * self.norms[k])

    cdef int complement(self, Py_ssize_t k) except -1 nogil:
        cdef double* v = &self.V[k, 0]
        add_scaled(&self.offset[0], 1.0, v, self.d)
        for j in range(self.d):
            v[j] = -v[j]
        self.round_intercept()

    cdef bint takes_away(self, Py_ssize_t k) except -1 nogil:
        cdef double total = 0.0
        for j in range(self.d):
            total += self.V[k, j]
        return total < 0.0

    cdef double log_common(self, Py_ssize_t k) noexcept nogil:
        """What rows share, less m, is N(0, s I): s is 1/tau_b, with the feature plus 1/tau_v."""
        cdef double square = dot(&self.offset[0], &self.offset[0], self.d)
        cdef double s = 1.0 / self.tau_b
        cdef double wider = s + 1.0 / self.tau_v
        if k >= 0:
            square += 2.0 * dot(&self.offset[0], &self.V[k, 0], self.d) + self.norms[k]
        return 0.5 * (self.d * (log(s) - log(wider)) + square * (1.0 / s - 1.0 / wider))

    cdef int absorb(self, Py_ssize_t k) except -1 nogil:
        add_scaled(&self.offset[0], 1.0, &self.V[k, 0], self.d)
        self.round_intercept()

    cdef int split_off(self, Py_ssize_t k, bitgen_t* rng) except -1 nogil:
        cdef double* v = &self.V[k, 0]
        cdef double gain = self.tau_b / (self.tau_b + self.tau_v)
        cdef double deviation = 1.0 / sqrt(self.tau_b + self.tau_v)
        for j in range(self.d):
            v[j] = gain * self.offset[j] + deviation * random_standard_normal(rng)
        self.set_norm(k)
        add_scaled(&self.offset[0], -1.0, v, self.d)
        self.round_intercept()

    # Some features, with the others fixed: the same model of residuals.

    cdef FeatureModel restricted(self):
        residuals = np.zeros((self.n_samples, self.d))
        cdef LinearGaussianModel part = LinearGaussianModel(
            {**self.data, "X": residuals}, self.tau_x, (1.0, 1.0), self.tau_v, (1.0, 1.0), None
        )
        part.residuals = residuals
        return part

    cdef int restrict_from(
        self, FeatureModel whole, const Py_ssize_t* features, Py_ssize_t n
    ) except -1 nogil:
        cdef Py_ssize_t d = self.d
        cdef const double* V = &(<LinearGaussianModel>whole).V[0, 0]
        cdef const double* X = &(<LinearGaussianModel>whole).X[0, 0]
        cdef const double* offset = &(<LinearGaussianModel>whole).offset[0]
        cdef Py_ssize_t* others = &(<LinearGaussianModel>whole).active[0]
        self.tau_x = (<LinearGaussianModel>whole).tau_x
        self.tau_v = (<LinearGaussianModel>whole).tau_v
        n_others = whole.list_others(features, n, others)
        for i in range(self.n_samples):
            z = whole.Z.row(i)
            residual = &self.residuals[i, 0]
            for j in range(d):
                residual[j] = X[i * d + j] - offset[j]
            for j in range(n_others):
                k = others[j]
                if z[k]:
                    add_scaled(residual, -1.0, V + k * d, d)
            if self.observed is not None:
                for j in range(d):
                    residual[j] = residual[j] if self.observed[i, j] else 0.0

    cdef int give_back(self, FeatureModel whole, const Py_ssize_t* features) except -1 nogil:
        cdef double* V = &(<LinearGaussianModel>whole).V[0, 0]
        for j in range(self.n_latent):
            memcpy(V + features[j] * self.d, &self.V[j, 0], self.d * sizeof(double))
            (<LinearGaussianModel>whole).norms[features[j]] = self.norms[j]

    # New rows.

    cdef double log_row(self) noexcept nogil:
        return 0.5 * (
            self.row_d * (log(self.row_tau) - log(2.0 * PI))
            - self.row_tau * dot(self.candidates, self.candidates, self.d)
        )

    cdef int set_n_new(self, Py_ssize_t n_new) except -1 nogil:
        self.row_tau = 1.0 / (1.0 / self.tau_x + n_new / self.tau_v)

    cdef double log_bound(self, Py_ssize_t n_new, double gain) noexcept nogil:
        cdef double square = dot(self.candidates, self.candidates, self.d)
        cdef double s = 1.0 / self.tau_x + n_new / self.tau_v
        square = max(square - 2.0 * gain / self.tau_x, 0.0)
        return self.log_density_of_singletons(square, max(s, square / max(self.row_d, 1))) - (
            0.5 * self.row_d * log(2.0 * PI)
        )

    # Parameters given Z. Column c of V and the offset is N(A^-1 tau_x Z'x, A^-1) with
    # A = diag(tau_v, ..., tau_v, tau_b) + tau_x Z'Z, where Z ends with a column of ones, sums over
    # the rows in which column c is observed.

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Draw V and b, then tau_v and tau_x, each given the rest."""
        cdef double square = 0.0
        if not isfinite(self.visit_columns(DRAW, rng)):
            raise FloatingPointError(
                "LinearGaussian: the components have no law given Z: their posterior "
                f"precision, with noise_precision {self.tau_x:g} and component_precision "
                f"{self.tau_v:g}, is not positive in doubles; rescale X or fix a precision"
            )
        for k in range(self.n_latent):
            square += self.norms[k]
        if self.draws_tau_v:
            self.tau_v = draw_precision(
                rng, self.v_shape + 0.5 * self.n_latent * self.d, self.v_rate + 0.5 * square
            )
        if self.draws_tau_x:
            self.tau_x = draw_precision(
                rng, self.x_shape + 0.5 * self.n_observed, self.x_rate + 0.5 * self.squared_error()
            )

    cdef double visit_columns(self, int purpose, bitgen_t* rng) noexcept nogil:
        """log p(X | Z) with V and b integrated out; by `purpose` draws them, or sets means."""
        cdef Py_ssize_t n = self.n_latent + self.has_intercept
        cdef Py_ssize_t d = self.d
        cdef Py_ssize_t packed = n * (n + 1) // 2
        cdef Py_ssize_t stride = self.Z.stride
        cdef const unsigned char* Z = self.Z.entries
        cdef double square = 0.0
        memset(&self.gram[0], 0, packed * sizeof(double))
        memset(&self.solution[0, 0], 0, n * d * sizeof(double))
        for i in range(self.n_samples):
            n_active = self.add_to_gram(Z + i * stride, 1.0)
            for j in range(n_active):
                add_scaled(&self.solution[self.active[j], 0], 1.0, &self.X[i, 0], d)
        for i in range(self.n_samples):
            square += dot(&self.X[i, 0], &self.X[i, 0], d)
        total = 0.5 * (
            self.n_observed * (log(self.tau_x) - log(2.0 * PI))
            + self.n_latent * d * log(self.tau_v) - self.tau_x * square
        )
        if self.has_intercept:
            total += 0.5 * d * log(self.tau_b)
        for k in range(n):
            for c in range(d):
                self.solution[k, c] *= self.tau_x
        # Columns without missing entries share one posterior precision.
        if self.missing_starts[d] == 0:
            total += self.visit_column(0, d, purpose, rng)
        for c in range(d if self.missing_starts[d] > 0 else 0):
            for i in range(self.missing_starts[c], self.missing_starts[c + 1]):
                self.add_to_gram(Z + self.missing_rows[i] * stride, -1.0)
            total += self.visit_column(c, 1, purpose, rng)
            for i in range(self.missing_starts[c], self.missing_starts[c + 1]):
                self.add_to_gram(Z + self.missing_rows[i] * stride, 1.0)
        if purpose != EVALUATE:
            for k in range(self.n_latent):
                self.set_norm(k)
            self.round_intercept()
        return total

    cdef double visit_column(
        self, Py_ssize_t c, Py_ssize_t width, int purpose, bitgen_t* rng
    ) noexcept nogil:
        """Contribution to log p(X | Z) of `width` columns of V from c on, which share Z'Z."""
        cdef Py_ssize_t n = self.n_latent + self.has_intercept
        cdef double* rows = &self.solution[0, c]
        cdef double square = 0.0
        cdef double log_det
        cdef double* diagonal = &self.factor[0]
        for k in range(n * (n + 1) // 2):
            self.factor[k] = self.tau_x * self.gram[k]
        for k in range(n):
            diagonal[0] += self.tau_v if k < self.n_latent else self.tau_b
            diagonal += n - k
        cholesky(&self.factor[0], n, &log_det)      # a failure leaves log_det NaN
        solve_lower(&self.factor[0], n, rows, self.d, width)
        # A = L D L': the mean is L'^-1 D^-1 L^-1 tau_x Z'x, and L'^-1 D^-1/2 has square A^-1.
        diagonal = &self.factor[0]
        for k in range(n):
            square += diagonal[0] * dot(rows + k * self.d, rows + k * self.d, width)
            for j in range(width):
                rows[k * self.d + j] *= diagonal[0]
                if purpose == DRAW:
                    rows[k * self.d + j] += sqrt(diagonal[0]) * random_standard_normal(rng)
            diagonal += n - k
        if purpose != EVALUATE:
            solve_upper(&self.factor[0], n, rows, self.d, width)
            for k in range(self.n_latent):
                memcpy(&self.V[k, c], rows + k * self.d, width * sizeof(double))
            if self.has_intercept:
                memcpy(&self.offset[c], rows + self.n_latent * self.d, width * sizeof(double))
        return 0.5 * (square - width * log_det)

    cdef Py_ssize_t add_to_gram(self, const unsigned char* z, double by) noexcept nogil:
        """Add by * z z' to `gram`. Lists the features of z and the intercept in `active` and
        returns their number."""
        cdef Py_ssize_t n = self.n_latent + self.has_intercept
        cdef Py_ssize_t n_active = 0
        for k in range(self.n_latent):
            self.active[n_active] = k
            n_active += z[k]
        if self.has_intercept:
            self.active[n_active] = self.n_latent
            n_active += 1
        for j in range(n_active):
            first = self.active[j]
            first = first * n - first * (first + 1) // 2
            for k in range(j, n_active):
                self.gram[first + self.active[k]] += by
        return n_active

    cdef int mean_params(self) except -1 nogil:
        """Set V and b to their means given Z and X."""
        self.visit_columns(AVERAGE, NULL)

    cdef double squared_error(self) noexcept nogil:
        """Sum over observed entries of the squared residuals of X around b + Z V."""
        cdef double total = 0.0
        for i in range(self.n_samples):
            self.begin_row(i, self.Z.row(i))
            total += dot(self.candidates, self.candidates, self.d)
        return total

    cdef double log_likelihood(self) noexcept nogil:
        return 0.5 * (
            self.n_observed * (log(self.tau_x) - log(2.0 * PI)) - self.tau_x * self.squared_error()
        )

    cdef double log_prior(self) noexcept nogil:
        cdef double square = 0.0
        for k in range(self.n_latent):
            square += self.norms[k]
        total = self.n_latent * self.d * (log(self.tau_v) - log(2.0 * PI)) - self.tau_v * square
        if self.has_intercept:
            total += self.d * (log(self.tau_b) - log(2.0 * PI)) - (
                self.tau_b * dot(&self.offset[0], &self.offset[0], self.d)
            )
        return 0.5 * total

    cdef double log_marginal(self) noexcept nogil:
        return self.visit_columns(EVALUATE, NULL)

    # The Python boundary.

    def save(self):
        return {
            "components": np.asarray(self.V)[:self.n_latent].copy(),
            "intercept": np.array(self.intercept),
            "noise_precision": self.tau_x,
            "component_precision": self.tau_v,
        }

    def load(self, saved):
        self.intercept = np.array(saved["intercept"], dtype=np.float64)
        self.offset = np.asarray(self.intercept) - self.data["mean"]
        self.n_latent = 0
        self.reserve(len(saved["components"]))
        self.n_latent = len(saved["components"])
        np.asarray(self.V)[:self.n_latent] = saved["components"]
        for k in range(self.n_latent):
            self.set_norm(k)
        self.tau_x = saved["noise_precision"]
        self.tau_v = saved["component_precision"]

    def start_hyperparameters(self):
        """Start with components as large as the data, so that features can tell rows apart. A
        precision that is far too large or too small takes long to recover."""
        cdef double square = 0.0
        for i in range(self.n_samples):
            for j in range(self.d):
                square += self.X[i, j] * self.X[i, j]
        start = self.n_observed / square if 0.0 < square < INFINITY else 1.0
        if self.draws_tau_x:
            self.tau_x = start
        if self.draws_tau_v:
            self.tau_v = start
        self.offset = np.zeros(self.d)
        self.intercept = self.data["mean"].copy()
