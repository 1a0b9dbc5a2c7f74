# SPDX-License-Identifier: BSD-3-Clause
"""The law of the features of one new row,

    p(z, m | x) ~ p(m) prod_k rho_k^z_k (1 - rho_k)^(1 - z_k) p(x | z, m new features),

summed over all values z and all numbers m of new features, without sampling. A model with more
than `max_bits` features (15 or fewer) is summed over the values that a beam search visits: a lower
bound, in time and memory linear in the number of features.

The beam begins with a local mode. It decides one feature after the other, the least certain first:
every value of the beam is joined by its copy with the feature flipped, and the best values are
kept. Discarded values are included in the sum. No value is visited twice, because undecided
features are as in the mode. If a value is better than the mode, the search restarts there, up to a
fixed number of times. For m > 0 the sum is over the final beam.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, isfinite, log, log1p
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from skdpm._core._select cimport select
from skdpm.features.likelihoods._base cimport CollapsedFeatureModel, FeatureModel

# Number of values in a beam.
BEAM = 512

cdef enum:
    N_SEARCHES = 4      # at most; each starts at the best value of the last one


cdef class RowLaw:
    """p(z, m | x_i) under one draw of the features.

    - `log_odds`: (n_latent,). Prior log odds of each feature.
    - `log_pmf`: log p(m) for m = 0, 1, ...: numbers of new features.
    - `beam`: Number of values in the beam; 0: all. None: 0 up to `max_bits` features, else `BEAM`.
    """
    cdef FeatureModel model
    cdef CollapsedFeatureModel collapsed    # the model; None if it cannot integrate parameters out
    cdef Py_ssize_t n_latent
    cdef Py_ssize_t most                # size of the beam; 0: all values are summed
    # Arrays over features have one entry more, so that they have an address without features.
    cdef double[::1] log_odds           # (n_latent + 1,)
    cdef const double[::1] log_pmf
    cdef Py_ssize_t[::1] features       # (n_latent + 1,): in the order of the table or beam
    cdef double[::1] certainty          # (n_latent + 1,)
    cdef unsigned char[::1] mode        # (n_latent + 1,)
    cdef double[::1] table              # (2**n_latent,), if all values are summed
    # The beam: its values are candidates 1, 2, ... of the model.
    cdef Py_ssize_t n_kept
    cdef Py_ssize_t[::1] kept           # (most,): candidates
    cdef Py_ssize_t[::1] unused         # (most,): candidates
    cdef double[::1] log_w              # (2 * most,): kept values, then the same ones flipped
    cdef double[::1] scratch            # (2 * most,)
    cdef Py_ssize_t[::1] order          # (2 * most,): scratch
    cdef unsigned char[:, ::1] values   # (most + 1, n_latent + 1): by candidate
    cdef double top, total              # largest log weight and sum of weights of the row

    def __init__(self, FeatureModel model, log_odds, log_pmf, beam=None):
        cdef Py_ssize_t n = model.n_latent
        self.model = model
        self.n_latent = n
        # If parameters cannot be integrated out, the sum is over m = 0 only.
        if isinstance(model, CollapsedFeatureModel):
            self.collapsed = model
        n_terms = 1 if self.collapsed is None else len(log_pmf)
        self.log_pmf = np.ascontiguousarray(log_pmf[:n_terms], dtype=np.float64)
        self.log_odds = np.append(np.asarray(log_odds, dtype=np.float64), 0.0)
        if beam is None:
            beam = 0 if n <= model.max_bits else BEAM
        self.most = beam
        self.features = np.empty(n + 1, dtype=np.intp)
        self.certainty = np.empty(n + 1)
        self.mode = np.empty(n + 1, dtype=np.uint8)
        if self.most == 0:
            self.table = np.empty(1 << n)
            return
        self.kept, self.unused = np.empty((2, beam), np.intp)
        self.log_w, self.scratch = np.empty((2, 2 * beam))
        self.order = np.empty(2 * beam, dtype=np.intp)
        self.values = np.empty((beam + 1, n + 1), dtype=np.uint8)
        model.reserve_candidates(beam + 1)

    def evaluate(self, observed):
        """log p(x_i) of every row, (n_samples,), a lower bound with a beam; the probabilities of
        its features, (n_samples, n_latent); and its most probable value, uint8, jointly with the
        number of new features. The law of a row without `observed` entries is the prior. Raises
        FloatingPointError for the first row of which no value has a positive weight."""
        cdef Py_ssize_t n = self.model.n_samples
        cdef Py_ssize_t width = self.n_latent
        cdef double[::1] log_density = np.empty(n)
        cdef double[:, ::1] sums = np.empty((n, width + 1))
        cdef unsigned char[:, ::1] modes = np.zeros((n, width + 1), dtype=np.uint8)
        cdef const unsigned char[::1] seen = np.ascontiguousarray(observed, dtype=np.uint8)
        with nogil:
            for i in range(n):
                if seen[i]:
                    if self.most == 0:
                        log_density[i] = self.visit_all(i, &sums[i, 0], &modes[i, 0])
                    else:
                        log_density[i] = self.visit_best(i, &sums[i, 0], &modes[i, 0])
                    continue
                log_density[i] = 0.0
                for k in range(width):
                    sums[i, k] = 1.0 / (1.0 + exp(-self.log_odds[k]))
                    modes[i, k] = self.log_odds[k] > 0.0
        bad = np.flatnonzero(np.isnan(log_density))
        if bad.size:
            raise FloatingPointError(f"row {bad[0]} of X: no value has a positive weight")
        return (
            np.asarray(log_density),
            np.ascontiguousarray(np.asarray(sums)[:, :width]),
            np.ascontiguousarray(np.asarray(modes)[:, :width]),
        )

    cdef double visit_all(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # OUT (n_latent,)
    ) except? -1 nogil:
        """Sum over all values of row i. Returns log p(x_i), or NaN if it is not finite."""
        cdef double shared = self.begin(i, probabilities)
        cdef double gain = 0.0
        for m in range(self.log_pmf.shape[0]):
            if m > 0:
                if self.log_pmf[m] + self.collapsed.log_bound(m, gain) < self.top - 36.0:
                    break
                self.collapsed.set_n_new(m)
            base = self.log_pmf[m] + shared + self.model.log_row()
            self.model.log_rows(
                &self.features[0], &self.log_odds[0], self.n_latent, &self.table[0]
            )
            self.add_table(base, probabilities, best)
            if m == 0:
                gain = self.largest_gain()
        return self.end(probabilities)

    cdef double begin(self, Py_ssize_t i, double* probabilities) noexcept nogil:
        """Begin with row i, with all features off. Returns the log prior of this value."""
        cdef double shared = 0.0
        self.top = -INFINITY
        self.total = 0.0
        for k in range(self.n_latent):
            self.mode[k] = 0
            probabilities[k] = 0.0
            self.features[k] = k
            # log(1 - rho)
            shared -= (
                log1p(exp(self.log_odds[k])) if self.log_odds[k] < 700.0 else self.log_odds[k]
            )
        self.model.begin_row(i, &self.mode[0])
        return shared

    cdef double end(self, double* probabilities) noexcept nogil:    # INOUT (n_latent,)
        """Normalise the sums. Returns log p(x_i)."""
        if self.total == 0.0:
            return NAN
        for k in range(self.n_latent):
            probabilities[k] /= self.total
        return self.top + log(self.total)

    cdef void add_table(
        self, double base, double* probabilities, unsigned char* best   # INOUT (n_latent,)
    ) noexcept nogil:
        """Add the weights of all values in the table to `total` and to the features' sums; all are
        relative to the largest so far, exp(top). `base` is the log weight of the first value."""
        cdef Py_ssize_t n = self.n_latent
        cdef bint is_best
        for r in range((<Py_ssize_t>1) << n):
            value = self.table[r] + base
            is_best = value > self.top
            w = self.weigh(value, probabilities)
            if w == 0.0:
                continue
            if is_best:
                for k in range(n):
                    best[k] = (r >> k) & 1
            self.total += w
            for j in range(n):
                if (r >> j) & 1:
                    probabilities[j] += w

    cdef inline double weigh(self, double value, double* probabilities) noexcept nogil:
        """Relative weight exp(value - top), 0 if it is negligible. A `value` above `top` becomes
        `top`, and the sums are rescaled."""
        if value > self.top:
            w = exp(self.top - value)
            self.total *= w
            for k in range(self.n_latent):
                probabilities[k] *= w
            self.top = value
            return 1.0
        if value < self.top - 50.0 or value == -INFINITY:
            return 0.0
        return exp(value - self.top)

    cdef double largest_gain(self) noexcept nogil:
        """Bound the gain in log p(x_i | z) plus log odds from switching features on."""
        cdef double gain = 0.0
        for r in range((<Py_ssize_t>1) << self.n_latent):
            gain = max(gain, self.table[r])
        for k in range(self.n_latent):
            gain += max(-self.log_odds[k], 0.0)
        return gain

    # The beam.

    cdef double visit_best(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # OUT (n_latent,)
    ) except? -1 nogil:
        """Sum over values of row i in the beam: a lower bound of log p(x_i), NaN if not finite."""
        cdef Py_ssize_t _search
        cdef Py_ssize_t likeliest = 0
        memset(best, 0, self.n_latent)
        for _search in range(N_SEARCHES):
            if self.search(i, probabilities, best) < 0:
                return NAN
            if memcmp(best, &self.mode[0], self.n_latent) == 0:
                break
        for j in range(self.n_kept):
            # From here on log_w is the log prior alone.
            self.model.copy(0, self.kept[j])
            self.scratch[j] = self.model.log_row()
            self.log_w[j] -= self.log_pmf[0] + self.scratch[j]
            likeliest = j if self.scratch[j] > self.scratch[likeliest] else likeliest
        for m in range(1, self.log_pmf.shape[0]):
            self.model.copy(0, self.kept[likeliest])
            if self.log_pmf[m] + self.collapsed.log_bound(m, 0.0) < self.top - 36.0:
                break
            self.collapsed.set_n_new(m)
            for j in range(self.n_kept):
                self.model.copy(0, self.kept[j])
                self.add_value(
                    self.log_pmf[m] + self.log_w[j] + self.model.log_row(),
                    &self.values[self.kept[j], 0], probabilities, best
                )
        return self.end(probabilities)

    cdef int search(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # INOUT (n_latent,)
    ) noexcept nogil:
        """Sum over the values that a beam visits which begins near the best value so far. Returns
        -1 if the density of one is not finite."""
        cdef double log_prior = self.begin(i, probabilities)
        memcpy(&self.mode[0], best, self.n_latent)
        self.find_mode(i)
        for j in range(self.n_latent):
            if self.mode[j]:
                log_prior += self.log_odds[j]
        self.n_kept = 1
        self.kept[0] = 1
        for j in range(self.most - 1):
            self.unused[j] = self.most - j
        self.log_w[0] = self.log_pmf[0] + log_prior + self.model.log_row()
        if not isfinite(self.log_w[0]):
            return -1
        self.model.copy(1, 0)
        memcpy(&self.values[1, 0], &self.mode[0], self.n_latent)
        for j in range(self.n_latent):
            if self.widen(self.features[j], probabilities, best) < 0:
                return -1
        for j in range(self.n_kept):
            self.add_value(self.log_w[j], &self.values[self.kept[j], 0], probabilities, best)
        return 0

    cdef void find_mode(self, Py_ssize_t i) noexcept nogil:
        """Flip the feature that gains most until none gains; then sort the features, the least
        certain first."""
        self.model.begin_row(i, &self.mode[0])
        # Bounded, as rounding could flip back and forth; any value gives a lower bound.
        for _flip in range(64 * self.n_latent):
            best = -1
            for k in range(self.n_latent):
                change = self.model.log_flip(k, not self.mode[k])
                change += -self.log_odds[k] if self.mode[k] else self.log_odds[k]
                self.certainty[k] = fabs(change)
                if change > 1e-9 and (best < 0 or change > self.certainty[best]):
                    best = k
            if best < 0:
                break
            self.mode[best] = not self.mode[best]
            self.model.flip(0, best, self.mode[best])
        for j in range(1, self.n_latent):
            k = j
            while k > 0 and (
                self.certainty[self.features[k]] < self.certainty[self.features[k - 1]]
            ):
                # Ends: k falls.
                self.features[k], self.features[k - 1] = self.features[k - 1], self.features[k]
                k -= 1
        self.model.begin_row(i, &self.mode[0])

    cdef int widen(
        self, Py_ssize_t k, double* probabilities, unsigned char* best  # INOUT (n_latent,)
    ) noexcept nogil:
        """Decide feature k. Returns -1 if the density of a value is NaN."""
        cdef Py_ssize_t n = self.n_kept
        cdef Py_ssize_t n_unused = self.most - n
        cdef Py_ssize_t n_ties = 0
        cdef bint on = not self.mode[k]
        cdef double lowest = -INFINITY
        cdef double* flipped = &self.log_w[n]
        cdef double change = self.log_odds[k] if on else -self.log_odds[k]
        cdef bint stays, comes
        self.model.log_flip_many(&self.kept[0], n, k, on, flipped)
        for j in range(n):
            flipped[j] += self.log_w[j] + change
            if flipped[j] != flipped[j]:
                return -1
        if 2 * n > self.most:
            for j in range(2 * n):
                self.order[j] = j
            select(&self.log_w[0], 1, &self.order[0], 2 * n, 2 * n - self.most)
            lowest = self.log_w[self.order[2 * n - self.most]]
            n_ties = self.most
            for j in range(2 * n):
                n_ties -= self.log_w[j] > lowest
        # First the values that are discarded, or flipped in place: this frees candidates for the
        # others, the copies with a weight in `scratch`.
        self.n_kept = 0
        for j in range(n):
            value = self.kept[j]
            z = &self.values[value, 0]
            stays = self.log_w[j] > lowest
            if self.log_w[j] == lowest and n_ties > 0:
                stays = True
                n_ties -= 1
            comes = flipped[j] > lowest
            if flipped[j] == lowest and lowest > -INFINITY and n_ties > 0:
                comes = True
                n_ties -= 1
            if not stays:
                self.add_value(self.log_w[j], z, probabilities, best)
            if not comes:
                z[k] = on
                self.add_value(flipped[j], z, probabilities, best)
                z[k] = not on
            if not stays and not comes:
                self.unused[n_unused] = value
                n_unused += 1
                continue
            if not stays:
                self.model.flip(value, k, on)
                z[k] = on
            self.kept[self.n_kept] = value
            self.log_w[self.n_kept] = self.log_w[j] if stays else flipped[j]
            self.scratch[self.n_kept] = flipped[j] if stays and comes else -INFINITY
            self.n_kept += 1
        self.add_copies(k, on, n_unused)
        return 0

    cdef void add_copies(self, Py_ssize_t k, bint on, Py_ssize_t n_unused) noexcept nogil:
        """Copy kept values with a weight in `scratch` to unused candidates, feature k flipped."""
        for j in range(self.n_kept):
            if self.scratch[j] > -INFINITY:
                n_unused -= 1
                value = self.unused[n_unused]
                self.model.copy(value, self.kept[j])
                self.model.flip(value, k, on)
                z = &self.values[value, 0]
                memcpy(z, &self.values[self.kept[j], 0], self.n_latent)
                z[k] = on
                self.kept[self.n_kept] = value
                self.log_w[self.n_kept] = self.scratch[j]
                self.n_kept += 1

    cdef void add_value(
        self, double value, const unsigned char* z,
        double* probabilities, unsigned char* best  # INOUT (n_latent,)
    ) noexcept nogil:
        """Add the weight exp(value) of z to the sums, as `add_table` does."""
        cdef bint is_best = value > self.top
        cdef double w = self.weigh(value, probabilities)
        if w == 0.0:
            return
        if is_best:
            memcpy(best, z, self.n_latent)
        self.total += w
        for k in range(self.n_latent):
            probabilities[k] += w * z[k]
