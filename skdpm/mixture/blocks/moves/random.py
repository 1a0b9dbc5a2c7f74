# SPDX-License-Identifier: BSD-3-Clause
"""Random splits and merges of clusters whose rows are in blocks: exact, drawn without the rows.

A move is a split with probability `split_share`, otherwise a merge of two clusters chosen
uniformly. A split chooses a cluster uniformly, a share ~ Beta(alpha / 2, alpha / 2), and sends
each row to the first side with probability `share`. With K clusters before the split, sides of n
and m rows and B the beta function, a split is accepted (Chang & Fisher 2013, who leave it to their
supplement) with the ratio

    p(X, partition split) / p(X, partition)
    * (1 - split_share) / ((K + 1) K / 2)
    / (split_share / K * 2 B(alpha / 2 + n, alpha / 2 + m) / B(alpha / 2, alpha / 2)),

where the 2 is for two labellings of the sides, which give one partition; a merge with the inverse
ratio of the split that undoes it.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from skdpm._validation import refuse_nan
from skdpm.mixture.blocks.records import RandomSplit, TrialSplit


def proposal_alpha(state):
    """Return the paper's alpha where it only shapes proposals; 1 for a Pitman-Yor concentration
    that is not positive."""
    return state.prior.concentration if state.prior.concentration > 0 else 1.0


@dataclass(frozen=True, slots=True)
class RandomMove:
    """Random numbers of a split or merge, drawn before the clusters are known."""

    stream_number: int  # number of the split's random streams over the rows, from 1
    is_split: bool
    log_u: float  # log of the uniform that decides acceptance
    u: tuple  # two uniforms, which choose clusters
    share: float | None = None  # probability of the first side; None for a merge

    @classmethod
    def draw(cls, rng, alpha, stream_number, split_share):
        is_split = bool(rng.random() < split_share)
        log_u = float(np.log1p(-rng.random()))
        u = tuple(rng.random(2))
        share = rng.beta(0.5 * alpha, 0.5 * alpha) if is_split else None
        return cls(stream_number, is_split, log_u, u, share)

    def trial(self, n_clusters):
        """Return the split of one of n_clusters clusters: TrialSplit."""
        return TrialSplit(int(self.u[0] * n_clusters), self.share, self.stream_number)

    def pair(self, n_clusters):
        """Return two different clusters, the lower one first."""
        one = int(self.u[0] * n_clusters)
        other = int(self.u[1] * (n_clusters - 1))
        other += other >= one
        return min(one, other), max(one, other)


class RandomMoves:
    """Random splits and merges of one chain: `n_moves` an iteration, of which `split_share` are
    splits. Merges need no visit to the rows, and many are needed to find a pair that should merge,
    because pairs are drawn uniformly."""

    def __init__(self, n_moves=10, split_share=0.1):
        self.n_moves = n_moves
        self.split_share = split_share
        self.counts = {
            move: np.zeros(2, dtype=np.int64) for move in ("random_split", "random_merge")
        }

    def draw(self, state, rng):
        """Draw the moves of an iteration: list of RandomMove."""
        alpha = proposal_alpha(state)
        return [
            RandomMove.draw(rng, alpha, number, self.split_share)
            for number in range(1, 1 + self.n_moves)
        ]

    def make(self, state, key, moves, evaluated, memory):
        """Propose moves in turn. Returns whether one was accepted.

        The key is (entropy, chain, iteration). `evaluated` has the splits whose parts are known,
        by stream number, until a move changes the clusters: (TrialSplit, Collected). A memory, if
        there is one, is updated with the clusters.
        """
        changed = False
        for move in moves:
            n_slots = state.n_slots
            if move.is_split:
                if move.stream_number not in evaluated:
                    trial = move.trial(n_slots)
                    _, collected = state.run_task(key, splits=[trial])
                    evaluated = {move.stream_number: (trial, collected[2 * n_slots :])}
                trial, parts = evaluated[move.stream_number]
                accepted = self.split(state, key, move, trial, parts, memory)
            else:
                accepted = n_slots > 1 and self.merge(state, move, memory)
            if accepted:
                changed = True
                evaluated = {}
        return changed

    def split(self, state, key, move, trial, parts, memory):
        """Propose a split whose parts are known (`Collected`). Returns whether it is accepted."""
        self.counts["random_split"][0] += 1
        sides = state.parametric.combined(parts.stats[0::2], parts.stats[1::2])
        first, second = sides[:, 0]
        if first == 0 or second == 0:
            return False
        log_m = state.model.log_marginals(np.concatenate([sides, state.totals([trial.cluster])]))
        log_ratio = log_m[0] + log_m[1] - log_m[2]
        log_ratio += self.log_ratio(state, state.n_slots, first, second)
        refuse_nan(log_ratio, f"the log ratio of the random split of cluster {trial.cluster}")
        if not move.log_u < log_ratio:
            return False
        self.counts["random_split"][1] += 1
        change = RandomSplit(trial, state.n_slots, key)
        state.split_clusters([change], [parts])
        if memory is not None:
            memory.append(trial.cluster)
        return True

    def merge(self, state, move, memory):
        """Propose a merge. Returns whether it is accepted."""
        self.counts["random_merge"][0] += 1
        one, other = move.pair(state.n_slots)
        if not state.may_join(one, other):
            return False
        pair = state.totals([one, other])
        both = state.parametric.combined(pair[:1], pair[1:])
        log_m = state.model.log_marginals(np.concatenate([pair, both]))
        log_ratio = log_m[2] - log_m[0] - log_m[1]
        log_ratio -= self.log_ratio(state, state.n_slots - 1, *pair[:, 0])
        refuse_nan(log_ratio, f"the log ratio of the random merge of clusters {one} and {other}")
        if not move.log_u < log_ratio:
            return False
        self.counts["random_merge"][1] += 1
        # The larger cluster keeps its sub-clusters.
        kept = state.join_clusters([(one, other) if pair[0, 0] >= pair[1, 0] else (other, one)])
        if memory is not None:
            memory.take(kept)
        return True

    def log_ratio(self, state, n_clusters, left, right):
        """Compute the log ratio of a split of one of n_clusters clusters, without the marginal
        likelihoods: the prior's ratio, and the probability of the merge over that of the split."""
        half = 0.5 * proposal_alpha(state)
        log_sides = np.log(2) + betaln(half + left, half + right) - betaln(half, half)
        log_split = np.log(self.split_share) - np.log(n_clusters) + log_sides
        log_merge = np.log1p(-self.split_share) - np.log(n_clusters * (n_clusters + 1) / 2)
        return state.prior.log_split(n_clusters, left, right) + log_merge - log_split
