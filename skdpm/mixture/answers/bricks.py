# SPDX-License-Identifier: BSD-3-Clause
"""Components of a hill: clusters, or bricks of one cluster.

Clusters that overlap have no valley between them, and each has a separate component. A curve or a
law that is not that of the likelihood has several components, and where one ends and the next
begins is arbitrary. `evidence_of` measures for each hill what distinguishes the two, averaged over
the draws, and `are_clusters` weighs it. See `doc/background/clusters.md`.

Related: components that keep apart in all draws (CliPS, arXiv 2603.00277), fusing components by
the distance of their laws (Dombowsky & Dunson 2024), ridgelines (Hennig 2010).
"""

import numpy as np

from skdpm._convergence import adjusted_rand

# Intercept and weights in nats of the evidence, in the order of `are_clusters`, of a logistic
# regression on pairs of rows; see `doc/background/clusters.md`.
INTERCEPT = -5.9
WEIGHTS = np.array([8.7, 3.4, 2.0, -21.0, -20.0])
# Weight of the log number of columns above FEW_COLUMNS: in many columns, bricks recur too.
WEIGHT_OF_COLUMNS, FEW_COLUMNS = -3.0, 8
# Spread from which a hill is long, and what is added to `apart` before the logarithm.
LONG, NESTED = 0.7, 0.05
# Evidence (nats) that a valley between two components which face each other has by chance.
CHANCE = 0.75
# Components with a smaller share of the rows of a hill do not count for `apart`, and the largest
# distance that counts.
LEAST_PART, FARTHEST = 0.02, 3.0
# Components smaller than this share of the typical size in a hill are no clusters.
SMALL = 0.15
# A component is in a plane if its smallest variance, as a multiple of that of all rows, is less
# than this, which is above the rounding errors of eigenvalues.
FLAT = 1e-13
# Directions count if their variance is more than this share of the largest one.
LEAST_VARIANCE = 1e-9
# Number of rows whose most probable components are compared between draws.
MOST_ROWS = 20_000
# Largest number of temporary numbers.
MOST_NUMBERS = 2**20


def likeliest(points, sizes, means, covariances):
    """Most probable of the normal laws of components at each point.

    - `points`: (n_points, n_columns). A missing entry is replaced by 0, the mean of all rows.
    - `sizes`, `means`, `covariances`: as of `Components`.

    Returns `components`: (n_points,), int
    """
    points = np.where(np.isnan(points), 0.0, points)
    factors = np.linalg.cholesky(covariances)
    heights = np.log(sizes) - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    found = np.zeros(len(points), dtype=np.intp)
    highest = np.full(len(points), -np.inf)
    for k, inverse in enumerate(np.linalg.inv(factors)):
        z = (points - means[k]) @ inverse.T
        density = heights[k] - 0.5 * np.einsum("nd,nd->n", z, z)
        higher = density > highest
        found[higher], highest[higher] = k, density[higher]
    return found


def parts_of(hills):
    """Component that each component joins if those of its hill are clusters: (n_components,).
    Components much smaller than the others are none, unless they have a known class."""
    parts = np.arange(len(hills.sizes))
    for h in range(hills.n_hills):
        inside = np.flatnonzero(hills.of_components == h)
        sizes = hills.sizes[inside]
        shares = sizes / sizes.sum()
        typical = np.exp((shares * np.log(shares)).sum())  # 1 / effective number
        small = (shares < SMALL * typical) & (hills.classes[inside] < 0)
        few, many = inside[small], inside[~small]
        laws = (values[many] for values in (hills.sizes, hills.means, hills.covariances))
        parts[few] = many[likeliest(hills.means[few], *laws)]
    return parts


def tied(columns, labels):
    """Components in a plane in which not all rows are, because rows tie, as answers and rounded
    numbers do: (n_components,), bool. They have more rows than columns.

    - `columns`: (n_rows, n_columns). Rows as they were recorded, at most `MOST_COLUMNS` of them:
      more columns are not judged. NaN is replaced by the mean of the component.
    - `labels`: (n_rows,). Components 0, ..., K - 1.
    """
    sizes = np.bincount(labels)
    scatters = np.zeros((len(sizes), *2 * columns.shape[1:]))
    rows = columns[np.argsort(labels, kind="stable")]
    unknown = np.zeros(len(sizes), dtype=bool)
    for k, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1])):
        is_known = ~np.isnan(part)
        unknown[k] = not is_known.any(axis=0).all()
        means = np.where(is_known, part, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
        gaps = np.where(is_known, part - means, 0.0)
        scatters[k] = gaps.T @ gaps
    filled = np.where(np.isnan(rows), 0.0, rows)
    filled -= filled.mean(axis=0)
    variances, directions = np.linalg.eigh(filled.T @ filled / len(rows))
    varies = variances > LEAST_VARIANCE * max(variances[-1], 0.0)
    if not varies.any():
        return np.zeros(len(sizes), dtype=bool)
    whiten = directions[:, varies] / np.sqrt(variances[varies])
    thinnest = np.linalg.eigvalsh(whiten.T @ scatters @ whiten)[:, 0]
    return (thinnest < FLAT * sizes) & (sizes > varies.sum()) & ~unknown


def apart(sizes, means, covariances):
    """Mean Bhattacharyya distance of two components whose covariances are scaled to one
    determinant. It is 0 for components with one mean of which one is a wider copy of the other, as
    a law with heavy tails has them."""
    sizes = sizes / sizes.sum()
    d = means.shape[1]
    log_dets = np.linalg.slogdet(covariances)[1]
    shapes = covariances / np.exp(log_dets / d)[:, None, None]
    one, other = np.triu_indices(len(sizes), 1)
    distances = np.empty(len(one))
    step = max(1, MOST_NUMBERS // (d * d))
    for first in range(0, len(one), step):
        a, b = one[first : first + step], other[first : first + step]
        gap = (means[a] - means[b])[:, :, None]
        mean = (covariances[a] + covariances[b]) / 2.0
        of_means = (gap * np.linalg.solve(mean, gap)).sum(axis=(1, 2)) / 8.0
        of_shapes = np.linalg.slogdet((shapes[a] + shapes[b]) / 2.0)[1] / 2.0
        distances[first : first + step] = np.minimum(of_means + of_shapes, FARTHEST)
    return np.average(distances, weights=sizes[one] * sizes[other])


def spread(sizes, means, covariances):
    """Largest share of the variance on a line that is between the components."""
    sizes = sizes / sizes.sum()
    gaps = means - sizes @ means
    between = np.einsum("k,kd,ke->de", sizes, gaps, gaps)
    within = np.einsum("k,kde->de", sizes, covariances)
    return np.linalg.eigvals(np.linalg.solve(within + between, between)).real.max()


def of_laws(hills, is_tied):
    """Evidence of each hill that follows from the laws of its components: (n_hills, 4). Columns
    are valleys, apart, spread and ties; see `are_clusters`."""
    out = np.zeros((hills.n_hills, 4))
    of_facing = hills.facing[:, 0].astype(np.intp)
    np.add.at(out[:, 0], of_facing, hills.facing[:, 1] - CHANCE)
    for h in range(hills.n_hills):
        inside = hills.of_components == h
        if inside.sum() == 1:
            continue
        laws = [values[inside] for values in (hills.sizes, hills.means, hills.covariances)]
        out[h, 2] = spread(*laws)
        out[h, 3] = np.average(is_tied[inside], weights=laws[0])
        counts = laws[0] >= LEAST_PART * laws[0].sum()
        if counts.sum() > 1:
            out[h, 1] = apart(*(values[counts] for values in laws))
    return out


def recurrence(hills, of_rows, components, others):
    """How far the components of each hill are those of other draws: (n_hills,). 1 if the hill has
    a single component.

    - `hills`: Hills
    - `of_rows`: (n_rows,). Hill of each row, -1 for noise.
    - `components`: (n_rows,). Most probable component of each row.
    - `others`: list of (n_rows,). The same of the other draws.
    """
    out = np.ones(hills.n_hills)
    for h in np.flatnonzero(np.bincount(hills.of_components) > 1):
        rows = np.flatnonzero(of_rows == h)
        found = [adjusted_rand(components[rows], other[rows]) for other in others if len(rows)]
        out[h] = np.mean(found) if found else 0.0
    return out


def are_clusters(evidence, n_columns):
    """Whether the components of hills are clusters: (n_hills,), bool.

    - `evidence`: (n_hills, 5). Means over the draws of

      - recurrence: the adjusted Rand index of the most probable components of the rows in this
        draw and in draws of other chains. Bricks lie elsewhere in each draw.
      - valleys: the sum of the evidence for valleys between components that face each other, less
        what they have by chance. No single valley of many may be certain.
      - apart: the mean distance of the components, of which none is a wider copy of another one.
      - spread: the share of the variance that is between the components. It is close to 1 if many
        bricks follow a curve.
      - ties: the share of the rows in components that are in a plane. Answers and rounded numbers
        have such components, one for each value, in all draws.
    - `n_columns`: int. Number of columns of the points.
    """
    recurs, valleys, distances, shares, ties = evidence.T
    terms = [
        recurs,
        np.log1p(np.maximum(valleys, 0.0)),
        np.log(distances + NESTED),
        np.maximum(shares - LONG, 0.0),
        ties,
    ]
    level = INTERCEPT + WEIGHT_OF_COLUMNS * np.log(max(n_columns / FEW_COLUMNS, 1.0))
    return level + WEIGHTS @ terms > 0.0


def evidence_of(hills, rows, n_rows, components, are_tied, others, times):
    """Evidence of the hills of draws, as `are_clusters` needs it: list of (n_hills, 5), or None
    for draws without clusters. Each row has the mean over the draws, and each hill that over its
    rows, so that the hills of all draws agree.

    - `hills`: list of Hills or None, one for each draw.
    - `rows`: list of ndarray or slice. Rows inside the clusters of each draw.
    - `n_rows`: int. Number of rows.
    - `components`: list of (n_some,). Most probable components of every second,
      third, ... row.
    - `are_tied`: list of (n_components,), bool. See `tied`.
    - `others`: list of sequences of int. Draws with which each draw is compared.
    - `times`: list of int. How often each draw counts.
    """
    total, count = np.zeros((n_rows, 5)), np.zeros(n_rows)
    step = -(-n_rows // len(components[0]))
    for draw, inside, found, is_tied, compared, n in zip(
        hills, rows, components, are_tied, others, times, strict=True
    ):
        if draw is not None:
            of_rows = np.full(n_rows, -1)
            of_rows[inside] = draw.of_components[draw.labels]
            recurs = recurrence(draw, of_rows[::step], found, [components[j] for j in compared])
            values = np.column_stack([recurs, of_laws(draw, is_tied)])
            total[inside] += n * values[of_rows[inside]]
            count[inside] += n
    total /= np.maximum(count, 1.0)[:, None]
    found = []
    for draw, inside in zip(hills, rows, strict=True):
        if draw is None:
            found.append(None)
            continue
        of_rows = draw.of_components[draw.labels]
        sizes = np.bincount(of_rows, minlength=draw.n_hills)
        means = [np.bincount(of_rows, column[inside], draw.n_hills) / sizes for column in total.T]
        found.append(np.column_stack(means))
    return found
