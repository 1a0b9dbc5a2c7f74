"""What reads say of a mutation, and the tables of users: `skdpm.mutations`."""

import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from reference.enumerate import enumerate_partitions
from reference.likelihoods import (
    log_pyclone,
    log_pyclone_weighted,
    pyclone_shares,
    pyclone_states,
)
from reference.priors import log_eppf
from scipy import stats
from scipy.special import logsumexp
from support.probes import FeatureProbe

from skdpm import DPMixture, mutations
from skdpm.features.likelihoods import Subclones
from skdpm.mixture.likelihoods import PyClone
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.state._state import MixtureState
from skdpm.mutations import GENOTYPE_PRIORS, mutation_design, mutation_table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Normal, minor and major copies, tumour content.
KINDS = [(2, 1, 1, 1.0), (2, 0, 3, 0.6), (1, 2, 2, 0.3), (2, 2, 5, 0.9), (3, 0, 1, 1e-3)]
NAN = np.nan


@pytest.mark.parametrize("genotype_prior", GENOTYPE_PRIORS)
@pytest.mark.parametrize("kind", KINDS)
def test_states(kind, genotype_prior):
    """Each distinct one once, with its shares of reads; both kinds of reads are never negative."""
    phi = np.linspace(0.05, 1, 7)
    found = mutations.states(*kind, error_rate=0.01, genotype_prior=genotype_prior)
    p, r = mutations.expected_shares(found[:, None], phi)
    copies = sorted(pyclone_states(*kind[:3], genotype_prior))
    expected = [pyclone_shares(kind, pair, phi, 0.01) for pair in copies]
    np.testing.assert_allclose(sorted(p.tolist()), sorted(map(list, expected)), rtol=1e-12)
    np.testing.assert_allclose(p + r, 1.0, rtol=1e-15)
    assert (found >= 0.0).all()


def test_states_by_hand():
    """One copy more in the cells with the mutation: before it on one or two copies, or after."""
    found = mutations.states(2, 1, 2, 0.8, error_rate=0.001, genotype_prior="major_copy_number")
    others, normal, total = 0.8 * 2, 0.2 * 2, 0.8 * 3
    np.testing.assert_allclose(
        found,
        [
            [2 * 0.001, normal * 0.001 + 0.8 * 1, 2 * 0.999, normal * 0.999 + 0.8 * 2, 0],
            [2 * 0.001, normal * 0.001 + 0.8 * 2, 2 * 0.999, normal * 0.999 + 0.8 * 1, 0],
            [
                (normal + total) * 0.001,
                normal * 0.001 + 0.8 * 1,
                (normal + total) * 0.999,
                normal * 0.999 + 0.8 * 2,
                0,
            ],
        ],
    )
    assert normal + others == 2.0


@pytest.mark.parametrize("precision", [None, 50.0])
@pytest.mark.parametrize("genotype_prior", GENOTYPE_PRIORS)
def test_densities_by_scipy(genotype_prior, precision):
    """Also of no reads, and of reads all of one kind, at both ends of the prevalences."""
    phi = np.linspace(0, 1, 33)
    X = np.array([[a, b, *kind] for kind in KINDS for a, b in [(40, 9), (300, 0), (0, 7), (0, 0)]])
    data = mutations.encode(X, error_rate=0.001, genotype_prior=genotype_prior)
    density = "binomial" if precision is None else "beta_binomial"
    for row, found in zip(X, mutations.log_likelihoods(data, phi, precision)[:, 0], strict=True):
        expected = log_pyclone(
            row,
            phi,
            density=density,
            precision=precision,
            error_rate=0.001,
            genotype_prior=genotype_prior,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=5e-12)


def test_states_are_summed_for_each_mutation():
    """Two mutations of two states: four pairs, not two; and probabilities, not logarithms."""
    X = np.array([[10.0, 3, 2, 0, 1, 0.8], [12.0, 9, 2, 0, 1, 0.8]])
    resolved = PyClone("binomial", n_grid=5).resolve(X)
    phi, xi = resolved.grid, []
    for copies in pyclone_states(2, 0, 1, "major_copy_number"):
        xi.append(pyclone_shares((2, 0, 1, 0.8), copies, phi, 0.001))
    terms = [
        stats.binom.logpmf(3, 13, one) + stats.binom.logpmf(9, 21, other)
        for one in xi
        for other in xi
    ]
    np.testing.assert_allclose(
        resolved.table(X).sum(axis=(0, 1)), logsumexp(terms, axis=0) - np.log(4)
    )


# The numbers name a kind of mutation; genotypes have their own numbers of copies.
WEIGHTS = {
    (2, 1, 1): {("AA", "AA", "AB"): 3.0, ("AA", "AA", "BB"): 0.5},
    (2, 0, 3): {("AB", "AAA", "BBB"): 0.2, ("AA", "AA", "ABB"): 1.0, ("BB", "A", "AB"): 0.1},
    (1, 7, 7): {("AA", "AAAA", "ABBB"): 1e-3, ("A", "AA", "AB"): 4.0},
}
WEIGHTED = np.array(
    [
        [31.0, 9, 2, 1, 1, 0.7, 12, 2, 2, 0, 3, 1.0],
        [5.0, 22, 2, 0, 3, 0.7, 30, 1, 2, 1, 1, 1.0],
        [14.0, 17, 1, 7, 7, 0.7, 8, 8, 1, 7, 7, 1.0],
        [0.0, 24, 2, 1, 1, 0.7, 3, 0, 2, 1, 1, 1.0],
    ]
)


def weighted_table(phi, precision=None):
    """log p(reads | prevalences) of mutations and samples, by the reference."""
    return np.array(
        [
            [
                log_pyclone_weighted(cell, phi, WEIGHTS[tuple(cell[2:5])], 0.01, precision)
                for cell in row.reshape(2, 6)
            ]
            for row in WEIGHTED
        ]
    )


@pytest.mark.parametrize("precision", [None, 40.0])
def test_weights_of_genotypes(precision):
    density = "binomial" if precision is None else "beta_binomial"
    params = {"error_rate": 0.01, "genotype_prior": WEIGHTS, "precision": precision}
    resolved = PyClone(density, n_grid=21, **params).resolve(WEIGHTED)
    table = weighted_table(resolved.grid, precision)
    np.testing.assert_allclose(resolved.table(WEIGHTED), table, rtol=1e-11)
    # Clones 0 and 1 have prevalences of 0.3 and 0.7 in both samples.
    Z = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    model = Subclones(density, **params).resolve(WEIGHTED)
    kernel = model.bind(model.encode(WEIGHTED))
    kernel.load({"prevalences": np.array([[0.3, 0.3], [0.7, 0.7]]), "precision": precision or 1.0})
    expected = sum(table[i, :, round(20 * phi)].sum() for i, phi in enumerate([0.3, 0.7, 1, 0]))
    assert FeatureProbe(kernel).log_likelihood(Z) == pytest.approx(expected, rel=1e-10)


def test_partitions_under_weights_of_genotypes():
    """The joint density of every partition of the four mutations."""
    likelihood = PyClone("binomial", error_rate=0.01, genotype_prior=WEIGHTS, n_grid=21)
    resolved = likelihood.resolve(WEIGHTED)
    data = resolved.encode(WEIGHTED)
    model = resolved.bind(data, resolved.tables(data, 4))
    state = MixtureState(model, DirichletProcessPrior(4, 1.2), np.zeros(4, np.intp))
    table = weighted_table(np.linspace(0.0, 1.0, 21))
    for labels in enumerate_partitions(4):
        state.assign(labels.astype(np.intp))
        expected = log_eppf(np.unique(labels, return_counts=True)[1], "dp", concentration=1.2)
        for k in np.unique(labels):
            expected += logsumexp(table[labels == k].sum(axis=0) - np.log(21), axis=1).sum()
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-12)


def test_equal_weights_are_the_named_prior():
    X = WEIGHTED[:, :6].copy()
    X[:, 2:5] = 2, 1, 1
    genotypes = [("AA", "AA", "AB"), ("AA", "AA", "BB"), ("AA", "AA", "AB")]
    found, expected = (
        PyClone(genotype_prior=prior, precision=60.0).resolve(X).table(X)
        for prior in ({(2, 1, 1): dict.fromkeys(genotypes, 7.0)}, "total")
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("likelihood", [PyClone, Subclones])
@pytest.mark.parametrize(
    ("genotype_prior", "message"),
    [
        (
            {(2, 1, 1): {"AAB": 1.0}},
            r"weights of genotypes for \(2, 1, 1\), such as .* got {'AAB'",
        ),
        ({(2, 1, 1): {("AA", "AA"): 1.0}}, "needs a dict of weights of genotypes"),
        ({(2, 1, 1): {("AA", "AA", "AC"): 1.0}}, "needs a dict of weights of genotypes"),
        ({(2, 1, 1): {("AA", "", "AB"): 1.0}}, "needs a dict of weights of genotypes"),
        ({(2, 1, 1): {}}, "needs a dict of weights of genotypes"),
        ({(2, 1, 1): 1.0}, "needs a dict of weights of genotypes"),
        ({(2, 1, 1): {("AA", "AA", "AB"): 0.0}}, "genotype_prior.*must be"),
        ({(2, 1, 1): {("AA", "AA", "AB"): NAN}}, "genotype_prior.*must be"),
        ({(2, 1, 1): {("AA", "AA", "AA"): 1.0}}, "the third with a variant copy B; got"),
        ({(2, 1, 1): {("AA", "BB", "AA"): 1.0}}, "the third with a variant copy B; got"),
        ({"211": {("AA", "AA", "AB"): 1.0}}, r"keys \(normal_cn, minor_cn, major_cn\).* '211'"),
        ({(1, 1): {("AA", "AA", "AB"): 1.0}}, r"needs keys .* got \(1, 1\)"),
        ({(2, 0, 3): {("AA", "AA", "AB"): 1.0}}, r"normal_cn 2, .* major_cn 1: add \(2, 1, 1\)"),
        ({}, r"add \(2, 1, 1\)"),
    ],
)
def test_weights_that_cannot_be(likelihood, genotype_prior, message):
    X = np.array([[7.0, 3, 2, 1, 1, 1.0]] * 3)
    with pytest.raises(ValueError, match=message):
        likelihood(genotype_prior=genotype_prior).resolve(X).encode(X)


def test_many_cells_in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.array([[*rng.integers(0, 90, 2), *KINDS[i % 3]] for i in range(40)])
    data = mutations.encode(X, error_rate=0.001, genotype_prior="total")
    phi = np.linspace(0, 1, 11)
    expected = mutations.log_likelihoods(data, phi)
    monkeypatch.setattr(mutations, "CHUNK", 200)
    np.testing.assert_array_equal(mutations.log_likelihoods(data, phi), expected)


GOOD = np.array([[7.0, 3, 2, 1, 1, 1, 20, 5, 2, 0, 2, 0.5]] * 3)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (6, NAN, "ref_counts and alt_counts, or NaN in both; column 6 of X holds nan"),
        (1, NAN, "or NaN in both; column 1 of X holds nan"),
        (0, 1.5, "nonnegative integer counts; column 0 of X holds 1.5"),
        (7, -1, "nonnegative integer counts; column 7 of X holds -1"),
        (7, 2e8, r"counts of at most 100000000; column 7 of X holds 2e\+08"),
        (2, 0, "normal_cn to be an integer from 1 to 1000; column 2 of X holds 0"),
        (8, NAN, "normal_cn to be an integer from 1 to 1000; column 8 of X holds nan"),
        (3, -1, "minor_cn to be an integer from 0 to 1000; column 3 of X holds -1"),
        (10, 0, "major_cn to be an integer from 1 to 1000; column 10 of X holds 0"),
        (4, 1001, "major_cn to be an integer from 1 to 1000; column 4 of X holds 1001"),
        (4, 1.5, "major_cn to be an integer from 1 to 1000; column 4 of X holds 1.5"),
        (9, 3, "minor_cn of at most major_cn; column 9 of X holds 3"),
        (5, 0, "tumour_content above 0 and at most 1; column 5 of X holds 0"),
        (11, 1.1, "tumour_content above 0 and at most 1; column 11 of X holds 1.1"),
        (11, NAN, "tumour_content above 0 and at most 1; column 11 of X holds nan"),
    ],
)
def test_rows_that_cannot_be(column, value, message):
    X = GOOD.copy()
    X[1, column] = value
    with pytest.raises(ValueError, match=message):
        mutations.check_design(X)
    if column not in (0, 1, 6, 7):
        X[1, :2] = X[1, 6:8] = NAN  # where nothing was measured the rest is not read
        mutations.check_design(X)


def test_rows_of_another_length():
    with pytest.raises(ValueError, match=r"6 columns for each tumour sample \(ref_.*X has 11"):
        DPMixture(likelihood="pyclone").fit(GOOD[:, :11])


def lines(**columns):
    return pd.DataFrame(
        {
            "mutation_id": ["b", "a", "b", "c"],
            "sample_id": ["T2", "T1", "T1", "T2"],
            "ref_counts": [10, 20, 30, 40],
            "alt_counts": [1, 2, 3, 4],
            "normal_cn": [2, 2, 1, 2],
            "minor_cn": [0, 1, 1, 0],
            "major_cn": [2, 1, 3, 1],
            "tumour_content": [0.5, 0.7, 0.7, 0.5],
            "cluster": ["x", "y", "z", "x"],
            **columns,
        }
    )


def test_design():
    design = mutation_design(lines())
    assert design.index.name == "mutation_id" and design.index.tolist() == ["b", "a", "c"]
    assert design.columns.tolist() == [
        f"{sample}:{field}" for sample in ("T2", "T1") for field in mutations.FIELDS
    ]
    np.testing.assert_array_equal(
        design,
        [
            [10, 1, 2, 0, 2, 0.5, 30, 3, 1, 1, 3, 0.7],
            [NAN] * 6 + [20, 2, 2, 1, 1, 0.7],
            [40, 4, 2, 0, 1, 0.5] + [NAN] * 6,
        ],
    )
    mutations.check_design(design.to_numpy())
    names = lines().rename(columns={"alt_counts": "var_counts"}).drop(columns="tumour_content")
    pd.testing.assert_frame_equal(
        mutation_design(names), mutation_design(lines(tumour_content=1.0))
    )
    spelled = lines().rename(columns={"tumour_content": "tumor_content"})
    pd.testing.assert_frame_equal(mutation_design(spelled), design)
    pd.testing.assert_frame_equal(mutation_design(lines().to_dict("list")), design)


def test_deleted_copies():
    gone = lines(major_cn=[2, 1, 3, 0])
    with pytest.raises(ValueError, match="major_cn is 0 for mutation c in sample T2: no copy"):
        mutation_design(gone)
    design = mutation_design(gone, deleted="missing")
    assert design.loc["c"].isna().all() and not design.loc["b"].isna().any()


@pytest.mark.parametrize(
    ("df", "message"),
    [
        (lines().drop(columns=["minor_cn", "sample_id"]), "no column sample_id, minor_cn"),
        (lines(sample_id=["T1"] * 4), "two lines for mutation b in sample T1"),
        (lines(sample_id=["T1", None, "T2", "T2"]), "a line without sample_id"),
        (lines(mutation_id=[NAN, "a", "b", "c"]), "a line without mutation_id"),
        (lines()[:0], "has no lines"),
        (lines().drop(columns="tumour_content").assign(Purity=0.8), "but Purity"),
        (lines().drop(columns="tumour_content").assign(ACF=0.8), "but ACF"),
    ],
)
def test_tables_that_cannot_be(df, message):
    with pytest.raises(ValueError, match=message):
        mutation_design(df)


def test_unknown_choices():
    with pytest.raises(ValueError, match="deleted must be one of error, missing; got 'drop'"):
        mutation_design(lines(), deleted="drop")
    with pytest.raises(ValueError, match="min_prevalence must be finite and >= 0, got -1"):
        mutation_table(None, GOOD, min_prevalence=-1)


@pytest.mark.parametrize("function", [mutation_design, lambda X: mutation_table(None, X)])
def test_without_pandas(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError, match=r"skdpm\.mutations\.mutation_\w+ needs pandas: pip install"
    ):
        function(GOOD)


def simulated_mutations(rng, phi, n):
    """Two clusters with prevalences `phi`, (2, n_samples), in turn; of one copy number."""
    xi = phi[np.arange(n) % 2] / 2
    X = np.empty((n, phi.shape[1], 6))
    X[..., 1] = rng.binomial(100, xi)
    X[..., 0] = 100 - X[..., 1]
    X[..., 2:] = [2, 1, 1, 1]
    return X.reshape(n, -1)


@pytest.fixture(scope="module")
def fitted():
    """A model of mutations of two clusters and of one by itself, with a name each."""
    rng = np.random.default_rng(0)
    X = simulated_mutations(rng, np.array([[0.9, 0.2], [0.4, 0.5]]), 20)
    X = np.vstack([X, simulated_mutations(rng, np.array([[0.05, 0.95]] * 2), 1)])
    X[3, :2] = NAN
    columns = [f"{sample}:{field}" for sample in ("T:1", "T2") for field in mutations.FIELDS]
    X = pd.DataFrame(X, index=[f"m{i}" for i in range(21)], columns=columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixture(
            likelihood=PyClone("binomial", n_grid=51), n_chains=2, n_draws=60, random_state=0
        )
        return model.fit(X), X


def test_table_of_a_mixture(fitted):
    model, X = fitted
    table = mutation_table(model, X)
    assert table.columns.tolist() == [
        "mutation_id",
        "sample_id",
        "cluster_id",
        "cellular_prevalence",
        "cellular_prevalence_std",
        "cellular_prevalence_low",
        "cellular_prevalence_high",
        "cluster_assignment_prob",
        "mutation_prevalence",
        "mutation_prevalence_std",
        "mutation_prevalence_low",
        "mutation_prevalence_high",
    ]
    assert table["mutation_id"].tolist() == np.repeat(X.index, 2).tolist()
    assert table["sample_id"].tolist() == ["T:1", "T2"] * 21
    assert table["cluster_id"].tolist() == np.repeat(model.labels_, 2).tolist()
    assert model.n_clusters_ == 3
    labels, draws = model.labels_, model.label_samples_.reshape(-1, 21)
    for name in ("cellular_prevalence", "cellular_prevalence_std"):
        np.testing.assert_array_equal(table[name], model.cluster_params_[name][labels].ravel())
    truth = np.array([[0.9, 0.2], [0.4, 0.5]])[np.arange(20) % 2].ravel()
    np.testing.assert_allclose(table["cellular_prevalence"][:40], truth, atol=0.05)
    # What the draws say, one mutation at a time.
    phi = np.linspace(0, 1, 51)
    params = {
        "density": "binomial",
        "precision": None,
        "error_rate": 1e-3,
        "genotype_prior": "major_copy_number",
    }
    cells = X.to_numpy().reshape(21, 2, 6)
    log_p = np.array([[log_pyclone(cell, phi, **params) for cell in row] for row in cells])
    for i in (0, 3, 20):
        others = [j for j in range(21) if labels[j] == labels[i] and j != i]
        together = [
            np.mean([z[j] == z[i] for j in others]) if others else (z == z[i]).sum() == 1
            for z in draws
        ]
        found = table["cluster_assignment_prob"][2 * i : 2 * i + 2]
        np.testing.assert_allclose(found, np.mean(together))
        laws = []
        for z in draws:
            weights = np.exp(log_p[z == z[i]].sum(axis=0))
            laws.append(weights / weights.sum(axis=1, keepdims=True))
        law = np.mean(laws, axis=0)
        mean, square = law @ phi, law @ phi**2
        for name, end in (("low", 0.025), ("high", 0.975)):
            expected = phi[(np.cumsum(law, axis=1) >= end).argmax(axis=1)]
            found = table[f"mutation_prevalence_{name}"][2 * i : 2 * i + 2]
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(table["mutation_prevalence"][2 * i : 2 * i + 2], mean)
        std = table["mutation_prevalence_std"][2 * i : 2 * i + 2]
        np.testing.assert_allclose(std, np.sqrt(square - mean**2), atol=1e-7)
    assert (table["cluster_assignment_prob"] < 1.0).any()


def test_each_draw_counts_with_its_own_precision(fitted):
    _, X = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixture(
            likelihood=PyClone("beta_binomial", n_grid=21),
            n_chains=2,
            n_warmup=5,
            n_draws=8,
            random_state=0,
        ).fit(X)
    layers = model.likelihood_.layers
    precisions = model.hyperparameter_samples_["precision"].ravel()
    counted = layers[np.abs(np.log(precisions[:, None] / layers)).argmin(axis=1)]
    assert len(set(counted)) > 1
    table = mutation_table(model, X)
    phi = np.linspace(0, 1, 21)
    cells = X.to_numpy().reshape(21, 2, 6)
    means = []
    for z, s in zip(model.label_samples_.reshape(-1, 21), counted, strict=True):
        params = {"density": "beta_binomial", "precision": s, "error_rate": 1e-3}
        log_p = sum(
            np.array(
                [
                    log_pyclone(cell, phi, genotype_prior="major_copy_number", **params)
                    for cell in row
                ]
            )
            for row in cells[z == z[5]]
        )
        weights = np.exp(log_p)
        means.append(weights @ phi / weights.sum(axis=1))
    np.testing.assert_allclose(table["mutation_prevalence"][10:12], np.mean(means, axis=0))


def test_table_of_unnamed_rows(fitted):
    model, X = fitted
    table, plain = mutation_table(model, X), mutation_table(model, X.to_numpy())
    assert plain["mutation_id"].tolist() == np.repeat(np.arange(21), 2).tolist()
    assert plain["sample_id"].tolist() == [0, 1] * 21
    pd.testing.assert_frame_equal(plain.iloc[:, 2:], table.iloc[:, 2:])
    pd.testing.assert_frame_equal(mutation_table(model, X.to_numpy().tolist()), plain)


def test_a_table_is_of_the_rows_of_the_fit(fitted):
    """Names must not come to stand beside other mutations' results."""
    model, X = fitted
    with pytest.raises(ValueError, match="mutations that the model was fitted to, in their order"):
        mutation_table(model, X[::-1])
    with pytest.raises(ValueError, match="columns that the model was fitted to, in their order"):
        mutation_table(model, X.iloc[:, [*range(6, 12), *range(6)]])


def test_a_table_needs_draws_of_labels(fitted):
    _, X = fitted
    model = DPMixture(
        likelihood="pyclone",
        store_labels=False,
        point_estimate="map",
        n_chains=1,
        n_warmup=2,
        n_draws=2,
    )
    with pytest.raises(ValueError, match="a PyClone likelihood and label_samples_"):
        mutation_table(model.fit(X), X)


def test_a_table_needs_a_model_of_mutations(fitted):
    model, X = fitted
    with pytest.raises(ValueError, match="mutations that the model was fitted to"):
        mutation_table(model, X[1:])
    with pytest.raises(ValueError, match="a fitted DPMixture or FiniteMixture"):
        mutation_table(DPMixture(likelihood="pyclone"), X)
    X = np.eye(4)
    other = DPMixture(likelihood="bernoulli", n_warmup=0, n_draws=2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="needs a PyClone likelihood, not Bernoulli"):
        mutation_table(other, X)


def test_a_coarse_grid_names_its_parameter():
    X = simulated_mutations(np.random.default_rng(0), np.array([[0.505]] * 2), 30)
    X[:, :2] *= 1000
    with pytest.warns(UserWarning, match="grid of PyClone is coarse.*use a larger PyClone.n_grid"):
        PyClone().resolve(X).encode(X)
