# SPDX-License-Identifier: BSD-3-Clause
"""Known labels of rows: the classes, and clusters that are classes.

`Unlabelled` and `KnownLabels` are one interface: what a row may be, as far as its class goes.

Components with rows of one class are one cluster, the class. Clusters without a class are new.
Clusters are numbered 0, ..., C - 1 for the classes in increasing order and from C on for new ones.
"""

import functools
from dataclasses import dataclass

import joblib
import numpy as np
import scipy.sparse as sp

from skdpm import partitions
from skdpm.mixture.likelihoods.composite.classified import Classified, renumbered
from skdpm.mixture.state._state import smallest
from skdpm.partitions import relabel_by_size


class Unlabelled:
    """Rows without known labels: every component is a cluster, except as a point estimate joins
    them. `KnownLabels` has the same methods.

    - `unites`: bool. Whether some components are one cluster because they are of one class.
    - `codes`: None. Position of the class of each row.
    - `key`: None. Hash, equal for equal labels.
    - `rows`: (0,). Rows whose class is known, in increasing order.
    """

    unites = False
    codes = key = None
    rows = np.empty(0, dtype=np.intp)

    def take(self, rows):
        """The known labels of some rows."""
        return self

    def check(self, likelihood, most_clusters, store_labels):
        """Raise ValueError if the model cannot take the known labels."""

    def restricted(self, likelihood):
        """The likelihood under which no component has rows of two classes."""
        return likelihood

    def continued(self, chain, before):
        """A chain of particles that have taken rows with the known labels `before`, for rows with
        these: dict. These have the classes of those, and maybe more."""
        return dict(chain)

    def first_of_each(self, rows):
        """Rows in an order in which the first ones of each class come first."""
        return rows

    def of_components(self, labels):
        """Class of the components 0, ..., K - 1 of labels, -1 for those without: (K,)."""
        return np.full(labels.max() + 1, -1, dtype=np.intp)

    def clusters(self, groups, classes, labels):
        """Clusters of the rows, from groups of components; see `KnownLabels.clusters`."""
        return relabel_by_size(groups.astype(np.min_scalar_type(groups.max()))[labels])

    def join(self, draws):
        """Clusters of draws of components."""
        return draws

    def numbered(self, labels):
        """Number the clusters of labels by decreasing size; -1 stays."""
        return partitions._relabel_inside(labels)

    def estimate(self, clusters, search, max_clusters, of_noise):
        """Point estimate of the clusters; see `KnownLabels.estimate`."""
        return search(clusters, max_clusters)

    def probabilities(self, clusters, labels):
        """Probability that each row belongs to its cluster in `labels`: (n_samples,)."""
        return partitions.label_probabilities(clusters, labels)


UNLABELLED = Unlabelled()


@dataclass(frozen=True, eq=False)
class KnownLabels(Unlabelled):
    """Known labels of the rows of a fit: `classes`, (n_classes,), int64, in increasing order, and
    `codes`, (n_samples,), intp, the position of the class of each row, -1 if it is not known."""

    classes: np.ndarray
    codes: np.ndarray

    unites = True

    @classmethod
    def checked(cls, labels, n_samples, before=UNLABELLED):
        """Known labels of n_samples rows, from the parameter `known_labels`, which may be None,
        with the classes of the rows before them in a stream.

        Raises ValueError if labels are no integers from -1 on, or not one per row.
        """
        if labels is None and not before.unites:
            return UNLABELLED
        given = np.full(n_samples, -1) if labels is None else np.ma.filled(labels, -1)
        if given.shape != (n_samples,):
            raise ValueError(
                f"known_labels must have one entry for each of the {n_samples} rows of X, got "
                f"shape {given.shape}; use -1 for rows whose class is not known"
            )
        hint = (
            "known_labels must be integers: classes from 0 on, and -1 for rows whose class is not "
            "known"
        )
        try:
            numbers = None if given.dtype.kind in "bSU" else given.astype(np.float64)
        except (TypeError, ValueError):
            numbers = None
        if numbers is None:
            raise ValueError(
                f"{hint}; got values of type {given.dtype}. Number names with LabelEncoder of "
                "scikit-learn"
            )
        wrong = ~((numbers >= -1.0) & (numbers == np.floor(numbers)) & (numbers < 2.0**53))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"{hint}; got {numbers[row]:g} in row {row}")
        whole = given.astype(np.int64)
        known = whole >= 0
        classes = np.unique(whole[known])
        if before.unites:
            classes = np.union1d(before.classes, classes)
        if not len(classes):
            return UNLABELLED
        codes = np.full(n_samples, -1, dtype=np.intp)
        codes[known] = np.searchsorted(classes, whole[known])
        if (codes[known].astype(np.float64) ** 2).sum() > 2.0**50:
            raise ValueError(
                f"known_labels has {len(classes)} classes, which are too many; use fewer classes"
            )
        return cls(classes, codes)

    def take(self, rows):
        return KnownLabels(self.classes, self.codes[rows])

    def check(self, likelihood, most_clusters, store_labels):
        n_classes = len(self.classes)
        if n_classes > most_clusters:
            raise ValueError(
                f"known_labels has {n_classes} classes, more than the {most_clusters} components "
                f"of the model; set n_components to at least {n_classes}"
            )
        if "product" not in likelihood.capabilities:
            raise ValueError(
                "known_labels needs a likelihood whose clusters are independent, and those of "
                f"{type(likelihood).__name__} are not; start the chains at the labels with init "
                "instead"
            )
        if not store_labels:
            raise ValueError("known_labels needs label draws; set store_labels=True")

    @functools.cached_property
    def rows(self):
        return np.flatnonzero(self.codes >= 0)

    def restricted(self, likelihood):
        return Classified(likelihood, self.codes)

    def continued(self, chain, before):
        numbers = np.searchsorted(self.classes, before.classes) if before.unites else None
        stats = [renumbered(of_family, numbers) for of_family in chain["system"]["stats"]]
        return {**chain, "system": {**chain["system"], "stats": stats}}

    @property
    def key(self):
        return joblib.hash((self.classes, self.codes))

    def names(self, n_clusters):
        """Numbers of clusters for users: the classes, and those of new clusters counted on from
        the last class: (n_clusters,)."""
        n_new = n_clusters - len(self.classes)
        return np.concatenate([self.classes, self.classes[-1] + 1 + np.arange(n_new)])

    def first_of_each(self, rows):
        first = np.unique(self.codes[rows], return_index=True)[1][-len(self.classes) :]
        return np.concatenate([rows[first], np.delete(rows, first)])

    def of_components(self, labels):
        classes = np.full(labels.max() + 1, -1, dtype=np.intp)
        known = self.codes >= 0
        classes[labels[known]] = self.codes[known]
        return classes

    def clusters(self, groups, classes, labels):
        """Clusters of the rows, (n_samples,), from the group and class of each component. A group
        has components of at most one class, -1 is no class, and `labels` are components of the
        rows. Clusters are classes, then new ones by decreasing size."""
        of_group = np.full(groups.max() + 1, -1)
        np.maximum.at(of_group, groups, classes)
        found = np.where(classes >= 0, classes, of_group[groups])
        return self.numbered(np.where(found >= 0, found, len(self.classes) + groups)[labels])

    def join(self, draws):
        """Clusters of draws of components, (..., n_samples), where only components with rows of a
        class are united: ndarray of the same shape, of the smallest unsigned type; if some rows
        are noise, -1, of the smallest signed type."""
        clusters = np.full((draws.size // draws.shape[-1], draws.shape[-1]), -1)
        for found, of_draw in zip(clusters, draws.reshape(clusters.shape), strict=True):
            inside = of_draw >= 0
            known, labels = self.take(inside), of_draw[inside].astype(np.intp)
            groups = np.arange(labels.max() + 1)
            found[inside] = known.clusters(groups, known.of_components(labels), labels)
        found = smallest(clusters, clusters.max() + 1, clusters.min() < 0)
        return found.reshape(draws.shape)

    def shares(self, clusters):
        """Probability that each row is in the cluster of each class: (n_classes, n_samples)."""
        flat = clusters.reshape(-1, clusters.shape[-1])
        return np.array([(flat == c).mean(axis=0) for c in range(len(self.classes))])

    def numbered(self, labels):
        """Number the new clusters of labels by decreasing size; classes and -1 stay."""
        found, is_new = labels.astype(np.int64), labels >= len(self.classes)
        if is_new.any():
            found[is_new] = len(self.classes) + relabel_by_size(labels[is_new])
        return found

    def estimate(self, clusters, search, max_clusters, of_noise):
        """Point estimate of clusters, (n_samples,), from draws, (n_chains, n_draws, n_samples).

        A row is in its most probable class, unless it is more probable that it is in a new
        cluster. The other rows form the new clusters with the least expected loss, by `search`, a
        function of clusters and of their largest number. If no new cluster is allowed, they have
        the label -1. `of_noise` has the share of draws in which each row is noise.
        """
        n_classes = len(self.classes)
        shares = self.shares(clusters)
        labels = shares.argmax(axis=0).astype(np.int64)
        is_new = 1.0 - of_noise - shares.sum(axis=0) > shares.max(axis=0) + 1e-9
        most = max_clusters - n_classes
        if most < 0:
            raise ValueError(
                f"max_clusters must be at least {n_classes}, the number of known classes; got "
                f"{max_clusters}"
            )
        labels[is_new] = -1
        if most > 0 and is_new.any():
            labels[is_new] = n_classes + search(clusters[:, :, is_new], most)
        return labels

    def probabilities(self, clusters, labels):
        found = np.empty(len(labels))
        is_new = labels >= len(self.classes)
        of_class = np.flatnonzero(~is_new)
        found[of_class] = self.shares(clusters)[labels[of_class], of_class]
        if is_new.any():
            found[is_new] = partitions.label_probabilities(clusters, labels)[is_new]
        return found

    def allotment(self, scored, draws, labels):
        """Shares of the rows of each stored component in each cluster of labels, -1 for rows that
        count for none: csr_array of shape (n_stored, n_clusters). Components with a class are in
        its cluster. `draws` are components of the rows, (n_chains, n_draws, n_samples)."""
        n_clusters = max(labels.max() + 1, len(self.classes))
        found, at, is_seen = [], [], np.zeros(len(scored.stats), dtype=bool)
        for draw in scored.draws:
            of_draw = draws[draw["chain"], draw["draw"]].astype(np.intp)
            classes = self.of_components(of_draw)
            counted = (labels >= 0) & (of_draw >= 0)
            cells = of_draw[counted] * n_clusters + labels[counted]
            counts = np.bincount(cells, minlength=len(classes) * n_clusters)
            shares = counts.reshape(len(classes), n_clusters)
            shares = shares / np.bincount(of_draw[of_draw >= 0])[:, None]
            shares[classes >= 0] = np.eye(n_clusters)[classes[classes >= 0]]
            clusters, new = np.unique(draw["clusters"], return_index=True)
            new = new[~is_seen[clusters]]
            found.append(sp.csr_array(shares[of_draw[draw["rows"][new]]]))
            at.append(draw["clusters"][new])
            is_seen[at[-1]] = True
        return sp.vstack(found, format="csr")[np.argsort(np.concatenate(at))]
