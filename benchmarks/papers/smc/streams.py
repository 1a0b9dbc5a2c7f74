# SPDX-License-Identifier: BSD-3-Clause
"""A stream of rows in batches: prequential score, time and memory as rows come in.

    python benchmarks/papers/smc/streams.py FILE.npz --out FOLDER [--rows N] [--batch 10000]

FILE has the rows under "X", in the order in which they come. Two ways: `partial_fit` from the
first batch on, with the hyperparameters that the first batch suggests; and a `fit` of the first
rows, which moves particles and learns hyperparameters, with all others streamed after it. The
table goes to FOLDER.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.mixture.samplers import SMC


def resident_megabytes():
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def follow(X, batch, n_fitted, n_particles):
    """Lines of a table: what is known after each tenth of the stream."""
    model = DPMixture(
        sampler=SMC(n_particles),
        n_chains=1,
        n_draws=20,
        store_labels=False,
        point_estimate="map",
        random_state=0,
    )
    began, lines = time.process_time(), []
    first = 0
    if n_fitted:
        model.fit(X[:n_fitted])
        lines.append(f"  fit of {n_fitted} rows: {time.process_time() - began:.1f} s")
        first = n_fitted
    seconds = 0.0
    edges = list(range(first, len(X), batch))
    for number, start in enumerate(edges):
        stop = min(start + batch, len(X))
        previous = getattr(model, "log_evidence_", 0.0)
        began = time.process_time()
        model.partial_fit(X[start:stop])
        spent = time.process_time() - began
        seconds += spent
        score = (model.log_evidence_ - previous) / (stop - start)
        if number % max(1, len(edges) // 10) == 0 or stop == len(X):
            lines.append(
                f"  {stop:>9} rows: {score:8.3f} nats a row in this batch,"
                f" {1e6 * spent / (stop - start):6.1f} us a row,"
                f" {model.n_components_samples_.mean():6.1f} clusters,"
                f" {model.effective_sample_size_[0]:6.1f} effective,"
                f" {resident_megabytes():7.1f} MB"
            )
            print(lines[-1], flush=True)
    total = model.log_evidence_ / len(X)
    lines.append(f"  log evidence per row {total:.4f}; {seconds:.1f} s for all batches")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--out", required=True, help="folder for the table")
    parser.add_argument("--rows", type=int, help="of the file, all by default")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--fitted", type=int, default=2000, help="rows that are fitted first")
    parser.add_argument("--particles", type=int, default=100)
    args = parser.parse_args()
    threadpool_limits(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    path = Path(args.file)
    with np.load(path) as arrays:
        X = np.asarray(arrays["X"][: args.rows], dtype=float)
    lines = [f"{path.stem}, {X.shape[0]} x {X.shape[1]}, batches of {args.batch}"]
    for n_fitted in (0, args.fitted):
        lines.append("streamed from the start" if n_fitted == 0 else "fitted first, then streamed")
        print(lines[-1], flush=True)
        lines += follow(X, args.batch, n_fitted, args.particles)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"smc_stream_{path.stem}.txt").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
