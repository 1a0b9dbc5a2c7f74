# SPDX-License-Identifier: BSD-3-Clause
"""The estimator `FeatureAllocation`."""

import functools
from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn import get_config
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._set_output import ADAPTERS_MANAGER
from sklearn.utils.validation import check_array, check_is_fitted

from skdpm import _convergence
from skdpm._callbacks import with_callbacks
from skdpm._estimator import ChainEstimator, all_or_nothing
from skdpm._names import IN_FIT, PARAMETERS
from skdpm._rows import names_columns, validate_rows
from skdpm._validation import (
    check_binary,
    check_choice,
    check_integer,
    check_real,
    explains,
    given_shape,
    offered_if,
    parameters,
    warn,
)
from skdpm.allocations import nearest_draws, point_estimate
from skdpm.draws import column_of, common_snapshots
from skdpm.features.answers._predictive import RowLaw
from skdpm.features.likelihoods import LIKELIHOODS
from skdpm.features.likelihoods._base import CollapsedFeatureModel
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm.features.priors import BetaBernoulliPrior, IndianBuffetPrior
from skdpm.features.samplers import SAMPLERS
from skdpm.features.samplers.base import FeatureSampler
from skdpm.features.state._state import FeatureState
from skdpm.mixture.likelihoods.laws.columns import words_about_far
from skdpm.networks import filled_network, is_network_of

# Further advice if no feature was found.
_IF_NOT_AUTO = ', start chains from a guess (init="auto")'

# Largest number of new features of a new row.
MOST_NEW = 256


def _without_expected_rows(estimator):
    likelihood = estimator._lenient_likelihood()
    reconstruct = FeatureLikelihood.reconstruct
    if likelihood is None or type(likelihood).reconstruct is not reconstruct:
        return None
    return (
        f"the likelihood {type(likelihood).__name__} has no expected rows; use one that has, such "
        "as the default"
    )


@explains(**PARAMETERS)
@parameters
class FeatureAllocation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ChainEstimator):
    """Feature allocation: each row has a set of latent binary features, sampled by MCMC.

    >>> import numpy as np
    >>> from skdpm import FeatureAllocation
    >>> rng = np.random.default_rng(0)
    >>> Z = np.tile([[1, 0], [0, 1], [1, 1], [0, 0]], (10, 1))
    >>> X = Z @ [[4.0, 0.0, 4.0], [0.0, 4.0, 4.0]] + 0.1 * rng.normal(size=(40, 3))
    >>> model = FeatureAllocation(n_chains=1, n_warmup=50, n_draws=50, random_state=0).fit(X)
    >>> model.transform(X).shape == (40, model.n_components_)
    True

    The model is Z ~ Indian buffet process(concentration), or a finite Beta-Bernoulli prior, and X
    | Z ~ `likelihood`. The number of features is inferred. NaN in X is missing data.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of features, each with a probability under a Beta(concentration / n_components, 1)
        prior. None: the Indian buffet process, with no bound on the number.
    likelihood : str or FeatureLikelihood, default="linear_gaussian"
        Law of rows given their features: an object of `skdpm.features.likelihoods`, or a name
        ("lfrm" for networks, "subclones" for mutations).
    sampler : str or FeatureSampler, default="auto"
        Sampler: an object of `skdpm.features.samplers`, or a name; "auto" is `ElementGibbs` for
        `LFRM`, otherwise `DiscreteParticleFilter`.
    concentration : float or None, default=None
        Expected number of features of a row a priori (about, in the finite model). None: learned.
    init : {"auto", "prior", "empty"} or array-like of shape (n_samples, n_features_latent), \
default="auto"
        Start of the chains: a guess of the likelihood ("auto"), a draw from the prior, no
        features, or a binary matrix.
    concentration_prior, n_warmup, n_draws, thin, n_chains, n_jobs, max_time, target_ess, \
warm_start, random_state, verbose
        As in `DPMixture`. A warm-up of `Subclones` has 250 iterations if its length is "auto".

    Attributes
    ----------
    allocations_ : ndarray of shape (n_samples, `n_components_`), bool
        Point estimate of Z (`skdpm.allocations.point_estimate`), features by decreasing use.
    n_components_ : int
        Number of features in `allocations_`.
    components_, intercept_ : ndarray of shape (`n_components_`, n_features) and (n_features,)
        Posterior means given `allocations_` (linear Gaussian likelihood; others have parameters
        with other names, such as the `weights_` of `LFRM`).
    allocation_samples_ : list of lists of ndarrays of shape (n_samples, K_cs), bool
        `allocation_samples_[c][s]`: Z in draw s of chain c, without features that no row has.
    component_samples_, intercept_samples_ : list of lists of ndarrays, and ndarray
        Draws of the components and of the intercept (linear Gaussian likelihood).
    n_components_samples_, concentration_samples_ : ndarray of shape (n_chains, n_draws)
        Draws of the number of features that rows have, and of the concentration.
    hyperparameter_samples_ : dict of str to ndarray of shape (n_chains, n_draws)
        Draws of the learned hyperparameters of the likelihood, such as "noise_precision".
    log_joint_samples_ : ndarray of shape (n_chains, n_draws)
        log p(X, Z, parameters given the concentration and hyperparameters).
    draws_ : Draws
        Mapping from names to arrays of shape (n_chains, n_draws), or lists of lists of arrays.
    exact_ : bool
        Whether `score_samples` is exact: no scored draw has more than 15 features, and the
        likelihood can integrate out features that no row has yet. If not, it is a lower bound.
    diagnostics_, converged_, likelihood_, sampler_, n_iter_, n_warmup_, fit_time_, \
n_features_in_, feature_names_in_
        As in `DPMixture`. `converged_` is False for an R-hat above 1.05.

    References
    ----------
    Griffiths & Ghahramani (2011); Bouchard-Côté & Roth; Doshi-Velez & Ghahramani (2009).
    """

    _components = "features"
    _other_names = ("dpf", "'discrete_particle_filter'"), ("pg", "'particle_gibbs'")

    n_components: int | None = None
    _: KW_ONLY
    likelihood: str | FeatureLikelihood = "linear_gaussian"

    @explains(**IN_FIT)
    @all_or_nothing
    @with_callbacks
    def fit(self, X, y=None) -> Self:
        """Sample the posterior over the features of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows. NaN marks missing entries.
        y : object
            Ignored, but passed to callbacks.

        Raises
        ------
        ValueError
            If a parameter or a column of X does not fit the model. With `RowGibbs`, also during
            sampling, if there are more features than it allows. The estimator is then as before.
        KeyboardInterrupt
            After Ctrl-C; the attributes describe the draws so far.

        Warns
        -----
        ConvergenceWarning
            If no feature was found, the chains disagree, `max_time` was too short for a few draws,
            or `target_ess` was not reached.
        """
        self._fit(X, y)
        if self.n_components_ == 0:
            if self.likelihood_.pairwise:
                advice = (
                    "fitted_values averages all draws, of which some may have features "
                    "(n_components_samples_)"
                )
            elif np.median(self.n_components_samples_) > 0:
                advice = (
                    "Draws have features (n_components_samples_), but do not agree on them: X may "
                    "say too little about features, or chains were too short (n_warmup, n_draws)"
                )
            else:
                start = "" if isinstance(self.init, str) and self.init == "auto" else _IF_NOT_AUTO
                advice = (
                    "If you expect features, scale the columns of X (StandardScaler), use more "
                    f"rows{start}, or let the likelihood expect less noise (LinearGaussian: a "
                    "larger noise_precision)"
                )
            warn(
                f"no feature was found: allocations_ has no columns. {advice}", ConvergenceWarning
            )
        return self

    def _warn_of_columns(self, X, program, given):
        names, takes = getattr(self, "feature_names_in_", None), LIKELIHOODS["linear_gaussian"]
        if isinstance(program.likelihood, takes) and isinstance(X, np.ndarray):
            if words := words_about_far(X, given, names):
                warn(words)

    def transform(self, X) -> Any:
        """Posterior probability that each row has each feature of `components_`.

        Each row is treated as a new observation. Nothing is drawn at random. Up to 15 features
        (`LFRM` 12, `Subclones` 14) the sum is over all values of the row's features; with more,
        over the values that a beam search finds, usually the most probable ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, `n_components_`)
            Probabilities, in [0, 1].
        """
        return self._law_of_estimate(X)[1]

    def predict(self, X) -> np.ndarray:
        """Most probable features of each row, among those of `components_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray of shape (n_samples, `n_components_`), int64
            Features, 0 or 1. The entries of a row are jointly most probable.
        """
        return self._law_of_estimate(X)[2].astype(np.int64)

    @offered_if(_without_expected_rows)
    def inverse_transform(self, Z) -> Any:
        """Expected rows with the given features.

        Parameters
        ----------
        Z : array-like of shape (n_samples, `n_components_`)
            Features, 0 or 1, or their probabilities.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Expected rows, in the container chosen by `set_output`.
        """
        check_is_fitted(self)
        given = Z
        if len(given_shape(Z)) == 2 and given_shape(Z)[1] == 0:
            Z = np.empty(given_shape(Z))  # a table without columns has no type
        Z = check_array(Z, dtype=np.float64, ensure_min_features=0)
        if Z.shape[1] != self.n_components_:
            raise ValueError(
                f"Z has {Z.shape[1]} columns, but there are {self.n_components_} features"
            )
        return self._as_table(self.likelihood_.reconstruct(Z, self._estimate["params"]), given)

    @offered_if(_without_expected_rows)
    def impute(self, X) -> Any:
        """Replace each missing entry by its posterior mean given the observed entries of its row.

        The mean is over the draws of `score_samples`, weighted by the density of the observed
        entries of the row. In the network of `fit` it is that of `fitted_values`; rows of other
        networks are new nodes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            X without NaN, in the container chosen by `set_output`; by default networks are of the
            type of X.
        """
        given = X
        X, model, observed = self._model_of_new(X)
        if self.likelihood_.pairwise and is_network_of(self, X):
            return self._as_table(filled_network(given, X, self.fitted_values()), given)
        if self.likelihood_.pairwise and self._data and X.shape == self._data[0]:
            raise ValueError(
                "impute fills unobserved pairs of the network of fit, or of rows of new nodes: X "
                "has as many rows as that network, but other entries"
            )
        means = np.zeros(X.shape)
        log_weights = np.full(X.shape[0], -np.inf)
        for draw in self.draws_.scored:
            log_density, probabilities, _ = self._law(model, draw, observed)
            total = np.logaddexp(log_weights, log_density)
            share = np.exp(log_density - total)[:, None]
            expected = self.likelihood_.reconstruct(probabilities, draw["params"])
            means += share * (expected - means)
            log_weights = total
        if self.likelihood_.pairwise:
            return self._as_table(filled_network(given, X, means), given)
        X = X.toarray() if scipy.sparse.issparse(X) else X
        return self._as_table(np.where(np.isnan(X), means, X), given)

    def _as_table(self, values, given):
        """Put rows with the columns of X into the container of `set_output`, index as `given`."""
        config = getattr(self, "_sklearn_output_config", {})
        container = config.get("transform", get_config()["transform_output"])
        if container == "default":
            return values
        values = values.toarray() if scipy.sparse.issparse(values) else values
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = np.array([f"x{j}" for j in range(self.n_features_in_)], dtype=object)
        return ADAPTERS_MANAGER.adapters[container].create_container(values, given, names)

    @offered_if(_without_expected_rows)
    def fitted_values(self) -> np.ndarray:
        """Posterior means of the expected entries of the X of `fit`, observed or missing.

        They are averaged over all kept draws. For a network, they are probabilities of all links.

        Returns
        -------
        means : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        likelihood, draws = self.likelihood_, self.draws_
        means = 0.0
        for j, (c, s) in enumerate(np.ndindex(draws["log_joint"].shape)):
            Z = draws["allocations"][c][s]
            params = {"allocations": Z, **self._params_of(likelihood, c, s)}
            means += (likelihood.reconstruct(Z.astype(np.float64), params) - means) / (j + 1)
        if not getattr(likelihood, "directed", True):
            means = 0.5 * (means + means.T)  # without differences by rounding
        return means

    def score_samples(self, X) -> np.ndarray:
        """log posterior predictive density of each row's observed entries.

        The density is averaged over up to 100 evenly spaced draws; features that no row has yet
        are integrated out. Up to 15 features the time doubles with every feature. With more the
        sum is over the values that a beam search visits, a lower bound (`exact_` is False). The
        page "Features" of the guide has times and errors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Natural logarithm.
        """
        X, model, observed = self._model_of_new(X)
        total = np.full(X.shape[0], -np.inf)
        # A loop, because a sum over an axis may round differently for another number of rows.
        for draw in self.draws_.scored:
            total = np.logaddexp(total, self._law(model, draw, observed)[0])
        return total - np.log(len(self.draws_.scored))

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_is_fitted__(self):
        return "allocations_" in vars(self)

    # Parameters.

    def _registry(self, name):
        if name == "likelihood":
            return LIKELIHOODS, FeatureLikelihood
        return {**SAMPLERS, "auto": None}, FeatureSampler

    def _resolved_sampler(self, likelihood, X):
        if isinstance(self.sampler, str) and self.sampler == "auto":
            return SAMPLERS[likelihood.preferred_sampler]()
        return self._resolved("sampler")

    def _validate_fit(self, X, likelihood, sampler, reset):
        return validate_rows(self, X, likelihood, reset)

    def _program(self, X, likelihood, sampler):
        n_samples = X.shape[0]
        concentration = self.concentration
        if concentration is not None:
            concentration = check_real(concentration, "concentration", low=0.0)
        if self.n_components is None:
            prior_of = IndianBuffetPrior
        else:
            if isinstance(self.n_components, (str, FeatureLikelihood)):
                raise ValueError(
                    f"n_components must be an integer or None, got {self.n_components!r}. Pass a "
                    "likelihood by its name: FeatureAllocation(likelihood=...)"
                )
            n_components = check_integer(self.n_components, "n_components", low=1)
            prior_of = functools.partial(BetaBernoulliPrior, n_components=n_components)
        sampler.check_params()
        likelihood.check_prior(prior_of(n_samples, 1.0))
        return sampler.program(
            X,
            likelihood,
            n_samples=n_samples,
            prior_of=prior_of,
            sampler=sampler,
            concentration=concentration,
            init=self._initial_allocations(n_samples),
            **self._chain_parameters(),
        )

    def _initial_allocations(self, n_samples):
        if isinstance(self.init, str):
            check_choice(self.init, "init", ("auto", "prior", "empty"))
            return self.init
        Z = np.asarray(self.init)
        if Z.ndim != 2 or len(Z) != n_samples:
            raise ValueError(
                f"init must be a name or a binary matrix with {n_samples} rows, one per row "
                f"of X; got shape {Z.shape}"
            )
        if self.n_components is not None and Z.shape[1] > self.n_components:
            raise ValueError(
                f"init has {Z.shape[1]} features, more than n_components={self.n_components}"
            )
        return check_binary(Z, "init").astype(np.uint8)

    # Results.

    def _publish(self, draws, program):
        super()._publish(draws, program)
        self.allocation_samples_ = draws["allocations"]
        likelihood = program.likelihood
        for name in likelihood.common_params:
            setattr(self, f"{name}_samples_", draws[name])
        for name in likelihood.feature_params:
            setattr(self, f"{name.removesuffix('s')}_samples_", draws[name])

    def _params_of(self, likelihood, c, s):
        """Parameters of draw s of chain c, as `FeatureModel.load` takes them: dict."""
        draws, names = self.draws_, likelihood.common_params + likelihood.feature_params
        params = {name: draws[column_of(name)][c, s] for name in likelihood.hyperparameters}
        return params | {name: draws[name][c][s] for name in names}

    def _is_well_known(self, run, n_draws):
        names = run.program.compared
        draws = {
            name: np.array([chain["draws"][name][:n_draws] for chain in run.chains])
            for name in names
        }
        figures = _convergence.figures(draws, names)
        return _convergence.are_well_known(draws["n_components"]) and all(
            entry["r_hat"] <= _convergence.LARGEST_R_HAT
            and entry["ess_bulk"] >= _convergence.SUFFICIENT_ESS
            for entry in figures.values()
        )

    def _summarise(self, run):
        program, draws = run.program, self.draws_
        model = self._set_estimate(program)
        snapshots = [chain["snapshots"] for chain in run.chains]
        scored = [
            _law_of_new_row(
                program.make_prior(float(draw["concentration"])), draw["col_sums"], draw["params"]
            )
            for _, draw, _ in common_snapshots(snapshots, draws.n_draws)
        ]
        self.draws_ = draws.with_scored(scored)
        self.exact_ = isinstance(model, CollapsedFeatureModel) and all(
            len(draw["log_odds"]) <= model.max_bits for draw in scored
        )

    def _set_estimate(self, program):
        """Set `allocations_` and the parameters given it; return the kernel that has them."""
        likelihood = program.likelihood
        model = likelihood.bind(program.data)
        complements = getattr(model, "has_intercept", False)
        samples = [Z for chain in self.draws_["allocations"] for Z in chain]
        Z = point_estimate(samples, complements=complements)
        params, concentration = self._params_near(Z, samples, complements)
        model.load(params)
        prior = program.make_prior(concentration)
        state = FeatureState(model, prior, Z)
        state.choose_complements()
        Z = state.allocations().astype(bool)
        order = np.argsort(-Z.sum(axis=0), kind="stable")
        self.allocations_ = Z[:, order]
        self.n_components_ = len(order)
        saved = model.save()
        saved.update(likelihood.select(saved, order))
        model.load(saved)
        FeatureState(model, prior, self.allocations_).mean_params()
        saved = model.save()
        for name in likelihood.feature_params + likelihood.common_params:
            setattr(self, f"{name}_", saved[name])
        if likelihood.needs_allocations:
            saved["allocations"] = self.allocations_
        self._estimate = _law_of_new_row(prior, self.allocations_.sum(axis=0), saved)
        return model

    def _params_near(self, Z, samples, complements):
        """Mean parameters of the tenth of the draws nearest to Z, and their mean concentration.

        Columns may be matched with complements, so the features' parameters of a model with an
        intercept are only placeholders for `mean_params`.
        """
        likelihood, draws = self.likelihood_, self.draws_
        found = []
        for s, columns in nearest_draws(samples, Z, max(1, len(samples) // 10), complements):
            at = divmod(s, draws.n_draws)
            params = self._params_of(likelihood, *at)
            params.update(likelihood.select(params, columns))
            found.append((params, draws["concentration"][at]))
        means = {name: np.mean([params[name] for params, _ in found], axis=0) for name in params}
        return means, float(np.mean([concentration for _, concentration in found]))

    # New rows.

    @names_columns
    def _model_of_new(self, X):
        """Check X; return it, the kernel over its rows, and which rows have observed entries."""
        check_is_fitted(self)
        X = validate_rows(self, X, self.likelihood_, reset=False)
        model = self.likelihood_.bind(self.likelihood_.encode_new(X))
        return X, model, self.likelihood_.observed(X)

    def _law_of_estimate(self, X):
        _, model, observed = self._model_of_new(X)
        return self._law(model, self._estimate, observed)

    def _law(self, model, draw, observed):
        model.load(draw["params"])
        if self.likelihood_.needs_allocations:
            model.see(draw["params"]["allocations"])
        return RowLaw(model, draw["log_odds"], draw["log_pmf"]).evaluate(observed)


def _law_of_new_row(prior, col_sums, params):
    """The law of the features of a new row, and the parameters."""
    return {
        "log_odds": prior.log_odds_new(col_sums),
        "log_pmf": prior.log_pmf_new(len(col_sums), MOST_NEW),
        "params": params,
    }
