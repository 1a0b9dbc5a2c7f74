"""Expected links of networks, against ratios of marginals and draws of propensities in numpy."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from reference.enumerate import enumerate_partitions
from scipy.special import betaln, gammaln
from support.designs import everyday
from support.pvalues import assert_p, part_of

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, Relational
from skdpm.networks import adjacency

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"n_warmup": 5, "n_draws": 3, "n_chains": 1, "random_state": 0}


def log_marginal(X, labels, a, b, directed):
    total = 0.0
    for k in range(labels.max() + 1):
        for m in range(0 if directed else k, labels.max() + 1):
            cell = (labels[:, None] == k) & (labels == m)
            if k == m and not directed:
                cell = np.triu(cell)
            entries = X[cell & ~np.eye(len(X), dtype=bool)]
            ones, zeros = (entries == 1.0).sum(), (entries == 0.0).sum()
            total += betaln(a + ones, b + zeros) - betaln(a, b)
    return total


@pytest.mark.parametrize("directed", [False, True])
def test_probabilities_are_ratios_of_marginals(directed):
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1], 5)
    X = (rng.random((10, 10)) < np.where(group[:, None] == group, 0.8, 0.2)) * 1.0
    X = X if directed else np.triu(X, 1) + np.triu(X, 1).T
    for i, j in ((0, 1), (2, 7)):
        X[i, j] = X[j, i] = np.nan
    model = DPMixture(likelihood=Relational(a=0.7, b=1.3, directed=directed), **SHORT).fit(X)
    found = model.fitted_values()
    np.testing.assert_array_equal(np.diag(found), 0.0)
    for i, j in ((0, 1), (2, 7), (7, 2)):
        with_link = X.copy()
        with_link[i, j] = 1.0
        if not directed:
            with_link[j, i] = 1.0
        expected = [
            np.exp(np.subtract(*(log_marginal(Y, z, 0.7, 1.3, directed) for Y in (with_link, X))))
            for z in model.label_samples_[0].astype(int)
        ]
        assert found[i, j] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("directed", everyday([False, True], True))
@pytest.mark.long
def test_numbers_of_links_with_degree_correction(directed):
    """Propensities of a cluster, over its size, are Dirichlet, and rates are Gamma."""
    rng = np.random.default_rng(0)
    X = rng.poisson(1.5, (6, 6)) * 1.0
    if not directed:
        X = np.triu(X) + np.triu(X, 1).T
    likelihood = Relational(
        a=1.2, b=0.8, directed=directed, degree_correction=True, degree_concentration=0.6
    )
    model = DPMixture(likelihood=likelihood, **(SHORT | {"n_draws": 1})).fit(sp.csr_array(X))
    labels, size = model.label_samples_[0, 0].astype(int), 200_000
    counted = X if directed else X + np.diag(np.diag(X))
    ends = [counted.sum(axis=1), counted.sum(axis=0)]
    sides = []
    for end in ends if directed else ends[:1]:
        propensities = np.empty((size, 6))
        for k in range(labels.max() + 1):
            rows = labels == k
            propensities[:, rows] = rows.sum() * rng.dirichlet(0.6 + end[rows], size)
        sides.append(propensities)
    for i in range(6):
        for j in range(6):
            of_k, of_l = labels == labels[i], labels == labels[j]
            half = 0.5 if labels[i] == labels[j] and not directed else 1.0
            links = half * counted[np.ix_(of_k, of_l)].sum()
            pairs = half * of_k.sum() * of_l.sum()
            rate = rng.gamma(1.2 + links, 1.0 / (0.8 + pairs), size)
            draws = rate * sides[0][:, i] * sides[-1][:, j]
            draws *= 0.5 if i == j and not directed else 1.0
            error = draws.std() / np.sqrt(size)
            assert abs(model.fitted_values()[i, j] - draws.mean()) < 5.0 * error


def enumerated(X, pairs, a, b, directed):
    """Probability of each choice of links at unobserved pairs: (2,) * n_pairs. The sum is over all
    partitions, under a Dirichlet process with concentration 1."""
    partitions = enumerate_partitions(len(X))
    log_prior = [gammaln(np.bincount(z)).sum() for z in partitions]
    total = np.empty((2,) * len(pairs))
    for links in np.ndindex(total.shape):
        Y = X.copy()
        for (i, j), link in zip(pairs, links, strict=True):
            Y[i, j] = link
            if not directed:
                Y[j, i] = link
        terms = [log_marginal(Y, z, a, b, directed) for z in partitions]
        total[links] = np.exp(np.add(terms, log_prior)).sum()
    return total / total.sum()


def all_partitions(model, X, a, b, directed):
    """Put all partitions into a fit as its draws, each with its posterior probability."""
    partitions = enumerate_partitions(len(X))
    logs = [gammaln(np.bincount(z)).sum() + log_marginal(X, z, a, b, directed) for z in partitions]
    draws = model.draws_.scored.draws
    draws[1:] = [dict(draws[0]) for _ in partitions[1:]]
    for draw, z, weight in zip(draws, partitions, np.exp(logs) / np.exp(logs).sum(), strict=True):
        member = np.eye(z.max() + 1)[z]
        counts = [
            member.T @ (part & ~np.eye(len(X), dtype=bool)) @ member for part in (X == 1, X == X)
        ]
        if not directed:
            for of_cells in counts:
                of_cells[np.diag_indices_from(of_cells)] /= 2.0
        draw.update(labels=z, weight=weight, stats=np.column_stack([member.sum(axis=0), *counts]))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.long
def test_pairs_are_imputed_as_all_partitions_say(directed, seed_sequence):
    """Means, and joint draws, of four unobserved pairs of five nodes."""
    # Most pairs are linked, and pseudo-counts are small, so unobserved pairs depend on each other.
    X = np.ones((5, 5))
    X[1, 4] = X[4, 1] = 0.0
    pairs = [(0, 2), (0, 3), (1, 3), (2, 3)]
    for i, j in pairs:
        X[i, j] = np.nan
        if not directed:
            X[j, i] = np.nan
    model = DPMixture(likelihood=Relational(a=0.1, b=0.1, directed=directed), **SHORT).fit(X)
    all_partitions(model, X, 0.1, 0.1, directed)
    law = enumerated(X, pairs, 0.1, 0.1, directed)
    filled = model.impute(X)
    for axis, (i, j) in enumerate(pairs):
        assert filled[i, j] == pytest.approx(law.take(1, axis).sum(), rel=1e-12)
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])

    def run(seed, factor):
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        counts = np.zeros(law.shape)
        for Y in model.impute(X, n_draws=part_of(2000, factor)):
            assert directed or (Y == Y.T).all()
            counts[tuple(int(Y[pair]) for pair in pairs)] += 1
        return counts, law

    assert_p(run, seed_sequence=seed_sequence)


def test_imputed_networks_are_of_the_kind_of_x():
    X = np.kron(np.eye(2), np.ones((4, 4)))
    X[0, 1] = X[1, 0] = X[2, 5] = X[5, 2] = X[3, 3] = np.nan
    model = DPMixture(likelihood="relational", **SHORT).fit(X)
    dense = model.impute(X)
    assert dense[3, 3] == 0.0
    assert dense[0, 1] == model.fitted_values()[0, 1]
    frame = pd.DataFrame(X, index=list("abcdefgh"))
    assert model.impute(frame).equals(pd.DataFrame(dense, index=frame.index))
    links = [(i, j, X[i, j]) for i, j in zip(*np.nonzero(X), strict=True)]
    named = adjacency(links, directed=True, weight=2, nodes=range(8))
    for kind in (sp.csr_array, sp.csc_array, lambda _: named):
        model.fit(kind(X))
        for found in (model.impute(kind(X)), *model.impute(kind(X), n_draws=1)):
            assert sp.issparse(found) and not np.isnan(found.data).any()
        np.testing.assert_allclose(model.impute(kind(X)).toarray(), dense)
    assert model.impute(kind(X)).nodes == list(range(8))
    # The same network in another form.
    fitted = (X, sp.csr_array(X), named)
    for one in fitted:
        model.fit(one)
        for other in (*fitted, sp.csr_array(X).astype(np.float32)):
            found = model.impute(other)
            found = found.toarray() if sp.issparse(found) else found
            np.testing.assert_allclose(found, dense)
    with pytest.raises(ValueError, match="the network of fit: X must be that"):
        model.impute(np.zeros((8, 8)))


def test_other_likelihoods_have_no_links():
    model = DPMixture(likelihood=Gaussian(), **SHORT)
    with pytest.raises(AttributeError, match="only networks have links to expect"):
        model.fitted_values  # noqa: B018
    network = DPMixture(likelihood="relational", **SHORT)
    assert hasattr(network, "fitted_values")
    # The fit decides, not a parameter that has changed since.
    network.fit(np.kron(np.eye(2), np.ones((4, 4)))).set_params(likelihood=Gaussian())
    assert network.fitted_values().shape == (8, 8)
    assert not hasattr(
        model.fit(np.eye(8, 7)).set_params(likelihood="relational"), "fitted_values"
    )
