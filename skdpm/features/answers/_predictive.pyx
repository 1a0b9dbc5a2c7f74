# SPDX-License-Identifier: BSD-3-Clause
"""The law of the features of rows that are no part of the data of `fit`, each on its own:

    p(z, m | x) ~ p(m) prod_k rho_k^z_k (1 - rho_k)^(1 - z_k) p(x | z, m new features),

summed over all values z and numbers m of new features; nothing is drawn. Beyond `max_bits`
features (15, or fewer where the model says so) the sum is over the values that a beam search
meets: a lower bound, in time and memory linear in the number of features. The beam begins with a
local mode. One feature after the other, the least certain first, every value of the beam is joined
by the same with the feature flipped, and the best are kept; those that are not kept are summed all
the same. No value is met twice, as features that are not decided yet are as in the mode. If a
value is better than the mode, the search begins anew there, some times. For m > 0, the values kept
in the end are summed.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, isfinite, log, log1p
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from skdpm._core._memory cimport resized
from skdpm.features.likelihoods._base cimport CollapsedFeatureModel, FeatureModel

# Values that are kept in a beam.
BEAM = 512

cdef enum:
    N_SEARCHES = 4      # at most, each from the best value of the last one


cdef double kth_largest(double* x, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    """The entry that k others are no smaller than; x is permuted (Hoare's selection)."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = n - 1
    cdef Py_ssize_t i, j
    cdef double pivot
    while low < high:       # ends: every pass leaves a shorter range
        pivot = x[(low + high) // 2]
        i, j = low, high
        while i <= j:       # ends: i rises or j falls
            while x[i] > pivot:
                i += 1
            while x[j] < pivot:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return x[k]


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
    beam : int or None, default=None
        Values kept where not all are summed; 0: all are summed. None: 0 up to `max_bits` features
        of the model, then 512.
    """
    cdef FeatureModel model
    cdef CollapsedFeatureModel collapsed    # the model; None if it cannot integrate parameters out
    cdef Py_ssize_t n_latent
    cdef Py_ssize_t most                # values of the beam; 0: all values are summed
    cdef object _owners
    cdef const double* log_odds         # (n_latent,)
    cdef const double[::1] log_pmf
    cdef Py_ssize_t* features           # (n_latent,): in the order of the table, or of the beam
    cdef double* certainty              # (n_latent,)
    cdef unsigned char* mode            # (n_latent,)
    cdef double* table                  # (2**n_latent,), where all values are summed
    # Of the beam: a value is a candidate of the model, but for candidate 0.
    cdef Py_ssize_t n_kept
    cdef Py_ssize_t* kept               # (most,): candidates
    cdef Py_ssize_t* unused             # (most,): candidates
    cdef double* log_w                  # (2 * most,): of those kept, then of the same flipped
    cdef double* scratch                # (2 * most,)
    cdef unsigned char* values          # (most + 1, n_latent): by candidate
    cdef double top, total              # of the row under way: largest log weight, sum of weights

    def __init__(self, FeatureModel model, log_odds, log_pmf, beam=None):
        cdef const double[::1] view = np.ascontiguousarray(log_odds, dtype=np.float64)
        cdef Py_ssize_t n = model.n_latent
        self.model = model
        self.n_latent = n
        # If parameters cannot be integrated out, only rows without new features are summed.
        if isinstance(model, CollapsedFeatureModel):
            self.collapsed = model
        n_terms = 1 if self.collapsed is None else len(log_pmf)
        self.log_pmf = np.ascontiguousarray(log_pmf[:n_terms], dtype=np.float64)
        self._owners = view
        self.log_odds = &view[0] if n else NULL
        if beam is None:
            beam = 0 if n <= model.max_bits else BEAM
        self.most = beam
        self.features = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))
        self.certainty = <double*>resized(NULL, n, sizeof(double))
        self.mode = <unsigned char*>resized(NULL, n, 1)
        if self.most == 0:
            self.table = <double*>resized(NULL, <Py_ssize_t>1 << n, sizeof(double))
            return
        self.kept = <Py_ssize_t*>resized(NULL, beam, sizeof(Py_ssize_t))
        self.unused = <Py_ssize_t*>resized(NULL, beam, sizeof(Py_ssize_t))
        self.log_w = <double*>resized(NULL, 2 * beam, sizeof(double))
        self.scratch = <double*>resized(NULL, 2 * beam, sizeof(double))
        self.values = <unsigned char*>resized(NULL, (beam + 1) * n, 1)
        model.reserve_candidates(beam + 1)

    def __dealloc__(self):
        free(self.features)
        free(self.certainty)
        free(self.mode)
        free(self.table)
        free(self.kept)
        free(self.unused)
        free(self.log_w)
        free(self.scratch)
        free(self.values)

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
                    if self.most == 0:
                        out[i] = self.visit_all(i, &sums[i, 0], &modes[i, 0])
                    else:
                        out[i] = self.visit_best(i, &sums[i, 0], &modes[i, 0])
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

    cdef double visit_all(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # OUT (n_latent,)
    ) except? -1 nogil:
        """Sum up the law of row i; NaN where it has none."""
        cdef Py_ssize_t m
        cdef double shared = self.begin(i, probabilities)
        cdef double gain = 0.0
        cdef double base
        for m in range(self.log_pmf.shape[0]):
            if m > 0:
                if self.log_pmf[m] + self.collapsed.log_bound(m, gain) < self.top - 36.0:
                    break
                self.collapsed.set_n_new(m)
            base = self.log_pmf[m] + shared + self.model.log_row()
            self.model.log_rows(self.features, self.log_odds, self.n_latent, self.table)
            self.add_table(base, probabilities, best)
            if m == 0:
                gain = self.largest_gain()
        return self.end(probabilities)

    cdef double begin(
        self, Py_ssize_t i, double* probabilities   # OUT (n_latent,)
    ) noexcept nogil:
        """Begin with row i, all features being off. Returns their log prior."""
        cdef Py_ssize_t k
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
        self.model.begin_row(i, self.mode)
        return shared

    cdef double end(self, double* probabilities) noexcept nogil:    # INOUT (n_latent,)
        """Normalise the sums. Returns log p(x_i)."""
        cdef Py_ssize_t k
        if self.total == 0.0:
            return NAN
        for k in range(self.n_latent):
            probabilities[k] /= self.total
        return self.top + log(self.total)

    cdef void add_table(
        self, double base, double* probabilities, unsigned char* best   # INOUT (n_latent,)
    ) noexcept nogil:
        """Add the weights of all values in the table, `base` the logarithm of the first one's, to
        `total` and to the features' sums; all are relative to the largest so far, `top`."""
        cdef Py_ssize_t j, k, r
        cdef Py_ssize_t n = self.n_latent
        cdef double top = self.top
        cdef double total = self.total
        cdef double value, w
        for r in range((<Py_ssize_t>1) << n):
            value = self.table[r] + base
            if value > top:
                w = exp(top - value)
                total *= w
                for k in range(n):
                    probabilities[k] *= w
                    best[k] = (r >> k) & 1
                top = value
                w = 1.0
            elif value < top - 50.0 or value == -INFINITY:
                continue
            else:
                w = exp(value - top)
            total += w
            for j in range(n):
                if (r >> j) & 1:
                    probabilities[j] += w
        self.top = top
        self.total = total

    cdef double largest_gain(self) noexcept nogil:
        """Bound what flipping features on gains in log p(x_i | z): the table holds their log odds
        too."""
        cdef Py_ssize_t k, r
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
        """Sum up the law of row i over the values that the beam meets; NaN where it has none."""
        cdef Py_ssize_t j, m, _search
        cdef Py_ssize_t likeliest = 0
        memset(best, 0, self.n_latent)
        for _search in range(N_SEARCHES):
            if self.search(i, probabilities, best) < 0:
                return NAN
            if memcmp(best, self.mode, self.n_latent) == 0:
                break
        for j in range(self.n_kept):
            # From now on its log prior alone.
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
                    self.values + self.kept[j] * self.n_latent, probabilities, best
                )
        return self.end(probabilities)

    cdef int search(
        self, Py_ssize_t i, double* probabilities, unsigned char* best   # INOUT (n_latent,)
    ) noexcept nogil:
        """Sum over the values that the beam meets if it begins near the best one so far. -1 where
        one has no density."""
        cdef Py_ssize_t j
        cdef double log_prior = self.begin(i, probabilities)
        memcpy(self.mode, best, self.n_latent)
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
        memcpy(self.values + self.n_latent, self.mode, self.n_latent)
        for j in range(self.n_latent):
            if self.widen(self.features[j], probabilities, best) < 0:
                return -1
        for j in range(self.n_kept):
            self.add_value(
                self.log_w[j], self.values + self.kept[j] * self.n_latent, probabilities, best
            )
        return 0

    cdef void find_mode(self, Py_ssize_t i) noexcept nogil:
        """Flip the feature that gains most, as long as any gains; then put the features into
        order, the least certain first."""
        cdef Py_ssize_t j, k, best, _flip
        cdef Py_ssize_t candidate = 0
        cdef double change
        self.model.begin_row(i, self.mode)
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
        for j in range(1, self.n_latent):
            k = j
            while k > 0 and (
                self.certainty[self.features[k]] < self.certainty[self.features[k - 1]]
            ):
                # Ends: k falls.
                self.features[k], self.features[k - 1] = self.features[k - 1], self.features[k]
                k -= 1
        self.model.begin_row(i, self.mode)

    cdef int widen(
        self, Py_ssize_t k, double* probabilities, unsigned char* best  # INOUT (n_latent,)
    ) noexcept nogil:
        """Decide feature k. -1 where a value has no density."""
        cdef Py_ssize_t j, value
        cdef Py_ssize_t n = self.n_kept
        cdef Py_ssize_t n_unused = self.most - n
        cdef Py_ssize_t n_ties = 0
        cdef bint on = not self.mode[k]
        cdef double lowest = -INFINITY
        cdef double* flipped = self.log_w + n
        cdef double change = self.log_odds[k] if on else -self.log_odds[k]
        cdef bint stays, comes
        cdef unsigned char* z
        self.model.log_flip_many(self.kept, n, k, on, flipped)
        for j in range(n):
            flipped[j] += self.log_w[j] + change
            if flipped[j] != flipped[j]:
                return -1
        if 2 * n > self.most:
            memcpy(self.scratch, self.log_w, 2 * n * sizeof(double))
            lowest = kth_largest(self.scratch, 2 * n, self.most - 1)
            n_ties = self.most
            for j in range(2 * n):
                n_ties -= self.log_w[j] > lowest
        # First what goes, or is flipped where it lies: others find its candidates unused. Of
        # log_w, entry j becomes NaN where its candidate is unused, entry n + j -inf where nothing
        # comes.
        for j in range(n):
            z = self.values + self.kept[j] * self.n_latent
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
            if stays:
                if not comes:
                    flipped[j] = -INFINITY
            elif comes:
                self.model.flip(self.kept[j], k, on)
                z[k] = on
                self.log_w[j] = flipped[j]
                flipped[j] = -INFINITY
            else:
                self.unused[n_unused] = self.kept[j]
                n_unused += 1
                self.log_w[j] = NAN
        for j in range(n):
            self.scratch[j] = flipped[j]
        self.n_kept = 0
        for j in range(n):
            if self.log_w[j] == self.log_w[j]:
                self.kept[self.n_kept] = self.kept[j]
                self.log_w[self.n_kept] = self.log_w[j]
                self.scratch[self.n_kept] = self.scratch[j]
                self.n_kept += 1
        n = self.n_kept
        for j in range(n):
            if self.scratch[j] > -INFINITY:
                n_unused -= 1
                value = self.unused[n_unused]
                self.model.copy(value, self.kept[j])
                self.model.flip(value, k, on)
                z = self.values + value * self.n_latent
                memcpy(z, self.values + self.kept[j] * self.n_latent, self.n_latent)
                z[k] = on
                self.kept[self.n_kept] = value
                self.log_w[self.n_kept] = self.scratch[j]
                self.n_kept += 1
        return 0

    cdef void add_value(
        self, double value, const unsigned char* z,
        double* probabilities, unsigned char* best  # INOUT (n_latent,)
    ) noexcept nogil:
        """Add the weight exp(value) of z, as `add_table` does."""
        cdef Py_ssize_t k
        cdef double w
        if value > self.top:
            w = exp(self.top - value)
            self.total *= w
            for k in range(self.n_latent):
                probabilities[k] *= w
            memcpy(best, z, self.n_latent)
            self.top = value
            w = 1.0
        elif value < self.top - 50.0 or value == -INFINITY:
            return
        else:
            w = exp(value - self.top)
        self.total += w
        for k in range(self.n_latent):
            probabilities[k] += w * z[k]
