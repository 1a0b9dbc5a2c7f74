"""Short chains of skdpm's feature samplers, against laws of `reference.features`."""

from typing import NamedTuple

import numpy as np
from reference.features import (
    log_beta_bernoulli,
    log_lfrm,
    log_linear_gaussian,
    log_linear_gaussian_marginal,
    log_subclones,
    matrix_posterior,
)

from skdpm.features.likelihoods import LFRM, LIKELIHOODS, LinearGaussian, Subclones
from skdpm.features.likelihoods._linear_gaussian import LinearGaussianModel
from skdpm.features.priors import BetaBernoulliPrior, IndianBuffetPrior
from skdpm.features.state._state import FeatureState
from support.pvalues import Cells, part_of

NOISE, COMPONENT = 3.0, 0.8
CONCENTRATION = 1.3
COMPONENTS = np.array([[1.0, -0.5], [0.7, 0.8], [-0.9, 0.6], [0.8, -0.4], [-1.5, -0.3]])


class Case(NamedTuple):
    """A likelihood whose law the reference writes, on rows that show errors."""

    likelihood: object  # its hyperparameters fixed
    rows: object  # (n_latent, missing) -> X
    params: object  # n_latent -> dict, as `FeatureModel.load` takes it
    log_likelihood: object  # (X, Z, params) -> log p(X | Z, params), from `reference`


def linear_gaussian_rows(n_latent, missing):
    """Three rows near sums of the components; with `missing`, one lacks an entry, one both. A
    single row for more features: its own law is then the whole of it."""
    if n_latent > 3:
        return np.array([[0.9, np.nan if missing else -0.3]])
    X = np.array([[1.1, -0.7], [1.4, 0.6], [0.4, 1.1]])
    if n_latent == 3:
        X = X + COMPONENTS[2]
    if missing:
        X[1, 0] = np.nan
        X[2] = np.nan
    return X


def linear_gaussian_params(n_latent):
    return {
        "components": COMPONENTS[:n_latent],
        "intercept": np.zeros(2),
        # Where all features are one row's, particles' weights shall differ much on the way.
        "noise_precision": NOISE if n_latent <= 3 else 20.0,
        "component_precision": COMPONENT,
    }


BIAS = 0.4
# Not symmetric: directions differ.
WEIGHTS = np.random.default_rng(3).normal(size=(5, 5)) * 2.0


def lfrm_rows(n_latent, missing):
    """Links among three nodes, with an entry on the diagonal that is to be ignored; two for more
    features."""
    X = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    if missing:
        X[0, 2] = np.nan
    return X if n_latent <= 3 else X[1:, 1:]


def lfrm_case(directed):
    """Where links have no direction, those above the diagonal count."""

    def rows(n_latent, missing):
        X = lfrm_rows(n_latent, missing)
        return X if directed else np.triu(X) + np.triu(X, 1).T

    def params(n_latent):
        W = WEIGHTS[:n_latent, :n_latent]
        return {
            "weights": W if directed else (W + W.T) / 2,
            "bias": BIAS,
            "weight_precision": 1.0,
        }

    return Case(
        LFRM(directed=directed),
        rows,
        params,
        lambda X, Z, params: log_lfrm(X, Z, params["weights"], params["bias"], directed),
    )


PREVALENCES = np.array(
    [[0.35, 0.1, 0.2], [0.05, 0.3, 0.15], [0.25, 0.2, 0.3], [0.1, 0.3, 0.1], [0.25, 0.1, 0.25]]
)
READS = {
    "density": "binomial",
    "precision": None,
    "error_rate": 0.01,
    "genotype_prior": "major_copy_number",
}


def subclones_rows(n_latent, missing):
    """Three mutations in two samples, in impure cells and with states that have different laws; in
    three samples a single one, for more features. With `missing`, one is not measured in one."""
    cells = [
        [[15, 5, 2, 1, 1, 1.0], [19, 3, 2, 0, 1, 0.6]],
        [[9, 10, 2, 0, 1, 0.8], [14, 6, 1, 1, 2, 0.7]],
        [[17, 1, 1, 1, 1, 0.7], [8, 8, 2, 1, 1, 0.9]],
    ]
    if n_latent > 3:
        cells = [[[9, 8, 2, 1, 1, 1.0], [11, 6, 1, 0, 2, 0.7], [12, 5, 2, 1, 1, 0.8]]]
    X = np.array(cells, dtype=np.float64)
    if missing:
        X[-1, 0, :2] = np.nan
    return X.reshape(len(X), -1)


def subclones_params(n_latent):
    F = PREVALENCES[:n_latent, : 2 if n_latent <= 3 else 3]
    return {"prevalences": F / F.sum(axis=0)}


CASES = {
    "lfrm": lfrm_case(directed=True),
    "linear_gaussian": Case(
        LinearGaussian(noise_precision=NOISE, component_precision=COMPONENT, intercept=False),
        linear_gaussian_rows,
        linear_gaussian_params,
        lambda X, Z, params: log_linear_gaussian(
            X, Z, params["components"], params["noise_precision"]
        ),
    ),
    "subclones": Case(
        Subclones(**READS),
        subclones_rows,
        subclones_params,
        lambda X, Z, params: log_subclones(X, Z, params["prevalences"], **READS),
    ),
}


def registered_cases():
    """The case of every registered likelihood; a KeyError if one has none."""
    without = set(LIKELIHOODS) - set(CASES)
    if without:
        raise KeyError(f"no case in support.features for {', '.join(sorted(without))}")
    return {name: CASES[name] for name in LIKELIHOODS}


def make_model(
    X,
    *,
    noise_precision=NOISE,
    component_precision=COMPONENT,
    intercept=None,
    **params,
):
    """The kernel of `LinearGaussian` over X; `intercept`: its prior's mean and precision."""
    likelihood = LinearGaussian(
        noise_precision=noise_precision,
        component_precision=component_precision,
        intercept=intercept is not None,
        **params,
    ).resolve(X)
    if intercept is not None:
        likelihood.mean_, likelihood.intercept_precision_ = intercept
    return LinearGaussianModel(
        likelihood.encode(X),
        likelihood.noise_precision,
        likelihood.noise_precision_prior,
        likelihood.component_precision,
        likelihood.component_precision_prior,
        likelihood.intercept_precision_,
    )


def load(model, V, noise_precision=NOISE, component_precision=COMPONENT, b=None):
    model.load(
        {
            "components": V,
            "intercept": np.zeros(np.shape(V)[1]) if b is None else b,
            "noise_precision": noise_precision,
            "component_precision": component_precision,
        }
    )


def make_prior(n_samples, n_latent, concentration=CONCENTRATION):
    """Finite with `n_latent` features, or the Indian buffet process where that is None."""
    if n_latent is None:
        return IndianBuffetPrior(n_samples, concentration)
    return BetaBernoulliPrior(n_samples, concentration, n_latent)


# A move and the way back, with equal chances, leave the law of Z as it is; one alone does not.
RELAUNCHES = {
    "birth and death": [(0, 1), (1, 0)],
    "anew": [(1, 1)],
    "split and merge": [(1, 2), (2, 1)],
    "two anew": [(2, 2)],
    "two and three": [(2, 3), (3, 2)],
}


def make_move(kernel, state, move, bit_generator):
    """Make a recoding of `move` features, or propose a move (n_old, n_new) or (n_old, n_new,
    proposal)."""
    if isinstance(move, int):
        kernel.recode(state, move, bit_generator)
    else:
        n_old, n_new, *proposal = move
        kernel.propose(state, n_old, n_new, bit_generator, *proposal)


def given_params_run(
    kernel,
    n_latent,
    *,
    case=CASES["linear_gaussian"],
    missing=False,
    adapting=False,
    n_starts=10_000,
    wrong=None,
    spoil=None,
):
    """A run for `assert_p`: Z starts i.i.d. from its law given X and the parameters, and keeps it.
    Planted errors: `wrong` has another concentration or other parameters for the chain, `spoil` is
    called with the model, once bound, and the Z that it starts from."""
    X, params, wrong = case.rows(n_latent, missing), case.params(n_latent), wrong or {}

    def log_weight(Z):
        return log_beta_bernoulli(Z, CONCENTRATION) + case.log_likelihood(X, Z, params)

    law = matrix_posterior(len(X), n_latent, log_weight)
    likelihood = case.likelihood.resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    prior = make_prior(len(X), n_latent, wrong.get("concentration", CONCENTRATION))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        starts = law.draw(part_of(n_starts, factor), np.random.Generator(bit_generator))
        ends = np.empty_like(starts)
        for s, Z in enumerate(starts):
            model.load({**params, **wrong})
            state = FeatureState(model, prior, Z)
            if spoil is not None:
                spoil(model, Z)
            for _ in range(1 + s % 2):
                kernel.run(state, bit_generator, adapting)
            ends[s] = state.allocations()
        return Cells(law.count(ends), law.probabilities, law.matrices.tolist())

    return run


def components_run(kernel, n_latent, *, missing=False, n_starts=6_000, n_iterations=2, wrong=None):
    """The same with the components integrated out of the law, and drawn by the chain. `wrong`
    plants another concentration or precision in the chain."""
    X, wrong = linear_gaussian_rows(n_latent, missing), wrong or {}

    def log_weight(Z):
        return log_beta_bernoulli(Z, CONCENTRATION) + log_linear_gaussian_marginal(
            X, Z, NOISE, COMPONENT
        )

    law = matrix_posterior(3, n_latent, log_weight)
    model = make_model(X)
    prior = make_prior(3, n_latent, wrong.get("concentration", CONCENTRATION))
    precisions = {"noise_precision": NOISE, "component_precision": COMPONENT, **wrong}

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        starts = law.draw(part_of(n_starts, factor), np.random.Generator(bit_generator))
        ends = np.empty_like(starts)
        for s, Z in enumerate(starts):
            model.load(
                {"components": np.zeros((n_latent, 2)), "intercept": np.zeros(2), **precisions}
            )
            state = FeatureState(model, prior, Z)
            state.update_params(bit_generator)  # from their law given Z, whatever they were
            for _ in range(n_iterations):
                kernel.run(state, bit_generator)
                state.update_params(bit_generator)
            ends[s] = state.allocations()
        return Cells(law.count(ends), law.probabilities, law.matrices.tolist())

    return run
