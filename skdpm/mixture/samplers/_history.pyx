# SPDX-License-Identifier: BSD-3-Clause
"""Past states of a chain and its companions, from which moves are drawn.

Herlau, Mørup, Teh & Schmidt, "Adaptive reconfiguration moves for MCMC inference in Dirichlet
process mixtures", section 2.2: z^a is uniform on the past states of the chain under update and z^b
on those of all chains. Both are drawn again while they are the same partition. The rows (i, j) are
uniform on the pairs that are together in one of the two states and apart in the other. Moves are
exact under any law of these that does not depend on the current state.

If rows may be noise, a past row of noise is a cluster of one row.

The history must not depend on the current state either, so it stops growing at the end of warm-up.

After iteration t the history holds the states after the iterations u, t / 2 < u <= t, that are
multiples of the *stride*: the smallest power of two with t / (2 stride) <= n_kept.
"""
from libc.string cimport memcmp, memset

import numpy as np

from skdpm._core._rng cimport bitgen_t, integer

from skdpm.mixture.state._state import labels_by_first_appearance

cdef enum:
    # If this many draws of two states give equal ones, the history is treated as constant.
    N_TRIES = 32


def stride_at(t, n_kept):
    """Number of iterations between recorded states in a history of t iterations."""
    stride = 1
    while t > 2 * n_kept * stride:
        stride *= 2
    return stride


cdef class History:
    """An empty history, of at most `n_kept` states of the first `n_recorded` chains."""

    def __init__(self, Py_ssize_t n_recorded, Py_ssize_t n_kept):
        self.n_recorded = n_recorded
        self.n_kept = n_kept
        self.iterations = np.empty(0, dtype=np.int64)
        self.labels = np.empty((0, 0, 0), dtype=np.uint8)

    def record(self, Py_ssize_t t, states, bint adapting):
        """Record the states of all chains if iteration t of the warm-up is due, and forget old
        ones; see `PartitionKernel.record`."""
        if self.n_recorded == 0 or not adapting:
            return
        states = states[: self.n_recorded]
        stride = stride_at(t, self.n_kept)
        kept = (2 * self.iterations > t) & (self.iterations % stride == 0)
        iterations, labels = self.iterations[kept], self.labels[:, kept]
        if t % stride == 0:
            new = [labels_by_first_appearance(state, apart=True) for state in states]
            new = np.stack(new)[:, None]
            labels = np.concatenate([labels, new], axis=1) if len(iterations) else new
            iterations = np.append(iterations, t)
        if labels.itemsize > 1:     # states with many clusters may have been forgotten
            labels = labels.astype(np.min_scalar_type(labels.max()))
        self.hold(labels, iterations)

    def hold(self, labels, iterations):
        """Replace all states by labels, (n_chains, m, n_samples), recorded after m iterations. The
        labels have an unsigned type and number clusters by first appearance."""
        cdef Py_ssize_t before = self.n_samples
        cdef const unsigned char[::1] view
        labels = np.asarray(labels)
        if labels.size > 0 and not 0 <= labels.min() <= labels.max() < labels.shape[2]:
            raise ValueError(
                f"labels of {labels.shape[2]} rows must be from 0 to {labels.shape[2] - 1}, got "
                f"{labels.min()} and {labels.max()}"
            )
        # One, two or four bytes in the machine's byte order.
        narrow = np.min_scalar_type(labels.max(initial=0))
        self.labels = np.ascontiguousarray(labels, dtype=narrow)
        self.iterations = np.asarray(iterations, dtype=np.int64)
        self.n_chains, self.n_states, self.n_samples = self.labels.shape
        self.width = self.labels.itemsize
        view = self.labels.reshape(-1).view(np.uint8)
        self.data = &view[0] if view.shape[0] else NULL
        if self.n_samples != before:
            self.za, self.zb = np.empty((2, self.n_samples), dtype=np.intp)
            self.scratch = np.empty((5, self.n_samples + 1), dtype=np.intp)

    def keep_replicas(self, Py_ssize_t n):
        """Do nothing: the states of all chains stay."""

    cdef int check(self, Py_ssize_t n_samples) except -1:
        """Raise a ValueError if the past states have another number of rows."""
        if self.n_states > 0 and self.n_samples != n_samples:
            raise ValueError(
                f"the past states have {self.n_samples} rows and the current one {n_samples} "
                "rows; start the chain again"
            )

    def get_state(self):
        """Return a dict of arrays for `set_state`."""
        return {"labels": self.labels, "iterations": self.iterations}

    def set_state(self, saved):
        self.hold(saved["labels"], saved["iterations"])

    cdef const unsigned char* state_at(self, Py_ssize_t chain, Py_ssize_t m) noexcept nogil:
        """Return the bytes of the m-th state of a chain."""
        return self.data + (chain * self.n_states + m) * self.n_samples * self.width

    cdef void read(self, const unsigned char* state, Py_ssize_t[::1] labels) noexcept nogil:
        """Convert labels of any unsigned type to Py_ssize_t."""
        for i in range(self.n_samples):
            if self.width == 1:
                labels[i] = state[i]
            elif self.width == 2:
                labels[i] = (<const unsigned short*>state)[i]
            else:
                labels[i] = (<const unsigned int*>state)[i]

    cdef bint draw(self, Py_ssize_t own, bitgen_t* rng) noexcept nogil:
        """Draw two different states and a pair of rows on which they disagree, for chain number
        `own`. Returns False if there are none or the chain is not recorded."""
        cdef const unsigned char* a = NULL
        cdef const unsigned char* b = NULL
        if self.n_chains * self.n_states < 2 or own >= self.n_chains:
            return False
        for _attempt in range(N_TRIES):
            a = self.state_at(own, integer(rng, self.n_states))
            b = self.state_at(integer(rng, self.n_chains), integer(rng, self.n_states))
            if memcmp(a, b, self.n_samples * self.width) != 0:
                self.read(a, self.za)
                self.read(b, self.zb)
                self.draw_rows(rng)
                return True
        return False

    cdef void draw_rows(self, bitgen_t* rng) noexcept nogil:
        """Draw row i with weight n_a + n_b - 2 n_ab, the number of rows j for which z^a and z^b
        disagree about (i, j), then j uniformly among them; O(n). The cluster of i has n_a rows in
        z^a and n_b rows in z^b, and n_ab rows are in both."""
        cdef Py_ssize_t n = self.n_samples
        cdef Py_ssize_t m
        cdef Py_ssize_t* n_a = &self.scratch[0, 0]      # by cluster of z^a
        cdef Py_ssize_t* n_b = &self.scratch[1, 0]
        cdef Py_ssize_t* n_both = &self.scratch[2, 0]   # by row
        cdef Py_ssize_t* items = &self.scratch[3, 0]    # by cluster of z^a
        cdef Py_ssize_t* count = &self.scratch[4, 0]    # by cluster of z^b
        memset(n_a, 0, 2 * (n + 1) * sizeof(Py_ssize_t))
        memset(count, 0, (n + 1) * sizeof(Py_ssize_t))
        for i in range(n):
            n_a[self.za[i]] += 1
            n_b[self.zb[i]] += 1
        # `count` first holds where the rows of each cluster of z^a begin in `items`.
        m = 0
        for k in range(n):
            count[k] = m
            m += n_a[k]
        for i in range(n):
            items[count[self.za[i]]] = i
            count[self.za[i]] += 1
        memset(count, 0, (n + 1) * sizeof(Py_ssize_t))
        m = 0
        for k in range(n):
            for j in range(m, m + n_a[k]):
                count[self.zb[items[j]]] += 1
            for j in range(m, m + n_a[k]):
                n_both[items[j]] = count[self.zb[items[j]]]
            for j in range(m, m + n_a[k]):
                count[self.zb[items[j]]] = 0
            m += n_a[k]
        total = 0
        for i in range(n):
            total += n_a[self.za[i]] + n_b[self.zb[i]] - 2 * n_both[i]
        m = integer(rng, total)
        i = 0
        while True:     # ends, as m is below the sum of the weights
            m -= n_a[self.za[i]] + n_b[self.zb[i]] - 2 * n_both[i]
            if m < 0:
                break
            i += 1
        m = integer(rng, n_a[self.za[i]] + n_b[self.zb[i]] - 2 * n_both[i])
        j = -1
        while m >= 0:
            j += 1
            m -= (self.za[j] == self.za[i]) != (self.zb[j] == self.zb[i])
        self.pair[0], self.pair[1] = i, j
