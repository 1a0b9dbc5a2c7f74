# SPDX-License-Identifier: BSD-3-Clause
"""Fits that run chains, go on and are interrupted, for the estimators of both families."""

import functools
import pickle
import re
import time
from numbers import Integral

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from skdpm import _convergence, diagnostics
from skdpm._callbacks import CallbackSupport, FitReports
from skdpm._display import html_table, summary_of_fit
from skdpm._tables import as_table, called, kind_of
from skdpm._validation import (
    check_bool,
    check_integer,
    check_real,
    fingerprint,
    refuse_graph,
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
    _ways_with_text = ""  # of a message about text in X

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

    def _summarise(self, program, chains):
        """Set the attributes that follow from `draws_`, and `diagnostics_`."""
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
        run = getattr(self, "_run", {})
        if "data" not in run:
            raise ValueError(
                "drop_chains needs the chains of fit, which are not there after partial_fit, with "
                'sampler="smc" and once pickled without warm_start'
            )
        n_chains = self.draws_.n_chains
        dropped = np.unique(chains)
        if dropped.dtype.kind not in "iu" or not np.isin(dropped, np.arange(n_chains)).all():
            raise ValueError(f"chains must be numbers from 0 to {n_chains - 1}, got {chains!r}")
        kept = [c for c in range(n_chains) if c not in dropped]
        if not kept:
            raise ValueError(f"drop_chains must leave a chain, got all {n_chains}")
        likelihood = self._resolved_likelihood(X)
        sampler = self._resolved_sampler(likelihood, X)
        changed = self._changed(self._signature(likelihood, sampler))
        if changed:
            raise ValueError(f"drop_chains needs the parameters of fit, got another {changed}")
        bound = self._for_columns(likelihood, X)
        X = self._rows_of_fit(X, bound)
        program = self._program(X, bound, sampler)
        self.draws_ = self.draws_.only(kept)
        self._publish(self.draws_, program)
        self._run = {**run, "chains": [run["chains"][c] for c in kept]}
        self._summarise(program, self._run["chains"])
        return self

    def _rows_of_fit(self, X, likelihood):
        """X, checked under a likelihood; ValueError where it is another one than that of `fit`."""
        X = self._validate_fit(X, likelihood, self.sampler_, reset=False)
        if self._data is not None and fingerprint(X) != self._data:
            raise ValueError("X must be the rows of fit")
        return X

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
        refuse_graph(X)
        given = X
        likelihood = self._resolved_likelihood(X)
        sampler = self._resolved_sampler(likelihood, X)
        bound = self._for_columns(likelihood, X)
        continuing = self.warm_start and hasattr(self, "_run")
        if self.warm_start and not continuing and self.__sklearn_is_fitted__():
            warn(
                "warm_start starts anew: chains are not pickled with warm_start=False, and those "
                "of the last fit are not there",
                UserWarning,
            )
        X = self._validate_fit(
            X, bound, sampler, reset=not (continuing and self.__sklearn_is_fitted__())
        )
        program = self._program(X, bound, sampler)
        limits = self._limits(program)
        before = 0.0
        if continuing:
            before = getattr(self, "fit_time_", 0.0)
            run, chains = self._run, self._continued(program, likelihood, sampler, X)
            if chains is None:
                # No draw is new, but they may be summed up in another way (point_estimate).
                self._summarise(program, run["chains"])
                return self
        else:
            entropy = seed_entropy(self.random_state)
            run = {
                "entropy": entropy,
                "signature": self._signature(likelihood, sampler),
                "data": fingerprint(X),
            }
            chains = [program.chain(entropy, c) for c in range(program.n_chains)]
        # What callbacks see is a copy: nothing that they ask for changes the chains.
        reports = FitReports.of(
            self,
            program,
            given,
            y,
            functools.partial(self._fitted_so_far, program, sampler, run, chains),
        )
        halts = None
        if program.halts and (limits or reports is not None):
            halts = Halts(
                program,
                chains,
                deadline=started + limits["max_time"] if "max_time" in limits else None,
                target_ess=limits.get("target_ess"),
                compute_ess=functools.partial(least_ess, program, chains),
                reports=reports,
            )
        if reports is not None:
            reports.begin(chains)
        interrupted = run_chains(
            program.advance,
            chains,
            program.n_iterations,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            halts=halts,
        )
        self._run = {**run, "chains": chains}
        # After an interruption chains may be ahead of each other.
        n_draws = min(program.n_draws, *(_n_kept(chain) for chain in chains))
        if n_draws > 0:
            self.likelihood_ = program.likelihood
            self.sampler_ = sampler
            self._collect(program, chains, n_draws)
            self._summarise(program, chains)
            self._run = program.carried(self._run)
            self.fit_time_ = before + time.monotonic() - started
        else:
            self._forget()
        if interrupted:
            warn(
                f"{type(self).__name__}.fit was interrupted after {n_draws} of {self.n_draws} "
                "draws of each chain"
                + ("; the attributes describe those" if n_draws else ": nothing is fitted")
                + ("; fit again to go on" if self.warm_start else ""),
                RuntimeWarning,
            )
            raise KeyboardInterrupt
        if reports is not None:
            reports.end(chains)
        self._warn_of_limits(program, halts)
        self._warn_if_not_mixed(program)
        return self

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

    def _fitted_so_far(self, program, sampler, run, chains, n_draws):
        """The attributes of this estimator if the fit ended with n_draws of each chain: dict."""
        after = object.__new__(type(self))
        vars(after).update(self.get_params(deep=False))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(after, name, getattr(self, name))
        known = vars(after).keys() - {"n_features_in_", "feature_names_in_"}
        chains = [{**chain, "draws": dict(chain["draws"])} for chain in chains]
        after._run = {**run, "chains": chains}
        after.likelihood_ = program.likelihood
        after.sampler_ = sampler
        after._collect(program, chains, n_draws)
        after._summarise(program, chains)
        return {name: value for name, value in vars(after).items() if name not in known}

    def _warn_of_limits(self, program, halts):
        """Warn of a limit that could not be kept."""
        if halts is None:
            return
        said = []
        n_draws = self.draws_.n_draws
        if halts.late_at is not None:
            done = f"{halts.late_at} of {program.n_warmup} iterations of warm-up"
            if halts.late_at >= program.n_warmup:
                done = f"{program.n_draws_after(halts.late_at)} draws of each chain"
            said.append(
                f"max_time={self.max_time!r} was over after {done}; warm-up was finished and "
                f"{n_draws} draws made all the same, in {self.fit_time_:.3g} seconds: a smaller "
                "n_warmup, or a larger max_time, leaves time for more"
            )
        if self.target_ess is not None and not halts.ess >= self.target_ess:
            said.append(
                f"target_ess={self.target_ess!r} was not reached: the least bulk effective sample "
                f"size is {least_ess(program, None, n_draws, self.draws_):.3g} after {n_draws} "
                "draws of each chain; with warm_start=True, a larger n_draws or max_time goes on"
            )
        for words in said:
            warn(words, ConvergenceWarning)

    def _collect(self, program, chains, n_draws):
        """Set `draws_` and its attributes; what a chain has beyond the common number stays with
        it."""
        self.draws_ = Draws.of_chains(
            program.columns(), [chain["draws"] for chain in chains], n_draws
        )
        self._data = self._run.get("data")  # of a fit; pickled, other than what else is in `_run`
        self._publish(self.draws_, program)
        # Those of all chains: after an interruption some may be ahead.
        self.n_iter_ = min(chain["iteration"] for chain in chains)

    def __getstate__(self):
        """Without the chains, where nothing but a warm start needs them."""
        state = super().__getstate__()
        if not (self.warm_start or self._takes_more_rows()):
            state = {name: value for name, value in state.items() if name != "_run"}
        return state

    def _takes_more_rows(self):
        """Whether the last run, finished, can go on with more rows."""
        return "likelihood" in getattr(self, "_run", {})

    def _forget(self):
        """Drop all fitted attributes, as those of an earlier fit to other data."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _diagnose(self, quantities, labels=None):
        """Figures about quantities, name -> (n_chains, n_draws), and about partitions."""
        log_joint = diagnostics.without_last_bits(quantities["log_joint"])
        quantities = {**quantities, "log_joint": log_joint}
        figures = {
            name: {
                "r_hat": diagnostics.split_rhat(draws),
                "ess_bulk": diagnostics.bulk_ess(draws),
                "ess_tail": diagnostics.tail_ess(draws),
                "mcse_mean": diagnostics.mcse_mean(draws),
            }
            for name, draws in quantities.items()
        }
        if labels is not None:
            figures["coclustering"] = diagnostics.coclustering_diagnostics(labels)
        return figures

    def _conclude(self, program, figures):
        """Set `diagnostics_` and `converged_`."""
        self.diagnostics_ = figures
        self.converged_ = not self._disagreements(program)

    def _disagreements(self, program):
        """The quantities that chains have not agreed on, by name."""
        draws = self.draws_
        return _convergence.disagreements(
            self.diagnostics_, draws.n_chains, draws.n_draws, program.fewest_compared
        )

    def _warn_if_not_mixed(self, program, known=()):
        """Warn of what the chains have not agreed on, but for what is known."""
        bad = [name for name in self._disagreements(program) if name not in known]
        if bad:
            _convergence.warn(
                lambda: f"{program.complaint}: {self._describe(bad)}; {program.remedies} may help"
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
        raise ValueError(
            f"{name} must be a {base.__name__} object or one of {', '.join(sorted(registry))}; "
            f"got {value!r}"
        )

    def _resolved_likelihood(self, X):
        """The likelihood object for the X given to `fit`."""
        return self._resolved("likelihood")

    def _for_columns(self, likelihood, X):
        """The likelihood, once it knows the columns of the X given to `fit`."""
        return likelihood

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
        """Hash what must be equal in the fits of a warm start."""
        signature = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in FREE_PARAMETERS
        }
        for name, value in (("likelihood", likelihood), ("sampler", sampler)):
            signature[name] = (type(value).__name__, value.get_params())
        return {name: _hash(value) for name, value in signature.items()}

    def _changed(self, signature, unused=frozenset()):
        """The parameters that are others than in the last run, as words; '' where none is."""
        before = self._run["signature"]
        names = signature.keys() - unused
        return ", ".join(sorted(name for name in names if signature[name] != before[name]))

    def _continued(self, program, likelihood, sampler, X):
        """The chains of the last fit, ready to go on; None where they have all their draws."""
        changed = self._changed(self._signature(likelihood, sampler))
        if changed:
            raise ValueError(
                f"warm_start cannot go on with another {changed}; set warm_start=False to start "
                "anew"
            )
        if fingerprint(X) != self._run["data"]:
            raise ValueError(
                "warm_start cannot go on with other data than those of the last fit; set "
                "warm_start=False to start anew"
            )
        # After an interruption chains may have more, which are shown when they are asked for.
        done = self.draws_.n_draws if hasattr(self, "draws_") else 0
        if program.n_draws < done:
            raise ValueError(
                f"warm_start needs n_draws of at least the {done} draws there are, got "
                f"{program.n_draws}; set warm_start=False to start anew"
            )
        if program.n_draws == done:
            warn(
                f"all {program.n_draws} draws are there already; fit with a larger n_draws to "
                "go on",
                UserWarning,
            )
            return None
        if not hasattr(self, "draws_"):
            return [dict(chain) for chain in self._run["chains"]]
        return [
            {**chain, "draws": self.draws_.chain(place, chain["draws"])}
            for place, chain in enumerate(self._run["chains"])
        ]


def _hash(value):
    """Hash a parameter; one that cannot be pickled, such as a lambda, stands for itself."""
    try:
        return joblib.hash(value)
    except pickle.PicklingError:
        return value


def least_ess(program, chains, n_draws, draws=None):
    """The least bulk effective sample size of what a fit is about, in its first draws.

    Parameters
    ----------
    program : ChainProgram
    chains : list of dict
        Looked at where there are no `draws`.
    n_draws : int
        Of each chain.
    draws : Draws, optional

    Returns
    -------
    ess : float
        Of the log joint, the number of components and, where it is learned, the concentration.
    """
    names = ["log_joint", "n_components"]
    if program.concentration is None:
        names.append("concentration")
    found = []
    for name in names:
        values = [c["draws"][name] for c in chains] if draws is None else draws[name]
        found.append(diagnostics.bulk_ess(np.array([of_chain[:n_draws] for of_chain in values])))
    return float(np.min(found))  # NaN where one is


def _n_kept(chain):
    """Draws that a chain has kept, which may not have begun."""
    return len(chain["draws"]["log_joint"]) if "draws" in chain else 0


def validate_rows(estimator, X, likelihood, reset):
    """X as contiguous doubles, its entries checked."""
    rows = numbers_of_table(estimator, X, likelihood, reset)
    if rows is None:
        try:
            rows = validate_data(
                estimator,
                X,
                reset=reset,
                dtype=np.float64,
                order="C",
                accept_sparse="csr" if likelihood.accept_sparse else False,
                ensure_all_finite=False,
            )
        except (TypeError, ValueError) as error:
            if not any(words in str(error) for words in NO_NUMBERS):
                raise
            if isinstance(error, TypeError) and not hasattr(X, "iloc"):
                raise  # numpy says what is wrong with an array
            raise ValueError(_what_is_no_number(X, error, estimator._ways_with_text)) from error
    try:
        likelihood.check_entries(rows)
    except ValueError as error:
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            raise
        message = re.sub(
            r"\bcolumn (\d+)( of X)?", lambda found: called(int(found[1]), names), str(error)
        )
        raise ValueError(message) from None
    return rows


def numbers_of_table(estimator, X, likelihood, reset):
    """The numbers that a likelihood makes of a table (`Likelihood.read`), the columns of which
    are checked; None where it reads no tables, or X is none."""
    table = as_table(X) if likelihood.reads_tables else None
    if table is None:
        return None
    validate_data(estimator, table.X, reset=reset, skip_check_array=True)
    return check_array(
        likelihood.read(table),
        dtype=np.float64,
        order="C",
        ensure_all_finite=False,
        estimator=estimator,
        input_name="X",
    )


# What numpy and pandas say of a table that they cannot make doubles of.
NO_NUMBERS = (
    "argument must be a string or a real number",
    "Cannot cast",
    "could not be promoted",
    "could not convert string",
)


def _what_is_no_number(X, error, ways_with_text):
    """Words about the first column of X that does not hold numbers, of which `error` came."""
    table = X if hasattr(X, "iloc") else np.asarray(X, dtype=object)
    names = getattr(table, "columns", range(np.shape(table)[-1]))
    for j, name in enumerate(names):
        column = table.iloc[:, j] if hasattr(table, "iloc") else table[..., j]
        kind = kind_of(column)
        if kind == "category":
            try:
                np.asarray(column, dtype=np.float64)  # as categories 1 and 2, which are taken
            except (TypeError, ValueError) as found:
                return f"{found}, in column {name!r} of X{ways_with_text}"
        elif kind not in ("float", "integer", "bool"):
            return (
                f"column {name!r} of X holds {kind}, not numbers: drop it, or make numbers of it"
            )
    return str(error)
