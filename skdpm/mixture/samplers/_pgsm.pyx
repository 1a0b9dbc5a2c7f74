# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs split-merge: Bouchard-Cote, Doucet & Roth (2017), algorithms 1-3, appendix D.

A move draws anchors s and gathers the n items of their clusters, the closure: first the anchors,
then the others in random order. It replaces these clusters by a draw of conditional sequential
Monte Carlo. A particle at generation t is a partition of the first t items in which every cell
contains an anchor. Its target is the annealed one of section 3.4,

    gamma^_t = 1 for t <= |s|,    gamma_|s|^(zeta_t) gamma_t / gamma_|s| for t > |s|,
    gamma_t  = V_{., K + cells} prod_b (1 - sigma)_{|b|-1} p(x_b),    zeta_t = (t-|s|) / (n-|s|),

where K is the number of clusters outside the closure. If n = |s|, the target of the last
generation is gamma. The proposal is the conditional law of the next cell, so the weight of a step
is the sum of the target's ratios over the possible cells: their number at an anchor, and later

    gamma_|s|^(1/(n-|s|)) sum_b (|b| - sigma) p(x_t | x_b).

For reproductions, zeta_t may have another power r > 0 of (t-|s|) / (n-|s|), or the targets may be
those of section 3.3: gamma^_t = gamma_t for all t.

Cells that the prior forbids (more than k0 in a finite mixture) are never proposed.

Particles with the same history are one *node* with a multiplicity, computed once. Nodes share the
slots of common cells until one of them adds an item (`particles/_slots`). Optimal resampling
weighs the children of every node and keeps about N of them (Fearnhead & Clifford 2003; in
conditional form Whiteley, Andrieu & Doucet 2010).
"""
from libc.math cimport INFINITY, exp, log, pow

import numpy as np

from skdpm._core cimport _resampling
from skdpm._core._resampling cimport OPTIMAL
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.particles._slots cimport SharedSlots
from skdpm.mixture.state._state cimport MixtureState, as_indices
from skdpm.mixture.samplers._anchors cimport MAX_ANCHORS, AnchorProposal
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport sweep
from skdpm.mixture.samplers._moves cimport Closure

from skdpm.mixture.particles._weights import RESAMPLING
from skdpm.mixture.state._state import unplaceable

cdef enum:
    MAX_CHOICES = 6     # a cell of each anchor, or a new one


cdef struct Node:
    Py_ssize_t slots[MAX_ANCHORS]
    Py_ssize_t sizes[MAX_ANCHORS]
    Py_ssize_t n_cells
    Py_ssize_t count        # number of particles with this history
    double log_w            # log weight of each of them
    double log_gamma        # log gamma_t for t <= |s|, then log gamma_|s|


cdef struct Child:
    Py_ssize_t parent       # node
    Py_ssize_t cell         # cell of the parent; its n_cells for a new one
    Py_ssize_t count        # 0 once resampling has dropped it
    double log_w
    double log_gamma
    bint retained


cdef class PGSMKernel(PartitionKernel):
    """Kernel of `PGSM`, whose parameters it has."""
    cdef Py_ssize_t n_particles, n_anchors, gibbs_sweeps
    cdef double resample_threshold
    cdef double power               # r; 0 for the targets of section 3.3
    cdef int resampling
    cdef readonly AnchorProposal anchors
    cdef long long n_moves, n_changes
    cdef public Py_ssize_t n_reserved   # capacity in nodes before a move

    cdef Closure closure            # its cells are those of the retained particle
    cdef SharedSlots shared         # holders: nodes
    cdef Py_ssize_t n_nodes         # capacity
    cdef Node* nodes                # (n_nodes,)
    cdef Node* next_nodes           # (n_nodes,)
    cdef Child* children            # (n_nodes * MAX_CHOICES,)
    # The genealogy, (n_samples, n_nodes): parent of each node, and its cell of the generation.
    cdef int[:, ::1] parents
    cdef signed char[:, ::1] cells
    cdef signed char[::1] chosen    # (n_samples,): cells of the particle drawn at the end
    cdef double terms[MAX_CHOICES]
    cdef double[::1] weights, log_w         # (n_nodes * MAX_CHOICES,)
    cdef Py_ssize_t[::1] counts             # (n_nodes * MAX_CHOICES,)
    cdef Py_ssize_t[::1] particles          # (n_particles,): node of each
    cdef Py_ssize_t n_current       # nodes of this generation
    cdef Py_ssize_t retained        # the node whose history is the current partition

    def __init__(
        self, Py_ssize_t n_particles, Py_ssize_t n_anchors, AnchorProposal anchors,
        double resample_threshold, str resampling, Py_ssize_t gibbs_sweeps, double power=1.0
    ):
        self.n_particles = n_particles
        self.n_anchors = n_anchors
        self.anchors = self.learner = anchors
        self.resample_threshold = resample_threshold
        self.resampling = RESAMPLING[resampling]
        self.gibbs_sweeps = gibbs_sweeps
        self.power = power
        self.closure = Closure(anchors)
        self.shared = SharedSlots()
        self.chosen = np.empty(0, dtype=np.int8)
        self.particles = np.empty(n_particles, dtype=np.intp)
        # There are at most as many nodes as particles. Under optimal resampling their number is
        # random, with mean and variance at most n_particles.
        self.n_reserved = 2 * n_particles + 32 if self.resampling == OPTIMAL else n_particles

    cdef int prepare(self, MixtureState state) except -1:
        self.anchors.update(state, self.adapting, self.replica)
        if self.chosen.shape[0] != state.n_samples:
            self.chosen = np.empty(state.n_samples, dtype=np.int8)
            self.n_nodes = 0
        self.reserve_nodes(self.n_reserved)
        self.reserve_slots(state)

    cdef int reserve_nodes(self, Py_ssize_t n_nodes) except -1:
        cdef Py_ssize_t n_children = n_nodes * MAX_CHOICES
        if n_nodes <= self.n_nodes:
            return 0
        parents = np.empty((self.chosen.shape[0], n_nodes), dtype=np.intc)
        cells = np.empty((self.chosen.shape[0], n_nodes), dtype=np.int8)
        if self.n_nodes > 0:        # in the middle of a move
            parents[:, : self.n_nodes], cells[:, : self.n_nodes] = self.parents, self.cells
        self.parents, self.cells = parents, cells
        self.nodes = <Node*>self.resized(self.nodes, n_nodes, sizeof(Node))
        self.next_nodes = <Node*>self.resized(self.next_nodes, n_nodes, sizeof(Node))
        self.children = <Child*>self.resized(self.children, n_children, sizeof(Child))
        self.weights, self.log_w = np.empty((2, n_children))
        self.counts = np.empty(n_children, dtype=np.intp)
        self.n_nodes = n_nodes

    cdef int reserve_slots(self, MixtureState state) except -1:
        """Make room for the state's clusters and all cells of all nodes."""
        state.reserve(state.n_clusters + 2 + (self.n_nodes + 1) * self.n_anchors)
        self.shared.bind(state.model, state.capacity)
        self.closure.reserve(state)

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        self.closure.members.collect(state)
        self.move(state, rng)
        return sweep(self, state, rng, self.gibbs_sweeps)

    cdef int move(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        """Algorithm 1: one particle Gibbs update of the clusters that hold the anchors."""
        cdef Py_ssize_t n_anchors = min(self.n_anchors, state.n_samples)
        if n_anchors < 2 or not self.closure.pick(state, n_anchors, rng):
            return 0
        self.closure.gather(state, rng)
        n = self.closure.n_items
        self.start(state)
        for t in range(1, n):
            if self.resampling != OPTIMAL:
                self.resample(rng)
            if not self.extend(state, rng, t, n, n_anchors):
                raise unplaceable(self.closure.items[t])
            if t >= n_anchors - 1 and self.n_current == 1 and self.nodes[0].n_cells == 1:
                # All particles have one cell, also the retained one: the partition stays.
                n = t + 1
                break
        self.n_moves += 1
        node = self.draw_node(rng)
        if node < 0:
            raise FloatingPointError(
                f"row {self.closure.items[n - 1]}: the weights of the particles are no "
                "distribution"
            )
        # If the move has ended early, nothing has changed.
        changed = self.trace(node, n)
        for t in range(self.n_current):
            if not (changed and t == node):
                self.drop_slots(&self.nodes[t])
        if changed:
            self.n_changes += 1
            for t in range(self.nodes[node].n_cells):
                self.shared.refs[self.nodes[node].slots[t]] = 0     # the state counts no holders
            slots = as_indices(self.nodes[node].slots, self.nodes[node].n_cells)
            self.closure.replace(state, &self.chosen[0], slots)

    cdef void start(self, MixtureState state) noexcept nogil:
        """Generation 1: the first item is alone in a cell, in every particle."""
        cdef Node* node = self.nodes
        cdef Py_ssize_t spare = state.slots[state.n_clusters]
        node.slots[0] = self.shared.open()
        self.shared.hold(node.slots[0])
        node.sizes[0] = 1
        node.n_cells = 1
        node.count = 1 if self.resampling == OPTIMAL else self.n_particles
        node.log_w = 0.0
        node.log_gamma = state.model.log_predictive(spare, self.closure.items[0])
        state.model.add(node.slots[0], self.closure.items[0])
        self.n_current = 1
        self.retained = 0
        self.cells[0, 0] = 0
        self.parents[0, 0] = 0

    cdef int extend(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t t, Py_ssize_t n, Py_ssize_t n_anchors
    ) except -1 nogil:
        """Item t joins a cell of every particle. Returns 0 if the weights are no distribution."""
        cdef Py_ssize_t n_children = 0
        cdef Py_ssize_t i = self.closure.items[t]
        cdef const double* log_v = state.prior.log_v + self.closure.n_outside
        cdef const double* log_join = state.prior.log_join
        cdef double gains[MAX_CHOICES]      # log gamma ratio of each choice, without V
        cdef double* terms = self.terms     # log gamma^ ratio of each choice
        cdef double log_gamma
        for g in range(self.n_current):
            node = &self.nodes[g]
            if node.count == 0:
                continue
            n_choices = node.n_cells
            state.model.log_predictive_many(as_indices(node.slots, n_choices), i, gains)
            self.work += n_choices
            for b in range(n_choices):
                gains[b] += log_join[node.sizes[b]]
                terms[b] = gains[b]
            # A new cell, unless the prior forbids it. (A NaN makes the weights NaN.)
            if t < n_anchors and log_v[n_choices + 1] != -INFINITY:
                gains[n_choices] = state.model.log_predictive(state.slots[state.n_clusters], i)
                n_choices += 1
            anneal = self.annealed(node.log_gamma, t - n_anchors, n - n_anchors)
            for b in range(n_choices):
                self.children[n_children + b].parent = g
                self.children[n_children + b].cell = b
                self.children[n_children + b].count = 1
                self.children[n_children + b].retained = (
                    g == self.retained and b == self.closure.cells[t]
                )
                log_gamma = node.log_gamma
                if t < n_anchors:
                    log_gamma += gains[b]
                    if t == n_anchors - 1:
                        log_gamma += log_v[node.n_cells + (b == node.n_cells)]
                    if self.power == 0.0:
                        terms[b] = (
                            gains[b] + log_v[node.n_cells + (b == node.n_cells)]
                            - log_v[node.n_cells]
                        )
                    else:
                        # The last generation has the target gamma.
                        terms[b] = log_gamma if t == n - 1 else 0.0
                self.children[n_children + b].log_gamma = log_gamma
                self.children[n_children + b].log_w = node.log_w + anneal + terms[b]
            if self.resampling != OPTIMAL:
                if not self.propose(rng, node, &self.children[n_children], n_choices):
                    return 0
            n_children += n_choices
        if self.resampling == OPTIMAL and n_children > self.n_particles:
            if not self.resample_optimal(rng, n_children):
                return 0
        self.branch(state, t, n_children)
        return 1

    cdef double annealed(self, double log_gamma, Py_ssize_t t, Py_ssize_t n) noexcept nogil:
        """The share of log gamma_|s| that item t of the n after the anchors adds to the target."""
        if t < 0 or self.power == 0.0:
            return 0.0
        if self.power == 1.0:
            return log_gamma / n
        return log_gamma * (pow((t + 1.0) / n, self.power) - pow(<double>t / n, self.power))

    cdef bint propose(
        self, bitgen_t* rng, Node* node, Child* children, Py_ssize_t n_choices    # INOUT
    ) noexcept nogil:
        """Each particle of a node draws its cell; all get the sum of the choices' weights."""
        cdef Py_ssize_t _particle
        cdef Py_ssize_t retained = -1
        cdef double top = -INFINITY, total = 0.0
        for b in range(n_choices):
            if not (children[b].log_w <= top):
                top = children[b].log_w
        for b in range(n_choices):
            self.terms[b] = exp(children[b].log_w - top)
            total += self.terms[b]
        if not (0.0 < total < INFINITY):
            return False
        log_w = top + log(total)
        for b in range(n_choices):
            children[b].log_w = log_w
            children[b].count = 0
            if children[b].retained:
                children[b].count = 1
                retained = b
        for _particle in range(node.count - (retained >= 0)):
            u = uniform(rng) * total
            b = 0
            while b < n_choices - 1 and u >= self.terms[b]:     # ends at the last choice
                u -= self.terms[b]
                b += 1
            children[b].count += 1
        return True

    cdef int branch(self, MixtureState state, Py_ssize_t t, Py_ssize_t n_children) except -1 nogil:
        """Make the nodes of the next generation, in two passes: once the parents have released
        their slots, a cell that only one child holds can grow in place."""
        cdef Py_ssize_t n_next = 0
        for c in range(n_children):
            n_next += self.children[c].count > 0
        if n_next > self.n_nodes:
            # Possible only under optimal resampling, with a tiny probability.
            with gil:
                self.reserve_nodes(2 * n_next)
                self.reserve_slots(state)
        n_next = 0
        for c in range(n_children):
            child = &self.children[c]
            if child.count == 0:
                continue
            parent = &self.nodes[child.parent]
            node = &self.next_nodes[n_next]
            node[0] = parent[0]
            node.count = child.count
            node.log_w = child.log_w
            node.log_gamma = child.log_gamma
            for b in range(parent.n_cells):
                self.shared.hold(parent.slots[b])
            self.parents[t, n_next] = <int>child.parent
            self.cells[t, n_next] = <signed char>child.cell
            if child.retained:
                self.retained = n_next
            n_next += 1
        for c in range(self.n_current):
            self.drop_slots(&self.nodes[c])
        for c in range(n_next):
            node = &self.next_nodes[c]
            b = self.cells[t, c]
            if b == node.n_cells:
                node.slots[b] = self.shared.open()
                self.shared.hold(node.slots[b])
                node.n_cells += 1
                node.sizes[b] = 0
            else:
                node.slots[b] = self.shared.writable(node.slots[b])
            node.sizes[b] += 1
            state.model.add(node.slots[b], self.closure.items[t])
        self.work += n_next
        self.nodes, self.next_nodes = self.next_nodes, self.nodes
        self.n_current = n_next

    cdef void drop_slots(self, Node* node) noexcept nogil:
        for b in range(node.n_cells):
            self.shared.let_go(node.slots[b])

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        self.gather_weights()
        if _resampling.resample_if_uneven(
            rng, self.resampling, self.resample_threshold, &self.log_w[0], &self.weights[0],
            &self.counts[0], self.n_current, self.retained, &self.particles[0]
        ):
            for g in range(self.n_current):
                self.nodes[g].count = self.counts[g]
                self.nodes[g].log_w = self.log_w[g]

    cdef void gather_weights(self) noexcept nogil:
        for g in range(self.n_current):
            self.log_w[g] = self.nodes[g].log_w
            self.counts[g] = self.nodes[g].count

    cdef bint resample_optimal(self, bitgen_t* rng, Py_ssize_t n_children) noexcept nogil:
        """Optimal resampling of the children of all nodes."""
        cdef Py_ssize_t retained = -1
        for c in range(n_children):
            self.log_w[c] = self.children[c].log_w
            if self.children[c].retained:
                retained = c
        if not _resampling.resample_optimal(
            rng, &self.log_w[0], &self.counts[0], &self.weights[0], n_children, retained,
            self.n_particles
        ):
            return False
        for c in range(n_children):
            self.children[c].log_w = self.log_w[c]
            self.children[c].count = self.counts[c]
        return True

    cdef Py_ssize_t draw_node(self, bitgen_t* rng) noexcept nogil:
        """Draw a node with probability proportional to the weight of its particles."""
        self.gather_weights()
        return _resampling.draw_node(
            rng, &self.log_w[0], &self.counts[0], &self.weights[0], self.n_current
        )

    cdef bint trace(self, Py_ssize_t node, Py_ssize_t n_items) noexcept nogil:
        """Write a node's history to `chosen`. Returns whether it changes the partition."""
        cdef bint differs = False
        for t in range(n_items - 1, -1, -1):
            self.chosen[t] = self.cells[t, node]
            differs = differs or self.chosen[t] != self.closure.cells[t]
            node = self.parents[t, node]
        return differs

    # The Python boundary.

    def acceptance(self):
        """"pgsm": moves, and those that changed the partition."""
        return {"pgsm": (self.n_moves, self.n_changes)}
