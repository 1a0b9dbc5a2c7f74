"""Kernel methods of skdpm for Python: the tests of the kernels call them through these classes.

Built against the installed package by `support/probes.py`. The classes check arguments that would
otherwise crash the interpreter.
"""
from libc.math cimport INFINITY

import numpy as np

from skdpm._core cimport _resampling
from skdpm._core._polya_gamma cimport N_SHARES, polya_gamma, tabulate_shares
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations
from skdpm.features.likelihoods._base cimport (
    CollapsedFeatureModel,
    FeatureModel,
    InterceptFeatureModel,
)
from skdpm.features.priors._base cimport FeaturePrior
from skdpm.features.samplers._relaunch cimport (
    LAUNCH, MAP, MOST_LAUNCHED, MOST_RECODED, RelaunchKernel, UNION,
)
from skdpm.features.state._state cimport FeatureState
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, as_indices, log_constant
from skdpm.mixture.likelihoods.contract._parametric cimport ParametricModel, TILE
from skdpm.mixture.samplers._anchors cimport MAX_ANCHORS, AnchorProposal, Members
from skdpm.mixture.particles._slots cimport Family
from skdpm.mixture.particles._system cimport ParticleSystem
from skdpm.mixture.samplers._arm cimport Reconfiguration
from skdpm.mixture.samplers._history cimport History
from skdpm.mixture.samplers._moves cimport Closure, Trial, log_predictive_block, make_trial
from skdpm.mixture.samplers._split_merge cimport SplitMergeKernel
from skdpm.mixture.state._state cimport MixtureState, StoredState

cdef extern from "cholesky.h" nogil:
    bint c_cholesky_update "cholesky_update" (
        double* packed, Py_ssize_t n, double* vector, double alpha, double* log_det
    )
    void c_add_square "add_square" (
        double* packed, Py_ssize_t n, const double* vector, double by
    )

from skdpm.mixture.particles._weights import RESAMPLING
from skdpm.mixture.state._state import labels_by_first_appearance


def cholesky_update(packed, vector, double alpha):
    """The changed factor, (n_packed,), what it adds to log |A|, and whether there is one."""
    cdef double[::1] factor = np.array(packed, dtype=np.float64)
    cdef double[::1] v = np.array(vector, dtype=np.float64)
    cdef double log_det = 0.0
    good = c_cholesky_update(&factor[0], v.shape[0], &v[0], alpha, &log_det)
    return np.asarray(factor), log_det, bool(good)


def add_square(packed, vector, double by):
    """A + by v v', packed by columns: (n_packed,)."""
    cdef double[::1] matrix = np.array(packed, dtype=np.float64)
    cdef const double[::1] v = np.array(vector, dtype=np.float64)
    c_add_square(&matrix[0], v.shape[0], &v[0], by)
    return np.asarray(matrix)


def draw_polya_gamma(const double[::1] z, bit_generator):
    """Draw PG(1, z) for every z: an ndarray."""
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    cdef Py_ssize_t j
    cdef double[N_SHARES] shares
    cdef double[::1] drawn = np.empty(z.shape[0])
    tabulate_shares(shares)
    with bit_generator.lock, nogil:
        for j in range(z.shape[0]):
            drawn[j] = polya_gamma(z[j], shares, rng)
    return np.asarray(drawn)


cdef class Probe:
    """The kernel methods of a model for Python; the tests of the laws go through it."""
    cdef readonly ClusterModel model

    def __init__(self, ClusterModel model, Py_ssize_t n_slots):
        self.model = model
        model.clear(n_slots)

    def _slot(self, Py_ssize_t slot):
        if not 0 <= slot < self.model.n_slots:
            raise IndexError(f"slot {slot} of {self.model.n_slots}")
        return slot

    def _item(self, Py_ssize_t i):
        if not 0 <= i < self.model.n_samples:
            raise IndexError(f"item {i} of {self.model.n_samples}")
        return i

    def reserve(self, Py_ssize_t n_slots):
        self.model.reserve(n_slots)

    def acquire(self):
        if self.model.n_free == 0:
            raise IndexError("no free slot")
        return self.model.acquire()

    def release(self, Py_ssize_t slot):
        self.model.release(self._slot(slot))

    def copy(self, Py_ssize_t dst, Py_ssize_t src):
        self.model.copy(self._slot(dst), self._slot(src))

    def merge(self, Py_ssize_t dst, Py_ssize_t src):
        self.model.merge(self._slot(dst), self._slot(src))

    def log_merge_many(self, const Py_ssize_t[::1] slots, Py_ssize_t src):
        out = np.empty(slots.shape[0])
        cdef double[::1] view = out
        self._room_to_merge()
        self.model.log_merge_many(as_indices(&slots[0], slots.shape[0]), self._slot(src), &view[0])
        return out

    def merge_by_default(self, Py_ssize_t dst, Py_ssize_t src):
        """As the base class does it."""
        ClusterModel.merge(self.model, self._slot(dst), self._slot(src))

    def log_merge_many_by_default(self, const Py_ssize_t[::1] slots, Py_ssize_t src):
        """As the base class does it."""
        out = np.empty(slots.shape[0])
        cdef double[::1] view = out
        self._room_to_merge()
        ClusterModel.log_merge_many(
            self.model, as_indices(&slots[0], slots.shape[0]), self._slot(src), &view[0]
        )
        return out

    def _room_to_merge(self):
        if self.model.factorizes and self.model.n_free == 0:
            raise IndexError("no free slot")

    def add(self, Py_ssize_t slot, Py_ssize_t i):
        self.model.add(self._slot(slot), self._item(i))

    def remove(self, Py_ssize_t slot, Py_ssize_t i):
        self.model.remove(self._slot(slot), self._item(i))

    def shuffle(self, Py_ssize_t slot, const Py_ssize_t[::1] leave, const Py_ssize_t[::1] join):
        """Many times: one item leaves, one joins."""
        cdef Py_ssize_t m
        self._slot(slot)
        for m in range(leave.shape[0]):
            self.model.remove(slot, leave[m])
            self.model.add(slot, join[m])

    def refresh(self, Py_ssize_t slot):
        self.model.settle()
        self.model.refresh(self._slot(slot))

    def rebuild(self, Py_ssize_t slot, const Py_ssize_t[::1] items):
        self.model.rebuild(
            self._slot(slot), as_indices(&items[0] if items.shape[0] else NULL, items.shape[0])
        )

    def log_marginal(self, Py_ssize_t slot):
        return self.model.log_marginal(self._slot(slot))

    def log_predictive(self, Py_ssize_t slot, Py_ssize_t i):
        return self.model.log_predictive(self._slot(slot), self._item(i)) + log_constant(
            self.model, i
        )

    def log_predictive_many(self, const Py_ssize_t[::1] slots, Py_ssize_t i):
        out = np.empty(slots.shape[0])
        cdef double[::1] out_view = out
        self.model.log_predictive_many(
            as_indices(&slots[0], slots.shape[0]), self._item(i), &out_view[0]
        )
        return out + log_constant(self.model, i)

    def open_gaps(self, Py_ssize_t i):
        self.model.open_gaps(self._item(i))

    def close_gaps(self, Py_ssize_t i):
        self.model.close_gaps(self._item(i))

    def log_open_bound_many(self, const Py_ssize_t[::1] slots, Py_ssize_t i):
        """None: there are no bounds."""
        out = np.empty(slots.shape[0])
        cdef double[::1] out_view = out
        if self.model.log_open_bound_many(
            as_indices(&slots[0], slots.shape[0]), self._item(i), &out_view[0]
        ):
            return out
        return None

    def open_rest(
        self, const Py_ssize_t[::1] slots, Py_ssize_t own, Py_ssize_t i,
        const double[::1] log_prior
    ):
        return self.model.open_rest(
            as_indices(&slots[0], slots.shape[0]), own, self._item(i), &log_prior[0]
        )

    def place_within(self, ClusterModel host, Py_ssize_t offset):
        """Let the rows stand within those of `host`, from this double of each on."""
        self.model.place(host.stats + offset, host.stride, host.n_slots)

    def reset(self, Py_ssize_t slot):
        self.model.reset(self._slot(slot))

    def log_likelihood(self, const Py_ssize_t[::1] slots):
        """With the constants of all items that have a label."""
        cdef Py_ssize_t i
        cdef double total = self.model.log_likelihood(as_indices(&slots[0], slots.shape[0]))
        for i in range(min(self.model.n_samples, self.model.n_labels)):
            if self.model.labels[i] >= 0:
                total += log_constant(self.model, i)
        return total


cdef class FeatureProbe:
    """A `FeatureModel` for tests: its functions, callable from Python."""
    cdef readonly FeatureModel model

    def __init__(self, FeatureModel model, Py_ssize_t n_candidates=4):
        self.model = model
        model.reserve_candidates(n_candidates)

    def begin_row(self, Py_ssize_t i, z):
        """Begin with row i in a matrix of which the other rows are as last seen."""
        cdef const unsigned char[::1] view = np.ascontiguousarray(z, dtype=np.uint8)
        self.model.begin_row(i, &view[0] if view.shape[0] else NULL)

    def copy(self, Py_ssize_t target, Py_ssize_t source):
        self.model.copy(target, source)

    def candidate(self, Py_ssize_t candidate):
        """Its running terms, an ndarray of shape (width,)."""
        cdef const double* terms = self.model.candidates + candidate * self.model.width
        return np.array([terms[j] for j in range(max(self.model.width, 1))])

    def flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on):
        self.model.flip(candidate, k, on)

    def log_flip_many(self, candidates, Py_ssize_t k, bint on):
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(candidates, dtype=np.intp)
        cdef double[::1] out = np.empty(view.shape[0])
        self.model.log_flip_many(&view[0], view.shape[0], k, on, &out[0])
        return np.asarray(out)

    def log_rows(self, features, log_odds):
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(features, dtype=np.intp)
        cdef const double[::1] odds = np.ascontiguousarray(log_odds, dtype=np.float64)
        cdef Py_ssize_t n = view.shape[0]
        cdef double[::1] out = np.empty(1 << n)
        self.model.log_rows(
            &view[0] if n else NULL, &odds[0] if n else NULL, n, &out[0]
        )
        return np.asarray(out)

    def log_likelihood(self, Z):
        """log p(X | Z), the model bound to Z from now on."""
        self.model.see(Z)
        return self.model.log_likelihood()

    def log_row(self):
        return self.model.log_row()

    def log_prior(self):
        return self.model.log_prior()

    def reserve(self, Py_ssize_t n_latent=1):
        self.model.reserve(n_latent)

    def add_feature(self, bit_generator=None):
        self.model.add_feature(bit_generator_pointer(bit_generator or np.random.PCG64()))

    def remove_feature(self, Py_ssize_t k=0):
        self.model.remove_feature(k)

    def takes_away(self, Py_ssize_t k=0):
        return (<InterceptFeatureModel?>self.model).takes_away(k)

    def log_complement(self, Py_ssize_t k=0):
        return (<InterceptFeatureModel?>self.model).log_complement(k)

    def complement(self, Py_ssize_t k=0):
        (<InterceptFeatureModel?>self.model).complement(k)

    def log_common(self, Py_ssize_t k=-1):
        return (<InterceptFeatureModel?>self.model).log_common(k)

    def absorb(self, Py_ssize_t k=0):
        (<InterceptFeatureModel?>self.model).absorb(k)

    def split_off(self, Py_ssize_t k=0, bit_generator=None):
        cdef InterceptFeatureModel model = self.model
        model.split_off(k, bit_generator_pointer(bit_generator or np.random.PCG64()))

    def draw_singletons(self):
        (<CollapsedFeatureModel?>self.model).draw_singletons(NULL, 0, NULL)

    def draw_n_singletons(self):
        return (<CollapsedFeatureModel?>self.model).draw_n_singletons(0, 1.0, False, NULL)

    def restricted(self):
        return (<CollapsedFeatureModel?>self.model).restricted()

    def restrict_from(self):
        (<CollapsedFeatureModel?>self.model).restrict_from(self.model, NULL, 0)

    def give_back(self):
        (<CollapsedFeatureModel?>self.model).give_back(self.model, NULL)

    def set_n_new(self, Py_ssize_t n_new=1):
        (<CollapsedFeatureModel?>self.model).set_n_new(n_new)


cdef class StateProbe:
    """The kernel methods of a state for Python; its tests go through it.

    Clusters are given by their position, 0, ..., n_clusters - 1; n_clusters is the spare one.
    """
    cdef readonly MixtureState state

    def __init__(self, MixtureState state):
        self.state = state

    def attach(self, Py_ssize_t i, Py_ssize_t cluster):
        if self._item(i).labels[i] >= 0:
            raise ValueError(f"item {i} is in a cluster")
        if not 0 <= cluster <= self.state.n_clusters:
            raise IndexError(f"cluster {cluster} of {self.state.n_clusters}")
        if self.state.model.n_free == 0:
            raise IndexError("no free slot for a new spare cluster")
        self.state.attach(i, self.state.slots[cluster])

    def detach(self, Py_ssize_t i):
        if self._item(i).labels[i] < 0:
            raise ValueError(f"item {i} is in no cluster")
        self.state.detach(i)

    def dissolve(self, Py_ssize_t cluster):
        if not 0 <= cluster < self.state.n_clusters:
            raise IndexError(f"cluster {cluster} of {self.state.n_clusters}")
        self.state.dissolve(self.state.slots[cluster])

    def store(self):
        """The state as it is, set aside."""
        cdef StoredState stored = StoredState()
        stored.store(self.state)
        return stored

    def recall(self, StoredState stored):
        stored.recall(self.state)

    def join(self, Py_ssize_t dst, Py_ssize_t src):
        if dst == src or not 0 <= min(dst, src) <= max(dst, src) < self.state.n_clusters:
            raise IndexError(f"clusters {dst} and {src} of {self.state.n_clusters}")
        cdef const Py_ssize_t[::1] items = np.flatnonzero(self.state.cluster_labels() == src)
        self.state.join(
            self.state.slots[dst], self.state.slots[src],
            as_indices(&items[0], items.shape[0])
        )

    def reserve(self, Py_ssize_t n_slots):
        self.state.reserve(n_slots)

    def cluster(self, Py_ssize_t i):
        """Position of item i's cluster, -1 while it is detached."""
        cdef Py_ssize_t slot = self._item(i).labels[i]
        return self.state.position[slot] if slot >= 0 else -1

    def slots(self):
        """The slots of the clusters, then that of the spare one."""
        return self.state._slots()

    def log_predictive(self, Py_ssize_t i):
        """log p(x_i | items of each cluster) of a detached item, last for the spare one."""
        cdef Py_ssize_t n_slots = self.state.n_clusters + 1
        if self._item(i).labels[i] >= 0:
            raise ValueError(f"item {i} is in a cluster")
        self.state.model.log_predictive_many(
            as_indices(self.state.slots, n_slots), i, self.state.log_w
        )
        return np.array([self.state.log_w[k] for k in range(n_slots)]) + log_constant(
            self.state.model, i
        )

    def log_likelihood(self):
        """log p of the rows that are in clusters."""
        cdef Py_ssize_t i
        cdef double total = self.state.model.log_likelihood(
            as_indices(self.state.slots, self.state.n_clusters)
        )
        for i in range(self.state.n_samples):
            if self.state.labels[i] >= 0:
                total += log_constant(self.state.model, i)
        return total

    cdef MixtureState _item(self, Py_ssize_t i):
        if not 0 <= i < self.state.n_samples:
            raise IndexError(f"item {i} of {self.state.n_samples}")
        return self.state


cdef class MoveProbe:
    """The methods of trials and cells for Python; their tests go through it.

    Clusters are given by their position in the state, items of the closure by theirs in it.
    """
    cdef readonly MixtureState state
    cdef readonly Trial trial
    cdef readonly AnchorProposal anchors

    def __init__(self, MixtureState state, anchors="uniform"):
        self.state = state
        self.anchors = AnchorProposal(anchors)
        self.trial = make_trial(state.model, Closure(self.anchors))
        self.reserve()

    def reserve(self):
        self.state.prior.tabulate()
        self.state.reserve(self.state.n_clusters + 2 + MAX_ANCHORS)
        self.trial.reserve(self.state)
        self.anchors.update(self.state, False, 0)

    def gather(self, Py_ssize_t n_anchors, bit_generator):
        """The items of the closure of some random anchors, and the cell of each."""
        self.trial.closure.members.collect(self.state)
        return self.gather_again(n_anchors, bit_generator)

    def gather_again(self, Py_ssize_t n_anchors, bit_generator):
        """The same after moves of the closure alone, by lists of members that follow these."""
        cdef Py_ssize_t m
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        if not 1 <= n_anchors <= min(MAX_ANCHORS, self.state.n_samples):
            raise ValueError(f"{n_anchors} anchors")
        self.reserve()
        self.trial.closure.pick(self.state, n_anchors, rng)
        self.trial.closure.gather(self.state, rng)
        n_items = self.trial.closure.n_items
        return (
            np.array([self.trial.closure.items[m] for m in range(n_items)], dtype=np.intp),
            np.array([self.trial.closure.cells[m] for m in range(n_items)], dtype=np.intp),
        )

    def drawn(self):
        """The first two anchors, in the order in which they were drawn."""
        cdef Closure closure = self.trial.closure
        return tuple([closure.items[closure.place[m]] for m in range(2)])

    def log_anchors(self):
        """log q(anchors | the proposed partition)."""
        return self.trial.closure.log_anchors(
            self.state, &self.trial.sides[0], self.trial.side, self.trial.size, self.trial.n_sides
        )

    def log_anchors_together(self):
        """log q(anchors | the partition in which the clusters of the closure are one)."""
        return self.anchors.log_q_together(
            self.state, self.trial.closure.n_outside + 1, self.trial.closure.n_items
        )

    def log_union_ratio(self):
        return self.trial.log_union_ratio(self.state)

    def members(self, Py_ssize_t cluster):
        """The items that the lists have for the cluster at a position."""
        cdef Py_ssize_t slot = self.state.slots[cluster]
        cdef Members members = self.trial.closure.members
        return [members.at(slot, m) for m in range(self.state.sizes[slot])]

    def begin(self, Py_ssize_t n_sides):
        self.trial.begin(self.state, n_sides)

    def join(self, Py_ssize_t m, Py_ssize_t b):
        self.trial.join(self.state, m, b)

    def leave(self, Py_ssize_t m):
        self.trial.leave(self.state, m)

    def unite(self):
        self.trial.unite(self.state)

    def accept(self):
        self.trial.accept(self.state)

    def restore(self):
        self.trial.restore(self.state)
        self.state.model.settle()

    def log_current(self):
        return self.trial.log_current(self.state)

    def log_proposed(self):
        return self.trial.log_proposed(self.state)

    def log_predictive_block(self, const Py_ssize_t[::1] items, Py_ssize_t cluster):
        """Of detached items given those of the cluster at a position; n_clusters: a new one."""
        if self.state.model.n_free == 0:
            raise IndexError("no free slot")
        constants = self.state.model.log_constants
        return log_predictive_block(
            self.state, as_indices(&items[0], items.shape[0]), self.state.slots[cluster]
        ) + (0.0 if constants is None else constants[np.asarray(items)].sum())


cdef class ARMProbe:
    """The construction for Python; its tests go through it.

    Parameters
    ----------
    state : MixtureState
    blocks : {"all", "pair", "none"}
    """
    cdef readonly MixtureState state
    cdef Reconfiguration construction

    def __init__(self, MixtureState state, blocks="all"):
        self.state = state
        self.construction = Reconfiguration(blocks)

    def propose(
        self, labels, Py_ssize_t i, Py_ssize_t j, za=None, zb=None, order=None,
        bit_generator=None, target=None
    ):
        """Bring the state to a partition, and go through the construction from there.

        Parameters
        ----------
        labels : ndarray of shape (n_samples,), or None
            None: from the state as it is.
        i, j : int
        za, zb : array-like of shape (n_samples,), optional
            Labels below n_samples. Without them there is no refinement.
        order : array-like of shape (n_samples,), optional
        bit_generator : numpy BitGenerator, optional
            By which choices are drawn, without a target.
        target : array-like of shape (n_samples,), optional
            Labels below n_samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            By first appearance.
        log_t : float
        """
        cdef const Py_ssize_t[::1] a, b, forced
        cdef const Py_ssize_t* at = NULL
        cdef bitgen_t* rng = NULL
        cdef Py_ssize_t m
        n = self.state.n_samples
        order = list(range(n)) if order is None else list(order)
        if i == j or sorted(order) != list(range(n)) or not (0 <= i < n and 0 <= j < n):
            raise ValueError(f"rows {i} and {j} of {n} in the order {order}")
        if labels is not None:
            self.state.assign(np.ascontiguousarray(labels, dtype=np.intp))
        self.state.prior.tabulate()
        self.state.reserve(2 * self.state.n_clusters + 16)
        self.construction.reserve(self.state)
        self.construction.i, self.construction.j = i, j
        self.construction.za = NULL
        if za is not None:
            a, b = _labels(za, n), _labels(zb, n)
            self.construction.za = &a[0]
            self.construction.zb = &b[0]
        for m in range(n):
            self.construction.order[m] = order[m]
        if target is not None:
            forced = _labels(target, n)
            at = &forced[0]
        else:
            rng = bit_generator_pointer(bit_generator)
        self.construction.construct(self.state, rng, at, -INFINITY)
        self.state.model.settle()
        self.construction.za = NULL
        # A construction that stopped leaves rows in no cluster.
        if self.state.n_attached < n:
            return None, self.construction.log_t
        return labels_by_first_appearance(self.state).astype(np.intp), self.construction.log_t


def _labels(labels, Py_ssize_t n):
    """Labels below n, one per row."""
    labels = np.ascontiguousarray(labels, dtype=np.intp)
    if labels.shape != (n,) or labels.min() < 0 or labels.max() >= n:
        raise ValueError(f"{n} labels below {n}, got {labels}")
    return labels


def draw_pair(History history, Py_ssize_t own, bit_generator):
    """Draw a pair of rows and two past states that disagree about it, for chain `own`: a tuple
    (i, j, za, zb), or None if no two states differ."""
    if own < 0:
        raise IndexError(f"chain {own} does not exist")
    if not history.draw(own, bit_generator_pointer(bit_generator)):
        return None
    return history.pair[0], history.pair[1], np.array(history.za), np.array(history.zb)


def audit(ParticleSystem system):
    """Raise an AssertionError if the slots and particles of a system disagree."""
    cdef Family family
    cdef Py_ssize_t j
    particles = range(system.n_current)
    for p in particles:
        assert system.sizes_of(p).sum() + system.n_noise_of(p) == system.n_rows
        assert (system.stats_of(p)[:, 0] == system.sizes_of(p)).all()
    for f, family in enumerate(system.families):
        members = [p for p in particles if system.family_of(p) == f]
        held = np.concatenate([np.empty(0, int), *(system.slots_of(p) for p in members)])
        live = [family.live[j] for j in range(family.n_live)]
        assert len(members) == family.n_members
        assert family.n_live + 1 + family.model.n_free == family.model.n_slots
        assert [family.position[slot] for slot in live] == list(range(family.n_live))
        holders = dict(zip(*np.unique(held, return_counts=True)))
        assert {slot: family.refs[slot] for slot in live} == holders


class ResamplingProbe:
    """Unconditional resampling for Python; its tests go through it."""

    @staticmethod
    def resample(str scheme, const double[::1] w, bit_generator):
        """Numbers of offspring by weights."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        counts = np.empty(w.shape[0], dtype=np.intp)
        cdef Py_ssize_t[::1] view = counts
        _resampling.resample_freely(rng, RESAMPLING[scheme], &w[0], &view[0], w.shape[0])
        return counts

    @staticmethod
    def thin(log_w, Py_ssize_t n_kept, bit_generator):
        """Who survives, and the log weights then."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        log_w = np.array(log_w, dtype=np.float64)
        counts = np.empty(len(log_w), dtype=np.intp)
        scratch = np.empty(len(log_w))
        cdef double[::1] log_w_view = log_w
        cdef double[::1] scratch_view = scratch
        cdef Py_ssize_t[::1] view = counts
        if not _resampling.thin_exactly(
            rng, &log_w_view[0], &view[0], &scratch_view[0], log_w_view.shape[0], n_kept
        ):
            raise FloatingPointError("the weights are no distribution")
        return counts.astype(bool), log_w


cdef class RelaunchProbe:
    """Moves of a `RelaunchKernel` on a `FeatureState`.

    Parameters
    ----------
    n_moves : int
        Number of proposals of `run`.
    """
    cdef readonly RelaunchKernel kernel

    def __init__(self, Py_ssize_t n_moves):
        self.kernel = RelaunchKernel(n_moves)

    def run(self, FeatureState state, bit_generator, bint adapting=False):
        """Do one step."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.kernel.prepare(state)
        self.kernel.step(state, adapting, rng)

    def propose(
        self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, bit_generator,
        proposal="launch", bint adapting=False
    ):
        """Propose to replace n_old features by n_new, |n_new - n_old| <= 1, by a "launch" or
        "union", in warm-up also by a "map"; see `Proposal` there."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        proposals = {"launch": LAUNCH, "map": MAP, "union": UNION}
        if not 0 <= min(n_old, n_new) <= max(n_old, n_new) <= MOST_LAUNCHED:
            raise ValueError(f"no move from {n_old} features to {n_new}")
        self.kernel.prepare(state)
        self.kernel.move(state, n_old, n_new, proposals[proposal], adapting, rng)

    def recode(self, FeatureState state, Py_ssize_t n, bit_generator):
        """Draw new codes of the groups of n features, 0 < n <= MOST_RECODED. If the likelihood
        can integrate the parameters out, one feature has no other code."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        if not 0 < n <= MOST_RECODED:
            raise ValueError(f"no recoding of {n} features")
        self.kernel.prepare(state)
        self.kernel.recode(state, n, False, rng)

    def draw_choice(self, FeatureState state, Py_ssize_t n, bit_generator, bint adapting=False):
        """Draw n of the used features as a move does: an ndarray of intp, in order."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.kernel.prepare(state)
        self.kernel.choose(state, n, self.kernel.list_used(state), adapting, rng)
        return np.array(self.kernel.features[:n])

    def acceptance(self):
        """Numbers of proposals and acceptances of each move: {(s, s'): (n, n)}."""
        return {
            (i, j): (self.kernel.proposed[i][j], self.kernel.accepted[i][j])
            for i in range(MOST_LAUNCHED + 1)
            for j in range(MOST_LAUNCHED + 1)
            if self.kernel.proposed[i][j] > 0
        }


def weigh_part(
    FeatureState state, const Py_ssize_t[::1] features, const unsigned char[:, ::1] columns,
    bit_generator=None
):
    """`log_weight` of a part that has `columns` in place of these features of a state, and their
    present parameters; with a generator, `propose_params`, which the state then gets."""
    cdef FeatureModel part = state.model.restricted()
    cdef Allocations Z = Allocations(np.zeros((state.n_samples, 0)))
    some_generator = np.random.PCG64(0)
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator or some_generator)
    cdef Py_ssize_t i, j
    cdef double log_weight
    Z.reserve(features.shape[0])
    part.reserve(features.shape[0])
    part.bind_allocations(Z)
    part.restrict_from(state.model, &features[0], features.shape[0])
    for j in range(features.shape[0]):
        part.add_feature(rng)
        Z.append()
        for i in range(state.n_samples):
            Z.set(i, j, columns[i, j])
    if bit_generator is None:
        return part.log_weight()
    log_weight = part.propose_params(rng)
    part.settle_params(rng)
    part.give_back(state.model, &features[0])
    for j in range(features.shape[0]):
        for i in range(state.n_samples):
            state.Z.set(i, features[j], columns[i, j])
    return log_weight


def conditional(FeaturePrior prior):
    """The law of one row given the others: the log odds of a feature that m other rows have, an
    ndarray of shape (n_samples,), and the Poisson rate of the row's singletons."""
    return np.array(prior.log_odds), prior.new_rate


def log_likelihoods_at(ClusterModel model, slots, values, Py_ssize_t h):
    """log p(X | partition) of clusters, up to a constant, for rows of hyperparameters that differ
    in number h: ndarray of shape (n_rows,)."""
    cdef Py_ssize_t m
    cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
    cdef const double[:, ::1] view = np.ascontiguousarray(values, dtype=np.float64)
    assert len(slots) > 0 and view.shape[1] == model.n_hyper and 0 <= h < model.n_hyper
    model.settle()
    model.tally_slots(slots)
    out = np.empty(view.shape[0])
    for m in range(view.shape[0]):
        out[m] = model.log_likelihood_at(
            as_indices(&slots_view[0], slots_view.shape[0]), &view[m, 0], h
        )
    return out


def log_marginals_at(ClusterModel model, slots, values):
    """log p(items of each slot) under other hyperparameters: ndarray (len(slots),)."""
    cdef Py_ssize_t k
    cdef const double[::1] view = np.ascontiguousarray(values, dtype=np.float64)
    if view.shape[0] != model.n_hyper:
        raise ValueError(f"expected {model.n_hyper} hyperparameters, got {values!r}")
    cdef const double* hyper = &view[0] if model.n_hyper > 0 else NULL
    model.settle()
    out = np.empty(len(slots))
    for k in range(out.shape[0]):
        out[k] = model.log_marginal_at(slots[k], hyper)
    return out


def log_predictive_bounds(ClusterModel model, slots, boxes):
    """Upper bounds of log p(x | items of each slot) over the rows of boxes, which are centres
    and half-widths, (n_boxes, 2, n_dimensions): ndarray (n_boxes, n_slots)."""
    cdef Py_ssize_t t
    cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
    cdef const double[:, :, ::1] view = np.ascontiguousarray(boxes, dtype=np.float64)
    bounds = np.empty((view.shape[0], slots_view.shape[0]))
    cdef double[:, ::1] out = bounds
    model.settle()
    for t in range(view.shape[0] if slots_view.shape[0] else 0):
        model.log_predictive_bound_many(
            as_indices(&slots_view[0], slots_view.shape[0]), &view[t, 0, 0], &out[t, 0]
        )
    return bounds


def log_predictive_floors(ClusterModel model, slots, boxes):
    """Lower bounds of log p(x | items of each slot except x) over the rows x of boxes that are
    among these items: ndarray of shape (n_boxes, n_slots); see `log_predictive_bounds`."""
    cdef Py_ssize_t k, t
    cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
    cdef const double[:, :, ::1] view = np.ascontiguousarray(boxes, dtype=np.float64)
    floors = np.empty((view.shape[0], slots_view.shape[0]))
    cdef double[:, ::1] out = floors
    model.settle()
    for t in range(view.shape[0]):
        for k in range(slots_view.shape[0]):
            out[t, k] = model.log_predictive_floor(slots_view[k], &view[t, 0, 0])
    return floors


def log_density_bounds(ParametricModel model, const double[:, ::1] params, boxes):
    """Bounds of log p(x | theta_k) less `log_constants` over the rows of boxes, which are
    centres and half-widths, (n_boxes, 2, n_dimensions): two ndarrays (n_boxes, n_clusters).
    """
    cdef Py_ssize_t t
    cdef Py_ssize_t n_which = params.shape[0]
    cdef const Py_ssize_t[::1] which = np.arange(n_which)
    cdef const double[:, :, ::1] view = np.ascontiguousarray(boxes, dtype=np.float64)
    lower, upper = np.empty((2, view.shape[0], n_which))
    cdef double[:, ::1] low = lower
    cdef double[:, ::1] high = upper
    for t in range(view.shape[0] if n_which else 0):
        model.log_density_bound_many(
            &params[0, 0], as_indices(&which[0], n_which), &view[t, 0, 0], &low[t, 0],
            &high[t, 0]
        )
    return lower, upper


def accumulated(ParametricModel model, stats, items=None):
    """Statistics of a cluster after some items, or all, have joined: ndarray (n_stats,)."""
    cdef Py_ssize_t first
    cdef const Py_ssize_t[::1] items_view = model._items(items)
    cdef Py_ssize_t n_items = items_view.shape[0]
    out = np.array(stats, dtype=np.float64)
    cdef double[::1] view = out
    for first in range(0, n_items, TILE):
        model.accumulate(
            &view[0], as_indices(&items_view[first], min(<Py_ssize_t>TILE, n_items - first))
        )
    return out


def allocation(SplitMergeKernel kernel, MixtureState state, bit_generator, sides=None):
    """Allocate a random closure to two sides and restore the state.

    - `sides`: sequence of int, optional. Forced allocation: 0 and 1 for the anchors, then a
      side per item. Default: drawn.

    Returns

    - `items`, `sides`: ndarray of int. In the order of the move.
    - `log_q`: float. Natural logarithm of the probability of these sides in this order.
    """
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    cdef Py_ssize_t m, n
    if state.n_samples < 2:
        raise ValueError("a split needs two items")
    state.prior.tabulate()
    kernel.prepare(state)
    kernel.closure.members.collect(state)
    if not kernel.closure.pick(state, 2, rng):
        raise ValueError("an anchor is noise")
    kernel.closure.gather(state, rng)
    n = kernel.closure.n_items
    cells = [kernel.closure.cells[m] for m in range(n)]
    if sides is not None:
        if len(sides) != n or tuple(sides[:2]) != (0, 1) or not set(sides) <= {0, 1}:
            raise ValueError(f"{n} items need 0, 1 and further sides, got {sides}")
        for m in range(n):
            kernel.closure.cells[m] = sides[m]
    kernel.trial.begin(state, 2)
    log_q = kernel.allocate(state, rng, sides is not None, -INFINITY)
    drawn = np.array([kernel.trial.sides[m] for m in range(n)], dtype=np.intp)
    for m in range(n):
        kernel.closure.cells[m] = cells[m]
    kernel.trial.restore(state)
    return np.array([kernel.closure.items[m] for m in range(n)], np.intp), drawn, log_q
