# SPDX-License-Identifier: BSD-3-Clause
"""Time and held-out score of DPMixture against scikit-learn's BayesianGaussianMixture.

    python benchmarks/compare_sklearn.py

Both with full covariances, their own default priors, on the same three splits of each data set
and in the same run. BayesianGaussianMixture gets twice the true number of clusters as its
truncation and enough iterations to converge; it gives one variational fit, DPMixture 4 x 250
draws (with `--quick`, 1 x 100). Scores are mean log densities of held-out rows: a difference of
0.1 is 10 % in density per row.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import ShuffleSplit
from suite.problems import make_problem

from skdpm import DPMixture


def standardised(X, y):
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def data_sets():
    yield "iris 150 x 4", *standardised(*load_iris(return_X_y=True)), 3
    yield "wine 178 x 13", *standardised(*load_wine(return_X_y=True)), 3
    X, y = standardised(*load_breast_cancer(return_X_y=True))
    yield "breast cancer 569 x 10", PCA(10, whiten=True, random_state=0).fit_transform(X), y, 2
    for n_samples, n_features, n_clusters in ((1000, 2, 15), (5000, 2, 15), (1000, 16, 8)):
        _, X, y = make_problem("gaussian", n_samples, n_features, n_clusters)
        yield f"synthetic {n_samples} x {n_features}", X, y, n_clusters


def fit(model, X):
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short chain")
    size = {"n_chains": 1, "n_warmup": 100, "n_draws": 100} if parser.parse_args().quick else {}
    print(
        f"{'':24}{'seconds':^27}{'held-out score':^27}{'clusters':^12}{'V-measure':^12}\n"
        f"{'':24}{'skdpm':>9}{'sklearn':>9}{'ratio':>9}{'skdpm':>9}{'sklearn':>9}{'diff.':>9}"
        f"{'skdpm':>6}{'sk.':>6}{'skdpm':>6}{'sk.':>6}"
    )
    for name, X, y, n_clusters in data_sets():
        rows = []
        for train, test in ShuffleSplit(3, test_size=0.25, random_state=0).split(X):
            ours = DPMixture(random_state=0, **size)
            theirs = BayesianGaussianMixture(
                n_components=2 * n_clusters, max_iter=2000, random_state=0
            )
            row = []
            for model in (ours, theirs):
                seconds = fit(model, X[train])
                labels = model.predict(X[test])
                found = len(np.unique(labels))
                row.append(
                    (seconds, model.score(X[test]), found, v_measure_score(y[test], labels))
                )
            rows.append(row)
        mine, others = np.mean(rows, axis=0)
        print(
            f"{name:24}{mine[0]:9.3f}{others[0]:9.3f}{mine[0] / others[0]:9.2f}"
            f"{mine[1]:9.3f}{others[1]:9.3f}{mine[1] - others[1]:+9.3f}"
            f"{mine[2]:6.1f}{others[2]:6.1f}{mine[3]:6.2f}{others[3]:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
