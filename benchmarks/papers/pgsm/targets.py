# SPDX-License-Identifier: BSD-3-Clause
"""Processor time from one cluster to the first draw with a given V-measure, all rows in training.

    python benchmarks/papers/pgsm/targets.py --data FOLDER [--seeds 5] [--limit 30]

The sampler is the default one, PGSM with a Gibbs sweep after each move, in one thread; every
iteration is looked at. The log joint of the first such draw is given beside that of the true
partition, at the same concentration: where a sampler misses the truth, it tells whether the
sampler or the prior is to blame.
"""

import argparse

import numpy as np
from run import data_set, high_dimensional_prior
from sklearn.metrics import v_measure_score
from threadpoolctl import threadpool_limits
from traces import Chain, Problem

from skdpm.datasets import make_gaussian_mixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import PGSM


def cases(folder):
    """Name, data, likelihood, V-measure to reach and the project's target in seconds."""
    X, y = data_set("s1", folder)
    yield "S1, default prior", X, y, Gaussian(), 0.95, 1.5
    X, y = make_gaussian_mixture(100_000, n_clusters=10, spread=0.02, random_state=0)
    yield "100,000 x 2, 10 clusters, default prior", X, y, Gaussian(), 0.95, 10.0
    X, y = data_set("dim064", folder)
    yield "DIM064, prior in its units", X, y, high_dimensional_prior(X), 0.99, 5.0
    diagonal = Gaussian(covariance_type="diag")
    yield "DIM064, diagonal, default prior", X, y, diagonal, 0.99, 5.0
    yield "DIM064, default prior", X, y, Gaussian(), 0.99, 5.0


def reach(problem, level, seed, limit):
    """A chain from one cluster, stopped at the V-measure or at the time limit (NaN)."""
    chain = Chain(problem, PGSM(), seed, adapt_seconds=limit / 2)
    while chain.seconds < limit:
        chain.step()
        if v_measure_score(problem.y, chain.state.cluster_labels()) >= level:
            return chain, chain.seconds
    return chain, np.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds per chain")
    args = parser.parse_args()
    threadpool_limits(1)
    for name, X, y, likelihood, level, target in cases(args.data):
        problem = Problem(X, y, likelihood, held_out=0.0)
        true = problem.start(np.unique(problem.y, return_inverse=True)[1])
        times, gains, iterations = [], [], []
        for seed in range(args.seeds):
            chain, seconds = reach(problem, level, seed, args.limit)
            times.append(seconds)
            iterations.append(chain.iteration)
            true.prior.set_concentration(chain.state.prior.concentration)
            gains.append(chain.state.compute_log_joint() - true.compute_log_joint())
        reached = np.isfinite(times)
        print(
            f"{name}: V >= {level} in {np.array2string(np.array(times), precision=2)} s "
            f"({reached.sum()} of {args.seeds} chains; median "
            f"{np.median(np.where(reached, times, np.inf)):.2f}, target {target:g}), iterations "
            f"{iterations}, log joint minus the truth's {np.round(gains).astype(int).tolist()}",
            flush=True,
        )


if __name__ == "__main__":
    main()
