# SPDX-License-Identifier: BSD-3-Clause
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Kernels on arrays of labels: contingency sums, co-clustering counts, partition search.

A partition with clusters of sizes n_j and a draw with blocks of sizes m_k, n_jk rows in common,
are at distance (Dahl, Johnson & Mueller 2022, section 2; Meila 2007, eq. 13)

    [(2 - a) sum_j f(n_j) + a sum_k f(m_k) - 2 sum_jk f(n_jk)] / norm,

with f(x) = x log x and norm = n for the variation of information, f(x) = x^2 and
norm = n (n - 1) for Binder's loss, and 0 < a < 2 the `split_cost`, 1 in the losses as their
authors have them. The kernels know the loss only through the table `f` = f(0), ..., f(n) and a, so
both losses share all code. f must be convex with f(0) = 0.
"""

from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

import numpy as np

from skdpm._core._memory cimport MemoryOwner, expect_shape

ctypedef Py_ssize_t intp_t


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    """The splitmix64 finaliser: a fixed random function of x."""
    x += 0x9E3779B97F4A7C15ULL
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL
    return x ^ (x >> 31)


def add_row_keys(
    const int32_t[:, ::1] labels, intp_t first_draw, intp_t n_codes, uint64_t[::1] keys
):
    """Add to keys[i] a 64-bit hash of row i's labels; equal keys mean equal labels in all draws.

    Two different rows collide with probability 2^-64. `labels` (n_draws, n_samples) are
    smaller than `n_codes`; `first_draw` is the number of draws already in `keys`, INOUT.
    """
    cdef intp_t n_draws = labels.shape[0], n_samples = labels.shape[1]
    expect_shape("keys", keys, (n_samples,))
    cdef uint64_t* key = &keys[0]
    cdef uint64_t[::1] hashes = np.empty(n_codes, np.uint64)
    cdef uint64_t* hashed = &hashes[0]
    with nogil:
        for s in range(n_draws):
            draw = &labels[s, 0]
            seed = mix(first_draw + s)
            for i in range(n_codes):
                hashed[i] = mix(seed + <uint64_t> i)
            for i in range(n_samples):
                key[i] += hashed[draw[i]]


def joint_sums(
    const int32_t[:, ::1] labels,
    const int32_t[::1] order,
    const intp_t[::1] bounds,
    intp_t n_codes,
    const double[::1] f,
    double[::1] out,
):
    """sum_jk f(n_jk) of each draw against one partition.

    Cluster j of the partition is the rows order[bounds[j] : bounds[j + 1]]. O(n_samples) per
    draw and no table clusters x blocks: the counts of one cluster are cleared as they are read.
    """
    cdef intp_t n_draws = labels.shape[0], n_clusters = bounds.shape[0] - 1
    cdef double total
    expect_shape("order", order, (labels.shape[1],))
    expect_shape("out", out, (n_draws,))
    cdef int32_t[::1] scratch = np.zeros(n_codes, np.int32)
    cdef int32_t* count = &scratch[0]
    with nogil:
        for s in range(n_draws):
            draw = &labels[s, 0]
            total = 0.0
            for j in range(n_clusters):
                for p in range(bounds[j], bounds[j + 1]):
                    count[draw[order[p]]] += 1
                for p in range(bounds[j], bounds[j + 1]):
                    code = draw[order[p]]
                    if count[code]:
                        total += f[count[code]]
                        count[code] = 0
            out[s] = total


def add_company(
    const int32_t[:, ::1] labels,
    const int32_t[::1] order,
    const intp_t[::1] bounds,
    intp_t n_codes,
    int64_t[::1] out,
):
    """Add to out[i], over the draws, the number of other rows of row i's cluster in its block; for
    a row that is alone in its cluster, the number of draws in which it is alone in its block.

    Cluster j of the partition is the rows order[bounds[j] : bounds[j + 1]].
    """
    cdef intp_t n_draws = labels.shape[0], n_clusters = bounds.shape[0] - 1
    cdef intp_t n_samples = labels.shape[1]
    expect_shape("order", order, (n_samples,))
    expect_shape("out", out, (n_samples,))
    cdef int32_t[:, ::1] scratch = np.zeros((2, n_codes), np.int32)
    cdef int32_t* size = &scratch[0, 0]
    cdef int32_t* count = &scratch[1, 0]
    with nogil:
        for s in range(n_draws):
            draw = &labels[s, 0]
            memset(size, 0, n_codes * sizeof(int32_t))
            for p in range(n_samples):
                size[draw[p]] += 1
            for j in range(n_clusters):
                if bounds[j + 1] - bounds[j] == 1:
                    out[order[bounds[j]]] += size[draw[order[bounds[j]]]] == 1
                    continue
                for p in range(bounds[j], bounds[j + 1]):
                    count[draw[order[p]]] += 1
                for p in range(bounds[j], bounds[j + 1]):
                    out[order[p]] += count[draw[order[p]]] - 1
                for p in range(bounds[j], bounds[j + 1]):
                    count[draw[order[p]]] = 0


ctypedef fused code_t:
    # Most draws have at most 256 clusters, and bytes are compared four times as fast.
    uint8_t
    int32_t


def add_agreements(const code_t[:, ::1] codes, int32_t[:, ::1] out):
    """Add to out[i, j], j <= i, the number of columns in which rows i and j of `codes` agree.

    At most 255 columns: counting in the type of the codes is what makes vectors of bytes fast.
    """
    cdef intp_t n_rows = codes.shape[0], n_draws = codes.shape[1]
    cdef code_t count
    if n_draws > 255:
        raise ValueError("at most 255 columns")
    expect_shape("out", out, (n_rows, n_rows))
    with nogil:
        for i in range(n_rows):
            a = &codes[i, 0]
            for j in range(i + 1):
                b = &codes[j, 0]
                count = 0
                for s in range(n_draws):
                    count += a[s] == b[s]
                out[i, j] += count


def expand_agreements(
    const int32_t[:, ::1] counts, const intp_t[::1] group, intp_t n_draws, double[:, ::1] out
):
    """out[i, j] = agreements of the groups of rows i and j, per draw. Lower triangle of counts."""
    cdef intp_t n_rows = group.shape[0]
    expect_shape("counts", counts, (counts.shape[0], counts.shape[0]))
    expect_shape("out", out, (n_rows, n_rows))
    with nogil:
        # Strips of columns, so that the lines read across the triangle stay in the cache.
        for start in range(0, n_rows, 64):
            for i in range(n_rows):
                g = group[i]
                for j in range(start, min(start + 64, n_rows)):
                    h = group[j]
                    out[i, j] = (counts[g, h] if h <= g else counts[h, g]) / <double> n_draws


cdef struct Overlap:
    int32_t cluster     # slot of the candidate's cluster
    int32_t count       # rows it has in common with the block, > 0


cdef class PartitionSearch(MemoryOwner):
    """A candidate partition of weighted items, and its overlaps with the blocks of all draws.

    An item stands for `weight` rows. A block is a set of items that is a cluster of at least
    one draw; equal blocks of several draws are kept once, with the number of those draws as
    weight, since the expected loss is, up to a constant and the factor norm * n_draws,

        objective = size_weight * sum_j f(n_j) - 2 sum_b block_weight_b sum_j f(n_jb).

    Per block only clusters with n_jb > 0 are listed: an item is placed in O(n_draws * n_clusters)
    at most, and memory is O(n_draws * n_items) whatever the number of clusters.
    """

    cdef readonly intp_t n_items, n_draws, n_blocks, n_clusters, max_clusters
    cdef readonly intp_t work   # overlaps read so far: a clock that does not depend on the machine
    cdef const double* f        # (total weight + 1,)
    cdef double size_weight     # (2 - split_cost) * n_draws
    cdef double tol             # changes below tol * (the largest possible one) are rounding
    cdef intp_t n_rows          # total weight
    cdef intp_t n_seen          # draws given so far to add_draws
    cdef intp_t n_idle          # items that stayed in a row when last offered to move

    cdef list arrays            # owners of the memory that is never moved
    cdef const int32_t* weight  # (n_items,)
    cdef int32_t* label         # (n_items,) slot of the item's cluster, -1: not placed
    cdef int32_t* blocks        # blocks of item i: blocks[first_block[i] : first_block[i + 1]]
    cdef intp_t* first_block    # (n_items + 1,)

    cdef dict numbers           # number of a block by its key, the sum of mix(i) over its items
    cdef intp_t block_capacity
    cdef double* block_weight   # (n_blocks,) draws that have this block
    cdef intp_t* block_size     # (n_blocks,) items
    cdef intp_t* first_overlap  # (n_blocks,)
    cdef int32_t* n_overlaps    # (n_blocks,)
    cdef Overlap* overlaps

    cdef intp_t* size           # (max_clusters,) rows in the cluster of a slot
    cdef int32_t* free_slots    # (max_clusters - n_clusters,) are unused
    cdef double* shared         # (max_clusters,) zeros between calls
    cdef int32_t* touched       # (max_clusters,)
    cdef int32_t* members       # (n_items,)

    def __cinit__(
        self,
        const int32_t[::1] weight,
        intp_t n_draws,
        intp_t max_clusters,
        const double[::1] f,
        double split_cost,
    ):
        self.n_items = weight.shape[0]
        self.n_draws = n_draws
        self.max_clusters = max_clusters = min(max_clusters, self.n_items)
        self.arrays, self.numbers = [weight, f], {}
        self.weight = &weight[0]
        self.f = &f[0]
        self.label = <int32_t*> self.zeros(self.n_items * sizeof(int32_t))
        self.blocks = <int32_t*> self.resized(NULL, self.n_items * n_draws, sizeof(int32_t))
        self.first_block = <intp_t*> self.zeros((self.n_items + 1) * sizeof(intp_t))
        self.size = <intp_t*> self.zeros(max_clusters * sizeof(intp_t))
        self.free_slots = <int32_t*> self.zeros(max_clusters * sizeof(int32_t))
        self.shared = <double*> self.zeros(max_clusters * sizeof(double))
        self.touched = <int32_t*> self.zeros(max_clusters * sizeof(int32_t))
        self.members = <int32_t*> self.zeros(self.n_items * sizeof(int32_t))
        for i in range(self.n_items):
            self.n_rows += weight[i]
        self.clear()
        self.size_weight = (2.0 - split_cost) * n_draws
        self.tol = 1e-12 * n_draws

    cdef void* zeros(self, size_t n_bytes) except NULL:
        """Memory that lasts as long as the search."""
        cdef unsigned char[::1] memory = np.zeros(max(n_bytes, 1), np.uint8)
        self.arrays.append(memory)
        return &memory[0]

    # Indexing the draws

    cdef int reserve(self, intp_t n_blocks) except -1:
        """Room for n_blocks, in arrays at least doubled."""
        if n_blocks <= self.block_capacity:
            return 0
        if n_blocks > INT32_MAX:
            raise MemoryError("too many clusters over all draws")
        n_blocks = max(n_blocks, 2 * self.block_capacity)
        self.block_weight = <double*> self.resized(self.block_weight, n_blocks, sizeof(double))
        self.block_size = <intp_t*> self.resized(self.block_size, n_blocks, sizeof(intp_t))
        self.block_capacity = n_blocks

    def add_draws(self, const int32_t[:, ::1] labels, intp_t n_codes):
        """Enter labels (some draws, n_items), smaller than n_codes. Call until all are entered."""
        cdef intp_t n_new = labels.shape[0], b
        cdef bint is_new
        cdef uint64_t[::1] key = np.empty(n_codes, np.uint64)
        cdef intp_t[::1] size = np.empty(n_codes, np.intp)
        cdef int32_t[::1] block = np.empty(n_codes, np.int32)
        if self.n_seen + n_new > self.n_draws:
            raise ValueError("more draws than announced")
        self.reserve(self.n_blocks + n_new * min(n_codes, self.n_items))
        for s in range(n_new):
            draw = &labels[s, 0]
            key[:] = 0
            size[:] = 0
            for i in range(self.n_items):
                code = draw[i]
                key[code] += mix(i)
                size[code] += 1
            # Blocks are numbered in the order of their first items, so that nothing that follows
            # depends on how the draws were labelled.
            for i in range(self.n_items):
                code = draw[i]
                if size[code] > 0:
                    b = self.numbers.setdefault(key[code], self.n_blocks)
                    is_new = b == self.n_blocks
                    if is_new:
                        self.n_blocks += 1
                        self.block_size[b] = size[code]
                        self.block_weight[b] = 0.0
                    self.block_weight[b] += 1.0
                    block[code] = <int32_t> b if is_new else -1
                    size[code] = 0
                self.blocks[i * self.n_draws + self.n_seen + s] = block[code]
        self.n_seen += n_new
        if self.n_seen == self.n_draws:
            self.index()

    cdef int index(self) except -1:
        """After the last draw: lists of blocks per item, room for the overlaps."""
        cdef intp_t n_kept = 0, n_overlaps = 0
        with nogil:
            # blocks has one column per draw, -1 where an earlier draw has the same block.
            for i in range(self.n_items):
                self.first_block[i] = n_kept
                for s in range(self.n_draws):
                    block = self.blocks[i * self.n_draws + s]
                    if block >= 0:
                        self.blocks[n_kept] = block
                        n_kept += 1
            self.first_block[self.n_items] = n_kept
        self.blocks = <int32_t*> self.resized(self.blocks, n_kept, sizeof(int32_t))
        self.first_overlap = <intp_t*> self.zeros(self.n_blocks * sizeof(intp_t))
        self.n_overlaps = <int32_t*> self.zeros(self.n_blocks * sizeof(int32_t))
        for b in range(self.n_blocks):
            self.first_overlap[b] = n_overlaps
            n_overlaps += min(self.block_size[b], self.max_clusters)
        self.overlaps = <Overlap*> self.zeros(n_overlaps * sizeof(Overlap))

    # Moves; each returns the change of the objective or whether anything moved

    cdef double attach(self, intp_t i, int32_t slot) noexcept nogil:
        """Put an item that is not placed into a cluster; -1 opens one."""
        cdef intp_t w = self.weight[i], b
        cdef int32_t q
        cdef double change = 0.0
        cdef const double* f = self.f
        if slot < 0:
            slot = self.free_slots[self.max_clusters - self.n_clusters - 1]
            self.n_clusters += 1
        for p in range(self.first_block[i], self.first_block[i + 1]):
            b = self.blocks[p]
            overlap = self.overlaps + self.first_overlap[b]
            n = self.n_overlaps[b]
            q = 0
            while q < n and overlap[q].cluster != slot:
                q += 1
            self.work += q
            if q == n:
                overlap[q].cluster = slot
                overlap[q].count = 0
                self.n_overlaps[b] = n + 1
            change -= self.block_weight[b] * (f[overlap[q].count + w] - f[overlap[q].count])
            overlap[q].count += <int32_t> w
        change = 2 * change + self.size_weight * (f[self.size[slot] + w] - f[self.size[slot]])
        self.size[slot] += w
        self.label[i] = slot
        return change

    cdef double detach(self, intp_t i) noexcept nogil:
        """Take an item out of its cluster, which is closed when it becomes empty."""
        cdef intp_t w = self.weight[i], b
        cdef int32_t slot = self.label[i], q
        cdef double change = 0.0
        cdef const double* f = self.f
        for p in range(self.first_block[i], self.first_block[i + 1]):
            b = self.blocks[p]
            overlap = self.overlaps + self.first_overlap[b]
            q = 0
            while overlap[q].cluster != slot:       # ends: the item's cluster overlaps its blocks
                q += 1
            overlap[q].count -= <int32_t> w
            change += self.block_weight[b] * (f[overlap[q].count + w] - f[overlap[q].count])
            if overlap[q].count == 0:
                self.n_overlaps[b] -= 1
                overlap[q] = overlap[self.n_overlaps[b]]
        self.size[slot] -= w
        change = 2 * change - self.size_weight * (f[self.size[slot] + w] - f[self.size[slot]])
        self.label[i] = -1
        if self.size[slot] == 0:
            self.free_slots[self.max_clusters - self.n_clusters] = slot
            self.n_clusters -= 1
        return change

    cdef int32_t best_slot(self, intp_t i) noexcept nogil:
        """Cluster in which item i costs least; -1: a new cluster. On ties, its current cluster.

        Costs are relative to a new cluster: size_weight h(n_j) - 2 sum_b weight_b h(n_jb)
        with h(x) = f(x + w) - f(x) - f(w). As h(0) = 0 < h(x), only clusters that share a
        block with the item can be better than an empty one.
        """
        cdef intp_t w = self.weight[i], b, n_touched = 0
        cdef int32_t own = self.label[i], best = -1
        cdef const double* f = self.f
        cdef double f_w = f[w], best_cost = 0.0
        cdef double tol = self.tol * (f[self.n_rows] - f[self.n_rows - w] - f_w)
        cdef double* shared = self.shared
        cdef const Overlap* overlap
        for p in range(self.first_block[i], self.first_block[i + 1]):
            b = self.blocks[p]
            weight = self.block_weight[b]
            overlap = self.overlaps + self.first_overlap[b]
            self.work += self.n_overlaps[b]
            for q in range(self.n_overlaps[b]):
                j = overlap[q].cluster
                c = overlap[q].count
                if j == own:
                    c -= w
                elif shared[j] == 0.0:
                    self.touched[n_touched] = j
                    n_touched += 1
                shared[j] += weight * (f[c + w] - f[c] - f_w)
        if own >= 0:
            best = own
            c = self.size[own] - w
            best_cost = self.size_weight * (f[c + w] - f[c] - f_w) - 2 * shared[own]
            shared[own] = 0.0
        elif self.n_clusters == self.max_clusters:
            best_cost = INFINITY
        if best_cost > tol and self.n_clusters < self.max_clusters:
            best = -1
            best_cost = 0.0
        elif best_cost > tol:
            for j in range(<int32_t> self.max_clusters):
                if j == own or shared[j] != 0.0:
                    continue
                cost = self.size_weight * (f[self.size[j] + w] - f[self.size[j]] - f_w)
                if cost < best_cost - tol:
                    best = j
                    best_cost = cost
        for p in range(n_touched):
            j = self.touched[p]
            c = self.size[j]
            cost = self.size_weight * (f[c + w] - f[c] - f_w) - 2 * shared[j]
            shared[j] = 0.0
            if cost < best_cost - tol:
                best = j
                best_cost = cost
        return best

    cdef bint relocate(self, intp_t i, double* change) noexcept nogil:
        """Move item i to where it costs least; False if it is there. `change` INOUT: objective."""
        cdef int32_t slot = self.best_slot(i)
        if slot >= 0 and slot == self.label[i]:
            return False
        if self.label[i] >= 0:
            change[0] += self.detach(i)
        change[0] += self.attach(i, slot)
        return True

    def clear(self):
        """Start with no item placed."""
        for i in range(self.n_items):
            self.label[i] = -1
        for i in range(self.max_clusters):
            self.size[i] = 0
            self.free_slots[i] = <int32_t> (self.max_clusters - 1 - i)
        for b in range(self.n_blocks):      # no memset: NULL until draws are added
            self.n_overlaps[b] = 0
        self.n_clusters = 0
        self.n_idle = 0

    def place(self, const int32_t[::1] labels):
        """Start from a partition of the items into at most max_clusters; -1 leaves one out."""
        self.clear()
        slots = {}
        for i in range(self.n_items):
            if labels[i] < 0:
                continue
            if labels[i] not in slots and self.n_clusters == self.max_clusters:
                raise ValueError("more than max_clusters clusters")
            self.attach(i, slots.get(labels[i], -1))
            slots[labels[i]] = self.label[i]

    def sweeten(self, const int32_t[::1] order):
        """Scan the items, placing those left out; False once every item is where it costs least.

        Successive scans must use the same permutation `order`, which is taken as a circle.
        """
        cdef double change = 0.0
        with nogil:
            for p in range(self.n_items):
                if self.n_idle == self.n_items:
                    break
                self.n_idle = 0 if self.relocate(order[p], &change) else self.n_idle + 1
        return self.n_idle < self.n_items

    def rebuild(self, intp_t item, const int32_t[::1] order):
        """Zealous update: destroy the item's cluster, place its members again in `order`, and scan
        them once. The update is undone unless the objective falls; returns whether it fell.
        """
        cdef intp_t n_members = 0
        cdef int32_t slot = self.label[item]
        cdef double change = 0.0, tol = self.tol * self.f[self.n_rows]
        cdef int32_t* members = self.members
        with nogil:
            for p in range(self.n_items):
                if self.label[order[p]] == slot:
                    members[n_members] = order[p]
                    n_members += 1
            for p in range(n_members):
                change += self.detach(members[p])
            for p in range(2 * n_members):
                self.relocate(members[p % n_members], &change)
            if change < -tol:
                self.n_idle = 0
            else:
                for p in range(n_members):
                    self.detach(members[p])
                slot = -1
                for p in range(n_members):
                    self.attach(members[p], slot)
                    slot = self.label[members[p]]
        return change < -tol

    def merge(self, intp_t item):
        """Join the item's cluster to the one for which the objective falls most, if it falls.

        Joining n_i and n_j rows changes it by size_weight g(n_i, n_j) - 2 sum_b block_weight_b
        g(n_ib, n_jb) with g(x, y) = f(x + y) - f(x) - f(y), so only clusters that share blocks can
        lower it. Returns whether it fell.
        """
        cdef intp_t n_touched = 0
        cdef int32_t own = self.label[item], best = -1, count, q
        cdef double change = 0.0, best_cost = -self.tol * self.f[self.n_rows]
        cdef double* shared = self.shared
        cdef const double* f = self.f
        cdef const Overlap* overlap
        with nogil:
            for b in range(self.n_blocks):
                overlap = self.overlaps + self.first_overlap[b]
                n = self.n_overlaps[b]
                self.work += n
                count = 0
                for q in range(n):
                    if overlap[q].cluster == own:
                        count = overlap[q].count
                if count == 0 or n == 1:
                    continue
                for q in range(n):
                    j = overlap[q].cluster
                    if j == own:  # f has no entry for twice its size
                        continue
                    if shared[j] == 0.0:
                        self.touched[n_touched] = j
                        n_touched += 1
                    shared[j] += self.block_weight[b] * (
                        f[overlap[q].count + count] - f[overlap[q].count] - f[count]
                    )
            for q in range(n_touched):
                j = self.touched[q]
                cost = -2 * shared[j] + self.size_weight * (
                    f[self.size[own] + self.size[j]] - f[self.size[own]] - f[self.size[j]]
                )
                shared[j] = 0.0
                if cost < best_cost:
                    best = j
                    best_cost = cost
            if best >= 0:
                self.n_idle = 0
                for i in range(self.n_items):
                    if self.label[i] == own:
                        change += self.detach(i)
                        change += self.attach(i, best)
        return best >= 0

    def objective(self):
        """The objective of the current partition, computed from scratch."""
        cdef double total = 0.0
        with nogil:
            for j in range(self.max_clusters):
                total += self.size_weight * self.f[self.size[j]]
            for b in range(self.n_blocks):
                weight = 2 * self.block_weight[b]
                for q in range(self.first_overlap[b], self.first_overlap[b] + self.n_overlaps[b]):
                    total -= weight * self.f[self.overlaps[q].count]
        return total

    def labels(self):
        """Cluster of each item, numbered arbitrarily below max_clusters: (n_items,), int32."""
        return np.array(<int32_t[:self.n_items]> self.label)
