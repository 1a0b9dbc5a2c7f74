# SPDX-License-Identifier: BSD-3-Clause
"""Laws of the hyperparameters of Gaussian clusters given the clusters' covariances.

    u_d ~ N(m_d, v_d),  r ~ Gamma,  nu - low ~ Gamma,  S = (nu - low) diag(t),  t_d - l_d ~ Gamma

with low = D - 1, or 0 where covariances are diagonal: so the prior of a cluster's variances, which
are S_dd / chi-squared(nu - low), has about the same place for any nu. Given covariances that have
been drawn from p(Sigma_k | items), means integrated out, all that the data say is

    Sigma_k ~ IW(nu, S),    x_bar_k ~ N(u, Sigma_k / w_k),    w_k = 1 / (1 / r + 1 / n_k),

so that u is normal, and r, nu and each t_d take a slice step of their logarithm (of nu - low,
t_d - l_d). Rasmussen (2000), The infinite Gaussian mixture model; Goerur & Rasmussen (2010),
Dirichlet process Gaussian mixture models. Covariances are forgotten after their one use.

Everything here is in units of the columns' spreads, so that no unit makes a number large.
"""
from libc.math cimport INFINITY, exp, log
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._math cimport log_gamma_function
from skdpm._core._slice cimport SliceSampled

cdef enum:
    PRECISION = -1
    DF = -2

# Of log(nu - low), and of log(t - l) - log l: nu and t are doubles in which these differences must
# have digits.
cdef double LOWEST = -13.0
cdef double LOWEST_EXCESS = -25.0


cdef class GaussianLaws(SliceSampled):
    """Hyperparameters in the kernels' units, and the sums over clusters that their laws need.

    Parameters
    ----------
    priors : dict of str to hyperprior
        Of those that are learned.
    values : dict of str to ndarray
        All of them: "mean", "mean_precision", "df", "scale", each of at least one dimension.
    spread, origin : ndarray of shape (n_features,)
        Spreads of the columns, and where their rows are centred.
    low : float
    log_scale : ndarray of shape (n_features,)
        Logarithms of the pivots of S.
    """

    def __init__(self, priors, values, spread, origin, double low, log_scale):
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = len(spread)
        cdef double* memory = <double*>malloc(10 * n_features * sizeof(double))
        if memory == NULL:
            raise MemoryError
        self.u = memory
        self.t = memory + n_features
        self.log_scale = memory + 2 * n_features
        self.spread = memory + 3 * n_features
        self.center = memory + 4 * n_features
        self.counts = memory + 5 * n_features
        self.precision = memory + 6 * n_features
        self.prior = memory + 7 * n_features
        self.n_features = n_features
        for name in priors:
            if name not in values:
                raise ValueError(f"a Gaussian likelihood has no hyperparameter {name!r}")
        self.learns_mean = "mean" in priors
        self.learns_precision = "mean_precision" in priors
        self.learns_df = "df" in priors
        self.learns_scale = "scale" in priors
        self.low = low
        self.full = low > 0.0
        self.r = values["mean_precision"][0]
        self.excess = values["df"][0] - low
        if self.learns_precision:
            self.r_shape = priors["mean_precision"].shape
            self.r_rate = priors["mean_precision"].rate
        if self.learns_df:
            self.excess_shape = priors["df"].shape
            self.excess_rate = priors["df"].rate
        for d in range(n_features):
            self.spread[d] = spread[d]
            self.u[d] = (values["mean"][d] - origin[d]) / spread[d]
            self.log_scale[d] = log_scale[d] - 2.0 * log(self.spread[d])
            self.counts[d] = self.precision[d] = self.center[d] = 0.0
            if self.learns_mean:
                self.center[d] = (priors["mean"].mean[d] - origin[d]) / spread[d]
            if self.learns_scale:
                law = priors["scale"]
                self.t[d] = values["scale"][d] / spread[d] / spread[d] / self.excess
                self.prior[3 * d] = np.broadcast_to(law.shape, n_features)[d]
                self.prior[3 * d + 1] = np.broadcast_to(law.rate, n_features)[d] * spread[d] ** 2
                self.prior[3 * d + 2] = np.broadcast_to(law.low, n_features)[d] / spread[d] ** 2

    def __dealloc__(self):
        free(self.u)

    cdef double log_density(self, double x) noexcept nogil:
        """Of the logarithm of the current one, its Jacobian included."""
        cdef Py_ssize_t d, j
        cdef double t, total, w, nu, excess
        if not -700.0 < x < 700.0:
            return -INFINITY
        if self.current == PRECISION:
            total = self.r_shape * x - self.r_rate * exp(x)
            for j in range(self.n_terms):
                w = 1.0 / (exp(-x) + 1.0 / self.n_items[j])
                total += 0.5 * (self.n_columns * log(w) - w * self.squares[j])
            return total
        if self.current == DF:
            if x < LOWEST:
                return -INFINITY
            excess = exp(x)
            nu = self.low + excess
            total = self.excess_shape * x - self.excess_rate * excess - 0.5 * nu * self.log_det
            for d in range(self.n_features):
                if self.learns_scale:
                    t = log(excess * self.t[d])
                    total -= 0.5 * excess * self.t[d] * self.precision[d]
                else:
                    t = self.log_scale[d]
                if self.counts[d] > 0.0:
                    total += self.counts[d] * (
                        0.5 * nu * (t - log(2.0))
                        - log_gamma_function(0.5 * (nu - d if self.full else nu))
                    )
            return total
        d = self.current
        if self.prior[3 * d + 2] > 0.0 and x < log(self.prior[3 * d + 2]) + LOWEST_EXCESS:
            return -INFINITY
        t = self.prior[3 * d + 2] + exp(x)
        return (
            self.prior[3 * d] * x - self.prior[3 * d + 1] * exp(x)
            + 0.5 * (self.low + self.excess) * self.counts[d] * log(t)
            - 0.5 * self.excess * self.precision[d] * t
        )

    cdef bint draw_covariance_laws(self, bitgen_t* rng) noexcept nogil:
        """Draw nu and t given covariances. False where a density is not a number."""
        cdef Py_ssize_t d
        cdef double x
        cdef bint good = True
        if self.learns_df:
            self.current = DF
            x = self.slice_step(log(self.excess), rng)
            good &= x == x
            self.excess = exp(x)
        if self.learns_scale:
            for d in range(self.n_features):
                self.current = d
                x = self.slice_step(log(self.t[d] - self.prior[3 * d + 2]), rng)
                good &= x == x
                self.t[d] = self.prior[3 * d + 2] + exp(x)
        return good

    cdef bint draw_precision(self, bitgen_t* rng) noexcept nogil:
        """Draw r given covariances and u."""
        cdef double x
        self.current = PRECISION
        x = self.slice_step(log(self.r), rng)
        self.r = exp(x)
        return x == x

    def replace(self, values, origin):
        """Replace those that are learned, in the units of the data, in `values`."""
        cdef Py_ssize_t d
        for d in range(self.n_features):
            if self.learns_mean:
                values["mean"][d] = origin[d] + self.u[d] * self.spread[d]
            if self.learns_scale:
                values["scale"][d] = self.excess * self.t[d] * self.spread[d] * self.spread[d]
        if self.learns_precision:
            values["mean_precision"][0] = self.r
        if self.learns_df:
            values["df"][0] = self.low + self.excess
