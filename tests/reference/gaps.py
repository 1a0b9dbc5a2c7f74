"""Rows with missing entries under likelihoods of complete rows: integrals over the entries.

p(partition, x_gaps, X) is known for completed rows. The laws of the partition and of the gaps
given the known entries are sums over partitions and nodes of the real line. No formula of a
marginal or conditional law is used.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from reference.conditional import real_line
from reference.enumerate import enumerate_partitions, partition_index, partition_sizes
from reference.priors import log_eppf


class GapPosterior(NamedTuple):
    """The joint posterior of the partition and of one missing entry."""

    partitions: np.ndarray  # (Bell(n), n)
    log_joint: np.ndarray  # (Bell(n),): log p(partition, known entries)
    nodes: np.ndarray  # (m,) values of the entry, increasing
    masses: np.ndarray  # (Bell(n), m): probabilities of partition and panel about a node

    @property
    def probabilities(self):
        return np.exp(self.log_joint - logsumexp(self.log_joint))

    def draw(self, size, rng):
        """Independent draws: labels, (size, n), and values of the entry, (size,)."""
        which = rng.choice(len(self.partitions), size=size, p=self.probabilities)
        values = np.empty(size)
        for row in np.unique(which):
            here = which == row
            shares = np.cumsum(self.masses[row]) - 0.5 * self.masses[row]
            u = rng.random(here.sum()) * self.masses[row].sum()
            values[here] = np.interp(u, shares, self.nodes)
        return self.partitions[which], values

    def cells(self, n_bins):
        """Inner edges of bins of about equal mass, and probabilities, (Bell(n), n_bins), of
        partition and bin."""
        cdf = np.cumsum(self.masses, axis=1)
        total = cdf.sum(axis=0) / cdf[:, -1].sum()
        at = [int(np.searchsorted(total, k / n_bins)) for k in range(1, n_bins)]
        # Edges half way between two nodes, where the sums of masses are exact.
        edges = [0.5 * (self.nodes[i] + self.nodes[i + 1]) for i in at]
        sums = np.column_stack([np.zeros(len(cdf)), *(cdf[:, i] for i in at), cdf[:, -1]])
        return np.array(edges), np.diff(sums, axis=1)

    def count(self, labels, values, edges):
        """How often each cell occurs: (Bell(n), n_bins)."""
        n_bins = len(edges) + 1
        cells = partition_index(labels) * n_bins + np.digitize(values, edges)
        n_cells = len(self.partitions) * n_bins
        return np.bincount(cells, minlength=n_cells).reshape(-1, n_bins)


def log_known(X, log_marginal, *, nodes=60, center=0.0, scale=2.0):
    """log p(known entries of X) of one cluster: a product rule over its missing entries."""
    gaps = np.argwhere(np.isnan(X))
    x, w = real_line(center, scale, nodes)
    grids = np.meshgrid(*[x] * len(gaps), indexing="ij")
    weights = np.ones(1)
    for _ in gaps:
        weights = np.outer(weights, w).ravel()
    logs = np.empty(len(weights))
    for m, values in enumerate(zip(*map(np.ravel, grids), strict=True) if len(gaps) else [()]):
        completed = X.copy()
        completed[tuple(gaps.T)] = values
        logs[m] = log_marginal(completed)
    return logsumexp(logs, b=weights)


def log_joint_of_partitions(X, log_marginal, prior, prior_params, **rule):
    """log p(partition, known entries of X) for all partitions: (Bell(n),)."""
    partitions = enumerate_partitions(len(X))

    @cache
    def of_rows(rows):
        return log_known(X[list(rows)], log_marginal, **rule)

    def of_partition(z):
        return sum(of_rows(tuple(np.flatnonzero(z == k))) for k in np.unique(z))

    log_prior = [log_eppf(s, prior, **prior_params) for s in partition_sizes(partitions)]
    return np.array(log_prior) + [of_partition(z) for z in partitions]


def gap_posterior(X, log_marginal, prior, prior_params, *, center, scale, n=400):
    """The `GapPosterior` of rows with one missing entry."""
    partitions = enumerate_partitions(len(X))
    nodes, weights = real_line(center, scale, n)

    @cache
    def of_rows(rows):
        members = X[list(rows)]
        gap = np.argwhere(np.isnan(members))
        if not len(gap):
            return log_marginal(members)
        logs = np.empty(n)
        for m, value in enumerate(nodes):
            members[tuple(gap[0])] = value
            logs[m] = log_marginal(members)
        return logs

    log_prior = [log_eppf(s, prior, **prior_params) for s in partition_sizes(partitions)]
    logs = np.array(
        [
            total + sum(of_rows(tuple(np.flatnonzero(z == k))) for k in np.unique(z))
            for z, total in zip(partitions, log_prior, strict=True)
        ]
    )
    masses = np.exp(logs - logs.max()) * weights
    log_joint = logs.max() + np.log(masses.sum(axis=1))
    return GapPosterior(partitions, log_joint, nodes, masses / masses.sum())
