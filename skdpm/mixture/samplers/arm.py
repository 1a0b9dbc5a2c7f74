# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves."""

from skdpm._papers import paper_variant
from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers._arm import BLOCKS, ARMKernel
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.base import Sampler
from skdpm.mixture.samplers.split_merge import SplitMerge


class ARM(Sampler):
    """Adaptive reconfiguration moves: splits and merges found in past states.

    Each move draws two past states and two rows on which they disagree. If the rows share a
    cluster, its split is proposed, otherwise the union of their clusters. Sets of rows that both
    past states keep together choose their cluster as one, then the rows choose one by one. Works
    with every likelihood.

    In warm-up every chain has companions, which start far apart, and learns from their past states
    as well as its own. After warm-up the history no longer changes and the companions are dropped:
    the chains of a fit are independent, and all draws are exact.

    Parameters
    ----------
    blocks : {"all", "pair", "none"}, default="all"
        Rows that choose their cluster in sets: all; those of the two clusters, as in the published
        algorithm; or none, which is simpler and faster. For networks keep "all": with the others
        chains may stay where they start.
    n_history_chains : int, default=8
        Number of chains whose past states are used: a chain and its companions. 1: the chain
        alone. 0: no history, all moves are of two random rows.
    n_history : int, default=16
        Maximal number of past states of each of these chains. They come from the later half of the
        warm-up, evenly spaced.
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move. With 0 some partitions may never be reached.
    n_split_merges : int, default=1
        Number of `SplitMerge` moves of two random rows after each move. They find splits that no
        past state has. With 0, as in the paper, a chain may keep two clusters united if all its
        past states do.

    Notes
    -----
    A warm-up of 250 iterations or more lets the chains see the important partitions. Without
    warm-up there is no history, and all moves are of two random rows. A warm-up iteration costs
    `n_history_chains` times as much as a later one. `init` sets where the public chain starts;
    companions start from random partitions into 4, 8, 16, ... clusters. The history takes one byte
    per row, state and chain (two where a state has more than 256 clusters).

    A move costs one to three sweeps whatever the number of clusters, and more for data with many
    columns that are not networks. A split-merge move adds 0.1 to 0.9 sweeps. `ARM` pays where
    clusters depend on one another, in networks of up to some thousands of nodes, and where a
    posterior has modes that chains seldom leave.

    References
    ----------
    Herlau, Morup, Teh & Schmidt, Adaptive reconfiguration moves for MCMC inference in Dirichlet
    process mixtures, algorithm 3.
    """

    takes_noise = True
    _history = History

    def __init__(
        self, blocks="all", n_history_chains=8, n_history=16, gibbs_sweeps=1, n_split_merges=1
    ):
        self.blocks = blocks
        self.n_history_chains = n_history_chains
        self.n_history = n_history
        self.gibbs_sweeps = gibbs_sweeps
        self.n_split_merges = n_split_merges

    @staticmethod
    def from_paper(variant, **params):
        """Make "ARM", "sARM" or "sRM" of the paper, whose history grows throughout the chain: see
        `skdpm.papers.arm`."""
        return paper_variant("arm", variant, **params)

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1)

    def kernel(self):
        history = self._history(
            check_integer(self.n_history_chains, "ARM.n_history_chains", low=0),
            check_integer(self.n_history, "ARM.n_history", low=1),
        )
        return ARMKernel(
            check_choice(self.blocks, "ARM.blocks", BLOCKS),
            history,
            check_integer(self.gibbs_sweeps, "ARM.gibbs_sweeps", low=0),
            SplitMerge(gibbs_sweeps=0).kernel(),
            check_integer(self.n_split_merges, "ARM.n_split_merges", low=0),
        )
