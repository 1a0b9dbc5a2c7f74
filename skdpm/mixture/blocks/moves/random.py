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
    """The paper's alpha where it only shapes proposals; 1 if a concentration is not positive."""
    return state.prior.concentration if state.prior.concentration > 0 else 1.0


@dataclass(frozen=True, slots=True)
class DrawnMoves:
    """Random numbers of the moves of an iteration, drawn before the clusters are known.

    - `is_split`: (n_moves,), bool. Splits; the others are merges.
    - `log_u`: (n_moves,). Logarithms of the uniforms that decide acceptance.
    - `u`: (n_moves, 2). Uniforms that choose clusters.
    - `shares`: (n_moves,). Probability of the first side of a split; NaN for a merge.
    """

    is_split: np.ndarray
    log_u: np.ndarray
    u: np.ndarray
    shares: np.ndarray

    @classmethod
    def draw(cls, rng, alpha, n_moves, split_share):
        is_split = rng.random(n_moves) < split_share
        log_u = np.log1p(-rng.random(n_moves))
        u = rng.random((n_moves, 2))
        shares = np.full(n_moves, np.nan)
        shares[is_split] = rng.beta(0.5 * alpha, 0.5 * alpha, int(is_split.sum()))
        return cls(is_split, log_u, u, shares)

    def __len__(self):
        return len(self.is_split)

    def trial(self, m, n_clusters):
        """The split of one of n_clusters clusters: TrialSplit, with random streams m + 1."""
        return TrialSplit(int(self.u[m, 0] * n_clusters), float(self.shares[m]), m + 1)

    def trials(self, n_clusters):
        """Return all splits, as if each were the first move: list of TrialSplit."""
        return [self.trial(int(m), n_clusters) for m in np.flatnonzero(self.is_split)]

    def pairs(self, moves, n_clusters):
        """Two different clusters for each of the moves, a slice, the lower one first: (n, 2)."""
        one = (self.u[moves, 0] * n_clusters).astype(np.intp)
        other = (self.u[moves, 1] * (n_clusters - 1)).astype(np.intp)
        other += other >= one
        return np.sort(np.stack([one, other], axis=1), axis=1)


class RandomMoves:
    """Random splits and merges of one chain: `n_moves` an iteration, of which `split_share` are
    splits. Merges need no visit to the rows, and many are needed to find a pair that should merge,
    because pairs are drawn uniformly. Their number must not depend on the clusters."""

    def __init__(self, n_moves=10, split_share=0.1):
        self.n_moves = n_moves
        self.split_share = split_share
        self.counts = {
            move: np.zeros(2, dtype=np.int64) for move in ("random_split", "random_merge")
        }

    def draw(self, state, rng):
        """Draw the moves of an iteration: DrawnMoves."""
        return DrawnMoves.draw(rng, proposal_alpha(state), self.n_moves, self.split_share)

    def make(self, state, key, moves, evaluated, memory):
        """Propose `DrawnMoves` in turn. Returns whether one was accepted.

        The key is (entropy, chain, iteration). `evaluated` has the splits whose parts are known,
        by stream number, until a move changes the clusters: (TrialSplit, Collected). A memory, if
        there is one, is updated with the clusters.
        """
        changed, m = False, 0
        splits = np.append(np.flatnonzero(moves.is_split), len(moves))
        while m < len(moves):
            n_slots = state.n_slots
            if moves.is_split[m]:
                if m + 1 not in evaluated:
                    trial = moves.trial(m, n_slots)
                    _, collected = state.run_task(key, splits=[trial])
                    evaluated = {m + 1: (trial, collected[2 * n_slots :])}
                trial, parts = evaluated[m + 1]
                accepted = self.split(state, key, moves.log_u[m], trial, parts, memory)
                m += 1
            else:
                stop = splits[np.searchsorted(splits, m)]
                accepted, m = self.merge(state, moves, m, stop, memory)
            if accepted:
                changed = True
                evaluated = {}
        return changed

    def split(self, state, key, log_u, trial, parts, memory):
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
        if not log_u < log_ratio:
            return False
        self.counts["random_split"][1] += 1
        state.split_clusters([RandomSplit(trial, state.n_slots, key)], [parts])
        if memory is not None:
            memory.append(trial.cluster)
        return True

    def merge(self, state, moves, m, stop, memory):
        """Propose the merges from number m to `stop` - 1 until one is accepted. All pairs are
        weighed at once. Returns whether one was accepted, and the number of the next move."""
        if state.n_slots == 1:
            return False, stop
        pairs = moves.pairs(slice(m, stop), state.n_slots)
        unique, which = np.unique(pairs, axis=0, return_inverse=True)
        accepted = moves.log_u[m:stop] < self.log_ratios(state, unique)[which.ravel()]
        for j in np.flatnonzero(accepted):
            one, other = (int(k) for k in pairs[j])
            if not state.may_join(one, other):
                continue
            self.counts["random_merge"] += j + 1, 1
            # The larger cluster keeps its sub-clusters.
            sizes = state.totals([one, other])[:, 0]
            kept = state.join_clusters([(one, other) if sizes[0] >= sizes[1] else (other, one)])
            if memory is not None:
                memory.take(kept)
            return True, m + int(j) + 1
        self.counts["random_merge"][0] += stop - m
        return False, stop

    def log_ratios(self, state, pairs):
        """Compute the log ratios of merges of pairs of clusters, (n, 2): (n,)."""
        totals = state.totals()
        first, second = totals[pairs[:, 0]], totals[pairs[:, 1]]
        unions = state.parametric.combined(first, second)
        log_m = state.model.log_marginals(np.concatenate([totals, unions]))
        log_ratios = log_m[len(totals) :] - log_m[pairs].sum(axis=1)
        log_ratios -= self.log_ratio(state, state.n_slots - 1, first[:, 0], second[:, 0])
        for one, other in pairs[np.isnan(log_ratios)]:
            refuse_nan(np.nan, f"the log ratio of the random merge of clusters {one} and {other}")
        return log_ratios

    def log_ratio(self, state, n_clusters, left, right):
        """Compute the log ratios of splits of one of n_clusters clusters into sides of `left` and
        `right` rows, arrays or numbers, without the marginal likelihoods: the prior's ratio, and
        the probability of the merge over that of the split."""
        sides = np.broadcast(left, right)
        of_prior = [state.prior.log_split(n_clusters, *pair) for pair in sides]
        half = 0.5 * proposal_alpha(state)
        log_sides = np.log(2) + betaln(half + left, half + right) - betaln(half, half)
        log_split = np.log(self.split_share) - np.log(n_clusters) + log_sides
        log_merge = np.log1p(-self.split_share) - np.log(n_clusters * (n_clusters + 1) / 2)
        return np.reshape(of_prior, sides.shape) + log_merge - log_split
