# SPDX-License-Identifier: BSD-3-Clause
"""The estimators `DPMixture` and `FiniteMixture`, which differ in the prior over partitions."""

import functools
from dataclasses import KW_ONLY

from skdpm._names import OF_DPMIXTURE, OF_MIXTURES
from skdpm._validation import check_bool, check_integer, check_real, explains, parameters
from skdpm.mixture import priors
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.priors._mixture_of_finite_mixtures import NAMED_LAWS, tabulated_law


@explains(**OF_DPMIXTURE)
@parameters
class DPMixture(BaseMixture):
    """Dirichlet process (or Pitman-Yor) mixture, sampled by MCMC over partitions.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(random_state=0).fit(X)
    >>> model.labels_.tolist() == [0] * 10 + [1] * 10
    True
    >>> model.predict_proba([[5.2]]).argmax(axis=1)
    array([1])

    The model is partition ~ CRP(concentration, discount) and X | partition ~ `likelihood`, with
    parameters of clusters integrated out. Details: the guide, "Parameters and attributes".

    Parameters
    ----------
    likelihood : str or Likelihood, default="auto"
        Law of the rows of one cluster: an object of `skdpm.mixture.likelihoods` or a name in its
        `LIKELIHOODS`; "auto": `Gaussian`, the best of some for many columns, categories for codes.
    sampler : str or Sampler, default="auto"
        Algorithm: an object of `skdpm.mixture.samplers` or a name in its `SAMPLERS`; "auto" is
        `Alternate`, or `SubCluster` for many rows.
    concentration : float or None, default=None
        Concentration, above minus the discount: larger values favour more clusters. None: learned.
    concentration_prior : Hyperprior or tuple (shape, rate), default=(1.0, 1.0)
        Prior of a learned concentration: a family of `skdpm.hyperpriors`, or a Gamma.
    discount : float, default=0.0
        Pitman-Yor discount, in [0, 1).
    noise : None, True or tuple (a, b), default=None
        Prior Beta(a, b) of the share of noise, rows in no cluster. True: (1, 49). None: no noise.
    n_warmup : int or "auto", default="auto"
        Number of initial iterations, which are dropped; "auto": 50 to 250.
    n_draws : int or "auto", default="auto"
        Number of kept draws per chain; "auto": 100 to 250, with `target_ess` up to 2500.
    thin : int, default=1
        Number of iterations per kept draw.
    n_chains : int, default=4
        Number of independent chains.
    n_jobs : int or None, default=None
        Number of threads, as in joblib; results do not depend on it.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        Start of the chains: pieces of the data, merged differently for each chain ("auto"), one
        cluster, one cluster per row, k-means, or labels.
    store_labels : bool, default=True
        Whether `label_samples_` is kept: n_chains * n_draws * n_samples bytes, or twice that.
    point_estimate : {"auto", "adaptive", "modal", "vi", "binder", "map", "last"} or tuple, \
default="auto"
        Summary of the draws by `labels_`: hills of the density ("modal"), or their components or
        basins where these are clusters ("adaptive"); components of least expected loss ("vi",
        "binder", or with a split cost ("vi", 1.5)); or a single draw ("map", "last"). "auto" is
        "adaptive", or "map" if label draws are not kept.
    max_time : float or None, default=None
        Limit of the time of `fit` in seconds; None: no limit. Not with "smc".
    target_ess : float or None, default=None
        Effective sample size at which all chains stop; None: they make `n_draws`. Not with "smc".
    warm_start : bool, default=False
        Whether `fit` with a larger `n_draws` continues the last fit, to the same bits as one long
        run. Not with "smc".
    random_state : int, RandomState, Generator or None, default=None
        Seed. The same seed gives the same draws.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        Point estimate, numbered from 0 by decreasing cluster size; -1 for noise.
    n_clusters_ : int
        Number of clusters of `labels_`.
    probabilities_ : ndarray of shape (n_samples,)
        Probability that a row shares a cluster with another row of its cluster in `labels_`.
    outlier_scores_ : ndarray of shape (n_samples,)
        `outlier_scores` of the rows, each without its share in its cluster; made on first use.
    noise_probabilities_ : ndarray of shape (n_samples,)
        Probability that a row is noise. Only with `noise`.
    classes_ : ndarray of shape (`n_clusters_`,), int64
        Clusters of `labels_` with `known_labels`: the classes, then new clusters.
    weights_, cluster_params_ : ndarray of shape (`n_clusters_`,) and dict of ndarrays
        Posterior mean weights, and parameters, of the clusters of `labels_`. For a `Product`, a
        dict for each part, whose columns are in `part_columns_`.
    label_samples_ : ndarray of shape (n_chains, n_draws, n_samples), int
        Kept partitions into components, numbered by first appearance; -1 for noise.
    cluster_samples_ : ndarray of shape (n_chains, n_read_draws, n_samples), int
        Draws of the clusters, which `labels_` summarises.
    n_components_samples_, n_clusters_samples_ : ndarray of shape (n_chains, n_draws), int64
        Numbers of components and of clusters of the draws.
    concentration_samples_, log_joint_samples_ : ndarray of shape (n_chains, n_draws)
        Draws of the concentration and of log p(X, partition given the concentration).
    hyperparameter_samples_ : dict of str to ndarray of shape (n_chains, n_draws, ...)
        Draws of the learned hyperparameters of the likelihood.
    draws_ : Draws
        All draws, a mapping from names to arrays of shape (n_chains, n_draws, ...).
    relevance_ : ndarray of shape (n_features,)
        Probability of each column to be in the clustering. Only with ``Product(select=True)``.
    diagnostics_ : dict
        R-hat, effective sample sizes and more, for each quantity (see `skdpm.diagnostics`).
    converged_ : bool
        Whether `labels_` and densities can be used, as far as chains agree. False where too few
        draws could be compared, or only one start led to the level of the chains.
    acceptance_rate_ : dict of str to ndarray of shape (n_chains,)
        Share of accepted moves after warm-up, for each kind of move.
    log_evidence_, log_evidence_chains_, effective_sample_size_, n_samples_seen_
        log p(X), its estimate by each chain, effective sample sizes of the particles, and number
        of rows. Only with "smc".
    likelihood_, sampler_ : Likelihood and Sampler
        Choices of the fit; learned hyperparameters are at their posterior means.
    likelihood_scores_ : dict of str to float
        Mean held-out log densities, in nats (of answers and counts, log probabilities), of laws
        tried, that of the fit first; -inf: it was ruled out, as one that needs more components for
        the same rows. Only of 8 columns, answers, counts, or floats of "mixed".
    n_iter_, n_warmup_, fit_time_ : int, int and float
        Numbers of iterations and of those in warm-up, and seconds of `fit`.
    n_features_in_, feature_names_in_ : int and ndarray
        Number of columns of X, and their names if all are strings.

    References
    ----------
    Neal (2000); Escobar & West (1995); Pitman & Yor (1997).
    """

    _: KW_ONLY
    discount: float = 0.0

    def make_prior(self, n_samples, concentration):
        """Make the prior over partitions, as in `BaseMixture`."""
        discount = check_real(self.discount, "discount", low=0.0, high=1.0, closed=True)
        if discount == 0.0:
            return priors.DirichletProcessPrior(n_samples, concentration)
        return priors.PitmanYorPrior(n_samples, concentration, discount)


@explains(**OF_MIXTURES)
@parameters
class FiniteMixture(BaseMixture):
    """Mixture with symmetric Dirichlet weights of a given or unknown number of components.

    >>> import numpy as np
    >>> from skdpm import FiniteMixture
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> FiniteMixture(n_components=2, random_state=0).fit(X).n_clusters_
    2

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
        Prior of an unknown number: 1 + a Poisson law with mean 1, a geometric law with mean 10, or
        a function from an int array of K = 1, 2, ..., or one K, to the normalised log p(K).
    dynamic : bool, default=False
        Whether `concentration` is a total also with `n_components=None`. Not with "smc".
    concentration : float or None, default=None
        Total concentration of the components, or with `n_components=None` and not `dynamic` that
        of each. None: learned.
    init : {"auto", "single", "singletons", "kmeans"} or array-like of shape (n_samples,), \
default="auto"
        As in `DPMixture`. Labels may have at most `n_components` clusters.
    likelihood, sampler, concentration_prior, noise, n_warmup, n_draws, thin, n_chains, n_jobs, \
store_labels, point_estimate, max_time, target_ess, warm_start, random_state, verbose
        As in `DPMixture`, which also has the attributes.

    References
    ----------
    Miller & Harrison (2018); Frühwirth-Schnatter, Malsiner-Walli & Grün (2021).
    """

    n_components: int | None = 10
    _: KW_ONLY
    n_components_prior: object = "poisson"
    dynamic: bool = False

    def make_prior(self, n_samples, concentration):
        """Make the prior over partitions, as in `BaseMixture`."""
        check_bool(self.dynamic, "dynamic")
        if self.n_components is not None:
            n_components = check_integer(self.n_components, "n_components", low=1, high=2**53)
            return priors.FiniteDirichletPrior(n_samples, concentration, n_components)
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
            return priors.DynamicFiniteMixturesPrior(n_samples, concentration, law)
        return priors.MixtureOfFiniteMixturesPrior(n_samples, concentration, law)


# Every chain makes priors often; the law is evaluated once.
_tabulated = functools.lru_cache(maxsize=8)(tabulated_law)
