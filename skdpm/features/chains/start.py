# SPDX-License-Identifier: BSD-3-Clause
"""Where a chain of features starts."""

import functools

import numpy as np

from skdpm.features.likelihoods._base import CollapsedFeatureModel
from skdpm.features.state._state import FeatureState

# Number of draws of the parameters before features are compared.
N_SETTLING = 5
# Number of guesses; the best one is taken, as about one in three is poor.
N_GUESSES = 6


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
        # Superfluous features distort the others: later guesses are limited to a few more than
        # were kept.
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
    dropped = True
    while dropped:
        dropped = False
        log_marginal = _settled(model, prior, Z, bit_generator, N_SETTLING).compute_log_marginal()
        settled = model.save()
        hyperparameters = {name: settled[name] for name in likelihood.hyperparameters}
        evaluate = functools.partial(
            _log_marginal, model, prior, hyperparameters, bit_generator=bit_generator
        )
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


def _log_marginal(model, prior, hyperparameters, Z, bit_generator):
    state = _state_at(model, prior, Z, bit_generator)
    model.load({**model.save(), **hyperparameters})
    return state.compute_log_marginal()
