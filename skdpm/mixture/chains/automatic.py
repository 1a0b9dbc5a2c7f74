# SPDX-License-Identifier: BSD-3-Clause
"""The start `init="auto"`: rows are cut into many pieces, and pieces are merged greedily while the
log joint density rises. doc/design.md says why these alternate, and why pieces are cut again.
"""

import contextlib
import functools
import math
from dataclasses import dataclass

import numpy as np

from skdpm._core._kmeans import kmeans
from skdpm.mixture.chains._start import (
    Merger,
    assign_in_turn,
    load_clusters,
    merge_coupled,
    merged_stats,
)
from skdpm.mixture.state._state import MixtureState
from skdpm.partitions import without_gaps

# Largest number of rows that are cut into pieces. Other rows join the clusters found among these.
MOST_SAMPLED = 20_000
# Number of pieces: between these multiples of the square root of the number of rows.
FEWEST, MOST = 2.0, 6.0
MOST_PIECES = 400
# Rows in a piece of the finest start, and number of pieces of the coarsest.
ROWS_OF_FINEST, FEW_PIECES = 10, 6
# Number of dimensions, and of numbers that a merge visits, above which there are fewer pieces.
SMOOTH, WIDE = 3, 60
MOST_COUPLED = 40  # largest number of pieces if clusters are not independent
# Passes over the rows to improve pieces that were not cut by k-means.
N_PASSES = 3
# Turns of merging and learning, at most if merging has not ended while a single cluster is best,
# and draws of the hyperparameters in each.
N_TURNS, MOST_TURNS = 5, 10
N_DRAWS = 2
# When the number of clusters hardly grows from one turn to the next, the first merges are the same
# in every turn. Later turns then merge only SPARE_PARTS times as many parts as clusters were
# found, or the pieces divided by SPARE_PARTS, whichever is more.
SPARE_PARTS = 3
# Times that such pieces are cut again.
MOST_CUTS = 4


@dataclass(frozen=True)
class FirstState:
    """Start of a chain.

    - `labels`: (n_samples,), or None. Labels 0, ..., K - 1, each in use. None: a single cluster,
      or the clusters of `stats`.
    - `values`: dict of str to float or ndarray. Learned hyperparameters of the likelihood.
    - `stats`: (K, n_stats), or None. Clusters of a sample of rows, for rows in blocks: each row is
      assigned to one of these.
    """

    labels: np.ndarray | None
    values: dict
    concentration: float
    stats: np.ndarray | None = None


class AutomaticStart:
    """Function (program, bit generator) that draws the start of a chain, a `FirstState`. Its rows
    and its likelihood are those of the program."""

    def __init__(self, X, likelihood):
        self.X = X
        self.likelihood = likelihood
        self.n_sampled = X.shape[0] if likelihood.pairwise else min(X.shape[0], MOST_SAMPLED)

    @functools.cached_property
    def points(self):
        """Coordinates of all rows, shared by all chains."""
        return self.likelihood.coordinates(self.X)

    def __call__(self, program, bit_generator):
        rng = np.random.Generator(bit_generator)
        likelihood, n_sampled = self.likelihood, self.n_sampled
        X, model = self.X, program.model()
        if n_sampled < X.shape[0]:
            # Sorted, so that a memory-mapped file is read once from start to end.
            chosen = np.sort(rng.choice(X.shape[0], n_sampled, replace=False))
            X, likelihood = X[chosen], likelihood.for_rows(chosen)
            points = likelihood.coordinates(X)
        else:
            points = self.points
        if n_sampled != model.n_samples:
            data = likelihood.encode(X)
            model = likelihood.bind(data, likelihood.tables(data, n_sampled + 1))
        if "product" not in likelihood.capabilities:
            prior = program.make_prior(program.first_concentration)
            return merge_coupled_pieces(program, cut(likelihood, model, prior, points, rng), rng)
        labels, merged = find_clusters(program, likelihood, model, points, bit_generator)
        if n_sampled < self.X.shape[0]:
            log_sizes = np.log(merged.stats[:, 0])
            labels = program.most_likely(merged.values, merged.stats, log_sizes)
            labels = without_gaps(labels)
        return FirstState(labels, merged.values, merged.concentration)

    def finest(self, program, bit_generator):
        """Start from pieces of a few rows: sweeps then find clusters that merging may miss."""
        return self._unmerged(program, bit_generator, -(-self.n_sampled // ROWS_OF_FINEST))

    def coarsest(self, program, bit_generator):
        """Draw a start from a few pieces. Merging misses clusters whose rows may well be in other
        ones: one such partition is less probable than a single cluster, and all are more."""
        return self._unmerged(program, bit_generator, FEW_PIECES)

    def _unmerged(self, program, bit_generator, n_pieces):
        """Draw a start from pieces and the hyperparameters learned from them."""
        rng = np.random.Generator(bit_generator)
        model, prior = program.model(), program.make_prior(program.first_concentration)
        n_pieces = min(n_pieces, MOST_PIECES, prior.most_clusters)
        state = cut(self.likelihood, model, prior, self.points, rng, n_pieces)
        program.resample_concentration(prior, state.cluster_sizes(), bit_generator)
        values = _learn(program, model, state.cluster_slots(), bit_generator)
        return FirstState(state.cluster_labels(), values, prior.concentration)


def find_clusters(program, likelihood, model, points, bit_generator):
    """Cut the rows of a model into pieces and merge the pieces: labels of the rows, and `Merged`.

    Clusters are independent. `points` are coordinates of the rows, or None.
    """
    rng = np.random.Generator(bit_generator)
    prior = program.make_prior(program.first_concentration, model.n_samples)
    state = cut(likelihood, model, prior, points, rng)
    labels, merged = merge_state(program, state, bit_generator)
    for _ in range(MOST_CUTS if likelihood.cuts_again and likelihood.learned else 0):
        state = None  # a model belongs to one state at a time
        take_values(likelihood, model, prior, merged)
        state = cut(likelihood, model, prior, points, rng)
        new_labels, new = merge_state(program, state, bit_generator)
        if not new.log_joint > merged.log_joint:
            break
        labels, merged = new_labels, new
    # Rows move to a more likely cluster, and clusters are merged again.
    state = None
    take_values(likelihood, model, prior, merged)
    state = MixtureState(model, prior, labels)
    assign_in_turn(state, rng.permutation(model.n_samples), by_size=True)
    return merge_state(program, state, bit_generator)


def take_values(likelihood, model, prior, merged):
    """Remove the clusters of a model, and give it and the prior what was learned: Merged."""
    model.clear(0)
    likelihood.set_values(model, merged.values)
    prior.set_concentration(merged.concentration)


def number_of_pieces(n, u, share=1.0):
    """Number of pieces of n rows: `share` times what u, in [0, 1), draws between the bounds."""
    n_pieces = share * math.sqrt(n) * FEWEST * (MOST / FEWEST) ** u
    return max(1, min(round(n_pieces), MOST_PIECES, n))


def cut(likelihood, model, prior, points, rng, n_pieces=None):
    """Cut the rows of a model into pieces: a `MixtureState`.

    Points are cut by k-means. Without points, some rows are seeds; the others join, in random
    order, the piece under which they are most likely; then `N_PASSES` passes move each row to its
    most likely piece. Rows of coupled clusters have one pass, because their points describe only
    a part of what their links contain.

    - `n_pieces`: int, optional. Number of pieces that start a chain, so that not more pieces are
      cut than the prior allows. By default `number_of_pieces`, which will be merged.
    """
    n = model.n_samples
    # A piece with fewer rows than dimensions says little about the shape of its cluster. With wide
    # statistics, a pair of pieces costs as much as many rows of a sweep.
    if points is not None:
        share = (SMOOTH / max(points.shape[1], SMOOTH)) ** 0.4
    else:
        share = (WIDE / max(model.merge_width, WIDE)) ** 0.25
    most = prior.most_clusters
    if n_pieces is None:
        n_pieces, most = number_of_pieces(n, rng.random(), share), n
    if not model.factorizes:
        n_pieces = min(n_pieces, MOST_COUPLED, prior.most_clusters)
    if points is not None:
        state = MixtureState(model, prior, kmeans(points, n_pieces, rng.bit_generator))
        n_passes = 0 if model.factorizes else 1
    else:
        order = rng.permutation(n)
        labels = np.full(n, -1)
        labels[order[:n_pieces]] = np.arange(n_pieces)
        state = MixtureState(model, prior, labels)
        assign_in_turn(state, order[n_pieces:])
        n_passes = N_PASSES
    for _ in range(n_passes):
        assign_in_turn(state, rng.permutation(n))
    labels = state.cluster_labels()
    allowed = likelihood.separated(labels, most)
    if allowed is labels:
        return state
    state = None  # a model belongs to one state at a time
    model.clear(0)
    return MixtureState(model, prior, allowed)


@dataclass(frozen=True)
class Merged:
    """Clusters into which pieces were merged.

    - `clusters`: (n_pieces,). Cluster of each piece.
    - `stats`: (K, n_stats)
    - `values`: dict. Learned hyperparameters of the likelihood.
    - `log_joint`: float. With the log densities of hyperpriors.
    """

    clusters: np.ndarray
    stats: np.ndarray
    values: dict
    concentration: float
    log_joint: float


def merge_state(program, state, bit_generator):
    """Merge the clusters of a state: labels of its rows, and `Merged`. The state is invalid
    afterwards: its kernel holds other clusters."""
    labels = state.cluster_labels()
    merged = merge_pieces(program, state.model, state.prior, state.dump(), bit_generator)
    return merged.clusters[labels], merged


def merge_pieces(program, model, prior, stats, bit_generator):
    """Merge pieces by their statistics, (n_pieces, n_stats): `Merged`. Clusters are independent.

    Model and prior have the initial hyperparameters and concentration, and others afterwards. The
    clusters of the model are replaced.
    """
    likelihood = program.likelihood
    # What is merged: first the pieces, in later turns unions of pieces.
    parts, part_stats = np.arange(len(stats)), stats
    best, n_before, goes_on = None, 0, False
    # The first turn uses the given values, the next ones those learned from a single cluster and
    # from the pieces. The best values are next, unless they are those of a single cluster again.
    # Without points that may be right: a probe finds clusters whose rows may be in others.
    for turn in range(MOST_TURNS if likelihood.learned else 1):
        if turn == 1:
            load_clusters(model, merged_stats(model, stats, np.zeros(len(stats), dtype=np.intp)))
            _learn(program, model, np.zeros(1, dtype=np.intp), bit_generator)
        elif turn == 2:
            load_clusters(model, stats)
            _learn(program, model, np.arange(len(stats)), bit_generator)
        elif turn == 3 and not goes_on:
            model.clear(0)
            likelihood.set_values(model, best.values)
        merger = Merger(model, prior, part_stats)
        slots, clusters = merger.merge_all()
        clusters = clusters[parts]
        sizes = model.dump(slots)[:, 0].astype(np.intp)
        program.resample_concentration(prior, sizes, bit_generator)
        values = _learn(program, model, slots, bit_generator)
        cluster_stats = model.dump(slots)
        value = model.log_marginals(cluster_stats).sum() + prior.log_probability(sizes)
        value += model.log_density_apart()
        value = program.log_posterior(value, prior.concentration, values)
        if best is None or value > best.log_joint:
            best = Merged(clusters, cluster_stats, values, prior.concentration, value)
        goes_on = likelihood.has_points and len(best.stats) == 1
        if turn + 1 >= N_TURNS and (not goes_on or len(slots) in (1, n_before)):
            break
        if turn > 1 and len(part_stats) == len(stats) and len(slots) <= 1.5 * n_before:
            n_parts = max(SPARE_PARTS * len(slots), len(stats) // SPARE_PARTS)
            parts = merger.clusters_at(n_parts)[1]
            part_stats = merged_stats(model, stats, parts)
        n_before = len(best.stats) if turn == 1 else len(slots)
    return best


def merge_coupled_pieces(program, state, rng):
    """Merge the pieces of a state whose clusters are not independent; return a `FirstState`."""
    best, best_value = None, -np.inf
    for turn in range(N_TURNS):
        if turn > 0:
            assign_in_turn(state, rng.permutation(state.n_samples), by_size=True)
        merge_coupled(state)
        program.resample_concentration(state.prior, state.cluster_sizes(), rng.bit_generator)
        values = _learn(program, state.model, state.cluster_slots(), rng.bit_generator)
        concentration = state.prior.concentration
        value = program.log_posterior(state.compute_log_joint(), concentration, values)
        if best is None or value > best_value:
            best, best_value = FirstState(state.cluster_labels(), values, concentration), value
    return best


def _learn(program, model, slots, bit_generator):
    """Draw the learned hyperparameters given clusters, and return them by name.

    If a draw fails (as for a column that is constant in clusters), the values stay, being a start.
    """
    likelihood = program.likelihood
    if likelihood.learned:
        with contextlib.suppress(FloatingPointError):
            for _ in range(N_DRAWS):
                model.resample_hyperparameters(slots, likelihood.learned_priors, bit_generator)
    return likelihood.learned_values(model.hyperparameters())


def most_likely(rows, stats, log_weights):
    """The cluster with the largest weight times density for each row: (n_rows,), of the smallest
    unsigned type. The clusters of the kernel of `rows` are replaced by `stats`."""
    load_clusters(rows.model, stats)
    return rows.most_probable(log_weights).astype(np.min_scalar_type(len(stats)))
