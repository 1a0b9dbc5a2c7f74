# SPDX-License-Identifier: BSD-3-Clause
"""`DPMixture` and `FiniteMixture`: mixtures by their prior over partitions."""

import functools

from skdpm._estimator import OTHER_NAMES
from skdpm._validation import check_integer, check_real, explains
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.priors import (
    DirichletProcessPrior,
    FiniteDirichletPrior,
    MixtureOfFiniteMixturesPrior,
    PitmanYorPrior,
)
from skdpm.mixture.priors._mixture_of_finite_mixtures import NAMES, tabulated_law

OTHER_NAMES_IN_MIXTURES = {
    **OTHER_NAMES,
    "covariance_type": 'it is one of the likelihood: likelihood=Gaussian(covariance_type="diag")',
}

NUMBER_IS_INFERRED = (
    "the number of clusters is inferred. For a given number, FiniteMixture(n_components=...); for "
    "fewer clusters in the estimate alone, estimate_labels(max_clusters=...)"
)


class DPMixture(BaseMixture):
    """Dirichlet process (or Pitman-Yor) mixture, sampled by MCMC over partitions.

    The model is partition ~ CRP(concentration, discount) and X | partition ~ `likelihood`, with
    the parameters of clusters integrated out. The number of clusters is not given but inferred.

    Parameters
    ----------
    likelihood : str or Likelihood, default="auto"
        What one cluster's data look like: an object of `skdpm.mixture.likelihoods`, or the name
        of one with its defaults, such as "gaussian" or "bernoulli" (`LIKELIHOODS` there has all).
        "auto": `Gaussian`, with more than 32 columns `Subspace` (scale columns that have no unit
        in common), which `likelihood_` tells; `Gaussian` in a `partial_fit` without a `fit`.
    sampler : str or Sampler, default="auto"
        How the posterior is explored: an object of `skdpm.mixture.samplers`, or the name of one
        with its defaults, such as "gibbs" (`SAMPLERS` there has all). "auto": Alternate,
        Gibbs sweeps and splits and merges of neighbouring clusters in turn; for 20,000 rows and
        more with the likelihood `Subspace`: SubCluster, where the prior has weights. Choose that
        for 100,000 rows and more of few columns as well. "smc": particles in place of Markov
        chains, for the evidence (`log_evidence_`) and for streams (`partial_fit`).
    concentration : float or None, default=None
        Of the process; larger values favour more clusters. None: resampled in every iteration
        under its prior. With a discount d it may be as low as -d, when it is fixed.
    concentration_prior : Hyperprior or tuple (shape, rate), default=(1.0, 1.0)
        Prior of a learned concentration (`concentration=None`): a family of `skdpm.hyperpriors`,
        or the shape and rate of a Gamma.
    discount : float, default=0.0
        Pitman-Yor discount, in [0, 1).
    n_warmup : int, default=250
        Iterations that are dropped; samplers adapt only in these.
    n_draws : int, default=250
        Draws kept, of each chain.
    thin : int, default=1
        Iterations per kept draw.
    n_chains : int, default=4
        Independent chains.
    n_jobs : int or None, default=None
        Threads, as in joblib: over chains first, then, with samplers that visit rows in blocks,
        over blocks; of predictions, over rows. The result does not depend on it.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        Where chains start. "auto": rows are cut into many pieces, by k-means or where that makes
        no sense by their density, and pairs of pieces merged while that raises the log joint
        density; where hyperparameters are learned, merging and learning take turns. Every chain
        has other pieces. (Of more than 20,000 rows so many are cut and merged, and the others join
        their clusters.) Otherwise one cluster, one per row, k-means with as many clusters as
        the prior expects, or the given labels.
    store_labels : bool, default=True
        False: `label_samples_` is not kept, and `point_estimate` must be "map" or "last".
    point_estimate : {"peaks", "vi", "binder", "map", "last"} or tuple, default="peaks"
        How `labels_` summarises the draws. "vi" and "binder": least posterior expected variation
        of information or Binder loss; as a tuple (name, split_cost), such as ("vi", 1.5), with
        another price of separating rows than 1 (`skdpm.partitions`): from 1 to 2 for fewer
        clusters, from 0 to 1 for more. "peaks": the "vi" estimate, with components fused if the
        predictive density has no valley between them; robust to clusters that do not follow the
        likelihood. It is the same as "vi" for all likelihoods except Gaussian, Subspace and a
        Product of these. "map": the draw of the largest log joint (plus log
        hyperprior of the concentration and of learned hyperparameters). "last": the last draw of
        the first chain (after an interruption, of the first of those with the fewest draws).
    max_time : float or None, default=None
        Seconds that a `fit` may take for sampling. When they are over, all chains stop with
        equally many draws, which `n_iter_` tells (`n_warmup` + `thin` times the draws); a fit
        with that number as `n_draws` and no limit has the same bits. Warm-up and a few draws are
        made in any case (with a warning if they take longer), and summaries of the draws come on
        top. Not with "smc".
    target_ess : float or None, default=None
        Chains stop early, all with equally many draws, when the bulk effective sample size of
        the log joint, the number of components and the concentration has reached this (and
        `n_draws` is the most they do). It is looked at after 50 draws of each chain, and again
        each time there are 10 % more. The same seed stops at the same draw. Not with "smc".
    warm_start : bool, default=False
        `fit` again with a larger `n_draws` continues the chains: 500 draws, then 1000, are one
        run of 1000 to the bit, also through a pickle. Not with "smc".
    random_state : int, RandomState, Generator or None, default=None
        Same seed, same draws.
    verbose : int, default=0
        1: a progress bar with the number of clusters and the log joint.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        The point estimate, numbered from 0 by decreasing cluster size. After `partial_fit`: of the
        rows of the last call, numbered by the sizes of all rows seen.
    n_clusters_ : int
        Clusters of the point estimate.
    probabilities_ : ndarray of shape (n_samples,)
        How surely each row belongs with its cluster of `labels_`: the probability that it shares a
        cluster with another row of that, on average over these; of a cluster of one row, the
        probability that it is one. Not after `partial_fit`, nor with ``store_labels=False``.
    outlier_scores_ : ndarray of shape (n_samples,)
        -log p(row given all other rows), natural logarithm: the larger, the less the others would
        have led one to expect it. A row that is a cluster of its own has no part in its score, as
        it has in `score_samples`. Where `probabilities_` are; computed when it is first asked
        for, from the rows of `fit`, which are not pickled: see `pointwise_log_likelihood`.
    label_samples_ : ndarray of shape (n_chains, n_draws, n_samples), unsigned int
        Every kept partition, clusters numbered by first appearance.
    n_components_samples_ : ndarray of shape (n_chains, n_draws), int64
        Number of components that hold rows.
    n_clusters_samples_ : ndarray of shape (n_chains, n_read_draws), int64
        Number of clusters of draws, read as `labels_` is: with "peaks" those of 40 draws after
        their components are fused, else `n_components_samples_`. Computed on first use; with
        "peaks" this needs the rows of `fit`, which are not pickled.
    concentration_samples_ : ndarray of shape (n_chains, n_draws)
    log_joint_samples_ : ndarray of shape (n_chains, n_draws)
        log p(partition given the concentration) + log p(X given the partition), both normalised,
        natural logarithm.
    hyperparameter_samples_ : dict of str to ndarray of shape (n_chains, n_draws, ...)
        Draws of the likelihood's hyperparameters that are learned; empty where none is.
    draws_ : Draws
        All of these: a mapping, name -> array of shape (n_chains, n_draws, ...), among them
        "log_joint", "concentration", "n_components", "labels" and, for a learned hyperparameter
        such as shape, ``"likelihood__shape"``.
    weights_ : ndarray of shape (`n_clusters_`,)
        Posterior mean weights of the clusters of `labels_`. They sum to less than 1: the rest is
        the mass of clusters not seen yet.
    cluster_params_ : dict of ndarrays, first axis `n_clusters_`
        Posterior means of their parameters; which ones depends on the likelihood. Of a `Product`,
        a dict of those of each part.
    diagnostics_ : dict
        For "log_joint", "n_components" and whatever is learned, "concentration" and
        hyperparameters, a dict of "r_hat" (rank-normalised split R-hat), "ess_bulk" and
        "ess_tail" (effective numbers of draws) and "mcse_mean" (standard error of the mean); for
        "coclustering", where labels are kept, "r_hat" and "ess_bulk" of the partitions
        (`skdpm.diagnostics`). With "smc" and several chains only "r_hat" of the former, and
        "log_evidence" has "std", the standard deviation of `log_evidence_chains_`.
    converged_ : bool
        False where `fit` warns that chains disagree: an R-hat is above 1.05 (with one chain, of
        100 draws or more), or the standard deviation above 1. True says that no such sign was
        seen.
    log_evidence_ : float
        Only with "smc", as the next three: log p(X), partitions, parameters and what is learned
        integrated out, all constants included; natural logarithm. The logarithm of the mean of
        unbiased estimates, one from each chain. After `partial_fit`: of all rows seen.
    log_evidence_chains_ : ndarray of shape (n_chains,)
        The logarithm of each.
    effective_sample_size_ : ndarray of shape (n_chains,)
        Of the particles' final weights: from 1 to `SMC.n_particles`.
    n_samples_seen_ : int
        Rows of `fit` and of all calls of `partial_fit` since.
    acceptance_rate_ : dict of str to ndarray of shape (n_chains,)
        After warm-up, for each kind of move of the sampler, the share of moves accepted; for
        "pgsm", which needs no acceptance step, of moves that changed the partition. NaN where
        none was made; empty for "gibbs".
    likelihood_ : Likelihood
        With all defaults made concrete, and learned hyperparameters at their posterior means.
    sampler_ : Sampler
        The one that "auto" stands for.
    n_iter_ : int
        Iterations of each chain, warm-up included; with "smc" rows.
    fit_time_ : float
        Seconds that `fit` took, those of the fits that it has continued, and of calls of
        `partial_fit` since, included.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Where X has feature names that are all strings.

    References
    ----------
    Neal (2000), Markov chain sampling methods for Dirichlet process mixture models.
    Escobar & West (1995), Bayesian density estimation and inference using mixtures.
    Pitman & Yor (1997), The two-parameter Poisson-Dirichlet distribution.
    Dahl, Johnson & Mueller (2022), Search algorithms and loss functions for Bayesian clustering.
    Hennig (2010), Methods for merging Gaussian mixture components.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> DPMixture(random_state=0).fit(X).labels_.tolist() == [0] * 10 + [1] * 10
    True
    """

    @explains(
        n_components=NUMBER_IS_INFERRED, n_clusters=NUMBER_IS_INFERRED, **OTHER_NAMES_IN_MIXTURES
    )
    def __init__(
        self,
        *,
        likelihood="auto",
        sampler="auto",
        concentration=None,
        concentration_prior=(1.0, 1.0),
        discount=0.0,
        n_warmup=250,
        n_draws=250,
        thin=1,
        n_chains=4,
        n_jobs=None,
        init="auto",
        store_labels=True,
        point_estimate="peaks",
        max_time=None,
        target_ess=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.likelihood = likelihood
        self.sampler = sampler
        self.concentration = concentration
        self.concentration_prior = concentration_prior
        self.discount = discount
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thin = thin
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.init = init
        self.store_labels = store_labels
        self.point_estimate = point_estimate
        self.max_time = max_time
        self.target_ess = target_ess
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def make_prior(self, n_samples, concentration):
        """Make the prior over partitions, as in `BaseMixture`."""
        discount = check_real(self.discount, "discount", low=0.0, high=1.0, closed=True)
        if discount == 0.0:
            return DirichletProcessPrior(n_samples, concentration)
        return PitmanYorPrior(n_samples, concentration, discount)


class FiniteMixture(BaseMixture):
    """Mixture with symmetric Dirichlet weights of a given, or an unknown, number of components.

    The model is weights ~ Dirichlet(concentration / n_components, ...), labels ~ weights and X |
    labels ~ `likelihood`, with weights and parameters integrated out, sampled by MCMC over
    partitions. As `n_components` grows it tends to `DPMixture` with the same concentration.

    With `n_components=None` the number of components is unknown and has a prior, a mixture of
    finite mixtures: n_components ~ `n_components_prior`, weights ~ Dirichlet(concentration, ...).
    The number is integrated out too, and so are weights: choose a sampler that draws none.

    Parameters
    ----------
    n_components : int or None, default=10
        Components, of which some may stay empty. None: unknown.
    n_components_prior : {"poisson", "geometric"} or callable, default="poisson"
        Where `n_components` is None, and ignored elsewhere. "poisson": n_components - 1 has a
        Poisson law with mean 1. "geometric": probability 0.1 of each component to be the last, a
        mean of 10. A callable gives log p(K), normalised, of an int array of K = 1, 2, ...
        (faster) or of one K; -inf where K is impossible. It is evaluated until hardly any
        probability is left, and laws whose tails are too heavy for that are refused.
    likelihood, sampler
        As in `DPMixture`.
    concentration : float or None, default=None
        The total: each component has concentration / n_components. Where `n_components` is None
        it is that of each component. None: resampled in every iteration under its prior, from 1.
    concentration_prior, n_warmup, n_draws, thin, n_chains, n_jobs
        As in `DPMixture`.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        As in `DPMixture`; more clusters than there can be components are refused.
    store_labels, point_estimate, max_time, target_ess, warm_start, random_state, verbose
        As in `DPMixture`.

    Attributes
    ----------
    labels_, label_samples_, concentration_samples_, log_joint_samples_
        As in `DPMixture`.
    n_clusters_ : int
        Clusters in use in `labels_`; components may be more.
    n_components_samples_ : ndarray of shape (n_chains, n_draws), int64
        Clusters in use in each draw.
    weights_ : ndarray of shape (`n_clusters_`,)
        Posterior mean weights of the clusters of `labels_`. They sum to less than 1 where
        components are, or may be, empty: the rest is theirs.
    cluster_params_, diagnostics_, converged_, acceptance_rate_, likelihood_, sampler_, n_iter_, \
fit_time_, n_features_in_, feature_names_in_
        As in `DPMixture`.

    References
    ----------
    Miller & Harrison (2018), Mixture models with a prior on the number of components.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm import FiniteMixture
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> FiniteMixture(n_components=2, random_state=0).fit(X).n_clusters_
    2
    """

    @explains(n_clusters="its name is n_components", **OTHER_NAMES_IN_MIXTURES)
    def __init__(
        self,
        n_components=10,
        *,
        n_components_prior="poisson",
        likelihood="auto",
        sampler="auto",
        concentration=None,
        concentration_prior=(1.0, 1.0),
        n_warmup=250,
        n_draws=250,
        thin=1,
        n_chains=4,
        n_jobs=None,
        init="auto",
        store_labels=True,
        point_estimate="peaks",
        max_time=None,
        target_ess=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.n_components_prior = n_components_prior
        self.likelihood = likelihood
        self.sampler = sampler
        self.concentration = concentration
        self.concentration_prior = concentration_prior
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thin = thin
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.init = init
        self.store_labels = store_labels
        self.point_estimate = point_estimate
        self.max_time = max_time
        self.target_ess = target_ess
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def make_prior(self, n_samples, concentration):
        """Make the prior over partitions, as in `BaseMixture`."""
        if self.n_components is not None:
            n_components = check_integer(self.n_components, "n_components", low=1, high=2**53)
            return FiniteDirichletPrior(n_samples, concentration, n_components)
        law = self.n_components_prior
        if callable(law):
            law = _tabulated(law, n_samples)
        elif not (isinstance(law, str) and law in NAMES):
            raise ValueError(
                f"n_components_prior must be one of {', '.join(sorted(NAMES))}, or a function "
                f"that gives log p(K); got {law!r}"
            )
        return MixtureOfFiniteMixturesPrior(n_samples, concentration, law)


# A prior is made for every chain, again and again; the law is evaluated once.
_tabulated = functools.lru_cache(maxsize=8)(tabulated_law)
