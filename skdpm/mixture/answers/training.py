# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit, for questions that are asked after it."""

from dataclasses import dataclass, field

import joblib
import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from skdpm._validation import fingerprint
from skdpm.mixture.answers._leave_one_out import log_leave_one_out, statistics_without
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.rows.noise import NO_NOISE
from skdpm.mixture.state._state import MixtureState


@dataclass(eq=False, repr=False)
class TrainingRows:
    """The rows of a fit. They are neither copied nor pickled; after unpickling the caller passes
    them again. They are encoded when needed, which is fast and saves memory.

    - `X`: array of shape (n_samples, n_features). Validated rows.
    - `key`: object. `fingerprint` of the rows of `fit`, which contains their shape.
    - `model`: BaseMixture. Unfitted estimator with the parameters of the fit.
    - `entropy`: int. Entropy of the random streams of the fit.
    - `completion`: (n_gaps,), or None. Values of missing entries that the chains drew, for
      statistics of any labels.
    - `known`: KnownLabels or Unlabelled. Known labels of the rows.
    - `noise_law`: NoiseLaw. Law of any rows that are noise.
    - `copies`: Copies or None. Rows of `fit` that X does not contain again; n_samples does not
      count them.
    - `informative`: ndarray of int or None. Rows of which something is known. Clusters are read
      off these; others join the largest one (`place`). None: all rows.
    - `described`: dict. The last `Description` of clusters, by its level and labels.
    """

    X: object
    key: object
    model: object
    entropy: int
    completion: np.ndarray | None = None
    known: object = UNLABELLED
    noise_law: object = NO_NOISE
    copies: object = None
    informative: np.ndarray | None = None
    described: dict = field(default_factory=dict)

    @property
    def n_samples(self):
        """Number of different rows."""
        return self.key[0][0] if self.copies is None else len(self.copies.first)

    @property
    def known_of_informative(self):
        """Known labels of the informative rows."""
        return self.known if self.informative is None else self.known.take(self.informative)

    def take(self, labels):
        """Labels of the informative rows, from those of all: (..., n_informative)."""
        return labels if self.informative is None else labels[..., self.informative]

    def spread(self, labels):
        """Labels of all rows, -1 for those that are not informative: (n_samples,)."""
        if self.informative is None:
            return labels
        found = np.full(self.n_samples, -1, dtype=np.int64)
        found[self.informative] = labels
        return found

    def place(self, labels, clusters, components):
        """Clusters of all rows. A row of which nothing is known is in the largest cluster; in a
        draw it is with the informative rows of its component, if there are any.

        `labels` and `clusters` are those of informative rows, the latter of draws, (n_chains,
        n_draws, n_informative); `components` are those of all rows. Returns both for all rows.
        """
        found = np.empty(components.shape, dtype=clusters.dtype)
        for at in np.ndindex(found.shape[:2]):
            of_draw, inside = components[at].astype(np.intp), clusters[at] >= 0
            # Numbers of components without informative rows are left out.
            used, of_rows = np.unique(clusters[at][inside], return_inverse=True)
            largest = int(np.bincount(of_rows).argmax()) if len(used) else -1
            owners = np.full(of_draw.max() + 2, largest)
            owners[self.take(of_draw)[inside]] = of_rows
            owners[-1] = -1  # of noise
            found[at] = owners[of_draw]
            found[at][self.informative[inside]] = of_rows  # may differ in a component
        sizes = np.bincount(labels[labels >= 0])
        everywhere = self.spread(labels)
        others = np.setdiff1d(np.arange(len(everywhere)), self.informative)
        everywhere[others] = sizes.argmax() if len(sizes) else -1
        return everywhere, found

    def __getstate__(self):
        return {**vars(self), "X": None, "described": {}}

    def make_prior(self, concentration):
        """The prior over partitions of the rows with this concentration."""
        return self.model.make_prior(self.n_samples, concentration)

    def prior_of(self, draws, draw):
        """The prior over partitions in a scored draw."""
        at = draw["chain"], draw["draw"]
        prior = self.make_prior(float(draws["concentration"][at]))
        prior.set_latent({name: draws[name][at] for name in prior.latent})
        return prior

    def recall(self, X=None):
        """The rows of the fit: X, or the rows kept since.

        Raises ValueError if no rows are kept, or the rows are not those of the fit.
        """
        if X is None and self.X is None:
            raise ValueError("the rows of fit are not pickled with the estimator: pass them as X")
        if X is None and self.copies is not None:
            return self.X  # an array of our own, which did not change
        again = self.X if X is None else X
        if fingerprint(again) != self.key:
            raise ValueError(
                "X must be the rows of fit"
                if X is not None
                else "the array passed to fit has changed since: pass the rows of fit as X"
            )
        self.X = again if self.copies is None else again[self.copies.first]
        return self.X

    def places(self, rows):
        """Positions in X of rows of `fit`, given by their positions there."""
        return rows if self.copies is None else self.copies.of_row[rows]

    def different(self, values):
        """Values of different rows, from those of all rows of `fit`, on the last axis."""
        return values if self.copies is None else values[..., self.copies.first]

    def encoded(self, likelihood):
        """Encoded rows and tables for kernels of a likelihood."""
        X = self.X
        if not sp.issparse(X):
            X = np.ascontiguousarray(X, dtype=np.float64)
        data = likelihood.encode(X)
        return data, likelihood.tables(data, X.shape[0])

    def statistics(self, likelihood, labels):
        """Statistics of the clusters 0, ..., K - 1 of any labels: (K, n_stats)."""
        return next(self._states(likelihood, [(labels, self.completion)])).dump()

    def statistics_of_each(self, likelihood, draws, scored):
        """Yield the statistics of the clusters of each of some scored draws."""
        for state in self._states(likelihood, _partitions(draws, scored)):
            yield state.dump()

    def statistics_without(self, likelihood, draws, scored, rows):
        """Yield, for each of some scored draws, the statistics of the cluster of each row without
        the row: (n_rows, n_stats)."""
        for state in self._states(likelihood, _partitions(draws, scored)):
            yield statistics_without(state, rows)

    def _states(self, likelihood, partitions):
        """Yield a state of the rows for each pair of labels and values of missing entries."""
        data, tables = self.encoded(likelihood)
        for labels, completion in partitions:
            model = likelihood.bind(data, tables)
            yield MixtureState(model, self.make_prior(1.0), labels, completion=completion)

    def log_leave_one_out(self, likelihood, draws, n_jobs=None):
        """log p(x_i | all other rows, their partition and the hyperparameters of a draw), natural
        logarithm, under the draws of `draws.scored`: (n_draws, n_samples)."""
        left_out = likelihood.left_out
        of_left_out = 0.0 if left_out is None else left_out.log_density(self.X)
        likelihood = self.known.restricted(likelihood)
        data, tables = self.encoded(likelihood)
        noise = self.noise_law.of(likelihood.as_seen(self.X), self.known)

        def of_draw(draw):
            model = likelihood.bind(data, tables)
            likelihood.set_values(model, draw["values"])
            prior = self.prior_of(draws, draw)
            labels, completion = next(_partitions(draws, [draw]))
            state = MixtureState(model, prior, labels, completion=completion, noise=noise)
            return log_leave_one_out(state) + of_left_out

        return np.array(
            joblib.Parallel(n_jobs=n_jobs, require="sharedmem")(
                joblib.delayed(of_draw)(draw) for draw in draws.scored.draws
            )
        )


def of_all_rows(values, copies):
    """Values of all rows of `fit`, from those of the different ones, on the last axis."""
    return values if copies is None else values[..., copies.of_row]


def informative_rows(likelihood, known, X):
    """Positions of the rows of `fit` of which something is known; None if there are no others, or
    if there are only others."""
    is_known = ~likelihood.uninformative(X)
    is_known[known.rows] = True
    return None if is_known.all() or not is_known.any() else np.flatnonzero(is_known)


def _partitions(draws, scored):
    """Yield the labels of scored draws and their values of missing entries, or None."""
    for draw in scored:
        yield draws["labels"][draw["chain"], draw["draw"]], draw.get("completion")


def outlier_scores(log_densities, weights):
    """-log p(x_i | all other rows): (n_samples,). `log_densities` has log p(x_i | others, z) under
    draws of the posterior given all rows, (n_draws, n_samples), whose weights sum to 1.

    The posterior of the partition z and the hyperparameters given the other rows is p(z | all
    rows) times a constant over p(x_i | others, z). So 1 / p(x_i | others) is the mean of 1 / p(x_i
    | others, z) over the draws: the conditional predictive ordinate of Gelfand, Dey & Chang
    (1992). The mean is uncertain if few draws dominate it. The terms are bounded, because x_i may
    always begin a new cluster: p(x_i | others, z) is at least the probability of this times the
    density of x_i in a new cluster.
    """
    return logsumexp(-log_densities, axis=0, b=weights[:, None])
