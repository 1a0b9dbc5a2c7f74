# SPDX-License-Identifier: BSD-3-Clause
"""What every sampler's kernel shares: one step of a chain, with the GIL released."""
from numpy.random cimport bitgen_t

from skdpm._core._rng cimport bit_generator_pointer


cdef class PartitionKernel:

    cdef int prepare(self, MixtureState state) except -1:
        """Take all the memory a step needs; called before every step, with the GIL. The state may
        be another one than in the step before, with more or fewer slots."""
        return 0

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        with gil:
            raise RuntimeError(f"{type(self).__name__} does not override `step`")

    cdef int repeat(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t n_steps
    ) except -1 nogil:
        """Do some steps on end, each prepared; a sampler may spare what needs doing but once."""
        cdef Py_ssize_t _step
        for _step in range(n_steps):
            with gil:
                self.prepare(state)
            self.step(state, rng)
        return 0

    # The Python boundary.

    def run(self, MixtureState state, bit_generator, bint adapting=False, Py_ssize_t replica=0):
        """Do one step on a state.

        Parameters
        ----------
        state : MixtureState
            All its items are in clusters.
        bit_generator : numpy BitGenerator
        adapting : bool
            Whether the chain is in warm-up.
        replica : int
            Which of the chain's replicas the state is: 0, 1, ... One kernel serves them all, in
            any order, and what it learns from one it keeps apart, by this number.
        """
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        if state.n_attached < state.n_samples:
            raise ValueError(f"{state.n_samples - state.n_attached} items are in no cluster")
        if replica < 0:
            raise ValueError(f"replica must not be negative, got {replica}")
        self.adapting = adapting
        self.replica = replica
        state.prior.tabulate()
        # So that a sweep meets the end of the arena only where clusters more than double in it.
        state.reserve(2 * state.n_clusters + 16)
        self.prepare(state)
        with bit_generator.lock, nogil:
            self.step(state, rng)
            state.model.settle()

    def record(self, Py_ssize_t t, states, bint adapting):
        """Look at the states of all replicas after the chain's t-th iteration.

        Parameters
        ----------
        t : int
            1, 2, ...
        states : list of MixtureState
            By the number of the replica.
        adapting : bool
            Whether the iteration was one of the warm-up.
        """

    def keep_replicas(self, Py_ssize_t n):
        """Forget what was learnt of each replica from number `n` on: they are gone."""

    def acceptance(self):
        """Moves so far: dict, move -> (made, accepted); accepted counts those that changed the
        partition where a move has no acceptance step. Empty for samplers without such moves."""
        return {}

    def get_adaptation(self):
        """What the kernel has learnt in warm-up, as plain objects; part of the chain's state."""
        return {}

    def set_adaptation(self, adaptation):
        """Go on from `get_adaptation`."""
