"""Outliers: `outlier_scores` of default fits against neighbours and isolation forests.

Each file of a folder has X and y (1 = anomaly), as pyod's `notebooks/data` once they are in
`.npz` files. Columns are standardised by 60 % of the rows, which the methods see; areas under the
ROC curve are those of the rest, and for `outlier_scores_` and neighbours without the row itself
those of the rows seen. Alarms are the share of 4000 rows of `sample` above -log(0.01).

    python benchmarks/outliers.py FOLDER [--sets cardio glass] [--splits 2] [--out results.json]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler

from skdpm import DPMixture


def measure(X, y, split):
    """Areas, shares of alarms and processor seconds by name."""
    A, B, y_seen, y_new = train_test_split(X, y, test_size=0.4, random_state=split)
    scaler = StandardScaler().fit(A)
    A, B = scaler.transform(A), scaler.transform(B)
    start = time.process_time()
    model = DPMixture(random_state=0, n_jobs=1).fit(A)
    fitted = time.process_time()
    found = {"skdpm": model.outlier_scores(B)}
    seconds = time.process_time() - fitted
    neighbours = NearestNeighbors(n_neighbors=5).fit(A)
    forest = IsolationForest(random_state=split).fit(A)
    found["-log density"] = -model.score_samples(B)
    found["kNN"] = neighbours.kneighbors(B)[0][:, -1]
    found["LOF"] = -LocalOutlierFactor(20, novelty=True).fit(A).score_samples(B)
    found["IForest"] = -forest.score_samples(B)
    areas = {name: roc_auc_score(y_new, scores) for name, scores in found.items()}
    seen = {"seen: skdpm": model.outlier_scores_, "seen: IForest": -forest.score_samples(A)}
    seen["seen: kNN"] = neighbours.kneighbors()[0][:, -1]
    areas |= {name: roc_auc_score(y_seen, scores) for name, scores in seen.items()}
    alarms = np.mean(model.outlier_scores(model.sample(4000)[0]) > -np.log(0.01))
    times = {"fit s": fitted - start, "scores s": seconds}
    return areas | {"alarms": float(alarms)} | times


def main():
    """Print a line for each set, means over the splits, and their mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for path in sorted(options.folder.glob("*.npz")):
        if options.sets and path.stem not in options.sets:
            continue
        data = np.load(path)
        runs = [measure(data["X"], data["y"], split) for split in range(options.splits)]
        results[path.stem] = {
            name: float(np.mean([run[name] for run in runs])) for name in runs[0]
        }
        print(path.stem, {name: round(value, 3) for name, value in results[path.stem].items()})
    names = next(iter(results.values()))
    means = {name: np.mean([found[name] for found in results.values()]) for name in names}
    print("mean", {name: round(float(value), 3) for name, value in means.items()})
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
