# SPDX-License-Identifier: BSD-3-Clause
"""Resident memory and time of a stream: does either grow with the rows?

    python benchmarks/papers/smc/stream_memory.py [--rows 10000000] [--batch 10000] [--out FOLDER]

Rows of 15 separated clusters in two columns are simulated batch by batch, and nothing is kept of
them here either; a last line compares the end with the end of the first tenth.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from streams import resident_megabytes
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SMC

N_CLUSTERS = 15


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--out", help="folder for the table")
    args = parser.parse_args()
    threadpool_limits(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    rng = np.random.default_rng(0)
    centres = 30.0 * rng.normal(size=(N_CLUSTERS, 2))
    stream = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=0.001, df=4.0, scale=2.0),
        sampler=SMC(args.particles),
        concentration=1.0,
        n_chains=1,
        n_draws=20,
        random_state=0,
    )
    lines = [f"{args.rows} rows in batches of {args.batch}, {args.particles} particles"]
    print(lines[0], flush=True)
    figures, spent, n_seen, n_before = [], 0.0, 0, 0
    for tenth in range(1, 11):
        while n_seen < args.rows * tenth // 10:
            n_rows = min(args.batch, args.rows - n_seen)
            X = centres[rng.integers(N_CLUSTERS, size=n_rows)] + rng.normal(size=(n_rows, 2))
            began = time.process_time()
            stream.partial_fit(X)
            spent += time.process_time() - began
            n_seen += n_rows
        figures.append((resident_megabytes(), 1e6 * spent / max(n_seen - n_before, 1)))
        lines.append(
            f"{n_seen:>10} rows: {figures[-1][0]:7.1f} MB, {figures[-1][1]:6.2f} us a row,"
            f" {stream.n_clusters_} clusters, log evidence per row"
            f" {stream.log_evidence_ / n_seen:.4f}"
        )
        print(lines[-1], flush=True)
        spent, n_before = 0.0, n_seen
    (first, at_first), (last, at_last) = figures[0], figures[-1]
    lines.append(
        f"last over first tenth: memory {last / first:.3f}, time {at_last / at_first:.3f}"
    )
    print(lines[-1])
    if args.out:
        out = Path(args.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "smc_stream_memory.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
