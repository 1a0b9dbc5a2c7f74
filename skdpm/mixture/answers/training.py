# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit, for what is asked of them once it is over."""

import joblib
import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from skdpm._validation import fingerprint
from skdpm.draws import column_of
from skdpm.mixture.answers._leave_one_out import log_leave_one_out
from skdpm.mixture.answers.peaks import fuse_to_peaks
from skdpm.mixture.likelihoods.base import set_hyperparameters
from skdpm.mixture.state._state import MixtureState

# Draws whose clusters are counted: each takes about as long as the point estimate.
MOST_READ = 40


class TrainingRows:
    """The rows of a fit. They are not copied, and not pickled: whoever has them gives them again.

    Nor are they kept encoded, which takes memory again and little time.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Validated.
    key : object
        `fingerprint` of X, which has its shape.
    model : BaseMixture
        With the parameters of the fit, not fitted.
    entropy : int
        Of the random streams of the fit.
    """

    def __init__(self, X, key, model, entropy):
        self.X = X
        self.key = key
        self.model = model
        self.entropy = entropy

    def __getstate__(self):
        return {**vars(self), "X": None}

    def make_prior(self, concentration):
        """The prior over partitions of the rows, at a concentration."""
        return self.model.make_prior(self.key[0][0], concentration)

    def recall(self, X=None):
        """The rows, given again or as they were kept.

        Raises
        ------
        ValueError
            Where they are gone, or are not those of the fit.
        """
        if X is None and self.X is None:
            raise ValueError("the rows of fit are not pickled with the estimator: give them as X")
        again = self.X if X is None else X
        if fingerprint(again) != self.key:
            raise ValueError(
                "X must be the rows of fit"
                if X is not None
                else "the rows of fit have changed since: give those of the fit as X"
            )
        self.X = again
        return again

    def encoded(self, likelihood):
        """The rows as kernels of a likelihood need them: data and tables."""
        X = self.X
        if not sp.issparse(X):
            X = np.ascontiguousarray(X, dtype=np.float64)
        data = likelihood.encode(X)
        return data, likelihood.tables(data, X.shape[0])

    def statistics(self, likelihood, labels):
        """Statistics of the clusters 0, ..., K - 1 of any labels: (K, n_stats)."""
        model = likelihood.bind(*self.encoded(likelihood))
        return MixtureState(model, self.make_prior(1.0), labels.astype(np.intp)).dump()

    def count_peaks(self, likelihood, draws, log_density):
        """Number of clusters of draws, after components on the slope of one peak are fused.

        Parameters
        ----------
        likelihood : Likelihood
            Resolved.
        draws : ndarray of int of shape (n_chains, n_draws, n_samples)
            Partitions into components.
        log_density : callable
            Predictive density, averaged over the draws.

        Returns
        -------
        n_clusters : ndarray of int64 of shape (n_chains, n_read_draws)
            Evenly spaced draws, `MOST_READ` of all chains at most.
        """
        n_chains, n_draws = draws.shape[:2]
        n_read = min(n_draws, max(MOST_READ // n_chains, 1))
        chosen = np.linspace(n_draws - 1, 0, n_read).round().astype(int)[::-1]
        pooled = draws.reshape(-1, draws.shape[-1])

        def count(labels):
            centres = likelihood.centres(self.statistics(likelihood, labels))
            return fuse_to_peaks(labels, pooled, centres, log_density).max() + 1

        return np.array([[count(chain[d]) for d in chosen] for chain in draws], dtype=np.int64)

    def log_leave_one_out(self, likelihood, draws, n_jobs=None):
        """log p(x_i | all other rows, a draw's partition of them and what it has learned).

        Parameters
        ----------
        likelihood : Likelihood
            Resolved.
        draws : Draws
        n_jobs : int or None
            Threads.

        Returns
        -------
        log_densities : ndarray of shape (n_draws, n_samples)
            Of `draws.scored`.
        """
        data, tables = self.encoded(likelihood)

        def of_draw(draw):
            at = draw["chain"], draw["draw"]
            model = likelihood.bind(data, tables)
            values = {name: draws[column_of(name)][at] for name in draw["values"]}
            if values:
                set_hyperparameters(model, likelihood.at(values))
            prior = self.make_prior(float(draws["concentration"][at]))
            state = MixtureState(model, prior, draws["labels"][at].astype(np.intp))
            return log_leave_one_out(state)

        return np.array(
            joblib.Parallel(n_jobs=n_jobs, require="sharedmem")(
                joblib.delayed(of_draw)(draw) for draw in draws.scored.draws
            )
        )


def outlier_scores(log_densities, weights):
    """-log p(x_i | all other rows), from draws of the posterior given all rows.

    What the others say of their partition z and of hyperparameters is p(z | all), up to the factor
    1 / p(x_i | others, z). So 1 / p(x_i | others) is the mean of this factor over the draws, the
    conditional predictive ordinate of Gelfand, Dey & Chang (1992). Where it is large for few draws
    the mean is uncertain; as x_i itself is in no cluster here, and may always begin one, p(x_i |
    others, z) is at least the probability of that times its density then, and the factor bounded.

    Parameters
    ----------
    log_densities : ndarray of shape (n_draws, n_samples)
        log p(x_i | others, z).
    weights : ndarray of shape (n_draws,)
        Of the draws; they sum to 1.

    Returns
    -------
    scores : ndarray of shape (n_samples,)
    """
    return logsumexp(-log_densities, axis=0, b=weights[:, None])
