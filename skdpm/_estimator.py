# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the estimators: fits that run chains, can be continued and interrupted."""

import functools
import logging
import pickle
import time
from dataclasses import KW_ONLY, replace
from numbers import Integral
from typing import Any, Self, cast

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from skdpm import _convergence
from skdpm._callbacks import CallbackSupport, FitReports
from skdpm._display import html_table, summary_of_fit
from skdpm._halts import Forecast, Halts
from skdpm._names import NOT_KEPT
from skdpm._rows import given_rows, names_columns
from skdpm._run import Run
from skdpm._typing import F
from skdpm._validation import (
    check_bool,
    check_integer,
    check_nested,
    check_real,
    closest,
    fingerprint,
    parameters,
    warn,
)
from skdpm.chains import MOST_DRAWS, Interruption, run_chains, seed_entropy
from skdpm.draws import Draws, column_of
from skdpm.hyperpriors import check_hyperprior

# Fits say here, at the level INFO, when they begin and what they end with.
LOGGER = logging.getLogger("skdpm")

# Seconds for draws after Ctrl-C in warm-up, from where all chains have ended it.
MOMENT = 1.0

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


def all_or_nothing(method: F) -> F:
    """Decorate `fit`: a call that fails leaves all attributes as they were. Ctrl-C keeps those of
    a fit that has made some draws."""

    @functools.wraps(method)
    def kept(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            # A fit that has stored a new run has dealt with Ctrl-C itself.
            begun = vars(self).get("_run") is not before.get("_run")
            if isinstance(error, Exception) or not begun:
                vars(self).clear()
                vars(self).update(before)
            raise

    return cast(F, kept)


# Methods of scikit-learn that are described in a sentence: it has pages about them.
BRIEF = {
    "fit_predict": "Fit, and return `labels_`. Keywords are those of `fit`.",
    "get_metadata_routing": "Requests of arguments, for scikit-learn's routing of metadata.",
    "get_params": "Parameters: dict. With `deep` also those of objects, as ``likelihood__df``.",
    "set_callbacks": "Set callbacks of scikit-learn. Returns the estimator.",
}
REQUEST = "Request arguments from meta-estimators, by scikit-learn's routing."


def brief(method, words):
    """A method with other words of description."""

    @functools.wraps(method)
    def described(self, *args, **kwargs):
        return method(self, *args, **kwargs)

    described.__doc__, described.__module__ = words, __name__
    return described


@parameters
class ChainEstimator(CallbackSupport, BaseEstimator):
    """Base class of estimators that sample a posterior by several chains.

    A subclass implements `_registry`, `_validate_fit`, `_program`, `_summarise` and
    `score_samples`. If it writes an `__init__`, this may leave out `max_time` and `target_ess`.
    """

    _: KW_ONLY
    likelihood: object = "auto"
    sampler: object = "auto"
    concentration: float | None = None
    concentration_prior: object = (1.0, 1.0)
    n_warmup: int | str = "auto"
    n_draws: int | str = "auto"
    thin: int = 1
    n_chains: int = 4
    n_jobs: int | None = None
    init: object = "auto"
    max_time: float | None = None
    target_ess: float | None = None
    warm_start: bool = False
    random_state: object = None
    verbose: int = 0

    def __init_subclass__(cls, **kwargs):
        """Describe methods of scikit-learn briefly, and fill in what an `__init__` leaves out."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.max_time = cls.target_ess = cls.noise = None
        requests = [name for name in vars(cls) if name.endswith("_request")]
        for name, words in {**BRIEF, **dict.fromkeys(requests, REQUEST)}.items():
            method = getattr(cls, name, None)
            if getattr(method, "__module__", "").startswith("sklearn."):
                setattr(cls, name, brief(method, words))

    _components = "clusters"  # users' word for them
    _other_names = ()  # pairs of a word and the likelihood or sampler that it means, for errors
    _ways_with_text = _ways_with_sparse = ""  # advice in errors about text and sparse matrices

    def _registry(self, name):
        """Dict of names and classes, and their base class, for "likelihood" or "sampler"."""
        raise NotImplementedError

    def _validate_fit(self, X, likelihood, sampler, reset):
        """Check the X of `fit`."""
        raise NotImplementedError

    def _program(self, X, likelihood, sampler):
        """Check all parameters and make the `ChainProgram` of the fit."""
        raise NotImplementedError

    def _warn_of_columns(self, X, program, given):
        """Warn of columns of a new run. `given` is X as the user passes it."""

    def _publish(self, draws, program):
        """Set the attributes that are draws."""
        self.log_joint_samples_ = draws["log_joint"]
        self.concentration_samples_ = draws["concentration"]
        self.n_components_samples_ = draws["n_components"]
        self.hyperparameter_samples_ = {
            name: draws[column_of(name)] for name in program.likelihood.learned
        }

    def _summarise(self, run):
        """Set the attributes that follow from `draws_`, except for its diagnostics."""
        raise NotImplementedError

    def score(self, X, y=None) -> float:
        """Mean of `score_samples(X)`, the held-out log density per row. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def to_datatree(self, X=None, *, log_likelihood: bool = False) -> Any:
        """Convert the draws for ArviZ: an xarray.DataTree with the groups posterior, sample_stats
        and those of X. Needs arviz-base (extra "arviz").

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), default=None
            Rows of `fit`, for the groups observed_data and log_likelihood.
        log_likelihood : bool, default=False
            Whether to compute the group log_likelihood. Mixtures only.
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
            rows = self._validate_fit(X, self.likelihood_, self.sampler_, reset=False)
            if self._data is not None and fingerprint(rows) != self._data:
                raise ValueError("X must be the rows of fit")
        return datatree(self, X, pointwise)

    @all_or_nothing
    def drop_chains(self, chains, X) -> Self:
        """Remove chains from the fit: all attributes become those of a fit without them.

        Remove a chain if its log joint density is stuck far below that of the others. If levels
        are close, each chain has found a part of the posterior, and removing one hides this.

        Parameters
        ----------
        chains : int or array-like of int
            Numbers of the chains to remove, from 0.
        X : array-like, CSR matrix or dask array of shape (n_samples, n_features)
            Rows of `fit`.
        """
        check_is_fitted(self)
        run = getattr(self, "_run", None)
        if run is None or run.data is None:
            raise ValueError(
                'drop_chains needs the chains of fit, which partial_fit, sampler="smc" and '
                "pickles without warm_start=True do not keep; fit again"
            )
        n_chains = self.draws_.n_chains
        dropped = np.unique(chains)
        if dropped.dtype.kind not in "iu" or not np.isin(dropped, np.arange(n_chains)).all():
            raise ValueError(f"chains must be numbers from 0 to {n_chains - 1}, got {chains!r}")
        kept = [c for c in range(n_chains) if c not in dropped]
        if not kept:
            raise ValueError(f"drop_chains must keep a chain, got all {n_chains}")
        run = self._prepare(given_rows(X), run, "drop_chains", "fit again", reset=False)
        run = replace(run, chains=[run.chains[c] for c in kept], at_cut=None)
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
            tags.input_tags.sparse = bool(likelihood.accept_sparse)
            tags.input_tags.pairwise = likelihood.pairwise
            tags.input_tags.positive_only = likelihood.positive_only
            tags.input_tags.categorical = tags.input_tags.string = likelihood.read is not None
        return tags

    def summary(self) -> str:
        """The fit in a few lines of text: clusters, draws, agreement of the chains, time."""
        check_is_fitted(self)
        lines = summary_of_fit(self, self._components) | self._other_readings
        width = max(map(len, lines))
        return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())

    @property
    def _other_readings(self):
        """Lines of `summary` about other point estimates: dict."""
        return {}

    def __getattr__(self, name):
        # Called for attributes that are not set.
        is_fitted, what = name.endswith("_") and name[0] != "_", type(self).__name__
        if is_fitted and not name.endswith("_in_") and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"{what} has no {name}: it is not fitted; call fit first")
        if name in NOT_KEPT:
            raise AttributeError(f"{what} has no {name}: {NOT_KEPT[name]}")
        try:
            return object.__getattribute__(self, name)  # raises
        except AttributeError as error:
            # `hasattr` often asks for names of columns; a hint would take time.
            if not is_fitted or name.endswith("_in_") or hasattr(type(self), name):
                raise
            hint = closest(name, [known for known in vars(self) if known.endswith("_")])
            raise AttributeError(f"{error}{hint}") from None

    def __str__(self):
        """Parameters and, after a fit, its summary."""
        return repr(self) + (f"\n{self.summary()}" if hasattr(self, "draws_") else "")

    # Notebooks. Depending on its version, scikit-learn calls the second or the third.

    def _html_repr(self):
        """The diagram of scikit-learn, with a summary of the fit below it."""
        lines = summary_of_fit(self, self._components) if hasattr(self, "draws_") else None
        return estimator_html_repr(self) + (html_table(lines) if lines else "")

    _repr_html_inner = _html_repr

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = str(self)
        if "text/html" in bundle:
            bundle["text/html"] = self._html_repr()
        return bundle

    # Fits.

    def _fit(self, X, y=None):
        started, name = time.monotonic(), type(self).__name__
        run, is_complete = self._begun(given_rows(X))
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
        finds = program.finds_warmup or program.finds_draws or program.regroups
        if program.halts and (limits or finds or reports is not None):
            halts = Halts(run, self._is_well_known, started, reports=reports, **limits)
        if reports is not None:
            reports.begin(run.chains)
        LOGGER.info("%s.fit begins: %s, %s", name, program.likelihood, program.sampler)
        forecast = None
        # The pace of particle systems changes with the rows.
        if program.halts and not self.verbose and "max_time" not in limits:
            n_jobs = min(joblib.effective_n_jobs(self.n_jobs), program.n_chains)
            forecast = Forecast(program, started, n_jobs, self._say_how_long)
        interrupted = self._advance(run, program.n_iterations, halts, forecast)
        if interrupted and not (run.n_draws or self.warm_start):
            self._draw_soon(run)
        n_draws = run.n_draws
        found = {"_run": replace(run, program=None)}
        if n_draws > 0:
            # Ctrl-C waits for the summaries. Another one leaves the last fit as it was.
            with Interruption() as interruption:
                found = self._concluded(run, n_draws)
            interrupted |= interruption.requested
            found["fit_time_"] = before + time.monotonic() - started
        self._forget()
        vars(self).update(found)
        if n_draws > 0 and LOGGER.isEnabledFor(logging.INFO):  # a summary reads the draws again
            LOGGER.info("%s.fit ends\n%s", name, self.summary())
        if interrupted:
            cut = "" if run.shortened_from is None else f", and {run.words_about_warmup}"
            go_on = "" if self.warm_start else "set_params(warm_start=True) and "
            warn(
                f"{name}.fit was interrupted after {n_draws} of {program.n_draws} draws of each "
                f"chain{cut}"
                + ("; the attributes describe these" if n_draws else "; nothing is fitted")
                + f"; {go_on}fit again to continue" * bool(n_draws or self.warm_start),
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
        """The run of `fit`, new or continued, and whether it already has all its draws."""
        fitted = self.__sklearn_is_fitted__()
        if not self._continues():
            if self.warm_start and fitted:
                warn(
                    "warm_start=True cannot continue the last fit, because a pickle with "
                    "warm_start=False does not contain its chains; a new run starts",
                )
            return self._prepare(X), False
        remedy = "set warm_start=False to start a new run"
        previous = self._run
        if previous.at_cut is not None:  # the rest of the warm-up, before any draws
            previous = replace(previous, chains=previous.at_cut, shortened_from=None, at_cut=None)
        run = self._prepare(X, previous, "warm_start=True", remedy, reset=not fitted)
        # After an interruption some chains have more draws; a later fit may ask for them.
        kept = fitted and previous is self._run
        done = self.draws_.n_draws if kept else 0
        n_draws = run.program.end_draws(run.chains, done)
        if n_draws < done:
            raise ValueError(
                f"n_draws must be at least {done} with warm_start=True, because {done} draws "
                f"exist; got {n_draws}; {remedy}"
            )
        if n_draws == done:
            warn(
                f"all {n_draws} draws exist already, so nothing is sampled; fit with a larger "
                "n_draws to continue",
            )
            return run, True
        chains = [dict(chain) for chain in run.chains]
        if done > 0:
            for place, chain in enumerate(chains):
                chain["draws"] = self.draws_.chain(place, chain["draws"])
        return replace(run, chains=chains), False

    @names_columns
    def _prepare(self, X, previous=None, who="", remedy="", reset=True):
        """Check parameters and rows, and make the run. If there is a previous one, it must have
        the same rows and parameters; the error says `who` needs them, with a remedy. With `reset`
        the number and names of columns are new."""
        likelihood, trials = self._chosen_likelihood(X, previous)
        sampler = self._resolved_sampler(likelihood, X)
        rows = self._validate_fit(X, likelihood, sampler, reset=reset)
        data = fingerprint(rows)
        if previous is not None and previous.data is None:
            raise ValueError(
                f"{who} needs the rows of the last fit, which partial_fit did not keep; {remedy}"
            )
        if previous is not None and data != previous.data:
            raise ValueError(
                f"{who} needs the rows of the last fit, but X differs: pass those rows or {remedy}"
            )
        signature = self._signature(likelihood, sampler)
        if previous is not None:
            self._refuse_changed(previous, signature, who, remedy)
        program = self._program(rows, likelihood, sampler)
        if previous is None:
            self._warn_of_columns(rows, program, X)
        else:
            program.continue_from(previous.chains)
            return replace(previous, program=program)
        entropy = seed_entropy(self.random_state)
        return Run(
            entropy=entropy,
            signature=signature,
            data=data,
            trials=trials,
            program=program,
            chains=[program.chain(entropy, c) for c in range(program.n_chains)],
        )

    def _draw_soon(self, run):
        """Make draws for a moment with chains that Ctrl-C stopped before these: warm-up ends where
        they are. Another Ctrl-C stops this too."""
        program, done = run.program, (chain["iteration"] for chain in run.chains)
        if program.halts and program.shortens_warmup and min(done) > 0:
            run.cut_warmup()
            if not self._advance(run, program.n_warmup):
                halts = Halts(run, self._is_well_known, time.monotonic(), max_time=MOMENT)
                self._advance(run, program.n_iterations, halts)

    def _advance(self, run, n_iterations, halts=None, forecast=None):
        """Run the chains; return whether Ctrl-C stopped them."""
        return run_chains(
            run.program.advance,
            run.chains,
            n_iterations,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            halts=halts,
            forecast=forecast,
        )

    def _is_well_known(self, run, n_draws):
        """Whether the first n_draws draws of each chain suffice, or more would gain nothing."""
        raise NotImplementedError

    def _say_how_long(self, message):
        ways = ["n_jobs=-1 uses all cores"] if joblib.effective_n_jobs(self.n_jobs) == 1 else []
        ways += ["max_time=60 ends it after a minute", "verbose=1 shows the progress"]
        warn(f"{message}; {', '.join(ways)}")

    def _sum_up(self, run):
        """Set the attributes that follow from `draws_`."""
        self._summarise(run)
        figures = _convergence.figures(self.draws_, run.program.compared)
        figures = run.program.diagnostics(figures, run.chains)
        self.diagnostics_ = self._with_answers(figures, run)
        bad = self._disagreements(run.program)
        self.converged_ = not self._unusable(bad) and self._is_judged(run, bad)
        run.told = tuple(sorted({*bad, *run.told}))

    def _concluded(self, run, n_draws):
        """The fitted attributes, from the first n_draws of each chain, which are removed from the
        run: dict. The estimator does not change."""
        program, chains = run.program, run.chains
        after = self._copied(("n_features_in_", "feature_names_in_", "_known", "_exposure"))
        after.likelihood_, after.sampler_ = program.likelihood, program.sampler
        saved = [chain["draws"] for chain in chains]
        after.draws_ = Draws.of_chains(program.columns(), saved, n_draws)
        after._data = run.data  # pickled, unlike `_run`
        # The minimum, because after an interruption some chains may be ahead.
        after.n_iter_ = min(chain["iteration"] for chain in chains)
        after.n_warmup_ = program.n_warmup if program.halts else 0
        after._publish(after.draws_, program)
        after._sum_up(run)
        after._run = run.finished()
        parameters = self.get_params(deep=False)
        return {name: value for name, value in vars(after).items() if name not in parameters}

    def _fitted_so_far(self, run, n_draws):
        """The fitted attributes if the fit ended now: dict. The run does not change."""
        chains = [{**chain, "draws": dict(chain["draws"])} for chain in run.chains]
        return self._concluded(replace(run, chains=chains), n_draws)

    def _copied(self, names=()):
        """A copy with the parameters and the named attributes."""
        other = object.__new__(type(self))
        vars(other).update(self.get_params(deep=False))
        vars(other).update({name: vars(self)[name] for name in names if name in vars(self)})
        return other

    @names_columns
    def _limits(self, program):
        """Check the limits of a fit that are set: dict of floats by name."""
        limits = {
            name: check_real(getattr(self, name), name, low=0.0)
            for name in ("max_time", "target_ess")
            if getattr(self, name) is not None
        }
        if limits and not program.halts:
            raise ValueError(
                f"{' and '.join(limits)} must be None with {program.sampler!r}, which makes its "
                "draws at the end; reduce n_particles for a shorter fit"
            )
        return limits

    def _warn_of_limits(self, run, halts):
        """Warn about a limit that could not be kept."""
        if halts is None:
            return
        n_draws = self.draws_.n_draws
        if halts.is_late:
            draws = f"{n_draws} draw{'s' if n_draws > 1 else ''} of each chain"
            warn(
                f"max_time={self.max_time!r} was short: the fit made {run.words_about_warmup} and "
                f"{draws}, in {self.fit_time_:.3g} seconds; a whole fit takes about "
                f"{halts.clock.words_about_whole()}: use a larger max_time, with warm_start=True "
                "to continue this fit",
                ConvergenceWarning,
            )
        if self.target_ess is not None and not halts.ess >= self.target_ess:
            warn(
                f"target_ess={self.target_ess!r} was not reached: the smallest bulk effective "
                f"sample size is {run.least_ess(n_draws, self.draws_):.3g} after {n_draws} draws "
                "of each chain; use a larger n_draws or max_time, which with warm_start=True "
                "continues this fit",
                ConvergenceWarning,
            )

    def __getstate__(self):
        """The state, without the chains unless a warm start or `partial_fit` may need them."""
        state = super().__getstate__()
        if not (self.warm_start or self._takes_more_rows()):
            state = {name: value for name, value in state.items() if name != "_run"}
        return state

    def _takes_more_rows(self):
        """Whether the last run can be continued with more rows."""
        run = getattr(self, "_run", None)
        return run is not None and run.likelihood is not None

    def _forget(self):
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _disagreements(self, program):
        draws = self.draws_
        return _convergence.disagreements(
            self.diagnostics_, draws.n_chains, draws.n_draws, program.fewest_compared
        )

    def _is_judged(self, run, bad):
        """Whether there was enough to compare for the judgement that chains agree."""
        program, draws = run.program, self.draws_
        if not program.halts:
            return draws.n_chains > 1
        of_one = _convergence.FEWEST_OF_ONE_CHAIN if draws.n_chains == 1 else 0
        fewest = max(program.fewest_compared, of_one, _convergence.FEWEST_JUDGED if bad else 0)
        if draws.n_draws < fewest or run.is_cut:
            return False
        figures = _convergence.judged(self.diagnostics_)
        r_hats = {name: entry.get("r_hat", 1.0) for name, entry in figures.items()}
        halves = [r_hats.get(name, 1.0) for name in ("log_joint", "log_density", "coclustering")]
        if draws.n_chains == 1 and max(halves) > _convergence.LARGEST_OF_HALVES:
            return False
        return not np.isnan(list(r_hats.values())).any()

    def _with_answers(self, figures, run):
        """`diagnostics_` with those of what users read."""
        return figures

    def _unusable(self, bad):
        """Names, among the quantities on which chains disagree, that make answers unusable."""
        return bad

    def _warn_if_not_converged(self, program, known=()):
        """Warn if chains disagree so that answers are unusable, except about known quantities."""
        bad = [name for name in self._disagreements(program) if name not in known]
        unusable = self._unusable(bad)
        if unusable:
            warn(self._warning(program, bad, unusable), ConvergenceWarning)

    def _warning(self, program, bad, unusable):
        return f"{program.complaint}: {self._describe(bad)}; {program.remedies} may help"

    def _describe(self, names):
        """Describe the quantities on which the chains disagree; the first ones in detail."""
        names = sorted(names, key=lambda name: name not in ("log_joint", "coclustering"))
        words = []
        for name in names[: _convergence.MOST_DESCRIBED]:
            entry = self.diagnostics_[name]
            if name == "coclustering":
                found = _convergence.describe_partitions(entry, self.draws_["labels"])
            elif name == "log_density":
                found = f"(R-hat {entry['r_hat']:.2f})"
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
        """The likelihood or sampler object; a name means an object with default parameters."""
        value = getattr(self, name)
        registry, base = self._registry(name)
        if isinstance(value, base):
            return value
        if isinstance(value, str) and value in registry:
            return registry[value]()
        got, hint = repr(value), ""
        if isinstance(value, type) and issubclass(value, base):
            got = value.__name__
            hint = f", which is a class; pass an object: {name}={got}()"
        elif isinstance(value, str):
            word = value.lower()
            meant = dict(self._other_names).get(word)
            hint = f"; did you mean {meant}?" if meant else closest(word, registry)
            for cls in registry.values():
                for variant in getattr(getattr(cls, "from_paper", None), "variants", ()):
                    if variant.lower() == word:
                        hint = f"; for that of a paper pass {cls.__name__}.from_paper({variant!r})"
        raise ValueError(
            f"{name} must be a {base.__name__} object or one of {', '.join(sorted(registry))}; "
            f"got {got}{hint}"
        )

    def _bound_likelihood(self, X):
        """The likelihood object, made for the columns of the X of `fit`."""
        return self._resolved("likelihood")

    def _chosen_likelihood(self, X, previous):
        """The same, if need be by short fits, and the `trials` of the run."""
        return self._bound_likelihood(X), {}

    def _resolved_sampler(self, likelihood, X):
        """The sampler object for this likelihood and the X of `fit`."""
        return self._resolved("sampler")

    def _lenient_likelihood(self):
        """The likelihood object; None if the parameter is wrong: tags must not raise."""
        try:
            return self._resolved("likelihood")
        except ValueError:
            return None

    def set_params(self, **params) -> Self:
        """Set parameters; ``likelihood__df=3`` sets one of an object. Returns the estimator."""
        check_nested(params, {"likelihood": self.likelihood, "sampler": self.sampler})
        try:
            return super().set_params(**params)
        except ValueError as error:
            raise ValueError(str(error).replace(str(self), repr(self))) from None

    def _chain_parameters(self):
        """Check the parameters of all programs: dict by name."""
        check_bool(self.warm_start, "warm_start")
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise ValueError(
                f"n_jobs must be None or an integer other than 0, got {self.n_jobs!r}"
            )
        if not isinstance(self.verbose, (bool, np.bool_)):
            check_integer(self.verbose, "verbose", low=0)
        n_warmup, n_draws = self._length("n_warmup", low=0), self._length("n_draws", low=1)
        finds_warmup, finds_draws = n_warmup is None, n_draws is None
        if finds_draws and self.target_ess is not None:
            n_draws = MOST_DRAWS
        prior = check_hyperprior(self.concentration_prior, "concentration_prior")
        return {
            "concentration_prior": prior,
            "n_warmup": n_warmup,
            "n_draws": n_draws,
            "finds_warmup": finds_warmup,
            "finds_draws": finds_draws,
            "thin": check_integer(self.thin, "thin", low=1),
            "n_chains": check_integer(self.n_chains, "n_chains", low=1),
        }

    def _length(self, name, low):
        """Check a length of chains: int, or None for "auto"."""
        value = getattr(self, name)
        if isinstance(value, str) and value == "auto":
            return None
        if isinstance(value, str):
            raise ValueError(f'{name} must be an integer or "auto", got {value!r}')
        return check_integer(value, name, low=low)

    # Warm start.

    def _signature(self, likelihood, sampler):
        """Hash each parameter that must not change between the fits of a warm start: dict of
        lists. Two lists with a common entry mean that the parameter did not change."""
        signature = {
            name: [_hash(value)]
            for name, value in self.get_params(deep=False).items()
            if name not in FREE_PARAMETERS
        }
        # A name equals itself and the object made from it.
        signature["likelihood"] = [
            _hash((type(value).__name__, value.get_params()))
            for value in (self._resolved("likelihood"), likelihood)
        ]
        signature["sampler"] = [_hash((type(sampler).__name__, sampler.get_params()))]
        return signature

    def _refuse_changed(self, previous, signature, who, remedy, unused=frozenset()):
        """Raise ValueError if parameters differ from those of a run, except for unused ones."""
        changed = sorted(
            name
            for name in signature.keys() - unused
            if not any(value in previous.signature[name] for value in signature[name])
        )
        if changed:
            raise ValueError(
                f"{who} needs the parameters of the last fit, but {' and '.join(changed)} "
                f"changed: restore the last value, or {remedy}"
            )


def _hash(value):
    """Hash a parameter; return it unchanged if it has no hash, as a lambda or a masked array."""
    try:
        return joblib.hash(value)
    except (pickle.PicklingError, ValueError):
        return value
