# SPDX-License-Identifier: BSD-3-Clause
"""The law of the features of rows that are no part of the data of `fit`, each on its own:

    p(z, m | x) ~ p(m) prod_k rho_k^z_k (1 - rho_k)^(1 - z_k) p(x | z, m new features),

summed over all values z and numbers m of new features; nothing is drawn. Beyond `max_bits`
features (20, or fewer where the model says so) the sum is over the values of the features that are
the least certain, the others being as in a local mode: a lower bound.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, log, log1p
from libc.stdlib cimport free, malloc

import numpy as np

from skdpm.features.likelihoods._base cimport FeatureModel

cdef enum:
    BLOCK_BITS = 12     # where not all values are summed, those of so many features are


cdef class RowLaw:
    """p(z, m | x_i) under one draw of the features.

    Parameters
    ----------
    model : FeatureModel
        Over the new rows, with the draw's parameters.
    log_odds : ndarray of shape (n_latent,)
        Prior log odds of each feature.
    log_pmf : ndarray
        log p(m) for m = 0, 1, ...: numbers of new features.
    """
    cdef FeatureModel model
    cdef Py_ssize_t n_latent, n_free
    cdef object _owners
    cdef const double* log_odds         # (n_latent,)
    cdef const double[::1] log_pmf
    cdef Py_ssize_t* free_features      # (n_latent,): those whose values are all summed
    cdef double* free_odds              # (n_latent,)
    cdef double* certainty              # (n_latent,)
    cdef unsigned char* mode            # (n_latent,)
    cdef double* table                  # (2**n_free,)
    cdef double top, total              # of the row under way: largest log weight, sum of weights

    def __init__(self, FeatureModel model, log_odds, log_pmf):
        cdef const double[::1] view = np.ascontiguousarray(log_odds, dtype=np.float64)
        cdef Py_ssize_t n = model.n_latent
        self.model = model
        self.n_latent = n
        # Where parameters cannot be integrated out, a row without new features is left.
        n_terms = len(log_pmf) if model.collapses else 1
        self.log_pmf = np.ascontiguousarray(log_pmf[:n_terms], dtype=np.float64)
        self._owners = view
        self.log_odds = &view[0] if n else NULL
        self.n_free = n if n <= model.max_bits else min(<int>BLOCK_BITS, model.max_bits)
        self.free_features = <Py_ssize_t*>malloc((n + 1) * sizeof(Py_ssize_t))
        self.free_odds = <double*>malloc((n + 1) * sizeof(double))
        self.certainty = <double*>malloc((n + 1) * sizeof(double))
        self.mode = <unsigned char*>malloc(n + 1)
        self.table = <double*>malloc((<size_t>1 << self.n_free) * sizeof(double))
        if (
            self.free_features == NULL or self.free_odds == NULL or self.certainty == NULL
            or self.mode == NULL or self.table == NULL
        ):
            raise MemoryError

    def __dealloc__(self):
        free(self.free_features)
        free(self.free_odds)
        free(self.certainty)
        free(self.mode)
        free(self.table)

    def evaluate(self, observed):
        """Compute the law of every row.

        Parameters
        ----------
        observed : ndarray of shape (n_samples,), bool
            Whether any entry of the row is: if not, its law is the prior's and nothing is summed.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x_i); from below where n_latent is more than `max_bits`.
        probabilities : ndarray of shape (n_samples, n_latent)
            That the row has each feature.
        best : ndarray of shape (n_samples, n_latent), uint8
            The most probable value, jointly with the number of new features.

        Raises
        ------
        FloatingPointError
            Naming the first row that has no law.
        """
        cdef Py_ssize_t n = self.model.n_samples
        cdef Py_ssize_t width = self.n_latent
        log_density = np.empty(n)
        probabilities = np.empty((n, width))
        best = np.zeros((n, width), dtype=np.uint8)
        cdef double[::1] out = log_density
        # One column more, so that there is an address where there are no features.
        cdef double[:, ::1] sums = np.empty((n, width + 1))
        cdef unsigned char[:, ::1] modes = np.zeros((n, width + 1), dtype=np.uint8)
        cdef const unsigned char[::1] seen = np.ascontiguousarray(observed, dtype=np.uint8)
        cdef Py_ssize_t i, k
        with nogil:
            for i in range(n):
                if seen[i]:
                    out[i] = self.visit(i, &sums[i, 0], &modes[i, 0])
                    continue
                out[i] = 0.0
                for k in range(width):
                    sums[i, k] = 1.0 / (1.0 + exp(-self.log_odds[k]))
                    modes[i, k] = self.log_odds[k] > 0.0
        bad = np.flatnonzero(np.isnan(log_density))
        if bad.size:
            raise FloatingPointError(f"row {bad[0]} of X: no value has a positive weight")
        probabilities[...] = np.asarray(sums)[:, :width]
        best[...] = np.asarray(modes)[:, :width]
        return log_density, probabilities, best

    cdef double visit(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # OUT (n_latent,)
    ) except? -1 nogil:
        """Sum up the law of row i; NaN where it has none."""
        cdef Py_ssize_t k, m
        cdef double shared = self.begin(i, probabilities)
        cdef double gain = 0.0
        cdef double base
        self.top = -INFINITY
        self.total = 0.0
        for m in range(self.log_pmf.shape[0]):
            if m > 0:
                if self.log_pmf[m] + self.model.log_bound(m, gain) < self.top - 36.0:
                    break
                self.model.set_n_new(m)
            base = self.log_pmf[m] + shared + self.model.log_row()
            self.model.log_rows(self.free_features, self.free_odds, self.n_free, self.table)
            self.add_table(base, probabilities, best)
            if m == 0:
                gain = self.largest_gain()
        if self.total == 0.0:
            return NAN
        for k in range(self.n_latent):
            # A feature that is not free has the same value in all of the table.
            probabilities[k] = 1.0 if self.mode[k] else probabilities[k] / self.total
        return self.top + log(self.total)

    cdef double begin(
        self, Py_ssize_t i, double* probabilities   # OUT (n_latent,)
    ) noexcept nogil:
        """Begin with row i: choose the free features. Returns the log prior of their being off and
        the others as in the mode."""
        cdef Py_ssize_t k
        cdef double shared = 0.0
        for k in range(self.n_latent):
            self.mode[k] = 0
            probabilities[k] = 0.0
            self.free_features[k] = k
            self.free_odds[k] = self.log_odds[k]
            # log(1 - rho)
            shared -= (
                log1p(exp(self.log_odds[k])) if self.log_odds[k] < 700.0 else self.log_odds[k]
            )
        self.model.begin_row(i, self.mode)
        if self.n_latent > self.n_free:
            self.find_mode(i)
            for k in range(self.n_latent):
                if self.mode[k]:
                    shared += self.log_odds[k]
        return shared

    cdef void add_table(
        self, double base, double* probabilities, unsigned char* best   # INOUT (n_latent,)
    ) noexcept nogil:
        """Add the weights of all values in the table, `base` the logarithm of the first one's, to
        `total` and to the features' sums; all are relative to the largest so far, `top`."""
        cdef Py_ssize_t j, k, r
        cdef Py_ssize_t n = self.n_free
        cdef double top = self.top
        cdef double total = self.total
        cdef double value, w
        for r in range((<Py_ssize_t>1) << n):
            value = self.table[r] + base
            if value > top:
                w = exp(top - value)
                total *= w
                for k in range(self.n_latent):
                    probabilities[k] *= w
                    best[k] = self.mode[k]
                for j in range(n):
                    best[self.free_features[j]] = (r >> j) & 1
                top = value
                w = 1.0
            elif value < top - 50.0 or value == -INFINITY:
                continue
            else:
                w = exp(value - top)
            total += w
            for j in range(n):
                if (r >> j) & 1:
                    probabilities[self.free_features[j]] += w
        self.top = top
        self.total = total

    cdef double largest_gain(self) noexcept nogil:
        """Bound what flipping features on gains in log p(x_i | z): the table holds their log odds
        too."""
        cdef Py_ssize_t k, r
        cdef double gain = 0.0
        for r in range((<Py_ssize_t>1) << self.n_free):
            gain = max(gain, self.table[r])
        for k in range(self.n_free):
            gain += max(-self.free_odds[k], 0.0)
        return gain

    cdef void find_mode(self, Py_ssize_t i) noexcept nogil:
        """Flip the feature that gains most, as long as any gains; then leave the least certain
        features free and off, the others as they are."""
        cdef Py_ssize_t j, k, best, _flip
        cdef Py_ssize_t candidate = 0
        cdef double change
        # Any value will do for a lower bound: rounding must not flip back and forth for ever.
        for _flip in range(64 * self.n_latent):
            best = -1
            for k in range(self.n_latent):
                self.model.log_flip_many(&candidate, 1, k, not self.mode[k], &change)
                change += -self.log_odds[k] if self.mode[k] else self.log_odds[k]
                self.certainty[k] = fabs(change)
                if change > 1e-9 and (best < 0 or change > self.certainty[best]):
                    best = k
            if best < 0:
                break
            self.mode[best] = not self.mode[best]
            self.model.flip(0, best, self.mode[best])
        for j in range(self.n_free):
            best = -1
            for k in range(self.n_latent):
                if self.certainty[k] >= 0.0 and (
                    best < 0 or self.certainty[k] < self.certainty[best]
                ):
                    best = k
            self.certainty[best] = -1.0
            self.free_features[j] = best
            self.free_odds[j] = self.log_odds[best]
            self.mode[best] = 0
        self.model.begin_row(i, self.mode)
