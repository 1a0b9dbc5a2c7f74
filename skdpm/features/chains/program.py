# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a feature allocation model, and where they start."""

from dataclasses import dataclass

import numpy as np

from skdpm.chains import ChainProgram, LiveChain, stream
from skdpm.draws import Column, Snapshots, column_of
from skdpm.features.likelihoods._base import CollapsedFeatureModel
from skdpm.features.state._state import FeatureState

# Number of draws of the parameters before features are compared.
N_SETTLING = 5
# Number of guesses; the best one is taken, as about one in three is poor.
N_GUESSES = 6


@dataclass(kw_only=True)
class FeatureProgram(ChainProgram):
    """Chains of a feature allocation model.

    - `data`: dict. Encoded rows, shared by all kernels.
    - `n_columns`: int. Number of columns of X.
    - `init`: str or (n_samples, n_latent), uint8. Start of the chains: see `first_state`.
    """

    data: dict
    n_columns: int
    init: str | np.ndarray

    @classmethod
    def prepare(cls, X, likelihood, **settings):
        """Make the program of a fit to the validated rows X.

        Raises ValueError if X does not suit the likelihood, which is resolved here.
        """
        likelihood = likelihood.resolve(X)
        return cls(
            likelihood=likelihood, data=likelihood.encode(X), n_columns=X.shape[1], **settings
        )

    def __post_init__(self):
        super().__post_init__()
        self.finds_warmup &= not self.likelihood.tempers

    def columns(self):
        likelihood, shape = self.likelihood, (self.n_columns,)
        return [
            *super().columns(),
            *(Column(column_of(name)) for name in likelihood.hyperparameters),
            *(Column(name, "params", shape=shape) for name in likelihood.common_params),
            Column("allocations", "ragged"),
            *(Column(name, "ragged") for name in likelihood.feature_params),
        ]

    def resume(self, chain):
        return FeatureChain(self, chain)


class FeatureChain(LiveChain):
    """A running chain: kernels of rows and of columns, and a `FeatureState`."""

    def __init__(self, program, chain):
        self.program = program
        self.index = chain["index"]
        self.bit_generator = np.random.PCG64()
        self.kernel = program.sampler.kernel()
        self.column_kernel = program.sampler.column_kernel()
        self.snapshots = Snapshots(program.n_scored_draws, chain.get("snapshots"))
        if "allocations" in chain:
            self.bit_generator.state = chain["bit_generator"]
            self.model = program.likelihood.bind(program.data)
            self.model.load(chain["params"])
            self.model.set_adaptation(chain["adaptation"])
            prior = program.make_prior(chain["concentration"])
            self.state = FeatureState(self.model, prior, chain["allocations"])
        else:
            self.bit_generator = stream(chain["entropy"], self.index)
            self.state = first_state(program, self.bit_generator)
            self.model = self.state.model

    def step(self, iteration):
        program, state = self.program, self.state
        adapting = iteration < program.n_warmup
        for _sweep in range(self.model.n_sweeps):
            self.kernel.run(state, self.bit_generator, adapting)
            self.column_kernel.run(state, self.bit_generator, adapting)
            state.update_params(self.bit_generator, adapting)
            program.resample_concentration(state.prior, state.column_sums(), self.bit_generator)

    def trace(self, log_joint):
        return log_joint, float(self.figures()["features"])

    def figures(self):
        return {"features": int(np.count_nonzero(self.state.column_sums()))}

    def keep(self, draw, log_joint):
        """Record the state without features that no row has."""
        state, likelihood = self.state, self.program.likelihood
        col_sums = state.column_sums()
        used = np.flatnonzero(col_sums)
        params = state.model.save()
        params.update(likelihood.select(params, used))
        Z = state.allocations()[:, used].astype(bool)
        if self.program.scores(self.index) and self.snapshots.due():
            shown = {"allocations": Z} if likelihood.needs_allocations else {}
            self.snapshots.take(
                {
                    "concentration": state.prior.concentration,
                    "col_sums": col_sums[used],
                    "params": params | shown,
                }
            )
        return {
            "log_joint": log_joint,
            "concentration": state.prior.concentration,
            "n_components": len(used),
            "allocations": Z,
            **{column_of(name): params[name] for name in likelihood.hyperparameters},
            **{n: params[n] for n in (*likelihood.common_params, *likelihood.feature_params)},
        }

    def save(self):
        return {
            "allocations": self.state.allocations(),
            "params": self.model.save(),
            "adaptation": self.model.get_adaptation(),
            "concentration": self.state.prior.concentration,
            "bit_generator": self.bit_generator.state,
            "snapshots": self.snapshots.save(),
        }


def first_state(program, bit_generator):
    """Make the `FeatureState` at which a chain of a `FeatureProgram` starts.

    If its `init` is "auto", that is the likelihood's guess without superfluous features, or a draw
    from the prior if there is no guess.
    """
    init = program.init
    model = program.likelihood.bind(program.data)
    prior = program.make_prior(program.first_concentration)
    if not isinstance(init, str):
        return _settled(model, prior, init, bit_generator, 1)
    if init == "auto":
        Z = _guess(program.likelihood, program.data, model, prior, bit_generator)
        if Z is not None:
            return _settled(model, prior, Z, bit_generator, N_SETTLING)
    if init == "empty":
        Z = np.zeros((model.n_samples, 0))
    else:
        Z = prior.draw(np.random.Generator(bit_generator))
    state = _state_at(model, prior, Z, bit_generator)
    model.anneal(program.n_warmup)
    return state


def _state_at(model, prior, Z, bit_generator):
    """Make the state with these features and parameters drawn from their prior."""
    if prior.grows:
        Z = Z[:, Z.any(axis=0)]
    else:
        Z = np.pad(Z, ((0, 0), (0, prior.n_components - Z.shape[1])))
    model.start(Z.shape[1], bit_generator)
    return FeatureState(model, prior, Z)


def _settled(model, prior, Z, bit_generator, n_steps):
    """Make the state with these features and parameters drawn given them."""
    state = _state_at(model, prior, Z, bit_generator)
    for _step in range(n_steps):
        state.update_params(bit_generator)
    return state


def _guess(likelihood, data, model, prior, bit_generator):
    """Find the best of several guesses of Z by the likelihood; None if it has none."""
    rng = np.random.Generator(bit_generator)
    room = model.n_samples if prior.grows else prior.n_components
    best, largest = None, -np.inf
    for _try in range(N_GUESSES):
        # Superfluous features distort the others: later guesses have few more than were kept.
        most = room if best is None else min(room, best.shape[1] + 2)
        n_guessed = None
        while most != n_guessed:
            Z = likelihood.initial_allocations(data, most, rng)
            if Z is None or not isinstance(model, CollapsedFeatureModel):
                return Z
            n_guessed = Z.shape[1]
            Z, log_marginal = _without_surplus(likelihood, model, prior, Z, bit_generator)
            if log_marginal > largest:
                best, largest = Z, log_marginal
            most = Z.shape[1]
    return best


def _without_surplus(likelihood, model, prior, Z, bit_generator):
    """Remove the features whose removal raises p(Z, X), with the features' parameters integrated
    out. Returns Z and log p(Z, X)."""

    def evaluate(Z):
        state = _state_at(model, prior, Z, bit_generator)
        model.load({**model.save(), **hyperparameters})
        return state.compute_log_marginal()

    dropped = True
    while dropped:
        dropped = False
        log_marginal = _settled(model, prior, Z, bit_generator, N_SETTLING).compute_log_marginal()
        settled = model.save()
        hyperparameters = {name: settled[name] for name in likelihood.hyperparameters}
        without = [evaluate(np.delete(Z, k, axis=1)) for k in range(Z.shape[1])]
        # The most promising first; after a removal the others are evaluated again.
        keep = np.ones(Z.shape[1], dtype=bool)
        for k in np.argsort(without)[::-1]:
            if without[k] <= log_marginal:
                break
            keep[k] = False
            value = evaluate(Z[:, keep]) if dropped else without[k]
            if value > log_marginal:
                log_marginal, dropped = value, True
            else:
                keep[k] = True
        Z = Z[:, keep]
    return Z, log_marginal
