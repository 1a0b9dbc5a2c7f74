"""From the cases of `reference.simulate` to states and samplers of skdpm, and short chains.

The laws these chains are tested against come from `reference`, which imports no kernel.
"""

import warnings
from functools import cache

import numpy as np
from reference.likelihoods import log_posterior, log_posterior_concentration
from reference.simulate import LIKELIHOOD_NAMES, PRIOR_CASES, enumeration_case
from sklearn.base import clone

from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.priors import (
    DirichletProcessPrior,
    FiniteDirichletPrior,
    MixtureOfFiniteMixturesPrior,
    PitmanYorPrior,
)
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.samplers import SAMPLERS
from skdpm.mixture.samplers.base import BlockSampler
from skdpm.mixture.state._state import MixtureState
from support.chains import run_chains
from support.kernels import bind
from support.pvalues import FEWEST_DRAWS, Cells, part_of

# Laws relative to the axes of all rows of a fit, which a reference cannot simulate from: they have
# an enumeration of their own (likelihoods/test_subspace.py).
OF_ALL_ROWS = {"subspace", "product"}

# Variants of a registered likelihood that are cases of their own.
VARIANTS = {
    "gaussian_diag": "gaussian",
    "gaussian_spherical": "gaussian",
    "gaussian_tied": "gaussian",
    "gaussian_sparse": "gaussian",
    "relational_directed": "relational",
}


def moves_rows(cls):
    """Whether samplers of a class have a kernel that takes a state of all rows to another: not
    those that visit rows in blocks (test_blocks.py), nor those that take each row once
    (test_smc.py, test_smc_fits.py)."""
    return not issubclass(cls, BlockSampler) and not cls.online


# The settings of each sampler in the matrix: a line per sampler. A registered sampler without one
# is tested with its defaults.
SAMPLER_CASES = {
    "gibbs": [SAMPLERS["gibbs"]()],
    "pgsm": [SAMPLERS["pgsm"](n_particles=3, resample_threshold=1.0, gibbs_sweeps=0)],
    "sams": [
        SAMPLERS["sams"](anchors=anchors, gibbs_sweeps=0) for anchors in ("uniform", "neighbours")
    ],
    "split_merge": [SAMPLERS["split_merge"](n_restricted_scans=1, gibbs_sweeps=0)],
}
SAMPLER_CASES |= {
    name: [cls()]
    for name, cls in SAMPLERS.items()
    if name not in SAMPLER_CASES and moves_rows(cls)
}

# Starts of Gibbs in the slow tests.
IN_DEPTH = 200_000

# Iterations after which a chain on five items has forgotten its start. For Gibbs, from the exact
# transition matrices: the chi-squared distance to the posterior is then below 1e-6 in every cell.
N_ITERATIONS = {"gibbs": 15, "alternate": 15, "arm": 15}
MANY_ITERATIONS = 120  # the other samplers, whose pure moves touch two clusters at a time


def likelihood_names():
    """Every case whose likelihood is registered; a KeyError if a registered one has no case."""
    names = [name for name in LIKELIHOOD_NAMES if VARIANTS.get(name, name) in LIKELIHOODS]
    without = set(LIKELIHOODS) - set(names) - OF_ALL_ROWS
    if without:
        raise KeyError(f"no case in reference.simulate for {', '.join(sorted(without))}")
    return names


def case_rows(name):
    """The rows of an enumeration case; with "_complete" behind its name, none is missing: kernels
    have another way for those."""
    X = enumeration_case(_plain(name)).X
    return X if name == _plain(name) else np.nan_to_num(X, nan=1.0)


def complete_names():
    """The cases with missing entries, without them."""
    return [f"{n}_complete" for n in likelihood_names() if np.isnan(case_rows(n)).any()]


def _plain(name):
    return name.removesuffix("_complete")


def make_likelihood(name, **changes):
    """The likelihood object of a case, some of its hyperparameters changed."""
    name = _plain(name)
    return LIKELIHOODS[VARIANTS.get(name, name)](**{**enumeration_case(name).params, **changes})


def make_prior(
    prior,
    n_samples,
    *,
    concentration,
    discount=None,
    n_components=None,
    n_components_prior="poisson",
):
    """The kernel of a prior, by the keywords of `log_eppf`."""
    if prior == "dp":
        return DirichletProcessPrior(n_samples, concentration)
    if prior == "pitman_yor":
        return PitmanYorPrior(n_samples, concentration, discount)
    if n_components is None:
        return MixtureOfFiniteMixturesPrior(n_samples, concentration, n_components_prior)
    return FiniteDirichletPrior(n_samples, concentration, n_components)


def prior_cases(capability):
    """The names of PRIOR_CASES whose prior has a capability."""
    return [
        name
        for name, (prior, params) in PRIOR_CASES.items()
        if capability in make_prior(prior, 5, **params).capabilities
    ]


def make_state(likelihood, X, prior, labels=None):
    """A state of rows X under a likelihood object, at first all in one cluster."""
    likelihood = likelihood.resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    return MixtureState(model, prior, np.zeros(len(X), np.intp) if labels is None else labels)


def cells(sampler):
    """The names (likelihood, prior) of the cases that a sampler object can sample: with complete
    rows under one prior, otherwise under all."""
    names = [(likelihood, prior) for likelihood in likelihood_names() for prior in PRIOR_CASES]
    names += [(likelihood, "dp") for likelihood in complete_names()]
    return [n for n in names if sampler.requires in make_likelihood(n[0]).capabilities]


def case_state(likelihood_name, prior_name):
    """The state of an enumeration case."""
    prior, params = PRIOR_CASES[prior_name]
    X = case_rows(likelihood_name)
    return make_state(make_likelihood(likelihood_name), X, make_prior(prior, len(X), **params))


class BlockRuns:
    """A `BlockState` and its kernel as `run_kernel` drives a state and a kernel: pass it as both.

    Parameters
    ----------
    likelihood : Likelihood
    X : ndarray
    prior : PartitionPrior
    kernel : BlockKernel
    rows : Rows
        Of X.
    noise : Noise or None
    known : KnownLabels or Unlabelled
    """

    def __init__(self, likelihood, X, prior, kernel, rows, noise=None, known=UNLABELLED):
        self.rows, self.laws = rows, (noise, known)
        self.likelihood = likelihood.resolve_summary(self.rows.summary(likelihood))
        self.model = bind(self.likelihood, self.likelihood.encode(X), len(X))
        if noise is not None:
            self.rows.admit_noise(noise, self.likelihood)
        self.prior = prior
        self.kernel = kernel
        self.starts = {}

    def assign(self, labels):
        start = labels.tobytes()
        if start not in self.starts:
            n_slots = self.kernel.n_slots(self.prior, int(max(labels)) + 1)
            self.starts[start] = BlockState.start(self.rows, self.likelihood, labels, n_slots)
        self.kernel.set_adaptation({})
        saved = self.starts[start]
        self.state = BlockState(
            self.rows, self.likelihood, self.prior, self.model, saved, *self.laws
        )

    def run(self, state, bit_generator):
        key = (int(bit_generator.random_raw()), 0, 1)
        self.kernel.step(self.state, np.random.Generator(bit_generator), key)

    def cluster_labels(self):
        return self.state.cluster_labels()


def block_case(likelihood_name, prior_name, kernel, rows, noise=None, known=UNLABELLED):
    """An enumeration case whose rows are visited in blocks."""
    prior, params = PRIOR_CASES[prior_name]
    X = case_rows(likelihood_name)
    prior = make_prior(prior, len(X), **params)
    return BlockRuns(make_likelihood(likelihood_name), X, prior, kernel, rows, noise, known)


@cache
def case_posterior(likelihood_name, prior_name):
    """The enumerated posterior of a case."""
    name = _plain(likelihood_name)
    prior, params = PRIOR_CASES[prior_name]
    return log_posterior(
        case_rows(likelihood_name),
        name,
        prior,
        likelihood_params=enumeration_case(name).params,
        prior_params=params,
    )


def run_kernel(state, kernel, starts, n_iterations, rng):
    """The labels after `n_iterations` of `kernel` from each row of `starts`, (m, n)."""
    return run_chains(
        starts,
        n_iterations,
        begin=state.assign,
        step=lambda: kernel.run(state, rng.bit_generator),
        read=state.cluster_labels,
    )


def invariance_run(
    state, kernel, posterior, *, n_starts=20_000, n_iterations=1, fewest=FEWEST_DRAWS
):
    """A run for `assert_p`: i.i.d. starts from the posterior stay i.i.d. from the posterior.

    The draws are independent, so that p-values are exact whatever the sampler's mixing. The last
    third of the chains runs two and three times as long.
    """

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = posterior.draw(part_of(n_starts, factor, fewest), rng)
        times = np.ones(len(starts), dtype=int)
        times[len(starts) * 2 // 3 :] = 2
        times[len(starts) * 5 // 6 :] = 3
        ends = run_kernel(state, kernel, starts, times * n_iterations, rng)
        counts = posterior.count(ends)
        return Cells(counts, posterior.probabilities, posterior.partitions)

    return run


def convergence_run(
    state, kernel, posterior, start, *, n_chains=4_000, n_iterations=MANY_ITERATIONS
):
    """A run for `assert_p`: chains from one partition end up i.i.d. from the posterior.

    What invariance cannot show: that every partition is reached, and that anything moves at all.
    """

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = np.tile(start, (part_of(n_chains, factor), 1))
        ends = run_kernel(state, kernel, starts, n_iterations, rng)
        return Cells(posterior.count(ends), posterior.probabilities, posterior.partitions)

    return run


def record_worst(record_property, worst, n_tests):
    """Tell the smallest p-value, as it is and corrected for the number of tests."""
    text = f"worst of {n_tests}: p = {worst.p:.3g}, corrected {worst.corrected:.3g}, {worst.name}"
    record_property("worst_p", text)
    print(text)


def estimator_run(estimator, likelihood, prior, params, *, resampled, n_chains, n_warmup):
    """A run for `assert_p`: the last draws of the chains of one `fit` of five rows.

    Parameters
    ----------
    estimator : DPMixture or FiniteMixture
        With the parameters of the prior.
    likelihood : str
        An enumeration case.
    prior : str
    params : dict
        Keywords of `log_eppf`.
    resampled : bool
        Whether the concentration is learned; the law is then that of both.
    n_chains, n_warmup : int
    """
    case = enumeration_case(likelihood)
    others = {name: value for name, value in params.items() if name != "concentration"}
    if resampled:
        law = log_posterior_concentration(
            case.X,
            likelihood,
            prior,
            likelihood_params=case.params,
            prior_params=others,
            concentration_prior=(2.0, 0.8),
            n_bins=5,
        )
    else:
        law = log_posterior(
            case.X, likelihood, prior, likelihood_params=case.params, prior_params=params
        )

    def run(seed, factor):
        model = clone(estimator).set_params(
            concentration=None if resampled else params["concentration"],
            concentration_prior=(2.0, 0.8),
            sampler="gibbs",
            init="single",
            n_chains=part_of(n_chains, factor),
            n_warmup=n_warmup,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one draw tells nothing about mixing
            model.fit(case.X)
        labels = model.label_samples_[:, 0]
        if resampled:
            return law.count(labels, model.concentration_samples_[:, 0]), law.probabilities
        return law.count(labels), law.probabilities

    return run
