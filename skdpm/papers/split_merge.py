# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge with anchors of past states: bSM of Herlau, Mørup, Teh & Schmidt (2014)."""

from skdpm._validation import check_integer
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.split_merge import SplitMerge
from skdpm.papers._past_split_merge import PastJainNealKernel


def make(variant, **params):
    """Make a sampler that Herlau, Morup, Teh & Schmidt compare with `ARM`.

    >>> from skdpm.mixture.samplers import SplitMerge
    >>> SplitMerge.from_paper("bSM", n_history_chains=4)
    PastSplitMerge(n_history_chains=4)

    The sampler deviates from the paper in these points. Past states are not refined by the current
    one, because that is not exact. The history has `n_history` states a chain, evenly spaced in
    the later half of the warm-up, and is fixed after it, so that draws are exact; companions are
    then dropped. Companions start from random partitions into 4, 8, 16, ... clusters, and there is
    no phase of 50 Gibbs iterations before the first move.

    Parameters
    ----------
    variant : {"bSM"}
        "bSM" (section 3.6.2): the two rows are rows on which two past states of the chain or its
        companions disagree. Rows that both put together with one of the two start on its side.
    **params
        Parameters of the sampler: `n_restricted_scans` and `gibbs_sweeps` as in `SplitMerge`,
        `n_history_chains=8` and `n_history=16` as in `ARM`.
    """
    return PastSplitMerge(**params)


class PastSplitMerge(SplitMerge):
    """`SplitMerge.from_paper("bSM")`: anchors and launch states come from past states."""

    requires = "joint"

    def __init__(self, n_restricted_scans=5, n_history_chains=8, n_history=16, gibbs_sweeps=1):
        self.n_restricted_scans = n_restricted_scans
        self.n_history_chains = n_history_chains
        self.n_history = n_history
        self.gibbs_sweeps = gibbs_sweeps

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1)

    def kernel(self):
        history = History(
            check_integer(self.n_history_chains, "SplitMerge.n_history_chains", low=0),
            check_integer(self.n_history, "SplitMerge.n_history", low=1),
        )
        return PastJainNealKernel(history, *self._sweeps_and_scans())
