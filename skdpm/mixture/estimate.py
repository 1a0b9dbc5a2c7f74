# SPDX-License-Identifier: BSD-3-Clause
"""The point estimate: a partition that summarises the draws, and what follows from it.

`DrawnClusters` reads clusters off the components of the draws and searches for the partition with
the least expected loss. `PointEstimate.publish` sets the attributes of the estimator.
What a row may be, of a known class or noise, is known to `rows` alone: known labels unite
components, and in draws of clusters a row that is noise, -1, is a cluster of one row (`alone`).
"""

import functools
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

from skdpm import partitions
from skdpm._convergence import MIXED, adjusted_rand
from skdpm._validation import check_choice, is_dask
from skdpm.draws import Candidates, column_of
from skdpm.mixture.answers.components import distances_between, points_of
from skdpm.mixture.answers.predictive import StoredMixture
from skdpm.mixture.answers.reading import join_fragments, read_draws
from skdpm.mixture.answers.training import informative_rows, of_all_rows
from skdpm.mixture.chains._start import merged_stats
from skdpm.mixture.likelihoods.composite.classified import classes_of
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.rows.noise import alone, components_of, share_of_noise

# Stream of a run beyond those of its chains, which are numbered from 0.
POINT_ESTIMATE_STREAM = 2**32 - 1

# Readings of hills, whose loss is "vi", all losses, and point estimates that are one of the draws.
HILLS = ("adaptive", "modal")
LOSSES = (*HILLS, "vi", "binder")
SINGLE_DRAWS = ("map", "last")

# Another reading is worth a word if its mean probability of rows to be in their cluster is above
# the first, and its adjusted Rand index with the labels is below the second. So are less sure
# labels whose draws agree less.
SURE, AGREE = 0.8, 0.5

# The estimate by "vi" is too coarse if components are clusters and a smaller share of draws than
# the first has as few large ones. These have at least the second share of the rows. It is kept if
# draws are hardly more alike than by chance, with a mean adjusted Rand index below the third: that
# of rows without clusters is at most 0.04.
TOO_FEW, LARGE, ALIKE = 0.05, 0.01, 0.05

# Most rows, times the mean number of components, with other readings. These take about a second.
MOST_READ_AGAIN = 300_000

# Numbers of clusters for which a display searches, in about a second each.
MOST_SEARCHES = 20

# Most labels of draws for which each number has a search, which takes a second with five times as
# many. Of more, a path of merges has all numbers, with losses that are a few percent higher.
MOST_SEARCHED = 50_000

# Attributes with an entry for each row, and attributes that only some partitions have.
PER_ROW = {"labels_", "probabilities_", "noise_probabilities_", "cluster_samples_"}
NOT_ALWAYS = {*PER_ROW, "classes_", "part_columns_", "label_estimates_", "estimate_weights_"}
NOT_ALWAYS -= {"labels_"}


def check_point_estimate(value, name="point_estimate", known=("auto", *LOSSES, *SINGLE_DRAWS)):
    """Check a loss, or a word for one or for a draw. Returns it."""
    if isinstance(value, tuple):
        partitions.check_loss(value, name)
    else:
        check_choice(value, name, known)
    return value


def loss_of_estimate(loss, point_estimate):
    """Check the parameter `loss` of `estimate_labels`: of `HILLS`, or a loss of `partitions`."""
    if loss is None and point_estimate not in SINGLE_DRAWS:
        return "adaptive" if point_estimate == "auto" else point_estimate
    return "vi" if loss is None else check_point_estimate(loss, "loss", LOSSES)


def n_large(labels):
    """Number of large clusters of labels; of one row if there is no other."""
    return max(np.count_nonzero(np.bincount(labels) >= max(LARGE * len(labels), 2)), 1)


def state_of_estimate(entropy):
    """Random state of the search for the point estimate of a run."""
    key = np.random.SeedSequence(entropy, spawn_key=(POINT_ESTIMATE_STREAM,))
    return np.random.RandomState(np.random.MT19937(key))


@dataclass(frozen=True, eq=False)
class PointEstimate:
    """A partition that summarises the draws.

    - `labels`: ndarray of int64 of shape (n_samples,). Clusters by decreasing size.
    - `stats`: (n_clusters, n_stats). Statistics of the clusters.
    - `clusters`: (n_chains, n_read_draws, n_samples). Draws of the clusters. None: each component
      is a cluster.
    - `components`: (n_components, n_stats). Statistics of components. None: those of clusters.
    - `owners`: (n_components,). Cluster of each component, in increasing order.
    - `cells`: (n_chains, n_read_draws, n_different). Draws of the clusters for the search, see
      `read_draws`. None: those in `clusters`.
    - `distances`: (n_clusters, n_clusters). Distances between the clusters. None: rows are no
      points, or labels are not kept.
    - `loss`: str or tuple. Loss between partitions for a tree of merges.
    """

    labels: np.ndarray
    stats: np.ndarray
    clusters: np.ndarray | None = None
    components: np.ndarray | None = None
    owners: np.ndarray | None = None
    cells: np.ndarray | None = None
    distances: np.ndarray | None = None
    loss: str | tuple = "vi"

    def publish(self, model, make_prior, copies):
        """Set the attributes of a mixture that follow from the partition of different rows."""
        likelihood, allotment = model.likelihood_, None
        partition = self._mixture(model, make_prior)
        weights = partition.by_owner(np.exp(partition.log_weights[None, :-1]))[0]
        found = {
            "labels_": self.labels,
            "n_clusters_": len(self.stats),
            "n_clusters_samples_": model.n_components_samples_,
            "_one_for_each": self.clusters is None,
            "cluster_params_": likelihood.cluster_params(self.stats),
            "weights_": weights,
            "_cells": self.cells,
            "_distances": self.distances,
            "_loss": self.loss,
            "_most_clusters": None,
        }
        if parts := getattr(likelihood, "columns_of_parts", dict)():
            names = getattr(model, "feature_names_in_", np.arange(model.n_features_in_))
            found["part_columns_"] = {part: names[columns] for part, columns in parts.items()}
        if model._known.unites:
            found["classes_"] = classes = model._known.names(len(weights))
            found["labels_"] = np.append(classes, -1)[self.labels]
        if model._training is not None:
            found |= self._of_rows(model, model._training, weights)
            allotment = _allotment(model, self.labels)
        model._predictor = replace(
            model._predictor, partition=partition, allotment=allotment, names=found.get("classes_")
        )
        for name in PER_ROW & found.keys():
            found[name] = of_all_rows(found[name], copies)
        for name in {*NOT_ALWAYS, "_other_readings"} - found.keys():
            vars(model).pop(name, None)
        vars(model).update(found)

    def _mixture(self, model, make_prior):
        """The partition as a mixture, by which new rows are in clusters: `StoredMixture`."""
        stats = self.stats if self.owners is None else self.components
        prior = make_prior(float(model.draws_.mean("concentration")))
        log_weights = prior.log_weights(stats[:, 0].astype(np.intp))
        noise_weight = model.draws_.scored.noise_weight
        if noise_weight > 0.0:
            log_weights = log_weights + np.log1p(-noise_weight)
        fitted = None
        if "product" not in model.likelihood_.capabilities:
            fitted = self.labels.astype(np.min_scalar_type(len(stats)))
        return StoredMixture(
            stats, log_weights, fitted, {}, 1.0, self.owners, noise_weight=noise_weight
        )

    def _of_rows(self, model, training, weights):
        """Attributes of the rows of a fit that keeps label draws: dict."""
        labels, draws, take, found = self.labels, model.draws_["labels"], training.take, {}
        found["cluster_samples_"] = clusters = draws if self.clusters is None else self.clusters
        if self.clusters is not None:
            found["n_clusters_samples_"] = clusters.max(axis=2) + np.int64(1)
        inside = take(labels)
        shares = training.known_of_informative.probabilities(alone(take(clusters)), alone(inside))
        if training.noise_law.takes_rows:
            found["noise_probabilities_"] = of_noise = share_of_noise(draws)
            shares = np.where(inside < 0, take(of_noise), shares)
        # Of rows of which nothing is known, the probability of the cluster is its weight.
        found["probabilities_"] = np.append(weights, 0.0)[labels]
        found["probabilities_"][take(np.arange(len(labels)))] = shares
        return found


def _allotment(model, labels):
    """`KnownLabels.allotment` to the clusters of labels of all rows, if there are known labels."""
    training = model._training
    if not training.known.unites:
        return None
    spread = training.spread(training.take(labels))
    return training.known.allotment(model.draws_.scored, model.draws_["labels"], spread)


class DrawnClusters:
    """Clusters of the draws of a fit, as a loss needs them.

    - `model`: BaseMixture. Fitted mixture with label draws.
    - `loss`: str or tuple. One of `HILLS` or of `partitions.point_estimate`. None: single draws.
    - `statistics`: callable. From labels to statistics of their clusters. None: from the rows.
    - `hills`: dict. Hills that an adaptive reading has found. None: nobody reads them again.

    - `clusters`: (n_chains, n_read_draws, n_informative).
    - `cells`, `likely`: of the same shape. Clusters by which losses are judged, and those in which
      a search begins; see `read_draws`.
    - `components`: (n_chains, n_read_draws, n_samples). Components of the draws that were read.
    - `loss`: str or tuple. Loss: "vi" for hills, unless "binder" is better; see `_follow`.
    - `most_clusters`: float. Largest number of clusters.
    - `unlimited`: (n_inside,) or None. Labels that a search without a limit has found, if they are
      those that `_follow` has needed.
    - `known`: KnownLabels or Unlabelled. Known labels of the informative rows.
    - `is_adaptive`: bool. Whether components of hills can be clusters.
    - `joins_fragments`: bool. Whether estimates have no fragments; see `join_fragments`.
    - `merges`: bool. Whether estimates with fewer clusters are merges of that without a limit.
    """

    def __init__(self, model, loss=None, statistics=None, hills=None):
        self.model, self.training = model, model._training
        self.statistics = statistics or functools.partial(
            self.training.statistics, model.likelihood_
        )
        self.known = self.training.known_of_informative
        self.loss = "vi" if loss in HILLS else loss
        are_hills = loss in HILLS and model.likelihood_.has_points
        self.is_adaptive = are_hills and loss == "adaptive"
        self.joins_fragments = loss == "adaptive"
        self.merges = (are_hills or self.training.noise_law.takes_rows) and not self.known.unites
        self.components = model.draws_["labels"]
        self.most_clusters, self.unlimited = np.inf, None
        if are_hills:
            self._read_hills(model.likelihood_, hills)
        else:
            self.clusters = self.known.join(self.training.take(self.components))
            self.cells = self.likely = self.clusters
            if loss in HILLS and not self.known.unites:
                self._follow()

    def _points(self, completion=None, recorded=False):
        """Informative rows in independent columns, as chains see them or as they were recorded."""
        likelihood, X = self.model.likelihood_, self.training.X
        X = X if recorded else likelihood.as_seen(X)
        return self.training.take(likelihood.independent(X, completion).T).T

    def distances(self, labels):
        """Distances between clusters of the informative rows, or None if rows are no points."""
        inside = labels >= 0
        if not self.model.likelihood_.has_points or not inside.any():
            return None
        return distances_between(points_of(self._points())[inside], labels[inside])

    def _read_hills(self, likelihood, hills):
        draws, take, X = self.components, self.training.take, self.training.X
        completed = {
            (draw["chain"], draw["draw"]): functools.partial(self._points, draw["completion"])
            for draw in self.model.draws_.scored.draws
            if "completion" in draw and likelihood.fitted_gaps
        }
        if completed:  # of the first chains, whose draws are scored
            draws = draws[: 1 + max(c for c, _ in completed)]
        chosen, self.clusters, self.cells, self.likely = read_draws(
            self._points(),
            take(draws),
            n_jobs=self.model.n_jobs,
            completed=completed or None,
            known=self.known,
            adaptive=self.is_adaptive,
            recorded=None if likelihood.as_seen(X) is X else self._points(recorded=True),
            hills=hills,
        )
        self.components = draws[:, chosen]
        if not self.is_adaptive:
            self.cells = self.likely = self.clusters

    def _follow(self):
        """Take the loss "binder", with as few clusters as draws have, if the estimate by "vi" is
        coarser than nearly all draws, and these are alike. Where it is uncertain to which of two
        components rows belong, uniting these costs less by "vi" than cutting them, even if each
        draw has both. By "binder" it costs more; without a limit this finds tiny clusters, too."""
        clusters = alone(self.clusters[:, :, self._rows_inside()[1]])
        if not clusters.size:
            return
        found = self._search(clusters)
        draws = clusters.reshape(-1, len(found))
        pairs = zip(draws, draws[len(draws) // 2 :], strict=False)
        is_coarse = np.mean([n_large(draw) <= n_large(found) for draw in draws]) < TOO_FEW
        if is_coarse and np.mean([adjusted_rand(*pair) for pair in pairs]) >= ALIKE:
            fewest = np.quantile(clusters.max(axis=2) + 1, TOO_FEW, method="lower")
            self.loss, self.most_clusters = "binder", fewest
        else:
            self.unlimited = found

    def _search(self, clusters, max_clusters=None):
        most = min(clusters.max() + 1, self.most_clusters, max_clusters or np.inf)
        if self.unlimited is not None and most > clusters.max():
            return self.unlimited
        return partitions.point_estimate(
            clusters,
            loss=self.loss,
            max_clusters=int(most),
            random_state=state_of_estimate(self.training.entropy),
        )

    def _rows_inside(self):
        """Share of draws in which each row is noise, in the chains that are read, and the rows
        that can be in a cluster: others are in none with a probability above 1/2."""
        if not self.training.noise_law.takes_rows:
            return np.zeros(self.clusters.shape[2]), slice(None)
        draws = self.model.draws_["labels"][: len(self.clusters)]
        of_noise = share_of_noise(self.training.take(draws))
        return of_noise, np.flatnonzero(of_noise <= 0.5)

    def labels(self, max_clusters):
        """Labels of the informative rows with the least expected loss between their cells, with no
        more than `max_clusters` clusters, nor than the draw with the most."""
        of_noise, inside = self._rows_inside()
        labels = np.full(len(of_noise), -1, dtype=np.int64)
        of_noise = of_noise[inside]
        if len(of_noise):
            labels[inside] = self._estimate(max_clusters, inside, of_noise)
        return self.known.numbered(labels)

    def least_expected_loss(self, max_clusters):
        """Make the `PointEstimate` of `labels`."""
        labels = self.labels(max_clusters)
        if not self.merges and not self.known.unites:
            spread = self.training.spread(labels)
            return self._placed(PointEstimate(labels, self.statistics(spread), loss=self.loss))
        estimate = self._with_components(labels, self.clusters, self.components)
        return self._placed(replace(estimate, cells=self.cells if self.is_adaptive else None))

    def several(self, n_estimates, max_clusters, labels):
        """Attributes of at most `n_estimates` estimates, with no more than `max_clusters` clusters
        each: dict. Rows that are noise in `labels` are noise, and rows of which nothing is known
        are in the largest cluster, as in these."""
        training, inside = self.training, np.flatnonzero(self.training.take(labels) >= 0)
        if self.known.unites or not len(inside):
            why = "all rows are noise" if not len(inside) else "the fit has known_labels"
            raise ValueError(f"n_estimates cannot be used, because {why}; leave it out")

        def estimate(draws):
            found = self._search(draws, max_clusters)
            return join_fragments(found, draws) if self.joins_fragments else found

        cells, self.unlimited = alone(self.cells[:, :, inside]), None
        several, weights = partitions.several(cells, n_estimates, self.loss, estimate)
        found = np.minimum(np.tile(labels, (len(weights), 1)), 0)
        found[:, training.take(np.arange(training.n_samples))[inside]] = several
        found = of_all_rows(found, training.copies)
        return {"label_estimates_": found, "estimate_weights_": weights}

    def _estimate(self, max_clusters, inside, of_noise):
        """Labels of the rows inside with the least expected loss, -1 for rows that are more
        probably noise than in one cluster with its other rows (or alone in it)."""
        clusters, known = alone(self.clusters[:, :, inside]), self.known.take(inside)
        found = known.estimate(clusters, self._searching(inside), max_clusters, of_noise)
        self._give_classes(found, inside)
        if not of_noise.any():
            return found
        of_cluster = known.probabilities(clusters, found)
        # Of a cluster of one row, it is the probability to be alone, as rows that are noise are.
        is_single = (np.bincount(found) == 1)[found]
        of_cluster[is_single] -= of_noise[is_single]
        return np.where(of_noise > of_cluster, -1, found)

    def _searching(self, inside):
        """Function (clusters, max_clusters) that searches for labels of the rows inside."""

        @functools.cache
        def free():
            cells = alone(self.likely[:, :, inside])
            labels = self._search(cells)
            return join_fragments(labels, cells) if self.joins_fragments else labels

        @functools.cache
        def tree():
            return self._tree(free(), inside)

        def nested(clusters, max_clusters):
            if free().max() < max_clusters:
                return free()
            found = None if self.merges else self._search(clusters, max_clusters)
            if self.merges or max_clusters <= clusters.max():
                # Where draws do not decide, the nearest clusters merge.
                n_merges = len(tree().expected_losses) - max_clusters
                if self.merges or (tree().probabilities[:n_merges] == 0.0).any():
                    return tree().cut(max_clusters)
            return found

        return self._search if self.known.unites else nested

    def _tree(self, labels, inside):
        spread = np.full(self.clusters.shape[2], -1)
        spread[inside] = labels
        draws = alone(self.cells[:, :, inside])
        return partitions.merge_tree(draws, labels, self.loss, self.distances(spread))

    def _give_classes(self, labels, inside):
        """Give rows of no cluster, -1 in labels, their most probable class, if they have one."""
        training = self.training
        without = training.take(np.arange(training.n_samples))[inside][labels < 0]
        if not len(without):
            return
        rows = training.X[without]
        rows = rows if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=np.float64)
        nothing = np.full(training.n_samples, -1)
        predictor = replace(self.model._predictor, allotment=_allotment(self.model, nothing))
        labels[labels < 0] = predictor.predict_proba(rows, self.model.n_jobs).argmax(axis=1)

    def of_draw(self, chain, draw):
        """Make the `PointEstimate` that is a draw."""
        labels = self.known.numbered(self.clusters[chain, draw])
        if not self.known.unites:
            estimate = PointEstimate(labels, self.statistics(self.training.spread(labels)))
            return self._placed(estimate)
        one = slice(chain, chain + 1), slice(draw, draw + 1)
        estimate = self._with_components(labels, self.clusters[one], self.components[one])
        return self._placed(replace(estimate, clusters=self.clusters))

    def _with_components(self, labels, clusters, components):
        """The `PointEstimate` of labels of clusters, from draws of the clusters and of their
        components. New rows are compared with components of the draw of closest clusters."""
        spread = self.training.spread
        closest = partitions.partition_distances(alone(clusters), alone(labels)).argmin()
        of_draw = self.training.take(components).reshape(-1, len(labels))[closest]
        parts = components_of(labels, of_draw)
        first = np.unique(parts, return_index=True)[1]
        owners = labels[first[parts[first] >= 0]]
        order = np.argsort(owners, kind="stable")  # by cluster, then by decreasing size
        stats = self.statistics(spread(labels))
        parts = self.statistics(spread(parts))[order]
        return PointEstimate(labels, stats, clusters, parts, owners[order])

    def _placed(self, estimate):
        """A `PointEstimate` of all rows, from that of the informative ones."""
        training = self.training
        estimate = replace(estimate, distances=self.distances(estimate.labels))
        if training.informative is None:
            return estimate
        clusters, cells = estimate.clusters, estimate.cells
        if clusters is None:
            clusters = training.take(self.components)
        if cells is not None:
            cells = training.place(estimate.labels, cells, self.components)[1]
        labels, clusters = training.place(estimate.labels, clusters, self.components)
        return replace(estimate, labels=labels, clusters=clusters, cells=cells)

    def expected_losses(self, max_clusters=None):
        """Expected losses of the estimates with 1, 2, ... clusters, at most `max_clusters` and
        the number of the estimate without a limit. If `max_clusters` is None and each number
        needs a search, there are at most MOST_SEARCHES.

        Returns

        - `losses`: (n_numbers,). Losses between the rows that can be in clusters. With noise,
          `estimate_labels` then calls more rows noise, and may have fewer clusters.
        - `fewest`: int. Smallest number of clusters of a draw.
        """
        if self.known.unites:
            raise ValueError(
                "clusters of known classes never merge, so the expected loss shows no number of "
                "clusters: fit without known_labels, or choose max_clusters of estimate_labels"
            )
        of_noise, inside = self._rows_inside()
        if not len(of_noise[inside]):
            raise ValueError("the expected loss needs a cluster; all rows are noise")
        clusters = alone(self.cells[:, :, inside])
        most = int(clusters.max()) + 1
        search = self._searching(inside)
        labels, fewest = search(clusters, most), int(clusters.max(axis=2).min()) + 1
        if self.merges or (max_clusters is None and clusters.size > MOST_SEARCHED):
            return self._tree(labels, inside).expected_losses[::-1][:max_clusters], fewest
        most = min(int(labels.max()) + 1, max_clusters or MOST_SEARCHES)
        found = (search(clusters, k) for k in range(1, most + 1))
        return np.array([partitions.expected_loss(clusters, k, self.loss) for k in found]), fewest


def expected_losses(model, loss, max_clusters, X):
    """Expected losses of what `estimate_labels` finds with 1, 2, ... clusters, the smallest number
    of clusters of a draw, and the loss; parameters are those of `estimate_labels`."""
    loss = loss_of_estimate(loss, model.point_estimate)
    model._recall(X)
    drawn = DrawnClusters(model, loss)
    return *drawn.expected_losses(max_clusters), drawn.loss


def other_readings(model):
    """If the draws of the clusters differ much, or if readings of the draws are sure of other
    clusters than `labels_`: dict of lines for `BaseMixture.summary`. Readings need the rows."""
    training, lines = model._training, {}
    if (several := getattr(model, "label_estimates_", None)) is not None:
        alike = [f"{adjusted_rand_score(labels, model.labels_):.2f}" for labels in several]
        each = zip(several.max(axis=1) + 1, model.estimate_weights_, alike, strict=True)
        words = ", ".join(f"{n} ({share:.0%}, {index})" for n, share, index in each)
        words += ", with the share of draws near each, and the adjusted Rand index with labels_"
        lines["estimates"] = f"numbers of clusters {words}"
    is_offered = several is None and not model._known.unites
    see = "estimate_labels(n_estimates=3)" if is_offered else "probabilities_"
    figures = model.diagnostics_.get("coclustering", {})
    agreement, r_hat = figures.get("ari_between", 1.0), figures.get("r_hat", 1.0)
    if r_hat > MIXED:
        words = f"chains differ in which rows are together (R-hat {r_hat:.2f})"
        lines["uncertain"] = f"{words}, so probabilities are known less well than their errors say"
    if training is not None and agreement < AGREE and model.probabilities_.mean() <= SURE:
        words = f"draws of the clusters differ (mean adjusted Rand index {agreement:.2f})"
        lines["uncertain"] = f"{words}, so one estimate may not do: see {see}"
    if training is None or training.known.unites or not model.likelihood_.has_points:
        return lines
    numbers = model.n_clusters_samples_.ravel()
    shares, share = np.bincount(numbers) / len(numbers), np.mean(numbers == model.n_clusters_)
    if share < shares.max() and model._cells is not None and model._most_clusters is None:
        words = f"{share:.0%} of the draws have as many clusters as labels_, {shares.max():.0%}"
        lines.setdefault("uncertain", f"{words} have {shares.argmax()}: see {see}")
    if training.n_samples * model.n_components_samples_.mean() > MOST_READ_AGAIN:
        return lines
    try:
        training.recall()
    except ValueError:
        return lines
    labels, words, hills = training.take(training.different(model._clusters)), [], {}
    for loss in (*HILLS, "vi"):
        drawn = DrawnClusters(model, loss, hills=hills)
        found = drawn.labels(model._most_clusters or np.inf)
        inside = np.flatnonzero(found >= 0)
        draws = alone(drawn.clusters[:, :, inside])
        sure = partitions.label_probabilities(draws, found[inside]).mean() if len(inside) else 0.0
        if sure > SURE and adjusted_rand_score(found, labels) < AGREE:
            n_clusters = int(found.max()) + 1
            words.append(f'"{loss}" has {n_clusters} cluster{"s" if n_clusters > 1 else ""}')
    if words:
        lines["other readings"] = f"{', '.join(words)}: see estimate_labels(loss=...)"
    return lines


def first_estimate(model, run, statistics):
    """Make the `PointEstimate` of a run, as the parameter `point_estimate` of the mixture that has
    its draws says. `statistics` is a function of labels that returns those of their clusters."""
    program, wanted = run.program, model.point_estimate
    if wanted == "auto":
        wanted = "adaptive" if program.store_labels else "map"
    if program.keeps_rows and wanted not in SINGLE_DRAWS:
        most = program.make_prior(program.first_concentration).most_clusters
        return DrawnClusters(model, wanted, statistics).least_expected_loss(most)
    if program.store_labels:
        return DrawnClusters(model, None, statistics).of_draw(*_chosen_draw(model, run))
    labels, stats = program.kept_partition(_kept_draw(model, run))
    if program.known.unites:
        return _of_classes(program, labels, stats)
    informative = None
    if program.keeps_rows and not is_dask(program.given):
        informative = informative_rows(model.likelihood_, UNLABELLED, program.given)
    if informative is not None:
        inside = np.full(len(labels), -1)
        inside[informative] = partitions.relabel_by_size(labels[informative])
        # Others join the largest cluster.
        labels, stats = np.maximum(inside, 0), statistics(inside)
    return PointEstimate(labels, stats)


def _of_classes(program, labels, stats):
    """The `PointEstimate` of a draw of a stream whose particles know the classes of components."""
    components = np.arange(len(stats))
    owners = program.known.clusters(components, classes_of(stats), components)
    of_clusters = merged_stats(program.model(), stats, owners)
    order = np.argsort(owners, kind="stable")
    of_clusters, parts = map(program.likelihood.own_stats, (of_clusters, stats[order]))
    return PointEstimate(np.append(owners, -1)[labels], of_clusters, None, parts, owners[order])


def _chosen_draw(model, run):
    """Chain and number of the draw that is the point estimate "map" or "last"."""
    program, draws = run.program, model.draws_
    if model.point_estimate == "last":
        return _first_shortest(run.chains), draws.n_draws - 1
    value = draws["log_joint"] + program.log_hyperprior(draws["concentration"])
    if learned := program.likelihood.learned:
        of_draws = [
            program.likelihood.log_hyperprior(
                {name: draws[column_of(name)][at] for name in learned}
            )
            for at in np.ndindex(value.shape)
        ]
        value = value + np.reshape(of_draws, value.shape)
    return np.unravel_index(np.argmax(value), value.shape)


def _kept_draw(model, run):
    """The record of the same draw, if label draws are not kept."""
    candidates = [Candidates(chain["candidates"]) for chain in run.chains]
    if model.point_estimate != "last":
        best = (candidate.best(model.draws_.n_draws) for candidate in candidates)
        return max(best, key=lambda value_and_record: value_and_record[0])[1]
    if run.program.keeps_rows:
        return candidates[_first_shortest(run.chains)].last[1]
    return candidates[0].best(1)[1]  # draws have no order


def _first_shortest(chains):
    """Position of the first chain with the fewest draws. After an interruption others may have
    more, and no record is kept of their last common draw."""
    return int(np.argmin([chain["iteration"] for chain in chains]))
