# SPDX-License-Identifier: BSD-3-Clause
"""
300,000 rows in a file, and on a Dask cluster
=============================================

`SubCluster` reads the rows once per iteration, in blocks, and keeps a few numbers per cluster. So
the data can stay in a memory-mapped file, and threads can share the blocks of one chain. The same
estimator takes a dask array: each worker then visits the chunks that it holds. If the chunks equal
the blocks of a fit in memory, the draws are the same to the bit.
"""

# sphinx_gallery_thumbnail_path = "images/cards/many_rows.png"

import tempfile
import time
import warnings
from pathlib import Path

import dask.array
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster
from matplotlib.patches import Ellipse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score

from skdpm import DPMixture
from skdpm.datasets import make_gaussian_mixture
from skdpm.mixture.samplers import SubCluster

N_ROWS = 300_000
BLOCK = 50_000


def estimator():
    """One chain from one cluster, without warm-up, to show how it begins.

    All partitions of 300,000 rows would fill much memory. `store_labels=False` keeps only the last
    one, which must then be the point estimate.
    """
    warnings.simplefilter("ignore", ConvergenceWarning)  # the start of a chain cannot converge
    return DPMixture(
        sampler=SubCluster(block_size=BLOCK),
        n_chains=1,
        n_jobs=2,
        init="single",
        n_warmup=0,
        n_draws=100,
        store_labels=False,
        point_estimate="last",
        random_state=0,
    )


def fit_mapped(path):
    """Fit the rows of a file in two threads; return the estimator and the seconds."""
    X = np.load(path, mmap_mode="r")
    began = time.perf_counter()
    model = estimator().fit(X)
    return model, time.perf_counter() - began


def read_block(path, block_info=None):
    """The rows of one chunk, in the process that visits them."""
    start, stop = block_info[None]["array-location"][0]
    return np.load(path, mmap_mode="r")[start:stop]


def fit_dask(path):
    """The same fit on a cluster of two processes, which read the file themselves."""
    X = dask.array.map_blocks(
        read_block, path, chunks=((BLOCK,) * (N_ROWS // BLOCK), (2,)), dtype=np.float32
    )
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        began = time.perf_counter()
        model = estimator().fit(X)
        seconds = time.perf_counter() - began
        # `labels_` is a lazy dask array: compute it while the workers run.
        labels = model.labels_.compute()
    return model, seconds, labels


def draw(path, fits):
    """Draw the rows with the clusters, and traces of the chain by seconds."""
    fig, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    X = np.load(path)
    axes[0].hist2d(*X.T, bins=200, cmap="Greys", norm="log")
    model = next(iter(fits.values()))[0]
    params = model.cluster_params_
    for mean, covariance in zip(params["means"], params["covariances"], strict=True):
        variances, directions = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 4.0 * np.sqrt(variances[::-1])
        axes[0].add_patch(
            Ellipse(mean, width, height, angle=angle, fill=False, color="C3", lw=1.5)
        )
    axes[0].set(title=f"{len(X)} rows, {model.n_clusters_} clusters", aspect="equal")
    for name, (model, seconds) in fits.items():
        at = seconds / model.n_iter_ * np.arange(1, model.n_iter_ + 1)
        axes[1].plot(at, model.n_components_samples_[0], label=name, lw=1.2)
        axes[2].plot(at, model.log_joint_samples_[0] / len(X), label=name, lw=1.2)
    axes[1].set(title="Components", xlabel="seconds (mean per iteration)")
    axes[2].set(title="Log joint (nats per row)", xlabel=axes[1].get_xlabel())
    axes[2].legend(loc="lower right")
    fig.savefig("plot_large.png", dpi=120)
    print("figure: plot_large.png")


def main():
    X, truth = make_gaussian_mixture(N_ROWS, n_clusters=10, spread=0.02, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.npy")
        np.save(path, X.astype(np.float32))
        del X
        model, seconds = fit_mapped(path)
        fits = {"two threads": (model, seconds)}
        print(
            f"{N_ROWS} rows in a file: {model.n_iter_} iterations in {seconds:.1f} s, "
            f"{model.n_clusters_} clusters, V-measure "
            f"{v_measure_score(truth, model.labels_):.3f}"
        )
        remote, seconds, labels = fit_dask(path)
        fits["two Dask workers"] = remote, seconds
        print(
            f"on two workers: {seconds:.1f} s, the same log joints: "
            f"{np.array_equal(remote.log_joint_samples_, model.log_joint_samples_)}, the same "
            f"labels: {np.array_equal(labels, model.labels_)}"
        )
        draw(path, fits)


if __name__ == "__main__":
    main()
