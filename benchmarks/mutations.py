# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of mutations of simulated tumours, and how well their prevalences are known.

    python benchmarks/mutations.py [--data FOLDER] [--reads spread] [--samples 1] [--seeds 3]

Tumours have 4 or 10 clusters of mutations, 1 or 4 samples, and 50 to 10,000 reads of a mutation in
a sample. Reads are binomial ("even") or beta-binomial with precision 200 ("spread"), about as in
the mixing experiment of Roth et al. (2014). Mutations have one of three pairs of copy numbers, and
80 % of the cells are cancer cells. FOLDER has `pyclonevi_synthetic.csv.gz`, the example of
PyClone-VI: 100 mutations of eight clusters in four samples, about 100 reads.

Columns: number of clusters, V-measure, mean absolute error of `mutation_prevalence`, share of true
prevalences in the 95 % intervals of mutations, learned precision, processor time of the fit. Each
has the mean over seeds, and the lowest and highest. A seed draws a tumour and fits it; of
PyClone-VI's example it only fits. "known" is no fit: it assigns each mutation to the most probable
cluster, given the true prevalences and sizes of the clusters and the true law of the reads.
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
    "precision 200": PyClone("beta_binomial", SPREAD),
    "learned": PyClone("beta_binomial"),
}
# What reads were drawn from, on a fine grid.
LAWS = {
    "even": PyClone("binomial", n_grid=1001),
    "spread": PyClone("beta_binomial", SPREAD, n_grid=1001),
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


def measure(likelihood, seed, X, labels, truth):
    """Figures of a fit: list of float."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixture(likelihood=likelihood, n_jobs=1, random_state=seed).fit(X)
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


def assign_to_known(law, X, labels, truth):
    """Figures as those of `measure`, of the best assignment if clusters were known."""
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    X = np.asarray(X, dtype=float)
    law = law.resolve(X)
    nearest = np.rint(truth[first] * (law.n_grid - 1)).astype(int)  # (n_clusters, n_tumours)
    terms = np.take_along_axis(law.table(X), nearest.T[None], axis=2)
    found = (terms.sum(axis=1) + np.log(sizes)).argmax(axis=1)
    error = np.abs(truth[first][found] - truth).mean()
    return [len(set(found)), v_measure_score(labels, found), error, np.nan, np.nan, np.nan]


# Heading and format of each figure.
COLUMNS = (
    ("found", "{:.1f}", "{:.0f}"),
    ("V", "{:.2f}", "{:.2f}"),
    ("error", "{:.3f}", "{:.3f}"),
    ("inside", "{:.0%}", "{:.0%}"),
    ("precision", "{:.0f}", "{:.0f}"),
    ("s", "{:.1f}", "{:.1f}"),
)


def show(title, problems, names, law):
    for name in names:
        if name == "known":
            figures = [assign_to_known(law, *problem) for problem in problems]
        else:
            figures = [measure(LIKELIHOODS[name], k, *of) for k, of in enumerate(problems)]
        cells = [
            ""
            if np.isnan(values).any()
            else f"{mean.format(np.mean(values))} "
            f"({limit.format(min(values))}-{limit.format(max(values))})"
            for (_, mean, limit), values in zip(COLUMNS, zip(*figures, strict=True), strict=True)
        ]
        print(f"{title:36}{name:15}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with pyclonevi_synthetic.csv.gz")
    parser.add_argument("--reads", nargs="*", default=["even", "spread"])
    parser.add_argument("--clusters", nargs="*", type=int, default=[4, 10])
    parser.add_argument("--samples", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--depths", nargs="*", type=int, default=DEPTHS)
    parser.add_argument("--likelihoods", nargs="*", default=[*LIKELIHOODS, "known"])
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    headings = "".join(f"{heading:>20}" for heading, _, _ in COLUMNS)
    print(f"{'reads, clusters, samples, depth':36}{'likelihood':15}{headings}")
    if args.data:
        example = example_of_pyclonevi(args.data)
        title = "example of PyClone-VI, 8, 4, 100"
        show(title, [example] * args.seeds, args.likelihoods, LAWS["even"])
    for setting in itertools.product(args.reads, args.clusters, args.samples, args.depths):
        title = ", ".join(map(str, setting))
        problems = [simulated(*setting, seed) for seed in range(args.seeds)]
        show(title, problems, args.likelihoods, LAWS[setting[0]])


if __name__ == "__main__":
    main()
