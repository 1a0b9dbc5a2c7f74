# SPDX-License-Identifier: BSD-3-Clause
"""Fits that run chains, go on and are interrupted, for the estimators of both families."""

import pickle
import warnings
from numbers import Integral

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpm import _convergence, diagnostics
from skdpm._validation import check_bool, check_finite, check_integer, fingerprint
from skdpm.chains import run_chains, seed_entropy
from skdpm.draws import Draws

# Parameters that may change between the fits of a warm start.
FREE_PARAMETERS = frozenset(
    {"n_draws", "n_jobs", "point_estimate", "random_state", "verbose", "warm_start"}
)


class ChainEstimator(BaseEstimator):
    """Base class of estimators that sample a posterior by several chains.

    A subclass has the parameters `likelihood`, `sampler`, `n_warmup`, `n_draws`, `thin`,
    `n_chains`, `n_jobs`, `warm_start`, `random_state` and `verbose`, and writes `_registry`,
    `_validate_fit`, `_program`, `_publish`, `_summarise` and `score_samples`.
    """

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
          R-hat and effective sample sizes of these are those of `diagnostics_`.
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
        >>> tree = DPMixture(n_draws=50, random_state=0).fit(X).to_datatree(X)
        >>> dict(tree.posterior["labels"].sizes)
        {'chain': 4, 'draw': 50, 'row': 20}
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
            self._rows_of_fit(X)
        return datatree(self, X, pointwise)

    def _rows_of_fit(self, X):
        """X, checked; ValueError where it is another one than that of `fit`."""
        X = self._validate_fit(X, self.likelihood_, self.sampler_, reset=False)
        run = getattr(self, "_run", {})
        if "data" in run and fingerprint(X) != run["data"]:
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
        return tags

    # Fits.

    def _fit(self, X):
        likelihood = self._resolved_likelihood(X)
        sampler = self._resolved_sampler(likelihood, X)
        continuing = self.warm_start and hasattr(self, "_run")
        if self.warm_start and not continuing and self.__sklearn_is_fitted__():
            warnings.warn(
                "warm_start starts anew: chains are not pickled with warm_start=False, and those "
                "of the last fit are not there",
                UserWarning,
                stacklevel=3,
            )
        X = self._validate_fit(
            X, likelihood, sampler, reset=not (continuing and self.__sklearn_is_fitted__())
        )
        program = self._program(X, likelihood, sampler)
        if continuing:
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
        interrupted = run_chains(
            program.advance,
            chains,
            program.n_iterations,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self._run = {**run, "chains": chains}
        n_draws = min(_n_kept(chain) for chain in chains)
        if n_draws > 0:
            self.likelihood_ = program.likelihood
            self.sampler_ = sampler
            self._collect(program, chains, n_draws)
            self._summarise(program, chains)
            self._run = program.carried(self._run)
        else:
            self._forget()
        if interrupted:
            warnings.warn(
                f"{type(self).__name__}.fit was interrupted after {n_draws} of {self.n_draws} "
                "draws of each chain"
                + ("; the attributes describe those" if n_draws else ": nothing is fitted")
                + ("; fit again to go on" if self.warm_start else ""),
                RuntimeWarning,
                stacklevel=3,
            )
            raise KeyboardInterrupt
        self._warn_if_not_mixed(program)
        return self

    def _collect(self, program, chains, n_draws):
        """Set `draws_` and its attributes; what a chain has beyond the common number stays with
        it."""
        self.draws_ = Draws.of_chains(
            program.columns(), [chain["draws"] for chain in chains], n_draws
        )
        self._publish(self.draws_, program)
        self.n_iter_ = max(chain["iteration"] for chain in chains)

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
        """Set `diagnostics_` and `mixed_`."""
        self.diagnostics_ = figures
        self.mixed_ = not self._disagreements(program)

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
        most = max(chain["iteration"] for chain in self._run["chains"])
        if program.n_iterations < most:
            done = (most - program.n_warmup) // program.thin
            raise ValueError(
                f"warm_start needs n_draws of at least the {done} draws there are, got "
                f"{program.n_draws}; set warm_start=False to start anew"
            )
        if all(chain["iteration"] == program.n_iterations for chain in self._run["chains"]):
            warnings.warn(
                f"all {program.n_draws} draws are there already; fit with a larger n_draws to "
                "go on",
                UserWarning,
                stacklevel=4,
            )
            return None
        if not hasattr(self, "draws_"):
            return [dict(chain) for chain in self._run["chains"]]
        return [
            {**chain, "draws": self.draws_.chain(chain["index"], chain["draws"])}
            for chain in self._run["chains"]
        ]


def _hash(value):
    """Hash a parameter; one that cannot be pickled, such as a lambda, stands for itself."""
    try:
        return joblib.hash(value)
    except pickle.PicklingError:
        return value


def _n_kept(chain):
    """Draws that a chain has kept, which may not have begun."""
    return len(chain["draws"]["log_joint"]) if "draws" in chain else 0


def validate_rows(estimator, X, likelihood, reset):
    """X as contiguous doubles, its entries checked."""
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=np.float64,
        order="C",
        accept_sparse="csr" if likelihood.accept_sparse else False,
        ensure_all_finite=False,
    )
    check_finite(X, allow_nan=likelihood.allow_nan)
    return X
