# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves as published (Herlau, Mørup, Teh & Schmidt 2014)."""

from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.arm import ARM

# More states than a chain has iterations.
EVERY_STATE = 2**62


def make(variant, **params):
    """Make a sampler of the paper, whose history grows throughout the chain.

    >>> from skdpm.mixture.samplers import ARM
    >>> ARM.from_paper("sARM")
    GrowingARM(blocks='none', n_history=None, n_split_merges=0)

    After iteration t the history has all states of the iterations from t / 2 to t of each of
    `n_history_chains` chains; with a number, `n_history`, evenly spaced ones. It takes one byte
    per row, state and chain. The companions stay after warm-up, so that an iteration always costs
    that of `n_history_chains` chains. Draws follow the posterior only asymptotically, as the moves
    keep changing with the past.

    The sampler deviates from the paper in these points. There is no phase of 50 Gibbs iterations
    before the first move. Companions start from random partitions into 4, 8, 16, ... clusters.

    Parameters
    ----------
    variant : {"ARM", "sARM", "sRM"}
        "ARM": algorithm 3, with sets of rows of the two clusters (`blocks="pair"`). "sARM":
        without sets. "sRM": without history.
    **params
        Parameters of `ARM` to change, such as `blocks="all"`.
    """
    settings = {"n_split_merges": 0, "n_history": None, "blocks": "none"}
    if variant == "ARM":
        settings["blocks"] = "pair"
    if variant == "sRM":
        settings["n_history_chains"] = 0
    return GrowingARM(**{**settings, **params})


class GrowingHistory(History):
    """A history that is recorded after warm-up as well: chains are then adaptive."""

    def record(self, t, states, adapting):
        super().record(t, states, adapting=True)


class GrowingARM(ARM):
    """`ARM.from_paper`: the history grows throughout, and companions stay."""

    n_companions = 0
    _history = GrowingHistory

    def _n_history(self):
        return EVERY_STATE if self.n_history is None else super()._n_history()

    @property
    def n_replicas(self):
        return max(1, self.n_history_chains)
