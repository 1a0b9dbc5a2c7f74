# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of mutations of simulated tumours, and how well their prevalences are known.

    python benchmarks/mutations.py [--data FOLDER] [--reads spread] [--clusters 4 10] [--seeds 2]

Tumours have 4 or 10 clusters of mutations, 1 or 4 samples, and 50 to 10,000 reads of a mutation in
a sample. Reads are binomial ("even") or beta-binomial with precision 200 ("spread"), about as in
the mixing experiment of Roth et al. (2014). Mutations have one of three pairs of copy numbers, and
80 % of the cells are cancer cells. FOLDER has `pyclonevi_synthetic.csv.gz`, the example of
PyClone-VI: 100 mutations of eight clusters in four samples, about 100 reads.

Columns: number of clusters, V-measure, mean absolute error of `mutation_prevalence`, share of true
prevalences in the 95 % intervals of mutations, learned precision, processor time. Figures are
means over seeds.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import v_measure_score

from skdpm import DPMixture
from skdpm.datasets import make_pyclone
from skdpm.mixture.likelihoods import PyClone
from skdpm.mutations import mutation_design, mutation_table

DEPTHS = 50, 100, 1000, 10_000
SPREAD = 200.0  # precision of beta-binomial reads
LIKELIHOODS = {
    "binomial": PyClone("binomial"),
    "precision 200": PyClone("beta_binomial", 200.0),
    "learned": PyClone("beta_binomial"),
}


def simulated(reads, n_clusters, n_tumours, depth, seed):
    """Mutations, their clusters and their prevalences (n_mutations, n_tumours)."""
    X, labels, prevalences = make_pyclone(
        100,
        n_tumours,
        n_clusters=n_clusters,
        depth=depth,
        copy_numbers=((1, 1), (1, 2), (0, 2)),
        tumour_content=0.8,
        precision=SPREAD if reads == "spread" else None,
        random_state=seed,
    )
    return X, labels, prevalences[labels]


def example_of_pyclonevi(folder):
    lines = pd.read_csv(Path(folder) / "pyclonevi_synthetic.csv.gz")
    design = mutation_design(lines)
    truth = lines.pivot_table(index="mutation_id", columns="sample_id", values="ccf", sort=False)
    labels = lines.groupby("mutation_id", sort=False)["cluster"].first()
    return design, labels.loc[design.index].to_numpy(), truth.loc[design.index].to_numpy()


def measure(likelihood, X, labels, truth):
    """Figures of a fit: list of float."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixture(likelihood=likelihood, n_jobs=1, random_state=0).fit(X)
    seconds = time.process_time() - began
    table = mutation_table(model, X)
    truth = truth.ravel()
    low, high = table["mutation_prevalence_low"], table["mutation_prevalence_high"]
    step = 0.5 / (model.likelihood_.n_grid - 1)
    precision = model.hyperparameter_samples_.get("precision", np.nan)
    return [
        model.n_clusters_,
        v_measure_score(labels, model.labels_),
        np.abs(table["mutation_prevalence"] - truth).mean(),
        np.mean((low - step <= truth) & (truth <= high + step)),
        np.median(precision),
        seconds,
    ]


def show(title, problems, names):
    for name in names:
        k, v, error, inside, precision, seconds = np.mean(
            [measure(LIKELIHOODS[name], *problem) for problem in problems], axis=0
        )
        learned = "" if np.isnan(precision) else f"{precision:8.0f}"
        print(
            f"{title:36}{name:15}{k:6.1f}{v:7.2f}{error:8.3f}{inside:7.0%}{learned:>9}"
            f"{seconds:7.1f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with pyclonevi_synthetic.csv.gz")
    parser.add_argument("--reads", nargs="*", default=["even", "spread"])
    parser.add_argument("--clusters", nargs="*", type=int, default=[4, 10])
    parser.add_argument("--samples", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--depths", nargs="*", type=int, default=DEPTHS)
    parser.add_argument("--likelihoods", nargs="*", default=list(LIKELIHOODS))
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print(
        f"{'reads, clusters, samples, depth':36}{'likelihood':15}{'found':>6}{'V':>7}{'error':>8}"
        f"{'inside':>7}{'precision':>10}{'s':>6}"
    )
    if args.data:
        show(
            "example of PyClone-VI, 8, 4, 100", [example_of_pyclonevi(args.data)], args.likelihoods
        )
    for setting in itertools.product(args.reads, args.clusters, args.samples, args.depths):
        title = ", ".join(map(str, setting))
        show(title, [simulated(*setting, seed) for seed in range(args.seeds)], args.likelihoods)


if __name__ == "__main__":
    main()
