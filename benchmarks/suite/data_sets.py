# SPDX-License-Identifier: BSD-3-Clause
"""The data sets of `default_answer.py`: scikit-learn's, those of a folder, and generated ones.

`load` does not need skdpm, so that two versions of it get the same rows.
Columns are as they come, except where the name says "scaled". Subsamples and generated sets are
drawn from fixed seeds.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

# Generated sets that no default was chosen on.
HELD_BACK = ("stretched", "heavy tails", "skewed", "densities", "noise columns", "crescents")


class DataSet(NamedTuple):
    """Rows, true labels (None: unknown; -1: of that row) and the likelihood for them."""

    X: object
    y: object = None
    likelihood: str = "auto"
    most_components: int = 30  # of a search by BIC


def load(name, folder=None):
    """Make or read a data set of `SETS`; FileNotFoundError where `folder` does not have it."""
    return SETS[name](None if folder is None else Path(folder))


def _bundled(loader, *, scaled=False):
    def make(folder):
        X, y = loader(return_X_y=True)
        return DataSet(_standardised(X) if scaled else X, y)

    return make


def _table(name):
    """A table of the folder, without constant columns, scaled."""

    def make(folder):
        arrays = _read(folder, f"tables/{name}")
        X = arrays["X"].astype(np.float64)
        return DataSet(_standardised(X[:, X.std(axis=0) > 0.0]), arrays["y"].astype(int))

    return make


def _standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def _stored(stem, *, n_rows=None, likelihood="auto"):
    def make(folder):
        arrays = _read(folder, stem)
        X, y = arrays["X"].astype(np.float64), arrays.get("y")
        rows = _some(len(X), n_rows)
        return DataSet(X[rows], None if y is None else y[rows].astype(int), likelihood)

    return make


def _flow(sample, n_rows=3000):
    def make(folder):
        arrays = _read(folder, "flowcap_gvhd")
        rows = np.flatnonzero(arrays["sample"] == sample)
        rows = rows[_some(len(rows), n_rows)]
        y = arrays["y"][rows].astype(int)
        return DataSet(arrays["X"][rows].astype(np.float64), np.where(y == 0, -1, y))

    return make


def _kos(folder, n_rows=1200):
    if folder is None:
        raise FileNotFoundError("kos.npz")
    X = sp.csr_array(sp.load_npz(folder / "kos.npz")).astype(np.float64)
    return DataSet(X[_some(X.shape[0], n_rows)], likelihood="multinomial")


def _network(stem):
    def make(folder):
        arrays = _read(folder, stem)
        return DataSet(arrays["A"].astype(np.float64), arrays["y"].astype(int), "relational")

    return make


def _read(folder, stem):
    if folder is None:
        raise FileNotFoundError(f"{stem}.npz")
    with np.load(folder / f"{stem}.npz") as arrays:
        return dict(arrays)


def _some(n_rows, n_kept):
    """Rows of a fixed subsample, in their order."""
    if n_kept is None or n_kept >= n_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, n_kept, replace=False))


# Generated sets. Each takes a generator and returns rows and labels.


def fifty(rng):
    """50 Gaussian clusters of 150 rows in two columns, of which some overlap."""
    centres = _centres(rng, 50, 2, 1.0e6, 6.0e4)
    y = np.repeat(np.arange(50), 150)
    axes = rng.uniform(1.2e4, 2.6e4, size=(50, 2))
    noise = rng.standard_normal((len(y), 2)) * axes[y]
    return centres[y] + _rotated(rng, noise, y), y


def stretched(rng):
    """Six Gaussian clusters, five to ten times as long as wide."""
    y = np.repeat(np.arange(6), 250)
    long = rng.uniform(5.0, 10.0, size=6)
    noise = rng.standard_normal((len(y), 2)) * np.column_stack([long, np.ones(6)])[y]
    return _centres(rng, 6, 2, 70.0, 20.0)[y] + _rotated(rng, noise, y), y


def heavy_tails(rng):
    """Five clusters of Student's t with 3 degrees of freedom."""
    y = np.repeat(np.arange(5), 300)
    noise = rng.standard_normal((len(y), 2)) / np.sqrt(rng.chisquare(3.0, size=(len(y), 1)) / 3.0)
    return _centres(rng, 5, 2, 30.0, 9.0)[y] + _rotated(rng, noise, y), y


def skewed(rng):
    """Four clusters in four columns of Gamma noise that leans in any direction."""
    y = np.repeat(np.arange(4), 300)
    signs = rng.choice([-1.0, 1.0], size=(4, 4))
    noise = signs[y] * rng.gamma(1.5, size=(len(y), 4))
    return _centres(rng, 4, 4, 12.0, 5.0)[y] + noise, y


def densities(rng):
    """Seven Gaussian clusters of very different widths and sizes."""
    y = np.repeat(np.arange(7), [700, 400, 200, 100, 80, 60, 40])
    width = rng.permutation(np.geomspace(0.3, 3.0, 7))
    noise = width[y, None] * rng.standard_normal((len(y), 2))
    return _centres(rng, 7, 2, 36.0, 10.0)[y] + noise, y


def noise_columns(rng):
    """Five clusters in four of ten columns; the others say nothing."""
    y = np.repeat(np.arange(5), 160)
    X = rng.standard_normal((len(y), 10)) * rng.uniform(0.5, 3.0, size=10)
    X[:, :4] = _centres(rng, 5, 4, 9.0, 4.0)[y] + rng.standard_normal((len(y), 4))
    return X, y


def crescents(rng):
    """Four clusters along arcs: no Gaussian fits one."""
    y = np.repeat(np.arange(4), 350)
    angle = rng.uniform(0.0, np.pi, size=len(y))
    radius = 5.0 + 0.6 * rng.standard_normal(len(y))
    arc = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return _centres(rng, 4, 2, 50.0, 16.0)[y] + _rotated(rng, arc, y), y


def normals(n_rows, n_features, n_clusters, side, least):
    """A maker of Gaussian clusters with random weights, axes and directions."""

    def make_rows(rng):
        centres = _centres(rng, n_clusters, n_features, side, least)
        y = rng.choice(n_clusters, size=n_rows, p=rng.dirichlet(np.full(n_clusters, 5.0)))
        X = rng.standard_normal((n_rows, n_features))
        for k, centre in enumerate(centres):
            turn, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
            axes = rng.uniform(0.5, 2.0, size=n_features)
            X[y == k] = centre + (X[y == k] * axes) @ turn.T
        return X, y

    return make_rows


def _centres(rng, n_clusters, n_features, side, least):
    """Uniform in a cube, no two closer than `least`."""
    placed = np.empty((0, n_features))
    for _ in range(100_000):
        centre = rng.uniform(0.0, side, size=n_features)
        if (np.linalg.norm(placed - centre, axis=1) >= least).all():
            placed = np.vstack([placed, centre])
        if len(placed) == n_clusters:
            return placed
    raise ValueError(f"no room for {n_clusters} centres {least} apart in a cube of side {side}")


def _rotated(rng, noise, y):
    """Rows of two columns, turned by an angle of each cluster."""
    angle = rng.uniform(0.0, 2.0 * np.pi, size=y.max() + 1)[y]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.column_stack(
        [cosine * noise[:, 0] - sine * noise[:, 1], sine * noise[:, 0] + cosine * noise[:, 1]]
    )


def _generated(make_rows, **fields):
    return lambda folder: DataSet(*make_rows(np.random.default_rng(0)), **fields)


# By the time a fit takes.
SETS = {
    "galaxy": _stored("galaxy"),
    "acidity": _stored("acidity"),
    "karate": _network("karate"),
    "football": _network("football"),
    "faithful": _stored("faithful"),
    "iris": _bundled(datasets.load_iris),
    "wine": _bundled(datasets.load_wine),
    "densities": _generated(densities),
    "stretched": _generated(stretched),
    "heavy tails": _generated(heavy_tails),
    "crescents": _generated(crescents),
    "skewed": _generated(skewed),
    "noise columns": _generated(noise_columns),
    "S1": _stored("s1"),
    "S2": _stored("s2"),
    "fifty": _generated(fifty, most_components=60),
    "2000 x 2": _generated(normals(2000, 2, 10, 25.0, 4.0)),
    "breast cancer scaled": _bundled(datasets.load_breast_cancer, scaled=True),
    "breast cancer": _bundled(datasets.load_breast_cancer),
    "mopsi": _stored("mopsi_finland", n_rows=3000),
    "flow 1": _flow(1),
    "flow 8": _flow(8),
    "news20": _stored("news20_w100", n_rows=3000, likelihood="bernoulli"),
    "dim064": _stored("dim064"),
    "kos": _kos,
    "digits": _bundled(datasets.load_digits),
    "ionosphere scaled": _table("ionosphere"),
    "statlog scaled": _table("statlog"),
    "satellite scaled": _table("satellite"),
    "5000 x 8": _generated(normals(5000, 8, 12, 8.0, 3.0)),
    "20000 x 8": _generated(normals(20_000, 8, 15, 6.0, 3.0)),
    "50000 x 2": _generated(normals(50_000, 2, 15, 30.0, 4.0)),
}
