# SPDX-License-Identifier: BSD-3-Clause
"""Densities of new rows under the stored clusters of a fit: lazily if X is a dask array.

Memory grows with the number of stored clusters; rows of X are processed in blocks.
"""

import functools
import itertools
from dataclasses import dataclass

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from skdpm._rows import dense_if_needed
from skdpm._validation import is_dask
from skdpm.mixture.answers.conditional import ConditionalLaws
from skdpm.mixture.answers.outliers import Outliers
from skdpm.mixture.likelihoods.composite.registry import refusal
from skdpm.mixture.state._scoring import mixture_rows

# Largest numbers of rows and of entries of X in a block: 8 MiB of doubles. Encoded rows, tiles and
# scratch memory of a thread take a small multiple of this.
BLOCK_ROWS = 2**17
BLOCK_ENTRIES = 2**20
# Smallest number of evaluations (of a row under a cluster) per thread.
THREAD_EVALUATIONS = 2**19
# Smallest weight of a mixture, a normal double.
LEAST_WEIGHT = 1e-300


@dataclass(eq=False)
class StoredMixture:
    """Clusters of one or more draws, with weights.

    - `stats`: (n_clusters, n_stats). Statistics in the form of `ClusterModel.dump`.
    - `log_weights`: (n_clusters + 1,). Log weights of the clusters, then of an empty cluster.
    - `labels`: (n_fitted,) or None. Labels of the rows of the fit; only if clusters are coupled.
    - `values`: dict. Hyperparameters of the likelihood, by name.
    - `weight`: float. Share of these draws among all draws.
    - `owners`: (n_clusters,), int or None. Cluster of the point estimate to which each of these
      belongs, in increasing order; None: each is a cluster.
    - `stored`: (n_clusters,), int or None. Positions of the clusters in `ScoredDraws.stats`, if
      they are pooled.
    - `noise_weight`: float. Weight of noise. With the weights of the clusters it sums to 1.
    """

    stats: np.ndarray
    log_weights: np.ndarray
    labels: np.ndarray | None
    values: dict
    weight: float
    owners: np.ndarray | None = None
    stored: np.ndarray | None = None
    noise_weight: float = 0.0

    def by_owner(self, values):
        """Sums of columns of an array over the owners; further columns stay: (n, n_owners + m)."""
        if self.owners is None:
            return values
        first = np.flatnonzero(np.diff(self.owners, prepend=-1))
        further = np.arange(len(self.owners), values.shape[1])
        return np.add.reduceat(values, np.concatenate([first, further]), axis=1)


class ScoredDraws:
    """Draws over which densities of new rows are averaged.

    A cluster that occurs in several draws is stored once. Each draw keeps the weights of its
    clusters, so densities can be computed for each draw or averaged.

    - `snapshots`: list of (int, dict, dict). Number of the chain, snapshot and pool of clusters
      (`skdpm.draws.common_snapshots`). Pools become views of `stats`, so that the statistics are
      in memory once.
    - `likelihood`: Likelihood. Its `own_stats` and `integrated` are those with which new rows are
      scored.
    - `stats`: (n_stored, n_stats). Statistics of the shared clusters; (0, 0) if clusters are
      coupled.
    - `noise_weight`: float. Mean weight of noise; 0 if there is none.
    - `draws`: list of dict. "chain", "draw", "weight" (they sum to 1), "values" of hyperparameters
      and those "of_new" rows, "log_weights" of the clusters and of an empty one, for each draw.
      "clusters" are their positions in `stats`; a draw of coupled clusters has "stats" and
      "labels" instead.
    """

    def __init__(self, snapshots, likelihood):
        position, stats = {}, []
        self.draws = []
        for c, draw, pool in snapshots:
            for key in draw.get("keys", ()):
                if key not in position:
                    position[key] = len(stats)
                    stats.append(pool[key])
            scored = {name: value for name, value in draw.items() if name != "keys"}
            scored.update(chain=c, weight=1.0 / len(snapshots))
            if "keys" in draw:
                at = [position[key] for key in draw["keys"]]
                scored["clusters"] = np.array(at, dtype=np.intp)
            self.draws.append(scored)
        # If all rows are noise there are no clusters.
        all_stats = np.array(stats) if stats else np.empty((0, self.draws[0].get("n_stats", 0)))
        self.stats = likelihood.own_stats(all_stats)
        for draw in self.draws:
            stats = self.stats[draw["clusters"]] if "clusters" in draw else draw["stats"]
            draw["of_new"] = likelihood.own.integrated(draw["values"], stats)
        self.beyond = self._beyond(likelihood.own) if "clusters" in self.draws[0] else []
        self.noise_weight = sum(draw["weight"] * draw["noise_weight"] for draw in self.draws)
        for _, draw, pool in snapshots:
            for key in draw.get("keys", ()):
                # The statistics of another chain may differ in the last digits. A continued chain
                # must keep its own bits.
                if np.array_equal(pool[key], all_stats[position[key]]):
                    pool[key] = all_stats[position[key]]

    def __len__(self):
        return len(self.draws)

    def _beyond(self, likelihood):
        """Mixtures of a new cluster only, whose hyperparameters are beyond those of all draws:
        `Likelihood.beyond`. The new clusters of draws lose as much weight."""
        found = likelihood.beyond(
            [(draw["values"], self.stats[draw["clusters"]]) for draw in self.draws]
        )
        if not found:
            return []
        log_shares = np.array([np.zeros(len(self)), *(of_draws for of_draws, _ in found)])
        log_shares -= np.logaddexp.reduce(log_shares)
        for log_share, draw in zip(log_shares.T, self.draws, strict=True):
            *of_clusters, of_new = draw["log_weights"]
            draw["log_weights"] = np.array([*of_clusters, of_new + log_share[0]])
            log_share += np.log(draw["weight"]) + of_new
        mixtures = []
        for (_, values), log_weights in zip(found, log_shares[1:], strict=True):
            # Other hyperparameters are those of the draw that has most of them.
            values = self.draws[log_weights.argmax()]["of_new"] | values
            log_weight = np.logaddexp.reduce(log_weights)
            weight = max(np.exp(log_weight), LEAST_WEIGHT)
            rest, stored = np.array([log_weight - np.log(weight)]), np.arange(0)
            mixtures.append(
                StoredMixture(self.stats[:0], rest, None, values, weight, None, stored)
            )
        return mixtures

    def __getstate__(self):
        """The state without the mixtures, which are made on first use."""
        return {name: value for name, value in vars(self).items() if name != "mixtures"}

    @functools.cached_property
    def mixtures(self):
        """The mean over the draws: `StoredMixture`s whose weights sum to 1. If clusters are
        independent, draws with the same hyperparameters share one mixture."""
        if "clusters" not in self.draws[0]:
            names = ("stats", "log_weights", "labels", "of_new", "weight")
            return [StoredMixture(*(draw[name] for name in names)) for draw in self.draws]
        groups = {}
        for draw in self.draws:
            key = tuple(np.asarray(value).tobytes() for value in draw["of_new"].values())
            groups.setdefault(key, []).append(draw)
        return [*(self._pooled(draws) for draws in groups.values()), *self.beyond]

    def mixture_of(self, draw, weight):
        """The mixture of one draw of independent clusters."""
        stats = self.stats[draw["clusters"]]
        return StoredMixture(stats, draw["log_weights"], None, draw["of_new"], weight)

    def _pooled(self, draws):
        """One mixture over the distinct clusters of draws with the same hyperparameters."""
        total = sum(draw["weight"] for draw in draws)
        weights = np.zeros(len(self.stats) + 1)
        used = np.zeros(len(self.stats) + 1, dtype=bool)
        for draw in draws:
            at = np.append(draw["clusters"], len(self.stats))
            # A draw may have a cluster twice: two clusters with the same statistics.
            np.add.at(weights, at, draw["weight"] / total * np.exp(draw["log_weights"]))
            used[at] = True
        with np.errstate(divide="ignore"):
            log_weights = np.log(weights[used])
        stats = self.stats if used.all() else self.stats[used[:-1]]
        stored = np.flatnonzero(used[:-1])
        return StoredMixture(stats, log_weights, None, draws[0]["of_new"], total, stored=stored)


@dataclass(eq=False)
class Predictor:
    """Predictions for new rows. An object small enough to be sent to every worker.

    - `likelihood`: Likelihood. Resolved likelihood, with the posterior means of learned
      hyperparameters.
    - `partition`: StoredMixture. Clusters of the point estimate.
    - `background`: Background or JointBackground. Law of rows that are noise. None: there is no
      noise.
    - `allotment`: csr_array of shape (n_stored, n_clusters) or None. With known labels: share of
      each cluster of `scored.stats` in the clusters of the point estimate
      (`KnownLabels.allotment`). Predictions are then sums over all scored draws.
    - `names`: (n_clusters,) or None. With known labels: numbers of the clusters.
    """

    likelihood: object
    n_features: int
    partition: StoredMixture | None
    scored: ScoredDraws
    background: object = None
    allotment: object = None
    names: np.ndarray | None = None

    def __getstate__(self):
        """The state without the laws, which are made on first use."""
        made = ("conditional", "outliers")
        return {name: value for name, value in vars(self).items() if name not in made}

    @functools.cached_property
    def conditional(self):
        """Laws of unknown entries: `ConditionalLaws`."""
        return ConditionalLaws(self.likelihood, self.scored.mixtures)

    @functools.cached_property
    def outliers(self):
        """Laws of outlier scores, with simulated rows: `Outliers`."""
        return Outliers(self)

    def column_posterior(self, column):
        """Posterior of mean and variance in a column for each component of the point estimate,
        see `Likelihood.column_posterior`; None if the likelihood has none."""
        law = self.likelihood.column_posterior
        return None if law is None else law(self.partition.stats, column)

    def components(self):
        """Components of the point estimate: their `Likelihood.cluster_params`, their weights, and
        the increasing numbers of their clusters."""
        partition = self.partition
        weights = np.exp(partition.log_weights[:-1])
        owners = np.arange(len(weights)) if partition.owners is None else partition.owners
        return self.likelihood.cluster_params(partition.stats), weights, owners

    def check(self, X, gaps=False):
        """Check new rows as `validate_rows` does, without an estimator."""
        X = check_array(
            X,
            dtype=np.float64,
            order="C",
            accept_sparse="csr" if self.likelihood.accept_sparse else False,
            ensure_all_finite=False,
        )
        X = dense_if_needed(X, self.likelihood)
        self.likelihood.check_entries(X, gaps)
        return self.likelihood.rebuilt(X)

    def predict(self, X, n_jobs=None):
        """Most probable cluster of each checked row, -1 if noise is more probable than any:
        (n_samples,), int64."""
        if self.allotment is not None or self.background is not None:
            probabilities = self.predict_proba(X, n_jobs)
            if self.background is None:
                return self.names[probabilities.argmax(axis=1)]
            of_noise = 1.0 - probabilities.sum(axis=1, keepdims=True)
            best = np.hstack([of_noise, probabilities]).argmax(axis=1) - 1
            return best if self.names is None else np.append(self.names, -1)[best]
        partition = self.partition
        labels = np.empty(X.shape[0], dtype=np.int64)

        def fill(first, stop):
            if partition.owners is not None:
                labels[first:stop] = self._probabilities(X[first:stop], False).argmax(axis=1)
                return
            rows = self._rows(X[first:stop], len(partition.stats))
            self._load(rows.model, partition)
            labels[first:stop] = rows.most_probable(partition.log_weights[:-1])

        # Only sums over components need their probabilities at once.
        width = 1 if partition.owners is None else len(partition.stats)
        self._map(fill, X, len(partition.stats), n_jobs, width)
        return labels if self.names is None else self.names[labels]

    def predict_proba(self, X, n_jobs=None, new_cluster=False):
        """Probabilities of the clusters, and of a new cluster as the last column if
        `new_cluster`, given each checked row. The rest is the probability of noise."""
        if self.allotment is not None:
            out = self._allotted(X, n_jobs, new_cluster)
        else:
            n_components = len(self.partition.stats)
            n_columns = self.partition.by_owner(np.empty((0, n_components + new_cluster))).shape[1]
            out = np.empty((X.shape[0], n_columns))

            def fill(first, stop):
                out[first:stop] = self._probabilities(X[first:stop], new_cluster)

            self._map(fill, X, n_components, n_jobs, n_components)
        return np.minimum(out, 1.0, out=out)  # metrics refuse what rounding leaves above 1

    def _probabilities(self, X, new_cluster):
        """Probabilities of the clusters for a block of rows, as `predict_proba`."""
        # The empty cluster is the last one.
        log_weights = self.partition.log_weights[: None if new_cluster else -1]
        if not len(log_weights):
            return np.empty((X.shape[0], 0))
        rows = self._rows(X, 0)
        self._load(rows.model, self.partition)
        out = np.empty((X.shape[0], len(log_weights)))
        rows.fill_log_probabilities(log_weights, out)
        np.exp(out, out=out)
        if self.background is not None:
            tops, totals = np.full(X.shape[0], -np.inf), np.zeros(X.shape[0])
            rows.add_log_densities(_padded(self.partition, new_cluster), tops, totals)
            out *= self._share_of_clusters(X, tops, totals, self.partition.noise_weight)
        return self.partition.by_owner(out)

    def _share_of_clusters(self, X, tops, totals, weight):
        """Probability that each of a block of rows is no noise, which has this weight, from the
        densities of the rows in clusters, exp(tops) totals: (n_rows, 1)."""
        with np.errstate(divide="ignore"):
            log_clusters = tops + np.log(totals)
            log_noise = np.log(weight) + self.background.log_density(X, new=True)
        return _ratio(log_clusters, np.logaddexp(log_clusters, log_noise))[:, None]

    def _allotted(self, X, n_jobs, new_cluster):
        """`predict_proba` over all scored draws: a draw under which a row is unlikely counts less,
        see `conditional`."""
        mixtures = self.scored.mixtures
        n_clusters = max(len(mixture.log_weights) for mixture in mixtures)
        out = np.empty((X.shape[0], self.allotment.shape[1] + new_cluster))
        counted = np.diff(self.allotment.indptr) > 0
        allotments = self.allotment
        if allotments.shape[0] * allotments.shape[1] <= BLOCK_ENTRIES:
            allotments = allotments.toarray()  # indexed faster

        def fill(first, stop):
            rows = self._rows(X[first:stop], 0)
            masses = np.zeros((stop - first, out.shape[1]))
            tops = np.full(stop - first, -np.inf)
            all_tops, all_totals = tops.copy(), np.zeros(stop - first)
            for mixture in mixtures:
                allotment = allotments[mixture.stored]
                # Only clusters that count: another one could leave nothing to the others.
                counts = np.append(counted[mixture.stored], new_cluster)
                log_weights = np.where(counts, mixture.log_weights, -np.inf)
                self._load(rows.model, mixture)
                shares = np.empty((stop - first, len(log_weights)))
                top, total = np.full(stop - first, -np.inf), np.zeros(stop - first)
                rows.fill_log_probabilities(log_weights, shares, top, total)
                np.exp(shares, out=shares)
                log_density = top + np.log(total) + np.log(mixture.weight)
                higher = np.maximum(tops, log_density)
                masses *= _ratio(tops, higher)[:, None]
                now = _ratio(log_density, higher)
                masses[:, : allotment.shape[1]] += now[:, None] * (shares[:, :-1] @ allotment)
                if new_cluster:
                    masses[:, -1] += now * shares[:, -1]
                tops = higher
                if self.background is not None:
                    log_weights = _padded(mixture, new_cluster) + np.log(mixture.weight)
                    rows.add_log_densities(log_weights, all_tops, all_totals)
            masses /= masses.sum(axis=1, keepdims=True)
            if self.background is not None:
                weight = self.scored.noise_weight
                masses *= self._share_of_clusters(X[first:stop], all_tops, all_totals, weight)
            out[first:stop] = masses

        self._map(fill, X, sum(len(m.log_weights) for m in mixtures), n_jobs, n_clusters)
        return out

    def score_samples(self, X, n_jobs=None, given=None):
        """log of the mean over the draws of the density of the known entries of each checked row,
        given those in the columns `given`: (n_samples,)."""
        if given is not None:
            known = np.full(X.shape, np.nan)
            known[:, given] = X[:, given]
            if self.likelihood.exposed:
                known[:, -1] = X[:, -1]
            return self.score_samples(X, n_jobs) - self.score_samples(known, n_jobs)
        beyond = self.likelihood.needs_laws(X)
        if not beyond.any():
            return self._score_by_kernel(X, n_jobs)
        if why := refusal(self.likelihood, "laws"):
            raise ValueError(f"rows with these missing entries have no score: {why}")
        scores = np.empty(len(X))
        rows = self.modelled(X[beyond])
        scores[beyond] = self._with_noise(rows, self.conditional.log_density(rows))
        if self.likelihood.left_out is not None:
            scores[beyond] += self.likelihood.left_out.log_density_known(rows)
        if not beyond.all():
            scores[~beyond] = self._score_by_kernel(X[~beyond], n_jobs)
        return scores

    def outlier_scores(self, X, n_jobs=None):
        """Outlier scores of checked rows: (n_samples,)."""
        X = X.toarray() if sp.issparse(X) else X
        return self.outliers.scores(self.modelled(np.ascontiguousarray(X, dtype=np.float64)))

    def modelled(self, X):
        """Rows, after a check that the likelihood can model their known entries."""
        self.likelihood.encode_new(X)
        return X

    def _score_by_kernel(self, X, n_jobs):
        mixtures = self.scored.mixtures
        n_clusters = sum(len(mixture.log_weights) for mixture in mixtures)
        scores = np.empty(X.shape[0])

        def fill(first, stop):
            block = X[first:stop]
            rows = self._rows(block, n_clusters)
            tops, totals = np.full(stop - first, -np.inf), np.zeros(stop - first)
            for mixture in mixtures:
                self._load(rows.model, mixture)
                log_weights = mixture.log_weights + np.log(mixture.weight)
                rows.add_log_densities(log_weights, tops, totals)
            scores[first:stop] = self._with_noise(block, tops + np.log(totals))
            if self.likelihood.left_out is not None:
                scores[first:stop] += self.likelihood.left_out.log_density(block)

        self._map(fill, X, n_clusters, n_jobs)
        return scores

    def _with_noise(self, X, log_densities, weight=None):
        """Add the density of rows that are noise: of new rows, with its mean weight over the
        scored draws, or of rows of `fit` with this weight."""
        if self.background is None:
            return log_densities
        log_noise = self.background.log_density(X, new=weight is None)
        weight = self.scored.noise_weight if weight is None else weight
        return np.logaddexp(log_densities, np.log(weight) + log_noise)

    def mean_log_densities(self, X):
        """Mean over some rows of `fit` of the log density under each scored draw: (n_scored,).
        Clusters must be independent."""
        scored = self.scored
        rows = self._rows(X, sum(len(draw["clusters"]) for draw in scored.draws))
        means = np.empty(len(scored))
        for d, draw in enumerate(scored.draws):
            mixture = scored.mixture_of(draw, 1.0)
            self._load(rows.model, mixture)
            tops, totals = np.full(X.shape[0], -np.inf), np.zeros(X.shape[0])
            rows.add_log_densities(mixture.log_weights, tops, totals)
            log_densities = tops + np.log(totals)
            means[d] = np.mean(self._with_noise(X, log_densities, draw.get("noise_weight")))
        return means

    def draw(self, n_samples, rng):
        """Draw rows from the mixture that `score_samples` evaluates: (n_samples, n_features)."""
        mixtures = self.scored.mixtures
        shares = np.array([mixture.weight for mixture in mixtures])
        which = rng.choice(len(mixtures), size=n_samples, p=shares / shares.sum())
        X = np.empty((n_samples, self.n_features))
        for m in np.unique(which):
            mixture, rows = mixtures[m], np.flatnonzero(which == m)
            weights = np.exp(mixture.log_weights)
            cluster = rng.choice(len(weights), size=len(rows), p=weights / weights.sum())
            stats = np.pad(mixture.stats, ((0, 1), (0, 0)))  # and an empty cluster
            likelihood = self.likelihood.at(mixture.values)
            X[rows] = likelihood.draw_rows(stats, cluster, self.n_features, rng)
        if self.background is not None:
            is_noise = rng.random(n_samples) < self.scored.noise_weight
            X[is_noise] = self.background.draw(np.count_nonzero(is_noise), rng)
        return X

    def _map(self, fill, X, n_clusters, n_jobs, width=1):
        """Call fill(first, stop) for blocks of the rows, in threads if there is enough work.
        `width` is the number of intermediate values per row."""
        n_rows = X.shape[0]
        most = BLOCK_ENTRIES // max(X.shape[1], width)
        n_blocks = -(-n_rows // max(1, min(BLOCK_ROWS, most)))
        n_threads = min(joblib.effective_n_jobs(n_jobs), n_rows * n_clusters // THREAD_EVALUATIONS)
        if n_threads > 1:
            n_blocks = -(-n_blocks // n_threads) * n_threads
        blocks = itertools.pairwise(n_rows * b // n_blocks for b in range(n_blocks + 1))
        if n_threads > 1:
            joblib.Parallel(n_jobs=n_threads, require="sharedmem")(
                joblib.delayed(fill)(first, stop) for first, stop in blocks
            )
        else:
            for first, stop in blocks:
                fill(first, stop)

    def _rows(self, X, n_clusters):
        """Bind checked rows that will be evaluated under `n_clusters` clusters."""
        likelihood = self.likelihood
        data = likelihood.encode_new(X)
        model = likelihood.bind(data, likelihood.tables(data, None))
        return mixture_rows(likelihood, data, model, n_clusters)

    def _load(self, model, mixture):
        """Load the clusters of a mixture, and an empty one after them, into a kernel."""
        if mixture.values:
            model.clear(0)  # so that no cluster has to be updated
            self.likelihood.set_values(model, mixture.values)
        model.load(mixture.stats)
        if mixture.labels is not None:
            model.bind_labels(mixture.labels.astype(np.intp))


def _padded(mixture, new_cluster):
    """Log weights of the clusters of a mixture; -infinity for a new one without `new_cluster`."""
    return np.append(mixture.log_weights[:-1], mixture.log_weights[-1] if new_cluster else -np.inf)


def _ratio(log_density, highest):
    """exp(log_density - highest), 1 where the two are equal, also if both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(log_density == highest, 1.0, np.exp(log_density - highest))


# Rows of dask arrays.


def over_rows(function, X, *, check, check_chunk, n_features, dtype, n_columns=None):
    """Apply a function to the rows of X; for a dask array, lazily to each chunk.

    - `function`: callable. Function of an array of checked rows that returns one entry per row, or
      `n_columns` entries. It is sent to every worker.
    - `check, check_chunk`: callable. Functions that check X in memory, or a chunk, and return the
      checked rows.
    - `n_features`: int. Expected number of columns.
    - `dtype`: dtype. Dtype of the result.

    Raises ValueError if X does not fit the model. The entries of a dask array are checked when it
    is computed.
    """
    if not is_dask(X):
        return function(check(X))
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, but {n_features} features are expected as input")
    X = X.rechunk({1: -1})
    shape = (0,) if n_columns is None else (0, n_columns)
    layout = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
    empty = np.empty(shape, dtype=dtype)
    return X.map_blocks(_of_chunk, function, check_chunk, empty, dtype=dtype, meta=empty, **layout)


def _of_chunk(X, function, check, empty):
    return function(check(X)) if X.shape[0] else empty


def row_chunks(X):
    """Yield the batches of the X of `partial_fit`."""
    if not is_dask(X) or X.ndim != 2:
        yield X
        return
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
    found = False
    for b in range(X.npartitions):
        rows = X.partitions[b].compute()
        if rows.shape[0] > 0:
            found = True
            yield rows
    if not found:
        yield rows  # an error says that there are none
