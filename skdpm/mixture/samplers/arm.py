# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves."""

from skdpm._papers import paper_variants
from skdpm._validation import check_choice, check_integer, parameters
from skdpm.mixture.samplers._arm import BLOCKS, ARMKernel
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.base import Sampler
from skdpm.mixture.samplers.split_merge import SplitMerge


@parameters
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
        Rows that choose clusters in sets: all, those of two clusters, or none. For networks "all".
    n_history_chains : int, default=8
        Number of chains whose past states are used: a chain and its companions. 0: no history.
    n_history : int, default=16
        Maximal number of past states of each of these chains.
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move. With 0 some partitions may never be reached.
    n_split_merges : int, default=1
        Number of `SplitMerge` moves of two random rows after each move.

    References
    ----------
    Herlau, Morup, Teh & Schmidt, whose algorithm 3 is `ARM.from_paper("ARM")`.
    """

    takes_noise = True
    _history = History

    blocks: str = "all"
    n_history_chains: int = 8
    n_history: int = 16
    gibbs_sweeps: int = 1
    n_split_merges: int = 1

    from_paper = paper_variants("arm", ("ARM", "sARM", "sRM"), "whose history grows throughout")

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1)

    def _n_history(self):
        return check_integer(self.n_history, "ARM.n_history", low=1)

    def kernel(self):
        history = self._history(
            check_integer(self.n_history_chains, "ARM.n_history_chains", low=0), self._n_history()
        )
        return ARMKernel(
            check_choice(self.blocks, "ARM.blocks", BLOCKS),
            history,
            check_integer(self.gibbs_sweeps, "ARM.gibbs_sweeps", low=0),
            SplitMerge(gibbs_sweeps=0).kernel(),
            check_integer(self.n_split_merges, "ARM.n_split_merges", low=0),
        )
