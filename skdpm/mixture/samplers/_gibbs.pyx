# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs: every item in turn leaves its cluster and joins one by its full conditional,

    p(item i joins j | rest) ~ (n_j - sigma)          p(x_i | items of j),
    p(item i joins a new one) ~ V_{n,k+1} / V_{n,k}   p(x_i),

which is Neal (2000), algorithm 3, for any prior of Gibbs type. If there is noise, it is one more
choice: with probability eps ~ Beta(a, b) an item is noise, and the m others have the prior. Given
n_0 other items that are noise and m in clusters

    p(item i is noise | rest) ~ (a + n_0) / (b + m) V_{m,k} / V_{m+1,k}  g(x_i),

where V of the line above is that of m + 1 items and V_{m,k} / V_{m+1,k} is the sum of the prior's
weights of all clusters and of a new one.

If the state has tiles of items, most of these weights are not computed: see `_core/_culling`, and
`doc/design.md` for the order in which clusters are evaluated.
"""
from libc.math cimport INFINITY, exp, fabs, log

from skdpm._core._culling cimport bounds_pay, log_sum_far, part_near, skips_bounds
from skdpm._core._rng cimport bitgen_t, categorical_log_at, uniform
from skdpm._core._tiles cimport tile_exp
from skdpm.mixture.likelihoods.contract._base cimport Indices, as_indices, log_constant
from skdpm.mixture.state._state cimport NOISE, MixtureState, TileBounds
from skdpm.mixture.samplers._base cimport PartitionKernel

from skdpm.mixture.state._state import unplaceable

cdef double NEGLIGIBLE = 60.0 * log(2.0)    # gap of log weights that is lost to rounding
cdef double CERTAIN = 53.0 * log(2.0)       # 1 + exp(-CERTAIN) is 1
# A cluster with a bound this far below a group's best one is likely to be far from all its items.
cdef double MARGIN = 25.0

# Clusters with bounds this far below the weight of the item's own are evaluated only if needed.
cdef double SMALL = 7.0
cdef double MOST_REST = 0.1     # maximum sum of the bounds of these, as a share of that weight

cdef enum:
    CALL = 3            # fixed cost of weighing an item, in evaluations
    # Cost of an evaluation where clusters are ruled out (`choose_near`): 3 of 8.
    PARTIAL = 3
    WHOLE = 8
    UNDECIDED = -3      # no slot, and not NOISE


cdef inline void exponentiate_many(double* x, Py_ssize_t n) noexcept nogil:
    """exp(x), in place; there must be room for eight more numbers behind."""
    cdef Py_ssize_t n_padded = (n + 7) // 8 * 8
    for j in range(n, n_padded):
        x[j] = 0.0
    tile_exp(x, n_padded)


cdef inline double weigh_noise(MixtureState state, Py_ssize_t i) noexcept nogil:
    """Log weight of noise, comparable with bounds, of a detached item; -infinity: no noise."""
    if state.noise is None:
        return -INFINITY
    return state.log_noise_weight(state.n_noise, state.n_attached) + state.noise.log_density[i]


cdef inline void weigh(
    MixtureState state, Indices slots, Py_ssize_t i, double* log_w
) noexcept nogil:
    """Log weights of clusters for an item in none, with its constant, as in bounds."""
    cdef double of_item = log_constant(state.model, i)
    state.model.log_predictive_many(slots, i, log_w)
    for j in range(slots.n):
        log_w[j] += state.log_prior_weight(slots.at[j]) + of_item


# Tiles.

cdef void bound_group(MixtureState state, TileBounds bounds, Py_ssize_t group) noexcept nogil:
    """List the clusters near a group, and bound the sum of the weights of all others."""
    cdef Py_ssize_t n_slots = state.n_clusters + 1
    cdef double* log_w = &bounds.log_w[0]
    cdef double top = -INFINITY
    state.model.settle()
    state.model.log_predictive_bound_many(
        as_indices(state.slots, n_slots), &bounds.tiles.group_boxes[group, 0, 0], log_w
    )
    for k in range(n_slots):
        log_w[k] += state.log_prior_weight(state.slots[k])
        top = max(top, log_w[k])
    # The spare cluster, the last, always counts as near.
    n_near = part_near(log_w, n_slots - 1, top - NEGLIGIBLE - MARGIN, &bounds.near[0])
    bounds.far = log_sum_far(log_w, &bounds.near[n_near], n_slots - 1 - n_near, -INFINITY)
    for k in range(n_near):
        bounds.near[k] = state.slots[bounds.near[k]]
    bounds.near[n_near] = state.slots[n_slots - 1]
    bounds.n_near = n_near + 1
    bounds.work += n_slots
    bounds.group = group
    bounds.tile = -1


cdef void bound_tile(MixtureState state, TileBounds bounds, Py_ssize_t tile) noexcept nogil:
    """Bound the weights of clusters near the group over one of its tiles."""
    cdef Py_ssize_t n = bounds.n_near
    cdef double* bound = &bounds.bound[0]
    cdef double* share = &bounds.share[0]
    cdef double top = bounds.far
    state.model.log_predictive_bound_many(
        as_indices(&bounds.near[0], n), &bounds.tiles.boxes[tile, 0, 0], bound
    )
    bounds.noise = -INFINITY
    if state.noise is not None:
        # For an item that is in a cluster.
        bounds.noise = bounds.log_noise[tile] + state.log_noise_weight(
            state.n_noise, state.n_attached - 1
        )
    for m in range(n):
        bound[m] += state.log_prior_weight(bounds.near[m])
        top = max(top, bound[m])
    for m in range(n):
        share[m] = bound[m] - top
    exponentiate_many(share, n)
    bounds.top = top
    bounds.work += n
    bounds.tile = tile
    bounds.now += 1


cdef void bound_again(MixtureState state, TileBounds bounds, Py_ssize_t slot) noexcept nogil:
    """Bound a cluster again that has changed."""
    cdef Py_ssize_t m = 0
    if bounds.tile < 0:
        return      # all clusters will be bounded again
    while state.position[bounds.near[m]] < state.position[slot]:    # the spare one is the last
        m += 1
    if bounds.near[m] != slot:
        for n in range(bounds.n_near, m, -1):
            bounds.near[n] = bounds.near[n - 1]
            bounds.bound[n] = bounds.bound[n - 1]
            bounds.share[n] = bounds.share[n - 1]
        bounds.near[m] = slot
        bounds.n_near += 1
    state.model.log_predictive_bound_many(
        as_indices(&slot, 1), &bounds.tiles.boxes[bounds.tile, 0, 0], &bounds.bound[m]
    )
    bounds.bound[m] += state.log_prior_weight(slot)
    if bounds.bound[m] - bounds.top < 600.0:
        bounds.share[m] = exp(bounds.bound[m] - bounds.top)
    else:
        bounds.tile = -1    # its exponential is no double; the same with NaN
    bounds.work += 1 + CALL
    bounds.now += 1


cdef double log_sum_except(TileBounds bounds, Py_ssize_t own) noexcept nogil:
    """Bound of the log of the sum of weights of clusters but one (-1: all), without noise."""
    # 1e-300 covers terms that underflow.
    cdef double total = exp(bounds.far - bounds.top) + 1e-300
    for m in range(bounds.n_near):
        if bounds.near[m] != own:
            total += bounds.share[m]
    return bounds.top + log(total) + 1e-12


cdef void bound_rest(MixtureState state, TileBounds bounds, Py_ssize_t own) noexcept nogil:
    """Find the u below which items of the tile stay in a cluster: once per tile and cluster."""
    cdef double rest = log_sum_except(bounds, own)
    if bounds.noise > -INFINITY:
        top = max(rest, bounds.noise)
        rest = top + log(exp(rest - top) + exp(bounds.noise - top)) + 1e-12
    bounds.rest[own] = rest
    bounds.stays[own] = 0.0
    gap = bounds.rest[own] - state.prior.log_join[state.sizes[own] - 1]
    gap -= state.model.log_predictive_floor(own, &bounds.tiles.boxes[bounds.tile, 0, 0])
    if gap < CERTAIN:
        bounds.stays[own] = (1.0 - 1e-12) / (1.0 + exp(gap))
    bounds.work += 2 * CALL
    bounds.known[own] = bounds.now


cdef inline Py_ssize_t slots_except(
    TileBounds bounds, Py_ssize_t n_near, Py_ssize_t own
) noexcept nogil:
    """Turn the first places in `some` into slots, without the cluster `own`. Returns how many."""
    cdef Py_ssize_t n = 0
    for j in range(n_near):
        slot = bounds.near[bounds.some[j]]
        if slot != own:
            bounds.some[n] = slot
            n += 1
    return n


cdef Py_ssize_t choose_among_few(
    MixtureState state, TileBounds bounds, Py_ssize_t i, Py_ssize_t own, double log_own,
    double log_noise, double u
) noexcept nogil:
    """`choose_near` by the clusters with the largest bounds; UNDECIDED if these do not decide."""
    cdef double top = max(log_own, log_noise)
    cdef double rest = exp(bounds.far - bounds.top) + 1e-300
    cdef double* w = &bounds.log_w[0]
    cdef Py_ssize_t* some = &bounds.some[0]
    if not (fabs(bounds.top - log_own) < 600.0):
        return UNDECIDED
    n = part_near(&bounds.bound[0], bounds.n_near, log_own - SMALL, some)
    for j in range(n, bounds.n_near):
        rest += bounds.share[some[j]]
    n = slots_except(bounds, n, own)
    if 2 * n > bounds.n_near or rest * exp(bounds.top - log_own) > MOST_REST:
        return UNDECIDED
    weigh(state, as_indices(some, n), i, w)
    bounds.work += n + CALL
    for j in range(n):
        top = max(top, w[j])
    for j in range(n):
        w[j] -= top
    w[n] = log_own - top
    exponentiate_many(w, n + 1)
    total = w[n]
    for j in range(n):
        total += w[j]
    if log_noise > -INFINITY:
        total += exp(log_noise - top)
    rest *= exp(bounds.top - top) * (1.0 + 1e-12)
    before = w[n]
    if u * (total + rest) < before:
        return own
    for j in range(n):
        if u * (total + rest) < before + w[j] and u * total >= before + rest:
            return some[j]
        before += w[j]
    if log_noise > -INFINITY and u * total >= before + rest:     # the last in the order
        return NOISE
    return UNDECIDED


cdef Py_ssize_t choose_near(
    MixtureState state, TileBounds bounds, Py_ssize_t i, Py_ssize_t own, double log_own, double u
) noexcept nogil:
    """The slot, or NOISE, that u selects for item i, which has left the cluster `own` of log
    weight `log_own`; UNDECIDED if the weights are no distribution."""
    cdef Py_ssize_t m
    cdef double log_noise = weigh_noise(state, i)
    cdef double top = max(log_own, log_noise)
    cdef double* log_w = &bounds.log_w[0]
    cdef Py_ssize_t* some = &bounds.some[0]
    j = choose_among_few(state, bounds, i, own, log_own, log_noise, u)
    if j != UNDECIDED:
        return j
    n = part_near(&bounds.bound[0], bounds.n_near, log_own - NEGLIGIBLE, some)
    n = slots_except(bounds, n, own)
    weigh(state, as_indices(some, n), i, log_w)
    bounds.work += n + CALL
    for j in range(n):
        top = max(top, log_w[j])
    if not (bounds.far < top - NEGLIGIBLE):
        n = 0
        for m in range(state.n_clusters + 1):
            if state.slots[m] != own:
                some[n] = state.slots[m]
                n += 1
        weigh(state, as_indices(some, n), i, log_w)
        bounds.work += n
    m = n + (state.noise is not None)
    log_w[n] = log_noise
    log_w[m] = log_own
    j = categorical_log_at(u, log_w, m + 1, m)
    if j < 0:
        return UNDECIDED
    return own if j == m else NOISE if j == n else some[j]


cdef bint place_noise(
    MixtureState state, TileBounds bounds, bitgen_t* rng, Py_ssize_t i
) noexcept nogil:
    """`place_near` of an item that is noise."""
    cdef double u = uniform(rng)
    # Under other priors the weight of a new cluster is that of one more item in clusters.
    if state.prior.has_constant_ratios:
        gap = log_sum_except(bounds, -1) - state.noise.log_density[i]
        gap -= state.log_noise_weight(state.n_noise - 1, state.n_attached)
        bounds.work += CALL
        if gap < -CERTAIN or (gap < CERTAIN and u * (1.0 + exp(gap)) < 1.0):
            return True
    bounds.work += state.n_clusters + 1
    if not state.place_at(i, u, rng):
        return False
    if state.labels[i] != NOISE:
        bounds.group = -1
    return True


cdef inline bint place_near(
    MixtureState state, TileBounds bounds, bitgen_t* rng, Py_ssize_t i
) noexcept nogil:
    """Update item i of the tile. False if the weights are no distribution."""
    cdef Py_ssize_t own = state.labels[i]
    cdef double log_own
    if own == NOISE:
        return place_noise(state, bounds, rng, i)
    if state.sizes[own] == 1:
        bounds.group = -1
        bounds.work += state.n_clusters + 1
        return state.place(i, rng)
    if bounds.known[own] != bounds.now:
        bound_rest(state, bounds, own)
    u = uniform(rng)
    if u < bounds.stays[own]:
        return True
    state.detach(i)
    weigh(state, as_indices(&own, 1), i, &log_own)
    bounds.work += 1 + CALL
    gap = bounds.rest[own] - log_own
    if gap < -CERTAIN or (gap < CERTAIN and u * (1.0 + exp(gap)) < 1.0):
        state.attach(i, own)
        return True
    slot = choose_near(state, bounds, i, own, log_own, u)
    if slot == UNDECIDED:
        return False
    state.attach(i, slot)
    if slot == NOISE:
        bounds.group = -1
    elif slot != own:
        if state.position[slot] == state.n_clusters - 1 and state.sizes[slot] == 1:
            bounds.group = -1
        else:
            bound_again(state, bounds, own)
            bound_again(state, bounds, slot)
    return True


cdef Py_ssize_t sweep_tiles(
    MixtureState state, TileBounds bounds, bitgen_t* rng, Py_ssize_t first
) noexcept nogil:
    """`sweep_from` in the order of the tiles; items are given by their places in it."""
    cdef Py_ssize_t tile = 0
    cdef long long plain
    if first == 0:
        bounds.sweep_work = 0
    for group in range(bounds.tiles.n_groups):
        start = bounds.tiles.starts[bounds.tiles.group_starts[group]]
        stop = bounds.tiles.starts[bounds.tiles.group_starts[group + 1]]
        if stop <= first:
            continue
        start = max(start, first)
        paused = skips_bounds(bounds.backoff(group)) and not bounds.always or bounds.off
        bounds.work = 0
        bounds.n_bounded += not paused
        bounds.group = -1
        state.model.n_coming = 0
        tile = bounds.tiles.group_starts[group]
        for m in range(start, stop):
            if state.model.n_free == 0:
                return m
            i = bounds.tiles.order[m]
            if paused:
                state.model.coming = &bounds.tiles.order[m]
                state.model.n_coming = stop - m
                if not state.place(i, rng):
                    return -1 - m
                continue
            if bounds.group < 0:
                bound_group(state, bounds, group)
            while bounds.tiles.starts[tile + 1] <= m:
                tile += 1
            if bounds.tile != tile:
                bound_tile(state, bounds, tile)
            if not place_near(state, bounds, rng, i):
                return -1 - m
        plain = (stop - start) * (state.n_clusters + 1 + CALL)
        if paused:
            bounds.work = plain
        else:
            bounds_pay(bounds.backoff(group), bounds.work, plain)
        bounds.sweep_work += bounds.work
    return state.n_samples


# The sweep.

cdef Py_ssize_t sweep_from(MixtureState state, bitgen_t* rng, Py_ssize_t first) noexcept nogil:
    """Update the items from `first` on. Returns the item at which it stopped: n_samples when done,
    an earlier one if no slot is free, -1 - i if item i has no full conditional."""
    for i in range(first, state.n_samples):
        if state.model.n_free == 0:
            return i
        state.model.n_coming = state.n_samples - i
        if not state.place(i, rng):
            return -1 - i
    return state.n_samples


cdef int gibbs_sweep(MixtureState state, bitgen_t* rng) except -1 nogil:
    """One sweep over all items. It allocates memory only when clusters outgrow the arena: it then
    stops between two items and continues with a larger arena."""
    cdef Py_ssize_t i = 0
    # The arena doubles at each stop, and n_samples + 2 slots are always enough.
    while True:
        if state.bounds is not None:
            i = sweep_tiles(state, state.bounds, rng, i)
        else:
            i = sweep_from(state, rng, i)
        state.model.n_coming = 0
        state.model.coming = NULL
        if i == state.n_samples:
            break
        with gil:
            if i < 0:
                i = -1 - i
                if state.bounds is not None:
                    i = state.bounds.tiles.order[i]
                raise unplaceable(i)
            state.reserve(2 * state.capacity)
    if state.bounds is not None and state.model.n_incomplete > 0:
        state.place_incomplete(rng)
    state.filled = True


cdef int sweep(
    PartitionKernel kernel, MixtureState state, bitgen_t* rng, Py_ssize_t n_sweeps
) except -1 nogil:
    """Sweep, and add the work to that of a kernel: row evaluations of all clusters and of a new
    one, unless passed over, and the two moves of each item."""
    for _sweep in range(n_sweeps):
        gibbs_sweep(state, rng)
        if state.bounds is not None:
            kernel.work += state.bounds.sweep_work
        else:
            per_item = state.n_clusters + 3
            if state.model.finds_near and state.noise is None:
                per_item = PARTIAL * per_item // WHOLE + 1
            kernel.work += state.n_samples * per_item


cdef class GibbsKernel(PartitionKernel):
    cdef Py_ssize_t n_sweeps

    def __init__(self, Py_ssize_t n_sweeps):
        self.n_sweeps = n_sweeps

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        return sweep(self, state, rng, self.n_sweeps)
