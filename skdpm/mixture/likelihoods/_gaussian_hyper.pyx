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
from libc.string cimport memcpy
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
        cdef const double[:, ::1] view
        self.n_features = n_features
        self.memory = <double*>malloc(9 * n_features * sizeof(double))
        if self.memory == NULL:
            raise MemoryError
        self.u = self.memory
        self.center = self.u + n_features
        self.spread = self.center + n_features
        self.log_scale = self.spread + n_features
        self.t = self.log_scale + n_features
        self.t_low = self.t + n_features
        self.t_rate = self.t_low + n_features
        self.counts = self.t_rate + n_features
        self.precision = self.counts + n_features
        for name in priors:
            if name not in values:
                raise ValueError(f"a Gaussian likelihood has no hyperparameter {name!r}")
        self.learns_mean = "mean" in priors
        self.learns_precision = "mean_precision" in priors
        self.learns_df = "df" in priors
        self.learns_scale = "scale" in priors
        self.low = low
        self.full = low > 0.0
        self.n_terms = 0
        self.log_det = 0.0
        self.r = values["mean_precision"][0]
        self.excess = values["df"][0] - low
        if self.learns_precision:
            self.r_shape = priors["mean_precision"].shape
            self.r_rate = priors["mean_precision"].rate
        if self.learns_df:
            self.excess_shape = priors["df"].shape
            self.excess_rate = priors["df"].rate
        table = np.zeros((9, n_features))
        table[0] = (values["mean"] - origin) / spread
        if self.learns_mean:
            table[1] = (priors["mean"].mean - origin) / spread
        table[2] = spread
        table[3] = log_scale - 2.0 * np.log(spread)
        if self.learns_scale:
            law = priors["scale"]
            self.t_shape = law.shape
            table[4] = values["scale"] / spread / spread / self.excess
            table[5] = law.low / spread / spread
            table[6] = law.rate * spread * spread
        view = table
        memcpy(self.memory, &view[0, 0], 9 * n_features * sizeof(double))

    def __dealloc__(self):
        free(self.memory)

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
                total += 0.5 * (self.n_columns[j] * log(w) - w * self.squares[j])
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
        if self.t_low[d] > 0.0 and x < log(self.t_low[d]) + LOWEST_EXCESS:
            return -INFINITY
        t = self.t_low[d] + exp(x)
        return (
            self.t_shape * x - self.t_rate[d] * exp(x)
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
                x = self.slice_step(log(self.t[d] - self.t_low[d]), rng)
                good &= x == x
                self.t[d] = self.t_low[d] + exp(x)
        return good

    cdef bint draw_precision(self, bitgen_t* rng) noexcept nogil:
        """Draw r given covariances and u."""
        cdef double x
        self.current = PRECISION
        x = self.slice_step(log(self.r), rng)
        self.r = exp(x)
        return x == x

    def flat(self, values, spread, origin, bint good):
        """All hyperparameters in one vector, the learned ones in place of those of `values`, in
        the units of the data. Refuses what is not `good`, or not finite."""
        cdef double[::1] u = np.empty(self.n_features)
        cdef double[::1] t = np.empty(self.n_features)
        memcpy(&u[0], self.u, self.n_features * sizeof(double))
        memcpy(&t[0], self.t, self.n_features * sizeof(double))
        if self.learns_mean:
            values["mean"] = origin + u.base * spread
        if self.learns_scale:
            values["scale"] = self.excess * t.base * spread * spread
        if self.learns_precision:
            values["mean_precision"] = [self.r]
        if self.learns_df:
            values["df"] = [self.low + self.excess]
        flat = np.concatenate(list(values.values()))
        if not good or not np.isfinite(flat).all():
            names = ", ".join(repr(name) for name in values)
            raise FloatingPointError(f"a density of the hyperparameters {names} is not a number")
        return flat
