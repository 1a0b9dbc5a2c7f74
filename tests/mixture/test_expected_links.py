"""Expected links of networks, against ratios of marginals and draws of propensities in numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import betaln
from support.designs import everyday

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, Relational

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


def test_other_likelihoods_have_no_links():
    model = DPMixture(likelihood=Gaussian(), **SHORT)
    with pytest.raises(AttributeError, match="only networks have links to expect"):
        model.fitted_values  # noqa: B018
    network = DPMixture(likelihood="relational", **SHORT)
    assert hasattr(network, "fitted_values")
    # The fit decides, not a parameter that has changed since.
    network.fit(np.kron(np.eye(2), np.ones((4, 4)))).set_params(likelihood=Gaussian())
    assert network.fitted_values().shape == (8, 8)
    assert not hasattr(model.fit(np.eye(8)).set_params(likelihood="relational"), "fitted_values")
