# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves as published (Herlau, Mørup, Teh & Schmidt 2014)."""

from skdpm._validation import check_choice
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers.arm import ARM

# The samplers of the paper.
VARIANTS = {
    "ARM": {"blocks": "pair"},
    "sARM": {"blocks": "none"},
    "sRM": {"blocks": "none", "n_history_chains": 0},
}


def make(variant, **params):
    """Make a sampler of the paper, whose history grows throughout the chain.

    >>> from skdpm.mixture.samplers import ARM
    >>> ARM.from_paper("sARM")
    GrowingARM(blocks='none', n_split_merges=0)

    The companions stay after warm-up, so that an iteration always costs that of
    `n_history_chains` chains. Draws follow the posterior only asymptotically, as the moves
    keep changing with the past.

    Parameters
    ----------
    variant : {"ARM", "sARM", "sRM"}
        "ARM": algorithm 3, with sets of rows of the two clusters (`blocks="pair"`). "sARM":
        without sets. "sRM": without history.
    **params
        Parameters of `ARM` to change, such as `blocks="all"`.
    """
    check_choice(variant, "variant of ARM.from_paper", VARIANTS)
    return GrowingARM(**{"n_split_merges": 0, **VARIANTS[variant], **params})


class GrowingHistory(History):
    """A history that is recorded after warm-up as well: chains are then adaptive."""

    def record(self, t, states, adapting):
        super().record(t, states, adapting=True)


class GrowingARM(ARM):
    """`ARM.from_paper`: the history grows throughout, and companions stay."""

    n_companions = 0
    _history = GrowingHistory

    @property
    def n_replicas(self):
        return max(1, self.n_history_chains)
