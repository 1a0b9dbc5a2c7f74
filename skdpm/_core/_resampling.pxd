# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
"""Resampling of weighted particles: conditional, for particle Gibbs, and unconditional, for SMC.

In conditional resampling, particles with the same history are one *node* with a multiplicity. One
node may be *retained* (-1: none): the start of particle Gibbs, which always keeps a particle.
"""
from libc.math cimport INFINITY, exp, floor, log, pow

from skdpm._core._rng cimport bitgen_t, integer, uniform
from skdpm._core._tiles cimport tile_exp


cdef enum Resampling:
    MULTINOMIAL
    STRATIFIED
    SYSTEMATIC
    OPTIMAL


cdef inline double exponentiate(
    const double* log_w, double* w, Py_ssize_t n    # IN (n,), OUT (n,): exp(log_w - max)
) noexcept nogil:
    """Returns the largest log weight, or NaN if it is not finite or any weight is NaN."""
    cdef double top = -INFINITY
    for j in range(n):
        if not (log_w[j] <= top):
            top = log_w[j]
    if not (-INFINITY < top < INFINITY):
        return top - top
    for j in range(n):
        # Close to underflow the exponential is slow.
        w[j] = 0.0 if log_w[j] - top < -700.0 else exp(log_w[j] - top)
        if not (w[j] >= 0.0):
            return w[j]
    return top


cdef inline bint ess_is_below(
    double threshold, const double* w, const Py_ssize_t* counts, Py_ssize_t n_nodes
) noexcept nogil:
    """Whether the effective sample size is below `threshold` times the number of particles. A
    single node has equal weights, which rounding must not change."""
    cdef Py_ssize_t n = 0
    cdef double total = 0.0, squares = 0.0
    for g in range(n_nodes):
        n += counts[g]
        total += counts[g] * w[g]
        squares += counts[g] * w[g] * w[g]
    return n_nodes > 1 and total * total < threshold * n * squares


cdef inline void resample(
    bitgen_t* rng, int scheme, const double* w, Py_ssize_t* counts, Py_ssize_t n_nodes,
    Py_ssize_t retained,
    Py_ssize_t* particles       # scratch (sum of counts,)
) noexcept nogil:
    """Draw new multiplicities by the weights w of the nodes' particles.

    Stratified and systematic schemes, which need a retained node, leave the law of particle Gibbs
    invariant if the probability of an outcome is that of the scheme times the number of offspring
    of the retained particle, for a random order of the particles. A uniform point in that
    particle's part of the unit interval draws from this law: it fixes the offset of its stratum,
    or of all strata.
    """
    cdef Py_ssize_t _draw
    cdef Py_ssize_t n = 0
    cdef Py_ssize_t kept = 0        # the retained particle
    cdef double total = 0.0
    for g in range(n_nodes):
        for j in range(counts[g]):
            particles[n] = g
            if g == retained and j == 0:
                kept = n
            n += 1
        total += counts[g] * w[g]
        counts[g] = 0
    if retained >= 0:
        counts[retained] = 1
    if scheme == MULTINOMIAL:
        for _draw in range(n - (retained >= 0)):
            u = uniform(rng) * total
            p = 0
            while p < n - 1 and u >= w[particles[p]]:       # ends at the last particle
                u -= w[particles[p]]
                p += 1
            counts[particles[p]] += 1
        return
    for j in range(n - 1, 0, -1):
        p = integer(rng, j + 1)
        particles[j], particles[p] = particles[p], particles[j]
        if kept == j:
            kept = p
        elif kept == p:
            kept = j
    before = 0.0
    for p in range(kept):
        before += w[particles[p]]
    point = n * (before + uniform(rng) * w[retained]) / total
    stratum = min(<Py_ssize_t>floor(point), n - 1)      # rounding may give n
    p = 0
    cumulated = w[particles[0]] * n / total
    for m in range(n):
        if m == stratum:
            continue        # the retained particle, counted above
        u = point - stratum if scheme == SYSTEMATIC else uniform(rng)
        while p < n - 1 and m + u >= cumulated:     # ends at the last particle
            p += 1
            cumulated += w[particles[p]] * n / total
        counts[particles[p]] += 1


cdef inline bint resample_if_uneven(
    bitgen_t* rng, int scheme, double threshold,
    double* log_w, double* w,               # INOUT (n_nodes,); scratch (n_nodes,)
    Py_ssize_t* counts, Py_ssize_t n_nodes, Py_ssize_t retained,
    Py_ssize_t* particles                   # scratch (sum of counts,)
) noexcept nogil:
    """`resample` if the effective sample size is below the threshold. Returns whether it was; then
    the particles have equal weights."""
    exponentiate(log_w, w, n_nodes)
    if not ess_is_below(threshold, w, counts, n_nodes):
        return False
    resample(rng, scheme, w, counts, n_nodes, retained, particles)
    for g in range(n_nodes):
        # Particles without offspring must not set the scale of the weights.
        log_w[g] = 0.0 if counts[g] > 0 else -INFINITY
    return True


cdef inline double thinning_scale(
    const double* w, Py_ssize_t* light, Py_ssize_t n, Py_ssize_t n_expected     # scratch (n,)
) noexcept nogil:
    """The root c of sum min(c w, 1) = n_expected < n."""
    cdef Py_ssize_t k
    cdef Py_ssize_t n_small = n
    cdef double small = 0.0, scale = 0.0
    # Weights of at least 1/c survive with certainty, and (n_expected - their number) / (sum of the
    # others) is c. Their number never falls, so that rounding at a weight of exactly 1/c causes no
    # endless loop. `light` lists the others.
    for j in range(n):
        light[j] = j
        small += w[j]
    while small > 0.0 and n - n_small < n_expected:
        scale = (n_expected - (n - n_small)) / small
        small = 0.0
        k = 0
        for j in range(n_small):
            if w[light[j]] * scale < 1.0:
                light[k] = light[j]
                k += 1
                small += w[light[j]]
        if k == n_small:
            break
        n_small = k
    return scale


cdef inline bint resample_optimal(
    bitgen_t* rng, double* log_w, Py_ssize_t* counts, double* w, Py_ssize_t n, Py_ssize_t retained,
    Py_ssize_t n_expected
) noexcept nogil:
    """Optimal resampling of n > n_expected different histories (Fearnhead & Clifford 2003). With c
    the root of sum min(c w, 1) = n_expected, a history survives with probability min(c w, 1),
    independently (Barembruch et al. 2009), and then has the weight max(w, 1/c). The retained one
    always survives, with that weight (Whiteley, Andrieu & Doucet 2010). If none is retained and
    none survives, the heaviest one does, as an unconditional run may draw from any law.

    Sets counts to 1 or 0; w is scratch. Returns False if the weights are no distribution.
    """
    cdef double top = exponentiate(log_w, w, n)
    if top != top:
        return False
    scale = thinning_scale(w, counts, n, n_expected)
    k = 0
    for j in range(n):
        counts[j] = 1
        if w[j] * scale < 1.0:
            if j == retained or uniform(rng) < w[j] * scale:
                log_w[j] = top - log(scale)
            else:
                counts[j] = 0
        k += counts[j]
    if k == 0:
        for j in range(n):
            if log_w[j] > log_w[k]:
                k = j
        counts[k] = 1
    return True


cdef inline Py_ssize_t draw_node(
    bitgen_t* rng, const double* log_w, const Py_ssize_t* counts, double* w, Py_ssize_t n
) noexcept nogil:
    """Draw a node by the weight of its particles; -1 if the weights are no distribution."""
    cdef double total = 0.0
    cdef double top = exponentiate(log_w, w, n)
    if top != top:
        return -1
    for g in range(n):
        w[g] *= counts[g]
        total += w[g]
    if not total > 0.0:
        return -1
    u = uniform(rng) * total
    for g in range(n - 1):
        u -= w[g]
        if u < 0.0:
            return g
    g = n - 1
    while w[g] == 0.0:      # ends: their total is positive
        g -= 1
    return g


# Unconditional resampling.


cdef inline void resample_freely(
    bitgen_t* rng, int scheme, const double* w, Py_ssize_t* counts, Py_ssize_t n
) noexcept nogil:
    """Draw numbers of offspring of n particles, n in all, with means n w / sum(w). Systematic
    resampling uses one uniform number, the other schemes n."""
    cdef double total = 0.0, u = 0.0, last = 1.0
    for j in range(n):
        total += w[j]
        counts[j] = 0
    if scheme == MULTINOMIAL:
        # Uniform points in falling order: the largest of m is u^(1/m) of the one before.
        j = n - 1
        cumulated = total - w[j]
        for m in range(n, 0, -1):
            last *= pow(1.0 - uniform(rng), 1.0 / m)
            while j > 0 and last * total < cumulated:       # ends at the first particle
                j -= 1
                cumulated -= w[j]
            counts[j] += 1
        return
    if scheme == SYSTEMATIC:
        u = uniform(rng)
    j = 0
    cumulated = w[0]
    for m in range(n):
        if scheme == STRATIFIED:
            u = uniform(rng)
        point = (m + u) / n * total
        while j < n - 1 and point >= cumulated:             # ends at the last particle
            j += 1
            cumulated += w[j]
        counts[j] += 1


cdef inline bint thin_exactly(
    bitgen_t* rng, double* log_w, Py_ssize_t* counts, double* w, Py_ssize_t n, Py_ssize_t n_kept
) noexcept nogil:
    """Optimal resampling of n > n_kept different histories to n_kept, unconditional (Fearnhead &
    Clifford 2003). With c the root of sum min(c w, 1) = n_kept, histories with c w >= 1 keep their
    weight. The remaining survivors are drawn from the others by systematic sampling with
    probabilities c w, and get the weight 1/c. Uses one uniform number.

    Sets counts to 1 or 0; w is scratch. Returns False if the weights are no distribution.
    """
    cdef Py_ssize_t n_heavy
    cdef Py_ssize_t n_light = n
    cdef Py_ssize_t n_missing = n_kept
    cdef double bound = INFINITY, cumulated = 0.0
    # Histories of log weight `bound` or more keep their weight. If all others underflow relative
    # to them, the others are thinned alone. The loop ends, as n_missing falls each time.
    while True:
        top = -INFINITY
        for j in range(n):
            if log_w[j] < bound and log_w[j] > top:
                top = log_w[j]
        if not -INFINITY < top < INFINITY:
            return False
        for j in range(n):
            w[j] = -INFINITY if log_w[j] >= bound else log_w[j] - top
        tile_exp(w, n)
        scale = thinning_scale(w, counts, n, n_missing)
        n_heavy = 0
        small = 0.0
        lowest = bound
        for j in range(n):
            if w[j] * scale >= 1.0:
                n_heavy += 1
                lowest = min(lowest, log_w[j])
            else:
                small += w[j]
        if not small <= INFINITY:
            return False    # a NaN
        n_missing -= n_heavy
        n_light -= n_heavy
        if small > 0.0 or n_missing == 0:
            break
        bound = lowest
    point = uniform(rng)
    for j in range(n):
        counts[j] = log_w[j] >= bound or w[j] * scale >= 1.0
        if counts[j]:
            continue
        cumulated += w[j] * scale
        # The number of survivors is exact in spite of rounding.
        if n_missing > 0 and (cumulated > point or n_light == n_missing):
            counts[j] = 1
            log_w[j] = top - log(scale)
            n_missing -= 1
            point += 1.0
        n_light -= 1
    return True
