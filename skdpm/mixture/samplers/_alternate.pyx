# SPDX-License-Identifier: BSD-3-Clause
"""Several kernels in turn.

Each kernel leaves the posterior invariant, and so does any sequence of their steps, provided that
the numbers of steps do not depend on the current partition.

Costs of steps differ by orders of magnitude. The cost of a step of each kernel, in row
evaluations, is measured in warm-up, whose draws are dropped. Numbers of steps are chosen from
these costs and fixed after warm-up. (If an iteration ended after a given amount of work, its last
partition would more often be one in which steps are costly.)

After warm-up, moves that are hardly ever accepted make fewer steps: they found what they could
find, and a chain that seldom takes one gains little by twice as many proposals.
"""
from copy import deepcopy


from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._base cimport PartitionKernel

# Number of turns over which costs of steps are averaged, approximately.
MEMORY = 20.0
# Range of the mean number of steps of a part in a turn.
FEWEST, MOST = 0.1, 1000.0
# Accepted moves in a turn below which steps are fewer after warm-up, and the least share of them.
ENOUGH, LEAST = 0.05, 0.2


def accepted(PartitionKernel part):
    """Number of moves of a part that changed the partition."""
    return sum(n_accepted for _, n_accepted in part.acceptance().values())


cdef class AlternateKernel(PartitionKernel):
    """Kernel of `Alternate`: kernels that take `n_turns` turns per step."""
    cdef readonly list parts
    cdef object move_share
    cdef Py_ssize_t n_turns
    cdef list learned       # a dict per replica: steps, work and numbers of steps in warm-up

    def __init__(self, list parts, move_share, Py_ssize_t n_turns=1):
        self.parts = parts
        self.n_turns = n_turns
        self.move_share = move_share
        self.learned = []

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        with gil:
            for _turn in range(self.n_turns):
                self.alternate(state, rng)

    cdef int alternate(self, MixtureState state, bitgen_t* rng) except -1:
        cdef PartitionKernel part
        cdef long long before
        cdef Py_ssize_t n_steps
        cdef double mean
        cdef Py_ssize_t n_parts = len(self.parts)
        while len(self.learned) <= self.replica:
            self.learned.append(
                {"steps": [1.0] * n_parts, "work": [0.0] * n_parts, "done": [0.0] * n_parts}
            )
        pace = self.learned[self.replica]
        if self.adapting:
            pace.setdefault("accepted", [0.0] * n_parts)
        elif "accepted" in pace:
            self.thin_out(pace)
        for p in range(n_parts):
            part = self.parts[p]
            part.adapting = self.adapting
            part.replica = self.replica
            mean = pace["steps"][p]
            n_steps = <Py_ssize_t>mean
            if mean != n_steps:
                n_steps += uniform(rng) < mean - n_steps
            before = part.work
            n_accepted = accepted(part) if self.adapting else 0
            part.prepare(state)
            with nogil:
                part.repeat(state, rng, n_steps)
            self.work += part.work - before
            if self.adapting and n_steps > 0:
                keep = 1.0 - 1.0 / MEMORY
                pace["work"][p] = keep * pace["work"][p] + (part.work - before)
                pace["done"][p] = keep * pace["done"][p] + n_steps
                n_accepted = accepted(part) - n_accepted
                pace["accepted"][p] = keep * pace["accepted"][p] + n_accepted
        if self.adapting and self.move_share is not None:
            self.share(pace)

    def share(self, pace):
        """Choose numbers of steps so that the parts share the work; the first makes one step."""
        costs = [
            work / done if done else 0.0
            for work, done in zip(pace["work"], pace["done"], strict=True)
        ]
        n_moves = len(costs) - 1
        for p in range(1, len(costs)):
            if costs[p] > 0.0:
                ratio = self.move_share / (1.0 - self.move_share) / n_moves
                pace["steps"][p] = min(max(ratio * costs[0] / costs[p], FEWEST), MOST)

    def thin_out(self, pace):
        """Make fewer steps of parts of which hardly any is accepted, when warm-up has ended."""
        n_accepted = pace.pop("accepted")
        if self.move_share is None:
            return
        for p in range(1, len(n_accepted)):
            if pace["done"][p] > 0.0:
                per_turn = pace["steps"][p] * n_accepted[p] / pace["done"][p]
                pace["steps"][p] *= min(max(per_turn / ENOUGH, LEAST), 1.0)

    # The Python boundary.

    def record(self, Py_ssize_t t, states, bint adapting):
        for part in self.parts:
            part.record(t, states, adapting)

    def keep_replicas(self, Py_ssize_t n):
        del self.learned[n:]
        for part in self.parts:
            part.keep_replicas(n)

    def acceptance(self):
        """Return the moves of all parts. Names that parts share are numbered, 1, 2, ..."""
        counts = [part.acceptance() for part in self.parts]
        names = [name for moves in counts for name in moves]
        return {
            name if names.count(name) == 1 else f"{name}_{p}": moves[name]
            for p, moves in enumerate(counts, start=1)
            for name in moves
        }

    def get_adaptation(self):
        return {
            "parts": [part.get_adaptation() for part in self.parts],
            "learned": deepcopy(self.learned),
        }

    def set_adaptation(self, adaptation):
        if adaptation:
            for part, saved in zip(self.parts, adaptation["parts"], strict=True):
                part.set_adaptation(saved)
            self.learned = deepcopy(adaptation["learned"])
