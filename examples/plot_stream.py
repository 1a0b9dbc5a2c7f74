# SPDX-License-Identifier: BSD-3-Clause
"""
A stream with new clusters over time
====================================

`partial_fit` with `sampler="smc"` learns a batch of rows and forgets them. It keeps the statistics
of clusters in a number of weighted partitions, the particles. This example reads 500 rows at a
time from a memory-mapped file. Every 5,000 rows a new kind of row appears.

The increase of `log_evidence_` in a call is the log predictive density of the batch before it was
learned. So each batch tests the model on unseen rows, at no extra cost: the score drops at
something new and recovers when it has been learned. `fit` takes the first rows and moves the
particles on them; `partial_fit` takes the others. Hyperparameters are given, because the
first rows do not show what is to come.

Particles of a stream do not move, so a cluster once opened by an unusual row stays. Its weight is
tiny, but the chains differ in their numbers of these clusters, and a warning would say so.
"""

# sphinx_gallery_thumbnail_path = "images/cards/stream.png"

import pickle
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian

N_KINDS, N_EACH, BATCH = 6, 5_000, 500
N_ROWS = N_KINDS * N_EACH
FITTED = 1_000


def write_rows(path):
    """Write a file of rows; kind k appears from row k * N_EACH on."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(-10.0, 10.0, size=(N_KINDS, 2))
    kinds = rng.integers(1 + np.arange(N_ROWS) // N_EACH)
    X = np.memmap(path, dtype=np.float32, mode="w+", shape=(N_ROWS, 2))
    X[:] = centres[kinds] + rng.normal(size=(N_ROWS, 2))
    X.flush()


def batches(path):
    """The rows of the file in batches; any iterator of batches will do."""
    X = np.memmap(path, dtype=np.float32, mode="r", shape=(N_ROWS, 2))
    yield X[:FITTED]
    for start in range(FITTED, N_ROWS, BATCH):
        yield X[start : start + BATCH]


def follow(path):
    """The final model, and for each batch: rows seen, score per row, numbers of components in the
    draws, bytes of a pickle."""
    model = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=0.02, df=5.0, scale=2.0),
        sampler="smc",
        n_chains=2,
        n_draws=50,
        random_state=0,
    )
    history = []
    for rows in batches(path):
        if not history:
            model.fit(rows)
            score = model.log_evidence_ / len(rows)
        else:
            before = model.log_evidence_
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # see above
                model.partial_fit(rows)
            score = (model.log_evidence_ - before) / len(rows)
        history.append(
            (model.n_samples_seen_, score, model.n_components_samples_, len(pickle.dumps(model)))
        )
    return model, history


def draw(path, model, history):
    X = np.memmap(path, dtype=np.float32, mode="r", shape=(N_ROWS, 2))
    rows, scores, clusters, _ = zip(*history, strict=True)
    clusters = np.array([draws.ravel() for draws in clusters])
    fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    axes[0].hist2d(*X.T, bins=150, cmap="Greys", norm="log")
    means = model.cluster_params_["means"]
    axes[0].scatter(*means.T, s=2_000 * model.weights_, facecolors="none", edgecolors="C3")
    axes[0].set(title=f"{N_ROWS} rows, {model.n_clusters_} clusters", aspect="equal")
    axes[1].plot(rows, scores, lw=1.2)
    axes[1].set(title="Score of a batch before learning it", ylabel="nats per row")
    axes[2].fill_between(rows, clusters.min(axis=1), clusters.max(axis=1), alpha=0.3, step="pre")
    axes[2].step(rows, clusters.mean(axis=1), where="pre", lw=1.2)
    kinds = 1 + np.arange(N_ROWS) // N_EACH
    axes[2].plot(kinds, color="0.5", ls=":", label="kinds of rows")
    axes[2].set(title="Components, mean and range of the draws")
    axes[2].legend(loc="upper left")
    for axis in axes[1:]:
        axis.set(xlabel="rows seen")
        for start in range(N_EACH, N_ROWS, N_EACH):
            axis.axvline(start, color="0.8", lw=0.8, zorder=0)
    fig.savefig("plot_stream.png", dpi=120)
    print("figure: plot_stream.png")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.float32"
        write_rows(path)
        began = time.perf_counter()
        model, history = follow(path)
        seconds = time.perf_counter() - began
        bytes_first, bytes_last = history[1][-1], history[-1][-1]
        print(f"{model.n_samples_seen_} rows in {len(history)} batches: {seconds:.1f} s")
        print(
            f"pickled: {bytes_first / 1e3:.0f} kB at first, {bytes_last / 1e3:.0f} kB at the end"
        )
        print(f"log evidence per row: {model.log_evidence_ / N_ROWS:.3f}")
        draw(path, model, history)


if __name__ == "__main__":
    main()
