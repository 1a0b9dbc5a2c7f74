# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of many rows: seconds, by threads.

    python benchmarks/predictions.py                # all, a minute
    python benchmarks/predictions.py --rows 100000

Estimators have 100 draws of clusters on a grid, with hyperparameters that every draw has of its
own (learned) or all share (fixed), and clusters that are apart (6 standard deviations) or overlap
(1.5). Processor time of all threads stands beside that of the clock, for busy machines.
"""

import argparse
import time
import warnings

import numpy as np

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian

# Name -> clusters, columns, distance of neighbours, learned, rows to predict.
CASES = {
    "100 clusters, learned": (100, 2, 6.0, True, 1_000_000),
    "100 clusters, fixed": (100, 2, 6.0, False, 1_000_000),
    "100 overlapping clusters, learned": (100, 2, 1.5, True, 100_000),
    "15 clusters, learned": (15, 2, 6.0, True, 10_000),
    "16 clusters in 128 columns": (16, 128, 1.0, False, 1_000),
}


def rows(n_rows, n_clusters, n_features, gap, rng):
    """Rows of clusters on a grid, or of random centres in many columns, and their labels."""
    centres = np.zeros((n_clusters, n_features))
    if n_features == 2:
        side = int(np.ceil(np.sqrt(n_clusters)))
        centres[:] = gap * np.stack(np.divmod(np.arange(n_clusters), side), axis=1)
    else:
        centres[:] = gap * np.random.default_rng(0).normal(size=centres.shape)
    labels = rng.integers(n_clusters, size=n_rows)
    return centres[labels] + rng.normal(size=(n_rows, n_features)), labels


def fitted(n_clusters, n_features, gap, learned):
    X, labels = rows(100 * n_clusters, n_clusters, n_features, gap, np.random.default_rng(1))
    fixed = {"mean": X.mean(axis=0), "mean_precision": 0.01, "df": n_features + 2.0, "scale": 1.0}
    estimator = DPMixture(
        likelihood=Gaussian(**({} if learned else fixed)),
        sampler="gibbs",
        init=labels,
        concentration=1.0,
        n_warmup=2,
        n_draws=100 if n_features < 10 else 10,
        n_chains=1,
        point_estimate="last",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="most rows that are predicted")
    arguments = parser.parse_args()
    for name, (n_clusters, n_features, gap, learned, n_rows) in CASES.items():
        estimator = fitted(n_clusters, n_features, gap, learned)
        n_rows = min(n_rows, arguments.rows or n_rows)
        X, _ = rows(n_rows, n_clusters, n_features, gap, np.random.default_rng(2))
        for method in ("score_samples", "predict"):
            for n_jobs in (1, 2):
                estimator.n_jobs = n_jobs
                began, used = time.perf_counter(), time.process_time()
                getattr(estimator, method)(X)
                elapsed, used = time.perf_counter() - began, time.process_time() - used
                what = f"{name}, {n_rows} rows, {method}, {n_jobs} threads"
                print(f"{what:<75} {elapsed:8.3f} s {used:8.3f} s of processors", flush=True)


if __name__ == "__main__":
    main()
