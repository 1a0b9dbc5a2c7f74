# SPDX-License-Identifier: BSD-3-Clause
"""Summaries of posterior draws of a partition: co-clustering, point estimates, credible balls.

`label_samples` are draws of a partition, of shape (..., n_samples); the leading axes, such as
(chains, draws), are flattened. `labels` are one partition. A label only shows which rows are
together in a draw: its value does not matter, and equal values in two draws mean nothing.

Two losses between partitions a and b of n rows, with a_j, b_k the sizes of their clusters and
n_jk those of the intersections, have the common form

    [sum_j f(a_j) + sum_k f(b_k) - 2 sum_jk f(n_jk)] / norm

- "vi": variation of information (Meila 2007), f(x) = x log x, norm = n: in nats, up to log n;
- "binder": Binder's (1978) loss with unit costs, f(x) = x^2, norm = n (n - 1): the fraction of
  the n (n - 1) / 2 pairs of rows that one partition joins and the other separates (1 - Rand
  index); 0 if n = 1.

The loss adds up the two errors that an estimate a can make about a draw b:

    join = [sum_j f(a_j) - sum_jk f(n_jk)] / norm    for rows that a joins and b separates,
    split = [sum_k f(b_k) - sum_jk f(n_jk)] / norm   for rows that b joins and a separates.

For "vi" these are the conditional entropies of b given a and of a given b. A pair such as
("vi", 1.5) is the generalised loss of Dahl, Johnson & Mueller (2022),

    split_cost * split + (2 - split_cost) * join,    0 < split_cost < 2.

A larger split_cost gives an estimate with fewer clusters.
"""

import functools
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from skdpm import _partitions as kernels
from skdpm._typing import Loss, Seed
from skdpm._validation import check_integer, check_real, closest
from skdpm.diagnostics import mcse_mean

__all__ = [
    "Comparison",
    "CredibleBall",
    "MergeTree",
    "coclustering_matrix",
    "compare",
    "credible_ball",
    "expected_loss",
    "label_probabilities",
    "merge_tree",
    "partition_distances",
    "point_estimate",
    "point_estimates",
    "relabel_by_size",
]
__dir__ = __all__.copy

# Draws are converted to int32 codes for the kernels this many labels at a time.
_BLOCK_CELLS = 1 << 18
# The search of point_estimate reads every label (draws x distinct rows) many times: its runs
# see at most the first number of labels, the final descent at most the second, thinned evenly
# to no fewer draws than the third and the fourth.
_RUN_CELLS, _FINAL_CELLS = 1 << 19, 1 << 24
_MIN_RUN_DRAWS, _MIN_FINAL_DRAWS = 32, 100
# Steps of the kernel (a few nanoseconds each): beyond the first number, runs end when the
# smallest loss has been found _N_AGREEING times; beyond the second, runs and final descent end.
_MIN_WORK, _MAX_WORK = 1 << 20, 1 << 28
_N_AGREEING = 3
# Draws of which point_estimates compares all pairs, and its largest number of searches for each.
_MOST_PAIRED, _MOST_TURNS = 200, 10


def coclustering_matrix(label_samples, rows=None) -> np.ndarray:
    """Fraction of draws in which two rows share a cluster.

    >>> from skdpm.partitions import coclustering_matrix
    >>> coclustering_matrix([[0, 0, 1], [0, 1, 1]])
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0.5],
           [0. , 0.5, 1. ]])

    At most O(n_draws * m^2) comparisons; rows that agree in all draws count once. Scratch memory
    is at most that of the result.

    Parameters
    ----------
    label_samples : array-like of int of shape (..., n_samples)
        Draws of a partition; leading axes are flattened.
    rows : array-like of int of shape (m,), default=None
        Rows to compare, in the order of the result. None: all.

    Returns
    -------
    ndarray of shape (m, m), float64
        Symmetric, with ones on the diagonal.
    """
    draws = _as_draws(label_samples)
    if rows is not None:
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
            raise ValueError("rows must be a non-empty one-dimensional array of integers")
        if rows.min() < 0 or rows.max() >= draws.shape[1]:
            raise ValueError(f"rows must be in 0..{draws.shape[1] - 1}")
        draws = draws[:, rows]
    first, group = _distinct_rows(draws)
    draws = draws[:, first]
    counts = np.zeros((len(first), len(first)), dtype=np.int32)
    for _, codes, n_codes in _code_blocks(draws, n_draws=240):
        dtype = np.uint8 if n_codes <= 256 else np.int32
        kernels.add_agreements(np.ascontiguousarray(codes.T, dtype=dtype), counts)
    out = np.empty((len(group), len(group)))
    kernels.expand_agreements(counts, group, len(draws), out)
    return out


def label_probabilities(label_samples, labels) -> np.ndarray:
    """Probability that each row belongs to its cluster of a partition.

    >>> from skdpm.partitions import label_probabilities
    >>> draws = [[0, 0, 0, 1], [0, 0, 1, 1]]
    >>> label_probabilities(draws, [0, 0, 0, 1])
    array([0.75, 0.75, 0.5 , 0.5 ])

    For a row in a cluster of several rows, this is the probability that it shares a cluster with
    another row of that cluster, averaged over those rows. For a row that is alone in its cluster,
    it is the probability of being alone.

    O(n_draws * n_samples): means of parts of the rows of `coclustering_matrix`, without it.

    Parameters
    ----------
    label_samples, labels
        As in `partition_distances`.

    Returns
    -------
    probabilities : ndarray of shape (n_samples,), float64
    """
    draws = _as_draws(label_samples)
    labels = _as_partition(labels, draws.shape[1], "labels")
    order, bounds, sizes = _clusters(labels)
    company = np.zeros(draws.shape[1], dtype=np.int64)
    for _, codes, n_codes in _code_blocks(draws):
        kernels.add_company(codes, order, bounds, n_codes, company)
    others = np.empty(len(company))
    others[order] = np.repeat(np.maximum(sizes - 1, 1), sizes)
    return company / (others * len(draws))


def partition_distances(label_samples, labels, loss: Loss = "vi") -> np.ndarray:
    """Distance of each draw to one partition.

    >>> from skdpm.partitions import partition_distances
    >>> partition_distances([[0, 0, 1, 1], [0, 1, 2, 3]], [5, 5, 2, 2]).round(4)
    array([0.    , 0.6931])

    O(n_draws * n_samples), with no contingency table in memory.

    Parameters
    ----------
    label_samples : array-like of int of shape (..., n_samples)
        Draws of a partition; leading axes are flattened.
    labels : array-like of int of shape (n_samples,)
        The partition.
    loss : {"vi", "binder"} or tuple (name, split_cost), default="vi"
        Variation of information in nats, or the fraction of the n (n - 1) / 2 pairs of rows on
        which the two partitions disagree. With a split_cost in (0, 2), rows that the draw joins
        and `labels` separates count split_cost times, and rows that `labels` joins and the draw
        separates count 2 - split_cost times. The loss is then not symmetric.

    Returns
    -------
    ndarray of shape (n_draws,), float64
        Exactly 0 where a draw is the same partition.

    References
    ----------
    Meila (2007); Binder (1978).
    """
    draws = _as_draws(label_samples)
    return _distances(draws, _as_partition(labels, draws.shape[1], "labels"), loss)


def expected_loss(label_samples, labels, loss: Loss = "vi") -> float:
    """Posterior expected loss of a partition: the mean over the draws of its distance to them.

    >>> from skdpm.partitions import expected_loss
    >>> expected_loss([[0, 0, 1], [0, 1, 1]], [0, 0, 0], loss="binder")
    0.6666666666666666

    Parameters
    ----------
    label_samples, labels, loss
        As in `partition_distances`.

    Returns
    -------
    float
        The exact mean over the draws; for "vi" not the lower bound of Wade & Ghahramani (2018).
    """
    return float(np.mean(partition_distances(label_samples, labels, loss)))


def point_estimate(
    label_samples,
    loss: Loss = "vi",
    *,
    max_clusters: int | None = None,
    n_runs: int = 32,
    random_state: Seed = None,
) -> np.ndarray:
    """Partition of smallest posterior expected loss, by greedy stochastic search.

    >>> from skdpm.partitions import point_estimate
    >>> draws = [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]
    >>> point_estimate(draws, random_state=0)
    array([0, 0, 0, 1, 1])

    The search follows SALSO (Dahl, Johnson & Mueller 2022). A run moves single rows while that
    lowers the loss, takes clusters apart and joins them. The best result of all runs is returned.

    Parameters
    ----------
    label_samples : array-like of int of shape (..., n_samples)
        Draws of a partition; leading axes are flattened.
    loss : {"vi", "binder"} or tuple (name, split_cost), default="vi"
        Variation of information, or Binder's loss, with unit costs where only the name is given.
        A split_cost in (1, 2) makes separating rows dearer than joining them, so that clusters
        that overlap become one; a split_cost in (0, 1) keeps them apart. The search minimises the
        exact mean over the draws; for "vi", not its lower bound by Jensen's inequality.
    max_clusters : int, default=None
        Largest number of clusters in the result. None: no limit.
    n_runs : int, default=32
        Largest number of runs. Unless the problem is small, the search stops earlier: when three
        runs end at the same smallest loss, or after about a second of work.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the search. The same seed gives the same result, however the draws are labelled.

    Returns
    -------
    ndarray of shape (n_samples,), int64
        Labels from 0 by decreasing size of cluster, ties by first appearance.

    References
    ----------
    Dahl, Johnson & Mueller (2022); Wade & Ghahramani (2018).
    """
    draws = _as_draws(label_samples)
    n_samples = draws.shape[1]
    table, _, split_cost = _loss_table(loss, n_samples)
    max_clusters = n_samples if max_clusters is None else max_clusters
    max_clusters = check_integer(max_clusters, "max_clusters", low=1)
    n_runs = check_integer(n_runs, "n_runs", low=1)
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31, size=4)
    rng = np.random.default_rng(random_state)

    first, group = _distinct_rows(draws)
    final_draws = _thin(draws, max(_MIN_FINAL_DRAWS, _FINAL_CELLS // len(first)))
    run_draws = _thin(final_draws, max(_MIN_RUN_DRAWS, _RUN_CELLS // len(first)))
    search, first, group = _index_draws(run_draws, table, max_clusters, split_cost)
    best, best_objective, n_agreeing = None, np.inf, 0
    for run in range(n_runs):
        if run == 2:
            search.place(np.zeros(len(first), dtype=np.int32))
        elif run % 2:
            search.clear()
        else:
            start = relabel_by_size(run_draws[rng.integers(len(run_draws))])[first]
            start[start >= max_clusters] = -1
            search.place(start.astype(np.int32))
        _descend(search, rng)
        objective = search.objective()
        rounding = 1e-9 * abs(objective)
        if objective < best_objective - rounding:
            best, best_objective, n_agreeing = search.labels(), objective, 1
        elif objective <= best_objective + rounding:
            n_agreeing += 1
        if search.work > _MAX_WORK or (search.work > _MIN_WORK and n_agreeing >= _N_AGREEING):
            break
    best = best[group]
    if len(run_draws) < len(final_draws):
        search, first, group = _index_draws(final_draws, table, max_clusters, split_cost)
        search.place(best[first])
        _sweeten(search, rng)
        best = search.labels()[group]
    return relabel_by_size(best)


def point_estimates(
    label_samples, n_estimates: int, loss: Loss = "vi", *, random_state: Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    """Several partitions that stand for the draws where one will not do, with their weights.

    >>> from skdpm.partitions import point_estimates
    >>> draws = [[0, 0, 0, 0]] * 3 + [[0, 0, 1, 1]] * 2
    >>> labels, weights = point_estimates(draws, 2, random_state=0)
    >>> labels.tolist(), weights.tolist()
    ([[0, 0, 0, 0], [0, 0, 1, 1]], [0.6, 0.4])

    The mean loss between draws and the nearest of the partitions is minimised, locally: the
    Wasserstein distance of the weighted partitions from the posterior. Of more than 200 draws, 200
    evenly spaced ones choose the partitions.

    Parameters
    ----------
    label_samples, loss, random_state
        As in `point_estimate`.
    n_estimates : int
        Largest number of partitions; there are fewer if draws are equal.

    Returns
    -------
    labels : ndarray of shape (n_found, n_samples), int64
        Partitions by decreasing weight, labelled as by `point_estimate`.
    weights : ndarray of shape (n_found,)
        Share of the draws to which each partition is the nearest.

    References
    ----------
    Balocchi & Wade (2025).
    """
    estimate = functools.partial(point_estimate, loss=loss, random_state=random_state)
    return several(label_samples, n_estimates, loss, estimate)


def several(label_samples, n_estimates, loss, estimate):
    """`point_estimates`, each by a function of its draws."""
    every = _as_draws(label_samples)
    draws = _thin(every, _MOST_PAIRED)
    n_estimates = min(check_integer(n_estimates, "n_estimates", low=1), len(draws))
    distances = np.array([_distances(draws, draw, loss) for draw in draws])
    # Medoids: one after the other is replaced by the best draw, given the others.
    chosen, last = [], None
    while chosen != last:
        last = chosen
        for _ in range(n_estimates):
            others = chosen[1:] if len(chosen) == n_estimates else chosen
            nearest = distances[others].min(axis=0, initial=np.inf)
            best = np.minimum(nearest, distances).sum(axis=1).argmin()
            chosen = [*others, int(best)]
    owners, found = distances[chosen].argmin(axis=0), None
    for _ in range(_MOST_TURNS):
        found = np.array([estimate(draws[owners == k]) for k in np.unique(owners)])
        last, owners = owners, np.argmin([_distances(draws, x, loss) for x in found], axis=0)
        if np.array_equal(owners, last):
            break
    owners = np.argmin([_distances(every, labels, loss) for labels in found], axis=0)
    weights = np.bincount(owners, minlength=len(found)) / len(every)
    order = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
    return found[order], weights[order]


@dataclass(frozen=True, eq=False, repr=False)
class CredibleBall:
    """Smallest ball of partitions around a centre that holds a given part of the draws.

    Attributes
    ----------
    center : ndarray of shape (n_samples,), int64
    radius : float
        Distance of the farthest draw in the ball.
    level : float
    loss : str or tuple (name, split_cost)
        The distance.
    distances : ndarray of shape (n_draws,), float64
        Distance from each draw, leading axes flattened, to the centre.
    vertical_upper : ndarray of shape (k, n_samples), int64
        The most distant draws among those in the ball with the fewest clusters.
    vertical_lower : ndarray of shape (k, n_samples), int64
        The most distant draws among those in the ball with the most clusters.
    horizontal : ndarray of shape (k, n_samples), int64
        The most distant draws in the ball.

    Each bound lists every partition that qualifies once, in the order of the draws, with clusters
    numbered from 0 by decreasing size.
    """

    center: np.ndarray
    radius: float
    level: float
    loss: str
    distances: np.ndarray
    vertical_upper: np.ndarray
    vertical_lower: np.ndarray
    horizontal: np.ndarray

    def __repr__(self):
        return (
            f"CredibleBall: {self.level:.0%} of {len(self.distances)} draws are within "
            f"{self.radius:.3g} ({self.loss!r}) of a centre with {self.center.max() + 1} clusters"
        )


def credible_ball(
    label_samples,
    center=None,
    *,
    level: float = 0.95,
    loss: Loss = "vi",
    random_state: Seed = None,
) -> CredibleBall:
    """Credible ball around a partition, with its bounds.

    >>> from skdpm.partitions import credible_ball
    >>> draws = [[0, 0, 1, 1]] * 8 + [[0, 0, 0, 0], [0, 0, 1, 2]]
    >>> ball = credible_ball(draws, [0, 0, 1, 1], level=0.9)
    >>> round(ball.radius, 4), ball.horizontal
    (0.3466, array([[0, 0, 1, 2]]))

    Parameters
    ----------
    label_samples : array-like of int of shape (..., n_samples)
        Draws of a partition; leading axes are flattened.
    center : array-like of int of shape (n_samples,), default=None
        None: the `point_estimate` under the same loss.
    level : float, default=0.95
        Share of the draws that the ball holds, in (0, 1). The radius is the
        ceil(level * n_draws)-th smallest distance of a draw to the centre.
    loss : {"vi", "binder"} or tuple (name, split_cost), default="vi"
        The distance, as in `partition_distances`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of `point_estimate`; used only if `center` is None.

    Returns
    -------
    CredibleBall
        With attributes `center`, `radius`, `distances`, `vertical_upper`, `vertical_lower` and
        `horizontal`. Distances that differ by less than 1e-10 count as equal.

    References
    ----------
    Wade & Ghahramani (2018), section 5.
    """
    draws = _as_draws(label_samples)
    _loss_table(loss, 1)
    level = check_real(level, "level", low=0.0, high=1.0)
    if center is None:
        center = point_estimate(draws, loss, random_state=random_state)
    else:
        center = relabel_by_size(_as_partition(center, draws.shape[1], "center"))
    distances = _distances(draws, center, loss)
    occupied = np.minimum(np.arange(len(center) + 1.0), 1.0)
    n_clusters = _joint_sums(draws, *_one_cluster(draws), occupied)
    # 0.55 * 100 > 55 in floating point, where 55 draws are meant.
    rank = int(np.ceil(level * len(draws) - 1e-9))
    radius = np.partition(distances, rank - 1)[rank - 1]
    inside = distances <= radius + 1e-10

    def farthest(candidates):
        """Distinct partitions, by first occurrence, numbered by decreasing size."""
        chosen = candidates & (distances >= distances[candidates].max() - 1e-10)
        # Equal draws are left out first, which is cheap.
        found = {draw.tobytes(): draw for draw in draws[chosen][::-1]}
        found = map(relabel_by_size, reversed(found.values()))
        return np.stack(list({labels.tobytes(): labels for labels in found}.values()))

    return CredibleBall(
        center=center,
        radius=float(radius),
        level=level,
        loss=loss,
        distances=distances,
        vertical_upper=farthest(inside & (n_clusters == n_clusters[inside].min())),
        vertical_lower=farthest(inside & (n_clusters == n_clusters[inside].max())),
        horizontal=farthest(inside),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two fits of the same rows compared: see `compare`.

    Attributes
    ----------
    distance, error, within : float
        Mean distance of the draws of one fit from those of the other, its Monte Carlo standard
        error, NaN with one draw, and the mean between two draws of the same fit. If it is about
        as large, the posteriors are about equal.
    table : ndarray of shape (n_first, n_second), int64
        Numbers of rows in each pair of clusters.
    names : tuple of 2 ndarray, the labels of the lines and columns of `table`; -1 is noise
    moved : ndarray of shape (n_moved,), int64
        Rows in pairs of clusters that do not match, the most certain first. Each cluster matches
        one at most, so that matches hold as many rows as possible.
    """

    distance: float
    error: float
    within: float
    table: np.ndarray
    names: tuple
    moved: np.ndarray

    def __repr__(self):
        return (
            f"Comparison: draws of two fits are {self.distance:.3g} +- {self.error:.1g} apart, "
            f"of one fit {self.within:.3g}; {len(self.moved)} rows moved. Rows in each pair of "
            f"clusters of the first (lines) and the second fit:\n{self.table}"
        )


def compare(first, second, *, loss: Loss = "vi") -> Comparison:
    """Compare clusters of two fits of the same rows (seeds, parameters, columns): `Comparison`.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.partitions import compare
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> first, second = (DPMixture(random_state=seed).fit(X) for seed in (0, 1))
    >>> comparison = compare(first, second)
    >>> comparison.table.tolist(), len(comparison.moved)
    ([[10, 0], [0, 10]], 0)

    Parameters
    ----------
    first, second : DPMixture or FiniteMixture
        Fitted mixtures with draws of labels.
    loss : {"vi", "binder"} or tuple (name, split_cost), default="vi"
        Distance, as in `partition_distances`. Rows that are noise are one cluster.
    """
    for fit in (first, second):
        if not hasattr(fit, "_check_label_draws"):
            raise TypeError(f"compare takes a fitted DPMixture or FiniteMixture; got {fit!r}")
        fit._check_label_draws("compare", "predict(X)")
    n_rows = [len(fit.labels_) for fit in (first, second)]
    if n_rows[0] != n_rows[1]:
        raise ValueError("both fits must have the same rows, got {} and {} rows".format(*n_rows))
    kept = [fit._training.X for fit in (first, second)]
    sums = [np.ravel(X.sum(axis=1)) for X in kept if X is not None]
    same = len(sums) == 2 and np.array_equal(*map(np.sort, sums), equal_nan=True)
    if same and not np.array_equal(*sums, equal_nan=True):
        raise ValueError("the fits have the same rows in different orders: fit both in one order")
    # Noise, -1, becomes 0; the largest label may be that of a small type.
    draws = [fit.cluster_samples_.astype(np.int32) + 1 for fit in (first, second)]
    found = (np.unique(fit.labels_, return_inverse=True) for fit in (first, second))
    names, (rows, columns) = zip(*found, strict=True)
    # Draws of each fit, thinned: few if there are many rows, for a time of seconds, but at least
    # four of each chain, for errors.
    most = int(np.clip((3e7 / n_rows[0]) ** 0.5, 20, 100))
    steps = [min(-(-some[..., 0].size // most), some.shape[1] // 4) for some in draws]
    draws = [some[:, :: max(step, 1)] for some, step in zip(draws, steps, strict=True)]
    both = np.concatenate([some.reshape(-1, n_rows[0]) for some in draws])
    losses = np.array([partition_distances(both, labels, loss) for labels in both])
    losses = (losses + losses.T) / 2.0
    n_first = draws[0][..., 0].size
    between = losses[:n_first, n_first:]
    errors = [mcse_mean(between.mean(axis=1 - i).reshape(draws[i].shape[:2])) for i in (0, 1)]
    own = losses[:n_first, :n_first], losses[n_first:, n_first:]
    table = np.zeros((len(names[0]), len(names[1])), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    matched = np.zeros(table.shape, dtype=bool)
    matched[linear_sum_assignment(table, maximize=True)] = True
    moved = np.flatnonzero(~matched[rows, columns])
    certainty = np.minimum(first.probabilities_, second.probabilities_)[moved]
    return Comparison(
        distance=float(between.mean()),
        error=float(np.hypot(*errors)),
        within=sum(float(part.sum()) / max(part.size - len(part), 1) for part in own) / 2.0,
        table=table,
        names=names,
        moved=moved[np.argsort(-certainty, kind="stable")],
    )


@dataclass(frozen=True, eq=False, repr=False)
class MergeTree:
    """Merges of the clusters of a partition, two at a time, until one is left: see `merge_tree`.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), int64
        The partition: K clusters, numbered from 0 by decreasing size; -1 for rows in none, which
        stay as they are.
    linkage : ndarray of shape (K - 1, 4)
        The merges in order, in the format of `scipy.cluster.hierarchy`: the two nodes that merge
        (0, ..., K - 1 are the clusters, K + m is the result of merge m), the height, and the
        number of clusters in the result. The height is the largest expected loss of a partition
        up to and including this merge, so that heights do not decrease.
    expected_losses : ndarray of shape (K,)
        Posterior expected losses of the partitions into K, K - 1, ..., 1 clusters.
    loss : str or tuple (name, split_cost)
    probabilities : ndarray of shape (K - 1,)
        Posterior probability of each merge: that a row of one node and a row of the other share a
        cluster, averaged over these pairs of rows.
    names : ndarray of shape (K,), int64, or None
        The clusters in `labels_` of the mixture. None: their numbers.
    """

    labels: np.ndarray
    linkage: np.ndarray
    expected_losses: np.ndarray
    loss: object
    probabilities: np.ndarray | None = None
    names: np.ndarray | None = None

    def __repr__(self):
        return f"MergeTree(n_clusters={len(self.expected_losses)}, loss={self.loss!r})"

    def cut(self, n_clusters: int) -> np.ndarray:
        """Partition into a given number of clusters.

        Parameters
        ----------
        n_clusters : int
            Number of clusters, from 1 to K.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            From 0 by decreasing size.
        """
        most = len(self.expected_losses)
        n_clusters = check_integer(n_clusters, "n_clusters", low=1, high=most)
        root = np.arange(2 * most - 1)
        for m in range(most - n_clusters - 1, -1, -1):
            # Backwards, so that the result of a merge already knows its root.
            root[self.linkage[m, :2].astype(np.intp)] = root[most + m]
        return _relabel_inside(np.where(self.labels >= 0, root[self.labels], -1))


def merge_tree(label_samples, labels, loss: Loss = "vi", distances=None) -> MergeTree:
    """Merge the clusters of a partition greedily, for fewer clusters that are nested in it.

    >>> from skdpm.partitions import merge_tree
    >>> draws = [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]]
    >>> tree = merge_tree(draws, [0, 0, 1, 1, 2, 2])
    >>> tree.cut(2)
    array([0, 0, 0, 0, 1, 1])
    >>> tree.expected_losses.round(3)
    array([0.231, 0.231, 0.868])
    >>> tree.probabilities
    array([0.5, 0. ])

    Each step merges the two clusters whose union gives the smallest posterior expected loss.
    Another partition with the same number of clusters may have a smaller loss; `point_estimate`
    with ``max_clusters`` searches for it, and its clusters need not be unions of the old ones. The
    cost of a union of two clusters that share no cluster of any draw depends on sizes alone. With
    `distances`, such clusters merge after all others, the nearest first (single linkage).

    Let n_jb be the number of rows of cluster j in cluster b of a draw. The cost of merging i and j
    is a sum over those b that hold rows of both. The time is O(n_draws * n_samples) to count, then
    O(K^3); no n_samples x n_samples matrix is built.

    Parameters
    ----------
    label_samples, labels, loss
        As in `partition_distances`; the loss is the exact mean over the draws.
    distances : ndarray of shape (K, K), default=None
        Distances between the clusters of `labels`, in increasing order of labels. None: where
        draws do not decide, the smallest clusters merge first.

    Returns
    -------
    tree : MergeTree
    """
    draws = _as_draws(label_samples)
    given = _as_partition(labels, draws.shape[1], "labels")
    labels = relabel_by_size(given)
    table, norm, split_cost = _loss_table(loss, draws.shape[1])
    sizes = np.bincount(labels)
    overlaps = _Overlaps(draws, labels, table)
    n_clusters = len(sizes)
    gains = np.array([overlaps.gains(j) for j in range(n_clusters)])

    def cost(joint, i, j):
        own = table[sizes[i] + sizes[j]] - table[sizes[i]] - table[sizes[j]]
        return ((2.0 - split_cost) * own - 2.0 * joint) / norm

    every = np.arange(n_clusters)
    costs = np.full((n_clusters, n_clusters), np.inf)  # those below the diagonal are not used
    for j in range(n_clusters - 1):
        costs[j, j + 1 :] = cost(gains[j, j + 1 :], j, every[j + 1 :])
    if distances is not None:
        first = np.unique(given, return_index=True)[1]
        order = np.argsort(labels[first])
        distances = _as_distances(distances, n_clusters)[np.ix_(order, order)]
        np.fill_diagonal(distances, np.inf)
        shares = np.array([overlaps.pairs(j) > 0.0 for j in range(n_clusters)])
    number, n_leaves = every.copy(), np.ones(n_clusters)
    linkage, probabilities = np.empty((n_clusters - 1, 4)), np.empty(n_clusters - 1)
    losses = np.full(n_clusters, expected_loss(draws, labels, loss))
    for m in range(n_clusters - 1):
        i, j = np.unravel_index(np.argmin(costs), costs.shape)
        if distances is not None:
            decided = np.where(shares, costs, np.inf)
            undecided = np.isinf(decided).all()
            nearest = np.argmin(distances if undecided else decided)
            i, j = sorted(np.unravel_index(nearest, costs.shape))
            distances[i] = distances[:, i] = np.minimum(distances[i], distances[j])
            shares[i] |= shares[j]
            shares[:, i] = shares[i]
            distances[i, i] = distances[j, :] = distances[:, j] = np.inf
            shares[j] = shares[:, j] = False
        losses[m + 1] = max(losses[m] + costs[i, j], 0.0)
        probabilities[m] = overlaps.pairs(j)[i] / (float(sizes[i]) * sizes[j])
        n_leaves[i] += n_leaves[j]
        linkage[m] = *sorted((number[i], number[j])), losses[1 : m + 2].max(), n_leaves[i]
        number[i] = n_clusters + m
        overlaps.merge(i, j)
        sizes[i] += sizes[j]
        costs[j, :] = costs[:, j] = np.inf
        every = every[every != j]
        others = every[every != i]
        changed = cost(overlaps.gains(i)[others], i, others)
        costs[np.minimum(i, others), np.maximum(i, others)] = changed
    return MergeTree(labels, linkage, losses, loss, probabilities)


class _Overlaps:
    """Numbers of rows that clusters share with the clusters of the draws ("blocks").

    - `draws`: (n_draws, n_samples)
    - `labels`: (n_samples,). From 0, without gaps.
    - `table`: (n_samples + 1,). f of the loss.
    """

    def __init__(self, draws, labels, table):
        self.n_draws, self.table, parts = len(draws), table, []
        for _, codes, n_codes in _code_blocks(draws):
            blocks = codes + n_codes * np.arange(len(codes))[:, None]
            cells = np.tile(labels, len(codes)), blocks.ravel()
            shape = labels.max() + 1, n_codes * len(codes)
            parts.append(sp.csr_array((np.ones(codes.size, dtype=np.int64), cells), shape))
        found = sp.hstack(parts, format="coo")
        self.cluster, self.block, self.count = found.row, found.col, found.data
        self.n_clusters, self.n_blocks = found.shape

    def gains(self, j):
        """Mean over the draws of sum_b [f(n_ib + n_jb) - f(n_ib) - f(n_jb)], for each cluster i:
        (n_clusters,), 0 for j itself."""
        table = self.table
        return self._mean_sums(j, lambda a, b: table[a + b] - table[a] - table[b])

    def pairs(self, j):
        """Mean over the draws of the number of pairs of a row of j and a row of another cluster
        that share a block: (n_clusters,), 0 for j itself."""
        return self._mean_sums(j, lambda a, b: a.astype(np.float64) * b)

    def _mean_sums(self, j, term):
        """Mean over the draws of sum_b term(n_jb, n_ib), for each cluster i."""
        own = self.cluster == j
        of_block = np.zeros(self.n_blocks, dtype=self.count.dtype)
        of_block[self.block[own]] = self.count[own]
        shared = np.flatnonzero((of_block[self.block] > 0) & ~own)
        terms = term(of_block[self.block[shared]], self.count[shared])
        sums = np.bincount(self.cluster[shared], weights=terms, minlength=self.n_clusters)
        return sums / self.n_draws

    def merge(self, i, j):
        """Move the rows of cluster j to cluster i."""
        of_block = np.zeros(self.n_blocks, dtype=self.count.dtype)
        rest = np.ones(len(self.cluster), dtype=bool)
        for k in (i, j):
            own = self.cluster == k
            of_block[self.block[own]] += self.count[own]
            rest &= ~own
        blocks = np.flatnonzero(of_block)
        self.cluster = np.append(self.cluster[rest], np.full(len(blocks), i))
        self.block = np.append(self.block[rest], blocks)
        self.count = np.append(self.count[rest], of_block[blocks])


def _as_distances(distances, n_clusters):
    distances = np.array(distances, dtype=np.float64)
    if distances.shape != (n_clusters, n_clusters) or not np.isfinite(distances).all():
        raise ValueError(
            f"distances must be a finite array of shape ({n_clusters}, {n_clusters}), a row for "
            f"each cluster; got shape {distances.shape}"
        )
    return np.minimum(distances, distances.T)


def relabel_by_size(labels) -> np.ndarray:
    """Number the clusters of one partition from 0 by decreasing size, ties by first appearance.

    >>> from skdpm.partitions import relabel_by_size
    >>> relabel_by_size([7, 2, 2, 5])
    array([1, 0, 0, 2])

    Parameters
    ----------
    labels : array-like of int of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,), int64
    """
    labels = _as_partition(labels, None, "labels")
    n_samples = len(labels)
    if labels.max() > 4 * n_samples:  # few numbers are counted faster than they are sorted
        labels = np.unique(labels, return_inverse=True)[1]
    sizes = np.bincount(labels.astype(np.intp))
    first = np.empty(len(sizes), dtype=np.intp)
    first[labels[::-1]] = np.arange(n_samples)[::-1]
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return rank[labels]


def without_gaps(labels):
    """Labels >= 0 as 0, ..., K - 1 in the same order. Their dtype stays, to save memory."""
    used = np.zeros(int(labels.max()) + 1, dtype=bool)
    used[labels] = True
    return (np.cumsum(used) - 1).astype(labels.dtype)[labels]


def _relabel_inside(labels):
    """`relabel_by_size` of the rows in clusters; others, -1, stay as they are."""
    found = np.full(len(labels), -1, dtype=np.int64)
    inside = np.asarray(labels) >= 0
    if inside.any():
        found[inside] = relabel_by_size(labels[inside])
    return found


def _as_labels(labels, name):
    if hasattr(labels, "fit"):
        raise TypeError(f"{name} must be labels: pass model.label_samples_ or cluster_samples_")
    labels = np.asarray(labels)
    if labels.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got dtype {labels.dtype}")
    if labels.dtype.kind == "i" and labels.min() < 0:
        raise ValueError(f"{name} must not be negative")
    return labels


def _as_draws(labels):
    """Draws as an array of shape (n_draws, n_samples), dtype unchanged."""
    labels = _as_labels(labels, "label_samples")
    if labels.ndim == 0:
        raise ValueError("label_samples must have shape (..., n_samples), got a scalar")
    return labels.reshape(-1, labels.shape[-1])


def _as_partition(partition, n_samples, name):
    partition = _as_labels(partition, name)
    if partition.ndim != 1 or n_samples not in (None, len(partition)):
        expected = "(n_samples,)" if n_samples is None else f"({n_samples},)"
        raise ValueError(f"{name} must have shape {expected}, got {partition.shape}")
    return partition


def check_loss(loss, name="loss"):
    """Name and split_cost of a loss; split_cost is 1 by default."""
    base, split_cost = loss if isinstance(loss, tuple) and len(loss) == 2 else (loss, 1.0)
    if not isinstance(base, str) or base not in ("vi", "binder"):
        hint = closest(str(base), ("vi", "binder"))
        raise ValueError(
            f"{name} must be 'vi', 'binder' or a pair such as ('vi', 1.5), got {loss!r}{hint}"
        )
    return base, check_real(split_cost, f"{name}[1] (split_cost)", low=0.0, high=2.0)


def _loss_table(loss, n_samples):
    """f(0), ..., f(n_samples) of a loss, its norm, and its split_cost."""
    name, split_cost = check_loss(loss)
    x = np.arange(n_samples + 1.0)
    if name == "vi":
        return x * np.log(np.maximum(x, 1.0)), n_samples, split_cost
    return x * x, max(n_samples * (n_samples - 1), 1), split_cost


def _code_blocks(draws, n_draws=None):
    """Draws, a few at a time, as int32 codes: index of the first, codes, bound on the codes."""
    n_samples = draws.shape[1]
    step = n_draws or max(1, _BLOCK_CELLS // n_samples)
    for start in range(0, len(draws), step):
        codes = draws[start : start + step]
        n_codes = int(codes.max()) + 1
        if n_codes > 4 * n_samples + 1024:
            # Kernels allocate tables of n_codes entries: not much larger than a draw.
            codes = np.stack([np.unique(draw, return_inverse=True)[1] for draw in codes])
            n_codes = n_samples
        yield start, np.ascontiguousarray(codes, dtype=np.int32), n_codes


def groups_of_equal(keys):
    """Groups of equal keys, numbered by first appearance: the place of the first key of each
    group, and the group of each key."""
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    is_first = np.bincount(first, minlength=len(keys)) > 0
    return np.flatnonzero(is_first), (np.cumsum(is_first) - 1)[first[group]]


def _distinct_rows(draws):
    """Groups of rows that agree in all draws, as of `groups_of_equal`."""
    keys = np.zeros(draws.shape[1], dtype=np.uint64)
    for start, codes, n_codes in _code_blocks(draws):
        kernels.add_row_keys(codes, start, n_codes, keys)
    return groups_of_equal(keys)


def _thin(draws, n_draws):
    """Evenly spaced draws, or all if there are no more than n_draws."""
    if len(draws) <= n_draws:
        return draws
    return draws[np.arange(n_draws) * len(draws) // n_draws]


def _joint_sums(draws, order, bounds, table):
    out = np.empty(len(draws))
    for start, codes, n_codes in _code_blocks(draws):
        kernels.joint_sums(codes, order, bounds, n_codes, table, out[start : start + len(codes)])
    return out


def _one_cluster(draws):
    n_samples = draws.shape[1]
    return np.arange(n_samples, dtype=np.int32), np.array([0, n_samples], dtype=np.intp)


def _clusters(partition):
    """Order of rows by cluster (by first appearance), bounds of clusters in it, their sizes."""
    codes = groups_of_equal(partition)[1]
    order = np.argsort(codes, kind="stable").astype(np.int32)
    sizes = np.bincount(codes)
    return order, np.append(0, np.cumsum(sizes)).astype(np.intp), sizes


def _distances(draws, partition, loss):
    table, norm, split_cost = _loss_table(loss, draws.shape[1])
    # Clusters by first appearance: all three sums below then run over the clusters of an equal
    # draw in the same order, and cancel exactly.
    order, bounds, sizes = _clusters(partition)
    own = np.cumsum(table[sizes])[-1]
    joint = _joint_sums(draws, order, bounds, table)
    others = _joint_sums(draws, *_one_cluster(draws), table)
    loss = (2.0 - split_cost) * (own - joint) + split_cost * (others - joint)
    return np.maximum(loss, 0.0) / norm


def _index_draws(draws, table, max_clusters, split_cost):
    """Search over `draws`, with rows that agree in all of them as one item.

    Returns also the first row of each item and the item of each row.
    """
    first, group = _distinct_rows(draws)
    weights = np.bincount(group).astype(np.int32)
    search = kernels.PartitionSearch(weights, len(draws), max_clusters, table, split_cost)
    for _, codes, n_codes in _code_blocks(draws[:, first]):
        search.add_draws(codes, n_codes)
    return search, first, group


def _sweeten(search, rng):
    order = rng.permutation(search.n_items).astype(np.int32)
    while search.sweeten(order) and search.work < _MAX_WORK:
        pass


def _descend(search, rng):
    """Alternate sweetening and zealous updates of all clusters until neither helps."""
    improved = True
    while improved:
        _sweeten(search, rng)
        order = rng.permutation(search.n_items).astype(np.int32)
        _, first, counts = np.unique(search.labels(), return_index=True, return_counts=True)
        improved = False
        # A cluster of one item has just been offered every other place.
        for item in rng.permutation(first[counts > 1]):
            if search.work < _MAX_WORK:
                improved |= search.rebuild(item, order) or search.merge(item)
