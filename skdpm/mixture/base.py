# SPDX-License-Identifier: BSD-3-Clause
"""What mixtures share: the scikit-learn face but for a prior and its parameters."""

import functools
import math

import joblib
import numpy as np
from sklearn.base import ClusterMixin, DensityMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_n_features, check_is_fitted, validate_data

from skdpm import partitions
from skdpm._estimator import ChainEstimator
from skdpm._validation import (
    check_bool,
    check_choice,
    check_finite,
    check_gamma_prior,
    check_integer,
    check_real,
    is_dask,
)
from skdpm.chains import seed_entropy, stream
from skdpm.mixture import _predictive
from skdpm.mixture._init import initial_labels
from skdpm.mixture._program import RowProgram
from skdpm.mixture.blocks.program import BlockProgram
from skdpm.mixture.blocks.rows import RowBlocks
from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.likelihoods.base import Likelihood
from skdpm.mixture.samplers import SAMPLERS
from skdpm.mixture.samplers.base import Sampler

# Streams of a run beyond those of its chains, which are numbered from 0.
POINT_ESTIMATE_STREAM = 2**32 - 1
SAMPLE_STREAM = 2**32 - 2


class BaseMixture(ClusterMixin, DensityMixin, ChainEstimator):
    """What the two mixtures share; a subclass checks its own parameters and makes its prior."""

    # Written by the subclasses: the smallest concentration allowed where it is fixed, and a
    # function of (n_samples, concentration) that makes a PartitionPrior, to check and to pickle.
    def _prior_maker(self):
        raise NotImplementedError

    def fit(self, X, y=None):
        """Sample the posterior over partitions of the rows of X.

        Parameters
        ----------
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)
            What it may hold depends on the likelihood. With `SubCluster` or `BlockedGibbs` it is
            never copied whole, may be memory-mapped and of any numeric type, or a dask array whose
            rows are in chunks; then `labels_` is a dask array, label draws are not kept and
            `point_estimate` must be "last" or "map".
        y : None
            Ignored.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For a parameter or a column of X that does not fit the model, before any sampling.
        KeyboardInterrupt
            After Ctrl-C, once the attributes hold the draws so far.

        Warns
        -----
        ConvergenceWarning
            Where the chains disagree: names the quantity with R-hat above 1.05.
        """
        return self._fit(X)

    def predict(self, X):
        """Most probable cluster of each row, among those of `labels_`.

        Each row is on its own, a new observation: `predict(X_train)` need not equal `labels_`,
        which are chosen jointly, given each other. Nothing is drawn at random.

        Parameters
        ----------
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            For a dask array a lazy dask array with its chunks, as from all methods of new rows.
        """
        return self._of_rows("_predict", X, np.int64)

    def predict_proba(self, X):
        """Posterior probability of each cluster of `labels_` given each row.

        Weights are the cluster's size, minus the discount or plus concentration / n_components,
        at the posterior mean of the concentration. The mass of a new cluster is dropped.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, `n_components_`)
            Rows sum to 1.
        """
        return self._of_rows("_predict_proba", X, np.float64, self._n_columns())

    def score_samples(self, X):
        """log posterior predictive density of each row.

        The density is averaged over the kept draws (evenly spaced ones, 100 at most), each with
        its own clusters and concentration and with the mass of a new cluster.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Natural logarithm.
        """
        return self._of_rows("_score_samples", X, np.float64)

    def score(self, X, y=None):
        """Mean of `score_samples(X)`: the held-out log predictive density per row.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        score : float
            Natural logarithm.
        """
        return float(np.mean(self.score_samples(X)))

    def _can_sample(self):
        return getattr(self._lenient_likelihood(), "draw", None) is not None

    @available_if(_can_sample)
    def sample(self, n_samples=1):
        """Draw rows from the posterior predictive distribution, the one `score_samples` evaluates.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of shape (n_samples,), int64
            A cluster of `labels_` for each row, drawn from `predict_proba(X)`.
        """
        check_is_fitted(self)
        n_samples = check_integer(n_samples, "n_samples", low=1)
        bit_generator = stream(seed_entropy(self.random_state), SAMPLE_STREAM)
        rng = np.random.Generator(bit_generator)
        (mixture,) = self._mixtures
        empty = np.zeros((1, mixture["rows"].shape[1]))
        weights = np.exp(mixture["log_weights"])
        component = rng.choice(len(weights), size=n_samples, p=weights / weights.sum())
        rows = np.concatenate([mixture["rows"], empty])[component]
        X = self.likelihood_.draw(rows, rng)
        log_probabilities = _predictive.cluster_log_probabilities(
            self._kernel_of_new(X), self._partition
        )
        cumulated = np.cumsum(np.exp(log_probabilities), axis=1)
        u = rng.random((n_samples, 1)) * cumulated[:, -1:]
        return X, (u >= cumulated).sum(axis=1).astype(np.int64)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "labels_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self._lenient_likelihood()
        if likelihood is not None:
            tags.input_tags.allow_nan = likelihood.allow_nan
            tags.input_tags.sparse = likelihood.accept_sparse
            tags.input_tags.pairwise = likelihood.pairwise
            tags.input_tags.positive_only = likelihood.positive_only
        return tags

    def _most_components(self, n_samples):
        """The largest number of clusters of n_samples rows that the prior allows."""
        return n_samples

    # Parameters.

    def _registry(self, name):
        if name == "likelihood":
            return LIKELIHOODS, Likelihood
        return {**SAMPLERS, "auto": self._auto_sampler}, Sampler

    def _auto_sampler(self):
        """The first of PGSM and SAMS that the likelihood has the capability for."""
        capabilities = self._resolved("likelihood").capabilities
        candidates = (SAMPLERS["pgsm"](), SAMPLERS["sams"]())
        fitting = (sampler for sampler in candidates if sampler.requires in capabilities)
        return next(fitting, candidates[-1])

    def _program(self, X, likelihood, sampler):
        """Everything the chains need, all parameters checked."""
        n_samples = X.shape[0]
        prior_maker = self._prior_maker()
        check_choice(self.point_estimate, "point_estimate", ("vi", "binder", "map", "last"))
        chain_parameters = self._chain_parameters()
        store_labels = check_bool(self.store_labels, "store_labels")
        if not store_labels and self.point_estimate in ("vi", "binder"):
            raise ValueError(
                f"point_estimate={self.point_estimate!r} needs the kept partitions; with "
                'store_labels=False choose point_estimate="map" or "last"'
            )
        if sampler.requires not in likelihood.capabilities:
            raise ValueError(
                f"{sampler!r} cannot sample a mixture with the likelihood "
                f"{type(likelihood).__name__}: it needs the capability {sampler.requires!r}, "
                f"and {type(likelihood).__name__} has {', '.join(sorted(likelihood.capabilities))}"
                '; sampler="auto" chooses one that can'
            )
        sampler.kernel()  # checks its parameters
        make_prior = functools.partial(prior_maker, n_samples)
        concentration = self._fixed_concentration()
        sampler.check_prior(make_prior(1.0 if concentration is None else concentration))
        settings = {
            "n_samples": n_samples,
            "make_prior": make_prior,
            "sampler": sampler,
            "concentration": concentration,
            "concentration_prior": check_gamma_prior(
                self.concentration_prior, "concentration_prior"
            ),
            "store_labels": store_labels and not is_dask(X),
            **chain_parameters,
        }
        if sampler.blockwise:
            rows = self._rows(X, sampler.block_size)
            with rows:
                likelihood = likelihood.resolve_summary(rows.summary(likelihood))
            return BlockProgram(
                likelihood=likelihood,
                data=None,
                initial_labels=initial_labels(
                    self.init, X, likelihood, self._most_components(n_samples)
                ),
                rows=rows,
                **settings,
            )
        likelihood = likelihood.resolve(X)
        return RowProgram(
            likelihood=likelihood,
            data=likelihood.encode(X),
            initial_labels=initial_labels(
                self.init, X, likelihood, self._most_components(n_samples)
            ),
            **settings,
        )

    def _rows(self, X, block_size):
        """The rows of X in blocks; threads that chains leave idle visit them."""
        if is_dask(X):
            from skdpm.mixture.blocks.dask_rows import DaskRows

            return DaskRows(X, block_size)
        n_threads = max(1, joblib.effective_n_jobs(self.n_jobs) // self.n_chains)
        return RowBlocks(X, block_size, n_threads)

    def _fixed_concentration(self):
        if self.concentration is None:
            return None
        return check_real(self.concentration, "concentration", low=self._lowest_concentration())

    def _lowest_concentration(self):
        return 0.0

    # Results.

    def _draw_attributes(self, program):
        attributes = {
            "log_joint": "log_joint_samples_",
            "concentration": "concentration_samples_",
            "n_components": "n_components_samples_",
        }
        if program.store_labels:
            attributes["labels"] = "label_samples_"
        return attributes

    def _collect(self, program, chains, n_draws):
        if hasattr(self, "label_samples_"):
            del self.label_samples_
        super()._collect(program, chains, n_draws)
        self.acceptance_rate_ = {
            move: np.array([_rate(chain["acceptance"][move]) for chain in chains])
            for move in chains[0]["acceptance"]
        }

    def _summarise(self, program, chains, n_draws):
        """The point estimate, the predictive distribution and the diagnostics."""
        self.labels_, rows = self._point_estimate(program, chains)
        self.n_components_ = len(rows)
        prior = program.make_prior(float(self.concentration_samples_.mean()))
        log_weights = prior.log_weights(rows[:, 0].astype(np.intp))
        self.weights_ = np.exp(log_weights[:-1])
        self.cluster_params_ = program.likelihood.cluster_params(rows)
        self._partition = {"rows": rows, "log_weights": log_weights}
        snapshots = [chain["snapshots"] for chain in chains if chain["snapshots"].get("draws")]
        factorizes = "product" in program.likelihood.capabilities
        if not factorizes:
            self._partition["labels"] = self.labels_.astype(np.min_scalar_type(len(rows)))
        self._mixtures = _predictive.pool_draws(snapshots, n_draws, factorizes)
        self._n_fitted = program.n_samples
        self.diagnostics_ = self._diagnostics(program)

    def _point_estimate(self, program, chains):
        """Labels by decreasing size, and the statistics of their clusters."""
        if self.point_estimate in ("vi", "binder"):
            rng = np.random.RandomState(
                np.random.MT19937(
                    np.random.SeedSequence(
                        self._run["entropy"], spawn_key=(POINT_ESTIMATE_STREAM,)
                    )
                )
            )
            labels = partitions.point_estimate(
                self.label_samples_,
                loss=self.point_estimate,
                max_components=self._most_components(program.n_samples),
                random_state=rng,
            )
            return labels, program.statistics(labels)
        if self.point_estimate == "map":
            value = self.log_joint_samples_ + program.log_hyperprior(self.concentration_samples_)
            chain, draw = np.unravel_index(np.argmax(value), value.shape)
        else:
            chain, draw = 0, -1
        if program.store_labels:
            labels = partitions.relabel_by_size(self.label_samples_[chain, draw])
            return labels, program.statistics(labels)
        if self.point_estimate == "last":
            return program.kept_partition(chains[0]["draws"]["best"]["last"])
        best = max((chain["draws"]["best"] for chain in chains), key=lambda best: best["value"])
        return program.kept_partition(best["best"])

    def _diagnostics(self, program):
        quantities = {
            "log_joint": self.log_joint_samples_,
            "n_components": self.n_components_samples_,
        }
        if program.concentration is None:
            quantities["concentration"] = self.concentration_samples_
        return self._diagnose(quantities)

    # New rows.

    def _validate(self, X, likelihood, reset):
        X = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            order="C",
            accept_sparse="csr" if likelihood.accept_sparse else False,
            ensure_all_finite=False,
        )
        check_finite(X, allow_nan=likelihood.allow_nan)
        return X

    def _validate_fit(self, X, likelihood, sampler, reset):
        if is_dask(X):
            return self._validate_dask(X, sampler, reset)
        if not sampler.blockwise:
            return self._validate(X, likelihood, reset)
        # As they are, whatever their type and order: a block at a time is brought into form, and
        # looked at for infinities and NaN.
        return validate_data(
            self,
            X,
            reset=reset,
            dtype="numeric",
            accept_sparse="csr" if likelihood.accept_sparse else False,
            ensure_all_finite=False,
        )

    def _validate_dask(self, X, sampler, reset):
        """A dask array whose chunks, of known sizes, are cut along the rows only."""
        if not sampler.blockwise:
            raise ValueError(
                f"{type(sampler).__name__} needs all rows in memory; for a dask array choose "
                "sampler=SubCluster() or, with FiniteMixture, BlockedGibbs()"
            )
        if sampler.needs_labels:
            raise ValueError(
                f"{sampler!r} draws labels given the last ones, which are not kept for a dask "
                "array; choose super_clusters=False"
            )
        if self.point_estimate in ("vi", "binder"):
            raise ValueError(
                f"point_estimate={self.point_estimate!r} needs the kept partitions, and label "
                'draws are not kept for a dask array; choose point_estimate="last" or "map"'
            )
        if not (isinstance(self.init, str) and self.init == "single"):
            raise ValueError(f'a dask array needs init="single", got {self.init!r}')
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(
                f"X must be a two-dimensional array of numbers, got shape {X.shape} and dtype "
                f"{X.dtype}"
            )
        X = X.rechunk({1: -1})
        if np.isnan(X.shape[0]):
            X = X.compute_chunk_sizes()
        if 0 in X.shape:
            raise ValueError(f"X must have rows and columns, got shape {X.shape}")
        _check_n_features(self, X, reset=reset)
        return X

    def _model_of_new(self, X):
        return self._kernel_of_new(self._validate(X, self.likelihood_, reset=False))

    def _kernel_of_new(self, X):
        data = self.likelihood_.encode_new(X)
        return self.likelihood_.bind(data, self.likelihood_.tables(data, self._n_fitted))

    # What is known of rows that are here; for a dask array, of each of its chunks.

    def _of_rows(self, method, X, dtype, n_columns=None):
        """Call a method of this estimator, on the chunks of X where it is a dask array."""
        check_is_fitted(self)
        if not is_dask(X):
            return getattr(self, method)(X)
        from skdpm.mixture.blocks.dask_rows import lazily

        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has shape {X.shape}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        # What predictions need, and no draws: it goes to every worker.
        light = type(self)(**self.get_params(deep=False))
        for name in (
            "likelihood_",
            "n_features_in_",
            "_partition",
            "_mixtures",
            "_n_fitted",
        ):
            setattr(light, name, getattr(self, name))
        return lazily(getattr(light, method), X, dtype, n_columns)

    def _n_columns(self):
        check_is_fitted(self)
        return self.n_components_

    def _predict(self, X):
        return np.argmax(self._log_probabilities(X), axis=1).astype(np.int64)

    def _predict_proba(self, X):
        return np.exp(self._log_probabilities(X))

    def _score_samples(self, X):
        return _predictive.mean_log_density(self._model_of_new(X), self._mixtures)

    def _log_probabilities(self, X):
        return _predictive.cluster_log_probabilities(self._model_of_new(X), self._partition)


def _rate(counts):
    proposed, accepted = counts
    return accepted / proposed if proposed else math.nan
