"""Clusters of components by the definition: every pair of components, one after the other."""

import itertools

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import multivariate_normal, norm

REACH, N_POINTS = 3.0, 49
SPARSE, PROMINENCE = 10.0, np.log(1.5)


def normal_laws(points, labels):
    """Number of rows, mean and shrunk covariance of each component."""
    n, d = points.shape
    parts = [points[labels == k] for k in range(labels.max() + 1)]
    scatters = [(part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts]
    within = sum(scatters) / n + 1e-9 * np.eye(d)
    return [
        (len(part), part.mean(axis=0), (scatter + (d + 2) * within) / (len(part) + d + 2))
        for part, scatter in zip(parts, scatters, strict=True)
    ]


def unimodal(nodes, density):
    """The closest unimodal density with the same mode, on a grid."""
    cells = np.diff(nodes, prepend=nodes[0]) / 2 + np.diff(nodes, append=nodes[-1]) / 2
    top = density.argmax()
    up = isotonic_regression(density[: top + 1], weights=np.maximum(cells[: top + 1], 1e-300))
    down = isotonic_regression(
        density[top:], weights=np.maximum(cells[top:], 1e-300), increasing=False
    )
    return np.concatenate([up.x[:-1], down.x])


def valley(one, other, t_one, t_other):
    """Depth and evidence of the valley between two normal laws (n, mean, deviation) on a line,
    with their rows."""
    (n_a, m_a, s_a), (n_b, m_b, s_b) = one, other
    steps = np.linspace(-REACH, REACH, N_POINTS)
    nodes = np.sort(np.concatenate([m_a + s_a * steps, m_b + s_b * steps]))
    density = (n_a * norm.pdf(nodes, m_a, s_a) + n_b * norm.pdf(nodes, m_b, s_b)) / (n_a + n_b)
    between = np.flatnonzero((nodes >= m_a) & (nodes <= m_b))
    low = between[density[between].argmin()]
    depth = np.log(min(density[: low + 1].max(), density[low:].max()) / density[low])
    if depth <= 1e-3:
        return 0.0, 0.0
    ratio = np.log(density / unimodal(nodes, density))
    t = np.concatenate([t_one, t_other])
    return depth, np.interp(t, nodes, ratio, left=0.0, right=0.0).sum()


def large_components(laws, n_rows, least_rows):
    """Components with enough rows for a hill, in increasing order."""
    by_size = sorted(range(len(laws)), key=lambda k: -laws[k][0])
    large, covered = [], 0
    for k in by_size:
        if laws[k][0] >= least_rows or covered < 0.75 * n_rows:
            large.append(k)
        elif laws[k][0] == laws[large[-1]][0]:
            large.append(k)
        covered += laws[k][0]
    return sorted(large)


def islands(points, labels, laws, large, island_rows, error=None):
    """Small components of two rows or more that are far from every large one, or, with enough
    rows, behind a valley that these and those of the large one support."""
    found = []
    for k in set(range(len(laws))) - set(large):
        n, m, C = laws[k]
        nats = []
        for j in large:
            n_b, m_b, C_b = laws[j]
            w = np.linalg.solve((n * C + n_b * C_b) / (n + n_b), m_b - m)
            s, s_b = np.sqrt(w @ C @ w), np.sqrt(w @ C_b @ w)
            rows = 1 if error == "row of islands" else n
            far = np.log(w @ (m_b - m) / (3.0 * (s + s_b))) if s + s_b > 0.0 else -np.inf
            laws_on_line = (n, w @ m, s), (n_b, w @ m_b, s_b)
            support = valley(*laws_on_line, points[labels == k] @ w, points[labels == j] @ w)[1]
            has_valley = support > 1.5 and n >= island_rows
            nats.append(rows * far >= 3.0 or has_valley)
        choose = any if error == "one far" else all
        if (n > 1 or error == "single island") and choose(nats):
            found.append(k)
    return found


def sparsity(n, gap):
    """Log likelihood ratio of Poisson laws of n rows, with the rates n and n exp(gap)."""
    rate = n * np.exp(max(gap, 0.0))
    return n * np.log(n / rate) + rate - n


def pieces_joined(labels, laws, large, error=None):
    """Labels after small components joined the most probable large one, unless it is far or much
    denser."""
    joined = labels.copy()
    for k in set(range(len(laws))) - set(large):
        n, m, C = laws[k]
        heights = {
            j: np.log(laws[j][0]) + multivariate_normal(*laws[j][1:]).logpdf(m) for j in large
        }
        j = max(heights, key=heights.get)
        n_j, m_j, C_j = laws[j]
        w = np.linalg.solve(n * C + n_j * C_j, m_j - m)
        is_near = w @ (m_j - m) < 3.0 * (np.sqrt(w @ C @ w) + np.sqrt(w @ C_j @ w))
        gap = np.log(n_j / n) + (np.linalg.slogdet(C)[1] - np.linalg.slogdet(C_j)[1]) / 2
        is_dense = sparsity(n, gap) < SPARSE
        if error != "no pieces" and (is_near or error == "far pieces"):
            if is_dense or error == "sparse pieces":
                joined[labels == k] = j
    return joined


def all_valleys(points, labels, laws, large, error=None):
    """Evidence and depth of the valleys of all pairs of large components that are not far apart,
    and the evidence of those that face each other."""
    supports, depths, facing = {}, {}, {}
    for a, b in itertools.combinations(large, 2):
        (n_a, m_a, C_a), (n_b, m_b, C_b) = laws[a], laws[b]
        metric = np.linalg.inv((n_a * C_a + n_b * C_b) / (n_a + n_b))
        w = metric @ (m_b - m_a)
        s_a, s_b = np.sqrt(w @ C_a @ w), np.sqrt(w @ C_b @ w)
        if w @ (m_b - m_a) > 3.0 * (s_a + s_b):
            continue
        depths[a, b], supports[a, b] = valley(
            (n_a, w @ m_a, s_a),
            (n_b, w @ m_b, s_b),
            points[labels == a] @ w,
            points[labels == b] @ w,
        )
        if error == "sign":
            supports[a, b] *= -1
        if 0.0 < depths[a, b] <= 2.0 or error == "deep faces":

            def far(x, y, metric=metric):
                return (x - y) @ metric @ (x - y)

            others = [laws[c][1] for c in large if c not in (a, b)]
            if error == "all face" or all(
                far(c, m_a) + far(c, m_b) >= far(m_a, m_b) for c in others
            ):
                facing[a, b] = supports[a, b]

    return supports, depths, facing


def facing_valleys(points, labels, *, least_rows):
    """Evidence for the valleys of pairs of components that face each other: dict."""
    laws = normal_laws(points, labels)
    large = large_components(laws, len(points), least_rows)
    large = sorted([*large, *islands(points, labels, laws, large, least_rows)])
    return all_valleys(points, labels, laws, large)[2]


def hills(points, labels, *, least_rows, island_rows=np.inf, error=None):
    """Hill of each component; `error` names a planted error."""
    laws = normal_laws(points, labels)
    large = large_components(laws, len(points), least_rows)
    large = sorted([*large, *islands(points, labels, laws, large, island_rows, error)])
    joined = pieces_joined(labels, laws, large, error)
    names = np.unique(joined)
    parts = np.searchsorted(names, joined)
    found = hills_of(points, parts, np.searchsorted(names, large).tolist(), error)
    return np.array([found[parts[labels == k][0]] for k in range(len(laws))])


def hills_of(points, labels, large, error):
    """Hill of each component, of which some are large."""
    laws = normal_laws(points, labels)
    supports, depths, facing = all_valleys(points, labels, laws, large, error)

    def log_density(k, at):
        n_k, m_k, C_k = laws[k]
        return np.log(n_k) + multivariate_normal(m_k, C_k).logpdf(laws[at][1])

    n_shallow = sum(0.0 < depth <= 2.0 for depth in depths.values())
    least = 1.5 + (0.0 if error == "one pair" else max(np.log(max(n_shallow, 1) / 2), 0.0))
    height = {k: log_density(k, k) for k in large}
    if error == "height":
        height = {k: np.logaddexp.reduce([log_density(j, k) for j in large]) for k in large}
    hill = {k: k for k in large}
    choose = max if error == "higher end" else min
    bound = max if error == "higher hill" else min

    def mean_height(h):
        inside = [k for k in large if hill[k] == h]
        if error == "peak":
            return max(height[k] for k in inside)
        weights = None if error == "no weights" else [laws[k][0] for k in inside]
        return np.average([height[k] for k in inside], weights=weights)

    open_pairs = sorted(
        (-choose(height[a], height[b]), depths[a, b], -max(height[a], height[b]), a, b)
        for (a, b), support in supports.items()
        if support < least
    )
    if error == "order":
        open_pairs = open_pairs[::-1]
    for level, _, _, a, b in open_pairs:
        one, other = hill[a], hill[b]
        if one == other:
            continue
        total = sum(
            support for (c, e), support in facing.items() if {hill[c], hill[e]} == {one, other}
        )
        if error == "no sum":
            total = 0.0
        at = choose(a, b, key=height.get)
        gap = bound(mean_height(one), mean_height(other)) + level
        is_low = gap >= PROMINENCE and sparsity(laws[at][0], gap) >= least
        if not is_low and total < least:
            hill = {k: one if h == other else h for k, h in hill.items()}
    return np.array(
        [
            hill[k] if k in hill else hill[max(large, key=lambda j: log_density(j, k))]
            for k in range(len(laws))
        ]
    )
