# SPDX-License-Identifier: BSD-3-Clause
"""The estimators `DPMixture` and `FiniteMixture`, which differ in the prior over partitions."""

import functools

from skdpm._estimator import OTHER_NAMES
from skdpm._validation import check_bool, check_integer, check_real, explains
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.priors import (
    DirichletProcessPrior,
    DynamicFiniteMixturesPrior,
    FiniteDirichletPrior,
    MixtureOfFiniteMixturesPrior,
    PitmanYorPrior,
)
from skdpm.mixture.priors._mixture_of_finite_mixtures import NAMED_LAWS, tabulated_law

OTHER_NAMES_IN_MIXTURES = {
    **OTHER_NAMES,
    "covariance_type": 'set it in the likelihood: likelihood=Gaussian(covariance_type="diag")',
}

NUMBER_IS_INFERRED = (
    "the number of clusters is inferred. Use FiniteMixture(n_components=...) for a given number, "
    "or estimate_labels(max_clusters=...) for fewer clusters in the estimate alone"
)


class DPMixture(BaseMixture):
    """Dirichlet process (or Pitman-Yor) mixture, sampled by MCMC over partitions.

    The model is partition ~ CRP(concentration, discount) and X | partition ~ `likelihood`. The
    parameters of clusters are integrated out. The number of clusters is inferred.

    Parameters
    ----------
    likelihood : str or Likelihood, default="auto"
        Law of the rows of one cluster: an object of `skdpm.mixture.likelihoods`, or the name of a
        class with default parameters, such as "gaussian" or "bernoulli" (all names are in
        `LIKELIHOODS` there). "auto": `Gaussian`, or `Subspace` for more than 32 columns (scale
        columns with different units). `likelihood_` shows the choice. A `partial_fit` without a
        `fit` uses `Gaussian`.
    sampler : str or Sampler, default="auto"
        Algorithm that explores the posterior: an object of `skdpm.mixture.samplers`, or the name
        of a class with default parameters, such as "gibbs" (all names are in `SAMPLERS` there).
        "auto": `Alternate`, which alternates Gibbs sweeps with splits and merges of neighbouring
        clusters. With many rows it is `SubCluster` if the prior has weights: under a Gaussian with
        full covariances and a `Product` of several parts from 10,000 rows on if X has at least
        100,000 entries, and under `Subspace` from 20,000 rows on. `sampler_` shows the choice.
        "smc": particles in place of Markov chains, for the evidence (`log_evidence_`) and streams
        (`partial_fit`).
    concentration : float or None, default=None
        Concentration of the process; larger values favour more clusters. None: it is resampled
        in every iteration under its prior. A fixed one may be as low as minus the discount.
    concentration_prior : Hyperprior or tuple (shape, rate), default=(1.0, 1.0)
        Prior of a learned concentration (`concentration=None`): a family of `skdpm.hyperpriors`,
        or the shape and rate of a Gamma.
    discount : float, default=0.0
        Pitman-Yor discount, in [0, 1).
    noise : None, True or tuple (a, b), default=None
        Prior of noise, rows that are in no cluster: a row is noise with a probability that has the
        law Beta(a, b). True: (1, 49). None: no row is noise. The law of noise does not depend on
        clusters: uniform on a box around the rows, 1.05 times the range of each column; the
        negative binomial law with mean and variance of a column of counts; the shares of a column
        of categories; the shares of all words for `Multinomial`; uniform on the sphere for
        `VonMisesFisher`. A new row outside the range of the rows of `fit` is noise if it is far
        from all clusters: see the notes. `impute`, `predict_columns` and ``sample(given=...)`` are
        about rows that are no noise. `partial_fit` keeps the law of
        its first call, or of `fit`: start it with rows that span the data. Not with known labels,
        selected columns, tails, dask arrays in `fit`, `Grid`, `PyClone`, networks or
        ``store_labels=False``.
    n_warmup : int or "auto", default="auto"
        Number of initial iterations that are dropped. Samplers adapt only during these. "auto": 50
        to 250, until the chains have settled; 100 for `SubCluster` and `BlockedGibbs`.
        `n_warmup_` shows the number.
    n_draws : int or "auto", default="auto"
        Number of kept draws per chain. "auto": 100 to 250 (at most 150 for `SubCluster` and
        `BlockedGibbs`), until partitions, number of components and density of the rows are known
        well enough. With `target_ess` at most 2500. A fit with ``n_warmup=n_warmup_`` and this
        number of draws gives the same bits.
    thin : int, default=1
        Number of iterations per kept draw.
    n_chains : int, default=4
        Number of independent chains.
    n_jobs : int or None, default=None
        Number of threads, as in joblib. Fits divide chains among them, and then blocks of rows if
        the sampler has blocks; predictions divide rows. The result does not depend on it.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        Start of the chains. "auto": rows are cut into many pieces, by k-means or otherwise by
        their density, and pairs of pieces are merged while the log joint density rises; merging
        alternates with learning of hyperparameters. Each chain starts from different pieces.
        With more than 20,000 rows a random sample of that size is used, and the other rows join
        its clusters. Otherwise one cluster, one cluster per row, k-means with the number of
        clusters that the prior expects, or the given labels.
    store_labels : bool, default=True
        Whether `label_samples_` is kept, which takes n_chains * n_draws * n_samples bytes, or
        twice that from 256 components on. Without it, `point_estimate` must be "auto", "map" or
        "last".
    point_estimate : {"auto", "modal", "vi", "binder", "map", "last"} or tuple, default="auto"
        Summary of the draws by `labels_`. "auto": "modal" if label draws are kept, otherwise
        "map", as for a dask array, with ``store_labels=False`` and in streams. "vi" and "binder":
        the partition with the least posterior expected variation of information or Binder loss. A
        tuple (name, split_cost), such as ("vi", 1.5), sets the cost of separating rows
        (`skdpm.partitions`): 1 to 2 for fewer clusters, 0 to 1 for more. "modal": clusters are
        hills of the density, which may have any shape; the components of a draw form one cluster
        if the rows support no valley between them. It differs from "vi" only for Gaussian,
        Subspace and a Product of these. "map": the draw with the largest log joint (plus the log
        hyperpriors). "last": the last draw of the first chain (after an interruption, of the first
        chain among those with the fewest draws).
    max_time : float or None, default=None
        Limit of the time of `fit` in seconds, with start, warm-up and summaries. If it is short,
        the warm-up is shortened too, to its share of the iterations or half of the time, with a
        warning. All chains stop after the same number of draws, see `n_warmup_` and `n_iter_`
        (`n_warmup_` + `thin` times the draws). A fit without limit and with these numbers gives
        the same bits. The start, one iteration and one draw are always completed. Not with
        "smc".
    target_ess : float or None, default=None
        Bulk effective sample size of the log joint, the number of components and the
        concentration at which all chains stop, after the same number of draws and at most
        `n_draws`. It is computed after 50 draws of each chain and then after every 10 % more. The
        same seed stops at the same draw. Not with "smc".
    warm_start : bool, default=False
        Whether `fit` with a larger `n_draws` continues the chains of the last fit. 500 draws, then
        1000, give the bits of one run of 1000, also after pickling. Not with "smc".
    random_state : int, RandomState, Generator or None, default=None
        Seed. The same seed gives the same draws.
    verbose : int, default=0
        Whether to show a progress bar with the number of clusters and the log joint.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        Point estimate, numbered from 0 by decreasing cluster size. After `partial_fit`: clusters
        of the rows of the last call, numbered by their sizes among all rows seen. With `noise`,
        -1 for a row that is more probably noise than in its cluster. Clusters are read off the
        rows of which something is known; rows without any known entry, and empty documents, join
        the largest cluster. Copies of rows (see `Gaussian`) have their labels and do not count
        in sizes.
    noise_probabilities_ : ndarray of shape (n_samples,)
        Probability that a row is noise, the share of draws in which it is. Only with `noise`.
        After `partial_fit`: of the rows of the last call, by the weights of the particles.
    classes_ : ndarray of shape (`n_clusters_`,), int64
        Clusters of `labels_` after a fit with `known_labels`: the known classes in increasing
        order, then the numbers of new clusters, counted on from the last class. Rows with a known
        label have it in `labels_`.
    n_clusters_ : int
        Number of clusters of `labels_`.
    probabilities_ : ndarray of shape (n_samples,)
        Probability that a row shares a cluster with another row of its cluster in `labels_`,
        averaged over these rows; for a cluster of one row, the probability that it is alone. With
        known labels, the probability of its class for a row that has one. The probability of
        noise for a row with the label -1. For a row of which nothing is known, the weight of its
        cluster. Not after `partial_fit`, nor with ``store_labels=False``.
    outlier_scores_ : ndarray of shape (n_samples,)
        -log p(row given all other rows), natural logarithm. A larger score means a more surprising
        row. Unlike `score_samples`, the score of a row is not affected by the row itself. For a
        row with missing entries it is the expected score of the completed row: that of its known
        entries plus the mean of -log p(missing entries given these) over 30 completions, drawn as
        by `impute`. So it can be compared with other scores; not with `PyClone`, `Grid` and
        networks, which have no law of missing entries. The same `random_state` gives the same
        bits. Available whenever `probabilities_` is. Computed on first use from the rows of `fit`,
        which are not pickled: see `pointwise_log_likelihood`.
    label_samples_ : ndarray of shape (n_chains, n_draws, n_samples), unsigned int
        Kept partitions, clusters numbered by first appearance. With `noise`, signed int, -1 for
        rows that are noise.
    n_components_samples_ : ndarray of shape (n_chains, n_draws), int64
        Number of components that hold rows.
    cluster_samples_ : ndarray of shape (n_chains, n_read_draws, n_samples), unsigned int
        Draws of the clusters, which `labels_` summarises. With "modal": clusters of 40 evenly
        spaced draws, from 0 by decreasing size; fewer draws if they have more than 500
        components. Otherwise `label_samples_`. With known labels, components with rows of a
        class are one cluster, and cluster k is that of ``classes_[k]`` if this is a known class.
        Available whenever `probabilities_` is.
    n_clusters_samples_ : ndarray of shape (n_chains, n_read_draws), int64
        Number of clusters of the draws `cluster_samples_`.
    concentration_samples_ : ndarray of shape (n_chains, n_draws)
        Draws of the concentration.
    log_joint_samples_ : ndarray of shape (n_chains, n_draws)
        log p(partition given the concentration) + log p(X given the partition), both normalised,
        natural logarithm. With `noise`, a partition tells which rows are noise too.
    hyperparameter_samples_ : dict of str to ndarray of shape (n_chains, n_draws, ...)
        Draws of the learned hyperparameters of the likelihood.
    relevance_ : ndarray of shape (n_features,)
        Probability of each column to be in the clustering; NaN for a column in no part. Only with
        the likelihood ``Product(select=True)``.
    draws_ : Draws
        All draws, a mapping from names to arrays of shape (n_chains, n_draws, ...), such as
        "log_joint", "concentration", "n_components", "labels", with `noise` "n_noise", the number
        of rows that are noise, and, for a learned hyperparameter `shape`, ``"likelihood__shape"``.
    weights_ : ndarray of shape (`n_clusters_`,)
        Posterior mean weights of the clusters of `labels_`. They sum to less than 1; the rest is
        the weight of clusters without rows, and of noise.
    cluster_params_ : dict of ndarrays, first axis `n_clusters_`
        Posterior means of the parameters of these clusters, which depend on the likelihood. For a
        `Product`, a dict for each part. If chains drew missing entries (full and tied
        covariances), these are the parameters of rows that one draw completed; `describe` averages
        over draws.
    part_columns_ : dict of ndarrays
        For a `Product`: columns of each part, in the order of the arrays in `cluster_params_`.
        Names if the columns of X have names, otherwise positions.
    diagnostics_ : dict
        "r_hat" (rank-normalised split R-hat), "ess_bulk" and "ess_tail" (effective sample sizes)
        and "mcse_mean" (standard error of the mean) of "log_joint", "n_components",
        "concentration", learned hyperparameters and "log_density", the mean log density of up to
        500 rows of `fit` under the draws that score new rows. There "difference_chains" is the
        largest difference between the means of two chains, in nats per column, minus 5 / n_samples
        (chance), at least 0. "log_joint" also has "below_highest": how far the lowest chain stays
        below the highest, in standard deviations within chains of at least a nat. "coclustering",
        the partitions, has "r_hat", "ess_bulk" (`skdpm.diagnostics`), "ari_between" and
        "ari_within": the mean adjusted Rand index of two draws of `cluster_samples_` from
        different chains and from the same chain. It needs labels.
        With "smc" and several chains, only "r_hat", and "log_evidence" has "std", the standard
        deviation of `log_evidence_chains_`.
    converged_ : bool
        Whether `fit` saw no sign that `labels_` or densities cannot be used, or that chains stay
        at different levels. They can be used if R-hat of "coclustering" and "log_density" is at
        most 1.05, or else if "ari_between" is at most 0.05 smaller than "ari_within" and
        "difference_chains" at most 0.05. Levels differ if R-hat of "log_joint" is above 1.05 and
        "below_highest" above 5. With ``store_labels=False``, "n_components" counts in place of
        "coclustering"; with "smc", every R-hat and a standard deviation of the log evidence above
        1. A single chain is judged by its halves, if it has 100 draws or more.
    log_evidence_ : float
        log p(X), natural logarithm, all constants included; partitions, parameters and learned
        quantities are integrated out. The logarithm of the mean of unbiased estimates, one per
        chain. After `partial_fit`: of all rows seen. Only with "smc", like the next three.
    log_evidence_chains_ : ndarray of shape (n_chains,)
        Logarithms of the estimates.
    effective_sample_size_ : ndarray of shape (n_chains,)
        Effective sample size of the final weights of the particles: from 1 to `SMC.n_particles`.
    n_samples_seen_ : int
        Number of rows of `fit` and of all later calls of `partial_fit`.
    acceptance_rate_ : dict of str to ndarray of shape (n_chains,)
        Share of accepted moves after warm-up, for each kind of move of the sampler; for "pgsm",
        which needs no acceptance step, share of moves that changed the partition. NaN if no move
        was made. Empty for "gibbs".
    likelihood_ : Likelihood
        Likelihood with concrete values of all parameters; learned hyperparameters are at their
        posterior means.
    sampler_ : Sampler
        Sampler of the fit; shows the choice of "auto".
    n_iter_ : int
        Number of iterations of each chain, warm-up included; with "smc", number of rows.
    n_warmup_ : int
        Number of warm-up iterations of each chain; 0 with "smc".
    fit_time_ : float
        Seconds of `fit`, of the fits that it continued and of later calls of `partial_fit`.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X has names that are all strings.

    Notes
    -----
    With `noise`, a new row may be outside the box of the rows of `fit`. In each column noise then
    has the density of the edge times (1 - f) / m^21 + f / (m (1 + log m)^2), where m is the
    distance from the middle in halves of the interval, and f = 2 / (n + 1) for n values in `fit`:
    the probability with which a value is outside the range of n others. The sum decreases more
    slowly than the density of any cluster, so far rows are noise. To remain a density, it is
    divided by its integral, about 1.05 in each column, for all new rows. A count follows the other
    law with probability f / 2: P(x or more) = 1 / (1 + log(1 + x / (1 + largest in `fit`))).
    `sample` draws noise in the box.

    References
    ----------
    Neal (2000), Markov chain sampling methods for Dirichlet process mixture models.
    Escobar & West (1995), Bayesian density estimation and inference using mixtures.
    Pitman & Yor (1997), The two-parameter Poisson-Dirichlet distribution.
    Banfield & Raftery (1993), Model-based Gaussian and non-Gaussian clustering.
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
        noise=None,
        n_warmup="auto",
        n_draws="auto",
        thin=1,
        n_chains=4,
        n_jobs=None,
        init="auto",
        store_labels=True,
        point_estimate="auto",
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
        self.noise = noise
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
    """Mixture with symmetric Dirichlet weights of a given or unknown number of components.

    The model is weights ~ Dirichlet(concentration / n_components, ...), labels ~ weights and X |
    labels ~ `likelihood`. Weights and parameters are integrated out, and partitions are sampled
    by MCMC. As `n_components` grows, the model tends to `DPMixture` with the same concentration.

    With `n_components=None` the number of components has a prior, and the model is a mixture of
    finite mixtures: n_components ~ `n_components_prior`, weights ~ Dirichlet(concentration, ...).
    The number is integrated out too, so samplers that draw weights cannot be used. With
    `dynamic=True` the weights have the law Dirichlet(concentration / n_components, ...), and the
    number is drawn in every iteration (telescoping). Components then share the concentration, so
    many of a large number stay empty.

    Parameters
    ----------
    n_components : int or None, default=10
        Number of components, of which some may stay empty. None: unknown.
    n_components_prior : {"poisson", "geometric"} or callable, default="poisson"
        Prior of an unknown number of components. "poisson": n_components - 1 has a Poisson law
        with mean 1. "geometric": each component is the last one with probability 0.1; the mean is
        10. A callable returns the normalised log p(K) for an int array of K = 1, 2, ... (faster)
        or for one K; -inf if K is impossible. It is evaluated until hardly any probability is
        left; a law with tails too heavy for this raises an error. Ignored if `n_components` is
        given.
    likelihood, sampler
        As in `DPMixture`.
    concentration : float or None, default=None
        Total concentration: each component has concentration / n_components. If `n_components` is
        None and `dynamic` is False, concentration of each component. None: resampled in every
        iteration under its prior, starting from 1.
    dynamic : bool, default=False
        Whether `concentration` is a total also with `n_components=None`. Not with "smc".
    concentration_prior, noise, n_warmup, n_draws, thin, n_chains, n_jobs
        As in `DPMixture`.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        As in `DPMixture`. Labels may have at most `n_components` clusters.
    store_labels, point_estimate, max_time, target_ess, warm_start, random_state, verbose
        As in `DPMixture`.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters of `labels_`, at most `n_components`.
    weights_ : ndarray of shape (`n_clusters_`,)
        Posterior mean weights of the clusters of `labels_`. They sum to less than 1 if components
        are, or may be, empty; the rest is the weight of these.
    labels_, classes_, noise_probabilities_, probabilities_, outlier_scores_, label_samples_, \
n_components_samples_, n_clusters_samples_, concentration_samples_, log_joint_samples_, \
hyperparameter_samples_, relevance_, draws_, cluster_params_, part_columns_, diagnostics_, \
converged_, log_evidence_, log_evidence_chains_, effective_sample_size_, n_samples_seen_, \
acceptance_rate_, likelihood_, sampler_, n_iter_, n_warmup_, fit_time_, n_features_in_, \
feature_names_in_
        As in `DPMixture`. With `dynamic=True` `draws_` also has "total_components", the number of
        components, empty ones included.

    References
    ----------
    Miller & Harrison (2018), Mixture models with a prior on the number of components.
    Frühwirth-Schnatter, Malsiner-Walli & Grün (2021), Generalized mixtures of finite mixtures and
    telescoping sampling.

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
        dynamic=False,
        likelihood="auto",
        sampler="auto",
        concentration=None,
        concentration_prior=(1.0, 1.0),
        noise=None,
        n_warmup="auto",
        n_draws="auto",
        thin=1,
        n_chains=4,
        n_jobs=None,
        init="auto",
        store_labels=True,
        point_estimate="auto",
        max_time=None,
        target_ess=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.n_components_prior = n_components_prior
        self.dynamic = dynamic
        self.likelihood = likelihood
        self.sampler = sampler
        self.concentration = concentration
        self.concentration_prior = concentration_prior
        self.noise = noise
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
        check_bool(self.dynamic, "dynamic")
        if self.n_components is not None:
            n_components = check_integer(self.n_components, "n_components", low=1, high=2**53)
            return FiniteDirichletPrior(n_samples, concentration, n_components)
        law = self.n_components_prior
        if isinstance(law, str) and law in NAMED_LAWS:
            law = NAMED_LAWS[law] if self.dynamic else law
        elif not callable(law):
            raise ValueError(
                f"n_components_prior must be one of {', '.join(sorted(NAMED_LAWS))} or a function "
                f"that returns log p(K); got {law!r}"
            )
        if callable(law):
            law = _tabulated(law, n_samples)
        if self.dynamic:
            return DynamicFiniteMixturesPrior(n_samples, concentration, law)
        return MixtureOfFiniteMixturesPrior(n_samples, concentration, law)


# Every chain makes priors often; the law is evaluated once.
_tabulated = functools.lru_cache(maxsize=8)(tabulated_law)
