"""Missing entries under covariances with correlations: chains draw them with the clusters.

The laws come from `reference.gaps`, which integrates over the entries numerically.
"""

import itertools
import pickle
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.gaps import gap_posterior, log_joint_of_partitions, log_known
from reference.likelihoods import LOG_MARGINALS, log_marginal_product
from reference.priors import log_eppf
from scipy.special import logsumexp
from scipy.stats import t as student_t
from sklearn.metrics import v_measure_score
from support.chains import run_chains
from support.designs import combinations, everyday, thirds
from support.exactness import SAMPLER_CASES, make_prior
from support.kernels import bind
from support.pvalues import Cells, assert_p, assert_p_matrix, mean_p, whole_of
from support.smc import fitted, labels_of, sums_by_run

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.answers._leave_one_out import log_leave_one_out
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, Poisson, Product, Subspace
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.state._state import MixtureState
from skdpm.papers._annealed import AnnealedSystem
from skdpm.papers.smc import AnnealedSMC

NAN = np.nan
# Columns with a strong correlation: a gap contains little information about its cluster, the other
# entry much about the gap.
HYPER = {"mean": [0.3, -0.5], "mean_precision": 0.4, "df": 5.0, "scale": [[1.2, 1.0], [1.0, 1.1]]}
ONE_GAP = np.array([[1.8, 1.6], [0.1, -0.4], [-1.3, NAN], [2.1, 2.4], [-1.0, -1.2]])
TWO_GAPS = np.array([[NAN, 1.6], [0.1, -0.4], [-1.3, NAN], [2.1, 2.4], [-1.0, -1.2]])
NO_ENTRY = np.array([[1.8, 1.6], [0.1, -0.4], [NAN, NAN], [2.1, 2.4], [-1.0, -1.2]])
BITS = np.array([1.0, 0.0, 0.0, 1.0, 1.0])

MIXED = [("a", Gaussian(**HYPER), [0, 1]), ("b", Bernoulli(a=0.6, b=1.4), [2])]
MIXED_LAWS = [("gaussian", [0, 1], HYPER), ("bernoulli", [2], {"a": 0.6, "b": 1.4})]
# A likelihood object, and log p(complete rows of a cluster).
LIKELIHOODS = {
    "full": (Gaussian(**HYPER), partial(LOG_MARGINALS["gaussian"], **HYPER)),
    "tied": (
        Gaussian(**HYPER, covariance_type="tied"),
        partial(LOG_MARGINALS["gaussian_tied"], **HYPER),
    ),
    "product": (Product(MIXED), partial(log_marginal_product, parts=MIXED_LAWS)),
}
PRIORS = {
    "dp": ("dp", {"concentration": 0.8}),
    "mfm": ("mfm", {"concentration": 0.9, "n_components_prior": "poisson"}),
}
SAMPLERS = {repr(s): s for samplers in SAMPLER_CASES.values() for s in samplers}


def rows_for(name, rows):
    return np.column_stack([rows, BITS[: len(rows)]]) if name == "product" else rows


def kernel_of(name, X):
    likelihood = LIKELIHOODS[name][0].for_columns(X).resolve(X)
    return likelihood, bind(likelihood, likelihood.encode(X), len(X))


def state_of(name, rows, prior, labels=None):
    X = rows_for(name, rows)
    kind, params = PRIORS[prior]
    labels = np.zeros(len(X), np.intp) if labels is None else labels
    return MixtureState(kernel_of(name, X)[1], make_prior(kind, len(X), **params), labels)


@cache
def posterior_of(name, prior):
    kind, params = PRIORS[prior]
    X, log_marginal = rows_for(name, ONE_GAP), LIKELIHOODS[name][1]
    return gap_posterior(X, log_marginal, kind, params, center=-1.0, scale=1.5)


def invariance_run(name, prior, sampler, n_starts=2_000, n_bins=3):
    """Partition and gap, drawn from their posterior, follow it after one to three iterations.
    Kernels hold rows relative to the prior mean."""
    state, posterior = state_of(name, ONE_GAP, prior), posterior_of(name, prior)
    kernel = sampler.kernel()
    edges, probabilities = posterior.cells(n_bins)
    origin = HYPER["mean"][1]

    def begin(start):
        state.assign(np.full(len(ONE_GAP), -1))
        state.model.complete([start[-1] - origin])
        state.assign(start[:-1].astype(np.intp))

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = np.column_stack(posterior.draw(round(n_starts * factor), rng))
        ends = run_chains(
            starts,
            1 + np.arange(len(starts)) % 3,
            begin=begin,
            step=lambda: kernel.run(state, rng.bit_generator),
            read=lambda: [*state.cluster_labels(), state.model.completion()[0] + origin],
        )
        counts = posterior.count(ends[:, :-1].astype(int), ends[:, -1], edges)
        return Cells(counts, probabilities)

    return run


def gap_draws_run(name, rows=ONE_GAP, n_draws=20_000, n_bins=40):
    """Draws of a gap while all rows stay in one cluster: independent, of the conditional law."""
    kind = "dp", {"concentration": 1e-12}
    X, log_marginal = rows_for(name, rows), LIKELIHOODS[name][1]
    posterior = gap_posterior(X, log_marginal, *kind, center=-1.0, scale=1.5)
    edges, probabilities = posterior.cells(n_bins)
    prior = make_prior("dp", len(X), concentration=1e-12)
    state = MixtureState(kernel_of(name, X)[1], prior, np.zeros(len(X), np.intp))
    kernel, origin = SAMPLER_CASES["gibbs"][0].kernel(), HYPER["mean"][1]

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(n_bins)
        for _ in range(round(n_draws * factor)):
            kernel.run(state, bit_generator)
            value = state.model.completion()[0] + origin
            counts[np.digitize(value, edges)] += 1
        return Cells(counts, probabilities[0] / probabilities[0].sum())

    return run


def convergence_run(name, rows, sampler, law, n_chains, n_iterations):
    """Chains from a single cluster and guesses of the gaps end up in the posterior."""
    state, kernel = state_of(name, rows, "dp"), sampler.kernel()

    def begin(start):
        state.assign(np.full(len(rows), -1))
        state.model.complete()
        state.assign(start)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = run_chains(
            np.zeros((round(n_chains * factor), len(rows)), np.intp),
            n_iterations,
            begin=begin,
            step=lambda: kernel.run(state, rng.bit_generator),
            read=state.cluster_labels,
        )
        partitions = enumerate_partitions(len(rows))
        return Cells(
            np.bincount(partition_index(ends), minlength=len(partitions)), law, partitions
        )

    return run


PAIRS = [("full", "dp"), ("full", "mfm"), ("tied", "dp"), ("product", "dp")]


@pytest.mark.parametrize("name, prior", everyday(PAIRS, PAIRS[0], n_values=2))
@thirds("sampler", SAMPLERS)
@pytest.mark.long
def test_partition_and_gap_follow_their_posterior(sampler, name, prior, seed_sequence):
    run = invariance_run(name, prior, SAMPLERS[sampler])
    assert_p(run, seed_sequence=seed_sequence)


FEW_ROWS = ONE_GAP[[0, 2]]  # a law with heavy tails
OF_ROWS = {name: partial(gap_draws_run, name) for name in LIKELIHOODS} | {
    "few rows": partial(gap_draws_run, "full", FEW_ROWS),
    "few tied rows": partial(gap_draws_run, "tied", FEW_ROWS),
}


@pytest.mark.parametrize("name", everyday(OF_ROWS, "few rows"))
def test_gaps_follow_their_law_given_the_cluster(name, seed_sequence):
    assert_p(OF_ROWS[name](), seed_sequence=seed_sequence)


@cache
def law_of_partitions(name, of):
    known = ~np.isnan(NO_ENTRY).all(axis=1)
    others = NO_ENTRY[known]
    log_marginal = LIKELIHOODS[name][1]
    if of == "two gaps":
        rule = {"nodes": 40, "center": 0.5}
        logs = log_joint_of_partitions(TWO_GAPS, log_marginal, *PRIORS["dp"], **rule)
    else:  # the density of the other rows, which needs no integral
        logs = [
            log_eppf(np.bincount(z), PRIORS["dp"][0], **PRIORS["dp"][1])
            + sum(log_marginal(others[z[known] == k]) for k in np.unique(z[known]))
            for z in enumerate_partitions(len(NO_ENTRY))
        ]
    return np.exp(logs - logsumexp(logs))


SEVERAL_GAPS = list(
    itertools.product(["gibbs", "sams"], ["two gaps", "no entry"], ["full", "tied"])
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler, of, name",
    everyday(
        SEVERAL_GAPS,
        ("gibbs", "two gaps", "full"),
        ("gibbs", "no entry", "full"),
        ("gibbs", "no entry", "tied"),
        n_values=3,
    ),
)
def test_chains_reach_the_posterior_with_several_gaps(sampler, of, name, seed_sequence):
    rows = {"two gaps": TWO_GAPS, "no entry": NO_ENTRY}[of]
    lengths = {"gibbs": (2_000, 15), "sams": (800, 100)}[sampler]
    law = law_of_partitions(name, of)
    run = convergence_run(name, rows, SAMPLER_CASES[sampler][0], law, *lengths)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_a_row_without_entries_does_not_matter():
    """How far the reference is from what needs no integral, the other rows alone."""
    logs = log_joint_of_partitions(
        NO_ENTRY, LIKELIHOODS["full"][1], *PRIORS["dp"], nodes=40, center=0.5
    )
    others = np.delete(NO_ENTRY, 2, axis=0)
    alone = log_joint_of_partitions(others, LIKELIHOODS["full"][1], *PRIORS["dp"])
    assert logsumexp(logs) == pytest.approx(logsumexp(alone), abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(LIKELIHOODS, "tied"))
def test_known_entries_have_the_integrated_density(name):
    """Of new rows with gaps, under clusters of complete rows."""
    fitted = rows_for(name, ONE_GAP)[[0, 1, 3, 4]]
    new = rows_for(name, np.array([[0.4, NAN], [NAN, -0.3], [NAN, NAN], [0.2, 9.0], [40.0, NAN]]))
    likelihood, model = kernel_of(name, fitted)
    labels = np.array([0, 1, 0, 1])
    stats = MixtureState(model, make_prior("dp", 4, concentration=1.0), labels).dump()
    data = likelihood.encode_new(new)
    scorer = likelihood.bind(data, likelihood.tables(data, None))
    scorer.load(stats)
    found = scorer.log_predictive_rows(np.arange(3), 0, len(new))
    log_marginal = LIKELIHOODS[name][1]
    for k in range(3):
        members = fitted[labels == k]
        before = log_marginal(members) if len(members) else 0.0
        for x, log_density in zip(new, found[k], strict=True):
            if np.isnan(x[:2]).all():
                expected = 0.0 if name != "product" else log_density
            else:
                known = x[np.isfinite(x)][0]
                rows = np.vstack([members, x])
                expected = log_known(rows, log_marginal, nodes=400, center=known) - before
            assert log_density == pytest.approx(expected, abs=1e-8)


# A far row: M, as its factor sees it, has few digits.
FAR = np.array([1e9, -2e9, -0.5])
WIDE_HYPER = {"mean": 0.0, "mean_precision": 0.4, "df": 6.0, "scale": 1.0}


def conditional_of_far(rows, known):
    """Law of the first two entries given the third, under the cluster of complete rows: mean and
    scale matrix of a t distribution, its df. Exact but for the last step."""
    exact = [[Fraction(float(x)) for x in row] for row in rows]
    n, (r, nu) = len(rows), (Fraction(0.4), Fraction(6))
    mean = [sum(column) / n for column in zip(*exact, strict=True)]
    S = [
        [
            (d == e)
            + sum((x[d] - mean[d]) * (x[e] - mean[e]) for x in exact)
            + r * n / (r + n) * mean[d] * mean[e]
            for e in range(3)
        ]
        for d in range(3)
    ]
    center = [n / (r + n) * m for m in mean]
    gap = Fraction(known) - center[2]
    loc = [center[d] + S[d][2] / S[2][2] * gap for d in range(2)]
    factor = (gap**2 / S[2][2] + (r + n + 1) / (r + n)) / (nu + n + 1 - 2)
    V = [[factor * (S[d][e] - S[d][2] * S[e][2] / S[2][2]) for e in range(2)] for d in range(2)]
    return loc, V, float(nu + n + 1 - 2)


def far_draws_run(n_draws=10_000, n_bins=12):
    """Both gaps of a row beside a far one, made independent of each other."""
    rows = np.vstack([FAR, np.random.default_rng(1).standard_normal((4, 3))])
    X = np.vstack([[NAN, NAN, 0.4], rows])
    likelihood = Gaussian(**WIDE_HYPER).resolve(X)
    prior = make_prior("dp", len(X), concentration=1e-100)  # the far row stays
    state = MixtureState(
        bind(likelihood, likelihood.encode(X), len(X)), prior, np.zeros(len(X), np.intp)
    )
    kernel = SAMPLER_CASES["gibbs"][0].kernel()
    loc, V, df = conditional_of_far(rows, 0.4)
    slope, first = V[0][1] / V[0][0], np.sqrt(float(V[0][0]))
    second = np.sqrt(float(V[1][1] - slope * V[0][1]))
    edges = student_t(df).ppf(np.arange(1, n_bins) / n_bins)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros((2, n_bins))
        for _ in range(round(n_draws * factor)):
            kernel.run(state, bit_generator)
            x, y = map(Fraction, state.model.completion())
            found = float(x - loc[0]) / first, float(y - loc[1] - slope * (x - loc[0])) / second
            counts[[0, 1], np.digitize(found, edges)] += 1
        return Cells(counts.ravel(), np.full(2 * n_bins, 0.5 / n_bins))

    return run


def test_gaps_beside_a_far_row_follow_their_law(seed_sequence):
    assert_p_matrix({"far": far_draws_run()}, seed_sequence=seed_sequence)


@pytest.mark.parametrize("far", everyday([1e7, 1e9, 1e12, 1e100], 1e9))
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of short chains
def test_fits_with_a_far_value_beside_gaps(far):
    """Fixed hyperparameters: learned ones follow the far value."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    X[30:] += 5.0
    X[7, 1] = far
    X[3] = X[10, 0] = X[20, 2] = X[7, 2] = NAN
    model = DPMixture(likelihood=Gaussian(**WIDE_HYPER), **SETTINGS).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert all(np.isfinite(table).all() for table in [model.impute(X), *model.impute(X, 2)])
    assert np.isfinite(model.log_joint_samples_).all()


@pytest.mark.parametrize("far", [1e7, 1e9])
def test_density_beside_a_far_row(far):
    """Of the third entry: the law of one column alone, which has other degrees of freedom."""
    rows = np.random.default_rng(1).standard_normal((5, 3))
    rows[0, :2] = far, -2.0 * far
    likelihood = Gaussian(**WIDE_HYPER).resolve(rows)
    state = MixtureState(
        bind(likelihood, likelihood.encode(rows), 5),
        make_prior("dp", 5, concentration=1.0),
        np.zeros(5, np.intp),
    )
    new = np.array([[NAN, NAN, 0.4], [NAN, NAN, NAN]])
    data = likelihood.encode_new(new)
    scorer = likelihood.bind(data, likelihood.tables(data, None))
    scorer.load(state.dump())
    alone = partial(LOG_MARGINALS["gaussian"], **{**WIDE_HYPER, "mean": [0.0], "df": 4.0})
    expected = alone(np.append(rows[:, 2:], [[0.4]], axis=0)) - alone(rows[:, 2:])
    found = scorer.log_predictive_rows(np.arange(1), 0, 2)[0]
    assert found == pytest.approx([expected, 0.0], abs=1e-6)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_other_hyperparameters_have_other_densities(covariance_type):
    """Nothing that was computed under the old ones is used again."""
    X = two_groups(24)
    likelihood = Gaussian(covariance_type=covariance_type).resolve(X)
    new = likelihood.at({"mean_precision": 3.0, "mean": likelihood.mean + 1.0})
    if covariance_type == "full":
        new = new.at({"df": likelihood.df + 7.0})
    data = likelihood.encode(X)
    labels = np.arange(24) % 2
    found = []
    for first in (likelihood, new):
        model = first.bind(data, first.tables(data, 24))
        state = MixtureState(model, make_prior("dp", 24, concentration=1.0), labels)
        log_leave_one_out(state)
        model.set_hyperparameters(new.flat_hyperparameters())
        found.append(log_leave_one_out(state))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


@pytest.mark.parametrize("n_features", [1, 2, 5, 12, 30])
def test_bounds_of_rows_with_gaps(n_features):
    """They are never below the densities, and far clusters have small ones."""
    from support.probes import Probe  # needs a compiler

    rng = np.random.default_rng(n_features)
    mixing = rng.standard_normal((n_features, n_features)) + 2.0 * np.eye(n_features)
    X = rng.standard_normal((90, n_features)) @ mixing
    X[30:60] += 100.0
    likelihood = Gaussian().resolve(with_gaps(X, 0.3, 1))
    probe = Probe(bind(likelihood, likelihood.encode(with_gaps(X, 0.3, 1)), 90), 5)
    probe.model.complete()
    slots = np.array([probe.acquire() for _ in range(4)])  # the last one stays empty
    for i in range(90):
        probe.add(slots[i // 30 if i < 85 else 2], i)
    n_checked = 0
    for i in np.unique(probe.model.gap_items):
        own = slots[min(i // 30, 2)]
        probe.remove(own, i)
        probe.open_gaps(i)
        bounds = probe.log_open_bound_many(slots, i)
        exact = probe.log_predictive_many(slots, i)
        assert (bounds >= exact).all()
        if i < 60 and not np.isnan(X[i]).all():
            n_checked += bounds[1 - i // 30] < exact[i // 30] - 5.0
        probe.close_gaps(i)
        probe.add(own, i)
    assert n_checked > 10 or n_features == 1  # whose gaps leave nothing


def test_bounds_follow_a_cluster_whose_columns_change_places():
    """Two rows whose clusters have the same size, determinant and centre in the first column."""
    from support.probes import Probe  # needs a compiler

    X = np.array([[0.0, 0.0, 3.0, 2.0], [0.0, 3.0, 0.0, 2.0], [-1.0, -3.0, 1.0, NAN]])
    likelihood = Gaussian(mean=0.0, mean_precision=1.0, df=6.0, scale=1.0).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 3), 2)
    probe.model.complete()
    slots = np.array([probe.acquire()])
    for i in (0, 1):
        probe.add(slots[0], i)
        probe.open_gaps(2)
        bound = probe.log_open_bound_many(slots, 2)
        assert bound[0] >= probe.log_predictive_many(slots, 2)[0]
        probe.close_gaps(2)
        probe.remove(slots[0], i)


def test_products_bound_no_cluster():
    """Nothing to bound is no reason to compute all densities (`MixtureState.stays`)."""
    from support.probes import Probe  # needs a compiler

    X = rows_for("product", ONE_GAP)
    probe = Probe(kernel_of("product", X)[1], 2)
    probe.model.complete()
    probe.open_gaps(2)
    assert probe.log_open_bound_many(np.empty(0, np.intp), 2) is not None


def weights_of_cells(posterior, labels, gaps, weights, n_bins):
    """Sums of weights by partition and bin of the gap, relative to the evidence: (n_cells,)."""
    edges, probabilities = posterior.cells(n_bins)
    cells = partition_index(labels) * n_bins + np.digitize(gaps, edges)
    return np.bincount(cells, weights=weights, minlength=probabilities.size)


def particle_run(name, prior, scheme, n_particles, active_block, n_bins=2, n_runs=1_500):
    """Mean weights of particles by partition and gap are their joint density: the row with the gap
    is neither the first nor the last one, so that particles share what they have drawn."""
    posterior, origin = posterior_of(name, prior), HYPER["mean"][1]
    log_evidence = logsumexp(posterior.log_joint)
    X = rows_for(name, ONE_GAP)
    kind, params = PRIORS[prior]
    model = kernel_of(name, X)[1]
    system = AnnealedSystem(
        n_particles, scheme, 1.0, make_prior(kind, len(X), **params), active_block=active_block
    )

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        labels, gaps, log_weights = [], [], []
        for _ in range(whole_of(n_runs, factor)):
            system.begin([model])
            system.run(bit_generator, 0, len(X))
            labels.append(labels_of(system))
            gaps.append(system.get_state()["completions"][:, 0] + origin)
            log_weights.append(system.log_weights() - log_evidence)
        edges, probabilities = posterior.cells(n_bins)
        cells = partition_index(np.concatenate(labels)) * n_bins
        cells += np.digitize(np.concatenate(gaps), edges)
        return mean_p(sums_by_run(cells, log_weights, probabilities.size), probabilities.ravel())

    return run


DESIGNS = [
    ("full", "dp", "systematic", 3, 0),
    ("full", "mfm", "multinomial", 3, 3),
    ("tied", "dp", "optimal", 4, 0),
    ("tied", "dp", "systematic", 3, 2),
    ("product", "dp", "stratified", 3, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, prior, scheme, n_particles, active_block",
    everyday(DESIGNS, DESIGNS[0], DESIGNS[4], n_values=5),
)
def test_particles_draw_gaps(name, prior, scheme, n_particles, active_block, seed_sequence):
    """Particles that follow all choices, that are resampled, and whose old rows are drawn again;
    weights have the evidence of the known entries for their mean."""
    run = particle_run(name, prior, scheme, n_particles, active_block)
    assert_p(run, seed_sequence=seed_sequence)


def moved_run(name, sampler, n_fits=5, n_bins=2):
    """The same for fits, whose particles are moved and whose rows come in a random order. Of at
    most 100 chains the missing entries are kept."""
    posterior, X = posterior_of(name, "dp"), rows_for(name, ONE_GAP)
    log_evidence = logsumexp(posterior.log_joint)

    def run(seed, factor):
        Y = []
        for state in seed.generate_state(whole_of(n_fits, factor)):
            model = fitted(
                LIKELIHOODS[name][0],
                "dp",
                X,
                sampler,
                concentration=PRIORS["dp"][1]["concentration"],
                n_chains=100,
                point_estimate="last",
                random_state=int(state),
            )
            gaps = [draw["completion"] + HYPER["mean"][1] for draw in model.draws_.scored.draws]
            labels = model.label_samples_[:, [0]].astype(int)
            z = np.exp(model.log_evidence_chains_ - log_evidence)
            Y += [
                weights_of_cells(posterior, *chain, n_bins)
                for chain in zip(labels, gaps, z[:, None], strict=True)
            ]
        return mean_p(np.array(Y), posterior.cells(n_bins)[1].ravel())

    return run


@pytest.mark.slow
def test_moved_particles_draw_gaps(seed_sequence):
    gibbs = SMC(3, rejuvenation="gibbs", growth=1.01, resample_threshold=1.0)
    sams = SMC(2, growth=1.3, resample_threshold=1.0, resampling="stratified")
    block = AnnealedSMC(3, rejuvenation="sams", growth=1.3, active_block=2)
    runs = {
        "full gibbs": moved_run("full", gibbs),
        "full block": moved_run("full", block),
        "tied sams": moved_run("tied", sams),
        "product sams": moved_run("product", sams),
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.filterwarnings("ignore:the chains, which are independent particle systems")
@combinations(
    sampler=[SMC(4), SMC(4, rejuvenation=None), AnnealedSMC(4)], name=["full", "tied", "product"]
)
@pytest.mark.some(1)
def test_particles_hold_the_rows_that_they_completed(name, sampler):
    """Statistics of the clusters of draws are those of their labels and their completions, also
    where chains take the rows in another order."""
    X = two_groups(40)
    likelihood = OBJECTS[name]
    model = DPMixture(likelihood=likelihood, sampler=sampler, **SETTINGS).fit(X)
    resolved = model.likelihood_
    data = resolved.encode(X)
    for draw in model.draws_.scored.draws[::20]:
        labels = model.draws_["labels"][draw["chain"], draw["draw"]].astype(np.intp)
        kernel = resolved.at(draw["values"]).bind(data, resolved.tables(data, len(X)))
        state = MixtureState(
            kernel,
            make_prior("dp", len(X), concentration=1.0),
            labels,
            completion=draw["completion"],
        )
        expected = state.dump()
        found = model.draws_.scored.stats[draw["clusters"]]
        found = found[found[:, 0] > 0]
        order = [np.lexsort(np.round(stats, 6).T) for stats in (expected, found)]
        np.testing.assert_allclose(found[order[1]], expected[order[0]], rtol=1e-7, atol=1e-7)
        state = None


@pytest.mark.filterwarnings("ignore:the chains, which are independent particle systems")
@pytest.mark.parametrize("name", everyday(["full", "tied", "product"], "full"))
def test_streams_take_rows_with_gaps(name):
    """Batches of any size give the same bits, and what follows scores new rows."""
    X = two_groups()
    settings = {**SETTINGS, "likelihood": OBJECTS[name], "sampler": SMC(50)}
    start = np.nan_to_num(X[15:35], nan=1.0)
    whole = DPMixture(**settings).partial_fit(start).partial_fit(X)
    parts = DPMixture(**settings).partial_fit(start).partial_fit(X[:13]).partial_fit(X[13:])
    assert np.array_equal(whole.log_evidence_chains_, parts.log_evidence_chains_)
    assert np.array_equal(whole.score_samples(X), parts.score_samples(X))
    assert np.array_equal(whole.impute(X), parts.impute(X))
    assert v_measure_score(np.arange(60) < 20, whole.predict(X)) > 0.8


def with_gaps(X, share, seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(X.shape) < share, NAN, X)


def two_groups(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.3], [0.0, 0.0, 1.0]])
    X[: n // 3] += 8.0
    return with_gaps(X, 0.15, seed)


SETTINGS = {"n_chains": 2, "n_warmup": 30, "n_draws": 30, "random_state": 0}
OBJECTS = {
    "full": Gaussian(),
    "tied": Gaussian(covariance_type="tied"),
    "product": Product([("a", Gaussian(), [0, 2]), ("b", Gaussian(covariance_type="diag"), [1])]),
}


@pytest.mark.parametrize("name", everyday(OBJECTS, "full"))
def test_leave_one_out_of_rows_with_gaps(name):
    """Against predictive densities of the row's known entries by `laws`, from the clusters of the
    other completed rows."""
    X = two_groups(24)
    model = DPMixture(likelihood=OBJECTS[name], sampler="gibbs", **SETTINGS).fit(X)
    found = model.pointwise_log_likelihood(X).reshape(-1, len(X))
    draws, likelihood = model.draws_, model.likelihood_
    for s in (0, 17):
        draw = draws.scored.draws[s]
        at = draw["chain"], draw["draw"]
        labels, alpha = draws["labels"][at].astype(int), draws["concentration"][at]
        data = likelihood.encode(X)
        kernel = likelihood.at(draw["values"]).bind(data, likelihood.tables(data, len(X)))
        for i in (0, 5, 20):
            others = np.where(np.arange(len(X)) == i, -1, labels).astype(np.intp)
            used = np.unique(others[others >= 0])
            others = np.where(others >= 0, np.searchsorted(used, others), -1)
            state = MixtureState(
                kernel,
                make_prior("dp", len(X), concentration=alpha),
                others,
                completion=draw["completion"],
            )
            sizes, stats = state.cluster_sizes(), state.dump()
            stats = np.vstack([stats, np.zeros(stats.shape[1])])
            weights = np.log(np.append(sizes, alpha) / (len(X) - 1 + alpha))
            laws = likelihood.at(draw["values"]).laws(stats)
            expected = logsumexp(laws.log_density(X[[i]], weights)[0] + weights)
            assert found[s, i] == pytest.approx(expected, abs=1e-9)
            state = None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of short chains
@pytest.mark.parametrize("name", everyday(OBJECTS, "full"))
def test_a_continued_fit_has_the_bits_of_one_fit(name):
    X = two_groups()
    settings = {**SETTINGS, "likelihood": OBJECTS[name]}
    whole = DPMixture(**settings).fit(X)
    parts = DPMixture(**{**settings, "n_draws": 10}, warm_start=True).fit(X)
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=30).fit(X)
    assert np.array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
    assert np.array_equal(whole.score_samples(X), parts.score_samples(X))
    threads = DPMixture(**settings, n_jobs=2).fit(X)
    assert np.array_equal(whole.log_joint_samples_, threads.log_joint_samples_)
    assert np.array_equal(whole.impute(X), threads.impute(X))


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(OBJECTS, "full"))
def test_answers_of_a_fit_with_gaps(name):
    X = two_groups()
    # The smaller group is a strip, two bricks of the product.
    model = DPMixture(likelihood=OBJECTS[name], point_estimate="modal", **SETTINGS).fit(X)
    assert np.array_equal(model.predict(X), model.predict_proba(X).argmax(axis=1))
    assert v_measure_score(np.arange(60) < 20, model.labels_) > 0.9
    filled = model.impute(X)
    assert np.array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    assert np.isfinite(filled).all()
    assert all(np.isfinite(table).all() for table in model.impute(X, n_draws=2))
    assert np.isfinite(model.outlier_scores_).all()
    assert np.isfinite(model.describe()["mean"]).all()
    before = model.predict(X)
    model.estimate_labels(X=X)
    assert np.array_equal(model.predict(X), before)
    # log p(a, b) = log p(b) + log p(a | b)
    both = model.score_samples(X)
    known = np.where([True, False, False], X, NAN)
    parts = model.score_samples(known) + model.score_samples(X, given=0)
    assert both == pytest.approx(parts, abs=1e-9)


@pytest.mark.long
def test_complete_rows_do_not_notice_that_gaps_exist():
    """A far row with a gap changes no draw of the density of the others: a guard against
    densities that read the completed entries."""
    X = two_groups()
    model = DPMixture(**SETTINGS).fit(X)
    far = np.array([[1e8, NAN, 1e8]])
    assert model.predict_proba(far, new_cluster=True)[0, -1] > 0.99
    assert np.isfinite(model.score_samples(far)).all()
    assert np.isfinite(model.predict_proba([[1e200, NAN, 0.0]])).all()


@pytest.mark.slow
@combinations(
    value=[1e6, 1e20, 1e150, 1e170, 1e300],
    covariance_type=["full", "tied", "diag", "spherical", "subspace"],
)
def test_far_entries_beside_a_gap(covariance_type, value):
    """Rows are scored by `laws` as complete rows are by kernels."""
    X = two_groups()
    X = np.where(np.isnan(X), np.random.default_rng(1).normal(size=X.shape), X)
    likelihood = Subspace(n_axes=2)
    if covariance_type != "subspace":
        likelihood = Gaussian(covariance_type=covariance_type)
    model = DPMixture(likelihood=likelihood, **SETTINGS).fit(X)
    far = np.array([[value, 1.0, 1.0], [-0.5 * value, value, 0.0]])
    scores, found = model.score_samples(far), model._predictor.conditional.log_density(far)
    if covariance_type == "subspace" and value > 1e6:
        # Covariances of departures that are so wide have rounding errors as large as the axes.
        assert np.isfinite(found).all() and (found < -250.0).all()
    elif value < 1e150 or covariance_type != "tied":
        assert found == pytest.approx(scores, rel=1e-6)
    else:  # the kernel takes entries for smaller ones, as squares are no doubles
        assert np.isfinite(found).all() and (found < scores).all() and (scores < -2e4).all()
    gaps = [[value, 1.0, NAN], [value, NAN, NAN]]
    assert np.isfinite(model.score_samples(gaps)).all()
    assert model.impute(gaps).shape == (2, 3)


@pytest.mark.long
def test_samplers_without_a_way_refuse():
    X = two_groups()
    with pytest.raises(ValueError, match=r"missing entries .*use a sampler of rows in memory"):
        DPMixture(sampler="sub_cluster").fit(X)
    with pytest.raises(ValueError, match="BlockedGibbs cannot draw the missing entries"):
        FiniteMixture(2, sampler="blocked_gibbs").fit(X)
    # Diagonal covariances need no draws.
    DPMixture(likelihood=Gaussian(covariance_type="diag"), sampler="sub_cluster", **SETTINGS).fit(
        X
    )


@pytest.mark.long
def test_auto_takes_missing_entries():
    X = two_groups()
    model = DPMixture(**SETTINGS).fit(X)
    assert model.likelihood_.covariance_type == "full"
    wide = with_gaps(np.random.default_rng(0).standard_normal((60, 35)), 0.1, 0)
    settings = {**SETTINGS, "n_warmup": 2, "n_draws": 2}
    model = DPMixture(**settings).fit(wide)
    assert model.likelihood_.covariance_type == "diag"


@pytest.mark.filterwarnings("ignore:.*no entries")
@pytest.mark.long
def test_columns_without_entries_and_dependent_columns():
    X = two_groups()
    X = np.column_stack(
        [X, np.full(len(X), NAN), 2.0 * X[:, 0] - X[:, 1] + 1.0, np.full(len(X), 3.0)]
    )
    model = DPMixture(**SETTINGS).fit(X)
    assert model.likelihood_.projection.columns.tolist() == [0, 1, 2]
    assert v_measure_score(np.arange(60) < 20, model.labels_) > 0.9
    with pytest.warns(UserWarning, match="^missing entries of column 3 of X"):
        filled = model.impute(X)
    assert np.isfinite(np.delete(filled, 3, axis=1)).all()


@pytest.mark.slow
@combinations(covariance_type=["full", "tied"], noise=[1e-7, 1e-8, 0.0])
def test_columns_that_others_nearly_determine(noise, covariance_type):
    rng = np.random.default_rng(0)
    complete = rng.standard_normal((120, 4))
    complete[60:] += 5.0
    complete[:, 3] = complete[:, 1] + noise * rng.standard_normal(120)
    X = np.where(rng.random(complete.shape) < 0.1, NAN, complete)
    likelihood = Gaussian(covariance_type=covariance_type)
    model = DPMixture(likelihood=likelihood, **SETTINGS).fit(X)
    scores = model.score_samples(X)
    assert np.isfinite(scores).all()
    # The same as a column that others determine.
    exact = np.where(np.isnan(X[:, 3]), NAN, complete[:, 1])
    exact = DPMixture(likelihood=likelihood, **SETTINGS).fit(np.column_stack([X[:, :3], exact]))
    assert scores == pytest.approx(exact.score_samples(X), abs=1e-3)
    for column in range(4):
        new = complete.copy()
        new[:, column] = NAN
        found = model.impute(new)[:, column]
        limit = 4.0 if column in (0, 2) else max(1e-12, 10.0 * noise)
        assert np.abs(found - complete[:, column]).max() < limit


def test_a_count_beside_a_gap():
    """A part with bounds for culling and one with gaps."""
    X = np.column_stack([two_groups(), np.r_[np.full(20, 9.0), np.full(40, 2.0)]])
    likelihood = Product([("a", Gaussian(), [0, 1, 2]), ("b", Poisson(), [3])])
    model = DPMixture(likelihood=likelihood, **SETTINGS).fit(X)
    assert v_measure_score(np.arange(60) < 20, model.labels_) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("sampler", everyday(["gibbs", SMC(2)], "gibbs"))
@pytest.mark.filterwarnings("ignore")
def test_more_chains_than_scored_draws(sampler):
    """Missing entries are kept for the draws of 100 chains."""
    model = DPMixture(sampler=sampler, n_chains=101, n_draws=1, n_warmup=1, random_state=0)
    assert model.fit(two_groups()).labels_.shape == (60,)


@pytest.mark.parametrize("name", everyday(OBJECTS, "full"))
@pytest.mark.long
def test_far_rows_are_imputed(name):
    """One cluster explains them, however little."""
    model = DPMixture(likelihood=OBJECTS[name], **SETTINGS).fit(two_groups())
    assert np.isfinite(model.impute([[1e12, NAN, 0.0], [NAN, NAN, -1e13]])).all()


@pytest.mark.slow
def test_marks_of_missing_entries():
    """None in lists, and nullable numbers of a data frame."""
    X = two_groups()
    rows = [[None if np.isnan(x) else x for x in row] for row in X]
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).astype("Float64")
    fits = [DPMixture(**SETTINGS).fit(guise).labels_ for guise in (X, rows, frame)]
    assert np.array_equal(fits[0], fits[1]) and np.array_equal(fits[0], fits[2])
    for guise in (rows, frame):
        with pytest.raises(ValueError, match="NaN in X: SubCluster cannot draw"):
            DPMixture(sampler="sub_cluster").fit(guise)


@pytest.mark.filterwarnings("ignore")
def test_rows_without_an_entry_beside_equal_rows():
    model = DPMixture(**{**SETTINGS, "n_chains": 1}).fit([[NAN], [1.0], [1.0]])
    assert model.labels_.tolist() == [0, 0, 0]


@pytest.mark.long
def test_rows_that_lack_the_same_columns_are_no_cluster():
    """Two surveys under each other, and columns that few rows know."""
    X = np.random.default_rng(0).normal(size=(200, 4))
    is_first, is_few = np.arange(200) % 2 == 0, np.arange(200) % 25 == 0
    surveys, rare = X.copy(), X.copy()
    surveys[is_first, :2] = surveys[~is_first, 2:] = rare[~is_few, 2:] = NAN
    for rows in (surveys, rare):
        model = DPMixture(n_warmup=40, n_draws=40, random_state=0).fit(rows)
        assert model.n_clusters_ == 1
        assert np.ptp(model.log_joint_samples_.mean(axis=1)) < 300.0
        assert model.probability_of_number(1)[0] > 0.8
