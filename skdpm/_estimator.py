# SPDX-License-Identifier: BSD-3-Clause
"""Fits that run chains, go on and are interrupted, for the estimators of both families."""

import difflib
import functools
import pickle
import time
from dataclasses import replace
from numbers import Integral

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from skdpm import _convergence
from skdpm._callbacks import CallbackSupport, FitReports
from skdpm._display import html_table, summary_of_fit
from skdpm._run import Run
from skdpm._validation import (
    check_bool,
    check_integer,
    check_real,
    fingerprint,
    refuse_what_has_no_rows,
    warn,
)
from skdpm.chains import Halts, run_chains, seed_entropy
from skdpm.draws import Draws

# What a user may give to `fit` and `partial_fit` in vain, and what to do in its place.
UNSUPPORTED_IN_FIT = {
    "sample_weight": (
        "rows have no weights, each is an observation of its own. Where a weight is a number of "
        "equal observations, repeat the row: fit(np.repeat(X, sample_weight, axis=0))"
    ),
}

# Names of parameters that other libraries have, and what to give in their place.
OTHER_NAMES = {
    "alpha": "its name is concentration",
    "max_iter": "iterations are n_warmup and n_draws",
    "n_init": "independent chains are n_chains",
    "n_iter": "iterations are n_warmup and n_draws",
}

# Parameters that may change between the fits of a warm start.
FREE_PARAMETERS = frozenset(
    {
        "max_time",
        "n_draws",
        "n_jobs",
        "point_estimate",
        "random_state",
        "target_ess",
        "verbose",
        "warm_start",
    }
)


class ChainEstimator(CallbackSupport, BaseEstimator):
    """Base class of estimators that sample a posterior by several chains.

    A subclass has the parameters `likelihood`, `sampler`, `n_warmup`, `n_draws`, `thin`,
    `n_chains`, `n_jobs`, `warm_start`, `random_state` and `verbose`, and writes `_registry`,
    `_validate_fit`, `_program`, `_publish`, `_summarise` and `score_samples`. It may have
    `max_time` and `target_ess`.
    """

    max_time = target_ess = None  # of a subclass that has no such parameters
    _components = "clusters"  # as users call them
    _ways_with_text = _ways_with_sparse = ""  # ends of messages about text and sparse matrices

    def _registry(self, name):
        """For "likelihood" or "sampler": a dict of names and classes, and their base class."""
        raise NotImplementedError

    def _validate_fit(self, X, likelihood, sampler, reset):
        """The X of `fit`, checked."""
        raise NotImplementedError

    def _program(self, X, likelihood, sampler):
        """The `ChainProgram` of the fit, all parameters checked."""
        raise NotImplementedError

    def _publish(self, draws, program):
        """Set the attributes that are draws."""
        raise NotImplementedError

    def _summarise(self, run):
        """Set the attributes that follow from `draws_`, except for its diagnostics."""
        raise NotImplementedError

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

    def to_datatree(self, X=None, *, log_likelihood=False):
        """Hand the draws to ArviZ, as an xarray.DataTree. Needs arviz-base (extra "arviz").

        Its groups have the names and dimensions that ArviZ knows:

        - posterior: whatever was drawn and has the same shape in every draw, by its name in
          `draws_`, as "labels" with the dimension "row", "n_components" and "concentration".
          R-hat and effective sample sizes of these are those of `diagnostics_`. What belongs to
          columns has the dimension "column"; in part "size" of a `Product`, "size_column".
        - sample_stats: "lp", the log joint density; "acceptance_rate" by chain and move, where
          there are such.
        - log_likelihood, where asked for: "x", the log predictive density of each row given all
          others (`pointwise_log_likelihood`), from which `arviz.loo` estimates leave-one-out
          cross-validation. Only some draws have it, those that new rows are scored by: its
          coordinate "draw" tells which.
        - observed_data, where X is given and no sparse matrix or dask array: "x", or for a table
          with words a variable for each column.

        Draws that have weights weigh the same in ArviZ; sample_stats then has "log_weight".

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), default=None
            The rows of `fit`; only needed for the last two groups.
        log_likelihood : bool, default=False
            Mixtures only.

        Returns
        -------
        tree : xarray.DataTree

        Raises
        ------
        ImportError
            Without arviz-base.
        ValueError
            Where X is not that of `fit`, or there is no X or method for `log_likelihood`.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpm import DPMixture
        >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
        >>> tree = DPMixture(random_state=0).fit(X).to_datatree(X)
        >>> dict(tree.posterior["labels"].sizes)
        {'chain': 4, 'draw': 250, 'row': 20}
        """
        from skdpm._arviz import datatree

        check_is_fitted(self)
        pointwise = None
        if check_bool(log_likelihood, "log_likelihood"):
            if not hasattr(self, "pointwise_log_likelihood"):
                raise ValueError(f"{type(self).__name__} has no pointwise log likelihood")
            if X is None:
                raise ValueError("log_likelihood=True needs X, the rows of fit")
            numbers = [draw["draw"] for draw in self.draws_.scored.draws if draw["chain"] == 0]
            pointwise = (numbers, self.pointwise_log_likelihood(X))
        elif X is not None:
            self._rows_of_fit(X, self.likelihood_)
        return datatree(self, X, pointwise)

    def drop_chains(self, chains, X):
        """Leave chains out: of the draws, and of all that is made of them.

        What is left is as if the others had been the only ones: labels, predictions, densities,
        `diagnostics_` and `converged_`. With `warm_start`, `fit` goes on with the others.

        Chains that are stuck far below the others in log joint density stand for hardly any
        posterior mass, and count as much as any while they are there. Where levels are close,
        however, no chain is wrong: each has found a part of the posterior, their numbers do not
        tell how much is in it, and leaving some out hides that there are several. Then more
        iterations, another sampler or other starts are the remedy, and
        `skdpm.diagnostics.stacking_weights` tells which chains predict well together.

        Parameters
        ----------
        chains : int or array-like of int
            Numbers of those to be left out, from 0, as the draws have them.
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)
            The rows of `fit`.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For numbers of no chain, or of all; where X or a parameter is another one than in
            `fit`; without the chains, as after `partial_fit`, with "smc", or once pickled without
            `warm_start`.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpm import DPMixture
        >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
        >>> model = DPMixture(random_state=0).fit(X)
        >>> model.drop_chains([1, 3], X).log_joint_samples_.shape
        (2, 250)
        """
        check_is_fitted(self)
        run = getattr(self, "_run", None)
        if run is None or run.data is None:
            raise ValueError(
                "drop_chains needs the chains of fit; they are not kept by partial_fit, by "
                'sampler="smc" or by a pickle without warm_start=True: fit again'
            )
        n_chains = self.draws_.n_chains
        dropped = np.unique(chains)
        if dropped.dtype.kind not in "iu" or not np.isin(dropped, np.arange(n_chains)).all():
            raise ValueError(f"chains must be numbers from 0 to {n_chains - 1}, got {chains!r}")
        kept = [c for c in range(n_chains) if c not in dropped]
        if not kept:
            raise ValueError(f"drop_chains must keep a chain, got all {n_chains}")
        run = self._prepare(X, run, "drop_chains", "refit, or restore it", reset=False)
        run = replace(run, chains=[run.chains[c] for c in kept])
        self.draws_ = self.draws_.only(kept)
        self._publish(self.draws_, run.program)
        self._sum_up(run)
        self._run = run.finished()
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self._lenient_likelihood()
        if likelihood is not None:
            tags.input_tags.allow_nan = likelihood.allow_nan
            tags.input_tags.sparse = likelihood.accept_sparse
            tags.input_tags.pairwise = likelihood.pairwise
            tags.input_tags.positive_only = likelihood.positive_only
            tags.input_tags.categorical = tags.input_tags.string = likelihood.reads_tables
        return tags

    # Notebooks. scikit-learn's own classes call the second or the third, by their version.

    def _html_repr(self):
        """scikit-learn's diagram, and below it what the fit has found."""
        diagram = estimator_html_repr(self)
        if not self.__sklearn_is_fitted__():
            return diagram
        return diagram + html_table(summary_of_fit(self, self._components))

    def _repr_html_inner(self):
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._html_repr()
        return bundle

    # Fits.

    def _fit(self, X, y=None):
        started = time.monotonic()
        refuse_what_has_no_rows(X)
        run, is_complete = self._begun(X)
        program = run.program
        limits = self._limits(program)
        if is_complete:
            self._sum_up(run)  # point_estimate may have changed
            self._run = run.finished()
            return self
        before = getattr(self, "fit_time_", 0.0) if self._continues() else 0.0
        # Callbacks see a copy: they cannot change the chains.
        reports = FitReports.of(self, program, X, y, functools.partial(self._fitted_so_far, run))
        halts = None
        if program.halts and (limits or reports is not None):
            halts = Halts(
                program,
                run.chains,
                deadline=started + limits["max_time"] if "max_time" in limits else None,
                target_ess=limits.get("target_ess"),
                compute_ess=run.least_ess,
                reports=reports,
            )
        if reports is not None:
            reports.begin(run.chains)
        interrupted = self._advance(run, program.n_iterations, halts)
        n_draws = run.n_draws
        if n_draws > 0:
            self._conclude(run, n_draws)
            self.fit_time_ = before + time.monotonic() - started
        else:
            self._forget()
            self._run = replace(run, program=None)
        if interrupted:
            warn(
                f"{type(self).__name__}.fit was interrupted after {n_draws} of {self.n_draws} "
                "draws of each chain"
                + ("; the attributes describe those" if n_draws else ": nothing is fitted")
                + ("; fit again to continue" if self.warm_start else ""),
                RuntimeWarning,
            )
            raise KeyboardInterrupt
        if reports is not None:
            reports.end(run.chains)
        self._warn_of_limits(run, halts)
        self._warn_if_not_converged(program)
        return self

    # Steps of a fit.

    def _continues(self):
        """Whether `fit` continues the chains of the last one."""
        return self.warm_start and hasattr(self, "_run")

    def _begun(self, X):
        """The run of `fit`, new or continued, and whether it has all its draws already."""
        fitted = self.__sklearn_is_fitted__()
        if not self._continues():
            if self.warm_start and fitted:
                warn(
                    "warm_start=True starts anew: the chains of the last fit are not there, "
                    "because a pickle with warm_start=False does not hold them",
                    UserWarning,
                )
            return self._prepare(X), False
        remedy = "set warm_start=False to start anew"
        run = self._prepare(X, self._run, "warm_start=True", remedy, reset=not fitted)
        # After an interruption some chains have more draws; a later fit may ask for them.
        done = self.draws_.n_draws if hasattr(self, "draws_") else 0
        n_draws = run.program.n_draws
        if n_draws < done:
            raise ValueError(
                f"warm_start=True needs n_draws of at least {done}, the number of draws that "
                f"exist, got {n_draws}; {remedy}"
            )
        if n_draws == done:
            warn(
                f"all {n_draws} draws exist already: nothing is sampled; fit with a larger "
                "n_draws to continue",
                UserWarning,
            )
            return run, True
        chains = [dict(chain) for chain in run.chains]
        if done > 0:
            for place, chain in enumerate(chains):
                chain["draws"] = self.draws_.chain(place, chain["draws"])
        return replace(run, chains=chains), False

    def _prepare(self, X, previous=None, who="", remedy="", reset=True):
        """A run over X, parameters and rows checked.

        Parameters
        ----------
        X : array-like
        previous : Run or None
            The run to continue, of the same rows and parameters.
        who, remedy : str
            What a message says if these differ: who needs them, and what to do.
        reset : bool
            Whether the number and names of columns are new.
        """
        likelihood = self._bound_likelihood(X)
        sampler = self._resolved_sampler(likelihood, X)
        rows = self._validate_fit(X, likelihood, sampler, reset=reset)
        data = fingerprint(rows)
        if previous is not None and data != previous.data:
            raise ValueError(
                f"{who} needs the rows of the last fit, but X has others: give those, or {remedy}"
            )
        signature = self._signature(likelihood, sampler)
        if previous is not None:
            self._refuse_changed(previous, signature, who, remedy)
        program = self._program(rows, likelihood, sampler)
        if previous is not None:
            return replace(previous, program=program)
        entropy = seed_entropy(self.random_state)
        return Run(
            entropy=entropy,
            signature=signature,
            data=data,
            program=program,
            chains=[program.chain(entropy, c) for c in range(program.n_chains)],
        )

    def _advance(self, run, n_iterations, halts=None):
        """Let the chains run; whether Ctrl-C stopped them."""
        return run_chains(
            run.program.advance,
            run.chains,
            n_iterations,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            halts=halts,
        )

    def _conclude(self, run, n_draws):
        """Set the fitted attributes, from the first n_draws of each chain."""
        program, chains = run.program, run.chains
        self.likelihood_, self.sampler_ = program.likelihood, program.sampler
        self.draws_ = Draws.of_chains(
            program.columns(), [chain["draws"] for chain in chains], n_draws
        )
        self._data = run.data  # pickled, unlike `_run`
        # All chains have done these: after an interruption some may be ahead.
        self.n_iter_ = min(chain["iteration"] for chain in chains)
        self._publish(self.draws_, program)
        self._sum_up(run)
        self._run = run.finished()

    def _sum_up(self, run):
        """Set the attributes that follow from `draws_`."""
        self._summarise(run)
        figures = _convergence.figures(self.draws_, run.program.compared)
        self.diagnostics_ = run.program.diagnostics(figures, run.chains)
        bad = self._disagreements(run.program)
        self.converged_ = not bad
        run.told = tuple(sorted({*bad, *run.told}))

    def _fitted_so_far(self, run, n_draws):
        """The attributes of this estimator if the fit ended with n_draws of each chain: dict."""
        after = self._copied(("n_features_in_", "feature_names_in_"))
        chains = [{**chain, "draws": dict(chain["draws"])} for chain in run.chains]
        after._conclude(replace(run, chains=chains), n_draws)
        parameters = self.get_params(deep=False)
        return {name: value for name, value in vars(after).items() if name not in parameters}

    def _copied(self, names=()):
        """A copy with the parameters and, of the other attributes, those of these names."""
        other = object.__new__(type(self))
        vars(other).update(self.get_params(deep=False))
        vars(other).update({name: vars(self)[name] for name in names if name in vars(self)})
        return other

    def _rows_of_fit(self, X, likelihood):
        """X, checked under a likelihood; ValueError if it is not that of `fit`."""
        X = self._validate_fit(X, likelihood, self.sampler_, reset=False)
        if self._data is not None and fingerprint(X) != self._data:
            raise ValueError("X must be the rows of fit")
        return X

    def _limits(self, program):
        """The limits of a fit that are set, checked: dict, name -> float."""
        limits = {
            name: check_real(getattr(self, name), name, low=0.0)
            for name in ("max_time", "target_ess")
            if getattr(self, name) is not None
        }
        if limits and not program.halts:
            raise ValueError(
                f"{' and '.join(limits)} must be None with {program.sampler!r}, whose draws come "
                "when all rows have; its n_particles says how long it takes"
            )
        return limits

    def _warn_of_limits(self, run, halts):
        """Warn of a limit that could not be kept."""
        if halts is None:
            return
        program, n_draws = run.program, self.draws_.n_draws
        if halts.late_at is not None:
            done = f"{halts.late_at} of {program.n_warmup} iterations of warm-up"
            if halts.late_at >= program.n_warmup:
                done = f"{program.n_draws_after(halts.late_at)} draws of each chain"
            warn(
                f"max_time={self.max_time!r} was over after {done}; warm-up was finished and "
                f"{n_draws} draws made all the same, in {self.fit_time_:.3g} seconds: a smaller "
                "n_warmup, or a larger max_time, leaves time for more",
                ConvergenceWarning,
            )
        if self.target_ess is not None and not halts.ess >= self.target_ess:
            warn(
                f"target_ess={self.target_ess!r} was not reached: the smallest bulk effective "
                f"sample size is {run.least_ess(n_draws, self.draws_):.3g} after {n_draws} draws "
                "of each chain; with warm_start=True, a larger n_draws or max_time continues it",
                ConvergenceWarning,
            )

    def __getstate__(self):
        """Without the chains, unless a warm start or `partial_fit` may need them."""
        state = super().__getstate__()
        if not (self.warm_start or self._takes_more_rows()):
            state = {name: value for name, value in state.items() if name != "_run"}
        return state

    def _takes_more_rows(self):
        """Whether the last run, finished, can go on with more rows."""
        run = getattr(self, "_run", None)
        return run is not None and run.likelihood is not None

    def _forget(self):
        """Drop all fitted attributes, as those of an earlier fit to other data."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _disagreements(self, program):
        """The quantities that chains have not agreed on, by name."""
        draws = self.draws_
        return _convergence.disagreements(
            self.diagnostics_, draws.n_chains, draws.n_draws, program.fewest_compared
        )

    def _warn_if_not_converged(self, program, known=()):
        """Warn of what the chains have not agreed on, except for what is known."""
        bad = [name for name in self._disagreements(program) if name not in known]
        if bad:
            warn(
                f"{program.complaint}: {self._describe(bad)}; {program.remedies} may help",
                ConvergenceWarning,
            )

    def _describe(self, names):
        """Words about quantities that chains have not agreed on; details of some."""
        names = sorted(names, key=lambda name: name not in ("log_joint", "coclustering"))
        words = []
        for name in names[: _convergence.MOST_DESCRIBED]:
            entry = self.diagnostics_[name]
            if name == "coclustering":
                found = _convergence.describe_partitions(entry, self.draws_["labels"])
            elif name in self.draws_:
                found = _convergence.describe(entry, self.draws_[name])
            else:
                found = _convergence.describe(entry, getattr(self, f"{name}_chains_"))
            words.append(f"{name}: {found}")
        others = names[_convergence.MOST_DESCRIBED :]
        if others:
            words.append(f"and {', '.join(others)}")
        return "; ".join(words)

    # Parameters.

    def _resolved(self, name):
        """The likelihood or sampler object; a name means the object with its defaults."""
        value = getattr(self, name)
        registry, base = self._registry(name)
        if isinstance(value, base):
            return value
        if isinstance(value, str) and value in registry:
            return registry[value]()
        hint = ""
        if isinstance(value, type) and issubclass(value, base):
            value = value.__name__
            hint = f"; it is a class, give an object: {name}={value}()"
        elif isinstance(value, str):
            close = difflib.get_close_matches(value, registry, n=1)
            value, hint = repr(value), f"; did you mean {close[0]!r}?" if close else ""
        else:
            value = repr(value)
        raise ValueError(
            f"{name} must be a {base.__name__} object or one of {', '.join(sorted(registry))}; "
            f"got {value}{hint}"
        )

    def _bound_likelihood(self, X):
        """The likelihood object, which knows the columns of the X given to `fit`."""
        return self._resolved("likelihood")

    def _resolved_sampler(self, likelihood, X):
        """The sampler object for this likelihood and the X given to `fit`."""
        return self._resolved("sampler")

    def _lenient_likelihood(self):
        """The likelihood object, or None where the parameter is wrong: tags must not raise."""
        try:
            return self._resolved("likelihood")
        except ValueError:
            return None

    def set_params(self, **params):
        for name in ("likelihood", "sampler"):
            nested = [key for key in params if key.startswith(f"{name}__")]
            value = params.get(name, getattr(self, name))
            if nested and isinstance(value, str):
                raise ValueError(
                    f"cannot set {nested[0]!r}: {name}={value!r} is a name, which stands for an "
                    f"object with default parameters; give {name} an object to set its parameters"
                )
        return super().set_params(**params)

    def _chain_parameters(self):
        """The parameters that say how chains run, checked, by name."""
        check_bool(self.warm_start, "warm_start")
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise ValueError(
                f"n_jobs must be None or an integer other than 0, got {self.n_jobs!r}"
            )
        if not isinstance(self.verbose, (bool, np.bool_)):
            check_integer(self.verbose, "verbose", low=0)
        return {
            "n_warmup": check_integer(self.n_warmup, "n_warmup", low=0),
            "n_draws": check_integer(self.n_draws, "n_draws", low=1),
            "thin": check_integer(self.thin, "thin", low=1),
            "n_chains": check_integer(self.n_chains, "n_chains", low=1),
        }

    # Warm start.

    def _signature(self, likelihood, sampler):
        """Hash each parameter that must not change between the fits of a warm start: dict of
        lists, where one common entry means that nothing changed."""
        signature = {
            name: [_hash(value)]
            for name, value in self.get_params(deep=False).items()
            if name not in FREE_PARAMETERS
        }
        # A name stands for itself, and for the object that was made of it.
        signature["likelihood"] = [
            _hash((type(value).__name__, value.get_params()))
            for value in (self._resolved("likelihood"), likelihood)
        ]
        signature["sampler"] = [_hash((type(sampler).__name__, sampler.get_params()))]
        return signature

    def _refuse_changed(self, previous, signature, who, remedy, unused=frozenset()):
        """Refuse to continue a run with other parameters, except for unused ones.

        Raises
        ------
        ValueError
        """
        changed = sorted(
            name
            for name in signature.keys() - unused
            if not any(value in previous.signature[name] for value in signature[name])
        )
        if changed:
            raise ValueError(
                f"{who} needs the parameters of the last fit, but {' and '.join(changed)} "
                f"changed: set the last value again, or {remedy}"
            )


def _hash(value):
    """Hash a parameter; one that cannot be pickled, such as a lambda, stands for itself."""
    try:
        return joblib.hash(value)
    except pickle.PicklingError:
        return value
