# SPDX-License-Identifier: BSD-3-Clause
"""What the estimators of both families share: fits that run chains, go on and are interrupted."""

import hashlib
import math
import warnings
from numbers import Integral

import joblib
import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from skdpm import diagnostics
from skdpm._validation import check_bool, check_integer, is_dask
from skdpm.chains import run_chains, seed_entropy

# A quantity whose split R-hat is above this has not mixed (Vehtari et al. 2021 recommend 1.01 for
# publication; a clustering is useful before that).
LARGEST_R_HAT = 1.05

# Parameters that may change between the fits of a warm start.
FREE_PARAMETERS = frozenset(
    {"n_draws", "n_jobs", "point_estimate", "random_state", "verbose", "warm_start"}
)


class ChainEstimator(BaseEstimator):
    """Base class of estimators that sample a posterior by several chains.

    A subclass has the parameters `likelihood`, `sampler`, `n_warmup`, `n_draws`, `thin`,
    `n_chains`, `n_jobs`, `warm_start`, `random_state` and `verbose`, and writes `_registry`,
    `_validate`, `_program`, `_draw_attributes` and `_summarise`. Its program is as
    `skdpm.chains.run_chains` needs it.
    """

    def _registry(self, name):
        """For "likelihood" or "sampler": a dict of names and classes, and their base class."""
        raise NotImplementedError

    def _validate(self, X, likelihood, reset):
        """X, checked."""
        raise NotImplementedError

    def _validate_fit(self, X, likelihood, sampler, reset):
        """The X of `fit`, checked."""
        return self._validate(X, likelihood, reset)

    def _program(self, X, likelihood, sampler):
        """Everything the chains need, all parameters checked."""
        raise NotImplementedError

    def _draw_attributes(self, program):
        """Names of a chain's draws, "log_joint" among them -> names of the public attributes. A
        chain's draws are an array or a list, one entry per draw."""
        raise NotImplementedError

    def _summarise(self, program, chains, n_draws):
        """Set the attributes that follow from the draws, and `diagnostics_`."""
        raise NotImplementedError

    # Fits.

    def _fit(self, X):
        continuing = self.warm_start and hasattr(self, "_run")
        likelihood, sampler = self._resolved("likelihood"), self._resolved("sampler")
        X = self._validate_fit(
            X, likelihood, sampler, reset=not (continuing and self.__sklearn_is_fitted__())
        )
        program = self._program(X, likelihood, sampler)
        if continuing:
            run, chains = self._run, self._continued(program, X)
            if chains is None:
                # No draw is new, but they may be summed up in another way (point_estimate).
                self._summarise(program, run["chains"], program.n_draws)
                return self
        else:
            entropy = seed_entropy(self.random_state)
            run = {
                "entropy": entropy,
                "signature": self._signature(likelihood, sampler),
                "data": _fingerprint(X),
            }
            chains = [program.start(entropy, c) for c in range(program.n_chains)]
        interrupted = run_chains(
            program.advance,
            chains,
            program.n_iterations,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self._run = {**run, "chains": chains}
        n_draws = min(len(chain["draws"]["log_joint"]) for chain in chains)
        if n_draws > 0:
            self.likelihood_ = program.likelihood
            self.sampler_ = sampler
            self._collect(program, chains, n_draws)
            self._summarise(program, chains, n_draws)
        else:
            self._forget()
        if interrupted:
            warnings.warn(
                f"{type(self).__name__}.fit was interrupted after {n_draws} of {self.n_draws} "
                "draws of each chain"
                + ("; the attributes describe those" if n_draws else ": nothing is fitted"),
                RuntimeWarning,
                stacklevel=3,
            )
            raise KeyboardInterrupt
        self._warn_if_not_mixed()
        return self

    def _collect(self, program, chains, n_draws):
        """Set the draws' attributes; what a chain has beyond the common number stays with it."""
        for name, attribute in self._draw_attributes(program).items():
            parts = [chain["draws"].pop(name) for chain in chains]
            if isinstance(parts[0], list):
                public = [part[:n_draws] for part in parts]
            else:
                public = np.empty(
                    (len(chains), n_draws, *parts[0].shape[1:]), dtype=np.result_type(*parts)
                )
            for c, chain in enumerate(chains):
                public[c] = parts[c][:n_draws]
                rest = parts[c][n_draws:]
                chain["draws"][name] = rest if isinstance(rest, list) else rest.copy()
                parts[c] = None  # one chain after the other, so that draws are not there twice
            setattr(self, attribute, public)
        self.n_iter_ = max(chain["iteration"] for chain in chains)

    def _forget(self):
        """Drop all fitted attributes, as those of an earlier fit to other data."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _diagnose(self, quantities):
        """R-hat and bulk ESS of quantities, name -> (n_chains, n_draws); {} for a single chain."""
        if len(next(iter(quantities.values()))) < 2:
            return {}
        return {
            name: {
                "r_hat": diagnostics.split_rhat(draws),
                "ess_bulk": diagnostics.bulk_ess(draws),
            }
            for name, draws in quantities.items()
        }

    def _warn_if_not_mixed(self):
        bad = [
            f"{name} (R-hat {figures['r_hat']:.2f})"
            for name, figures in self.diagnostics_.items()
            if figures["r_hat"] > LARGEST_R_HAT
        ]
        if bad:
            warnings.warn(
                f"the chains have not mixed: {', '.join(bad)}; more iterations (n_warmup, "
                "n_draws), another init or another sampler may help",
                ConvergenceWarning,
                stacklevel=4,
            )

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
        """What must be equal in the fits of a warm start."""
        signature = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in FREE_PARAMETERS
        }
        for name, value in (("likelihood", likelihood), ("sampler", sampler)):
            signature[name] = (type(value).__name__, value.get_params())
        return {name: joblib.hash(value) for name, value in signature.items()}

    def _continued(self, program, X):
        """The chains of the last fit, ready to go on; None where they have all their draws."""
        signature = self._signature(self._resolved("likelihood"), self._resolved("sampler"))
        changed = [name for name in signature if signature[name] != self._run["signature"][name]]
        if changed:
            raise ValueError(
                f"warm_start cannot go on with another {', '.join(sorted(changed))}; set "
                "warm_start=False to start anew"
            )
        if _fingerprint(X) != self._run["data"]:
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
        return [
            {**chain, "draws": self._draws_of(program, chain)} for chain in self._run["chains"]
        ]

    def _draws_of(self, program, chain):
        """The draws of one chain: the public ones, then those beyond the common number."""
        draws = dict(chain["draws"])
        for name, attribute in self._draw_attributes(program).items():
            if hasattr(self, attribute):
                public = getattr(self, attribute)[chain["index"]]
                if isinstance(public, list):
                    draws[name] = public + draws[name]
                else:
                    draws[name] = np.concatenate([public, draws[name]])
        return draws


def _fingerprint(X):
    """Shape and hash of X, equal for equal entries (of a dask array, for the same graph)."""
    if is_dask(X):
        return (X.shape, X.name)
    parts = (X.indptr, X.indices, X.data) if scipy.sparse.issparse(X) else (X,)
    digest = hashlib.sha256()
    for part in parts:
        # A little at a time, so that no copy of all is made.
        step = max(1, 2**20 // max(1, math.prod(part.shape[1:])))
        for first in range(0, len(part), step):
            digest.update(np.ascontiguousarray(part[first : first + step], dtype=np.float64))
    return (X.shape, digest.hexdigest())
