"""Evidence that the components of hills are clusters, by the definition."""

import itertools

import numpy as np
import scipy.linalg
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import adjusted_rand_score

from reference.hills import facing_valleys, normal_laws


def likeliest(points, laws):
    """Most probable component of each point."""
    densities = [n * multivariate_normal(mean, cov).pdf(points) for n, mean, cov in laws]
    return np.argmax(densities, axis=0)


def apart(laws, error=None):
    """Mean distance of the components of a hill, none of which is a wider copy of another, beyond
    what the errors of means and covariances give."""
    n_rows = sum(n for n, _, _ in laws)
    laws = [law for law in laws if law[0] >= 0.02 * n_rows]
    total, weight = 0.0, 0.0
    for (n, mean, cov), (m, other, wide) in itertools.combinations(laws, 2):
        d = len(mean)
        both, gap = (cov + wide) / 2, mean - other
        shapes = cov / np.linalg.det(cov) ** (1 / d), wide / np.linalg.det(wide) ** (1 / d)
        if error == "scale":
            shapes = cov, wide
        shape = np.log(
            np.linalg.det(sum(shapes) / 2)
            / np.sqrt(np.linalg.det(shapes[0]) * np.linalg.det(shapes[1]))
        )
        distance = gap @ np.linalg.inv(both) @ gap / 8 + shape / 2
        if error != "errors of means":
            distance -= np.trace(np.linalg.inv(both) @ (cov / n + wide / m)) / 8
        if error != "errors of shapes":
            errors = n / (n + d + 2) ** 2 + m / (m + d + 2) ** 2
            distance -= (d * (d + 1) / 2 - 1) / 8 * errors
        distance = max(distance, 0.0)
        product = 1.0 if error == "weights" else n * m
        total, weight = total + product * min(distance, 3.0), weight + product
    return total / weight if weight else 0.0


def outside(laws, error=None):
    """Bhattacharyya distance of the component with the highest peak from the moments of the
    others, without the axes on which it is narrower."""
    peaks = [n * multivariate_normal(mean, cov).pdf(mean) for n, mean, cov in laws]
    if error == "largest":
        peaks = [n for n, _, _ in laws]
    core = int(np.argmax(peaks))
    others = [law for k, law in enumerate(laws) if k != core or error == "all"]
    sizes = np.array([n for n, _, _ in others], dtype=float)
    mean = np.average([m for _, m, _ in others], axis=0, weights=sizes)
    wide = sum(n * (cov + np.outer(m - mean, m - mean)) for n, m, cov in others) / sizes.sum()
    _, centre, narrow = laws[core]
    gap = centre - mean
    total = gap @ np.linalg.inv((narrow + wide) / 2) @ gap / 8
    for ratio in scipy.linalg.eigh(narrow, wide, eigvals_only=True):
        if ratio > 1.0 or error == "narrow axes":
            total += np.log((ratio + 1) / 2) / 2 - np.log(ratio) / 4
    return total


def spread(laws, error=None):
    """Largest share of the variance on a line that is between components."""
    sizes = np.array([n for n, _, _ in laws], dtype=float)
    sizes /= sizes.sum()
    if error == "weights":
        sizes[:] = 1 / len(sizes)
    means = np.array([mean for _, mean, _ in laws])
    between = np.cov(means.T, aweights=sizes, ddof=0).reshape(means.shape[1], -1)
    within = sum(share * cov for share, (_, _, cov) in zip(sizes, laws, strict=True))
    total = within if error == "total" else within + between
    return scipy.linalg.eigh(between, total, eigvals_only=True)[-1]


def dense(laws, error=None):
    """Components that are dense: in two columns, at least a tenth as that of the median row."""
    peaks = np.array([n * multivariate_normal(mean, cov).pdf(mean) for n, mean, cov in laws])
    of_rows = np.sort(np.repeat(peaks, [n for n, _, _ in laws]))
    ratio = (
        1e9 if error == "thin" else 10.0 if error == "columns" else 10.0 ** (len(laws[0][1]) / 2)
    )
    least = of_rows[(len(of_rows) - 1) // 2] / ratio
    return [law for law, peak in zip(laws, peaks, strict=True) if peak >= least]


def evenness(rows, laws, error=None):
    """Nats by which a uniform law is better than components on the line on which they differ
    most, if any."""
    sizes = np.array([n for n, _, _ in laws], dtype=float)
    sizes /= sizes.sum()
    means = np.array([mean for _, mean, _ in laws])
    between = np.cov(means.T, aweights=sizes, ddof=0).reshape(means.shape[1], -1)
    within = sum(share * cov for share, (_, _, cov) in zip(sizes, laws, strict=True))
    line = scipy.linalg.eigh(between, within)[1][:, 0 if error == "line" else -1]
    t = rows @ line
    of_laws = (
        share * norm(mean @ line, np.sqrt(line @ cov @ line)).pdf(t)
        for share, (_, mean, cov) in zip(sizes, laws, strict=True)
    )
    nats = -np.log(np.ptp(t)) * len(t) - np.log(sum(of_laws)).sum()
    return nats if error == "uneven" else max(nats, 0.0)


def is_flat(rows, error=None):
    """Whether rows, more than columns, are in a plane."""
    n, d = rows.shape
    rank = np.linalg.matrix_rank(rows - rows.mean(axis=0), tol=1e-8)
    return rank < d and (n > d or error == "few rows")


def climbs(points, laws, hills, prominence, n_neighbours, error=None):
    """Basin of each point: the peak that it reaches by steps to the densest of its neighbours on
    its hill, where neighbours are nearest by the covariance of all. Two peaks are one if the
    lower one is no more than `prominence` above the pass: the highest of the pairs of neighbours
    on both sides, or the lowest of nine points on the line between them."""
    n = len(points)

    def density(x):
        return np.log(sum(m * multivariate_normal(mean, cov).pdf(x) for m, mean, cov in laws))

    metric = np.eye(points.shape[1]) if error == "metric" else np.linalg.inv(np.cov(points.T))
    gaps = points[:, None] - points[None]
    far = np.einsum("ijk,kl,ijl->ij", gaps, np.atleast_2d(metric), gaps)
    near = np.argsort(far, axis=1, kind="stable")[:, :n_neighbours]
    heights = density(points)
    allowed = [[j for j in near[i] if hills[i] == hills[j] or error == "hills"] for i in range(n)]
    peak = {}
    for i in np.argsort(-heights):
        best = max(allowed[i], key=heights.__getitem__)
        peak[i] = peak[best] if heights[best] > heights[i] else i
    passes = {}
    for i in range(n):
        for j in allowed[i]:
            pair = tuple(sorted((peak[i], peak[j])))
            if pair[0] != pair[1]:
                passes[pair] = max(passes.get(pair, -np.inf), min(heights[i], heights[j]))
    for a, b in passes:
        shares = np.arange(1, 10)[:, None] / 10
        line = density(points[a] + shares * (points[b] - points[a])).min()
        passes[a, b] = passes[a, b] if error == "line" else max(passes[a, b], line)
    owner = {a: a for a in set(peak.values())}
    for (a, b), level in sorted(passes.items(), key=lambda item: -item[1]):
        low, high = sorted((owner[a], owner[b]), key=heights.__getitem__)
        if low != high and (heights[low] - level < prominence or error == "prominence"):
            owner = {c: high if top == low else top for c, top in owner.items()}
    return np.unique([owner[peak[i]] for i in range(n)], return_inverse=True)[1]


def evidence(points, draws, hills, least_rows, error=None, basins=None):
    """Evidence of the hills of draws, each from the other chains at the same place:
    list of (n_hills, 8), after averaging over the draws.

    - `draws`: (n_chains, n_draws, n_rows). Components 0, ..., K - 1 of each draw.
    - `hills`: of the same shape. Hill of each row.
    - `basins`: of the same shape, or None. Basins, if these are the parts of hills.
    """
    n_chains, n_draws, n_rows = draws.shape
    laws = {place: normal_laws(points, draws[place]) for place in np.ndindex(n_chains, n_draws)}
    found = {place: likeliest(points, law) for place, law in laws.items()}
    if error == "drawn":
        found = {place: draws[place] for place in found}
    total = np.zeros((n_rows, 8))
    components, home, cells_of, own_laws = draws, {}, found, laws
    if basins is not None:
        for place, cells in found.items():
            basin, own = basins[place], draws[place]
            home[place] = np.array(
                [
                    np.argmax(np.bincount(basin[cells == k] if k in cells else basin[own == k]))
                    for k in range(own.max() + 1)
                ]
            )
        draws = np.array([home[place][components[place]] for place in laws]).reshape(draws.shape)
        found = dict(zip(laws, basins.reshape(-1, n_rows), strict=True))
        laws = {place: normal_laws(points, found[place]) for place in laws}
    for c, s in laws:
        facing = facing_valleys(points, components[c, s], least_rows=least_rows)
        facing = list(facing.items())
        if basins is not None:
            to = home[c, s]
            facing = [((to[a], to[b]), nats) for (a, b), nats in facing if to[a] != to[b]]
        for h in range(hills[c, s].max() + 1):
            rows = hills[c, s] == h
            own = components[c, s]
            parts, tied = np.unique(own[rows]), rows
            if basins is not None:  # those that are on this hill
                hill_of = dict(zip(own, hills[c, s], strict=True))
                tied = np.array([hill_of[k] == h for k in cells_of[c, s]])
                parts = np.unique(basins[c, s][tied])
            chains = range(n_chains) if error == "itself" else set(range(n_chains)) - {c}
            recurrence = np.mean(
                [adjusted_rand_score(found[c, s][rows], found[e, s][rows]) for e in chains]
            )
            certainty = adjusted_rand_score(draws[c, s][rows], found[c, s][rows])
            valleys = sum(
                support - (0.0 if error == "chance" else 0.75)
                for (a, b), support in facing
                if {a, b} <= set(parts)
            )
            of_own = [own_laws[c, s][k] for k in np.unique(own[rows])]
            if len(of_own) > 1:
                total[rows, 7] += evenness(points[rows], of_own, error)
            if len(parts) <= 1:
                total[rows, 0] += 1.0
                continue
            ties = np.mean([is_flat(points[own == k], error) for k in own[tied]])
            inside = [laws[c, s][k] for k in parts]
            bodies = dense(inside, error)
            of_laws = apart(inside, error), outside(inside, error), spread(bodies, error)
            total[rows, :7] += recurrence, certainty, valleys, *of_laws, ties
    total /= n_chains * n_draws
    return [
        np.array([total[of == h].mean(axis=0) for h in range(of.max() + 1)])
        for of in hills.reshape(-1, n_rows)
    ]
