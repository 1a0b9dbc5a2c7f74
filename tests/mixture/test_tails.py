"""Gaussian clusters with heavy tails: chains draw a weight of each row with its cluster.

The laws come from `reference.tails`, which enumerates partitions and weights.
"""

import itertools
import pickle
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pytest
from reference.enumerate import canonical_labels, partition_index
from reference.gaps import gap_posterior, log_known
from reference.simulate import simulate_partitions
from reference.tails import law_of_weights, log_marginal_weighted, tail_posterior
from scipy.special import logsumexp
from scipy.stats import invwishart, ks_2samp
from sklearn.metrics import adjusted_rand_score
from support.chains import run_chains
from support.designs import combinations, everyday, in_shares, thirds
from support.exactness import SAMPLER_CASES, make_prior
from support.kernels import bind
from support.probes import Probe, log_marginals_at
from support.pvalues import (
    Cells,
    assert_p,
    assert_p_matrix,
    chi_squared_p,
    correct_for_number,
    mean_p,
    whole_of,
)
from support.smc import fitted, labels_of, sums_by_run

from skdpm import DPMixture, FiniteMixture
from skdpm.hyperpriors import Gamma, Shifted
from skdpm.mixture.answers.reading import read_draws
from skdpm.mixture.likelihoods import ContaminatedTails, Gaussian, Product, StudentTails
from skdpm.mixture.likelihoods.gaussian.tails import Beta, OnGrid
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.state._state import MixtureState
from skdpm.papers._annealed import AnnealedSystem
from skdpm.papers.smc import AnnealedSMC

HYPER = {"mean": [0.3, -0.5], "mean_precision": 0.4, "df": 5.0, "scale": [[1.2, 0.7], [0.7, 1.1]]}
# The last row is outside the clusters of the others.
X = np.array([[1.8, 1.6], [0.1, -0.4], [-1.0, -1.2], [4.0, -3.5]])
X_GAPS = np.array([[1.8, 1.6], [0.1, np.nan], [-1.0, -1.2], [np.nan, -3.5]])
TAILS = {"contaminated": ContaminatedTails, "t": StudentTails}
PARAMETERS = {"contaminated": {"contamination": 0.3, "inflation": 8.0}, "t": {"tail_df": 2.5}}
SCALES = {"full": HYPER["scale"], "tied": HYPER["scale"], "diag": [1.2, 0.7], "spherical": 1.2}


class Case(NamedTuple):
    """A law of clusters."""

    tails: str
    covariance_type: str = "full"
    missing: bool = False

    @property
    def hyper(self):
        return {
            **HYPER,
            "scale": SCALES[self.covariance_type],
            "covariance_type": self.covariance_type,
        }

    @property
    def parameters(self):
        return PARAMETERS[self.tails]

    @property
    def object(self):
        return TAILS[self.tails](*self.parameters.values())

    @property
    def law(self):
        """Weights and their probabilities."""
        return law_of_weights(self.tails, tuple(self.parameters.values()))

    @property
    def rows(self):
        return X_GAPS if self.missing else X


# With full covariances, and with others.
LAWS = {tails: Case(tails) for tails in PARAMETERS}
OTHERS = {
    f"{kind} {tails}": Case(tails, kind)
    for kind in ("diag", "spherical", "tied")
    for tails in PARAMETERS
} | {f"{kind} gaps": Case("t", kind, True) for kind in ("diag", "spherical")}
OTHERS["diag gaps contaminated"] = Case("contaminated", "diag", True)
CASES = LAWS | OTHERS
PRIORS = {
    "dp": ("dp", {"concentration": 0.8}),
    "mfm": ("mfm", {"concentration": 0.9, "n_components_prior": "poisson"}),
}
SAMPLERS = {repr(s): s for samplers in SAMPLER_CASES.values() for s in samplers}


def likelihood_of(name, rows=None, **changes):
    case = CASES[name]
    return Gaussian(**{**case.hyper, **changes}, tails=case.object).resolve(
        case.rows if rows is None else rows
    )


def state_of(likelihood, prior="dp", rows=X, labels=None):
    kind, params = PRIORS[prior]
    labels = np.zeros(len(rows), np.intp) if labels is None else labels
    model = bind(likelihood, likelihood.encode(rows), len(rows))
    return MixtureState(model, make_prior(kind, len(rows), **params), labels)


def put(state, labels, chosen):
    state.assign(np.full(len(labels), -1))
    state.model.complete(chosen)
    state.assign(labels.astype(np.intp))


@cache
def posterior_of(name, prior="dp", log_marginal=log_marginal_weighted):
    case = CASES[name]
    return tail_posterior(case.rows, *case.law, *PRIORS[prior], log_marginal, **case.hyper)


def cells_of(name, posterior, labels, chosen):
    """Counts of partitions with all weights, or with the weights of the first and the last row in
    three classes each; and the probabilities of these cells."""
    states = np.repeat(np.arange(len(posterior.partitions)), len(posterior.chosen))
    all_chosen = np.tile(posterior.chosen, (len(posterior.partitions), 1))

    two = CASES[name].tails == "contaminated"

    def code(partition, numbers):
        if two:
            return partition * 16 + numbers @ [8, 4, 2, 1]
        classes = np.digitize(numbers[:, [0, 3]], [1.5, 3.5])
        return partition * 9 + classes @ [3, 1]

    n_cells = 15 * (16 if two else 9)
    law = np.bincount(code(states, all_chosen), posterior.probabilities.ravel(), n_cells)
    counts = np.bincount(code(partition_index(labels), chosen), minlength=n_cells)
    return Cells(counts, law)


def invariance_run(name, prior, sampler, law=None, n_starts=2_000):
    """Partition and weights, drawn from their posterior, follow it after one to three
    iterations."""
    state = state_of(likelihood_of(name), prior, CASES[name].rows)
    kernel = sampler.kernel()
    posterior = posterior_of(name, prior) if law is None else law

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = np.column_stack(posterior.draw(round(n_starts * factor), rng))
        ends = run_chains(
            starts,
            1 + np.arange(len(starts)) % 3,
            begin=lambda start: put(state, start[:4], start[4:]),
            step=lambda: kernel.run(state, rng.bit_generator),
            read=lambda: [*state.cluster_labels(), *state.model.completion()],
        )
        return cells_of(name, posterior, ends[:, :4], ends[:, 4:].astype(int))

    return run


@thirds("sampler", SAMPLERS)
@pytest.mark.long
def test_partition_and_weights_follow_their_posterior(sampler, seed_sequence):
    runs = {
        f"{tails} {prior}": invariance_run(tails, prior, SAMPLERS[sampler])
        for tails, prior in [("contaminated", "dp"), ("contaminated", "mfm"), ("t", "dp")]
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.parametrize("name", everyday(OTHERS, "tied contaminated", "spherical gaps"))
@pytest.mark.parametrize("sampler", everyday(SAMPLERS, "Gibbs()"))
@pytest.mark.long
def test_they_do_with_other_covariances(sampler, name, seed_sequence):
    assert_p(invariance_run(name, "dp", SAMPLERS[sampler]), seed_sequence=seed_sequence)


@pytest.mark.parametrize("tails", everyday(LAWS, "contaminated"))
def test_chains_reach_the_posterior(tails, seed_sequence):
    """From one cluster and weights of 1."""
    state, kernel = state_of(likelihood_of(tails)), SAMPLER_CASES["gibbs"][0].kernel()
    posterior = posterior_of(tails)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = run_chains(
            np.zeros((round(2_000 * factor), 4)),
            20,
            begin=lambda start: put(state, start, None),
            step=lambda: kernel.run(state, rng.bit_generator),
            read=lambda: [*state.cluster_labels(), *state.model.completion()],
        )
        return cells_of(tails, posterior, ends[:, :4], ends[:, 4:].astype(int))

    assert_p(run, seed_sequence=seed_sequence)


def wrong_marginal(error, X, w, **hyper):
    """The marginal likelihood with an error that a kernel could have."""
    w = np.asarray(w)
    log_marginal = log_marginal_weighted(X, w, **hyper)
    if error == "no powers of the weights":
        return log_marginal - 0.5 * (~np.isnan(X)).sum(axis=1) @ np.log(w)
    if error == "powers of weights for missing entries":
        return log_marginal + 0.5 * np.isnan(X).sum(axis=1) @ np.log(w)
    if error == "numbers of items for the precision of the mean":
        r, n = hyper["mean_precision"], len(X)
        return log_marginal + 0.5 * X.shape[1] * np.log((r + w.sum()) / (r + n))
    return log_marginal_weighted(X, 1.0 / w, **hyper)


@pytest.mark.slow
@pytest.mark.parametrize("tails", LAWS)
@pytest.mark.parametrize(
    "error",
    [
        "no powers of the weights",
        "numbers of items for the precision of the mean",
        "weights upside down",
    ],
)
def test_planted_errors(tails, error, seed_sequence):
    law = posterior_of(tails, "dp", partial(wrong_marginal, error))
    cells = invariance_run(tails, "dp", SAMPLERS["Gibbs()"], law)(seed_sequence, 4)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, error",
    [
        ("diag t", "numbers of items for the precision of the mean"),
        ("spherical t", "no powers of the weights"),
        ("tied contaminated", "weights upside down"),
        ("diag gaps", "powers of weights for missing entries"),
        ("diag gaps contaminated", "powers of weights for missing entries"),
        ("spherical gaps", "powers of weights for missing entries"),
    ],
)
def test_planted_errors_with_other_covariances(name, error, seed_sequence):
    law = posterior_of(name, "dp", partial(wrong_marginal, error))
    cells = invariance_run(name, "dp", SAMPLERS["Gibbs()"], law)(seed_sequence, 4)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("tails", LAWS)
def test_weights_drawn_from_their_prior_are_seen(tails, seed_sequence):
    """Weights drawn without a look at the row, beside exact iterations."""
    posterior = posterior_of(tails)
    probabilities = LAWS[tails].law[1]
    rng = np.random.default_rng(seed_sequence)
    labels, chosen = posterior.draw(4_000, rng)
    chosen[:, 3] = rng.choice(len(probabilities), size=len(chosen), p=probabilities)
    cells = cells_of(tails, posterior, labels, chosen)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# Particles.


def particle_cells(labels, chosen):
    """Cells by partition and class of the weight of a row that comes in the middle."""
    return partition_index(labels) * 2 + (chosen[:, 2] > 0)


def joint_of_cells(name):
    """log p(rows), and probabilities of the cells."""
    posterior = posterior_of(name)
    states = np.repeat(np.arange(15), len(posterior.chosen))
    chosen = np.tile(posterior.chosen, (15, 1))
    cells = particle_cells(posterior.partitions[states], chosen)
    law = np.bincount(cells, posterior.probabilities.ravel(), 30)
    return logsumexp(posterior.log_joint), law


def particle_run(name, scheme, n_particles, active_block, shift=0.0, n_runs=1_000):
    """Mean weights of particles by partition and weights of rows are their joint density. `shift`
    is an error of the log evidence."""
    log_evidence, law = joint_of_cells(name)
    rows = CASES[name].rows
    likelihood = likelihood_of(name)
    model = bind(likelihood, likelihood.encode(rows), len(rows))
    prior = make_prior("dp", len(rows), **PRIORS["dp"][1])
    system = AnnealedSystem(n_particles, scheme, 1.0, prior, active_block=active_block)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        labels, chosen, log_weights = [], [], []
        for _ in range(whole_of(n_runs, factor)):
            system.begin([model])
            system.run(bit_generator, 0, len(rows))
            labels.append(labels_of(system))
            chosen.append(system.get_state()["completions"])
            log_weights.append(system.log_weights() - log_evidence + shift)
        cells = particle_cells(np.concatenate(labels), np.concatenate(chosen))
        return mean_p(sums_by_run(cells, log_weights, law.size), law)

    return run


DESIGNS = [
    ("t", "systematic", 3, 0),
    ("contaminated", "multinomial", 3, 3),
    ("diag gaps", "optimal", 4, 0),
    ("tied contaminated", "systematic", 3, 2),
    ("spherical t", "stratified", 3, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, scheme, n_particles, active_block",
    everyday(DESIGNS, DESIGNS[0], DESIGNS[3], n_values=4),
)
def test_particles_draw_weights(name, scheme, n_particles, active_block, seed_sequence):
    """Particles that follow all choices, that are resampled, and whose old rows are drawn again;
    their mean weight is the evidence, summed over weights of rows."""
    run = particle_run(name, scheme, n_particles, active_block)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_another_evidence_is_seen(seed_sequence):
    assert particle_run(*DESIGNS[0], shift=0.05)(seed_sequence, 4) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, sampler",
    [
        ("t", SMC(3, rejuvenation="gibbs", growth=1.01, resample_threshold=1.0)),
        ("diag gaps", SMC(2, growth=1.3, resample_threshold=1.0, resampling="stratified")),
        ("contaminated", AnnealedSMC(3, rejuvenation="sams", growth=1.3, active_block=2)),
    ],
)
def test_moved_particles_draw_weights(name, sampler, seed_sequence):
    """The same for fits, whose particles are moved and whose rows come in a random order."""
    log_evidence, law = joint_of_cells(name)
    case = CASES[name]
    likelihood = Gaussian(**case.hyper, tails=case.object)

    def run(seed, factor):
        Y = []
        for state in seed.generate_state(whole_of(8, factor)):
            model = fitted(
                likelihood,
                "dp",
                case.rows,
                sampler,
                concentration=PRIORS["dp"][1]["concentration"],
                n_chains=100,
                point_estimate="last",
                random_state=int(state),
            )
            chosen = np.array([draw["completion"] for draw in model.draws_.scored.draws])
            labels = model.label_samples_[:, 0].astype(int)
            z = np.exp(model.log_evidence_chains_ - log_evidence)
            cells = particle_cells(labels, chosen)
            Y += [np.bincount([cell], [w], law.size) for cell, w in zip(cells, z, strict=True)]
        return mean_p(np.array(Y), law)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.filterwarnings("ignore:the chains, which are independent particle systems")
@pytest.mark.parametrize("name", everyday(["t", "diag", "product"], "t"))
def test_streams_take_rows(name):
    """Batches of any size give the same bits, and what follows scores new rows."""
    rows = rows_for(name)
    settings = {**SETTINGS, "likelihood": OBJECTS[name], "sampler": SMC(30)}
    start = two_groups()[10:40]
    whole = DPMixture(**settings).partial_fit(start).partial_fit(rows)
    parts = DPMixture(**settings).partial_fit(start).partial_fit(rows[:13]).partial_fit(rows[13:])
    assert np.array_equal(whole.log_evidence_chains_, parts.log_evidence_chains_)
    assert np.array_equal(whole.score_samples(rows), parts.score_samples(rows))
    assert adjusted_rand_score(np.arange(60) < 20, whole.predict(rows)) > 0.8


@pytest.mark.filterwarnings("ignore:the chains, which are independent particle systems")
@combinations(
    sampler=[SMC(4), SMC(4, rejuvenation=None), AnnealedSMC(4)],
    name=["contaminated", "tied", "spherical", "product", "full gaps", "tied gaps"],
)
@pytest.mark.long
def test_particles_hold_the_weights_of_their_rows(name, sampler):
    """Statistics of the clusters of draws are those of their labels and weights, also where chains
    take the rows in another order."""
    rows = rows_for(name, 40)
    model = DPMixture(likelihood=OBJECTS[name], sampler=sampler, **SETTINGS).fit(rows)
    resolved = model.likelihood_
    data = resolved.encode(rows)
    for draw in model.draws_.scored.draws[::20]:
        labels = model.draws_["labels"][draw["chain"], draw["draw"]].astype(np.intp)
        kernel = resolved.at(draw["values"]).bind(data, resolved.tables(data, len(rows)))
        prior = make_prior("dp", len(rows), concentration=1.0)
        state = MixtureState(kernel, prior, labels, completion=draw["completion"])
        expected = state.dump()
        found = model.draws_.scored.stats[draw["clusters"]]
        found = found[found[:, 0] > 0]
        order = [np.lexsort(np.round(stats, 6).T) for stats in (expected, found)]
        np.testing.assert_allclose(found[order[1]], expected[order[0]], rtol=1e-7, atol=1e-7)


# Missing entries that chains draw.

ONE_GAP = np.array([[1.8, 1.6], [0.1, np.nan], [-1.0, -1.2], [4.0, -3.5]])
DRAWN = ["full t", "full contaminated", "tied t", "tied contaminated"]


def drawn_case(name):
    return CASES[name.removeprefix("full ")]


def log_marginal_known(X, w, **hyper):
    """log p(known entries of rows of a cluster | weights), by an integral over the others."""
    return log_known(X, lambda rows: log_marginal_weighted(rows, w, **hyper), center=-0.5)


@cache
def gap_laws(name):
    """The posterior of partition and weights, and that of partition and missing entry."""
    case = drawn_case(name)
    weights, probabilities = case.law

    def over_weights(rows):
        chosen = np.array(list(itertools.product(range(len(weights)), repeat=len(rows))))
        logs = [log_marginal_weighted(rows, weights[some], **case.hyper) for some in chosen]
        return logsumexp(np.log(probabilities)[chosen].sum(axis=1) + logs)

    return (
        tail_posterior(ONE_GAP, *case.law, *PRIORS["dp"], log_marginal_known, **case.hyper),
        gap_posterior(ONE_GAP, over_weights, *PRIORS["dp"], center=-0.5, scale=1.5, n=200),
    )


def gap_run(name, sampler, n_iterations=15, n_bins=3):
    """P-values of partition with weights, and of partition with the entry, of chains that start
    with one cluster, weights of 1 and a guess of the entry."""
    likelihood = likelihood_of(name.removeprefix("full "), ONE_GAP)
    state, kernel = state_of(likelihood, rows=ONE_GAP), sampler.kernel()
    of_weights, of_entry = gap_laws(name)
    edges, law = of_entry.cells(n_bins)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = run_chains(
            np.zeros((round(2_000 * factor), 4)),
            n_iterations,
            begin=lambda start: put(state, start, None),
            step=lambda: kernel.run(state, rng.bit_generator),
            read=lambda: [*state.cluster_labels(), *state.model.completion()],
        )
        labels, chosen, entry = np.split(ends, [4, 8], axis=1)
        labels = labels.astype(int)
        cells = cells_of(drawn_case(name).tails, of_weights, labels, chosen.astype(int))
        counts = of_entry.count(labels, entry[:, 0] + HYPER["mean"][1], edges)
        pairs = [(cells.counts, cells.probabilities), (counts.ravel(), law.ravel())]
        p = [chi_squared_p(*pair) for pair in pairs]
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DRAWN if "contaminated" in name])
@pytest.mark.parametrize("sampler", ["gibbs", "sams"])
def test_partition_weights_and_entry_follow_their_posterior(sampler, name, seed_sequence):
    n_iterations = {"gibbs": 15, "sams": 60}[sampler]
    run = gap_run(name, SAMPLER_CASES[sampler][0], n_iterations)
    assert_p(run, seed_sequence=seed_sequence)


def test_values_are_checked_before_weights_change():
    rows = rows_of(missing=True)
    likelihood = likelihood_of(DRAWN[0].removeprefix("full "), rows)
    model = bind(likelihood, likelihood.encode(rows), 9)
    model.complete()
    before = model.completion()
    wrong = np.where(np.arange(len(before)) < 9, 1.0 - before, np.nan)  # other weights
    with pytest.raises(ValueError, match="finite values of missing entries"):
        model.complete(wrong)
    np.testing.assert_array_equal(model.completion(), before)


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.long
def test_densities_of_rows_with_gaps(name):
    """The known entries of a row that is in no cluster, beside completed rows."""
    case = drawn_case(name)
    rows = rows_of(missing=True)
    likelihood = likelihood_of(name.removeprefix("full "), rows)
    model = bind(likelihood, likelihood.encode(rows), 9)
    probe = Probe(model, 3)
    probe.model.complete()
    completion = probe.model.completion()
    assert len(completion) == likelihood.n_drawn(rows) == 9 + np.isnan(rows).sum()
    completion[:9] = chosen = np.random.default_rng(1).integers(len(case.law[0]), size=9)
    probe.model.complete(completion)
    assert np.array_equal(probe.model.completion(), completion)
    complete = likelihood.independent(rows, completion)
    slots = np.array([probe.acquire() for _ in range(3)])
    owner = np.array([0, 0, 0, 1, 1, 0, 1, 0, 0])
    for i in range(9):
        probe.add(slots[owner[i]], i)
    for i in (2, 4, 3):
        new = rows[i] if i != 4 else complete[i]
        probe.remove(slots[owner[i]], i)
        probe.open_gaps(i)
        found = probe.log_predictive_many(slots, i)
        probe.close_gaps(i)
        probe.add(slots[owner[i]], i)
        for k in range(3):
            m = (owner == k) & (np.arange(9) != i)
            parts = [
                np.log(p)
                + log_marginal_known(
                    np.vstack([complete[m], new]), [*case.law[0][chosen[m]], w], **case.hyper
                )
                - log_marginal_weighted(complete[m], case.law[0][chosen[m]], **case.hyper)
                for w, p in zip(*case.law, strict=True)
            ]
            assert found[k] == pytest.approx(logsumexp(parts), abs=1e-5)


# Densities.


def rows_of(n=9, n_features=2, seed=0, missing=False):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, n_features)) * 2.0 + 0.5
    if missing:
        rows[2::5, 0] = rows[3::7, 1] = np.nan
    return rows


@pytest.mark.parametrize("name", CASES)
def test_marginal_likelihoods(name):
    """By items that come and go, from statistics alone, merged, and at other hyperparameters."""
    case = CASES[name]
    rows = rows_of(missing=case.missing)
    likelihood = likelihood_of(name, rows)
    weights, probabilities = case.law
    rng = np.random.default_rng(1)
    chosen = rng.integers(len(weights), size=9)
    state = state_of(likelihood, rows=rows, labels=np.arange(9) % 2)
    put(state, np.arange(9) % 2, chosen)
    put(state, np.array([0, 0, 1, 1, 1, 0, 0, 2, 2]), chosen)

    def expected(members, hyper=case.hyper, law=(weights, probabilities)):
        w = law[0][chosen[members]]
        return (
            log_marginal_weighted(rows[members], w, **hyper)
            + np.log(law[1][chosen[members]]).sum()
        )

    members = [np.flatnonzero(state.cluster_labels() == k) for k in range(3)]
    exact = [expected(m) for m in members]
    stats = state.dump()
    np.testing.assert_allclose(state.model.log_marginals(stats), exact, rtol=1e-12)
    prior = state.prior.log_probability(state.cluster_sizes())
    assert state.compute_log_joint() - prior == pytest.approx(sum(exact), rel=1e-12)
    state.rebuild()
    np.testing.assert_allclose(state.model.log_marginals(state.dump()), exact, rtol=1e-12)
    # At other hyperparameters.
    changed = {"mean": [0.9, 0.1], "mean_precision": 1.3, "df": 6.5}
    matrix, kind = [[2.0, 0.1], [0.1, 3.0]], case.covariance_type
    changed["scale"] = {"diag": [2.0, 3.0], "spherical": 2.5}.get(kind, matrix)
    values = dict(case.parameters)
    if case.tails == "contaminated":
        values["inflation"] = 3.0
    at = likelihood.at({**{k: np.array(v) for k, v in changed.items()}, **values})
    law = law_of_weights(case.tails, tuple(values.values()))
    changed["covariance_type"] = kind
    exact = [expected(m, changed, law) for m in members]
    flat = at.flat_hyperparameters()
    state.model.set_hyperparameters(flat)
    np.testing.assert_allclose(state.model.log_marginals(state.dump()), exact, rtol=1e-11)
    if case.tails == "contaminated":  # steps of the inflation, given all others
        state.model.set_hyperparameters(np.append(flat[:-1], 5.0))
        found = log_marginals_at(state.model, state.cluster_slots(), flat)
        np.testing.assert_allclose(found, exact, rtol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_clusters_stay_exact_along_a_chain(name):
    """Rows that keep their cluster change their weights: cached terms and statistics follow."""
    case = CASES[name]
    rows = rows_of(40, missing=case.missing)
    likelihood = likelihood_of(name, rows)
    state, kernel = state_of(likelihood, rows=rows), SAMPLERS["Gibbs()"].kernel()
    weights, probabilities = case.law
    bit_generator, n_changed = np.random.PCG64(0), 0
    for _ in range(20):
        before = state.model.completion()
        kernel.run(state, bit_generator)
        n_changed += (before != state.model.completion()).sum()
        labels, chosen = state.cluster_labels(), state.model.completion()
        exact = [
            log_marginal_weighted(rows[labels == k], weights[chosen[labels == k]], **case.hyper)
            + np.log(probabilities[chosen[labels == k]]).sum()
            for k in range(state.n_clusters)
        ]
        prior = state.prior.log_probability(state.cluster_sizes())
        assert state.compute_log_joint() - prior == pytest.approx(sum(exact), rel=1e-10)
        np.testing.assert_allclose(state.model.log_marginals(state.dump()), exact, rtol=1e-10)
    assert n_changed > 100


@pytest.mark.parametrize("n_features", everyday([1, 2, 5], 2))
@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].missing])
def test_bounds_of_other_clusters(name, n_features):
    """They are never below the weights of these, and not far above those of far clusters."""
    rng = np.random.default_rng(n_features)
    y = np.repeat(np.arange(16), 10)
    centers = rng.standard_normal((16, n_features)) * 40.0
    rows = centers[y] + rng.standard_normal((160, n_features))
    rows[::9] += 8.0 * rng.standard_normal((18, n_features))
    rows[5] = 1e150
    likelihood = Gaussian(
        mean=0.0,
        mean_precision=0.01,
        df=n_features + 3.0,
        scale=4.0,
        tails=CASES[name].object,
        covariance_type=CASES[name].covariance_type,
    ).resolve(rows)
    probe = Probe(bind(likelihood, likelihood.encode(rows), 160), 18)
    probe.model.complete(rng.integers(2, size=160))
    slots = np.array([probe.acquire() for _ in range(17)])  # the last one stays empty
    for i in np.delete(np.arange(160), 5):
        probe.add(slots[y[i]], i)
    log_prior, gaps = rng.standard_normal(17), []
    for i in range(160):
        if i != 5:
            probe.remove(slots[y[i]], i)
        probe.open_gaps(i)
        rest = probe.open_rest(slots, y[i], i, log_prior)
        log_w = probe.log_predictive_many(slots, i) + log_prior
        exact = logsumexp(np.delete(log_w, y[i])) - log_w[y[i]]
        if i != 5 or np.isfinite(rest):
            assert np.log(rest) >= exact
        gaps.append(np.log(rest) - exact if np.isfinite(rest) else np.inf)
        probe.close_gaps(i)
        if i != 5:
            probe.add(slots[y[i]], i)
    # Others than full covariances have columns with bounds of their own, or fixed tails.
    assert np.quantile(gaps, 0.1) < (4.0 if name in LAWS else 10.0)


@pytest.mark.parametrize("name", CASES)
def test_bounds_change_no_draw(name):
    """Rows that stay by bounds of the other clusters would stay by their weights."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(14), 12)
    rows = rng.standard_normal((14, 2))[y] * 40.0 + rng.standard_normal((len(y), 2))
    rows /= np.sqrt(rng.chisquare(3, (len(y), 1)) / 3)
    rows[0] = 1e4
    if CASES[name].missing:
        rows[::9, 0] = np.nan
    likelihood = likelihood_of(name, rows, mean_precision=0.001)
    kernel, ends = SAMPLERS["Gibbs()"].kernel(), []
    for bounds in (False, True):
        state, bit_generator = state_of(likelihood, rows=rows, labels=y), np.random.PCG64(1)
        assert state.model.bounds_rest
        state.model.bounds_rest = bounds
        draws = []
        for _ in range(30):
            kernel.run(state, bit_generator)
            draws.append([state.cluster_labels(), state.model.completion()])
        ends.append(draws)
    assert state.n_clusters > 9  # enough for bounds with two weights
    assert np.array_equal(*ends)


def log_predictives(case, members, chosen, new):
    """log p(new row, its weight | rows with weights) for each weight."""
    weights, probabilities = case.law
    without = log_marginal_weighted(members, weights[chosen], **case.hyper)
    return np.log(probabilities) + [
        log_marginal_weighted(np.vstack([members, new]), [*weights[chosen], w], **case.hyper)
        - without
        for w in weights
    ]


@pytest.mark.parametrize("name", CASES)
def test_densities_of_rows(name):
    """Of rows in no cluster, of new rows, and of a row that has just left its cluster."""
    case = CASES[name]
    rows = rows_of(missing=case.missing)
    likelihood = likelihood_of(name, rows)
    rows[8] = [60.0, -80.0]
    rng = np.random.default_rng(1)
    chosen = rng.integers(len(case.law[0]), size=9)
    model = bind(likelihood, likelihood.encode(rows), 9)
    probe = Probe(model, 4)
    probe.model.complete(chosen)
    slots = np.array([probe.acquire() for _ in range(3)])
    owner = np.array([0, 0, 0, 1, 1, 0, 1, 0, 0])
    for i in range(9):
        probe.add(slots[owner[i]], i)
    for i in (0, 8, 4, 2, 3):  # some of the last two have missing entries
        probe.remove(slots[owner[i]], i)
        others = [np.flatnonzero((owner == k) & (np.arange(9) != i)) for k in range(3)]
        parts = [log_predictives(case, rows[m], chosen[m], rows[i]) for m in others]
        found = probe.log_predictive_many(slots, i)
        np.testing.assert_allclose(found, [p[chosen[i]] for p in parts], rtol=1e-10)
        probe.open_gaps(i)
        found = probe.log_predictive_many(slots, i)
        np.testing.assert_allclose(found, [logsumexp(p) for p in parts], rtol=1e-10)
        probe.close_gaps(i)
        probe.add(slots[owner[i]], i)


@pytest.mark.parametrize("name", CASES)
def test_new_rows_and_laws(name):
    """Scores of kernels, and `laws` of some entries."""
    case = CASES[name]
    rows = rows_of(missing=case.missing)
    likelihood = likelihood_of(name, rows)
    chosen = np.arange(9) % 2
    state = state_of(likelihood, rows=rows)
    put(state, np.arange(9) // 6, chosen)
    stats = np.vstack([state.dump(), np.zeros(state.model.n_stats)])
    new = np.vstack([rows_of(5, seed=2), [[1e3, -1e4], [1e160, 1e170]]])
    data = likelihood.encode_new(new)
    scorer = likelihood.bind(data, likelihood.tables(data, None))
    scorer.load(stats)
    found = scorer.log_predictive_rows(np.arange(3), 0, len(new))
    members = [np.arange(6), np.arange(6, 9), np.arange(0)]
    exact = np.array(
        [
            [logsumexp(log_predictives(case, rows[m], chosen[m], x)) for x in new[:-1]]
            for m in members
        ]
    )
    np.testing.assert_allclose(found[:, :-1], exact, rtol=1e-9)
    assert np.isfinite(found[:, -1]).all() and (found[:, -1] < found[:, -2]).all()
    laws = likelihood.laws(stats)
    np.testing.assert_allclose(laws.log_density(new[:-1]).T, exact, rtol=1e-9)
    # log p(a, b) = log p(b) + log p(a | b)
    known = np.where([False, True], new[:-1], np.nan)
    column = laws.given(known[[1, 1, 1]], np.arange(3), [0])[0]
    np.testing.assert_allclose(
        column.log_density(new[[1, 1, 1], 0])[0],
        exact[:, 1] - laws.log_density(known[[1]])[0],
        rtol=1e-9,
    )


@pytest.mark.parametrize("name", [name for name in CASES if "tied" not in name])
def test_far_rows_fall_along_a_line(name):
    """A density falls like a power, also from where the square of a row overflows."""
    case = CASES[name]
    likelihood = likelihood_of(name, rows_of(missing=case.missing))
    state = state_of(likelihood, rows=rows_of(missing=case.missing))
    put(state, np.arange(9) // 6, np.arange(9) % 2)
    far = 10.0 ** np.arange(147, 155)
    gap = np.full(8, np.nan) if case.missing else -2.0 * far
    for new in (np.stack([far, 3.0 * far], axis=1), np.stack([far, gap], axis=1)):
        data = likelihood.encode_new(new)
        scorer = likelihood.bind(data, likelihood.tables(data, None))
        scorer.load(state.dump())
        slopes = np.diff(scorer.log_predictive_rows(np.arange(2), 0, 8), axis=1)
        assert (slopes < -2.0).all()
        np.testing.assert_allclose(slopes, slopes[:, [0] * 7], rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_densities_integrate_to_one(name):
    x = np.linspace(-np.pi / 2, np.pi / 2, 40_002)[1:-1]
    new = np.tan(x)[:, None]
    hyper = {"mean": 0.3, "mean_precision": 0.4, "df": 3.0, "scale": 1.2}
    likelihood = likelihood_of(name, X[:, :1], **hyper)
    state = state_of(likelihood, rows=X[:, :1])
    put(state, np.zeros(4), np.array([0, 1, 0, 1]))
    data = likelihood.encode_new(new)
    scorer = likelihood.bind(data, likelihood.tables(data, None))
    scorer.load(np.vstack([state.dump(), np.zeros(state.model.n_stats)]))
    density = np.exp(scorer.log_predictive_rows(np.arange(2), 0, len(new)))
    totals = np.trapezoid(density / np.cos(x) ** 2, x, axis=1)
    np.testing.assert_allclose(totals, 1.0, atol=1e-3)


@pytest.mark.parametrize(
    "name", everyday(CASES, "t", "diag gaps", "tied contaminated", "spherical t")
)
@pytest.mark.long
def test_draws_of_rows_follow_their_density(name, seed_sequence):
    """Of a column, also given the other one."""
    missing = CASES[name].missing
    likelihood = likelihood_of(name)
    state = state_of(likelihood, rows=rows_of(missing=missing))
    put(state, np.zeros(9), np.arange(9) % 2)
    laws = likelihood.laws(state.dump())

    def run_of(known):
        column = laws.given(known[None], np.array([0]), [0])[0]

        def run(seed, factor):
            rng = np.random.default_rng(seed)
            n = round(4_000 * factor)
            if np.isnan(known).all():
                drawn = likelihood.draw_rows(state.dump(), np.zeros(n, np.intp), 2, rng)
            else:
                drawn = laws.fill(np.tile(known, (n, 1)), np.zeros(n, np.intp), rng)
            u = np.array([column.cdf(np.array([x]))[0] for x in drawn[:, 0]])
            return Cells(np.histogram(u, 20, (0.0, 1.0))[0], np.full(20, 0.05))

        return run

    runs = {str(b): run_of(np.array([np.nan, b])) for b in (np.nan, 7.0)}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


# Learned parameters.


def single_run(tails, name, planted=1.0, n_starts=1_000, kind="full"):
    """One learned hyperparameter of clusters of light rows in one column: a draw from its
    posterior, which is known on a grid, follows it after four updates. `planted` multiplies the
    weights of the law."""
    rng = np.random.default_rng(3)
    rows = 2.0 * rng.standard_normal((24, 1)) + np.repeat([0.0, 5.0, -4.0], 8)[:, None]
    labels = np.repeat(np.arange(3), 8)
    weights = LAWS[tails].law[0]
    chosen = np.where(np.arange(24) % 8, len(weights) - 1, 0)
    scale = {"diag": [1.2], "spherical": 1.2}.get(kind, [[1.2]])
    hyper = {"mean": [0.3], "mean_precision": 5.0, "df": 3.0, "scale": scale}
    hyper["covariance_type"] = kind
    given = {**hyper, name: None}
    if kind == "full":
        given["scale"] = given["scale"] and [1.2]  # a diagonal
    likelihood = Gaussian(**given, tails=CASES[tails].object).resolve(rows)
    state = state_of(likelihood, rows=rows)
    put(state, labels, chosen)
    shape = np.shape(getattr(likelihood, name))
    edges = np.linspace(-15.0, 15.0, 3_001)
    if name != "mean":
        low = {"mean_precision": 0.0, "df": 1.0 if kind == "full" else 0.0}.get(name)
        if name == "scale":
            low = float(np.ravel(likelihood._floor)[0])
        edges = low + np.exp(np.linspace(-12.0, 8.0, 1_001))
    middle = 0.5 * (edges[1:] + edges[:-1])

    def log_density(value):
        hyper[name] = np.full(np.shape(scale), value) if name == "scale" else value
        total = likelihood.log_hyperprior({name: np.full(shape, value) if shape else value})
        return total + sum(
            log_marginal_weighted(
                rows[labels == k], planted * weights[chosen[labels == k]], **hyper
            )
            for k in range(3)
        )

    masses = np.log(np.diff(edges)) + [log_density(value) for value in middle]
    cdf = np.cumsum(np.exp(masses - logsumexp(masses)))
    cdf = np.concatenate([[0.0], cdf / cdf[-1]])

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = []
        for value in np.interp(rng.random(round(n_starts * factor)), cdf, edges):
            at = likelihood.at({name: np.full(shape, value) if shape else value})
            state.model.set_hyperparameters(at.flat_hyperparameters())
            for _ in range(4):
                flat = state.model.resample_hyperparameters(
                    state.cluster_slots(), likelihood.learned_priors, rng.bit_generator
                )
            ends.append(np.ravel(likelihood.learned_values(flat)[name])[0])
        u = np.interp(ends, edges, cdf)
        return Cells(np.histogram(u, 12, (0.0, 1.0))[0], np.full(12, 1.0 / 12.0))

    return run


NAMES = ("mean", "mean_precision", "df", "scale")


@pytest.mark.slow
@in_shares
def test_hyperparameters_follow_their_posteriors(share, seed_sequence):
    runs = {
        f"{tails} {name}": single_run(tails, name)
        for tails, name in share(itertools.product(LAWS, NAMES))
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_hyperparameters_of_other_covariances_follow_theirs(seed_sequence):
    runs = {
        f"{kind} {name}": single_run("contaminated", name, n_starts=300, kind=kind)
        for kind, name in itertools.product(("diag", "spherical", "tied"), NAMES)
        if (kind, name) != ("tied", "df")  # not learned
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
def test_other_weights_have_other_posteriors(kind, name, seed_sequence):
    if (kind, name) == ("tied", "df"):
        pytest.skip("not learned")
    planted = 0.01 if kind == "tied" else 20.0
    cells = single_run("t", name, planted, kind=kind)(seed_sequence, 2)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def freedom_run(wrong=1.0, rows=X, n_starts=3_000):
    """Degrees of freedom, partition and weights, drawn from their joint posterior, follow it after
    one to three iterations. `wrong`: power of the probabilities of weights, of another law."""
    likelihood = Gaussian(**HYPER, tails="t").resolve(rows)
    priors = likelihood.learned_priors
    values = priors["tail_df"].values
    # Values far apart, so that the rows can tell them apart.
    priors["tail_df"] = OnGrid(values[[0, 8, 20]], np.log([0.3, 0.4, 0.3]))
    parts = [
        tail_posterior(rows, *law_of_weights("t", (df,)), *PRIORS["dp"], **HYPER)
        for df in priors["tail_df"].values
    ]
    logs = [
        part.log_joint + wrong * np.log(mass)
        for part, mass in zip(parts, [0.3, 0.4, 0.3], strict=True)
    ]
    law = np.exp(logs - logsumexp(logs))
    partitions, chosen = parts[0].partitions, parts[0].chosen
    n_light = np.minimum((chosen > 2).sum(axis=1), 2)
    state = state_of(likelihood, rows=rows)
    kernel = SAMPLERS["Gibbs()"].kernel()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = rng.choice(law.size, round(n_starts * factor), p=law.ravel())
        which = np.column_stack(np.unravel_index(starts, law.shape))

        def begin(start):
            v, z, w = start
            at = likelihood.at({"tail_df": priors["tail_df"].values[v]})
            state.model.set_hyperparameters(at.flat_hyperparameters())
            put(state, partitions[z], chosen[w])

        def step():
            kernel.run(state, rng.bit_generator)
            state.model.resample_hyperparameters(state.cluster_slots(), priors, rng.bit_generator)

        def read():
            df = state.model.hyperparameters()[-1]
            light = (state.model.completion() > 2).sum()
            return [np.searchsorted(priors["tail_df"].values, df), state.n_clusters, light]

        ends = run_chains(which, 1 + np.arange(len(which)) % 3, begin=begin, step=step, read=read)
        n_clusters = partitions.max(axis=1) + 1
        cells = np.zeros((3, 5, 3))
        for v in range(3):
            for z, k in enumerate(n_clusters):
                cells[v, k] += np.bincount(n_light, law[v, z], 3)
        counts = np.zeros(cells.shape, dtype=int)
        ends = ends.astype(int)
        np.add.at(counts, (ends[:, 0], ends[:, 1], np.minimum(ends[:, 2], 2)), 1)
        return Cells(counts, cells)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("n", everyday([3, 4], 3))
def test_degrees_of_freedom_follow_their_posterior(n, seed_sequence):
    assert_p(freedom_run(rows=X[-n:]), seed_sequence=seed_sequence)


@pytest.mark.slow
def test_another_prior_of_degrees_of_freedom_is_seen(seed_sequence):
    cells = freedom_run(2.5)(seed_sequence, 2)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def model_run(tails, planted=None, n=8, n_chains=2_000, n_alternations=4):
    """Hyperparameters, partition, weights and rows from the prior, then alternations of one
    iteration of a chain given the rows and of fresh rows given the rest: the end has the law of
    the start (Geweke 2004). All hyperparameters are learned; `planted` changes their priors for
    the chains alone."""
    hyperpriors = {"mean_precision": (4.0, 8.0), "df": (4.0, 2.0), "scale": (4.0, 4.0)}
    likelihood = Gaussian(hyperpriors=hyperpriors, tails=tails).resolve(rows_of(12))
    priors = {**likelihood.learned_priors, **(planted or {})}
    prior = make_prior("dp", n, concentration=1.0)
    kernel = SAMPLERS["Gibbs()"].kernel()
    law = likelihood._law_of_weights

    def draw_rows(values, labels, weights, rng):
        X = np.empty((n, 2))
        r, df, mean = values["mean_precision"], values["df"], values["mean"]
        for k in np.unique(labels):
            members = labels == k
            covariance = invwishart.rvs(df, np.diag(values["scale"]), random_state=rng)
            root = np.linalg.cholesky(covariance)
            center = mean + root @ rng.standard_normal(2) / np.sqrt(r)
            normal = rng.standard_normal((members.sum(), 2)) / np.sqrt(weights[members])[:, None]
            X[members] = center + normal @ root.T
        return X

    def weights_of(values, chosen):
        w, p = law_of_weights(tails, tuple(float(values[name]) for name in law.parameters))
        return w[chosen], p

    def draw_all(rng):
        values = likelihood.draw_hyperparameters(rng)
        labels = simulate_partitions("dp", n, 1, rng, concentration=1.0)[0]
        p = weights_of(values, 0)[1]
        chosen = rng.choice(len(p), size=n, p=p / p.sum())
        return (
            values,
            labels,
            chosen,
            draw_rows(values, labels, weights_of(values, chosen)[0], rng),
        )

    def functions(values, labels, chosen, X):
        gaps = (X - likelihood.mean) ** 2
        return [
            *np.concatenate([np.ravel(values[name]) for name in sorted(values)]),
            labels.max() + 1.0,
            (chosen > law.first).sum(),
            chosen.sum(),
            np.log(gaps.sum()),
            np.log(np.median(gaps)),
            np.log(gaps.max()),
        ]

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        fresh = np.array([functions(*draw_all(rng)) for _ in range(round(4 * n_chains * factor))])
        ends = []
        for _ in range(round(n_chains * factor)):
            values, labels, chosen, X = draw_all(rng)
            for _ in range(n_alternations):
                at = likelihood.at(values)
                state = MixtureState(
                    bind(at, at.encode(X), n), prior, labels.astype(np.intp), completion=chosen
                )
                kernel.run(state, rng.bit_generator)
                flat = state.model.resample_hyperparameters(
                    state.cluster_slots(), priors, rng.bit_generator
                )
                values = likelihood.learned_values(flat)
                labels = canonical_labels(state.cluster_labels())
                chosen = state.model.completion().astype(int)
                X = draw_rows(values, labels, weights_of(values, chosen)[0], rng)
            ends.append(functions(values, labels, chosen, X))
        ends = np.array(ends)
        ends += 1e-9 * rng.random(ends.shape)  # without ties
        fresh += 1e-9 * rng.random(fresh.shape)
        p = [ks_2samp(*pair).pvalue for pair in zip(ends.T, fresh.T, strict=True)]
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("tails", LAWS)
def test_model_and_chains_agree_about_learned_parameters(tails, seed_sequence):
    assert_p(model_run(tails), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tails, planted",
    [
        ("contaminated", {"contamination": Beta(1.0, 3.0)}),
        ("contaminated", {"inflation": Shifted(Gamma(2.0, 0.3), 1.0)}),
        ("t", {"tail_df": OnGrid(2.0 ** np.arange(4), np.log(np.full(4, 0.25)))}),
    ],
)
def test_planted_priors_are_seen(tails, planted, seed_sequence):
    assert model_run(tails, planted)(seed_sequence, 1) < 1e-6


# Fits.

SETTINGS = {"n_chains": 2, "n_warmup": 30, "n_draws": 30, "random_state": 0}
BESIDE = [("a", Gaussian(tails="t"), [0, 2]), ("b", Gaussian(covariance_type="diag"), [1])]
OBJECTS = {
    "contaminated": Gaussian(tails="contaminated"),
    "t": Gaussian(tails="t"),
    "fixed": Gaussian(tails=ContaminatedTails(0.1, 20.0)),
    "diag": Gaussian(tails="contaminated", covariance_type="diag"),
    "tied": Gaussian(tails="t", covariance_type="tied"),
    "spherical": Gaussian(tails="t", covariance_type="spherical"),
    "product": Product(BESIDE),
    "with gaps": Product([("a", Gaussian(tails="t"), [0]), ("b", Gaussian(), [1, 2])]),
    "full gaps": Gaussian(tails="t"),
    "tied gaps": Gaussian(tails="contaminated", covariance_type="tied"),
}


def two_groups(n=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 3)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)
    rows[: n // 3] += 12.0
    return rows


def rows_for(name, n=60):
    rows = two_groups(n)
    if "gaps" in name or name in ("diag", "spherical"):
        rows[::7, 1] = np.nan
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(OBJECTS, "contaminated"))
def test_a_continued_fit_has_the_bits_of_one_fit(name):
    rows = rows_for(name)
    settings = {**SETTINGS, "likelihood": OBJECTS[name]}
    whole = DPMixture(**settings).fit(rows)
    parts = DPMixture(**{**settings, "n_draws": 10}, warm_start=True).fit(rows)
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=30).fit(rows)
    assert np.array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
    assert np.array_equal(whole.score_samples(rows), parts.score_samples(rows))
    threads = DPMixture(**settings, n_jobs=2).fit(rows)
    assert np.array_equal(whole.log_joint_samples_, threads.log_joint_samples_)
    for draw in whole.draws_.scored.draws:
        if "gaps" not in name:  # other numbers than weights
            assert draw["completion"].dtype == np.uint8


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(OBJECTS, "t"))
def test_answers(name):
    rows = rows_for(name)
    model = DPMixture(likelihood=OBJECTS[name], **SETTINGS).fit(rows)
    assert adjusted_rand_score(np.arange(60) < 20, model.labels_) > 0.9
    assert np.array_equal(model.predict(rows), model.predict_proba(rows).argmax(axis=1))
    before = model.predict(rows)
    assert np.isfinite(model.outlier_scores_).all()
    assert np.isfinite(model.describe()["mean"]).all()
    assert np.isfinite(model.sample(20)[0]).all()
    model.estimate_labels(X=rows)
    assert np.array_equal(model.predict(rows), before)
    # log p(a, b) = log p(b) + log p(a | b)
    both = model.score_samples(rows)
    known = np.where([True, False, False], rows, np.nan)
    parts = model.score_samples(known) + model.score_samples(rows, given=0)
    assert both == pytest.approx(parts, abs=1e-9)
    known = known[::4]
    filled = model.impute(known)
    assert np.isfinite(filled).all() and np.array_equal(filled[:, 0], rows[::4, 0])
    column = model.predict_columns(known, 2, quantiles=[0.1, 0.9])[2]
    assert (np.diff(column.quantiles, axis=1) > 0.0).all()
    assert np.isfinite(column.mean).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_leave_one_out():
    """Against predictive densities by `laws`, from the clusters of the other rows."""
    rows = two_groups(24)
    model = DPMixture(likelihood=Gaussian(tails="t"), sampler="gibbs", **SETTINGS).fit(rows)
    found = model.pointwise_log_likelihood(rows).reshape(-1, len(rows))
    draws, likelihood = model.draws_, model.likelihood_
    data = likelihood.encode(rows)
    for s in (0, 17):
        draw = draws.scored.draws[s]
        at = draw["chain"], draw["draw"]
        labels, alpha = draws["labels"][at].astype(int), draws["concentration"][at]
        own = likelihood.at(draw["values"])
        for i in (0, 5, 20):
            others = np.where(np.arange(24) == i, -1, labels).astype(np.intp)
            used = np.unique(others[others >= 0])
            others = np.where(others >= 0, np.searchsorted(used, others), -1)
            state = MixtureState(
                own.bind(data, own.tables(data, 24)),
                make_prior("dp", 24, concentration=alpha),
                others,
                completion=draw["completion"],
            )
            stats = np.vstack([state.dump(), np.zeros(state.model.n_stats)])
            weights = np.log(np.append(state.cluster_sizes(), alpha) / (23 + alpha))
            expected = logsumexp(own.laws(stats).log_density(rows[[i]])[0] + weights)
            assert found[s, i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_clusters_with_heavy_tails():
    """Five clusters of Student rows, which a Gaussian cuts into pieces."""
    rng = np.random.default_rng(1)
    centers = np.array([[0, 0], [20, 0], [0, 20], [20, 20], [40, 10]])
    y = np.repeat(np.arange(5), 100)
    rows = centers[y] + rng.standard_normal((500, 2)) / np.sqrt(rng.chisquare(3, (500, 1)) / 3)
    new = centers[y] + rng.standard_normal((500, 2)) / np.sqrt(rng.chisquare(3, (500, 1)) / 3)
    settings = {"n_chains": 2, "n_warmup": 200, "n_draws": 200, "random_state": 0}
    fits = {
        tails: DPMixture(likelihood=Gaussian(tails=tails), **settings).fit(rows)
        for tails in (None, "contaminated", "t")
    }
    n_components = {t: fit.n_components_samples_.mean() for t, fit in fits.items()}
    assert n_components[None] > 10 and n_components["t"] < 8
    assert adjusted_rand_score(y, fits["t"].labels_) > 0.9
    scores = {tails: fit.score_samples(new).mean() for tails, fit in fits.items()}
    assert min(scores["t"], scores["contaminated"]) > scores[None] + 0.02
    assert 1.5 < fits["t"].hyperparameter_samples_["tail_df"].mean() < 6.0


@pytest.mark.slow
def test_rows_without_tails():
    rng = np.random.default_rng(0)
    rows = np.r_[rng.standard_normal((200, 2)), rng.standard_normal((200, 2)) + 8.0]
    for tails in ("contaminated", "t"):
        model = DPMixture(likelihood=Gaussian(tails=tails), **SETTINGS).fit(rows)
        plain = DPMixture(**SETTINGS).fit(rows)
        assert model.n_clusters_ == 2
        gap = model.score_samples(rows).mean() - plain.score_samples(rows).mean()
        assert abs(gap) < 0.05


@pytest.mark.slow
def test_known_labels_and_columns_without_information():
    rows = two_groups()
    known = np.full(60, -1)
    known[:3], known[-3:] = 0, 1
    model = DPMixture(likelihood=Gaussian(tails="t"), **SETTINGS).fit(rows, known_labels=known)
    assert adjusted_rand_score(np.arange(60) < 20, model.labels_) > 0.9
    wide = np.column_stack([rows, np.full(60, 3.0), rows[:, 0] - rows[:, 1]])
    model = DPMixture(likelihood=Gaussian(tails="t"), **SETTINGS).fit(wide)
    assert model.likelihood_.projection.columns.tolist() == [0, 1, 2]
    assert np.isfinite(model.sample(5)[0]).all()
    assert np.isfinite(model.score_samples(wide)).all()
    alone = np.where(np.arange(5) == 4, wide, np.nan)
    assert np.isfinite(model.impute(alone)).all()


@pytest.mark.parametrize("tails", LAWS)
@pytest.mark.long
def test_the_likelihood_of_a_fit_keeps_what_was_learned(tails):
    settings = {**SETTINGS, "n_warmup": 20, "n_draws": 10}
    model = DPMixture(likelihood=Gaussian(tails=tails), **settings).fit(two_groups())
    found = model.likelihood_
    assert found.tails.get_params() == TAILS[tails](*found._tail_values).get_params()
    again = DPMixture(likelihood=found, **settings).fit(two_groups())
    assert again.likelihood_._tail_values == found._tail_values
    assert again.likelihood_.learned_priors == {}


@pytest.mark.parametrize("kind", ["full", "diag", "spherical", "tied"])
def test_rows_with_weights_are_in_no_boxes(kind):
    """Kernels have no bounds for them."""
    likelihood = likelihood_of(f"{kind} t".removeprefix("full "))
    assert likelihood.box_points(likelihood.encode(X)) is None
    alone = Gaussian(covariance_type=kind).resolve(X)
    assert alone.box_points(alone.encode(X)) is not None


@pytest.mark.parametrize("tails", ["t", None])
def test_parameters_of_tails_need_an_object(tails):
    """Also two objects deep, as in a search; the estimator is then as before."""
    mixture = DPMixture(likelihood=Gaussian(tails=tails))
    with pytest.raises(ValueError, match=f"tails={tails!r} .* such as StudentTails"):
        mixture.set_params(likelihood__tails__df=3.0)
    assert mixture.likelihood.tails == tails
    mixture.set_params(likelihood__tails=StudentTails(), likelihood__tails__df=3.0)
    assert mixture.likelihood.tails.df == 3.0


def test_refusals():
    rows = two_groups()

    def refuses(message, rows=rows, estimator=DPMixture, sampler="auto", **params):
        with pytest.raises(ValueError, match=message):
            estimator(likelihood=Gaussian(**params), sampler=sampler, **SETTINGS).fit(rows)

    refuses("Gaussian.tails, if it is neither .* must be one of contaminated, t", tails="heavy")
    refuses("StudentTails.df must be", tails=StudentTails(0.0))
    refuses("StudentTails.df must be a number", tails=StudentTails("a"))
    refuses("ContaminatedTails.contamination must be below 1", tails=ContaminatedTails(1.0))
    refuses("ContaminatedTails.inflation must be", tails=ContaminatedTails(inflation=1.0))
    refuses(
        "entry for 'tail_df', whose prior cannot be changed",
        tails="t",
        hyperpriors={"tail_df": (1.0, 1.0)},
    )
    refuses(
        'cannot draw the weights of rows .*, such as "auto".*tails=None',
        sampler="sub_cluster",
        tails="t",
    )
    with pytest.raises(ValueError, match="BlockedGibbs cannot draw the weights"):
        FiniteMixture(2, likelihood=Gaussian(tails="t"), sampler="blocked_gibbs").fit(rows)
    with pytest.raises(ValueError, match="noise cannot be combined with Gaussian"):
        DPMixture(likelihood=Gaussian(tails="t"), noise=True, **SETTINGS).fit(rows)
    with pytest.raises(ValueError, match="part 'a' has tails"):
        DPMixture(likelihood=Product(BESIDE, select=True), **SETTINGS).fit(rows)


@pytest.mark.long
def test_estimates_of_complete_rows_read_draws_evenly():
    """Weights are drawn values of complete rows, too, but hills do not depend on them: all draws
    can be read, not the scored ones alone."""
    rows = np.random.default_rng(0).normal(size=(20, 2)) + np.repeat([[0.0], [3.0]], 10, axis=0)
    params = {"n_chains": 1, "n_warmup": 10, "n_draws": 120, "random_state": 0}
    model = DPMixture(likelihood=Gaussian(tails="t"), sampler="gibbs", **params).fit(rows)
    chosen, clusters, *_ = read_draws(rows, model.label_samples_, adaptive=True)
    scored = [draw["draw"] for draw in model.draws_.scored.draws]
    assert not set(chosen) <= set(scored)
    np.testing.assert_array_equal(model.cluster_samples_, clusters)
