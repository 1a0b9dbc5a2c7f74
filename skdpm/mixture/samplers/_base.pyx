# SPDX-License-Identifier: BSD-3-Clause
"""What every sampler's kernel shares: one step of a chain, with the GIL released."""
from numpy.random cimport bitgen_t

from skdpm._core._rng cimport bit_generator_pointer


cdef class PartitionKernel:

    cdef int prepare(self, MixtureState state) except -1:
        """Take all the memory a step needs; called before every step, with the GIL."""
        return 0

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        with gil:
            raise RuntimeError(f"{type(self).__name__} does not override `step`")

    # The Python boundary.

    def run(self, MixtureState state, bit_generator, bint adapting=False, Py_ssize_t replica=0):
        """Do one step on `state`, that of a replica, drawing from a numpy bit generator."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.adapting = adapting
        self.replica = replica
        state.prior.tabulate()
        # So that a sweep meets the end of the arena only where clusters more than double in it.
        state.reserve(2 * state.n_clusters + 16)
        self.prepare(state)
        with bit_generator.lock, nogil:
            self.step(state, rng)
            state.model.settle()

    def acceptance(self):
        """Moves so far: dict, move -> (made, accepted); accepted counts those that changed the
        partition where a move has no acceptance step. Empty for samplers without such moves."""
        return {}

    def get_adaptation(self):
        """What the kernel has learnt in warm-up, as plain objects; part of the chain's state."""
        return {}

    def set_adaptation(self, adaptation):
        """Go on from `get_adaptation`."""
