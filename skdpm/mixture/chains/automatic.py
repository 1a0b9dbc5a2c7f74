# SPDX-License-Identifier: BSD-3-Clause
"""The start `init="auto"`: many pieces, merged greedily while that raises the log joint density.

Merging needs hyperparameters. Where they are learned the right ones are those of the merged
clusters, so merging and learning take turns: once from the values that the likelihood starts from,
once from those learned of a single cluster (under which noise is a single cluster), and then from
the better of both. The best log joint density, hyperpriors included, is kept.

Every chain has pieces of its own and another number of them, so that chains start dispersed.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from skdpm.mixture.chains._start import (
    Merger,
    assign_in_turn,
    kmeans,
    load_clusters,
    merge_coupled,
    merged_stats,
)
from skdpm.mixture.state._state import MixtureState

# Rows that are cut into pieces, at most; the others join the clusters found among these.
MOST_SAMPLED = 20_000
# Pieces: between these multiples of the square root of the number of rows.
FEWEST, MOST = 2.0, 4.0
MOST_PIECES = 400
SMOOTH, WIDE = 3, 60  # dimensions, and numbers of a cluster, from which on there are fewer
MOST_COUPLED = 40  # where clusters are not independent
# Passes in which rows change pieces that were not cut by k-means.
N_PASSES = 3
# Turns that merging and learning take, and draws of the hyperparameters in each. Once the number
# of clusters hardly grows from one turn to the next, the first merges are the same in every turn:
# then only so many times the clusters found are merged, or this share of the pieces where that is
# more.
N_TURNS = 5
SPARE_PARTS = 3
# Times that rows change to a more likely cluster afterwards, and clusters are merged again.
N_REFINEMENTS = 1
N_DRAWS = 2


@dataclass(frozen=True)
class FirstState:
    """Where a chain starts.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), or None
        0, ..., K - 1, none of them empty. None: a single cluster, or those of `stats`.
    values : dict of str to float or ndarray
        Of the likelihood's hyperparameters that are learned.
    concentration : float
    stats : ndarray of shape (K, n_stats), or None
        Clusters of a sample of rows, where rows are in blocks: all rows are drawn among these.
    """

    labels: np.ndarray | None
    values: dict
    concentration: float
    stats: np.ndarray | None = None


class AutomaticStart:
    """Draws where a chain starts, of a program and a bit generator.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        As the program has it.
    likelihood : Likelihood
        Resolved.
    """

    def __init__(self, X, likelihood):
        self.X = X
        self.likelihood = likelihood
        self.n_sampled = X.shape[0] if likelihood.pairwise else min(X.shape[0], MOST_SAMPLED)

    @functools.cached_property
    def points(self):
        """Coordinates of all rows, for all chains."""
        return self.likelihood.coordinates(self.X)

    def __call__(self, program, bit_generator):
        rng = np.random.Generator(bit_generator)
        likelihood, n_sampled = self.likelihood, self.n_sampled
        X, model = self.X, program.model()
        if n_sampled < X.shape[0]:
            # In order: a memory-mapped file is read once through.
            X = X[np.sort(rng.choice(X.shape[0], n_sampled, replace=False))]
            points = likelihood.coordinates(X)
        else:
            points = self.points
        if n_sampled != model.n_samples:
            data = likelihood.encode(X)
            model = likelihood.bind(data, likelihood.tables(data, n_sampled + 1))
        if "product" not in likelihood.capabilities:
            prior = program.make_prior(program.first_concentration)
            return merge_coupled_pieces(program, cut(model, prior, points, rng), rng)
        labels, merged = find_clusters(program, model, points, bit_generator)
        if n_sampled < self.X.shape[0]:
            log_sizes = np.log(merged.stats[:, 0])
            labels = program.most_likely(merged.values, merged.stats, log_sizes)
            labels = without_gaps(labels)
        return FirstState(labels, merged.values, merged.concentration)


def find_clusters(program, model, points, bit_generator):
    """Cut rows into pieces and merge these, where clusters are independent.

    Parameters
    ----------
    program : MixtureProgram
    model : ClusterModel
        Bound to the rows.
    points : ndarray of shape (n_rows, n_dimensions), or None
        Coordinates of the rows.
    bit_generator : numpy BitGenerator

    Returns
    -------
    labels : ndarray of shape (n_rows,)
    merged : Merged
    """
    rng = np.random.Generator(bit_generator)
    likelihood = program.likelihood
    prior = program.make_prior(program.first_concentration)
    state = cut(model, prior, points, rng)
    labels, merged = merge_state(program, state, bit_generator)
    for _ in range(N_REFINEMENTS):
        state = None  # a model belongs to one state at a time
        model.clear(0)
        if merged.values:
            model.set_hyperparameters(likelihood.at(merged.values).flat_hyperparameters())
        prior.set_concentration(merged.concentration)
        state = MixtureState(model, prior, labels)
        assign_in_turn(state, rng.permutation(model.n_samples), by_size=True)
        labels, merged = merge_state(program, state, bit_generator)
    return labels, merged


def number_of_pieces(n, u, share=1.0):
    """Pieces into which n rows are cut, by a number u in [0, 1), or a share of them."""
    n_pieces = share * math.sqrt(n) * FEWEST * (MOST / FEWEST) ** u
    return max(1, min(round(n_pieces), MOST_PIECES, n))


def cut(model, prior, points, rng):
    """Cut rows into pieces.

    By k-means where there are points. Elsewhere some rows are seeds, and the others join, in
    random order, the piece under whose rows so far they are most likely; then all of them change
    to a more likely one, some times over. So do, once, rows whose clusters are coupled: of what
    their links say, points are only the rough part.

    Parameters
    ----------
    model : ClusterModel
        Bound to the rows.
    prior : PartitionPrior
    points : ndarray of shape (n_rows, n_dimensions), or None
    rng : Generator

    Returns
    -------
    state : MixtureState
    """
    n = model.n_samples
    # Pieces of fewer rows than dimensions say little of a cluster's form; and where a kernel keeps
    # many numbers of a cluster, a pair of pieces costs as much as many rows in a sweep.
    if points is not None:
        share = (SMOOTH / max(points.shape[1], SMOOTH)) ** 0.4
    else:
        share = (WIDE / max(model.width, WIDE)) ** 0.25
    n_pieces = number_of_pieces(n, rng.random(), share)
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
    return state


@dataclass(frozen=True)
class Merged:
    """Clusters that pieces were merged into.

    Attributes
    ----------
    clusters : ndarray of shape (n_pieces,)
        The cluster of each piece.
    stats : ndarray of shape (K, n_stats)
    values : dict
        Of the likelihood's hyperparameters that are learned.
    concentration : float
    """

    clusters: np.ndarray
    stats: np.ndarray
    values: dict
    concentration: float


def merge_state(program, state, bit_generator):
    """Merge the clusters of a state, which is of no use afterwards: its kernel holds others.

    Returns
    -------
    labels : ndarray of shape (n_samples,)
    merged : Merged
    """
    labels = state.cluster_labels()
    merged = merge_pieces(program, state.model, state.prior, state.dump(), bit_generator)
    return merged.clusters[labels], merged


def merge_pieces(program, model, prior, stats, bit_generator):
    """Merge pieces by their statistics, where clusters are independent.

    Parameters
    ----------
    program : MixtureProgram
    model : ClusterModel
        At the hyperparameters to begin with. Its clusters are replaced.
    prior : PartitionPrior
        At the concentration to begin with, which changes.
    stats : ndarray of shape (n_pieces, n_stats)
    bit_generator : numpy BitGenerator

    Returns
    -------
    merged : Merged
    """
    likelihood = program.likelihood
    # What is being merged: first the pieces, then clusters of which there are still many.
    parts, part_stats = np.arange(len(stats)), stats
    best, best_value, n_before = None, -np.inf, 0
    # The first turn is at the values given, the second at those of a single cluster.
    for turn in range(N_TURNS if likelihood.learned else 1):
        if turn == 1:
            load_clusters(model, merged_stats(model, stats, np.zeros(len(stats), dtype=np.intp)))
            _learn(program, model, np.zeros(1, dtype=np.intp), bit_generator)
        elif turn == 2 and best.values:
            model.clear(0)
            model.set_hyperparameters(likelihood.at(best.values).flat_hyperparameters())
        merger = Merger(model, prior, part_stats)
        slots, clusters = merger.merge_all()
        clusters = clusters[parts]
        sizes = model.dump(slots)[:, 0].astype(np.intp)
        program.resample_concentration(prior, sizes, bit_generator)
        hyperparameters = _learn(program, model, slots, bit_generator)
        values = likelihood.learned_values(hyperparameters)
        cluster_stats = model.dump(slots)
        value = model.log_marginals(cluster_stats).sum() + prior.log_probability(sizes)
        value += _log_hyperprior(program, values, prior.concentration)
        if best is None or value > best_value:
            best = Merged(clusters, cluster_stats, values, prior.concentration)
            best_value = value
        if turn > 1 and len(part_stats) == len(stats) and len(slots) <= 1.5 * n_before:
            n_parts = max(SPARE_PARTS * len(slots), len(stats) // SPARE_PARTS)
            parts = merger.clusters_at(n_parts)[1]
            part_stats = merged_stats(model, stats, parts)
        n_before = len(best.stats) if turn == 1 else len(slots)
    return best


def merge_coupled_pieces(program, state, rng):
    """Merge pieces where clusters are not independent.

    Parameters
    ----------
    program : MixtureProgram
    state : MixtureState
        In pieces.
    rng : Generator

    Returns
    -------
    first : FirstState
    """
    best, best_value = None, -np.inf
    for turn in range(N_TURNS):
        if turn > 0:
            assign_in_turn(state, rng.permutation(state.n_samples), by_size=True)
        merge_coupled(state)
        program.resample_concentration(state.prior, state.cluster_sizes(), rng.bit_generator)
        values = _learn(program, state.model, state.cluster_slots(), rng.bit_generator)
        values = program.likelihood.learned_values(values)
        concentration = state.prior.concentration
        value = state.compute_log_joint() + _log_hyperprior(program, values, concentration)
        if best is None or value > best_value:
            best, best_value = FirstState(state.cluster_labels(), values, concentration), value
    return best


def _log_hyperprior(program, values, concentration):
    return program.likelihood.log_hyperprior(values) + program.log_hyperprior(concentration)


def _learn(program, model, slots, bit_generator):
    """Draw the hyperparameters that are learned, given clusters; return all of them.

    Clusters that no draw fits (of a column that is constant within, say) leave them as they are:
    this is no more than a place to start.
    """
    if program.likelihood.learned:
        try:
            for _ in range(N_DRAWS):
                model.resample_hyperparameters(
                    slots, program.likelihood.learned_priors, bit_generator
                )
        except FloatingPointError:
            pass
    return model.hyperparameters()


def without_gaps(labels):
    """Number clusters 0, ..., K - 1, in their order and in the type of the labels: nothing of
    eight bytes per row is kept."""
    used = np.zeros(int(labels.max()) + 1, dtype=bool)
    used[labels] = True
    return (np.cumsum(used) - 1).astype(labels.dtype)[labels]


def most_likely(rows, stats, log_weights):
    """The cluster of the largest weight times density of each row.

    Parameters
    ----------
    rows : MixtureRows
        The clusters of their kernel are replaced.
    stats : ndarray of shape (K, n_stats)
    log_weights : ndarray of shape (K,)

    Returns
    -------
    labels : ndarray of shape (n_rows,)
        Of the smallest unsigned type.
    """
    load_clusters(rows.model, stats)
    return rows.most_probable(log_weights).astype(np.min_scalar_type(len(stats)))
