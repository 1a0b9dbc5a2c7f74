# SPDX-License-Identifier: BSD-3-Clause
"""Exact splits that evaluate rows, and merges of close clusters, their reverse (`doc/design.md`).

The rows of one or two clusters are a *union*. Pairs of clusters a, b have the closeness w(b | a),
a mixture of the uniform law and one proportional to exp(2 log(m(a + b) / (m(a) m(b))) / min(n_a,
n_b)), where m is the marginal likelihood and n the number of rows.
"""

import numpy as np

from skdpm._validation import refuse_nan
from skdpm.mixture.blocks.kernel import log_gamma_variates
from skdpm.mixture.blocks.moves.random import proposal_alpha
from skdpm.mixture.blocks.records import Launch, LaunchedSplit

# Number of rows that a union counts as when the first parameters of a launch are drawn: with one
# row, the sides are as far apart as the rows.
N_FRESH_ROWS = 1
UNIFORM_SHARE = 0.1  # of the uniform law, in the mixture that pairs are drawn from
SHARPNESS = 2.0  # factor in the exponent of the other law


class LaunchedMoves:
    """Launched splits and merges of one chain, of at most `n_unions` unions at a time. `n_passes`
    is the number of passes over their rows before the one that draws the proposal."""

    def __init__(self, n_unions=10, n_passes=4):
        self.n_unions = n_unions
        self.n_passes = n_passes
        self.counts = {
            move: np.zeros(2, dtype=np.int64) for move in ("launched_split", "launched_merge")
        }

    def make(self, state, rng, key):
        """Propose moves of disjoint unions in turn."""
        unions = self.choose(state, rng)
        launch, key, sides = self.launch(state, unions, rng, key)
        nodes = Nodes(state, unions, sides.collected.stats)
        log_choice = nodes.log_choice()
        splits, merges = [], []
        for j, union in enumerate(unions):
            count = self.counts["launched_split" if nodes.is_whole[j] else "launched_merge"]
            count[0] += 1
            if nodes.totals[nodes.sides[j], 0].min() == 0:
                continue
            if not nodes.is_whole[j] and not state.may_join(*union):
                continue
            log_ratio = self.log_ratio(state, nodes, j, sides.log_q[j])
            nodes.flip(j)
            log_reverse = nodes.log_choice()
            log_ratio += log_reverse - log_choice
            refuse_nan(log_ratio, f"the log ratio of a launched move of the clusters {union}")
            if np.log1p(-rng.random()) < log_ratio:
                count[1] += 1
                (merges if nodes.is_whole[j] else splits).append(j)
                log_choice = log_reverse
            else:
                nodes.flip(j)
        two = [slice(2 * j, 2 * j + 2) for j in range(len(unions))]
        changes = [
            LaunchedSplit(
                unions[j][0],
                state.n_slots + n,
                launch.params[two[j]],
                launch.log_weights[two[j]],
                key,
                j,
            )
            for n, j in enumerate(splits)
        ]
        if splits:
            state.split_clusters(changes, [sides.collected[two[j]] for j in splits])
        if merges:
            state.join_clusters([unions[j] for j in merges])

    def choose(self, state, rng):
        """Draw disjoint unions: list of tuples of one or two clusters."""
        totals = state.totals()
        log_m = state.model.log_marginals(totals)
        left, unions = np.arange(len(totals)), []
        while len(unions) < self.n_unions and len(left):
            one = int(left[int(rng.random() * len(left))])
            others = left[left != one]
            union = (one,)
            if len(others) and rng.random() < 0.5:
                closeness = _closeness(state, totals, log_m, np.array([one]), others)[0]
                weights = np.exp(closeness - closeness.max())
                weights *= (1.0 - UNIFORM_SHARE) / weights.sum()
                weights += UNIFORM_SHARE / len(others)
                u = rng.random() * weights.sum()
                other = others[min(int((np.cumsum(weights) <= u).sum()), len(others) - 1)]
                union = (min(one, int(other)), max(one, int(other)))
            unions.append(union)
            left = np.setdiff1d(left, union)
        return unions

    def launch(self, state, unions, rng, key):
        """Make the passes over the rows of unions. Returns the `Launch` of the last pass, the key
        of its streams and the `Sides` drawn."""
        params = self.first_params(state, unions, rng)
        log_weights = np.zeros(len(params))
        for n in range(self.n_passes + 1):
            launch = Launch(tuple(unions), params, log_weights)
            sides = state.launch((*key, 1 + n), launch)
            if n < self.n_passes:
                stats = sides.collected.stats
                params = state.parametric.draw(stats, np.ones(len(stats)), rng.bit_generator)
                shapes = stats[:, 0] + 0.5 * proposal_alpha(state)
                log_weights = log_gamma_variates(shapes, rng)
        return launch, (*key, 1 + n), sides

    def first_params(self, state, unions, rng):
        """Draw parameters of the sides of unions, given all rows of each."""
        stats = state.totals([union[0] for union in unions])
        pairs = [j for j, union in enumerate(unions) if len(union) == 2]
        second = state.totals([unions[j][1] for j in pairs])
        stats[pairs] = state.parametric.combined(stats[pairs], second)
        stats = np.repeat(stats, 2, axis=0)
        powers = np.minimum(N_FRESH_ROWS / stats[:, 0], 1.0)
        return state.parametric.draw(stats, powers, rng.bit_generator)

    def log_ratio(self, state, nodes, j, log_q):
        """Compute the log ratio of the move of a union, without the choice of the unions."""
        is_split = nodes.is_whole[j]
        left, right = nodes.totals[nodes.sides[j], 0]
        gain = nodes.log_m[nodes.sides[j]].sum() - nodes.log_m[nodes.wholes[j]]
        gain += state.prior.log_split(nodes.alive.sum() - (not is_split), left, right)
        gain -= np.logaddexp(*(log_q[:2] if is_split else log_q[2:]))
        return gain if is_split else -gain


class Nodes:
    """The clusters of a state and those that moves of its unions would make.

    - `totals`: (n_nodes, n_stats). Statistics of the clusters, then of the wholes and sides that
      are not clusters now.
    - `log_m`: (n_nodes,). Log marginal likelihoods.
    - `wholes`, `sides`: (n_unions,) and (n_unions, 2). Nodes of each union as one cluster and two.
    - `is_whole`, `alive`: (n_unions,) and (n_nodes,), bool. Whether a union is one cluster now;
      whether a node is a cluster now.
    """

    def __init__(self, state, unions, stats):
        totals = state.totals()
        n_unions, n = len(unions), len(totals)
        self.is_whole = np.array([len(union) == 1 for union in unions])
        self.wholes = np.empty(n_unions, dtype=np.intp)
        self.sides = np.empty((n_unions, 2), dtype=np.intp)
        new = []
        for j, union in enumerate(unions):
            if self.is_whole[j]:
                self.wholes[j] = union[0]
                self.sides[j] = n + len(new), n + len(new) + 1
                new += [stats[2 * j], stats[2 * j + 1]]
            else:
                self.sides[j] = union
                self.wholes[j] = n + len(new)
                new.append(state.parametric.combined(totals[[union[0]]], totals[[union[1]]])[0])
        self.totals = np.concatenate([totals, np.array(new)])
        self.log_m = state.model.log_marginals(self.totals)
        self.alive = np.arange(len(self.totals)) < n
        # The union of each node: nodes of earlier unions are gone when the j-th is drawn.
        self.union_of = np.full(len(self.totals), n_unions)
        self.union_of[self.wholes] = np.arange(n_unions)
        self.union_of[self.sides] = np.arange(n_unions)[:, None]
        # Closeness of the sides and all nodes; sides without rows are never alive.
        full = self.totals[:, 0] > 0
        self.closeness = np.full((2 * n_unions, len(self.totals)), -np.inf)
        rows, columns = np.flatnonzero(full[self.sides.ravel()]), np.flatnonzero(full)
        self.closeness[np.ix_(rows, columns)] = _closeness(
            state, self.totals, self.log_m, self.sides.ravel()[rows], columns
        )

    def log_choice(self):
        """Compute log of the probability that `LaunchedMoves.choose` draws the unions, in their
        order, from the clusters that are alive."""
        there = self.alive & (self.union_of >= np.arange(len(self.wholes))[:, None])
        n_left = there.sum(axis=1)
        log_p = -np.log(n_left) - np.where(n_left > 1, np.log(2.0), 0.0)
        pairs = np.flatnonzero(~self.is_whole)
        if len(pairs) == 0:
            return log_p.sum()
        sides = self.sides[pairs]
        rows = (2 * pairs[:, None] + np.arange(2)).ravel()
        others = np.repeat(there[pairs], 2, axis=0)
        others[np.arange(len(rows)), sides.ravel()] = False
        closeness = np.where(others, self.closeness[rows], -np.inf)
        picked = closeness[np.arange(len(rows)), sides[:, ::-1].ravel()]
        top = closeness.max(axis=1)
        weights = np.exp(picked - top) / np.exp(closeness - top[:, None]).sum(axis=1)
        weights = UNIFORM_SHARE / others.sum(axis=1) + (1.0 - UNIFORM_SHARE) * weights
        return log_p.sum() + np.log(weights.reshape(-1, 2).sum(axis=1)).sum()

    def flip(self, j):
        """Turn a union of one cluster into two, or the reverse."""
        self.is_whole[j] = not self.is_whole[j]
        self.alive[self.wholes[j]] = self.is_whole[j]
        self.alive[self.sides[j]] = not self.is_whole[j]


def _closeness(state, totals, log_m, ones, others):
    """Log weights of pairs, up to a constant for each first one: (len(ones), len(others))."""
    n = len(others)
    first, second = np.repeat(ones, n), np.tile(others, len(ones))
    gains = state.model.log_marginals(state.parametric.combined(totals[first], totals[second]))
    gains -= log_m[first] + log_m[second]
    smaller = np.minimum(totals[first, 0], totals[second, 0])
    return (SHARPNESS * gains / smaller).reshape(-1, n)
