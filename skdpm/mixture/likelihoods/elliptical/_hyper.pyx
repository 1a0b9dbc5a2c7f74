# SPDX-License-Identifier: BSD-3-Clause
"""Draws of the hyperparameters of Gaussian clusters given the partition.

    u_d ~ N(m_d, v_d),    S = (nu - low) diag(t) + diag(floor),

with low = D - 1, or 0 if covariances are diagonal or spherical (with one t). The hyperpriors of
r, nu and t_d are any `LogDensity`. nu and t have lower limits above 0: the density of a cluster of
equal values has a pole at S = 0.

Covariances and means are integrated out if that is cheap: given them, hyperparameters move little.

    r       by a slice step of its logarithm given everything else, O(K) after K solutions;
    nu      by a slice step of log(nu - its lowest value) given t, so that S changes too: a
            determinant per cluster;
    t_d     by a slice step of log(t_d - its lowest value), column by column: S changes by rank 1;
    u       given covariances that are drawn from p(Sigma_k | items) and then discarded: normal,
            because x_bar_k ~ N(u, Sigma_k / w_k) with w_k = 1 / (1 / r + 1 / n_k);
    A       if S = A diag(...) A' is a full matrix: given the same covariances (see _full).

Everything here is in units of the columns' spreads, so that units cannot make numbers large.
"""
from libc.math cimport INFINITY, NAN, exp, log

import functools

import numpy as np

from skdpm._core._cholesky cimport cholesky, draw_normal
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, random_standard_normal
from skdpm._core._slice cimport SliceSampled

cdef enum:
    PRECISION = -1
    DF = -2

# Logarithms of shares. nu and S are doubles, and their excess over the lowest values needs digits.
cdef double LOWEST = -25.0

# Rows and columns of the packed entries of a symmetric matrix, from its number of columns. To list
# them would take a tenth of the time of draws of small tables.
packed_places = functools.cache(np.triu_indices)


def log_norm_table(Py_ssize_t n_max, double r, double nu, double f):
    """`log_norm_at` for n = 0, ..., n_max: ndarray."""
    return np.fromiter((log_norm_at(n, r, nu, f) for n in range(n_max + 1)), float, n_max + 1)


cdef class GaussianLaws(SliceSampled):
    """Conditional laws of single hyperparameters.

    - `priors`: Priors of the learned hyperparameters, by name.
    - `values`: Values of all: "mean", "mean_precision", "df" and "scale", each an ndarray.
    - `spread`, `origin`: (n_features,). Spreads of the columns, and the origin of rows.
    - `low`: Lower limit of nu.
    - `floor`: (n_features,). Floor of S, in the units of the data, like all values above.
    """

    def __init__(self, priors, values, spread, origin, double low, floor):
        cdef Py_ssize_t n_features = len(spread)
        self.n_features = n_features
        self.n_scales = min(len(values["scale"]), n_features)
        self.given = (values, spread, origin, floor)
        for name in priors:
            if name not in values:
                raise ValueError(f"a Gaussian likelihood has no hyperparameter {name!r}")
        self.learns_mean = "mean" in priors
        self.learns_precision = "mean_precision" in priors
        self.learns_df = "df" in priors
        self.learns_scale = "scale" in priors
        self.low = low
        self.r = values["mean_precision"][0]
        self.excess = values["df"][0] - low
        if self.learns_precision:
            self.r_density = priors["mean_precision"].family.density
        if self.learns_df:
            self.excess_density = priors["df"].family.density
            self.least = priors["df"].low - low
        table = np.zeros((6, n_features))
        table[0] = (values["mean"] - origin) / spread
        if self.learns_mean:
            table[1] = (priors["mean"].mean - origin) / spread
        if self.learns_scale:
            law = priors["scale"]
            self.t_density = law.family.density
            table[2] = floor / spread / spread
            if len(values["scale"]) <= n_features:
                table[3] = (values["scale"] - floor) / spread / spread / self.excess
            table[4] = law.low / spread / spread
            table[5] = np.log(law.unit / spread / spread)
        elif len(values["scale"]) <= n_features:
            table[3] = values["scale"] / spread**2
        self.u, self.center, self.floor, self.t, self.t_low, self.t_log_unit = table

    cdef double scale_of(self, Py_ssize_t d, double excess, double t) noexcept nogil:
        """S_dd of a learned scale."""
        return excess * t + self.floor[d]

    cdef double log_prior_scale(self, Py_ssize_t d, double x) noexcept nogil:
        """log prior density of x = log(t_d - its lowest value)."""
        return self.t_density.at(x - self.t_log_unit[d])

    def scale_values(self, spread, floor):
        """S as hyperparameters of the kernel: its diagonal, one number, or all of it by rows."""
        return (floor + self.excess * np.asarray(self.t) * spread * spread)[: self.n_scales]

    # Methods that a subclass implements. Those that prepare something return whether it worked.

    cdef bint prepare_precision(self) noexcept nogil:
        """Before the step of r."""
        return True

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        """log p(X | partition, r, all other parameters), up to terms without r."""
        return NAN

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        """The same for nu = low + excess, including S if that changes too."""
        return NAN

    cdef bint prepare_scale(self) noexcept nogil:
        """Before the steps of t."""
        return True

    cdef bint prepare_column(self, Py_ssize_t d) noexcept nogil:
        """Before the step of column d."""
        return True

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        """log p(X | partition, t_d, all other parameters), up to terms without t_d."""
        return NAN

    cdef bint take_column(self, Py_ssize_t d, double t) noexcept nogil:
        """Set t_d."""
        self.t[d] = t
        return True

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """Draw u, and A, if they are learned, given everything else."""
        return False

    cdef bint draw_mean_of(
        self, double* system, double* b, double* noise, bitgen_t* rng
    ) noexcept nogil:
        """Draw u - m from N(A^-1 b, A^-1); `system` is A, packed. False if it has no factor."""
        cdef double log_det
        if not cholesky(system, self.n_features, &log_det):
            return False
        for d in range(self.n_features):
            noise[d] = random_standard_normal(rng)
        draw_normal(system, self.n_features, b, noise)
        for d in range(self.n_features):
            self.u[d] = self.center[d] + b[d]
        return True

    cdef double least_step(self, Py_ssize_t d, double excess) noexcept nogil:
        """Smallest excess of t_d over its lowest value."""
        return (self.t_low[d] + self.floor[d] / excess) * exp(LOWEST)

    cdef bint below_support(self, double excess) noexcept nogil:
        """Whether this excess of nu would put some t below its limit: they have a joint law."""
        for d in range(self.n_scales):
            if self.t[d] - self.t_low[d] < self.least_step(d, excess):
                return True
        return False

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the current hyperparameter, including the Jacobian."""
        cdef Py_ssize_t d = self.current
        if not -700.0 < x < 700.0:
            return -INFINITY
        if d == PRECISION:
            return self.r_density.at(x) + self.log_evidence_precision(exp(x))
        if d == DF:
            if x < LOWEST or (self.learns_scale and self.below_support(self.least + exp(x))):
                return -INFINITY
            return self.excess_density.at(x) + self.log_evidence_df(self.least + exp(x))
        if exp(x) < self.least_step(d, self.excess):
            return -INFINITY
        return self.log_prior_scale(d, x) + self.log_evidence_scale(d, self.t_low[d] + exp(x))

    cdef bint draw(self, bitgen_t* rng) noexcept nogil:
        """Draw learned hyperparameters, one by one. Returns False if a density is NaN."""
        cdef bint good = True
        if self.learns_precision:
            good &= self.prepare_precision()
            self.current = PRECISION
            x = self.slice_step(log(self.r), rng)
            good &= x == x
            self.r = exp(x)
        if self.learns_df:
            self.current = DF
            x = self.slice_step(log(self.excess - self.least), rng)
            good &= x == x
            self.excess = self.least + exp(x)
        if self.learns_scale:
            good &= self.prepare_scale()
            for d in range(self.n_scales):
                good &= self.prepare_column(d)
                self.current = d
                x = self.slice_step(log(self.t[d] - self.t_low[d]), rng)
                good &= x == x and self.take_column(d, self.t_low[d] + exp(x))
        if self.learns_mean or self.learns_matrix:
            good &= self.draw_given_covariances(rng)
        return good

    def resample(self, model, bit_generator):
        """Draw learned hyperparameters and set them in a kernel. Returns all, (n_hyper,)."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        with bit_generator.lock, nogil:
            good = self.draw(rng)
        model.set_hyperparameters(self.flat(good))
        return model.hyperparameters()

    def flat(self, bint good):
        """All hyperparameters in one vector, with the drawn values of learned ones, in the units
        of the data. Raises an error unless `good` and all are finite."""
        values, spread, origin, floor = self.given
        if self.learns_mean:
            values["mean"] = origin + np.asarray(self.u) * spread
        if self.learns_scale:
            values["scale"] = self.scale_values(spread, floor)
        if self.learns_precision:
            values["mean_precision"] = [self.r]
        if self.learns_df:
            values["df"] = [self.low + self.excess]
        flat = np.concatenate(list(values.values()))
        if not good or not np.isfinite(flat).all():
            names = ", ".join(repr(name) for name in values)
            raise FloatingPointError(f"a density of the hyperparameters {names} is not a number")
        return flat
