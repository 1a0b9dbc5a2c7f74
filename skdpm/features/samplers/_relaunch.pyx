# SPDX-License-Identifier: BSD-3-Clause
"""Moves that replace some features by others; doc/design.md says what for. The parameters of the
other features stay fixed. Those of the replaced and new features are integrated out; new ones are
drawn when a move is accepted.

Relaunches are Metropolis moves that replace s random features by s' others, |s - s'| <= 1. New
columns come from a *launch*, which uses one row of each column to be replaced. This row a_j, drawn
from the m_j rows that have feature j, is the anchor of new feature j and has it throughout the
launch. The anchor of an additional feature, j > s, is drawn from all N rows. Gibbs sweeps over the
new features alone follow, of parameters, then of rows. Given the last parameters and column sums,
rows are independent and the new columns are drawn from

    q(Z' | launch) = prod_i q(z'_i | launch).

The reverse move draws the same anchors from Z' with probability prod_j 1/m'_j, and 1/N for an
additional one. Its launch is an auxiliary variable (sweeps have the same law in both directions),
so that the acceptance ratio is

    p(Z', X) q(Z | reverse launch) prod_j m_j/N / (p(Z, X) q(Z' | launch) prod_j m'_j/N),

where p(Z, X) is the law of unordered features, with those of the move integrated out. In warm-up
the ratio is p(Z', X) / p(Z, X) alone, which is no valid step.

Recodings keep the number of features. Rows with the same values of s features are a group, and
these values are its code. A recoding chooses s features and some codes except 0, whatever rows
have them, and draws a permutation of these codes with probability proportional to p(Z', X).
Permutations form a group, and each Z' has equally many of them, so this is a Gibbs step on an
orbit. A permutation that leaves a feature without rows has probability 0.

A likelihood may be unable to integrate parameters out. Then they are drawn from q(parameters | Z),
and p(X, parameters | Z) / q(parameters | Z) takes the place of p(X | Z), on both sides
(`FeatureModel.log_weight`). In launches rows are then visited given the earlier ones, and
q(Z' | launch) is the product of their conditional laws. A recoding proposes one permutation, of
all codes of one feature, its complement, or of two: the part has the bias, so rows without
features may get some. The permutation and its inverse are equally probable.

It also proposes two features in place of one with the same rows, and their union in place of two.
A launch of two parts gives each row of the feature one of them at random; later these rows, and no
others, have one or both. Both anchors are rows of the feature. The union is not drawn. The ratio
for two parts is p(Z', X) m^2 / (p(Z, X) q(Z' | launch) m'_1 m'_2). In warm-up one or two features
are proposed in place of two: a random function of a row's two values, then a sweep over the rows.
"""
from libc.math cimport INFINITY, exp, lgamma, log, log1p
from libc.string cimport memset

import numpy as np

from skdpm._core._rng cimport bitgen_t, integer, uniform
from skdpm.features.likelihoods._allocations cimport Allocations
from skdpm.features.state._state cimport FeatureState

cdef enum:
    # Features of a move: more in warm-up, where several poor ones explain what fewer could.
    MOST_IN_WARM_UP = 4
    MOST_AFTER = 2
    N_SWEEPS = 2            # of a launch
    MOST_ROWS = 100         # visited by a sweep of a launch
    MOST_CODES = 4          # of a recoding
    MOST_ORDERS = 24        # of these codes
    N_RECODINGS = 12        # per relaunch
    N_PROPOSED = 2          # the same, if parameters cannot be integrated out but sweeps are cheap

NO_LAW = "parameters of features have no law given Z; rescale X or fix their precision"

# Phases of a chain: after the warm-up parameters are integrated out, or sampled.
cdef enum:
    INTEGRATED
    WARM_UP
    SAMPLED

# Warm-up prefers fewer features: rows add features anyway, and too many keep others from being
# found. Launches whose parameters are sampled are accepted in 1 of 100 cases if they change the
# number of features, and in 1 of 10 if not; half of the steps make none.
cdef double[3] SHARE_OF_GROWTH = [0.4, 0.15, 0.05]
cdef double[3] SHARE_OF_LOSS = [0.4, 0.65, 0.05]
cdef double[3] SHARE_OF_OTHERS = [1.0, 1.0, 0.4]

cdef unsigned char[MOST_LAUNCHED] NONE
memset(NONE, 0, MOST_LAUNCHED)


cdef inline Py_ssize_t draw_or_find(
    double* log_w, Py_ssize_t n, Py_ssize_t forced, Py_ssize_t wanted, double* log_q, bitgen_t* rng
) noexcept nogil:
    """Draw a value r with all bits of `forced`, with probability proportional to exp(log_w[r]), or
    take `wanted` if that is not -1. Adds its log probability to log_q. -1: weights are no law."""
    cdef double top = log_w[n - 1]      # has all bits
    cdef double total = 0.0
    for r in range(n):
        if r & forced == forced and not (log_w[r] <= top):
            top = log_w[r]
    for r in range(n):
        if r & forced == forced:
            total += exp(log_w[r] - top)
    if not (total < 2.0 * n):
        return -1
    if wanted < 0:
        u = uniform(rng) * total
        for r in range(n):
            if r & forced == forced:
                wanted = r
                u -= exp(log_w[r] - top)
                if u < 0.0:
                    break
    log_q[0] += log_w[wanted] - top - log(total)
    return wanted


cdef inline void permute(
    const Py_ssize_t* codes, Py_ssize_t n_codes, Py_ssize_t l,
    Py_ssize_t* new     # OUT: new[c] of each code c
) noexcept nogil:
    """Apply permutation l of n_codes! to the codes; 0 is the identity."""
    cdef Py_ssize_t[MOST_CODES] order
    for j in range(n_codes):
        order[j] = codes[j]
    for j in range(n_codes):
        other = j + l % (n_codes - j)
        l //= n_codes - j
        order[j], order[other] = order[other], order[j]
        new[codes[j]] = order[j]


cdef class RelaunchKernel:
    """Kernel of the moves.

    - `n_moves`: int. Relaunches per step, each with `N_RECODINGS` recodings, or `N_PROPOSED`.
    """

    def __init__(self, Py_ssize_t n_moves):
        self.n_moves = n_moves

    cdef int prepare(self, FeatureState state) except -1:
        cdef Py_ssize_t n = state.Z.stride
        if self.whole is not state.model:
            self.whole = state.model
            self.part = state.model.restricted()
            self.Z = Allocations(np.zeros((state.n_samples, 0)))
            self.Z.reserve(MOST_LAUNCHED)
            self.part.reserve(MOST_LAUNCHED)
            self.part.bind_allocations(self.Z)
            self.present, self.columns = np.empty((2, state.n_samples, MOST_LAUNCHED), np.uint8)
            self.groups = np.empty(state.n_samples, dtype=np.uint8)
        if n >= self.n_reserved:
            self.features, self.col_sums = np.empty((2, n + 1), np.intp)
            self.weights = np.empty(n + 1)
            self.n_reserved = n + 1

    cdef int step(self, FeatureState state, bint adapting, bitgen_t* rng) except -1 nogil:
        """Make the proposals of one iteration. A move and its reverse are proposed equally often.
        """
        cdef Py_ssize_t _recoding
        cdef bint samples = state.collapsed is None
        cdef Py_ssize_t phase = WARM_UP if adapting else SAMPLED if samples else INTEGRATED
        if state.n_samples < 2:
            return 0    # the prior of a row given the others needs others
        for _move in range(self.n_moves):
            fewer = integer(rng, MOST_IN_WARM_UP if adapting else MOST_AFTER)
            u = uniform(rng) - SHARE_OF_GROWTH[phase]
            if u < 0.0:
                self.move(state, fewer, fewer + 1, LAUNCH, adapting, rng)
            elif u < SHARE_OF_LOSS[phase]:
                self.move(state, fewer + 1, fewer, LAUNCH, adapting, rng)
            elif u < SHARE_OF_LOSS[phase] + SHARE_OF_OTHERS[phase]:
                self.move(state, fewer + 1, fewer + 1, LAUNCH, adapting, rng)
            if samples:
                # Several sweeps per iteration: the model draws parameters cheaply.
                for _recoding in range(N_PROPOSED if state.model.n_sweeps > 1 else 1):
                    if adapting:
                        self.move(state, 2, 1 + integer(rng, 2), MAP, True, rng)
                    elif uniform(rng) < 0.5:
                        self.move(state, 1, 2, UNION, False, rng)
                    else:
                        self.move(state, 2, 1, UNION, False, rng)
                    self.recode(state, 1 + integer(rng, 2), adapting, rng)
            else:
                for _recoding in range(N_RECODINGS):
                    self.recode(state, 2 + integer(rng, MOST_RECODED - 1), adapting, rng)

    cdef int choose(
        self, FeatureState state, Py_ssize_t n, Py_ssize_t n_used, bint adapting, bitgen_t* rng
    ) except -1 nogil:
        """Move n of the used features to the front, in random order. In warm-up, prefer dependent
        features: they are independent a priori, but poor ones often are not. After the first, a
        feature has the weight 1/N, which is phi^2 by chance, plus its phi^2 with those chosen (phi
        is the correlation of two columns)."""
        cdef double N = state.n_samples
        for j in range(n):
            l = j + integer(rng, n_used - j)
            if adapting and j > 0:
                k = self.features[j - 1]
                for l in range(j, n_used):
                    self.col_sums[self.features[l]] = 0
                for i in range(state.n_samples):
                    z = state.Z.row(i)
                    if z[k]:
                        for l in range(j, n_used):
                            self.col_sums[self.features[l]] += z[self.features[l]]
                total = 0.0
                for l in range(j, n_used):
                    i = self.features[l]
                    m = <double>state.Z.col_sums[k] * state.Z.col_sums[i]
                    u = m * (N - state.Z.col_sums[k]) * (N - state.Z.col_sums[i])
                    if j == 1:
                        self.weights[i] = 1.0 / N
                    if u > 0.0:
                        self.weights[i] += (N * self.col_sums[i] - m) ** 2 / u
                    total += self.weights[i]
                u = uniform(rng) * total
                for l in range(j, n_used):
                    u -= self.weights[self.features[l]]
                    if u < 0.0:
                        break
            self.features[j], self.features[l] = self.features[l], self.features[j]

    cdef Py_ssize_t list_used(self, FeatureState state) except -1 nogil:
        """List the features that some row has in `features`. Returns their number."""
        cdef Py_ssize_t n_used = 0
        if state.Z.stride >= self.n_reserved:
            with gil:
                self.prepare(state)
        for k in range(state.Z.n_latent):
            self.features[n_used] = k
            n_used += state.Z.col_sums[k] > 0
        return n_used

    cdef int recode(
        self, FeatureState state, Py_ssize_t n, bint adapting, bitgen_t* rng
    ) except -1 nogil:
        """Draw new codes of the groups of n features."""
        cdef Py_ssize_t n_used = self.list_used(state)
        cdef Py_ssize_t n_values = (<Py_ssize_t>1) << n
        # Without the bias or intercept in the part, rows without features keep their code.
        cdef Py_ssize_t n_kept = 0 if state.collapsed is None else 1
        cdef Py_ssize_t n_codes = min(<Py_ssize_t>MOST_CODES, n_values - n_kept)
        cdef Py_ssize_t n_orders = 1, n_moved = 0   # the latter of rows whose code is chosen
        cdef Py_ssize_t[1 << MOST_RECODED] values, rows, new
        cdef Py_ssize_t* codes = values + n_kept    # those chosen come first
        cdef Py_ssize_t[MOST_ORDERS] keys
        cdef double[MOST_ORDERS] log_w
        cdef double log_q = 0.0
        if n_used < n:
            return 0
        restrict(self, state, n, n_used, adapting, rng)
        for r in range(n_values):
            values[r] = new[r] = r
            rows[r] = 0
        list_groups(self, n)
        for i in range(state.n_samples):
            rows[self.groups[i]] += 1
        for j in range(n_codes):
            n_orders *= j + 1
            r = j + integer(rng, n_values - n_kept - j)
            codes[j], codes[r] = codes[r], codes[j]
            n_moved += rows[codes[j]]
        if n_moved == 0:
            return 0
        if state.collapsed is None:
            permute(codes, n_codes, integer(rng, n_orders), new)
            log_q = -self.part.log_weight() - state.prior.log_probability_at(
                state.prior.concentration, state.Z.col_sums, state.Z.n_latent
            )
            log_q += log_recoded(self, state, n, new, rng)
            if log_q != log_q:
                raise FloatingPointError(NO_LAW)
            if log1p(-uniform(rng)) < log_q:
                replace(self, state, n, n, n_used, rng)
            return 0
        for l in range(n_orders):
            permute(codes, n_codes, l, new)
            # Equal codes of all groups: equal matrices.
            key = 0
            for r in range(n_values):
                key = key * n_values + (new[r] if rows[r] > 0 else 0)
            keys[l] = key
            r = 0
            while keys[r] != key:       # ends: keys[l] is equal
                r += 1
            log_w[l] = log_w[r] if r < l else log_recoded(self, state, n, new, rng)
        l = draw_or_find(log_w, n_orders, 0, -1, &log_q, rng)
        if l < 0:
            raise FloatingPointError(NO_LAW)
        if keys[l] != keys[0]:
            permute(codes, n_codes, l, new)
            give_codes(self, n, new)
            replace(self, state, n, n, n_used, rng)

    cdef int move(
        self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, Proposal proposal,
        bint adapting, bitgen_t* rng
    ) except -1 nogil:
        cdef Py_ssize_t n_latent = state.Z.n_latent
        cdef Py_ssize_t n = state.n_samples
        cdef Py_ssize_t[MOST_LAUNCHED] anchors
        cdef double log_q = 0.0
        cdef bint divides = proposal == UNION and n_old == 1
        cdef bint unites = proposal == UNION and n_old == 2
        n_used = self.list_used(state)
        if n_used < n_old or (not state.prior.grows and n_used - n_old + n_new > n_latent):
            return 0
        self.proposed[n_old][n_new] += 1
        restrict(self, state, n_old, n_used, adapting, rng)
        log_ratio = -self.part.log_weight() - log_order(self, state, state.Z.col_sums, n_latent)
        if not draw_columns(self, state, n_old, n_new, proposal, anchors, &log_q, rng):
            return 0
        if not adapting:
            log_ratio -= log_q
            for j in range(n_old):
                log_ratio += log(state.Z.col_sums[self.features[j]] / <double>n)
            for j in range(n_new):
                log_ratio -= log(self.Z.col_sums[j] / <double>n)
            # Both anchors come from one feature.
            if unites:
                log_ratio -= log(self.Z.col_sums[0] / <double>n)
            elif divides:
                log_ratio += log(state.Z.col_sums[self.features[0]] / <double>n)
        log_ratio += log_order_after(self, state, n_old, n_new, n_used, rng)
        log_ratio += self.part.propose_params(rng)
        log_u = log1p(-uniform(rng))
        # The reverse launch can only lower the ratio.
        if not adapting and n_old > 0 and not divides and log_u < log_ratio:
            for i in range(n):
                for j in range(n_new):
                    self.columns[i, j] = self.Z.row(i)[j]
            log_ratio += launch(
                self, state, n_old, anchors, &self.columns[0, 0] if unites else NULL,
                &self.present[0, 0], rng
            )
            fill(self, n_new, &self.columns[0, 0], rng)
        if log_ratio != log_ratio:
            raise FloatingPointError("a move of whole columns of Z has no probability")
        if log_u < log_ratio:
            self.accepted[n_old][n_new] += 1
            replace(self, state, n_old, n_new, n_used, rng)


cdef bint draw_columns(
    RelaunchKernel self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, Proposal proposal,
    Py_ssize_t* anchors, double* log_q, bitgen_t* rng       # OUT (MOST_LAUNCHED,), (1,)
) except -1 nogil:
    """Give `part` n_new columns in place of n_old. `log_q` is their log probability given their
    launch, if there is one. False if no row has one of them."""
    cdef Py_ssize_t n = state.n_samples
    cdef bint divides = proposal == UNION and n_old == 1
    for j in range(n_old):
        anchors[j] = draw_row(self, state, j, rng)
    for j in range(n_old, n_new):
        anchors[j] = draw_row(self, state, 0, rng) if divides else integer(rng, n)
    if proposal == UNION and n_old == 2:
        for i in range(n):
            self.columns[i, 0] = self.present[i, 0] or self.present[i, 1]
        fill(self, 1, &self.columns[0, 0], rng)
    elif proposal == MAP:
        map_codes(self, n_old, n_new, rng)
        for j in range(n_new):
            anchors[j] = -1
        if not all_used(self, n_new):
            return False
        sweep(self, state, n_new, anchors, NULL, 0, n, n, NULL, rng)
        return all_used(self, n_new)
    else:
        log_q[0] = launch(
            self, state, n_new, anchors, &self.present[0, 0] if divides else NULL, NULL, rng
        )
    return True


cdef bint all_used(RelaunchKernel self, Py_ssize_t n) noexcept nogil:
    for j in range(n):
        if self.Z.col_sums[j] == 0:
            return False
    return True


cdef double log_order_after(
    RelaunchKernel self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, Py_ssize_t n_used,
    bitgen_t* rng
) noexcept nogil:
    """`log_order` with the columns of `part` in place of n_old. If the number of features is fixed
    and one more is needed, an unused one is drawn."""
    cdef Py_ssize_t n_skipped
    cdef Py_ssize_t n_latent = state.Z.n_latent
    for k in range(n_latent):
        self.col_sums[k] = state.Z.col_sums[k]
    for j in range(n_old):
        self.col_sums[self.features[j]] = self.Z.col_sums[j] if j < n_new else 0
    if state.prior.grows:
        if n_new < n_old:
            self.col_sums[self.features[n_new]] = self.col_sums[n_latent - 1]
        elif n_new > n_old:
            self.col_sums[n_latent] = self.Z.col_sums[n_old]
        return log_order(self, state, &self.col_sums[0], n_latent - n_old + n_new)
    if n_new > n_old:
        n_skipped = integer(rng, n_latent - n_used)
        k = 0
        while n_skipped > 0 or state.Z.col_sums[k] > 0:
            # Ends: more than `n_skipped` are unused.
            n_skipped -= state.Z.col_sums[k] == 0
            k += 1
        self.features[n_old] = k
        self.col_sums[k] = self.Z.col_sums[n_old]
    return log_order(self, state, &self.col_sums[0], n_latent)


cdef int resize(RelaunchKernel self, Py_ssize_t n, bitgen_t* rng) except -1 nogil:
    """Give `part` n columns of zeros. Start from none: draws must not depend on the last move,
    which a continued chain does not know."""
    while self.Z.n_latent > 0:      # ends: one fewer each time
        self.part.remove_feature(self.Z.n_latent - 1)
        self.Z.remove(self.Z.n_latent - 1)
    for _feature in range(n):
        self.part.add_feature(rng)
        self.Z.append()


cdef int fill(
    RelaunchKernel self, Py_ssize_t n, const unsigned char* columns, bitgen_t* rng
) except -1 nogil:
    """Give `part` the first n of `columns`."""
    resize(self, n, rng)
    for i in range(self.Z.n_samples):
        for j in range(n):
            self.Z.set(i, j, columns[i * MOST_LAUNCHED + j])


cdef double launch(
    RelaunchKernel self, FeatureState state, Py_ssize_t n, const Py_ssize_t* anchors,
    const unsigned char* united, const unsigned char* target, bitgen_t* rng
) except? -1.0 nogil:
    """Launch n features, whose union is `united` if that is not NULL, then draw their columns, or
    take those of `target` if it is not NULL. Returns their log probability given the launch."""
    cdef Py_ssize_t _sweep
    cdef Py_ssize_t n_rows = min(<Py_ssize_t>MOST_ROWS, state.n_samples)
    cdef Py_ssize_t first = integer(rng, state.n_samples)
    resize(self, n, rng)
    if n == 0:
        return 0.0
    for j in range(n):
        self.Z.set(anchors[j], j, True)
        if united == NULL:
            self.part.gather(anchors[j], j, rng)
    if united != NULL:
        n_rows = state.n_samples
        for i in range(n_rows):
            if united[i * MOST_LAUNCHED]:
                self.Z.set(i, integer(rng, n), True)
    for _sweep in range(N_SWEEPS):
        sweep(self, state, n, anchors, united, first, n_rows, n_rows, NULL, rng)
    return sweep(self, state, n, anchors, united, first, n_rows, state.n_samples, target, rng)


cdef double sweep(
    RelaunchKernel self, FeatureState state, Py_ssize_t n, const Py_ssize_t* anchors,
    const unsigned char* united, Py_ssize_t first, Py_ssize_t n_known, Py_ssize_t n_rows,
    const unsigned char* target, bitgen_t* rng
) except? -1.0 nogil:
    """Draw the parameters of `part`, then the n features of n_rows rows, evenly from row
    `first`, or take those of `target` if it is not NULL. Rows in `anchors` keep their feature;
    those in `united`, if it is not NULL, and no others have one of the features. Column sums
    are taken as those of n_known rows. Returns the log probability of the features."""
    cdef Py_ssize_t wanted
    cdef Py_ssize_t step = state.n_samples // n_rows
    cdef double log_q = 0.0
    cdef Py_ssize_t[MOST_LAUNCHED] all_features
    cdef double[MOST_LAUNCHED] log_odds
    cdef double[1 << MOST_LAUNCHED] log_w
    self.part.update_params(False, rng)
    for j in range(n):
        all_features[j] = j
        m = self.Z.col_sums[j] * state.n_samples // n_known
        log_odds[j] = state.prior.log_odds[min(m, state.n_samples - 1)]
    for t in range(n_rows):
        i = (first + t * step) % state.n_samples
        if united != NULL and not united[i * MOST_LAUNCHED]:
            continue
        forced = wanted = 0
        for j in range(n):
            if anchors[j] == i:
                forced |= (<Py_ssize_t>1) << j
            if target != NULL:
                wanted |= (<Py_ssize_t>target[i * MOST_LAUNCHED + j]) << j
        self.part.begin_row(i, NONE)
        self.part.log_rows(all_features, log_odds, n, log_w)
        if united != NULL:
            log_w[0] = -INFINITY
        r = draw_or_find(
            log_w, (<Py_ssize_t>1) << n, forced, -1 if target == NULL else wanted, &log_q, rng
        )
        if r < 0:
            raise FloatingPointError(f"row {i}: no value has a positive weight")
        for j in range(n):
            self.Z.set(i, j, (r >> j) & 1)
    return log_q


cdef double log_order(
    RelaunchKernel self, FeatureState state, const Py_ssize_t* col_sums, Py_ssize_t n_latent
) noexcept nogil:
    """log p(Z) with these column sums, plus the log probability of choosing the features of
    the move in this order and of the places that the others take."""
    cdef Py_ssize_t n_used = 0
    cdef double total = state.prior.log_probability_at(
        state.prior.concentration, col_sums, n_latent
    )
    if state.prior.grows:
        # p(Z) counts each of the K! orders of columns: probability (K - s)! / K!; K - s stays.
        return total
    for k in range(n_latent):
        n_used += col_sums[k] > 0
    # The u used features can be in K! / (K - u)! places; the probability is (u - s)! / u!.
    return total - lgamma(n_latent - n_used + 1.0) - lgamma(n_used + 1.0)


cdef int restrict(
    RelaunchKernel self, FeatureState state, Py_ssize_t n, Py_ssize_t n_used, bint adapting,
    bitgen_t* rng
) except -1 nogil:
    """Choose n of the used features. `part` and `present` become theirs."""
    self.choose(state, n, n_used, adapting, rng)
    self.part.restrict_from(state.model, &self.features[0], n)
    for i in range(state.n_samples):
        z = state.Z.row(i)
        for j in range(n):
            self.present[i, j] = z[self.features[j]]
    fill(self, n, &self.present[0, 0], rng)


cdef void list_groups(RelaunchKernel self, Py_ssize_t n) noexcept nogil:
    """List the codes of rows by the n features to replace in `groups`."""
    for i in range(self.Z.n_samples):
        self.groups[i] = 0
        for j in range(n):
            self.groups[i] |= self.present[i, j] << j


cdef void give_codes(RelaunchKernel self, Py_ssize_t n, const Py_ssize_t* new) noexcept nogil:
    """Give the groups of n features new codes."""
    for i in range(self.Z.n_samples):
        for j in range(n):
            self.Z.set(i, j, (new[self.groups[i]] >> j) & 1)


cdef double log_recoded(
    RelaunchKernel self, FeatureState state, Py_ssize_t n, const Py_ssize_t* new, bitgen_t* rng
) except? -1.0 nogil:
    """log p(Z', X), up to a constant, with new codes of the groups of n features."""
    give_codes(self, n, new)
    for j in range(state.Z.n_latent):
        self.col_sums[j] = state.Z.col_sums[j]
    for j in range(n):
        if self.Z.col_sums[j] == 0:
            return -INFINITY
        self.col_sums[self.features[j]] = self.Z.col_sums[j]
    return self.part.propose_params(rng) + state.prior.log_probability_at(
        state.prior.concentration, &self.col_sums[0], state.Z.n_latent
    )


cdef Py_ssize_t draw_row(
    RelaunchKernel self, FeatureState state, Py_ssize_t j, bitgen_t* rng
) noexcept nogil:
    """Draw a row that has feature j of those to replace."""
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t skipped = integer(rng, state.Z.col_sums[self.features[j]])
    while skipped > 0 or not self.present[i, j]:
        # Ends: more than `skipped` rows have the feature.
        skipped -= self.present[i, j]
        i += 1
    return i


cdef int map_codes(
    RelaunchKernel self, Py_ssize_t n_old, Py_ssize_t n_new, bitgen_t* rng
) except -1 nogil:
    """Give `part` n_new columns: a random function of the codes of n_old features."""
    cdef Py_ssize_t[1 << MOST_LAUNCHED] new
    for r in range((<Py_ssize_t>1) << n_old):
        new[r] = integer(rng, (<Py_ssize_t>1) << n_new)
    list_groups(self, n_old)
    resize(self, n_new, rng)
    give_codes(self, n_new, new)


cdef int replace(
    RelaunchKernel self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, Py_ssize_t n_used,
    bitgen_t* rng
) except -1 nogil:
    """Accept: write the proposed columns, and draw their parameters given them."""
    cdef Py_ssize_t n_written = n_new
    if state.prior.grows and n_new > n_old:
        state.add_feature(0, rng)
        self.features[n_old] = state.Z.n_latent - 1
    self.part.settle_params(rng)
    if not state.prior.grows and n_new < n_old:
        # A feature of no row has parameters too.
        self.part.add_feature(rng)
        self.Z.append()
        n_written = n_old
    self.part.give_back(state.model, &self.features[0])
    for i in range(state.n_samples):
        for j in range(n_written):
            state.Z.set(i, self.features[j], self.Z.row(i)[j])
    if state.prior.grows and n_new < n_old:
        state.remove_feature(self.features[n_new])
