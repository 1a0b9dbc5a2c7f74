"""Learned pseudo-counts of likelihoods of discrete data, from the kernel to the estimator, and
hyperparameters of the weights of links.

Where one number is learned, the joint law of partition and number is enumerated; where there are
several, values, partition and data drawn from the model must keep their law.
"""

import functools
import warnings

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.hyperparameters import learned_joint
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from reference.simulate import simulate_data, simulate_partitions
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from support.chains import LearningChains
from support.designs import combinations
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p, correct_for_number

from skdpm import DPMixture, FiniteMixture
from skdpm.hyperpriors import Gamma, HalfCauchy
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Product,
    Relational,
)
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import BlockedGibbs, Gibbs
from skdpm.mixture.state._state import MixtureState

NAN = np.nan
# Likelihood, what is fixed, what is learned, rows.
CASES = {
    "bernoulli": (Bernoulli, {"b": 1.4}, "a", [[1], [1], [0], [1], [0]]),
    "bernoulli_missing": (Bernoulli, {"a": [0.6]}, "b", [[1], [NAN], [0], [0], [1]]),
    "categorical": (
        Categorical,
        {"n_categories": 3},
        "concentration",
        [[2], [2], [0], [1], [2]],
    ),
    "multinomial": (
        Multinomial,
        {"base": "uniform"},
        "concentration",
        [[2, 0, 2], [20, 0, 1], [1, 0, 2], [5, 0, 0], [0, 0, 0]],
    ),
    "multinomial_frequencies": (
        Multinomial,
        {"base": [0.6, 0.3, 2.1]},
        "concentration",
        [[2, 0, 2], [2, 0, 4], [1, 0, 2], [25, 0, 0], [0, 2, 0]],
    ),
    "relational": (
        Relational,
        {"b": 0.9},
        "a",
        [[0, 1, 1, 1], [1, 0, 1, NAN], [1, 1, 0, 0], [1, NAN, 0, 0]],
    ),
    "relational_directed": (
        Relational,
        {"a": 0.6, "directed": True},
        "b",
        [[0, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 1], [1, NAN, 1, 0]],
    ),
    "relational_counts": (
        Relational,
        {"a": 0.8, "b": 0.9, "weights": NegativeBinomial(1.5, 0.7)},
        "weights__dispersion",
        [[0, 6, 1, 2], [6, 0, 9, NAN], [1, 9, 0, 0], [2, NAN, 0, 0]],
    ),
    "relational_counts_degrees": (
        Relational,
        {
            "a": 0.8,
            "b": 0.9,
            "directed": True,
            "degree_correction": True,
            "degree_concentration": 0.6,
            "weights": NegativeBinomial(1.5, None, 0.4, hyperpriors={"rate": Gamma(1.0, 1.0)}),
        },
        "weights__rate",
        [[1, 6, 0, 2], [0, 0, 3, 1], [1, 9, 2, 0], [2, 0, 1, 0]],
    ),
    "relational_real": (
        Relational,
        {
            "a": 0.8,
            "b": 0.9,
            "weights": Gaussian(
                0.3, None, 3.5, 1.5, hyperpriors={"mean_precision": Gamma(1.0, 1.0)}
            ),
        },
        "weights__mean_precision",
        [[0, 0.6, -1, 2], [0.6, 0, 3, NAN], [-1, 3, 0, 0], [2, NAN, 0, 0]],
    ),
}
LAWS_OF_WEIGHTS = {NegativeBinomial: "negative_binomial", Gaussian: "gaussian_diag"}
EDGES = (0.3, 0.8, 1.6)
BLOCKS = FiniteMixture(3, sampler=BlockedGibbs(block_size=2), init="single", concentration=1.2)
PRIORS = {"rows": ("dp", {}), "blocks": ("finite", {"n_components": 3})}
GIBBS = Gibbs().kernel()


def as_reference(fixed, learned, value):
    """Keywords of `log_likelihood`, with a value of what is learned."""
    _, of_weights, name = learned.rpartition("weights__")
    if not of_weights:
        return {**fixed, learned: value}
    law = fixed["weights"]
    numbers = {key: x for key, x in law.get_params().items() if isinstance(x, float)}
    return {**fixed, "weights": (LAWS_OF_WEIGHTS[type(law)], {**numbers, name: value})}


@functools.cache
def enumerated(name, program):
    """The law of partition and learned number: of the latter bins between EDGES, and a grid."""
    cls, fixed, learned, rows = CASES[name]
    X = np.array(rows, dtype=float)
    hyperprior = cls(**fixed).resolve(X).learned_priors[learned]
    prior, params = PRIORS[program]
    return learned_joint(
        lambda labels, value: log_likelihood(
            X, labels, cls.__name__.lower(), **as_reference(fixed, learned, value)
        ),
        lambda sizes: log_eppf(sizes, prior, concentration=1.2, **params),
        enumerate_partitions(len(X)),
        log_hyperprior=hyperprior.log_density,
        edges=EDGES,
    )


def counted(labels, values, law):
    """Partitions and bins of values as `Cells`."""
    seen = np.zeros(law.bins.shape, dtype=int)
    np.add.at(seen, (partition_index(labels), np.searchsorted(EDGES, values)), 1)
    return Cells(seen, law.bins)


def rows_run(name, cls=None, n_starts=2_000, n_steps=3):
    """A run for `assert_p`: starts from the posterior, some sweeps and draws of the number, which
    must follow it again."""
    likelihood_class, fixed, learned, rows = CASES[name]
    law = enumerated(name, "rows")
    X = np.array(rows, dtype=float)
    right = likelihood_class(**fixed).resolve(X)
    hyperpriors = (cls or likelihood_class)(**fixed).resolve(X).learned_priors
    data = right.encode(X)
    prior = DirichletProcessPrior(len(X), 1.2)
    model = right.bind(data, right.tables(data, len(X)))
    state = MixtureState(model, prior, np.zeros(len(X), dtype=np.intp))
    h = model.hyper_names.index(learned)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels, values = law.draw(round(n_starts * factor), rng)
        for s in range(len(values)):
            hyper = model.hyperparameters()
            hyper[h] = values[s]
            model.set_hyperparameters(hyper)
            state.assign(labels[s].astype(np.intp))
            for _ in range(n_steps):
                GIBBS.run(state, rng.bit_generator)
                hyper = model.resample_hyperparameters(
                    state.cluster_slots(), hyperpriors, rng.bit_generator
                )
            labels[s], values[s] = state.cluster_labels(), hyper[h]
        return counted(canonical_labels(labels), values, law)

    return run


def blocks_run(name, cls=None, n_starts=1_000, n_steps=2):
    """The same by chains whose rows are visited in blocks."""
    likelihood_class, fixed, learned, rows = CASES[name]
    law = enumerated(name, "blocks")
    chains = LearningChains(
        BLOCKS, (cls or likelihood_class)(**fixed), np.array(rows, dtype=float)
    )
    shape = np.shape(getattr(chains.program.likelihood, learned))

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels, values = law.draw(round(n_starts * factor), rng)
        for s in range(len(values)):
            start = {learned: np.full(shape, values[s])}
            labels[s], end = chains.step(labels[s], start, rng, n_steps)
            values[s] = np.ravel(end[learned])[0]
        return counted(canonical_labels(labels), values, law)

    return run


@pytest.mark.slow
def test_partitions_and_pseudo_counts_keep_their_joint_posterior(seed_sequence):
    assert_p_matrix({name: rows_run(name) for name in CASES}, seed_sequence=seed_sequence)


@pytest.mark.long
def test_hyperparameters_of_weights_keep_their_joint_posterior_every_day(seed_sequence):
    assert_p(rows_run("relational_counts", n_starts=600), seed_sequence=seed_sequence)


@pytest.mark.slow
def test_blocks_keep_the_joint_posterior(seed_sequence):
    assert_p_matrix(
        {name: blocks_run(name) for name in ("bernoulli", "multinomial_frequencies")},
        seed_sequence=seed_sequence,
    )


def wrong(cls, change):
    """A likelihood that draws its pseudo-counts under another prior than the documented one."""

    class Wrong(cls):
        def resolve(self, X):
            resolved = super().resolve(X)
            resolved.learned_priors = {
                name: change(prior) for name, prior in resolved.learned_priors.items()
            }
            return resolved

        def resolve_summary(self, summary):
            resolved = super().resolve_summary(summary)
            resolved.learned_priors = {
                name: change(prior) for name, prior in resolved.learned_priors.items()
            }
            return resolved

    return Wrong


PLANTED = {
    # The density of the logarithm without its Jacobian is that of a shape less by one; near it.
    "no Jacobian": lambda prior: (
        Gamma(0.1, 1.0 / prior.scale)
        if isinstance(prior, HalfCauchy)
        else Gamma(0.1 * prior.shape, prior.rate)
    ),
    "wrong rate": lambda prior: (
        HalfCauchy(prior.scale / 3.0)
        if isinstance(prior, HalfCauchy)
        else Gamma(prior.shape, 3.0 * prior.rate)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("error", PLANTED)
def test_planted_hyperpriors_are_seen(error, name, seed_sequence):
    cls = wrong(CASES[name][0], PLANTED[error])
    cells = rows_run(name, cls, n_starts=4_000, n_steps=4)(seed_sequence, 1)
    assert chi_squared_p(*cells[:2]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("error", PLANTED)
def test_planted_hyperpriors_are_seen_in_blocks(error, seed_sequence):
    run = blocks_run("bernoulli", wrong(Bernoulli, PLANTED[error]), n_starts=2_000, n_steps=4)
    assert chi_squared_p(*run(seed_sequence, 1)[:2]) < 1e-6


# Several at once, each Gamma(1, 1): they, a partition and data from the model, then iterations
# given the data.

ROW_CHAINS = DPMixture(sampler="gibbs", init="single", concentration=1.2)
ALL = {
    # Name in `reference`, likelihood, number of columns, shapes of what is learned.
    "bernoulli": (Bernoulli(), 2, {"a": (2,), "b": (2,)}),
    "categorical": (
        Categorical(n_categories=[2, 3], hyperpriors={"concentration": Gamma(1.0, 1.0)}),
        2,
        {"concentration": (2,)},
    ),
    "relational": (Relational(), 7, {"a": (), "b": ()}),
    "relational_degrees": (
        Relational(degree_correction=True),
        7,
        {"a": (), "b": (), "degree_concentration": ()},
    ),
}


def simulated(name, likelihood, labels, values, rng):
    if isinstance(likelihood, Relational):
        return simulate_data("relational", labels, rng, directed=False, **values)
    columns = []
    for d in range(2):
        column = {key: value[d] for key, value in values.items()}
        if name == "categorical":
            column["n_categories"] = likelihood.n_categories[d]
        columns.append(simulate_data(name, labels, rng, n_features=1, **column))
    return np.hstack(columns)


def joint_run(name, kind, cls=None, n_starts=600, n=7):
    """A run for `assert_p`: all hyperparameters, partition and data from prior and model, then
    iterations given the data. All follow their law as before."""
    likelihood, n_features, shapes = ALL[name]
    if cls is not None:
        likelihood = cls(**likelihood.get_params(deep=False))
    estimator = ROW_CHAINS if kind == "rows" else BLOCKS
    # The hyperpriors do not depend on the rows.
    chains = LearningChains(estimator, likelihood, np.zeros((n, n_features)))
    prior, params = PRIORS[kind]

    def functions(labels, values, X):
        """Of everything together, column by column."""
        same = labels[:, None] == labels
        n_clusters = labels.max() + 1.0
        if isinstance(likelihood, Relational):
            columns = [((X * same).sum() / same.sum(), X.mean(), list(values.values()))]
        else:
            equal = same[:, :, None] & (X[:, None] == X)
            columns = [
                (
                    equal[:, :, d].sum() / same.sum(),
                    X[:, d].mean(),
                    [v[d] for v in values.values()],
                )
                for d in range(2)
            ]
        together = []
        for within, mean, numbers in columns:
            together += [number * x for number in numbers for x in (within, mean, n_clusters)]
            together.append(numbers[0] / sum(numbers) - mean)
        return together

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        size = round(n_starts * factor)
        labels = simulate_partitions(prior, n, size, rng, concentration=1.2, **params)
        before, after, drawn = [], [], []
        for s in range(size):
            values = {key: np.asarray(rng.gamma(1.0, size=shape)) for key, shape in shapes.items()}
            X = simulated(name, likelihood, labels[s], values, rng)
            before.append(functions(labels[s], values, X))
            z, values = chains.over(X).step(labels[s], values, rng, 3)
            values = {key: np.asarray(value) for key, value in values.items()}
            after.append(functions(z, values, X))
            drawn.append(np.concatenate([value.ravel() for value in values.values()]))
        p = [stats.kstest(column, stats.expon.cdf).pvalue for column in np.transpose(drawn)]
        half = size // 2
        for first, second in zip(np.transpose(before), np.transpose(after), strict=True):
            p.append(stats.ks_2samp(first[:half], second[half:]).pvalue)
        return correct_for_number(min(p), len(p))

    return run


def joint_runs():
    for name, (likelihood, *_) in ALL.items():
        yield name, "rows"
        if "instantiated" in likelihood.capabilities:
            yield name, "blocks"


@pytest.mark.slow
def test_chains_keep_the_joint_law_of_all(seed_sequence):
    runs = {f"{name}, {kind}": joint_run(name, kind) for name, kind in joint_runs()}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), list(joint_runs()))
def test_a_wrong_hyperprior_of_all_is_seen(name, kind, seed_sequence):
    cls = wrong(type(ALL[name][0]), PLANTED["wrong rate"])
    assert joint_run(name, kind, cls)(seed_sequence, 1) < 1e-6


# Rows that say little.

POOR = {
    "one row": np.array([[1.0, 0.0, 0.0]]),
    "two rows": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    "constant columns": np.ones((9, 3)),
    "zeros": np.zeros((9, 3)),
    "one column": np.array([[0.0], [1.0], [1.0], [1.0]]),
}
DEFAULTS = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "multinomial": Multinomial,
    "relational": Relational,
}


@combinations(name=DEFAULTS, rows=POOR)
@pytest.mark.some(2)
@pytest.mark.long
def test_rows_that_say_little(name, rows):
    X = POOR[rows]
    if name == "relational":
        X = np.ones((len(X), len(X))) * X[0, 0]
    samplers = ["gibbs"]
    if name != "relational":
        samplers.append(BlockedGibbs(block_size=2))
        if name != "multinomial":
            X = np.vstack([X, np.full(X.shape[1], NAN)])
    for sampler in samplers:
        model = FiniteMixture(
            3,
            likelihood=name,
            sampler=sampler,
            n_warmup=30,
            n_draws=30,
            n_chains=2,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for message in ("a single column of categories", "all entries of X are 0"):
                warnings.filterwarnings("ignore", message)
            model.fit(X)
        assert np.isfinite(model.log_joint_samples_).all()
        assert np.isfinite(model.score_samples(X)).all()
        for values in model.hyperparameter_samples_.values():
            # Equal rows leave priors with long tails their tails.
            most = 100.0 if name in ("multinomial", "categorical") else 5.0
            assert (values > 0.0).all() and np.median(values) < most
            assert np.isfinite(values).all() and len(np.unique(values)) > 1


@pytest.mark.long
def test_columns_of_noise_do_not_divide_clusters():
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 100)
    points = 6.0 * np.eye(3, 2)[classes] + rng.normal(size=(300, 2))
    X = np.column_stack([points, rng.integers(8, size=(300, 12))])
    parts = [
        ("numeric", Gaussian(covariance_type="diag"), [0, 1]),
        ("noise", Categorical(), list(range(2, 14))),
    ]
    model = DPMixture(
        likelihood=Product(parts), n_warmup=30, n_draws=30, n_chains=2, random_state=0
    ).fit(X)
    assert adjusted_rand_score(classes, model.labels_) > 0.95


def test_unobserved_columns_leave_the_hyperprior(seed_sequence):
    X = np.full((6, 1), NAN)

    def run(seed, factor):
        chains = LearningChains(ROW_CHAINS, Bernoulli(), X)
        rng = np.random.default_rng(seed)
        ends = []
        for _ in range(round(300 * factor)):
            start = {"a": rng.gamma(1.0, size=1), "b": rng.gamma(1.0, size=1)}
            _, values = chains.step(np.zeros(6, dtype=np.intp), start, rng, 2)
            ends.append([values["a"][0], values["b"][0]])
        p = [stats.kstest(column, stats.expon.cdf).pvalue for column in np.transpose(ends)]
        return correct_for_number(min(p), 2)

    assert_p_matrix({"bernoulli": run}, seed_sequence=seed_sequence)
