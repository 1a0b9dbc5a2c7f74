# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the mixture estimators: everything except the prior over partitions."""

import copy
import functools
import threading
import time
from dataclasses import KW_ONLY, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClusterMixin, DensityMixin
from sklearn.utils.validation import _num_samples, check_is_fitted

from skdpm import _convergence, partitions
from skdpm._callbacks import with_callbacks
from skdpm._display import words_about_law
from skdpm._estimator import ChainEstimator, all_or_nothing
from skdpm._names import ATTRIBUTES, IN_ESTIMATE_LABELS, IN_FIT
from skdpm._rows import (
    given_rows,
    lazy_rows,
    named_call,
    names_columns,
    unit_exposure,
    validate_rows,
    with_exposure,
)
from skdpm._run import Run
from skdpm._tables import decoded_table
from skdpm._typing import Loss, Seed
from skdpm._validation import (
    check_bool,
    check_finite,
    check_integer,
    check_real,
    explains,
    given_shape,
    is_dask,
    offered_if,
    parameters,
    warn,
)
from skdpm.chains import masses_between, seed_entropy
from skdpm.diagnostics import coclustering_diagnostics
from skdpm.draws import column_of, common_snapshots
from skdpm.mixture import doubts, estimate
from skdpm.mixture.answers.outliers import OwnClusters
from skdpm.mixture.answers.predictive import Predictor, ScoredDraws, over_rows, row_chunks
from skdpm.mixture.answers.training import (
    TrainingRows,
    informative_rows,
    of_all_rows,
    outlier_scores,
)
from skdpm.mixture.chains.init import labels_of_rows
from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.likelihoods.composite.automatic import Automatic, Mixed, laws_by_name
from skdpm.mixture.likelihoods.composite.registry import names_with, refusal
from skdpm.mixture.likelihoods.contract.base import Likelihood
from skdpm.mixture.particles.program import BLOCK
from skdpm.mixture.particles.streams import STREAM_LENGTH
from skdpm.mixture.questions import Questions, draw_given, generator, offered_with, positions_in
from skdpm.mixture.rows.known import UNLABELLED, KnownLabels
from skdpm.mixture.rows.noise import alone, check_noise, laws_of_noise, refuse_noise
from skdpm.mixture.samplers import SAMPLERS, automatic_sampler
from skdpm.mixture.samplers.base import Sampler
from skdpm.mixture.trials import best_law, scores_of_laws

# Stream of a run beyond those of its chains, which are numbered from 0.
SAMPLE_STREAM = 2**32 - 2

# One thread at a time reads off draws, which change kernels.
READING = threading.RLock()

# Page about chains that disagree.
RECIPE = "https://skdpm.readthedocs.io/en/latest/recipes/stuck_chains.html"

# Parameters without a meaning in `partial_fit`.
UNUSED_IN_STREAMS = {"init", "known_labels", "n_warmup", "store_labels", "thin"}

# `partial_fit` compares chains when the rows have grown by this factor since the last time. Calls
# of more than `BLOCK` rows do it always: their time does not matter, and nor should memory.
GROWTH = 1.25

# Attributes that follow from draws, besides those for users.
READ_OFF = {
    "_cells",
    "_data",
    "_distances",
    "_loss",
    "_most_clusters",
    "_n_different",
    "_one_for_each",
    "_other_readings",
    "_predictor",
    "_training",
    "_unread",
}

# Attributes that only some programs set, or none before they are asked for.
FURTHER_ATTRIBUTES = (
    "effective_sample_size_",
    "likelihood_scores_",
    "log_evidence_",
    "log_evidence_chains_",
    "n_samples_seen_",
    "outlier_scores_",
    "relevance_",
)

# Attributes that `for_prediction` copies: what answers about new rows need, and what is small.
FOR_PREDICTION = (
    "_predictor",
    "classes_",
    "cluster_params_",
    "converged_",
    "diagnostics_",
    "feature_names_in_",
    "likelihood_",
    "n_clusters_",
    "n_features_in_",
    "part_columns_",
    "sampler_",
    "weights_",
    *(name for name in FURTHER_ATTRIBUTES if name != "outlier_scores_"),
)


@parameters
class BaseMixture(Questions, ClusterMixin, DensityMixin, ChainEstimator):
    """Base class of mixtures. A subclass adds the prior over partitions.

    It implements `make_prior`. Its own parameters are annotated attributes, and the class is
    decorated by `skdpm._validation.parameters`; or it writes an `__init__` that stores its own
    parameters and those of `DPMixture` except for `discount`.
    """

    _: KW_ONLY
    noise: object = None
    store_labels: bool = True
    point_estimate: object = "auto"

    _known = UNLABELLED  # known labels of the rows of `fit`
    _exposure = None  # exposures of the rows of `fit`
    _left_out = frozenset()  # names of attributes that `for_prediction` did not copy
    _ways_with_text = (
        '; use likelihood="mixed" for tables with columns of text, or, if whole numbers are among '
        "the others, likelihood=skdpm.suggest_likelihood(X)"
    )
    _other_names = (
        *((word, "'von_mises_fisher'") for word in ("cosine", "directions", "tfidf", "vmf")),
        *((name, f'FeatureAllocation(likelihood="{name}")') for name in ("lfrm", "subclones")),
        ("normal", "'gaussian'"),
        ("lognormal", "'gaussian', fitted to np.log(X)"),
        ("words", "'multinomial'"),
        # Samplers in papers.
        ("sm", "'split_merge'"),
        ("gibbs+sams", "'sams'"),
        ("fsd", 'FiniteMixture(100, sampler="blocked_gibbs")'),
    )
    _ways_with_sparse = (
        'for counts, as of words, use likelihood="multinomial", otherwise one of '
        f"{', '.join(names_with(lambda likelihood: likelihood.accept_sparse))}; or "
    )

    def make_prior(self, n_samples: int, concentration: float) -> Any:
        """Make the `PartitionPrior` of n_samples rows, with a concentration above its
        `lowest_concentration`. (Streams pass a fixed number of rows.)

        It is called often, and from threads, so it must depend on the parameters alone. Raises
        ValueError that names a wrong parameter of the subclass.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `make_prior`")

    @explains(**IN_FIT)
    @all_or_nothing
    @with_callbacks
    def fit(self, X, y=None, *, known_labels=None, exposure=None) -> Self:
        """Sample the posterior over partitions of the rows of X.

        Parameters
        ----------
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)
            Rows. `SubCluster` and `BlockedGibbs` also take memory-mapped rows and dask arrays.
        y : ignored, but passed to callbacks
        known_labels : array-like of int of shape (n_samples,), default=None
            Classes of the rows, from 0 on, and -1 for rows whose class is not known. Rows of two
            classes never share a component. None: no class is known.
        exposure : array-like of shape (n_samples,), default=None
            Exposure of each row, above 0, which multiplies the means of its counts. None: 1.

        Raises
        ------
        ValueError
            If a parameter or a column of X does not fit the model. The estimator does not change.
        KeyboardInterrupt
            After Ctrl-C; the attributes describe the draws so far.

        Warns
        -----
        ConvergenceWarning
            If the chains disagree (`converged_`), `max_time` was so short that the warm-up ended
            early, or `target_ess` was not reached.
        UserWarning
            After a few seconds, if the fit will take a minute or more.
        """
        self._read()
        if exposure is not None:
            _refuse_lazy(X)
        n_samples = None if known_labels is None else _num_samples(given_rows(X))
        self._known, self._exposure = KnownLabels.checked(known_labels, n_samples), exposure
        vars(self).pop("_left_out", None)
        if self._known.unites:
            _refuse_lazy(X, "known labels")
        doubts.warn_of_classes(y, known_labels)
        return self._fit(X, y)

    @offered_if(lambda self: _without_streams(self))
    @explains(**IN_FIT)
    def partial_fit(self, X, y=None, *, known_labels=None, exposure=None) -> Self:
        """Learn more rows, each seen once. Needs `sampler="smc"`.

        The particles of `fit`, or of the previous call, take the rows in the given order; they are
        not moved. Without a fit, the first batch determines all defaults that depend on data, so
        choose a typical one. `labels_` is about the rows of the call, other attributes are about
        all rows seen, or kept with `SMC(half_life=...)`. They are made when one of them is read.

        Parameters
        ----------
        X : array-like, CSR matrix or dask array of shape (n_rows, n_features)
            Rows. The chunks of a dask array are learned one after the other, all or none.
        y : ignored
        known_labels : array-like of int of shape (n_rows,), default=None
            Classes of the rows, as in `fit`. A class may be that of earlier rows, or new.
        exposure : array-like of shape (n_rows,), default=None, as in `fit`
        """
        started = time.monotonic()
        X = given_rows(X)
        previous = self._run if self._takes_more_rows() else None
        before = 0.0 if previous is None else getattr(self, "fit_time_", 0.0)
        if previous is None and self.__sklearn_is_fitted__():
            warn(
                "partial_fit starts anew, because the last fit used another sampler and has no "
                "particles to continue",
            )
        # A copy does the work; its attributes replace those of this object at the end.
        after = self._copied([name for name in vars(self) if not _is_read_off(name)])
        seen = UNLABELLED if previous is None else previous.known
        n_rows = _num_samples(X) if known_labels is not None or seen.unites else None
        known = KnownLabels.checked(known_labels, n_rows, seen)
        if exposure is not None:
            _refuse_lazy(X)
        carried, first = previous, 0
        for rows in row_chunks(X):
            of_rows = known.take(slice(first, first + _num_samples(rows)))
            run = after._batch(rows, of_rows, exposure, carried, first)
            if after._advance(run, run.program.n_samples):
                raise KeyboardInterrupt("partial_fit was interrupted and changed nothing")
            first += run.program.n_new
            carried = run.finished()
        program = run.program
        after._run = carried
        after._unread = functools.partial(after._copied(vars(after))._read_off, run)
        vars(after).update(program.further_attributes(run.chains))
        if program.n_new > BLOCK or program.n_samples >= GROWTH * carried.n_judged:
            after._read()
            # Chains that have parted stay apart: the warning comes once, not after every batch.
            told, bad = carried.told, after._disagreements(program)
            carried.told = tuple(sorted({*told, *bad}))
            carried.n_judged = program.n_samples
            after._warn_if_not_converged(program, told)  # raises if warnings are errors
        self.__dict__ = vars(after)
        self.fit_time_ = before + time.monotonic() - started
        return self

    def predict(self, X, *, exposure=None) -> np.ndarray:
        """Most probable cluster of `labels_` for each row, by `predict_proba`.

        Each row is treated as a new observation, so `predict(X_train)` may differ from `labels_`.

        Parameters
        ----------
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)
        exposure : array-like of shape (n_samples,), default=None
            Exposure of each row, needed if `fit` had it. Not for a dask array.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int64
            Labels, -1 for noise. Answers about dask arrays are lazy, as of all such methods.
        """
        return self._over_rows(Predictor.predict, X, np.int64, exposure=exposure)

    def predict_proba(self, X, new_cluster: bool = False, *, exposure=None) -> np.ndarray:
        """Posterior probability of each cluster of `labels_` given each row.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
        new_cluster : bool, default=False
            Whether to add a last column, the probability of a new cluster.
        exposure : array-like of shape (n_samples,), default=None, as in `predict`

        Returns
        -------
        probabilities : ndarray of shape (n_samples, `n_clusters_`), or one column more
            In the order of `classes_` if any; noise has the rest. Each fold has other clusters.
        """
        check_is_fitted(self)
        new_cluster = check_bool(new_cluster, "new_cluster")
        predict = functools.partial(Predictor.predict_proba, new_cluster=new_cluster)
        n_columns = self.n_clusters_ + new_cluster
        return self._over_rows(predict, X, np.float64, n_columns, exposure=exposure)

    def score_samples(self, X, given=None, *, exposure=None) -> np.ndarray:
        """log posterior predictive density of each row, the mean over up to 100 draws.

        >>> import numpy as np
        >>> from skdpm import DPMixture
        >>> rng = np.random.default_rng(0)
        >>> X = np.r_[rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))]
        >>> model = DPMixture(random_state=0).fit(X)
        >>> alike, unlike = model.score_samples([[9.0, 9.0], [9.0, 0.0]], given=0)
        >>> bool(alike > unlike)
        True

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows. NaN marks an entry that is not known: the density is that of the other entries.
        given : int, str or list of these, default=None
            Columns, as positions or names, that are given: the density is that of the other
            columns given the entries in these. None: no column.
        exposure : array-like of shape (n_samples,), default=None, as in `predict`

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Natural logarithm; of a probability in columns of categories or counts, so name the
            likelihood to compare fits. It is 0 for a row of which nothing is known.
        """
        check_is_fitted(self)
        if given is not None:
            given = positions_in(self, given, X, "given")
            likelihood, why = self.likelihood_, refusal(self.likelihood_, "laws")
            known = np.full((1, self.n_features_in_ + likelihood.exposed), np.nan)
            known[:, given] = 1.0
            if why and (likelihood.pairwise or likelihood.needs_laws(known).any()):
                raise ValueError(f"given cannot be used: {why}")
            if sp.issparse(X):
                raise TypeError("given needs dense rows: pass X.toarray()")
        score = functools.partial(Predictor.score_samples, given=given)
        return self._over_rows(score, X, np.float64, gaps=True, exposure=exposure)

    @offered_with("laws")
    def outlier_scores(self, X) -> np.ndarray:
        """-log of the probability that a row of the clusters is at least as surprising as each
        row, in its joint density or in its columns singly.

        So -log(alpha) is a threshold with the rate alpha of false alarms. The probability is found
        by simulation from a fixed seed: scores depend on no other rows.

        >>> import numpy as np
        >>> from skdpm import DPMixture
        >>> model = DPMixture(random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
        >>> model.outlier_scores([[0.0, 0.0], [9.0, 0.0]]) > -np.log(0.01)
        array([False,  True])

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows. NaN marks an entry that is not known. Scores of rows with gaps are comparable;
            their rate of false alarms is at most about alpha.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
            Natural logarithms, at least 0. Higher is more outlying; infinite if a row departs
            from a column that is constant, or follows from others, in all rows of `fit`.
        """
        check_is_fitted(self)
        if self.likelihood_.exposed:
            raise ValueError(
                "outlier_scores cannot compare rows with exposures; use "
                "-score_samples(X, exposure=exposure)"
            )
        return self._over_rows(Predictor.outlier_scores, X, np.float64, gaps=True)

    def score(self, X, y=None, *, exposure=None) -> float:
        """Mean of `score_samples(X, exposure=exposure)`, the held-out log density per row."""
        return float(np.mean(self.score_samples(X, exposure=exposure)))

    @offered_with("draw")
    def sample(
        self, n_samples: int = 1, given=None, *, random_state: Seed = None
    ) -> tuple[Any, np.ndarray]:
        """Draw rows from the law that `score_samples` evaluates, with exposures of 1.

        Parameters
        ----------
        n_samples : int, default=1
        given : dict, Series, or array-like or DataFrame of one row, default=None
            Known entries, given which the others are drawn: a dict from columns (names or
            positions) to values, or a row with NaN or None for other entries.
        random_state : int, RandomState, Generator or None, default=None
            Seed. None: that of the estimator, so if it is a number, calls return the same rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Rows; a data frame, or objects, if `fit` had columns of categories.
        labels : ndarray of shape (n_samples,), int64
            Cluster of each row, drawn from `predict_proba(X)`; -1 for noise.
        """
        check_is_fitted(self)
        n_samples = check_integer(n_samples, "n_samples", low=1)
        rng = generator(self, SAMPLE_STREAM, random_state)
        if given is None:
            X = self._predictor.draw(n_samples, rng)
        elif why := refusal(self.likelihood_, "laws"):
            raise ValueError(f"given cannot be used: {why}")
        else:
            X = draw_given(self, n_samples, given, rng)
        rows = with_exposure(X, self.likelihood_, unit_exposure(n_samples, self.likelihood_))
        cumulated = np.cumsum(self._predictor.predict_proba(rows), axis=1)
        u = rng.random((n_samples, 1))
        if self._predictor.background is None:
            u *= cumulated[:, -1:]
        names = getattr(self, "feature_names_in_", None)
        X = self.likelihood_.rebuilt(X)
        X = decoded_table(X, self.likelihood_.decode(X), names)
        labels = (u >= cumulated).sum(axis=1).astype(np.int64)
        # The rest of the probability is that of noise.
        names = np.append(getattr(self, "classes_", np.arange(self.n_clusters_)), -1)
        return X, names[labels]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self._lenient_likelihood()
        if likelihood is not None and likelihood.draws_gaps:
            tags.input_tags.allow_nan = _given_sampler(self).draws_gaps
        return tags

    def for_prediction(self) -> Self:
        """A small copy that answers about new rows as this fit does: it has no draws and no
        `labels_`, whose size grows with the rows of `fit`."""
        check_is_fitted(self)
        self._read()
        light = self._copied(FOR_PREDICTION)
        light._training = light._data = None
        scored = copy.copy(self._predictor.scored)
        # Drawn missing entries are about the rows of `fit`.
        scored.draws = [
            {name: value for name, value in draw.items() if name != "completion"}
            for draw in scored.draws
        ]
        light._predictor = replace(self._predictor, scored=scored)
        light._left_out = self._left_out.union(vars(self)) - vars(light).keys()
        return light

    def __sklearn_is_fitted__(self):
        return "_unread" in vars(self) or "n_clusters_" in vars(self)

    def __getattr__(self, name):
        # Called for attributes that are not set.
        if "_unread" in vars(self) and _is_read_off(name):
            self._read()
            return getattr(self, name)
        if name in self._left_out:
            raise AttributeError(f"for_prediction keeps no {name}: use the fit itself")
        if name == "probabilities_" and self.__sklearn_is_fitted__():
            self._check_label_draws(name, "predict_proba(X)")  # raises
        if name not in ATTRIBUTES:
            return super().__getattr__(name)
        raise AttributeError(f"{type(self).__name__} has no {name}: {ATTRIBUTES[name]}")

    def __getstate__(self):
        self._read()
        return super().__getstate__()

    def __dir__(self):
        self._read()
        # Without attributes that are computed when a notebook or scikit-learn inspects members.
        hidden = {"outlier_scores_"} - vars(self).keys()
        names = [name for name in object.__dir__(self) if name not in hidden]
        return [name for name in names if hasattr(self, name)]

    # Rows of the fit.

    @functools.cached_property
    def outlier_scores_(self) -> np.ndarray:
        """`outlier_scores` of the rows of `fit`; with exposures, or under a likelihood without
        these, -log p(row | all other rows), in nats."""
        self._check_label_draws("outlier_scores_", "outlier_scores(X) or -score_samples(X)")
        likelihood, training = self.likelihood_, self._training
        _check_projective("outlier_scores_", likelihood, AttributeError)
        try:
            X = training.recall()
        except ValueError as error:
            raise AttributeError(
                f"outlier_scores_: {error} to outlier_scores(X), or for scores without each "
                "row itself to pointwise_log_likelihood(X) first"
            ) from None
        if refusal(likelihood, "laws") or likelihood.exposed:
            weights = np.array([draw["weight"] for draw in self.draws_.scored.draws])
            found = training.log_leave_one_out(likelihood, self.draws_, self.n_jobs)
            scores = outlier_scores(found, weights)
        else:
            X = X.toarray() if sp.issparse(X) else np.ascontiguousarray(X, dtype=np.float64)
            outliers = self._predictor.outliers
            scores = outliers.scores(X, OwnClusters(outliers, training, self.draws_))
        return of_all_rows(scores, training.copies)

    def pointwise_log_likelihood(self, X) -> np.ndarray:
        """log predictive density of each row of X of `fit` given all others, in nats: ndarray of
        shape (n_chains, n_scored_draws, n_samples), for the scored draws (``draws_.scored``).

        It is the input of leave-one-out cross-validation (`arviz.loo`). With a likelihood of
        networks, a row is a node with all its links.
        """
        check_is_fitted(self)
        self._check_label_draws("pointwise_log_likelihood", "score_samples(X)")
        _check_projective("pointwise_log_likelihood", self.likelihood_, ValueError)
        self._recall(X)
        training = self._training
        log_densities = training.log_leave_one_out(self.likelihood_, self.draws_, self.n_jobs)
        chains = {draw["chain"] for draw in self.draws_.scored.draws}
        log_densities = of_all_rows(log_densities, training.copies)
        return log_densities.reshape(len(chains), -1, log_densities.shape[1])

    @explains(**IN_ESTIMATE_LABELS)
    def estimate_labels(
        self,
        *,
        max_clusters: int | None = None,
        loss: Loss | None = None,
        n_estimates: int | None = None,
        X=None,
    ) -> Self:
        """Replace the partition of `fit` by another summary of the draws. Returns the estimator.

        Sets `labels_` and all that depends on it. Draws and predictive densities do not change.
        `skdpm.plotting.ExpectedLossDisplay` shows the loss for each `max_clusters`.

        Parameters
        ----------
        max_clusters : int, default=None
            Largest number of clusters, at least that of the known classes; it never raises the
            number. None: no limit.
        loss : {"adaptive", "modal", "vi", "binder"} or tuple (name, split_cost), default=None
            Loss, as in `point_estimate`. None: `point_estimate`, or "vi" if that is a single draw.
        n_estimates : int, default=None
            Largest number of partitions in `label_estimates_`, where one will not do, with shares
            of the draws near each, `estimate_weights_`: see `skdpm.partitions.point_estimates`.
        X : array-like or CSR matrix of shape (n_samples, n_features), default=None
            Rows of `fit`. Needed only after pickling.
        """
        check_is_fitted(self)
        self._check_label_draws("estimate_labels", 'point_estimate="map"')
        loss = estimate.loss_of_estimate(loss, self.point_estimate)
        training = self._training
        wanted = training.make_prior(1.0).most_clusters
        if max_clusters is not None:
            wanted = min(wanted, check_integer(max_clusters, "max_clusters", low=1))
        self._recall(X)
        drawn = estimate.DrawnClusters(self, loss)
        found = drawn.least_expected_loss(wanted)
        several = {} if n_estimates is None else drawn.several(n_estimates, wanted, found.labels)
        found.publish(self, training.make_prior, training.copies)
        vars(self).update(several)
        self._most_clusters = max_clusters
        self.diagnostics_ = self._with_clusters(copy.deepcopy(self.diagnostics_))
        return self

    def merge_tree(self, loss: Loss | None = None) -> partitions.MergeTree:
        """Merge the clusters of `labels_`, two at a time, with the least posterior expected loss.
        Where no draw joins any, the nearest merge if rows are points.

        Parameters
        ----------
        loss : {"vi", "binder"} or tuple (name, split_cost), default=None
            Loss. None: that of `point_estimate`, or of `labels_` if that reads hills or is a draw.

        Returns
        -------
        tree : skdpm.partitions.MergeTree
            Tree with `cut(n_clusters)`, and `linkage` for `scipy.cluster.hierarchy.dendrogram`.
        """
        self._check_label_draws("merge_tree", "n_components_samples_")
        if loss is None:
            loss = self.point_estimate
            if loss in (*estimate.SINGLE_DRAWS, *estimate.HILLS, "auto"):
                loss = self._loss
        training = self._training
        labels, draws = training.different(self._clusters), self._cells
        draws = training.different(self.cluster_samples_) if draws is None else draws
        inside = np.flatnonzero(training.spread(training.take(labels)) >= 0)
        if not len(inside):
            raise ValueError("merge_tree needs a cluster; all rows are noise")
        draws = alone(draws[:, :, inside])
        tree = partitions.merge_tree(draws, labels[inside], loss, self._distances)
        # Classes are in increasing order, clusters of a tree by decreasing size.
        of_cluster = tree.labels[np.unique(labels[inside], return_index=True)[1]]
        found = np.append(of_cluster, -1)[self._clusters]
        names = getattr(self, "classes_", np.arange(len(of_cluster)))
        return replace(tree, labels=found, names=names[np.argsort(of_cluster)])

    @functools.cached_property
    def _other_readings(self):
        lines = {}
        if scores := getattr(self, "likelihood_scores_", {}):
            of_chosen = next(iter(scores.values()))
            words = []
            for law, nats in scores.items():
                score = f"{nats:.4g}" if nats > -np.inf else "(ruled out)"
                score += " (not clearly better)" * (nats > of_chosen)
                words.append(f"{' '.join(law.split())} {score}")
            words[0] += " (chosen)"
            lines["likelihood"] = (
                f"{words_about_law(self)}; nats a held-out row in short fits: {', '.join(words)}"
            )
        return lines | doubts.words_of_silence(self) | estimate.other_readings(self)

    @property
    def _clusters(self):
        """`labels_` as numbers 0, 1, ..., in the order of `classes_` if it exists."""
        return self._numbers(self.labels_)

    def _numbers(self, labels):
        """Clusters by their order, -1 for noise, from labels as `predict` gives them."""
        if not hasattr(self, "classes_"):
            return labels
        return np.searchsorted(self.classes_, labels) - (labels < 0)

    def _check_label_draws(self, name, instead):
        check_is_fitted(self)
        if self._training is None:
            raise AttributeError(
                f"{name} needs label draws, which are kept with store_labels=True, rows in memory "
                "and no partial_fit. A copy of for_prediction keeps no draws: use the fit itself. "
                f"Otherwise use {instead}"
            )

    @names_columns
    def _recall(self, X):
        """Get the rows of `fit`, from X or as kept."""
        if X is not None:
            X = self._validate_fit(X, self.likelihood_, self.sampler_, reset=False)
        return self._training.recall(X)

    # Streams.

    @names_columns
    def _batch(self, X, known, exposure, run, first):
        """Check parameters and rows, and make the run of the particles over a batch, whose first
        row has the number `first` in errors. The run of particles so far is None at the start."""
        self._known, self._exposure = known, exposure
        remedy = "start again with fit, or with a clone of the estimator"
        if run is None:
            likelihood = self._resolved("likelihood").for_batch(X)
            likelihood = _exposed(likelihood, self)
        else:
            likelihood = run.likelihood
        sampler = self._resolved_sampler(likelihood, X)
        signature = self._signature(likelihood, sampler)
        settings = self._settings(STREAM_LENGTH, sampler)
        if run is not None:
            self._refuse_changed(run, signature, "partial_fit", remedy, UNUSED_IN_STREAMS)
            X = validate_rows(self, X, likelihood, reset=False)
            X = with_exposure(X, likelihood, self._exposure)
            likelihood.resolve(X)  # raises an error for rows that it cannot model
            doubts.warn_of_departures(self, X, likelihood)
        else:
            self._forget()
            X = validate_rows(self, X, likelihood, reset=True)
            X = with_exposure(X, likelihood, self._exposure)
            likelihood = likelihood.resolve(X).without_learning()
            laws = laws_of_noise(check_noise(self.noise), likelihood, likelihood.as_seen(X, 0))
            run = Run(
                entropy=seed_entropy(self.random_state),
                signature=signature,
                likelihood=likelihood,
                noise_law=laws["noise_law"],
                known=UNLABELLED,
                chains=[],
            )
        known.check(likelihood, settings["prior_of"](STREAM_LENGTH, 1.0).most_clusters, True)
        program = sampler.batch_program(
            X,
            known.restricted(run.likelihood),
            known=known,
            n_before=run.chains[0]["iteration"] if run.chains else 0,
            first=first,
            noise_law=run.noise_law,
            kept=run.kept,
            pool=run.pool,
            **settings,
        )
        self._limits(program)
        chains = [known.continued(chain, run.known) for chain in run.chains] or [
            program.chain(run.entropy, c) for c in range(program.n_chains)
        ]
        return replace(run, program=program, chains=chains)

    def _read_off(self, run):
        """Make draws of the particles of a batch: the fitted attributes, dict."""
        chains = [run.program.drawn(chain) for chain in run.chains]
        return self._concluded(replace(run, chains=chains), run.program.n_draws)

    def _read(self):
        """Set attributes that follow from the draws of the last batch, if none was read yet."""
        with READING:
            unread = vars(self).get("_unread")
            if unread is not None:
                attributes = {**unread(), **vars(self)}
                del attributes["_unread"]
                self.__dict__ = attributes

    # Parameters.

    def _registry(self, name):
        if name == "likelihood":
            return {**LIKELIHOODS, "auto": Automatic, "mixed": Mixed}, Likelihood
        return {**SAMPLERS, "auto": None}, Sampler

    _warn_of_columns = doubts.warn_of_columns

    def _bound_likelihood(self, X):
        return _exposed(self._resolved("likelihood").for_columns(X), self)

    def _chosen_likelihood(self, X, previous):
        likelihood = self._bound_likelihood(X)
        asked = self._resolved("likelihood")
        by_name = laws_by_name(asked, likelihood, X)
        if len(by_name) < 2:
            return next(iter(by_name.values()), likelihood), {}
        if previous is not None and previous.trials:
            # Other rows, which are an error, may not have this law.
            return by_name.get(next(iter(previous.trials)), likelihood), previous.trials
        # Checks the parameters before the short fits.
        self._settings(max(given_shape(X)[0], 1), self._resolved_sampler(likelihood, X))
        scores = scores_of_laws(self, [*by_name.values()], X)
        if not scores.size:
            return likelihood, {}
        best = [*by_name][best_law(scores, asked.n_errors)]
        means = dict(zip(by_name, scores.mean(axis=1).tolist(), strict=True))
        return by_name[best], {best: means[best], **means}

    def _resolved_sampler(self, likelihood, X):
        if isinstance(self.sampler, str) and self.sampler == "auto":
            make_prior = functools.partial(self.make_prior, concentration=1.0)
            likelihood_of_rows = likelihood if is_dask(X) else self._known.restricted(likelihood)
            noise = check_noise(self.noise) is not None
            sampler, objection = automatic_sampler(likelihood_of_rows, X, make_prior, noise)
        else:
            sampler = self._resolved("sampler")
            objection = sampler.objection(likelihood, X)
        if objection is not None:
            raise ValueError(objection)
        if check_noise(self.noise) is not None:
            refuse_noise(likelihood, sampler, X)
            if not self.store_labels:
                raise ValueError("noise needs label draws; set store_labels=True")
        return sampler

    def _signature(self, likelihood, sampler):
        return {**super()._signature(likelihood, sampler), "known_labels": [self._known.key]}

    def _validate_fit(self, X, likelihood, sampler, reset):
        X = sampler.validate(self, X, likelihood, reset)
        X = with_exposure(X, likelihood, self._exposure)
        if reset and likelihood.says_nothing(X.shape[1]):
            warn(
                "a single column of categories contains no information about clusters, because a "
                "mixture of categorical distributions is a categorical distribution: the labels "
                "follow the priors alone. Add columns",
            )
        return X

    def _program(self, X, likelihood, sampler):
        """Check all parameters and make the program of the sampler."""
        known, init, copies = self._known, self.init, None
        if isinstance(X, np.ndarray):
            copies = likelihood.copies(X, known.codes)
        if copies is not None:
            if not isinstance(init, str):
                init = labels_of_rows(init, X.shape[0])[copies.first]
            known = known.take(copies.first)
            X = X[copies.first]
        n_samples = X.shape[0]
        settings = self._settings(n_samples, sampler)
        if not self.store_labels and self.point_estimate not in (*estimate.SINGLE_DRAWS, "auto"):
            raise ValueError(
                f"point_estimate={self.point_estimate!r} needs label draws; with "
                'store_labels=False choose point_estimate="auto", "map" or "last"'
            )
        most_clusters = settings["prior_of"](n_samples, 1.0).most_clusters
        self._known.check(likelihood, most_clusters, self.store_labels)
        return sampler.program(
            X,
            known.restricted(likelihood),
            n_samples=n_samples,
            most_clusters=most_clusters,
            init=init,
            store_labels=bool(self.store_labels),
            n_jobs=self.n_jobs,
            known=known,
            copies=copies,
            noise=check_noise(self.noise),
            **settings,
        )

    def _settings(self, n_samples, sampler):
        """Check the settings of a program, with the prior of n_samples rows: dict."""
        estimate.check_point_estimate(self.point_estimate)
        settings = self._chain_parameters()
        check_bool(self.store_labels, "store_labels")
        sampler.kernel()  # checks its parameters
        # The chains use a copy, so setting a parameter during the fit does not affect them.
        prior_of = self._copied().make_prior
        prior = prior_of(n_samples, 1.0)
        concentration = self.concentration
        if concentration is not None:
            lowest = prior.lowest_concentration
            concentration = check_real(concentration, "concentration", low=lowest)
            prior = prior_of(n_samples, concentration)
        sampler.check_prior(prior)
        return settings | dict(sampler=sampler, prior_of=prior_of, concentration=concentration)

    # Results.

    def _publish(self, draws, program):
        if hasattr(self, "label_samples_"):
            del self.label_samples_
        super()._publish(draws, program)
        if program.store_labels:
            self.label_samples_ = of_all_rows(draws["labels"], program.copies)

    def _summarise(self, run):
        program, chains, draws = run.program, run.chains, self.draws_
        likelihood = program.likelihood
        if likelihood.learned:
            means = {name: draws.mean(column_of(name)) for name in likelihood.learned}
            # Plain numbers, as a user would set them.
            likelihood = likelihood.at(
                {name: mean.item() if mean.ndim == 0 else mean for name, mean in means.items()}
            )
        self.likelihood_ = likelihood = likelihood.own
        snapshots = common_snapshots([chain["snapshots"] for chain in chains], draws.n_draws)
        scored = ScoredDraws(snapshots, program.likelihood)
        self.draws_ = draws.with_scored(scored)
        self._n_different = program.n_samples
        self._training = None
        # Statistics of any labels need values of missing entries: those of one draw.
        completion = scored.draws[-1].get("completion")
        statistics = functools.partial(program.statistics, completion=completion)
        if program.store_labels:
            self._training = TrainingRows(
                X=program.given,
                key=run.data,
                model=self._copied(),
                entropy=run.entropy,
                completion=completion,
                known=program.known,
                noise_law=program.noise_law,
                copies=program.copies,
                informative=informative_rows(likelihood, program.known, program.given),
            )
        self._predictor = Predictor(
            likelihood, self.n_features_in_, None, scored, program.noise_law.background
        )
        for name in FURTHER_ATTRIBUTES:
            vars(self).pop(name, None)
        found = estimate.first_estimate(self, run, statistics)
        found.publish(self, program.make_prior, program.copies)
        if "acceptance" in chains[0]:
            self.acceptance_rate_ = {}
            for move in chains[0]["acceptance"]:
                proposed, accepted = np.transpose([chain["acceptance"][move] for chain in chains])
                with np.errstate(invalid="ignore"):
                    self.acceptance_rate_[move] = accepted / proposed
        vars(self).update(program.further_attributes(chains))
        if run.trials:
            self.likelihood_scores_ = dict(run.trials)
        if "selected" in likelihood.learned:
            self.relevance_ = likelihood.relevance(draws.mean(column_of("selected")))
        doubts.warn_of_overdispersion(self, program)

    def _is_well_known(self, run, n_draws):
        program = run.program
        partitions = None
        if program.store_labels:
            labels = np.array([chain["draws"]["labels"][:n_draws] for chain in run.chains])
            if _convergence.separation(labels) > _convergence.largest_separation(len(labels)):
                return True  # more draws would not join the chains
            partitions = coclustering_diagnostics(labels)
            if _convergence.are_out_of_reach(partitions, labels.shape[:2], program.n_draws):
                return True
        n_components = np.array([c["draws"]["n_components"][:n_draws] for c in run.chains])
        if not _convergence.are_well_known(n_components, partitions):
            return False
        # Copies, because scored draws share the clusters of their pools.
        snapshots = [
            {**chain["snapshots"], "pool": dict(chain["snapshots"]["pool"])}
            for chain in run.chains
        ]
        scored = ScoredDraws(common_snapshots(snapshots, n_draws), program.likelihood)
        log_density = _log_density_draws(program, scored)
        return log_density is None or _convergence.is_well_known(log_density)

    def _with_answers(self, figures, run):
        """Add the density of the rows, and the agreement of chains about clusters."""
        program = run.program
        if not program.halts:
            return self._with_clusters(figures)
        below = _convergence.below_highest(self.draws_["log_joint"])
        entry = figures["log_joint"]
        entry["below_highest"] = float(below.max())
        entry["chance_of_drift"] = _convergence.chance_of_drift(self.draws_["log_joint"])
        entry["difference_chains"] = float(np.ptp(self.draws_["log_joint"].mean(axis=1)))
        if program.regroups and len(run.chains) > 1:
            origins = {chain.get("origin", chain["index"]) for chain in run.chains}
            masses = _masses(run)
            entry["n_starts"] = float(len(origins))
            entry["lost_mass"] = float(_convergence.below_largest(masses).max())
            if masses.size:
                entry["difference_masses"] = float(np.ptp(masses.mean(axis=1)))
        log_density = _log_density_draws(program, self.draws_.scored)
        if log_density is not None and log_density.shape[1] >= _convergence.FEWEST_SCORED:
            figures["log_density"] = _convergence.level_figures(
                log_density, (program.n_samples, self.n_features_in_)
            )
        return self._with_clusters(figures)

    def _with_clusters(self, figures):
        if self._training is not None and "coclustering" in figures:
            clusters = self._training.different(self.cluster_samples_)
            figures["coclustering"].update(_convergence.agreement(clusters))
        if like := figures.get("n_components"):  # particles have only some figures, or none
            found = _convergence.of_values(self.n_clusters_samples_)
            figures["n_clusters"] = {name: found[name] for name in found if name in like}
        return figures

    def _unusable(self, bad):
        if "log_joint" in bad and "ess_bulk" not in self.diagnostics_["log_joint"]:
            return bad  # particles
        return _convergence.unusable(self.diagnostics_, bad)

    def _warning(self, program, bad, unusable):
        if not program.halts:
            return super()._warning(program, bad, unusable)
        figures, draws = self.diagnostics_, self.draws_
        words = [f"{program.complaint}: {_convergence.verdict(figures, unusable)}."]
        if bad:
            words.append(f"Chains disagree about {self._describe(bad)}.")
        if _convergence.from_one_start(figures):
            words.append(
                "All chains go on from the state of a single start. In warm-up "
                "the others were at far less probable states, so there may be a better state yet. "
                "Try more chains, and compare log_joint_samples_ of fits with other seeds."
            )
        elif "log_joint" in unusable and _convergence.stay_low(figures["log_joint"]):
            words.append(_convergence.low_chains(draws["log_joint"], _masses(self._run, program)))
        elif "log_joint" in unusable:
            words.append("Its level still changes in all chains, because the warm-up was short.")
        if _convergence.stay_apart(figures, draws.n_chains):
            words.append(
                "They stay in separate modes, which more draws would not join. Try more chains "
                f"or another init or sampler, or see {RECIPE}"
            )
        elif bad:
            n_draws = _convergence.draws_to_ask(figures, unusable, draws.n_draws)
            n_warmup = 2 * max(self.n_warmup_, 250)
            words.append(f"Try n_warmup={n_warmup}, n_draws={n_draws}, or see {RECIPE}")
        return " ".join(words)

    # New rows.

    def _over_rows(self, function, X, dtype, n_columns=None, gaps=False, exposure=None):
        """Call a method of `Predictor` on X, or lazily on the chunks of a dask array. With `gaps`,
        entries may be missing."""
        check_is_fitted(self)
        if exposure is not None or self.likelihood_.exposed:
            _refuse_lazy(X)
        X = given_rows(X)
        if is_dask(X):
            X = lazy_rows(self, X, self.likelihood_, reset=False)
        # The scheduler of a dask array has its own threads.
        n_jobs = 1 if is_dask(X) else self.n_jobs

        def check(X):
            rows = validate_rows(self, X, self.likelihood_, reset=False, gaps=gaps)
            if not gaps and self.likelihood_.draws_gaps and not _given_sampler(self).draws_gaps:
                # As in `fit`, so that tags of scikit-learn hold for all methods.
                check_finite(
                    rows, allow_nan=False, hint="score_samples and impute take rows with NaN"
                )
            doubts.warn_of_departures(self, rows, self.likelihood_)
            return with_exposure(rows, self.likelihood_, exposure)

        names = getattr(self, "feature_names_in_", None)
        return over_rows(
            functools.partial(named_call, names, function, self._predictor, n_jobs=n_jobs),
            X,
            check=functools.partial(named_call, names, check),
            check_chunk=functools.partial(named_call, names, self._predictor.check, gaps=gaps),
            n_features=self.n_features_in_,
            dtype=dtype,
            n_columns=n_columns,
        )


def _without_streams(estimator):
    if estimator._left_out:
        return "for_prediction keeps no particles: use the fit itself"
    if _given_sampler(estimator).online:
        return None
    asked = f"sampler={estimator.sampler!r}"
    return f'{asked} needs all rows at once; set sampler="smc", or pass all rows to fit'


def _given_sampler(estimator):
    """The parameter `sampler`, or the class that it names; `Sampler` if it is "auto" or wrong."""
    sampler = estimator.sampler
    return sampler if isinstance(sampler, Sampler) else SAMPLERS.get(str(sampler), Sampler)


def _is_read_off(name):
    is_fitted = name.endswith("_") and not name.startswith("_")
    return name in READ_OFF or (is_fitted and name not in ("feature_names_in_", "n_features_in_"))


def _exposed(likelihood, estimator):
    """The likelihood for rows with exposures, if there are any."""
    if estimator._exposure is None:
        return likelihood
    if why := refusal(likelihood, "with_exposure"):
        if estimator.likelihood == "auto":
            why = 'name the law of counts, likelihood="negative_binomial" or "poisson", not "auto"'
        raise ValueError(f"exposure cannot be used: {why}")
    if check_noise(estimator.noise) is not None:
        raise ValueError("exposure cannot be combined with noise; set noise=None")
    return likelihood.with_exposure()


def _check_projective(name, likelihood, error):
    if not likelihood.projective:
        raise error(
            f"{name} needs a likelihood under which a row has a density given the others; "
            f"under {likelihood!r} the law of the other rows depends on the row"
        )


def _log_density_draws(program, scored):
    """Mean log density of some rows of the fit under the scored draws, ndarray of shape
    (n_chains, n_scored); None if rows have no density under draws."""
    rows = program.density_rows
    if rows is None:
        return None
    background = program.noise_law.background
    predictor = Predictor(program.likelihood.own, rows.shape[1], None, scored, background)
    n_chains = len({draw["chain"] for draw in scored.draws})
    return predictor.mean_log_densities(rows).reshape(n_chains, -1)


def _masses(run, program=None):
    """Estimates of the log mass around the draws: ndarray of shape (n_chains, n_estimates)."""
    program = program or run.program
    last = min(chain["iteration"] for chain in run.chains)
    return masses_between(run.chains, program.n_warmup, last)


def _refuse_lazy(X, what="exposures"):
    if is_dask(X):
        raise ValueError(
            f"rows with {what} must be in memory, and X is a dask array: pass X.compute(), or one "
            'part of it at a time to predict and, with sampler="smc", to partial_fit'
        )
