# SPDX-License-Identifier: BSD-3-Clause
"""Labels on 148 simulated sets to which no weight was fitted, beside those of other methods.

    python benchmarks/simulated.py --cache simulated.json
    python benchmarks/simulated.py --methods adaptive modal --only "rings, two spirals"

The sets are curves, rings, spirals, mixed shapes, one law, several laws, groups that touch or
overlap, arms and bars, in 2 to 30 columns, with 150 to 2,400 rows. Methods are those of
`batteries.py`. The mean adjusted Rand index of each family is shown; rows of noise do not count.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from batteries import METHODS, labels_of
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

CURVES = [(300, 0.01), (300, 0.05), (800, 0.03), (800, 0.08), (1500, 0.005), (1500, 0.1)]
LAWS = ["normal", "t3", "laplace", "lognormal", "gamma", "uniform", "ball", "contaminated"]
HEAVY = ["t3", "laplace", "contaminated"]


def rotation(r, d=2):
    return np.linalg.qr(r.normal(size=(d, d)))[0]


def curve(r, n, kind, noise):
    t = r.uniform(0, 1, n)
    if kind == "spiral":
        angle = 4 * np.pi * np.sqrt(t * 0.95 + 0.05)
        points = np.c_[angle * np.cos(angle), angle * np.sin(angle)] / 12
    elif kind == "s":
        points = np.c_[2 * t - 1, 0.6 * np.sin(2 * np.pi * t)]
    elif kind == "line":
        points = np.c_[2 * t - 1, 0 * t]
    elif kind == "square":
        side = (4 * t).astype(int)
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]], float)
        share = (4 * t - side)[:, None]
        points = corners[side] + (corners[side + 1] - corners[side]) * share
    else:
        angle = 2 * np.pi * t if kind == "ring" else np.pi * (0.2 + 1.2 * t)
        points = np.c_[np.cos(angle), np.sin(angle)]
    return points + r.normal(scale=noise, size=points.shape)


def rings(r, n, noise):
    k = int(r.randint(2, 4))
    parts = [curve(r, n // k, "ring", noise) * (1 + j * r.uniform(0.7, 1.2)) for j in range(k)]
    return np.vstack(parts), np.repeat(np.arange(k), n // k)


def spirals(r, n, noise):
    parts = [curve(r, n // 2, "spiral", noise * 0.5), -curve(r, n // 2, "spiral", noise * 0.5)]
    return np.vstack(parts), np.repeat([0, 1], n // 2)


def arcs(r, n, noise):
    k, parts = int(r.randint(2, 5)), []
    for j in range(k):
        points = curve(r, n // k, r.choice(["arc", "s", "line", "square"]), noise)
        points = points @ rotation(r) * r.uniform(0.5, 1)
        parts.append(points + np.array([2.6 * (j % 2), 2.6 * (j // 2)]))
    return np.vstack(parts), np.repeat(np.arange(k), n // k)


def mixed(r, n, noise):
    m = n // 4
    parts = [
        curve(r, m, "square", noise) * 1.5,
        r.normal(scale=0.2, size=(m, 2)),
        curve(r, m, "s", noise) @ rotation(r) + [3.4, 0],
        r.uniform(-0.5, 0.5, size=(m, 2)) + [3.4, 2.2],
    ]
    return np.vstack(parts), np.repeat(np.arange(4), m)


def linked(r, n, noise):
    m = n // 2
    one = np.c_[curve(r, m, "ring", noise), r.normal(scale=noise, size=m)]
    other = np.c_[curve(r, m, "ring", noise), r.normal(scale=noise, size=m)]
    return np.vstack([one, other[:, [0, 2, 1]] + [1, 0, 0]]), np.repeat([0, 1], m)


def single_curve(r, n, noise):
    kind = r.choice(["ring", "spiral", "s", "square"])
    return curve(r, n // 2, kind, noise), np.zeros(n // 2, int)


def rings_in_noise(r, n, noise):
    X, y = rings(r, n, noise)
    m = len(X) // 8
    around = r.uniform(X.min(0) * 1.2, X.max(0) * 1.2, size=(m, 2))
    return np.vstack([X, around]), np.r_[y, np.full(m, -1)]


def law(r, kind):
    d, n = int(r.choice([2, 3, 5, 8])), int(r.choice([200, 500, 1000]))
    if kind == "laplace":
        X = r.laplace(size=(n, d))
    elif kind == "gamma":
        X = r.gamma(1.5, size=(n, d))
    elif kind == "uniform":
        X = r.uniform(size=(n, d))
    else:
        X = r.normal(size=(n, d))
    if kind == "t3":
        X = X / np.sqrt(r.chisquare(3, size=(n, 1)) / 3)
    elif kind == "lognormal":
        X = np.exp(0.6 * X)
    elif kind == "ball":
        X *= (r.uniform(size=(n, 1)) ** (1 / d)) / np.linalg.norm(X, axis=1, keepdims=True)
    elif kind == "contaminated":
        X = X * np.where(r.uniform(size=(n, 1)) < 0.2, 3, 1)
    return X @ rotation(r, d), np.zeros(n, int)


def several_laws(r):
    d, k, parts = int(r.choice([2, 3])), int(r.randint(2, 6)), []
    kinds = ["normal", "t3", "lognormal", "gamma", "uniform", "ball", "contaminated"]
    for _ in range(k):
        kind = r.choice(kinds)
        X = law(r, kind)[0]
        while X.shape[1] != d:
            X = law(r, kind)[0]
        X = X[:150]
        parts.append((X - X.mean(0)) / X.std() + r.normal(scale=6, size=d))
    return np.vstack(parts), np.repeat(np.arange(k), [len(part) for part in parts])


def touching(r):
    d, k = int(r.choice([2, 2, 3, 5, 8])), int(r.randint(2, 9))
    gap, n = r.uniform(2.4, 4), int(r.choice([300, 800]))
    width = gap * k ** (1 / d)
    means, tries = [r.uniform(-1, 1, size=d) * width], 0
    while len(means) < k and tries < 4000:
        mean, tries = r.uniform(-1, 1, size=d) * width * 0.8, tries + 1
        if min(np.linalg.norm(mean - other) for other in means) > gap:
            means.append(mean)
    y = r.randint(0, len(means), n)
    return np.array(means)[y] + r.normal(size=(n, d)), y


def overlapping(r):
    d, k = int(r.choice([2, 3, 5])), int(r.randint(2, 5))
    n = int(r.choice([200, 500, 1000]))
    y, means = r.randint(0, k, n), r.normal(size=(k, d)) * 1.6
    roots = [rotation(r, d) * np.exp(r.normal(scale=0.6, size=d)) for _ in range(k)]
    return np.array([means[j] + roots[j] @ r.normal(size=d) for j in y]), y


def arms(r):
    d, k, n = int(r.choice([2, 3, 5])), int(r.randint(2, 5)), 400
    y, X = r.randint(0, k + 1, n), r.normal(scale=0.5, size=(n, d))
    lines = np.array([rotation(r, d)[0] for _ in range(k)])
    is_arm = y > 0
    X[is_arm] += r.uniform(0, r.uniform(4, 9), size=(is_arm.sum(), 1)) * lines[y[is_arm] - 1]
    return X, y


def bars(r):
    d, k, n = int(r.choice([2, 3])), int(r.randint(2, 4)), 500
    y, X = r.randint(0, k, n), np.zeros((n, d))
    for j in range(k):
        rows = r.normal(size=((y == j).sum(), d)) * np.r_[4, np.full(d - 1, 0.4)]
        X[y == j] = rows @ rotation(r, d)
    return X, y


def many_groups(r):
    k = int(r.choice([15, 25, 40]))
    n, means = k * int(r.choice([25, 60])), []
    while len(means) < k:
        mean = r.uniform(size=2)
        if not means or min(np.linalg.norm(mean - m) for m in means) > 0.55 / np.sqrt(k):
            means.append(mean)
    y = r.randint(0, k, n)
    deviation = 0.55 / np.sqrt(k) / r.uniform(2.6, 5)
    return np.array(means)[y] + r.normal(scale=deviation, size=(n, 2)), y


def bridge(r):
    n = 300
    one, other = r.normal(size=(n, 2)), r.normal(size=(n, 2)) + [7, 0]
    between = np.c_[r.uniform(1, 6, 40), r.normal(scale=0.3, size=40)]
    y = np.r_[np.zeros(n, int), np.ones(n, int), (between[:, 0] > 3.5).astype(int)]
    return np.vstack([one, other, between]), y


def meeting_squares(r):
    n = int(r.choice([400, 900]))
    one, other = r.uniform(-1, 1, size=(n // 2, 2)), r.uniform(-1, 1, size=(n // 2, 2))
    turn = np.array([[1, 1], [-1, 1]]) / np.sqrt(2)
    gap = [2 * np.sqrt(2) * r.uniform(1.0, 1.06), 0]
    return np.vstack([one @ turn, other @ turn + gap]), np.repeat([0, 1], n // 2)


def wide(r):
    d, k, n = int(r.choice([12, 20, 30])), int(r.randint(2, 7)), 800
    means = r.normal(size=(k, d)) * r.uniform(3, 6) / np.sqrt(d) * np.sqrt(2)
    y = r.randint(0, k, n)
    rest = r.normal(size=(n, d)) if r.uniform() < 0.6 else r.laplace(size=(n, d)) / np.sqrt(2)
    return means[y] + rest, y


def families():
    """Functions of a random state that make rows and labels, by family."""

    def of(*makers):
        return [
            lambda r, make=make, size=size: make(r, *size) for size in CURVES for make in makers
        ]

    def laws(is_heavy):
        kinds = [kind for kind in LAWS if (kind in HEAVY) == is_heavy for _ in range(3)]
        return [lambda r, kind=kind: law(r, kind) for kind in kinds]

    return {
        "rings, two spirals": of(rings, spirals),
        "arcs, lines, squares, mixed shapes": of(arcs, mixed),
        "linked rings, single curves": of(linked, single_curve),
        "rings in noise": of(rings_in_noise),
        "one law": laws(False),
        "one law with heavy tails": laws(True),
        "several laws": [several_laws] * 10,
        "2 to 8 groups that touch": [touching] * 16,
        "normal laws that overlap": [overlapping] * 14,
        "arms from a core, bars that cross": [arms, bars] * 8,
        "15 to 40 groups": [many_groups] * 10,
        "bridges, squares that meet": [bridge, meeting_squares] * 5,
        "12 to 30 columns": [wide] * 6,
    }


def sets():
    """Family, number, rows and labels of each set; -1 for noise."""
    number = 0
    for family, makers in families().items():
        for make in makers:
            X, y = make(np.random.RandomState(1000 + number))
            order = np.random.RandomState(number).permutation(len(X))
            yield family, number, np.ascontiguousarray(X[order]), y[order]
            number += 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path("simulated.json"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--only", nargs="+", help="families")
    options = parser.parse_args()
    cells = json.loads(options.cache.read_text()) if options.cache.exists() else {}
    found = {}
    for family, number, X, y in sets():
        if options.only and family not in options.only:
            continue
        for method in options.methods:
            key = f"{method}/{number}"
            if key not in cells:
                with warnings.catch_warnings(), threadpool_limits(1):
                    warnings.simplefilter("ignore")
                    labels = labels_of(method, X, 0)
                cells[key] = adjusted_rand_score(y[y >= 0], labels[y >= 0])
                options.cache.write_text(json.dumps(cells))
            found.setdefault((family, method), []).append(cells[key])
    print(" " * 36 + "".join(f"{method:>10}" for method in options.methods))
    for family in families():
        if (family, options.methods[0]) in found:
            means = [np.mean(found[family, method]) for method in options.methods]
            print(f"{family:<36}" + "".join(f"{mean:>10.2f}" for mean in means))
    means = [
        np.mean(np.concatenate([values for (_, m), values in found.items() if m == method]))
        for method in options.methods
    ]
    print(f"{'mean':<36}" + "".join(f"{mean:>10.2f}" for mean in means))


if __name__ == "__main__":
    main()
