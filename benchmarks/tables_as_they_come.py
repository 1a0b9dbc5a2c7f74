# SPDX-License-Identifier: BSD-3-Clause
"""Labels of small tables as they come: recorded coarsely, copied, with far or missing entries.

    python benchmarks/tables_as_they_come.py
    python benchmarks/tables_as_they_come.py --seeds 0 1 2 --only answers copies

Every table has known clusters. Adjusted Rand indices over the rows that are in one of these:
`DPMixture()`, all defaults; "kmeans" is told their number, "hdbscan" nothing, "gmm" is
`GaussianMixture` with the number of components of least BIC among 1..10. Missing entries are
means of their columns for the peers, as none of them takes any. "said" is the first warning of
`DPMixture` that is about the table, or its error.
"""

import argparse
import warnings

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from skdpm import DPMixture

N = 400


def groups(rng, n=N, k=2, d=2, distance=8.0):
    y = rng.integers(k, size=n)
    means = np.eye(k, d) * distance if d >= k else distance * np.arange(k)[:, None] * np.ones(d)
    return means[y] + rng.normal(size=(n, d)), y


def answers(rng, d, n=N, off=0.15, best=5, kinds=3):
    y = rng.integers(kinds, size=n)
    typical = np.linspace(1, best, kinds).round()
    X = np.repeat(typical[y][:, None], d, axis=1)
    wrong = rng.random(X.shape) < off
    return np.where(wrong, np.clip(X + rng.choice([-1, 1], X.shape), 1, best), X), y


def survey(
    rng, best, law, n_classes=3, n_others=0, shared=0.0, questions=(4, 21), skew=0.0, n_scales=1
):
    """Answers to random numbers of questions by random numbers of people. "classes": those of a
    class have any law. "ordered": they are a normal number between limits, which are on one side
    by `skew` and has a part `shared` in all questions of a scale. "typical": seven of ten are the
    typical answer of the class."""
    d, n = rng.integers(*questions), rng.integers(150, 1200)
    y = rng.choice(n_classes, size=n, p=rng.dirichlet(np.full(n_classes, 4.0)))
    uniform = rng.random((n, d, 1))
    if law == "classes":
        X = (uniform > rng.dirichlet(np.full(best, 0.7), (n_classes, d)).cumsum(axis=2)[y]).sum(2)
    elif law == "ordered":
        own = 1.3 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
        own += shared * rng.normal(size=(n, n_scales))[:, np.arange(d) % n_scales]
        X = (own[:, :, None] > skew + rng.normal(size=(d, best - 1))).sum(2)
    else:
        typical = rng.integers(best, size=(n_classes, d))[y]
        X = np.where(uniform[:, :, 0] < 0.7, typical, rng.integers(best, size=(n, d)))
    others = rng.normal(size=(n_classes, n_others))[y] + rng.normal(size=(n, n_others))
    return np.c_[1.0 + np.minimum(X, best - 1), others], y


def changed(change, table):
    """The rows of a table after `change`, and their clusters."""
    return change(table[0]), table[1]


def with_gaps(rng, table, share):
    return np.where(rng.random(table[0].shape) < share, np.nan, table[0]), table[1]


def coarse(rng, d, k, step):
    """Measurements of few different values, correlated within clusters."""
    y = rng.integers(k, size=N)
    covary = rng.normal(size=(N, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d)))
    return step * np.rint((3.0 * rng.normal(size=(k, d))[y] + covary) / step), y


def points(rng, where, n=N):
    y = rng.integers(len(where), size=n)
    return np.asarray(where, dtype=float)[y], y


def rounded(rng, step, **kwargs):
    X, y = groups(rng, **kwargs)
    return step * np.round(X / step), y


def beside(rng):
    """A scale of 1 to 5 that means nothing beside measurements."""
    X, y = groups(rng)
    return np.c_[X, rng.integers(1, 6, size=N)], y


def logs(rng):
    y = rng.integers(2, size=N)
    return np.log1p(rng.poisson(np.where(y[:, None], [2.0, 40.0, 10.0], [20.0, 4.0, 10.0]))), y


def sampled_up(rng, few, d=2):
    A, B = rng.normal(size=(N, d)), rng.normal(6 / np.sqrt(d / 2), 1, size=(few, d))
    return np.r_[A, B, B[rng.integers(few, size=N - few)]], np.repeat([0, 1], N)


def repeated(rng, times, n=80):
    X, y = groups(rng, n)
    return np.tile(X, (times, 1)), np.tile(y, times)


def bootstrap(rng, d):
    X, y = groups(rng, k=3, d=d)
    chosen = rng.integers(N, size=N)
    return X[chosen], y[chosen]


def far(rng, value, share, d=2):
    X, y = groups(rng, d=d)
    return np.where(rng.random(X.shape) < share, value, X), y


def one_far(rng, value, d=2):
    X, y = groups(rng, 120, d=d)
    return np.r_[X, np.full((1, d), value)], np.r_[y, -1]


def gaps(rng, share):
    X, y = groups(rng, d=3)
    X[rng.random(X.shape) < share] = np.nan
    return X, y


def masked(rng):
    X, y = groups(rng)
    hidden = rng.random(X.shape) < 0.1
    return np.ma.array(np.where(hidden, -999.0, X), mask=hidden), y


def narrow(rng):
    y = rng.integers(2, size=N)
    return np.where(y, rng.normal(10, 1, N), 1e-6 * rng.normal(size=N))[:, None], y


TABLES = {
    "answers, 4 columns": lambda rng: answers(rng, 4),
    "answers, 1 column": lambda rng: answers(rng, 1, off=0.05),
    "answers, 2 columns": lambda rng: answers(rng, 2),
    "answers, 12 columns": lambda rng: answers(rng, 12, off=0.3),
    "answers, 30 columns": lambda rng: answers(rng, 30, off=0.3),
    "answers, standardised": lambda rng: changed(StandardScaler().fit_transform, answers(rng, 4)),
    "answers 1 to 7": lambda rng: answers(rng, 5, best=7),
    "answers yes or no": lambda rng: answers(rng, 8, off=0.1, best=2, kinds=2),
    "survey, classes": lambda rng: survey(rng, 5, "classes"),
    "survey, ordered": lambda rng: survey(rng, 5, "ordered"),
    "survey, ordered, correlated": lambda rng: survey(rng, 5, "ordered", shared=0.8),
    "survey, typical answers": lambda rng: survey(rng, 7, "typical"),
    "survey, yes or no": lambda rng: survey(rng, 2, "classes"),
    "survey, one class": lambda rng: survey(rng, 5, "ordered", 1),
    "survey, one factor": lambda rng: survey(rng, 5, "ordered", 1, shared=1.0),
    "survey and two measurements": lambda rng: survey(rng, 5, "classes", n_others=2),
    "survey, skewed": lambda rng: survey(rng, 5, "ordered", skew=1.5),
    "survey, 3 levels": lambda rng: survey(rng, 3, "classes"),
    "survey, 7 levels, ordered": lambda rng: survey(rng, 7, "ordered"),
    "survey, 5 questions": lambda rng: survey(rng, 5, "classes", questions=(5, 6)),
    "survey, 25 to 30 questions": lambda rng: survey(rng, 5, "ordered", questions=(25, 31)),
    "survey, 15 % missing": lambda rng: with_gaps(rng, survey(rng, 5, "classes"), 0.15),
    "survey, little correlated": lambda rng: survey(rng, 5, "ordered", shared=0.5),
    "survey, two scales": lambda rng: survey(rng, 5, "ordered", shared=0.8, n_scales=2),
    "survey, one class, skewed": lambda rng: survey(rng, 5, "ordered", 1, skew=1.5),
    "survey, one class, two scales": lambda rng: survey(
        rng, 5, "ordered", 1, shared=1.0, n_scales=2
    ),
    "survey, yes or no, one factor": lambda rng: survey(rng, 2, "ordered", 1, shared=1.0),
    "survey, ordered, measurements": lambda rng: survey(rng, 5, "ordered", n_others=2),
    "survey, half stars": lambda rng: changed(lambda X: X / 2.0, survey(rng, 10, "classes")),
    "survey, -2 to 2": lambda rng: changed(lambda X: X - 3.0, survey(rng, 5, "classes")),
    "survey, percents": lambda rng: changed(lambda X: 25.0 * X - 25.0, survey(rng, 5, "classes")),
    "survey, standardised": lambda rng: changed(
        StandardScaler().fit_transform, survey(rng, 5, "classes")
    ),
    "survey, ordered, standardised": lambda rng: changed(
        StandardScaler().fit_transform, survey(rng, 5, "ordered")
    ),
    "coarse: 4 columns, 3 clusters": lambda rng: coarse(rng, 4, 3, 1.5),
    "coarse: 4 columns, 1 cluster": lambda rng: coarse(rng, 4, 1, 0.5),
    "coarse: 10 columns, 3 clusters": lambda rng: coarse(rng, 10, 3, 1.5),
    "coarse: 3 columns, 2 clusters": lambda rng: coarse(rng, 3, 2, 1.0),
    "two whole columns": lambda rng: rounded(rng, 1.0),
    "prices in steps of 5": lambda rng: rounded(rng, 5.0, distance=30.0),
    "tenths": lambda rng: rounded(rng, 0.1, k=3, d=4),
    "a scale beside measurements": beside,
    "logarithms of counts": logs,
    "three points": lambda rng: points(rng, [[0, 0], [10, 3], [4, 9]]),
    "colours": lambda rng: points(
        rng, [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 0, 255], [10, 200, 10]]
    ),
    "twelve stations": lambda rng: points(rng, rng.uniform([45, 0], [50, 8], (12, 2))),
    "copies: 20 rows to 400": lambda rng: sampled_up(rng, 20),
    "copies: 50 rows to 400": lambda rng: sampled_up(rng, 50),
    "copies: 50 to 400, 8 columns": lambda rng: sampled_up(rng, 50, 8),
    "copies: 80 rows ten times": lambda rng: repeated(rng, 10),
    "copies: bootstrap": lambda rng: bootstrap(rng, 3),
    "copies: bootstrap, 10 columns": lambda rng: bootstrap(rng, 10),
    "one row of 1e7": lambda rng: one_far(rng, 1e7),
    "one row of 9.97e36": lambda rng: one_far(rng, 9.96921e36, 3),
    "1 % of -9999": lambda rng: far(rng, -9999.0, 0.01),
    "5 % of -999": lambda rng: far(rng, -999.0, 0.05),
    "1 % of 1e20": lambda rng: far(rng, 1e20, 0.01),
    "30 % missing": lambda rng: gaps(rng, 0.3),
    "masked entries": masked,
    "half within 1e-6": narrow,
}


def ours(X):
    """Labels, and what was said about the table."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            labels = DPMixture(random_state=0).fit(X).labels_
        except (TypeError, ValueError) as error:
            return None, f"{type(error).__name__}: {error}"
    said = [str(w.message) for w in caught if "onvergence" not in w.category.__name__]
    said = [words for words in said if not words.startswith("this fit will take")]
    return labels, said[0] if said else ""


def peers(X, y):
    X = np.ma.filled(np.ma.asarray(X, dtype=float), np.nan)
    X = SimpleImputer().fit_transform(X)
    return (
        KMeans(len(np.unique(y[y >= 0])), n_init=10, random_state=0).fit_predict(X),
        HDBSCAN(copy=True).fit_predict(X),
        mixture_labels(X),
    )


def mixture_labels(X):
    """Labels of the mixture of least BIC; one cluster if it cannot be fitted."""
    try:
        mixtures = [GaussianMixture(k, random_state=0).fit(X) for k in range(1, 11)]
    except ValueError:
        return np.zeros(len(X), dtype=int)
    return min(mixtures, key=lambda mixture: mixture.bic(X)).predict(X)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", default=[""], help="words in the names of tables")
    args = parser.parse_args()
    print("table                            skdpm  kmeans hdbscan  gmm    clusters  said")
    every = []
    for name, make in TABLES.items():
        if not any(word in name for word in args.only):
            continue
        rows, numbers, said = [], [], ""
        for seed in args.seeds:
            X, y = make(np.random.default_rng(seed))
            labels, said = ours(X)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = (labels, *peers(X, y))
            own = y >= 0
            rows.append(
                [
                    np.nan if each is None else adjusted_rand_score(y[own], each[own])
                    for each in found
                ]
            )
            numbers.append(0 if labels is None else len(np.unique(labels)))
        every.append(np.mean(rows, axis=0))
        cells = "  ".join(f"{mean:5.2f}" for mean in every[-1])
        print(f"{name:32s} {cells}    {np.mean(numbers):4.1f}    {said[:90]}", flush=True)
    print(f"{'mean':32s} " + "  ".join(f"{mean:5.2f}" for mean in np.nanmean(every, axis=0)))


if __name__ == "__main__":
    main()
