"""RMSE of imputed entries: MixtureImputer, IterativeImputer and KNNImputer.

Entries missing at random are filled in standardised columns; the RMSE is that of these entries.
Two settings: "own" imputes the rows that the imputer has learned from; "new" learns from complete
rows and imputes other rows. Times are processor seconds of fit and transform.

    python benchmarks/imputation.py [--share 0.2] [--repeats 3] [--out results.json]
"""

import argparse
import json
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdpm import DPMixture, MixtureImputer

SETS = {
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "diabetes": load_diabetes,
    "digits": load_digits,
}


def imputers(seed):
    """Imputers by name."""
    return {
        "MixtureImputer": MixtureImputer(DPMixture(random_state=seed)),
        "IterativeImputer": IterativeImputer(random_state=seed),
        "KNNImputer": KNNImputer(),
        "mean": SimpleImputer(keep_empty_features=True),
    }


def rmse_and_time(imputer, learned, asked, truth):
    """Root mean squared error of the missing entries of `asked`, and processor seconds."""
    started = time.process_time()
    completed = imputer.fit(learned).transform(asked)
    spent = time.process_time() - started
    gaps = np.isnan(asked)
    return float(np.sqrt(np.mean((completed - truth)[gaps] ** 2))), spent


def with_gaps(X, share, rng):
    """X with NaN in a share of its entries, but not in whole rows."""
    gaps = rng.random(X.shape) < share
    gaps[gaps.all(axis=1), 0] = False
    return np.where(gaps, np.nan, X)


def run(name, share, repeats):
    """Results of a data set: dict by setting and imputer."""
    load = SETS[name]().data
    X = StandardScaler().fit_transform(load[:, np.ptp(load, axis=0) > 0])
    out = {}
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        train, test = train_test_split(X, test_size=0.5, random_state=seed)
        settings = {
            "own": (with_gaps(X, share, rng),) * 2 + (X,),
            "new": (train, with_gaps(test, share, rng), test),
        }
        for setting, arrays in settings.items():
            for imputer, made in imputers(seed).items():
                learned, asked, truth = arrays
                if setting == "new" and imputer == "IterativeImputer":
                    # It makes as many rounds as gaps needed in `fit`, and one without gaps.
                    learned = np.concatenate([learned, with_gaps(learned, share, rng)])
                result = rmse_and_time(made, learned, asked, truth)
                out.setdefault(setting, {}).setdefault(imputer, []).append(result)
    return {
        setting: {imputer: np.mean(found, axis=0).tolist() for imputer, found in results.items()}
        for setting, results in out.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--out")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for name in args.sets:
        results[name] = run(name, args.share, args.repeats)
        for setting, found in results[name].items():
            words = [f"{imputer} {e:.3f} ({t:.1f} s)" for imputer, (e, t) in found.items()]
            print(f"{name:14} {setting:4} " + "  ".join(words), flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
