# SPDX-License-Identifier: BSD-3-Clause
"""Densities of new rows under clusters that a fit has stored.

Memory grows with the number of stored clusters, and rows of X are taken in blocks.
"""

import functools
import itertools
from dataclasses import dataclass

import joblib
import numpy as np
from sklearn.utils.validation import check_array

from skdpm.mixture.likelihoods.base import set_hyperparameters
from skdpm.mixture.state._scoring import mixture_rows

# Rows of X that are encoded at a time, and entries: 8 MiB of doubles, of which encoded rows, their
# tiles and scratch memory are a small multiple, for each thread.
BLOCK_ROWS = 2**17
BLOCK_ENTRIES = 2**20
# Evaluations of a row under a cluster that are worth a thread of their own.
THREAD_EVALUATIONS = 2**19


@dataclass(eq=False)
class StoredMixture:
    """Clusters of a draw, or of several together, and a weight for each.

    Attributes
    ----------
    stats : ndarray of shape (n_clusters, n_stats)
        As `ClusterModel.dump` gives them.
    log_weights : ndarray of shape (n_clusters + 1,)
        Of the clusters, then of an empty one.
    labels : ndarray of shape (n_fitted,) or None
        Where clusters are coupled: those that go with the statistics.
    values : dict
        The likelihood's learned hyperparameters, by name.
    weight : float
        Share of all draws.
    """

    stats: np.ndarray
    log_weights: np.ndarray
    labels: np.ndarray | None
    values: dict
    weight: float


class ScoredDraws:
    """Draws over which densities of new rows are averaged.

    A cluster that several draws have is stored once, and each draw has its weights of those it
    has: so densities can be told draw by draw as well as averaged.

    Parameters
    ----------
    snapshots : list of (int, dict, dict)
        Number of the chain, snapshot and pool of clusters (`skdpm.draws.common_snapshots`). Pools
        become views of `stats`, so that the statistics are in memory once.
    weights : ndarray of shape (n_chains, n_draws) or None
        Of all draws. None: equal.

    Attributes
    ----------
    stats : ndarray of shape (n_stored, n_stats)
        Of the clusters that draws share; (0, 0) where clusters are coupled.
    draws : list of dict
        Of each draw: "chain", "draw", "weight" (they sum to 1), "values" of hyperparameters,
        "log_weights" of its clusters and of an empty one, and "clusters", their positions in
        `stats`, or its own "stats" and "labels" where clusters are coupled.
    """

    def __init__(self, snapshots, weights=None):
        shares = np.array(
            [1.0 if weights is None else weights[c, draw["draw"]] for c, draw, _ in snapshots]
        )
        shares /= shares.sum()
        position, stats = {}, []
        self.draws = []
        for (c, draw, pool), share in zip(snapshots, shares, strict=True):
            keys = draw.get("keys", ())
            for key in keys:
                if key not in position:
                    position[key] = len(stats)
                    stats.append(pool[key])
            scored = {name: value for name, value in draw.items() if name != "keys"}
            scored.update(chain=c, weight=float(share))
            if keys:
                scored["clusters"] = np.array([position[key] for key in keys])
            self.draws.append(scored)
        self.stats = np.array(stats) if stats else np.empty((0, 0))
        for _, draw, pool in snapshots:
            for key in draw.get("keys", ()):
                # Another chain's may differ in the last digits, and chains go on to the bit.
                if np.array_equal(pool[key], self.stats[position[key]]):
                    pool[key] = self.stats[position[key]]

    def __len__(self):
        return len(self.draws)

    def __getstate__(self):
        """Without what is pooled on first use."""
        return {name: value for name, value in vars(self).items() if name != "mixtures"}

    @functools.cached_property
    def mixtures(self):
        """The mean over the draws, as `StoredMixture`s whose weights sum to 1: where clusters are
        independent, one for all draws with the same hyperparameters."""
        if "clusters" not in self.draws[0]:
            return [
                StoredMixture(
                    draw["stats"],
                    draw["log_weights"],
                    draw["labels"],
                    draw["values"],
                    draw["weight"],
                )
                for draw in self.draws
            ]
        groups = {}
        for draw in self.draws:
            if draw["weight"] == 0.0:
                continue
            key = tuple(np.asarray(value).tobytes() for value in draw["values"].values())
            groups.setdefault(key, []).append(draw)
        return [self._pooled(draws) for draws in groups.values()]

    def _pooled(self, draws):
        """The mean over draws with the same hyperparameters as one mixture over the distinct
        clusters of all of them."""
        total = sum(draw["weight"] for draw in draws)
        weights = np.zeros(len(self.stats) + 1)
        used = np.zeros(len(self.stats) + 1, dtype=bool)
        for draw in draws:
            at = np.append(draw["clusters"], len(self.stats))
            weights[at] += draw["weight"] / total * np.exp(draw["log_weights"])
            used[at] = True
        with np.errstate(divide="ignore"):
            log_weights = np.log(weights[used])
        stats = self.stats if used.all() else self.stats[used[:-1]]
        return StoredMixture(stats, log_weights, None, draws[0]["values"], total)


class Predictor:
    """What a fit knows of new rows: light enough to go to every worker of a cluster.

    Parameters
    ----------
    likelihood : Likelihood
        Resolved, with the posterior means of hyperparameters that are learned.
    n_features : int
    partition : StoredMixture
        The point estimate's clusters.
    scored : ScoredDraws
    """

    def __init__(self, likelihood, n_features, partition, scored):
        self.likelihood = likelihood
        self.n_features = n_features
        self.partition = partition
        self.scored = scored

    def check(self, X):
        """New rows in the form of `validate_rows`, without an estimator."""
        X = check_array(
            X,
            dtype=np.float64,
            order="C",
            accept_sparse="csr" if self.likelihood.accept_sparse else False,
            ensure_all_finite=False,
        )
        self.likelihood.check_entries(X)
        return X

    def predict(self, X, n_jobs=None):
        """Most probable cluster of each checked row, int64."""
        labels = np.empty(X.shape[0], dtype=np.int64)

        def fill(first, stop):
            rows = self._rows(X[first:stop], len(self.partition.stats))
            self._load(rows.model, self.partition)
            labels[first:stop] = rows.most_probable(self.partition.log_weights[:-1])

        self._map(fill, X, len(self.partition.stats), n_jobs)
        return labels

    def predict_proba(self, X, n_jobs=None, new_cluster=False):
        """Probability of each cluster, and last of a new one if asked for, given each checked
        row."""
        # The empty cluster stands behind the others.
        log_weights = self.partition.log_weights[: None if new_cluster else -1]
        n_clusters = len(log_weights)
        out = np.empty((X.shape[0], n_clusters))

        def fill(first, stop):
            rows = self._rows(X[first:stop], 0)
            self._load(rows.model, self.partition)
            rows.fill_log_probabilities(log_weights, out[first:stop])
            np.exp(out[first:stop], out=out[first:stop])

        self._map(fill, X, n_clusters, n_jobs)
        return out

    def score_samples(self, X, n_jobs=None):
        """log of the mean over the draws of the density of each checked row: (n_samples,)."""
        mixtures = self.scored.mixtures
        n_clusters = sum(len(mixture.log_weights) for mixture in mixtures)
        scores = np.empty(X.shape[0])

        def fill(first, stop):
            rows = self._rows(X[first:stop], n_clusters)
            tops, totals = np.full(stop - first, -np.inf), np.zeros(stop - first)
            for mixture in mixtures:
                self._load(rows.model, mixture)
                log_weights = mixture.log_weights + np.log(mixture.weight)
                rows.add_log_densities(log_weights, tops, totals)
            scores[first:stop] = tops + np.log(totals)

        self._map(fill, X, n_clusters, n_jobs)
        return scores

    def draw(self, n_samples, rng):
        """Rows from the mixture that `score_samples` evaluates: (n_samples, n_features)."""
        mixtures = self.scored.mixtures
        shares = np.array([mixture.weight for mixture in mixtures])
        which = rng.choice(len(mixtures), size=n_samples, p=shares / shares.sum())
        X = np.empty((n_samples, self.n_features))
        for m in np.unique(which):
            mixture, rows = mixtures[m], np.flatnonzero(which == m)
            weights = np.exp(mixture.log_weights)
            cluster = rng.choice(len(weights), size=len(rows), p=weights / weights.sum())
            empty = np.zeros((1, mixture.stats.shape[1]))
            stats = np.concatenate([mixture.stats, empty])[cluster]
            X[rows] = self.likelihood.at(mixture.values).draw(stats, rng)
        return X

    def _map(self, fill, X, n_clusters, n_jobs):
        """Call fill(first, stop) for blocks of the rows, in threads where that pays."""
        n_rows = X.shape[0]
        n_blocks = -(-n_rows // max(1, min(BLOCK_ROWS, BLOCK_ENTRIES // X.shape[1])))
        n_threads = min(joblib.effective_n_jobs(n_jobs), n_rows * n_clusters // THREAD_EVALUATIONS)
        if n_threads > 1:
            n_blocks = -(-n_blocks // n_threads) * n_threads
        bounds = [n_rows * b // n_blocks for b in range(n_blocks + 1)]
        blocks = itertools.pairwise(bounds)
        if n_threads > 1:
            joblib.Parallel(n_jobs=n_threads, require="sharedmem")(
                joblib.delayed(fill)(first, stop) for first, stop in blocks
            )
        else:
            for first, stop in blocks:
                fill(first, stop)

    def _rows(self, X, n_clusters):
        """Checked rows, to be evaluated under so many clusters."""
        likelihood = self.likelihood
        data = likelihood.encode_new(X)
        model = likelihood.bind(data, likelihood.tables(data, None))
        return mixture_rows(likelihood, data, model, n_clusters)

    def _load(self, model, mixture):
        """Give a kernel the clusters of a mixture, and an empty one behind them."""
        if mixture.values:
            model.clear(0)  # nothing to bring up to date
            set_hyperparameters(model, self.likelihood.at(mixture.values))
        model.load(mixture.stats)
        if mixture.labels is not None:
            model.bind_labels(mixture.labels.astype(np.intp))
