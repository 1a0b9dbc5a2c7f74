# SPDX-License-Identifier: BSD-3-Clause
"""Acceptance of merges of sub-clusters (Chang & Fisher 2013, section 5.5).

A merge of two clusters proposes sub-clusters of their union. The split that undoes it is given by
the sub-clusters, so that a merge has a chance only if these are the two clusters:

    p(accept) = p(sub-labels = clusters) * min(1, 1 / H),

where H is the ratio of the split, eq. 21. In each trial, rows come from two Gaussians and the
clusters are drawn given these. Sub-clusters are as good as they can be: their parameters are drawn
from the posterior given the two clusters.

    python benchmarks/papers/subclusters/merges.py [--rows 256] [--trials 1000]
"""

import argparse

import numpy as np
from scipy.special import gammaln
from scipy.stats import norm

# Normal-inverse-gamma prior: precision of the mean, shape and rate.
PRECISION, SHAPE, RATE = 0.1, 2.0, 1.0


def posterior(x):
    """Mean, precision of the mean, shape and rate given the rows of a cluster."""
    n, mean = len(x), x.mean()
    rate = RATE + 0.5 * ((x - mean) ** 2).sum() + 0.5 * PRECISION * n * mean**2 / (PRECISION + n)
    return n * mean / (PRECISION + n), PRECISION + n, SHAPE + 0.5 * n, rate


def log_marginal(x):
    _, precision, shape, rate = posterior(x)
    log_m = gammaln(shape) - gammaln(SHAPE) + SHAPE * np.log(RATE) - shape * np.log(rate)
    return log_m + 0.5 * np.log(PRECISION / precision) - 0.5 * len(x) * np.log(2.0 * np.pi)


def log_shares(x, means, deviations, weights):
    """Log probabilities of the two sides for each row: (n_rows, 2)."""
    log_p = norm.logpdf(x[:, None], means, deviations) + np.log(weights)
    return log_p - np.logaddexp(*log_p.T)[:, None]


def log_acceptance(n_rows, separation, alpha, rng):
    """Log of the probability that a merge is accepted; None if a cluster is empty."""
    true = np.array([0.0, separation]), np.ones(2), np.full(2, 0.5)
    x = rng.standard_normal(n_rows) + separation * rng.integers(2, size=n_rows)
    right = rng.random(n_rows) < np.exp(log_shares(x, *true)[:, 1])
    sides = [x[~right], x[right]]
    if min(map(len, sides)) == 0:
        return None
    log_h = np.log(alpha) + sum(gammaln(len(side)) + log_marginal(side) for side in sides)
    log_h -= gammaln(n_rows) + log_marginal(x)
    means, deviations = np.empty((2, 2))
    for k, side in enumerate(sides):
        mean, precision, shape, rate = posterior(side)
        variance = rate / rng.gamma(shape)
        means[k] = rng.normal(mean, np.sqrt(variance / precision))
        deviations[k] = np.sqrt(variance)
    weights = rng.dirichlet([len(side) + 0.5 * alpha for side in sides])
    shares = log_shares(x, means, deviations, weights)
    return shares[np.arange(n_rows), right.astype(int)].sum() + min(0.0, -log_h)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--trials", type=int, default=1000, help="for each separation")
    parser.add_argument("--alpha", type=float, default=1.0)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    print("log10 of the acceptance of merges: separation, median, largest")
    for separation in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0):
        trials = [
            log_acceptance(args.rows, separation, args.alpha, rng) for _ in range(args.trials)
        ]
        found = np.array([one for one in trials if one is not None]) / np.log(10.0)
        print(f"{separation:4g} {np.median(found):9.1f} {found.max():9.1f}", flush=True)


if __name__ == "__main__":
    main()
