# SPDX-License-Identifier: BSD-3-Clause
"""A likelihood with known classes of rows, for samplers: no component has rows of two classes.

The classes are a part beside the likelihood, as in a `Product` (`_classified`): the posterior is
that of the likelihood, restricted to partitions in which no component has rows of two classes.
Samplers know nothing of this. After the fit the likelihood stands alone again (`own`).
"""

import copy

import numpy as np

from skdpm.mixture.likelihoods.composite._classified import N_CLASS_STATS, ClassModel
from skdpm.mixture.likelihoods.composite._product import ProductModel
from skdpm.mixture.likelihoods.contract.base import read_only


class Classified:
    """A likelihood whose rows have known classes. Other methods and attributes are its own.

    - `likelihood`: Likelihood. Likelihood with independent clusters.
    - `codes`: (n_samples,), intp. Class of each row, from 0; -1 if it is not known.
    """

    cuts_again = False

    def __init__(self, likelihood, codes):
        self.likelihood = likelihood
        self.codes = codes

    def __getattr__(self, name):
        # A copy of the likelihood would have no classes.
        if name.startswith("_") or name in ("likelihood", "without_learning", "with_exposure"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.likelihood, name)

    def _with(self, **changes):
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    @property
    def own(self):
        return self.likelihood

    def own_stats(self, stats):
        return stats[:, :-N_CLASS_STATS]

    def for_rows(self, rows):
        return self._with(codes=self.codes[rows])

    def separated(self, labels, most):
        return separated(labels, self.codes, most)

    @property
    def capabilities(self):
        return self.likelihood.capabilities - {"instantiated"}

    def resolve(self, X):
        return self._with(likelihood=self.likelihood.resolve(X))

    def at(self, values):
        return self._with(likelihood=self.likelihood.at(values))

    def encode(self, X):
        own = self.likelihood.encode(X)
        if X.shape[0] != len(self.codes):
            raise ValueError(f"{len(self.codes)} known labels for {X.shape[0]} rows")
        return read_only({"own": own, "codes": np.ascontiguousarray(self.codes, dtype=np.intp)})

    def box_points(self, data):
        return self.likelihood.box_points(data["own"])

    def tables(self, data, n_max):
        return self.likelihood.tables(data["own"], n_max)

    def bind(self, data, tables):
        points = self.box_points(data)
        model = self.likelihood.bind(data["own"], tables)
        return ProductModel(
            [model, ClassModel(data["codes"], model.n_max)],
            self.likelihood.hyper_names(),
            (0 if points is None else points.shape[1], 0),
            [self.likelihood.discrete, True],
        )


def classes_of(stats):
    """Class of each cluster, from statistics of a `Classified`, or -1 for none: (n_clusters,)."""
    counts, sums, _ = stats[:, -N_CLASS_STATS:].T
    return np.where(counts > 0, sums / np.maximum(counts, 1.0), -1.0).astype(np.intp)


def renumbered(stats, numbers):
    """Statistics of clusters under a `Classified`, (n_clusters, n), maybe with cached terms, with
    other `numbers` of the classes, (n_classes,); None if the likelihood had no classes."""
    if numbers is None:
        return np.pad(stats, ((0, 0), (0, N_CLASS_STATS)))
    counts, codes = stats[:, -N_CLASS_STATS], np.append(numbers, 0.0)[classes_of(stats)]
    new = np.column_stack([counts, counts * codes, counts * codes**2])
    return np.hstack([stats[:, :-N_CLASS_STATS], new])


def separated(labels, codes, most):
    """Cut clusters so that none has rows of two classes, into at most `most` clusters.

    Rows without a class stay with the most frequent class of their cluster. If there are too many
    clusters, the smallest ones of classes with several are united with the largest one of the
    class; then clusters without a class join others.

    - `labels`: (n_samples,). Labels 0, ..., K - 1, each in use.
    - `codes`: (n_samples,). Class of each row, -1 if it has none.
    - `most`: int. Largest number of clusters, at least the number of classes.

    Returns `labels`: (n_samples,), of the dtype of `labels` or intp; the same if nothing is cut.
    """
    known = np.flatnonzero(codes >= 0)
    n_clusters, n_classes = int(labels.max()) + 1, int(codes.max()) + 1
    of_row = labels[known] * np.int64(n_classes) + codes[known]
    cells, counts = np.unique(of_row, return_counts=True)
    owners, classes = np.divmod(cells, n_classes)
    if len(np.unique(owners)) == len(owners) and n_clusters <= most:
        return labels
    # The first cell of a cluster here is that of its most frequent class, which keeps its number.
    order = np.lexsort((-counts, owners))
    cells, owners, classes = cells[order], owners[order], classes[order]
    keeps = np.diff(owners, prepend=-1) > 0
    number = np.where(keeps, owners, n_clusters + np.cumsum(~keeps) - 1)
    class_of = np.full(n_clusters + np.count_nonzero(~keeps), -1)
    class_of[number] = classes
    out = labels.astype(np.intp)
    of_cell = dict(zip(cells.tolist(), number.tolist(), strict=True))
    out[known] = [of_cell[cell] for cell in of_row]
    return _united(out, class_of, most)


def _united(labels, class_of, most):
    """Unite clusters without two classes, the smallest first, until at most `most` are left."""
    sizes = np.bincount(labels, minlength=len(class_of))
    target = np.arange(len(sizes))
    largest = {}
    for k in np.argsort(-sizes, kind="stable"):
        largest.setdefault(class_of[k], k)
    n_left = len(sizes)
    # First clusters of a class with a larger cluster, then those without a class.
    for own in (True, False):
        for k in np.argsort(sizes, kind="stable"):
            if n_left <= most or (class_of[k] >= 0) != own:
                continue
            if own:
                into = largest[class_of[k]]
            else:
                into = next((a for c, a in largest.items() if c >= 0), largest[-1])
            if into != k:
                target[k] = into
                n_left -= 1
    return np.unique(target[labels], return_inverse=True)[1]
