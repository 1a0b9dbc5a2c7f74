# SPDX-License-Identifier: BSD-3-Clause
"""The state of a chain: labels, occupied clusters and their statistics, always in agreement."""
from libc.limits cimport UINT_MAX, USHRT_MAX
from libc.math cimport NAN, exp, lgamma, log
from libc.string cimport memcpy

from weakref import WeakValueDictionary

import numpy as np
from scipy.special import gammaln

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._rng cimport bitgen_t, categorical_log_at, uniform
from skdpm.mixture.likelihoods.contract._base cimport as_indices, log_constant, row


# The state that owns each model, by the model's id. A state keeps its model alive.
_OWNERS = WeakValueDictionary()


# Log of the ratio to the weight of an item's own cluster below which a bound is small.
cdef double CLEAR = -5.0


cdef class Noise:
    """The law of noise, whose probability is Beta(a, b). `log_density`, (n_samples,), is the
    natural log density of each item if it is noise, all constants included."""

    def __init__(self, double a, double b, log_density):
        self.a = a
        self.b = b
        self.log_density = np.ascontiguousarray(log_density, dtype=np.float64)

    cdef double log_law(self, Py_ssize_t n_noise, Py_ssize_t m) noexcept nogil:
        """log B(a + n_noise, b + m) / B(a, b): which items are noise, if m are not."""
        return (
            lgamma(self.a + n_noise) - lgamma(self.a) + lgamma(self.b + m) - lgamma(self.b)
            + lgamma(self.a + self.b) - lgamma(self.a + self.b + n_noise + m)
        )

    def log_probability(self, Py_ssize_t n_noise, Py_ssize_t m):
        """`log_law`, for Python."""
        return self.log_law(n_noise, m)

    def of(self, items):
        """The law of some items, in their order."""
        return Noise(self.a, self.b, np.asarray(self.log_density)[items])

    def clusters_for_noise(self, gains, sizes, n_noise, prior, least=0):
        """Find whole clusters that should be noise: those that lose least per row, as many as
        raise the log joint most, up to half of the rows.

        A state whose clusters overlap has many others like it, which the log joint of one does not
        count. So it may be less likely than one without clusters, although the clusters are real.

        - `gains`: (n_clusters,). log density of the rows of each cluster as noise, less their
          marginal likelihood.
        - `sizes`: (n_clusters,), intp.
        - `n_noise`: int. Number of other rows that are noise.
        - `prior`: PartitionPrior.
        - `least`: int, default=0. Number of clusters that stay in any case.

        Returns `clusters`: ndarray of int.
        """

        def log_prior(left):
            m = int(sizes[left].sum())
            log_law = self.log_probability(n_noise + int(sizes.sum()) - m, m)
            return log_law + prior.log_probability(sizes[left])

        factors = gammaln(sizes - prior.sigma) - gammaln(1.0 - prior.sigma)
        order = np.argsort(-(gains - factors) / sizes, kind="stable")
        best, chosen = log_prior(order), 0
        total = 0.0
        most = (int(sizes.sum()) + n_noise) // 2 - n_noise
        for j in range(len(order) - least):
            if sizes[order[: j + 1]].sum() > most:
                break
            total += gains[order[j]]
            value = total + log_prior(order[j + 1 :])
            if value > best:
                best, chosen = value, j + 1
        return order[:chosen]


cdef class TileBounds:

    def __cinit__(self, RowTiles tiles, pauses=None, Noise noise=None):
        shape = tiles.n_groups, sizeof(Backoff)
        if pauses is not None and np.shape(pauses) != shape:
            raise ValueError("the saved state has other rows")
        self.tiles = tiles
        self.group = self.tile = -1
        self.backoffs = np.zeros(shape, np.uint8) if pauses is None else np.array(pauses)
        if noise is not None:
            ordered = np.asarray(noise.log_density)[np.asarray(tiles.order)]
            starts = np.asarray(tiles.starts)
            self.log_noise = np.maximum.reduceat(ordered, starts[: len(starts) - 1])

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        """Make room for `n_slots` clusters; no bound is known afterwards."""
        cdef Py_ssize_t n = n_slots + 8     # exponentials are taken eight at a time
        self.near, self.some = np.empty((2, n), dtype=np.intp)
        self.bound, self.share, self.rest, self.stays, self.log_w = np.empty((5, n))
        self.known = np.full(n_slots, -1)
        self.group = self.tile = -1


def unplaceable(i):
    """The error that no cluster can take a row, to be raised."""
    return FloatingPointError(
        f"row {i}: no cluster has a positive weight; look for a value that is far too large, or "
        "rescale the columns"
    )


cdef class MixtureState(MemoryOwner):
    """State of one chain, from a partition.

    - `model`: ClusterModel. Model bound to the items; its clusters are replaced. It belongs to
      this state alone, as long as the state lives. Another state of these items needs another
      model, made by `likelihood.bind` from the same data and tables.
    - `labels`: (n_samples,), optional. Cluster of each item, 0, ..., K - 1, none empty; -1 for an
      item in none: noise, if there is noise, or detached. Default: no item is in one.
    - `saved`: dict, optional. Result of `save`, in place of labels; the chain then continues with
      the same bits. (Rows computed anew would differ in their last digits, and other slots in the
      order of sums.)
    - `n_samples`: int, optional. Number of items, the first ones of the model. Default: all.
    - `tiles`: RowTiles, optional. Tiles of the points of the items without gaps
      (`Likelihood.box_points`). Sweeps then visit tile by tile, and pass over far clusters.
    - `completion`: (n_gaps,), optional. Values of missing entries (`ClusterModel.complete`); not
      with `saved`, which has them.
    - `noise`: Noise, optional. Law of items that are noise. Default: all items are in clusters.
    """

    def __init__(
        self, ClusterModel model, PartitionPrior prior, labels=None, saved=None, n_samples=None,
        RowTiles tiles=None, completion=None, Noise noise=None
    ):
        cdef const Py_ssize_t[::1] slots, given
        cdef Py_ssize_t[::1] view
        if _OWNERS.get(id(model), self) is not self:
            raise ValueError("the model belongs to another state; bind a model for each state")
        self.model = model
        self.prior = prior
        self.n_samples = model.n_samples if n_samples is None else n_samples
        if not 0 <= self.n_samples <= model.n_samples:
            raise ValueError(f"{n_samples} items of {model.n_samples}")
        if prior.n_samples < self.n_samples:
            raise ValueError(f"a prior of {prior.n_samples} items for {self.n_samples}")
        if noise is not None and noise.log_density.shape[0] != self.n_samples:
            raise ValueError("the noise does not fit the items")
        self.noise = noise
        if tiles is not None:
            if tiles.n_rows != self.n_samples - model.n_incomplete:
                raise ValueError(f"tiles of {tiles.n_rows} rows for {self.n_samples} items")
            pauses = None if saved is None else saved.get("pauses")
            self.bounds = TileBounds(tiles, pauses, noise)
        if saved is None:
            if labels is None:
                labels = np.full(self.n_samples, -1, dtype=np.intp)
            given = _as_labels(labels, self.n_samples)
            self.n_clusters = len(_first_items(np.asarray(given)))
        else:
            given, slots = _saved_labels(saved, self.n_samples, noise is not None)
            self.n_clusters = slots.shape[0] - 1
        _OWNERS[id(model)] = self
        if model.n_incomplete > 0:
            model.complete(completion if saved is None else saved["completion"])
        self.sum_constants = model.sum_log_constants(self.n_samples)
        self._labels_owner = np.full(model.n_samples, -1, dtype=np.intp)
        view = self._labels_owner
        self.labels = &view[0]
        model.bind_labels(self._labels_owner)
        prior.tabulate()
        if saved is None:
            model.clear(max(16, 2 * (self.n_clusters + 1)))
            slots = np.array([model.acquire() for _ in range(self.n_clusters + 1)], dtype=np.intp)
        else:
            model.load(saved["stats"], saved["slots"], saved["free"])
        self.reserve(model.n_slots)
        for k in range(self.n_clusters + 1):
            self.slots[k] = slots[k]
            self.position[slots[k]] = k
            self.sizes[slots[k]] = 0
        for i in range(self.n_samples):
            if given[i] < 0:
                if noise is not None:
                    self.labels[i] = NOISE
                    self.n_noise += 1
                continue
            slot = given[i]
            if saved is None:
                slot = slots[given[i]]
                model.add(slot, i)
            self.labels[i] = slot
            self.sizes[slot] += 1
            self.n_attached += 1
        model.settle()
        if noise is not None:
            prior.prepare_focus()
            prior.focus(self.n_samples - self.n_noise)

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        """Make room for `n_slots` clusters, the spare one included."""
        if n_slots <= self.capacity:
            return 0
        self.model.reserve(n_slots)
        self.prior.reserve(n_slots)
        if self.bounds is not None:
            self.bounds.reserve(n_slots)
        self.slots = <Py_ssize_t*>self.resized(self.slots, n_slots, sizeof(Py_ssize_t))
        self.position = <Py_ssize_t*>self.resized(self.position, n_slots, sizeof(Py_ssize_t))
        self.sizes = <Py_ssize_t*>self.resized(self.sizes, n_slots, sizeof(Py_ssize_t))
        self.log_w = <double*>self.resized(self.log_w, n_slots + 8, sizeof(double))
        self.some = <Py_ssize_t*>self.resized(self.some, 2 * n_slots, sizeof(Py_ssize_t))
        self.capacity = n_slots

    cdef int adopt(
        self, ClusterModel model, const int* slots, Py_ssize_t n_clusters,  # IN (n_clusters,)
        const void* labels, bint wide, const Py_ssize_t* order              # IN (n_samples,)
    ) except -1:
        """Take over the partition and hyperparameters of another kernel of the same kind; rows are
        copied with their cached terms. `labels[m]`, of 32 bits if `wide` and otherwise of 16, is
        the index in `slots` of the cluster of item `order[m]`, or of item m if `order` is NULL.
        The largest number of these bits is noise, if there is noise."""
        cdef Py_ssize_t outside = UINT_MAX if wide else USHRT_MAX
        cdef const unsigned short* narrow_labels = <const unsigned short*>labels
        cdef const unsigned int* wide_labels = <const unsigned int*>labels
        self.model.clear(n_clusters + 1)
        self.model.set_hyperparameters(model.hyperparameters())
        self.reserve(self.model.n_slots)
        model.settle()
        for k in range(n_clusters):
            slot = self.model.acquire()
            memcpy(row(self.model, slot), row(model, slots[k]), model.width * sizeof(double))
            self.slots[k] = slot
            self.position[slot] = k
            self.sizes[slot] = <Py_ssize_t>row(model, slots[k])[0]
        self.n_clusters = n_clusters
        self.n_noise = 0
        self.open_spare()
        with nogil:
            for m in range(self.n_samples):
                k = wide_labels[m] if wide else narrow_labels[m]
                i = order[m] if order != NULL else m
                if k == outside and self.noise is not None:
                    self.labels[i] = NOISE
                    self.n_noise += 1
                else:
                    self.labels[i] = self.slots[k]
        self.n_attached = self.n_samples - self.n_noise
        if self.noise is not None:
            self.prior.focus(self.n_attached)

    cdef void open_spare(self) noexcept nogil:
        """Open an empty cluster after the occupied ones; a slot must be free."""
        cdef Py_ssize_t slot = self.model.acquire()
        self.slots[self.n_clusters] = slot
        self.position[slot] = self.n_clusters
        self.sizes[slot] = 0

    cdef void attach(self, Py_ssize_t i, Py_ssize_t slot) noexcept nogil:
        """Detached item i joins a cluster, or NOISE; joining the spare one takes a free slot."""
        SKDPM_CHECK(self.labels[i] == DETACHED, "attach: the item is not detached")
        if slot == NOISE:
            self.labels[i] = NOISE
            self.n_noise += 1
            self.prior.focus(self.n_samples - self.n_noise)
            return
        SKDPM_CHECK(self.position[slot] <= self.n_clusters, "attach: the slot is not open")
        self.model.add(slot, i)
        self.labels[i] = slot
        self.sizes[slot] += 1
        self.n_attached += 1
        if self.position[slot] == self.n_clusters:
            self.n_clusters += 1
            self.open_spare()

    cdef Py_ssize_t detach(self, Py_ssize_t i) noexcept nogil:
        """Item i leaves noise or its cluster, closed if empty. Returns its slot, or NOISE."""
        cdef Py_ssize_t slot = self.labels[i]
        SKDPM_CHECK(slot != DETACHED, "detach: the item is detached")
        self.labels[i] = DETACHED
        if slot == NOISE:
            self.n_noise -= 1
            self.prior.focus(self.n_samples - self.n_noise)
            return NOISE
        self.sizes[slot] -= 1
        self.n_attached -= 1
        self.model.remove(slot, i)
        if self.sizes[slot] == 0:
            self.close_cluster(slot)
        return slot

    cdef bint place(self, Py_ssize_t i, bitgen_t* rng) noexcept nogil:
        """Move item i to a cluster, or to the noise, by its full conditional: see
        `samplers/_gibbs`. A slot must be free. False if the weights are no distribution.

        The missing entries of an item are drawn with its cluster: the weights are those of its
        other entries, and given the cluster the missing ones follow their predictive law. Those of
        an item that is noise keep their last values, which do not count."""
        return self.place_at(i, uniform(rng), rng)

    cdef bint place_at(self, Py_ssize_t i, double u, bitgen_t* rng) noexcept nogil:
        """`place` with a uniform number that was drawn before."""
        cdef Py_ssize_t own = self.detach(i)
        cdef Py_ssize_t first = 0
        cdef Py_ssize_t k = self.n_clusters
        cdef Py_ssize_t n_choices = k + 1
        cdef bint has_gaps = self.model.has_gaps != NULL and self.model.has_gaps[i]
        if self.bounds is not None or has_gaps:
            # An item that was alone leaves no cluster; a new one takes its place in the order.
            if own == NOISE:
                first = k + 1
            else:
                first = self.position[own] if self.sizes[own] > 0 else k
        if has_gaps:
            self.model.open_gaps(i)
            if first < k and self.stays(i, own, u):
                if not self.model.fill_gaps(own, i, rng):
                    return False
                self.attach(i, own)
                return True
        elif self.model.finds_near and self.noise is None:
            # An item that was alone is compared with a new cluster.
            j = self.position[own] if self.sizes[own] > 0 else k
            j = choose_near(self, i, j, self.bounds is not None, u)
            if j >= 0:
                self.attach(i, self.slots[j])
                return True
        self.model.log_predictive_many(as_indices(self.slots, k + 1), i, self.log_w)
        self.add_log_prior()
        if self.noise is not None:      # the last choice; the weights leave out the constant of i
            self.log_w[k + 1] = self.log_weight_as_noise(i)
            n_choices += 1
        j = categorical_log_at(u, self.log_w, n_choices, first)
        if j > k:
            self.model.close_gaps(i)
            self.attach(i, NOISE)
            return True
        if j < 0 or has_gaps and not self.model.fill_gaps(self.slots[j], i, rng):
            return False
        self.attach(i, self.slots[j])
        return True

    cdef double log_weight_as_noise(self, Py_ssize_t i) noexcept nogil:
        """Log weight of noise for a detached item, less its `log_constants`."""
        return (
            self.log_noise_weight(self.n_noise, self.n_attached) + self.noise.log_density[i]
            - log_constant(self.model, i)
        )

    cdef double log_noise_weight(self, Py_ssize_t n_noise, Py_ssize_t m) noexcept nogil:
        """Prior's log weight of noise for an item, on the scale where a cluster of n_j has the
        weight n_j - sigma, given the number of others that are noise and that are in clusters.

        The weights of the clusters and of a new one sum to V_{m,k} / V_{m+1,k}, which is
        m - sigma k + V_{m+1,k+1} / V_{m+1,k}, and their probability to that of being no noise."""
        cdef Py_ssize_t k = self.n_clusters
        cdef double new = exp(self.prior.log_v[k + 1] - self.prior.log_v[k])
        return log(
            (self.noise.a + n_noise) / (self.noise.b + m) * (m - self.prior.sigma * k + new)
        )

    cdef inline void add_log_prior(self) noexcept nogil:
        """Add the prior's log weights of the clusters and of a new one to `log_w`."""
        cdef Py_ssize_t k = self.n_clusters
        for j in range(k):
            self.log_w[j] += self.prior.log_join[self.sizes[self.slots[j]]]
        self.log_w[k] += self.prior.log_v[k + 1] - self.prior.log_v[k]

    cdef bint stays(self, Py_ssize_t i, Py_ssize_t own, double u) noexcept nogil:
        """Whether u selects the cluster `own` for an item with open gaps whatever the weights of
        others are within their bounds. Weights with large bounds are computed."""
        cdef Py_ssize_t place = self.position[own]
        cdef double* log_w = self.log_w
        cdef double log_own
        cdef double total = 1.0
        if self.model.bounds_rest and self.noise is None:
            for j in range(self.n_clusters + 1):
                log_w[j] = 0.0
            self.add_log_prior()
            slots = as_indices(self.slots, self.n_clusters + 1)
            total += self.model.open_rest(slots, place, i, log_w)
            return u * total * (1.0 + 1e-12) < 1.0
        if not (
            self.model.log_open_bound_many(as_indices(self.slots, place), i, log_w)
            and self.model.log_open_bound_many(
                as_indices(self.slots + place + 1, self.n_clusters - place), i, log_w + place + 1
            )
        ):
            return False
        log_w[place] = 0.0
        self.add_log_prior()
        self.model.log_predictive_many(as_indices(&own, 1), i, &log_own)
        log_own += self.prior.log_join[self.sizes[own]]
        for j in range(self.n_clusters + 1):
            slot = self.slots[j]
            if j != place and not log_w[j] - log_own < CLEAR:
                self.model.log_predictive_many(as_indices(&slot, 1), i, &log_w[j])
                log_w[j] += self.log_prior_weight(slot)
            if j != place:
                total += exp(log_w[j] - log_own)
        if self.noise is not None:
            total += exp(self.log_weight_as_noise(i) - log_own)
        return u * total * (1.0 + 1e-12) < 1.0

    cdef int place_incomplete(self, bitgen_t* rng) except -1 nogil:
        """Draw the missing entries and the cluster of every item with gaps, one by one."""
        self.filled = True
        for m in range(self.model.n_incomplete):
            if self.model.incomplete[m] >= self.n_samples:
                break       # the items are increasing
            self.place_again(self.model.incomplete[m], rng)

    cdef int place_all(self, bitgen_t* rng) except -1 nogil:
        """Draw the cluster of every item, or that it is noise, one by one."""
        self.filled = True
        for i in range(self.n_samples):
            self.place_again(i, rng)

    cdef int place_again(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        """`place`, which reserves a slot and raises."""
        if self.model.n_free == 0:
            with gil:
                self.reserve(2 * self.capacity)
        if not self.place(i, rng):
            raise unplaceable(i)

    cdef void close_cluster(self, Py_ssize_t slot) noexcept nogil:
        """Close an empty cluster. The last occupied one takes its place in `slots`."""
        cdef Py_ssize_t last = self.slots[self.n_clusters - 1]
        cdef Py_ssize_t spare = self.slots[self.n_clusters]
        self.slots[self.position[slot]] = last
        self.position[last] = self.position[slot]
        self.n_clusters -= 1
        self.slots[self.n_clusters] = spare
        self.position[spare] = self.n_clusters
        self.model.release(slot)

    cdef void dissolve(self, Py_ssize_t slot) noexcept nogil:
        """Detach all items of a cluster at once and close it."""
        SKDPM_CHECK(self.sizes[slot] > 0, "dissolve: the cluster is empty")
        self.model.settle()
        for i in range(self.n_samples):
            if self.labels[i] == slot:
                self.labels[i] = DETACHED
        self.n_attached -= self.sizes[slot]
        self.sizes[slot] = 0
        self.model.reset(slot)
        self.close_cluster(slot)

    cdef void join(self, Py_ssize_t dst, Py_ssize_t src, Indices items) noexcept nogil:
        """Move all items of a cluster to another one, and close the empty one."""
        SKDPM_CHECK(dst != src, "join: a cluster with itself")
        SKDPM_CHECK(items.n == self.sizes[src], "join: not all items of the cluster")
        SKDPM_CHECK(self.position[dst] < self.n_clusters, "join: the slot is not occupied")
        self.model.merge(dst, src)
        for m in range(items.n):
            self.labels[items.at[m]] = dst
        self.sizes[dst] += items.n
        self.sizes[src] = 0
        self.close_cluster(src)

    cdef void replace(
        self, Indices items, const signed char* cells, Indices old_slots, Indices new_slots
    ) noexcept nogil:
        """Replace whole clusters by others. The items are all those of the old clusters; item m
        joins the slot `new_slots[cells[m]]`, whose row already contains it."""
        cdef Py_ssize_t spare = self.slots[self.n_clusters]
        for m in range(old_slots.n):
            self.sizes[old_slots.at[m]] = 0
            self.close_cluster(old_slots.at[m])
        for m in range(new_slots.n):
            slot = new_slots.at[m]
            self.slots[self.n_clusters] = slot
            self.position[slot] = self.n_clusters
            self.sizes[slot] = 0
            self.n_clusters += 1
        self.slots[self.n_clusters] = spare
        self.position[spare] = self.n_clusters
        for m in range(items.n):
            slot = new_slots.at[cells[m]]
            self.labels[items.at[m]] = slot
            self.sizes[slot] += 1

    cdef double log_prior(self) noexcept nogil:
        """log p(partition) at the current concentration. NaN while an item is detached, because
        the tables are of n_samples items; see `prior.log_eppf_at` for fewer."""
        if self.n_attached + self.n_noise != self.n_samples:
            return NAN
        if self.noise is None:
            total = self.prior.log_v[self.n_clusters]
        else:
            total = self.noise.log_law(self.n_noise, self.n_attached)
            if self.n_attached > 0:
                total += self.prior.log_v_at(
                    self.prior.concentration, self.n_attached, self.n_clusters
                )
        for k in range(self.n_clusters):
            total += self.prior.log_cluster[self.sizes[self.slots[k]]]
        return total

    cdef double log_likelihood_noise(self) noexcept nogil:
        """log density of the items that are noise, less their `log_constants`."""
        cdef double total = 0.0
        if self.n_noise > 0:
            for i in range(self.n_samples):
                if self.labels[i] == NOISE:
                    total += self.noise.log_density[i] - log_constant(self.model, i)
        return total

    cdef double log_prior_gain(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Change in log p(partition) from uniting two occupied clusters."""
        return (
            self.prior.log_v[self.n_clusters - 1] - self.prior.log_v[self.n_clusters]
            + self.prior.log_cluster[self.sizes[a] + self.sizes[b]]
            - self.prior.log_cluster[self.sizes[a]] - self.prior.log_cluster[self.sizes[b]]
        )

    cdef double log_joint(self) noexcept nogil:
        """log p(partition) + log p(X | partition)."""
        if self.model.constants_vary:
            self.sum_constants = self.model.sum_constants(self.n_samples)
        total = self.log_prior() + (
            self.model.log_likelihood(as_indices(self.slots, self.n_clusters)) + self.sum_constants
        ) + self.model.log_apart()
        if self.noise is not None:
            total += self.log_likelihood_noise()
        return total

    # The Python boundary.

    def assign(self, labels):
        """Change to another partition. This is much cheaper than a new state. Labels,
        (n_samples,), are 0, ..., K - 1, none of them empty, and -1 for an item in no cluster,
        noise if there is noise."""
        cdef const Py_ssize_t[::1] given = _as_labels(labels, self.n_samples)
        cdef const Py_ssize_t[::1] first = _first_items(np.asarray(given))
        cdef Py_ssize_t n_clusters = first.shape[0]
        self.reserve(n_clusters + 2)
        for i in range(self.n_samples):
            if self.labels[i] != DETACHED:
                self.detach(i)
        for k in range(n_clusters):
            self.attach(first[k], self.slots[k])
        for i in range(self.n_samples):
            if given[i] < 0:
                if self.noise is not None:
                    self.attach(i, NOISE)
            elif first[given[i]] != i:
                self.attach(i, self.slots[given[i]])
        self.model.settle()

    def give_to_noise(self):
        """Make whole clusters noise if this raises the log joint, for the start of a chain: single
        items leave clusters of noise too slowly. (Noise in many small clusters is left by all of
        them, not by one.) It does not keep the posterior."""
        cdef Py_ssize_t i
        # Missing entries have a density in clusters alone, so the two are not comparable.
        if self.noise is None or self.model.n_incomplete > 0:
            return
        labels = self.cluster_labels()
        inside = labels >= 0
        log_density = np.array(self.noise.log_density)
        if self.model.log_constants is not None:
            log_density -= np.asarray(self.model.log_constants)[: self.n_samples]
        gains = np.bincount(labels[inside], log_density[inside], self.n_clusters)
        sizes = self.cluster_sizes()
        for k in range(self.n_clusters):
            gains[k] -= self.model.log_marginal(self.slots[k])
        given = self.noise.clusters_for_noise(gains, sizes, self.n_noise, self.prior)
        for i in np.flatnonzero(np.isin(labels, given)):
            self.detach(i)
            self.attach(i, NOISE)
        self.model.settle()

    def cluster_sizes(self):
        """Number of items of each cluster: (n_clusters,), in the order of `dump`."""
        return np.array([self.sizes[self.slots[k]] for k in range(self.n_clusters)], np.intp)

    def compute_log_joint(self):
        """log p(partition, X) at the current concentration, natural logarithm."""
        self.model.settle()
        self.prior.tabulate()
        log_joint = self.log_joint()
        if self.prior.latent:
            log_joint += self.prior.log_latent_share(self.cluster_sizes())
        return log_joint

    def cluster_slots(self):
        """Slot of each cluster: (n_clusters,), in the order of `dump`."""
        return self._slots()[: self.n_clusters]

    def cluster_labels(self):
        """Cluster of each item, numbered as in `dump`; -1 if it is in none: (n_samples,)."""
        # The last two are for DETACHED and NOISE.
        positions = np.full(self.capacity + 2, -1, dtype=np.intp)
        positions[self.cluster_slots()] = np.arange(self.n_clusters)
        return positions[self._labels_owner[: self.n_samples]]

    def dump(self, clusters=None):
        """Statistics of the clusters with the given numbers, by default of all: (n, n_stats)."""
        slots = self._slots()[: self.n_clusters]
        return self.model.dump(slots if clusters is None else slots[clusters])

    def save(self):
        """A dict of arrays from which a chain continues with the same bits."""
        slots = self._slots()
        saved = {
            "labels": self._labels_owner.copy(),
            "slots": slots,
            "free": self.model.free_list(),
            "stats": self.model.dump(slots[: self.n_clusters], True),
        }
        if self.bounds is not None:
            saved["pauses"] = np.array(self.bounds.backoffs)
        if self.model.n_incomplete > 0:
            saved["completion"] = self.model.completion()
        return saved

    def _slots(self):
        """Slots of the clusters, then the spare one."""
        return np.array([self.slots[k] for k in range(self.n_clusters + 1)], dtype=np.intp)

    def rebuild(self):
        """Recompute all rows from the items, if the likelihood's statistics drift by rounding."""
        cdef const Py_ssize_t[::1] items
        cdef Py_ssize_t first = self.n_samples - self.n_attached    # after those in no cluster
        if not self.model.drifts:
            return
        items = np.argsort(self.cluster_labels(), kind="stable")
        for k in range(self.n_clusters):
            self.model.rebuild(self.slots[k], as_indices(&items[first], self.sizes[self.slots[k]]))
            first += self.sizes[self.slots[k]]
        self.model.settle()


cdef Py_ssize_t choose_near(
    MixtureState self, Py_ssize_t i, Py_ssize_t place, bint own_first, double u
) noexcept nogil:
    """The index of the cluster that u selects for item i, in no cluster, by the clusters near
    the item; -1 if these do not decide. See `_core/_culling`: R is at most half of
    min(u, 1 - u) times the weight of the cluster of index `place`, in which it was."""
    cdef Py_ssize_t k = self.n_clusters
    cdef Py_ssize_t own = self.slots[place]
    cdef Py_ssize_t* others = self.some
    cdef Py_ssize_t* near = self.some + self.capacity
    cdef double* log_w = self.log_w
    cdef Py_ssize_t n_others = 0
    cdef double log_own, total
    cdef double share = 0.5 * min(u, 1.0 - u) / (k + 1)
    if not share > 0.0 or k == 0:
        return -1
    self.model.log_predictive_many(as_indices(&own, 1), i, &log_own)
    log_own += self.log_prior_weight(own)
    if not -1e300 < log_own < 1e300:
        return -1
    least = log_own + log(share)
    for j in range(k + 1):
        if j != place:
            others[n_others] = self.slots[j]
            log_w[n_others] = least - self.log_prior_weight(self.slots[j])
            n_others += 1
    n = self.model.find_near(as_indices(others, n_others), i, log_w, near)
    if n < 0:
        return -1
    for j in range(n):
        near[j] = others[near[j]]
    self.model.log_predictive_many(as_indices(near, n), i, log_w)
    top = log_own
    for j in range(n):
        log_w[j] += self.log_prior_weight(near[j])
        top = max(top, log_w[j])
    # Insert the cluster in which it was.
    m = 0 if own_first else n
    while m > 0 and self.position[near[m - 1]] > place:
        m -= 1
    for j in range(n, m, -1):
        near[j] = near[j - 1]
        log_w[j] = log_w[j - 1]
    near[m] = own
    log_w[m] = log_own
    before = total = 0.0
    for j in range(n + 1):
        log_w[j] = exp(log_w[j] - top)
        total += log_w[j]
    rest = share * (n_others - n)
    rest = rest * exp(log_own - top) * (1.0 + 1e-9) + 1e-12 * total
    for j in range(n + 1):
        if u * (total + rest) < before + log_w[j]:
            if u * total >= before + rest or (own_first and j == 0):
                return self.position[near[j]]
            return -1
        before += log_w[j]
    return -1


def _as_labels(labels, Py_ssize_t n_samples):
    labels = np.ascontiguousarray(labels, dtype=np.intp)
    if len(labels) != n_samples:
        raise ValueError(f"{len(labels)} labels for {n_samples} items")
    return labels


def _first_items(labels):
    """First item of each cluster, (K,); a ValueError if the labels are no partition."""
    bad = labels[(labels < -1) | (labels >= len(labels))]
    if len(bad):
        raise ValueError(f"labels must be 0, ..., K - 1, or -1, got {bad[0]}")
    inside = np.flatnonzero(labels >= 0)[::-1]
    first = np.full(labels.max(initial=-1) + 1, -1, dtype=np.intp)
    first[labels[inside]] = inside      # of equal labels the last assignment stays
    if (first < 0).any():
        raise ValueError(f"cluster {first.argmin()} of {len(first)} is empty")
    return first


def _saved_labels(saved, Py_ssize_t n_samples, bint has_noise):
    """Labels (slots) and slots of a saved state; a ValueError if they disagree."""
    cdef Py_ssize_t lowest = NOISE if has_noise else DETACHED
    labels = _as_labels(saved["labels"], n_samples)
    slots = np.ascontiguousarray(saved["slots"], dtype=np.intp)
    used = np.unique(labels[labels >= 0])
    if labels.min(initial=0) < lowest or not np.array_equal(used, np.sort(slots[:-1])):
        raise ValueError("the labels and clusters of the saved state disagree")
    return labels, slots


cdef class StoredState:

    def __cinit__(self):
        self.labels, self.stats = np.empty(1, dtype=np.intp), np.empty(1)

    cdef int reserve(self, MixtureState state) except -1:
        cdef Py_ssize_t n_doubles = state.n_clusters * state.model.stored_width(state.n_clusters)
        if state.n_samples > self.n_samples:
            self.labels = np.empty(state.n_samples, dtype=np.intp)
            self.n_samples = state.n_samples
        if state.model.n_slots > self.capacity:
            self.capacity = state.model.n_slots
            self.slots, self.sizes, self.free_slots = np.empty((3, self.capacity), dtype=np.intp)
        if n_doubles > self.n_doubles:
            self.stats = np.empty(n_doubles)
            self.n_doubles = n_doubles

    cdef int store(self, MixtureState state) except -1 nogil:
        """Copy a state; takes the interpreter's lock if memory is too small."""
        cdef Py_ssize_t n_clusters = state.n_clusters
        if (
            state.n_samples > self.n_samples or state.model.n_slots > self.capacity
            or n_clusters * state.model.stored_width(n_clusters) > self.n_doubles
        ):
            with gil:
                self.reserve(state)
        state.model.store(as_indices(state.slots, n_clusters), &self.stats[0])
        self.n_clusters = n_clusters
        self.n_attached = state.n_attached
        self.n_noise = state.n_noise
        self.n_free = state.model.n_free
        self.n_slots = state.model.n_slots
        memcpy(&self.labels[0], state.labels, state.n_samples * sizeof(Py_ssize_t))
        memcpy(&self.slots[0], state.slots, (n_clusters + 1) * sizeof(Py_ssize_t))
        memcpy(&self.free_slots[0], state.model.free_slots, self.n_free * sizeof(Py_ssize_t))
        for k in range(n_clusters):
            self.sizes[k] = state.sizes[state.slots[k]]

    cdef void recall(self, MixtureState state) noexcept nogil:
        """Restore a state; slots that it has reserved since are free."""
        cdef Py_ssize_t n_new = state.model.n_slots - self.n_slots
        slots = as_indices(&self.slots[0], self.n_clusters)
        state.model.recall(slots, &self.stats[0], &self.labels[0])
        for k in range(n_new):
            state.model.free_slots[k] = state.model.n_slots - 1 - k
        memcpy(
            state.model.free_slots + n_new, &self.free_slots[0], self.n_free * sizeof(Py_ssize_t)
        )
        state.model.n_free = n_new + self.n_free
        memcpy(state.labels, &self.labels[0], state.n_samples * sizeof(Py_ssize_t))
        memcpy(state.slots, &self.slots[0], (self.n_clusters + 1) * sizeof(Py_ssize_t))
        for k in range(self.n_clusters + 1):
            slot = self.slots[k]
            state.position[slot] = k
            state.sizes[slot] = self.sizes[k] if k < self.n_clusters else 0
        # The spare slot may have been a cluster in between.
        state.model.reset(self.slots[self.n_clusters])
        state.n_clusters = self.n_clusters
        state.n_attached = self.n_attached
        state.n_noise = self.n_noise
        if state.noise is not None:
            state.prior.focus(state.n_samples - state.n_noise)


def labels_by_first_appearance(state, bint apart=False):
    """Labels of a state's rows, none of them detached, numbered by first appearance: (n_samples,),
    of the smallest unsigned type. If there is noise, of a signed type, with -1 for noise; with
    `apart`, each row of noise is a cluster of one row instead."""
    labels, n_clusters = state.cluster_labels(), state.n_clusters
    if apart:
        outside = np.flatnonzero(labels < 0)
        labels[outside] = n_clusters + np.arange(len(outside))
        n_clusters += len(outside)
    numbers = np.argsort(np.argsort(_first_items(labels)))
    has_noise = not apart and getattr(state, "noise", None) is not None
    return smallest(np.append(numbers, -1)[labels], n_clusters, has_noise)


def smallest(labels, Py_ssize_t n_clusters, bint has_noise):
    """Labels in the smallest unsigned type; with noise, -1, in the smallest signed one."""
    most = -max(n_clusters, 1) if has_noise else n_clusters - 1
    return labels.astype(np.min_scalar_type(most))
