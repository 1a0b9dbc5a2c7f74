# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves."""

from skdpm._validation import check_bool, check_choice, check_integer
from skdpm.mixture.samplers._arm import BLOCKS, ARMKernel
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.base import Sampler


class ARM(Sampler):
    """Adaptive reconfiguration moves: splits and merges found in past states.

    Two past states are drawn, and two rows on which they disagree. In one cluster, they propose
    its split; in two, a merge. Sets of rows that were together in both past states then find their
    place as one, and after that row by row. Works with every likelihood.

    In warm-up every chain has companions, chains from scattered starts: what it learns from is
    where all of them have been. Then the history is frozen and the companions are dropped, so that
    the chains of a fit are independent of each other, and all draws are exact.

    Parameters
    ----------
    blocks : {"all", "pair", "none"}, default="all"
        Which rows find their place as sets: all; those of the two clusters, as in the published
        algorithm; or none, which is simpler and faster ("sARM"). For networks keep "all": with
        the others chains may stay where they start.
    n_history_chains : int, default=8
        Chains whose past states are used: a chain and its companions. 1: its own past alone. 0: no
        history, all moves are of two random rows ("sRM").
    n_history : int, default=16
        Most past states of each of them. They are of the later half of the warm-up, evenly spaced.
    freeze : bool, default=True
        Whether the history stops growing with warm-up, and companions are dropped. False: as
        published. The cost is that of `n_history_chains` chains throughout, and draws follow the
        posterior asymptotically only, as the moves go on to change with the past.
    gibbs_sweeps : int, default=1
        Sweeps of `Gibbs` after each move. With 0 some partitions may never be reached.

    Notes
    -----
    The warm-up should be long enough for the chains to have seen what there is, 250 iterations or
    more: without a warm-up there is no history, and all moves are of two random rows. It costs `n_history_chains` times as much as
    iterations after it. `init` is where the public chain starts; companions start from random
    partitions into 4, 8, 16, ... clusters. Memory of the history: one byte per row, state and
    chain (more than 256 clusters: two).

    A move costs one to three sweeps (more with many columns of other data than networks),
    however many clusters there are. It pays where clusters depend on one another, in networks of
    up to some thousands of nodes, and where a posterior has modes that chains seldom leave.

    References
    ----------
    Herlau, Morup, Teh & Schmidt, Adaptive reconfiguration moves for MCMC inference in Dirichlet
    process mixtures, algorithm 3. There blocks are of two clusters only ("pair").
    """

    def __init__(
        self, blocks="all", n_history_chains=8, n_history=16, freeze=True, gibbs_sweeps=1
    ):
        self.blocks = blocks
        self.n_history_chains = n_history_chains
        self.n_history = n_history
        self.freeze = freeze
        self.gibbs_sweeps = gibbs_sweeps

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1) if self.freeze else 0

    @property
    def n_replicas(self):
        return 1 if self.freeze else max(1, self.n_history_chains)

    def kernel(self):
        history = History(
            check_integer(self.n_history_chains, "ARM.n_history_chains", low=0),
            check_integer(self.n_history, "ARM.n_history", low=1),
            check_bool(self.freeze, "ARM.freeze"),
        )
        return ARMKernel(
            check_choice(self.blocks, "ARM.blocks", BLOCKS),
            history,
            check_integer(self.gibbs_sweeps, "ARM.gibbs_sweeps", low=0),
        )
