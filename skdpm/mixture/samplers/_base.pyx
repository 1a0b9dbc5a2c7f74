# SPDX-License-Identifier: BSD-3-Clause
"""Base class of samplers' kernels: a step of a chain, with the GIL released."""

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t


cdef class PartitionKernel(MemoryOwner):

    cdef int prepare(self, MixtureState state) except -1:
        """Reserve the memory of a step; called with the GIL before every step. The state may
        differ from that of the last step, and have more or fewer slots."""

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        raise RuntimeError(f"{type(self).__name__} does not override `step`")

    cdef int repeat(self, MixtureState state, bitgen_t* rng, Py_ssize_t n_steps) except -1 nogil:
        """Do consecutive steps, each after `prepare`; overridden if steps can share work."""
        for _step in range(n_steps):
            with gil:
                self.prepare(state)
            self.step(state, rng)

    # The Python boundary.

    def run(self, MixtureState state, bit_generator, bint adapting=False, Py_ssize_t replica=0):
        """Do one step on a state with all items in clusters, or noise; `adapting` in warm-up. One
        kernel serves all replicas of a chain, in any order, and learns from each separately."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef Py_ssize_t n_placed = state.n_attached + state.n_noise
        if n_placed < state.n_samples:
            raise ValueError(
                f"{state.n_samples - n_placed} items are in no cluster; attach all items"
            )
        if replica < 0:
            raise ValueError(f"replica must not be negative, got {replica}")
        self.adapting = adapting
        self.replica = replica
        state.prior.tabulate()
        # Memory is then short only if the number of clusters doubles within a sweep.
        state.reserve(2 * state.n_clusters + 16)
        self.prepare(state)
        state.filled = False
        with bit_generator.lock, nogil:
            self.step(state, rng)
            # Samplers move partitions of completed rows, no noise; sweeps draw gaps and noise.
            if state.noise is not None and not state.filled:
                state.place_all(rng)
            elif state.model.n_incomplete > 0 and not state.filled:
                state.place_incomplete(rng)
            state.model.settle()

    def record(self, Py_ssize_t t, states, bint adapting):
        """Learn from the states of all replicas, in their order, after iteration t = 1, 2, ... of
        the chain, which is `adapting` in warm-up."""
        if self.learner is not None:
            self.learner.record(t, states, adapting)

    def keep_replicas(self, Py_ssize_t n):
        """Forget what was learnt from the replicas n, n + 1, ..., which are dropped."""
        if self.learner is not None:
            self.learner.keep_replicas(n)

    def acceptance(self):
        """Return numbers of moves so far: dict, move -> (proposed, accepted). For moves without an
        acceptance step, accepted ones are those that changed the partition. Empty for samplers
        without moves of clusters."""
        return {}

    def get_adaptation(self):
        """Return what the kernel has learnt in warm-up, as plain objects; {} if nothing."""
        return {} if self.learner is None else self.learner.get_state()

    def set_adaptation(self, adaptation):
        """Restore what `get_adaptation` returned."""
        if adaptation:
            self.learner.set_state(adaptation)
