"""Sequential Monte Carlo over rows in turn, slowly: every weight is a ratio of joint densities.

A particle is a partition of the rows so far and an unnormalised weight, of which 1/N at first.
Before row n each weight is multiplied by

    sum_j p(z_{n-1} with row n in j, x_1..x_n) / p(z_{n-1}, x_1..x_{n-1}),

over all its clusters j and a new one, and the row draws one of these with its share of the sum.
No formula for a predictive density, none for a weight of a cluster. The prior may change with the
number of rows, as the concentration does in annealing: then these are joint densities under two
priors. Old rows may be drawn anew, each with probabilities that are joint densities, too.

Uniform numbers are used in a fixed order, so that a kernel with the same ones makes the same
particles: one for systematic resampling or a thinning, n for the other schemes, and one for each
particle's draw, of the new row or an old one, whose first choice is the new cluster. Who survives
keeps its place; copies come into the places that are free, the first ones first. Where an old row
leaves a cluster empty, the last cluster comes into its place.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaln, logsumexp


class Particles(NamedTuple):
    """What a filter ends with."""

    labels: np.ndarray  # (n_particles, n) by first appearance
    log_w: np.ndarray  # (n_particles,)
    n_resampled: int

    @property
    def log_evidence(self):
        """log of the estimate of p(X)."""
        return logsumexp(self.log_w)


def filter_rows(
    n_samples,
    log_marginal,
    log_prior,
    uniform,
    *,
    n_particles,
    scheme="systematic",
    threshold=0.5,
    active_block=0,
):
    """Run the filter over rows 0, ..., n_samples - 1.

    Parameters
    ----------
    n_samples : int
    log_marginal : callable
        log p of a tuple of rows that form one cluster.
    log_prior : callable
        log p of a tuple of sizes; -inf where there is no such partition. Annealed, it depends on
        their sum in another way, too.
    uniform : callable
        The next uniform number.
    n_particles : int
    scheme : {"systematic", "stratified", "multinomial", "optimal"}
    threshold : float
        Of the effective sample size, divided by n_particles.
    active_block : int
        Old rows that are drawn anew after each row: see `blocks`.

    Returns
    -------
    particles : Particles
    """
    known = {}

    def log_joint(clusters):
        for cluster in clusters:
            if cluster not in known:
                known[cluster] = log_marginal(cluster)
        prior = log_prior(tuple(map(len, clusters)))
        return prior + sum(known[cluster] for cluster in clusters)

    n_first = 1 if scheme == "optimal" else n_particles
    particles = [()] * n_first
    log_w = np.full(n_first, -np.log(n_first))
    n_resampled = 0
    rows = blocks(n_samples, active_block)
    for i in range(n_samples):
        choices = [_choices(clusters, i) for clusters in particles]
        terms = [
            np.array([log_joint(choice) for choice in own]) - (log_joint(clusters) if i else 0.0)
            for clusters, own in zip(particles, choices, strict=True)
        ]
        totals = np.array([logsumexp(own) for own in terms])
        log_w = log_w + totals
        # Equal weights are never resampled, whatever the rounding.
        due = sample_size(log_w) < threshold * len(log_w) * (1 - 1e-9)
        if scheme == "optimal":
            children = [
                (p, j) for p, own in enumerate(terms) for j in range(len(own)) if own[j] > -np.inf
            ]
            log_children = np.array([log_w[p] - totals[p] + terms[p][j] for p, j in children])
            if len(log_w) == n_particles and not due:
                keep = None
            elif len(children) > n_particles:
                keep, log_children = thin(log_children, n_particles, uniform())
                n_resampled += 1
            else:
                keep = np.ones(len(children), bool)
            if keep is not None:
                kept = [(c, *children[c]) for c in np.flatnonzero(keep)]
                places = _places([p for _, p, _ in kept], len(log_w))
                particles = [None] * len(kept)
                log_w = np.empty(len(kept))
                for place, (c, p, j) in zip(places, kept, strict=True):
                    particles[place] = choices[p][j]
                    log_w[place] = log_children[c]
        elif due:
            counts = offspring(scheme, np.exp(log_w - log_w.max()), uniform)
            parents = np.arange(len(log_w))
            free = iter(np.flatnonzero(counts == 0))
            for p, count in enumerate(counts):
                for _ in range(count - 1):
                    parents[next(free)] = p
            choices = [choices[p] for p in parents]
            terms = [terms[p] for p in parents]
            totals = totals[parents]
            log_w = np.full(len(log_w), logsumexp(log_w) - np.log(len(log_w)))
            n_resampled += 1
        if scheme != "optimal" or keep is None:
            particles = [
                own[_draw(np.exp(t - total), uniform())]
                for own, t, total in zip(choices, terms, totals, strict=True)
            ]
        for r in rows[i]:
            particles = [_redraw(clusters, r, log_joint, uniform()) for clusters in particles]
    labels = np.empty((len(particles), n_samples), dtype=np.int64)
    for row, clusters in zip(labels, particles, strict=True):
        for k, cluster in enumerate(clusters):
            row[list(cluster)] = k
    return Particles(labels, log_w, n_resampled)


def blocks(n_samples, n_block):
    """The old rows that are drawn anew after each row.

    Consecutive blocks: with m old rows, those from the end of the last block on, up to row m - 1.
    A block that gets there ends a cycle, and the next one starts at row 0.

    Returns
    -------
    blocks : list of range
    """
    start, out = 0, []
    for m in range(n_samples):
        out.append(range(start, min(start + n_block, m)))
        start = out[-1].stop if out[-1].stop < m else 0
    return out


def _redraw(clusters, r, log_joint, u):
    """Draw the cluster of row r given all others."""
    (at,) = [j for j, cluster in enumerate(clusters) if r in cluster]
    rest = [*clusters]
    rest[at] = tuple(row for row in clusters[at] if row != r)
    if not rest[at]:
        rest[at] = rest[-1]
        del rest[-1]
    choices = _choices(tuple(rest), r)
    terms = np.array([log_joint(choice) for choice in choices])
    return choices[_draw(np.exp(terms - logsumexp(terms)), u)]


def _choices(clusters, i):
    """All partitions that row i makes of one of those before it; last with a new cluster."""
    joined = [
        (*clusters[:j], (*cluster, i), *clusters[j + 1 :]) for j, cluster in enumerate(clusters)
    ]
    return [*joined, (*clusters, (i,))]


def _draw(p, u):
    """The last choice if u is below its probability; the others follow in order."""
    order = [len(p) - 1, *range(len(p) - 1)]
    return order[int(np.searchsorted(np.cumsum(p[order]), u, side="right"))]


def _places(parents, n_before):
    """The first child takes its parent's place, others one that is free."""
    free = iter([p for p in range(n_before + len(parents)) if p >= n_before or p not in parents])
    seen, places = set(), []
    for p in parents:
        places.append(next(free) if p in seen else p)
        seen.add(p)
    return places


def sample_size(log_w):
    """Effective sample size."""
    return np.exp(2 * logsumexp(log_w) - logsumexp(2 * np.asarray(log_w)))


def offspring(scheme, w, uniform):
    """Numbers of offspring: of each particle n w / sum(w) on average."""
    n = len(w)
    if scheme == "systematic":
        points = (np.arange(n) + uniform()) / n
    elif scheme == "stratified":
        points = (np.arange(n) + [uniform() for _ in range(n)]) / n
    else:
        # The largest of m uniform points is the m-th root of one.
        points = np.cumprod([(1 - uniform()) ** (1 / m) for m in range(n, 0, -1)])[::-1]
    edges = np.cumsum(w) / np.sum(w)
    edges[-1] = 1.0
    return np.bincount(np.searchsorted(edges, points, side="right"), minlength=n)


def thin(log_w, n_kept, u):
    """Fearnhead & Clifford's resampling to n_kept, by sorting.

    Returns
    -------
    keep : ndarray of bool
    log_w : ndarray
        Of those kept; the others' are meaningless.
    """
    w = np.exp(log_w - log_w.max())
    order = np.argsort(-w, kind="stable")
    rest = np.cumsum(w[order][::-1])[::-1]  # of a weight and all smaller ones
    heavy = 0
    while w[order[heavy]] * (n_kept - heavy) >= rest[heavy]:
        heavy += 1
    scale = (n_kept - heavy) / rest[heavy]
    keep = np.zeros(len(w), dtype=bool)
    keep[order[:heavy]] = True
    light = np.sort(order[heavy:])
    cumulated = np.concatenate([[0.0], np.cumsum(w[light] * scale)])
    # A point u + m falls into the stretch of each survivor.
    chosen = np.ceil(cumulated[1:] - u) > np.ceil(cumulated[:-1] - u)
    keep[light[chosen]] = True
    out = np.where(np.isin(np.arange(len(w)), light), log_w.max() - np.log(scale), log_w)
    return keep, out


def kinds_evidence(n_zeros, n_ones, log_prior, sigma, a, b):
    """Exact evidence of rows of two kinds, 0 and 1, under Beta-Bernoulli clusters.

    Rows of a kind are exchangeable: the cluster of the first one is some i zeros and j ones, of
    which there are so many choices, and what is left is the same problem, with fewer rows.

    Parameters
    ----------
    n_zeros, n_ones : int
    log_prior : callable
        log p of a tuple of sizes: V_{n,k} times Gamma(m - sigma) / Gamma(1 - sigma) of each.
    sigma : float
    a, b : float
        Pseudo-counts of ones and of zeros.

    Returns
    -------
    log_evidence, mean_k : float
        And the posterior mean of the number of clusters.
    """
    n = n_zeros + n_ones
    i, j = np.meshgrid(np.arange(n_zeros + 1), np.arange(n_ones + 1), indexing="ij")
    size = np.maximum(i + j, 1)
    log_w = gammaln(size - sigma) - gammaln(1 - sigma) + betaln(a + j, b + i) - betaln(a, b)
    # S[k, i, j]: over partitions of i zeros and j ones into k clusters, products of weights.
    log_s = np.full((n + 1, n_zeros + 1, n_ones + 1), -np.inf)
    log_s[0, 0, 0] = 0.0
    for zeros in range(n_zeros + 1):
        for ones in range(n_ones + 1):
            if zeros + ones == 0:
                continue
            # With the first zero, or where there is none the first one.
            first = (1, 0) if zeros else (0, 1)
            x = np.arange(first[0], zeros + 1)[:, None]
            y = np.arange(first[1], ones + 1)
            log_ways = _log_choose(zeros - first[0], x - first[0])
            log_ways = log_ways + _log_choose(ones - first[1], y - first[1])
            terms = log_ways + log_w[x, y] + log_s[:-1, zeros - x, ones - y]
            log_s[1:, zeros, ones] = logsumexp(terms, axis=(1, 2))
    k = np.arange(1, n + 1)
    log_v = np.array(
        [
            log_prior((n - m + 1, *[1] * (m - 1)))
            - gammaln(n - m + 1 - sigma)
            + gammaln(1 - sigma)
            for m in k
        ]
    )
    log_p = log_v + log_s[1:, n_zeros, n_ones]
    log_evidence = logsumexp(log_p)
    return log_evidence, float(np.exp(log_p - log_evidence) @ k)


def _log_choose(n, m):
    return gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
