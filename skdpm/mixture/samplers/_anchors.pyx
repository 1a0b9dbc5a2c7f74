# SPDX-License-Identifier: BSD-3-Clause
"""The law of the anchors of split-merge moves: Bouchard-Cote, Doucet & Roth (2017), appendix F.

A move is exact under any law h(s) of the anchors that does not depend on the current state. The
law q(s | c) may also depend on the current partition c if the move then targets the joint density
p(c | X) q(s | c) of partition and anchors, with s fixed: it weighs a partition c' by q(s | c') as
well as by its posterior probability. "neighbours" is a law of this kind. For anchors i, j in
clusters a, b of sizes n_a, n_b, among K clusters:

    first    probability 1 / 2n + 1 / (2 K n_a), so that small clusters are drawn about as often as
             large ones;
    second   with probability 1/2 (1 if K = 1, 0 if n_a = 1) in the same cluster; otherwise in
             b with probability proportional to the square root of p(x_i | x_b), or one time in ten
             in a uniformly drawn other cluster. Within the cluster it is uniform.

If clusters are coupled, all other clusters have equal probability.

The informed laws depend on a *snapshot* of a clustering instead. In warm-up, whose draws are
dropped, the snapshot follows the chain. The snapshot after the last warm-up iteration is final and
part of the chain's saved state. Without warm-up anchors are always uniform. Each replica of a
chain has its own snapshot, which does not depend on the replica's current state.
"""
from libc.math cimport INFINITY, NAN, exp, log

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._rng cimport bitgen_t, categorical_log, integer, uniform
from skdpm.mixture.state._state cimport MixtureState, as_indices
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel

cdef enum:
    # Largest number of clusters of a snapshot, which costs a merge per pair of clusters.
    MAX_CLUSTERS = 512

# Neighbours: probability that the first anchor is a uniform item rather than an item of a uniform
# cluster; that the second is in the same cluster; that it is otherwise in a uniformly drawn other
# cluster; and the power of the densities by which the other cluster is drawn.
cdef double BY_ITEM = 0.5
cdef double TOGETHER = 0.5
cdef double ANYWHERE = 0.1
cdef double TEMPER = 0.5


ANCHORS = ("uniform", "neighbours", "cluster_informed", "threshold_informed")
INFORMED = ANCHORS[2:]


cdef class Members(MemoryOwner):

    cdef int reserve(self, MixtureState state) except -1:
        """Make room for the items and slots of a state, and keep the lists."""
        if state.n_samples > self.n_samples:
            self.next = <Py_ssize_t*>self.resized(self.next, state.n_samples, sizeof(Py_ssize_t))
            self.n_samples = state.n_samples
        if state.capacity > self.n_slots:
            self.first = <Py_ssize_t*>self.resized(self.first, state.capacity, sizeof(Py_ssize_t))
            self.n_slots = state.capacity

    cdef void collect(self, MixtureState state) noexcept nogil:
        """List the items of every cluster."""
        for i in range(state.n_samples - 1, -1, -1):    # each list is then in ascending order
            if state.labels[i] >= 0:
                self.join(state.labels[i], i)


cdef class Snapshot:

    def __init__(self):
        self.arrays = {}

    def take(self, MixtureState state, str kind, double threshold):
        """Store the clustering of a state and the arrays for a law of anchors."""
        self.forget()
        self.n_clusters = state.n_clusters
        if not 2 <= state.n_clusters <= MAX_CLUSTERS:
            return
        labels = state.cluster_labels()
        start = np.zeros(state.n_clusters + 1, dtype=np.intp)
        np.cumsum(state.cluster_sizes(), out=start[1:])
        arrays = {
            "labels": labels,
            "members": np.argsort(labels, kind="stable")[np.count_nonzero(labels < 0) :],
            "start": start,
        }
        if kind == "cluster_informed":
            arrays["cumulative"] = merge_probabilities(state)
        else:
            arrays["eligible"] = attachment(state, threshold)
        self.bind(arrays)

    def forget(self):
        """Drop the clustering."""
        self.informed = False
        self.n_clusters = 0
        self.arrays = {}

    def bind(self, dict arrays):
        """Use the arrays of a clustering; integers may have any type."""
        self.arrays = arrays | {
            name: np.ascontiguousarray(arrays[name], dtype=np.intp)
            for name in ("labels", "members", "start")
        }
        self.labels = self.arrays["labels"]
        self.members = self.arrays["members"]
        self.start = self.arrays["start"]
        self.cumulative = arrays.get("cumulative")
        self.eligible = arrays.get("eligible")
        self.n_clusters = self.start.shape[0] - 1
        self.informed = True

    cdef Py_ssize_t second_cluster(self, bitgen_t* rng, Py_ssize_t i) noexcept nogil:
        """Draw the cluster of the snapshot for the second anchor; -1 if there is none, or if the
        first was noise in the snapshot."""
        cdef Py_ssize_t n_eligible = 0
        if self.labels[i] < 0:
            return -1
        if self.cumulative is not None:
            u = uniform(rng) * self.cumulative[self.labels[i], self.n_clusters - 1]
            for k in range(self.n_clusters - 1):
                if u < self.cumulative[self.labels[i], k]:
                    return k
            return self.n_clusters - 1
        for k in range(self.n_clusters):
            n_eligible += self.eligible[i, k]
        if n_eligible == 0:
            return -1
        n_eligible = integer(rng, n_eligible)
        for k in range(self.n_clusters):
            n_eligible -= self.eligible[i, k]
            if n_eligible < 0:
                return k
        return -1

    def get_state(self):
        """Return plain objects for `set_state`, integers in the smallest type."""
        arrays = dict(self.arrays)
        for name in ("labels", "members", "start"):
            if name in arrays:
                lowest, highest = arrays[name].min(), arrays[name].max()
                smallest = np.min_scalar_type(highest if lowest >= 0 else -1 - highest)
                arrays[name] = arrays[name].astype(smallest)
        return {
            "seen_warmup": bool(self.seen_warmup),
            "frozen": bool(self.frozen),
            "n_clusters": self.n_clusters,
            "arrays": arrays,
        }

    def set_state(self, saved):
        self.forget()
        self.seen_warmup = saved["seen_warmup"]
        self.frozen = saved["frozen"]
        self.n_clusters = saved["n_clusters"]
        if saved["arrays"]:
            self.bind(saved["arrays"])


def merge_probabilities(MixtureState state):
    """Algorithm 4: for each cluster of the first anchor, cumulated probabilities of the second's.

    They are proportional to L(union) / (L(one) L(other)); within a cluster, to their mean.
    """
    cdef Py_ssize_t a, b
    cdef Py_ssize_t k = state.n_clusters
    ratios = np.full((k, k), -np.inf)
    cdef double[:, ::1] log_ratio = ratios
    state.reserve(k + 2)
    for a in range(1, k):
        state.model.log_merge_many(as_indices(state.slots, a), state.slots[a], &log_ratio[a, 0])
        for b in range(a):
            log_ratio[b, a] = log_ratio[a, b]
    if not (ratios < np.inf).all():     # a NaN fails this comparison too
        a, b = np.argwhere(~(ratios < np.inf))[0]
        labels = state.cluster_labels()
        i, j = (np.argmax(labels == k) for k in (a, b))
        raise FloatingPointError(
            f"rows {i} and {j}: the union of their clusters has no density; check "
            "these rows for extreme values"
        )
    # If no union is possible, the second anchor is in the cluster of the first.
    top = np.maximum(ratios.max(axis=1, keepdims=True), -np.finfo(float).max)
    weights = np.exp(ratios - top)
    mean = weights.sum(axis=1) / (k - 1)
    weights[np.arange(k), np.arange(k)] = np.where(mean > 0, mean, 1.0)
    return np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)


def attachment(MixtureState state, double threshold):
    """Algorithm 5: whether each item, removed from its cluster, would join each cluster with a
    probability of at least `threshold`; (n_samples, n_clusters)."""
    cdef Py_ssize_t size
    cdef Py_ssize_t k = state.n_clusters
    cdef ClusterModel model = state.model
    cdef double[::1] w = np.empty(k)
    eligible = np.zeros((state.n_samples, k), dtype=np.int8)
    cdef signed char[:, ::1] may = eligible
    with nogil:
        for i in range(state.n_samples):
            own = state.labels[i]
            if own >= 0 and state.sizes[own] > 1:
                state.labels[i] = -1
                model.remove(own, i)
            model.log_predictive_many(as_indices(state.slots, k), i, &w[0])
            top = -INFINITY
            for j in range(k):
                size = state.sizes[state.slots[j]] - (state.slots[j] == own)
                w[j] += state.prior.log_join[size]    # log 0 for a cluster with i alone
                if not (w[j] <= top):                 # a NaN remains the largest
                    top = w[j]
            if not (top < INFINITY):
                raise FloatingPointError(f"row {i}: a density is not a number")
            total = 0.0
            for j in range(k):
                w[j] = exp(w[j] - top) if w[j] > -INFINITY else 0.0
                total += w[j]
            for j in range(k):
                may[i, j] = w[j] > 0.0 and w[j] >= threshold * total
            if own >= 0 and state.sizes[own] > 1:
                model.add(own, i)
                state.labels[i] = own
        model.settle()
    return eligible


cdef double log_first(Py_ssize_t n_samples, Py_ssize_t n_clusters, Py_ssize_t size) noexcept nogil:
    """log probability that an item of a cluster of a given size is the first of two neighbours."""
    return log(BY_ITEM / n_samples + (1.0 - BY_ITEM) / (<double>n_clusters * size))


cdef double probability_together(Py_ssize_t n_clusters, Py_ssize_t size) noexcept nogil:
    """Probability that the second anchor is in the cluster of the first."""
    return 1.0 if n_clusters == 1 else 0.0 if size == 1 else TOGETHER


cdef double log_apart(
    Py_ssize_t n_samples, Py_ssize_t n_clusters, Py_ssize_t size, Py_ssize_t other_size, double p
) noexcept nogil:
    """log q of two anchors in different clusters of these sizes; p is the tempered probability of
    the second's cluster given the row of the first."""
    return log(
        (1.0 - probability_together(n_clusters, size))
        * ((1.0 - ANYWHERE) * p + ANYWHERE / (n_clusters - 1)) / other_size
    ) + log_first(n_samples, n_clusters, size)


cdef class AnchorProposal:
    """The law of the anchors. `kind` is that of the first two; further ones are uniform. The
    threshold is the smallest attachment probability for the second, with "threshold_informed"."""

    def __init__(self, str kind, double threshold=0.01):
        self.kind = kind
        self.threshold = threshold
        self.snapshots = []
        self.extended = kind == "neighbours"

    cdef int update(self, MixtureState state, bint adapting, Py_ssize_t replica) except -1:
        """Update the snapshot of a replica before its move, or freeze it."""
        cdef Snapshot snapshot
        while len(self.snapshots) <= replica:
            self.snapshots.append(Snapshot())
        snapshot = self.snapshots[replica]
        self.snapshot = snapshot
        self.n_samples = state.n_samples
        if self.extended or self.kind == "uniform" or snapshot.frozen:
            return 0
        if adapting:
            snapshot.seen_warmup = True
            if state.n_clusters != snapshot.n_clusters:
                snapshot.take(state, self.kind, self.threshold)
        else:
            snapshot.frozen = True
            if snapshot.seen_warmup:
                snapshot.take(state, self.kind, self.threshold)

    cdef void draw(
        self, MixtureState state, Members members, bitgen_t* rng,
        Py_ssize_t* anchors, Py_ssize_t n_anchors       # OUT (n_anchors,)
    ) noexcept nogil:
        """Draw n_anchors <= n_samples different items. Items that are noise are drawn too, and
        refused by the closure: the law of the others then does not depend on their number."""
        cdef Py_ssize_t i
        cdef Py_ssize_t known[MAX_ANCHORS]      # the anchors, ascending
        SKDPM_CHECK(n_anchors <= self.n_samples, "draw: more anchors than items")
        if self.extended and n_anchors > 1:
            n = draw_neighbours(self, state, members, rng, anchors)
        else:
            n = 1
            first = anchors[0] = integer(rng, self.n_samples)
        if n == 1 and self.snapshot.informed:
            cluster = self.snapshot.second_cluster(rng, first)
            if cluster >= 0:
                n_members = self.snapshot.start[cluster + 1] - self.snapshot.start[cluster]
                if cluster == self.snapshot.labels[first]:
                    n_members -= 1
                if n_members > 0:
                    i = self.snapshot.members[
                        self.snapshot.start[cluster] + integer(rng, n_members)
                    ]
                    if i == first:
                        i = self.snapshot.members[self.snapshot.start[cluster] + n_members]
                    anchors[1] = i
                    n = 2
                else:
                    anchors[0] = integer(rng, self.n_samples)
        known[0] = anchors[0]
        if n == 2:
            known[0], known[1] = min(anchors[0], anchors[1]), max(anchors[0], anchors[1])
        for m in range(n, n_anchors):
            # The i-th item among those that are no anchors: each smaller anchor shifts it by one.
            i = integer(rng, self.n_samples - m)
            for j in range(m):
                i += known[j] <= i
            anchors[m] = i
            j = m
            while j > 0 and known[j - 1] > i:       # ends at j = 0 at the latest
                known[j] = known[j - 1]
                j -= 1
            known[j] = i

    cdef void weigh_clusters(self, MixtureState state, Py_ssize_t i) noexcept nogil:
        """Write tempered log p(x_i | each cluster) to `state.log_w`; 0 if clusters are coupled,
        where densities exist only for detached items."""
        if state.model.factorizes:
            slots = as_indices(state.slots, state.n_clusters)
            state.model.log_predictive_many(slots, i, state.log_w)
        for j in range(state.n_clusters):
            state.log_w[j] = TEMPER * state.log_w[j] if state.model.factorizes else 0.0

    cdef double log_q_together(
        self, MixtureState state, Py_ssize_t n_clusters, Py_ssize_t size
    ) noexcept nogil:
        """log q(anchors | a partition into `n_clusters`, one of which has `size` items and both
        anchors); 0 if q does not depend on the partition."""
        if not self.extended:
            return 0.0
        return (
            log_first(state.n_samples, n_clusters, size)
            + log(probability_together(n_clusters, size)) - log(size - 1.0)
        )

    cdef double log_q_at(
        self, MixtureState state, Indices old_slots,
        const Py_ssize_t* slots, const Py_ssize_t* sizes, Py_ssize_t n_slots,
        Py_ssize_t first, Py_ssize_t a, Py_ssize_t b
    ) noexcept nogil:
        """log q(anchors | the partition with `slots` in place of `old_slots`), if the anchors are
        in the a-th and b-th of `slots`; 0 if q does not depend on the partition."""
        cdef Py_ssize_t k = state.n_clusters - old_slots.n + n_slots
        cdef double log_w[MAX_ANCHORS]
        cdef double total = 0.0
        if not self.extended or a == b:
            return self.log_q_together(state, k, sizes[a])
        self.weigh_clusters(state, first)
        for m in range(old_slots.n):
            state.log_w[state.position[old_slots.at[m]]] = -INFINITY
        if state.model.factorizes:
            state.model.log_predictive_many(as_indices(slots, n_slots), first, log_w)
        for j in range(n_slots):
            log_w[j] = TEMPER * log_w[j] if state.model.factorizes else 0.0
        for j in range(n_slots):
            if j != a:
                total += exp(log_w[j] - log_w[b])
        for j in range(state.n_clusters):
            total += exp(state.log_w[j] - log_w[b])
        return log_apart(state.n_samples, k, sizes[a], sizes[b], 1.0 / total)

    def record(self, Py_ssize_t t, states, bint adapting):
        """Do nothing: `update` takes the snapshots."""

    def keep_replicas(self, Py_ssize_t n):
        """See `PartitionKernel.keep_replicas`."""
        del self.snapshots[n:]

    def get_state(self):
        """Return plain objects for `set_state`."""
        return {"snapshots": [snapshot.get_state() for snapshot in self.snapshots]}

    def set_state(self, saved):
        """Restore what `get_state` returned."""
        cdef Snapshot snapshot
        self.snapshots = []
        for entry in saved["snapshots"]:
            snapshot = Snapshot()
            snapshot.set_state(entry)
            self.snapshots.append(snapshot)


cdef Py_ssize_t draw_neighbours(
    AnchorProposal self, MixtureState state, Members members, bitgen_t* rng, Py_ssize_t* anchors
) noexcept nogil:
    """Draw two anchors given the current partition and set `log_q`; return their number. If
    the first is noise, or no other item is in a cluster, it is the only one."""
    cdef Py_ssize_t k = state.n_clusters
    cdef Py_ssize_t b
    cdef double total = 0.0
    if uniform(rng) < BY_ITEM:
        anchors[0] = integer(rng, state.n_samples)
        a = state.labels[anchors[0]]
        if a < 0:
            return 1
    else:
        if k == 0:
            anchors[0] = 0
            return 1
        a = state.slots[integer(rng, k)]
        anchors[0] = members.at(a, integer(rng, state.sizes[a]))
    size = state.sizes[a]
    if k == 1 and size == 1:    # all others are noise
        return 1
    if uniform(rng) < probability_together(k, size):
        # Another item, uniformly: the last of the list replaces the first anchor.
        anchors[1] = members.at(a, integer(rng, size - 1))
        if anchors[1] == anchors[0]:
            anchors[1] = members.at(a, size - 1)
        self.log_q = self.log_q_together(state, k, size)
        return 2
    own = state.position[a]
    self.weigh_clusters(state, anchors[0])
    state.log_w[own] = -INFINITY
    b = categorical_log(rng, state.log_w, k)
    if b < 0:       # a density of the first anchor is NaN
        self.log_q = NAN
        anchors[1] = members.at(state.slots[0 if own > 0 else 1], 0)
        return 2
    for j in range(k):
        total += state.log_w[j]
    if uniform(rng) < ANYWHERE:
        b = integer(rng, k - 1)
        b += b >= own
    self.log_q = log_apart(
        state.n_samples, k, size, state.sizes[state.slots[b]], state.log_w[b] / total
    )
    anchors[1] = members.at(state.slots[b], integer(rng, state.sizes[state.slots[b]]))
    return 2
