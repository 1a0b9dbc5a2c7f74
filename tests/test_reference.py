"""The references and the statistical tooling are tested against each other and against SciPy."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.enumerate import (
    canonical_labels,
    enumerate_partitions,
    partition_index,
    partition_sizes,
)
from reference.likelihoods import (
    LOG_LIKELIHOODS,
    LOG_MARGINALS,
    log_likelihood,
    log_likelihood_relational,
    log_likelihoods,
    log_marginal_bernoulli,
    log_marginal_categorical,
    log_marginal_gaussian,
    log_marginal_multinomial,
    log_marginal_poisson,
    log_posterior,
    log_posterior_concentration,
    log_pyclone,
)
from reference.priors import log_eppf, log_eppf_dp, log_eppf_pitman_yor, log_gamma_density
from reference.simulate import (
    GRID_SD,
    LIKELIHOOD_NAMES,
    PRIOR_CASES,
    enumeration_case,
    missing_counts,
    simulate_data,
    simulate_partitions,
)
from scipy import stats
from scipy.integrate import quad
from scipy.special import comb, logsumexp
from support.pvalues import (
    Cells,
    assert_p,
    assert_p_matrix,
    chi_squared_p,
    correct_for_number,
    uniform_p,
    worst_p,
)

BELL = [1, 1, 2, 5, 15, 52, 203, 877, 4140]
PRIORS = {
    **PRIOR_CASES,
    "pitman_yor_zero_discount": ("pitman_yor", {"concentration": 1.3, "discount": 0.0}),
    "finite_one": ("finite", {"concentration": 0.7, "n_components": 1}),
    "finite_many": ("finite", {"concentration": 1.3, "n_components": 12}),
    "mfm_geometric": ("mfm", {"concentration": 0.4, "n_components_prior": "geometric"}),
}
labels_arrays = st.lists(st.integers(-3, 3), min_size=1, max_size=7)


def example(rng, likelihood, n, n_features, **hyper):
    """A random X under the case's hyperparameters cut to `n_features`, NaN where allowed."""
    missing = None
    if likelihood in ("gaussian_diag", "bernoulli", "categorical", "poisson", "grid"):
        missing = rng.random((n, n_features)) < 0.2
    if likelihood == "pyclone":
        missing = missing_counts(rng.random((n, n_features // 6)) < 0.2)
    labels = rng.integers(0, 2, size=n)
    return simulate_data(likelihood, labels, rng, n_features=n_features, missing=missing, **hyper)


# Partitions


@pytest.mark.parametrize("n", range(1, 9))
def test_every_partition_once(n):
    partitions = enumerate_partitions(n)
    assert partitions.shape == (BELL[n], n)
    assert len(np.unique(partitions, axis=0)) == BELL[n]
    assert (partitions[:, 0] == 0).all()
    running = np.maximum.accumulate(partitions, axis=1)
    assert (partitions[:, 1:] <= running[:, :-1] + 1).all()
    np.testing.assert_array_equal(canonical_labels(partitions), partitions)
    np.testing.assert_array_equal(partition_index(partitions), np.arange(BELL[n]))


@given(labels_arrays)
def test_canonical_labels_by_a_dict(labels):
    seen = {}
    expected = [seen.setdefault(label, len(seen)) for label in labels]
    assert canonical_labels(labels).tolist() == expected
    assert enumerate_partitions(len(labels))[partition_index(labels)].tolist() == expected
    sizes = Counter(expected)
    padded = [sizes[k] for k in range(len(labels))]
    assert partition_sizes(labels).tolist() == padded


def test_partition_functions_take_many_arrays():
    labels = np.random.default_rng(0).integers(0, 4, size=(3, 50, 5))
    index = partition_index(labels)
    assert index.shape == (3, 50)
    np.testing.assert_array_equal(enumerate_partitions(5)[index], canonical_labels(labels))
    assert (partition_sizes(labels).sum(axis=-1) == 5).all()


# Priors


def eppf_over_partitions(n, prior, params):
    """p(sizes) of every partition. It depends on the sizes in any order: each is computed once."""
    sizes, inverse = np.unique(
        np.sort(partition_sizes(enumerate_partitions(n)))[:, ::-1], axis=0, return_inverse=True
    )
    return np.exp([log_eppf(s, prior, **params) for s in sizes])[inverse]


@pytest.mark.parametrize("name", PRIORS)
def test_eppf_sums_to_one(name):
    for n in range(1, 9):
        assert eppf_over_partitions(n, *PRIORS[name]).sum() == pytest.approx(1, rel=1e-11)


@pytest.mark.parametrize("name", PRIORS)
def test_eppf_addition_rule(name):
    """p(sizes) is the sum over where one more item could go (Pitman 2006, eq. 2.9)."""
    prior, params = PRIORS[name]
    for sizes in ([1], [2, 1], [1, 1, 3], [4, 2, 2], [1, 1, 1, 1]):
        eye = np.eye(len(sizes), dtype=int)
        bigger = [list(sizes + e) for e in eye] + [[*sizes, 1]]
        total = logsumexp([log_eppf(s, prior, **params) for s in bigger])
        assert total == pytest.approx(log_eppf(sizes, prior, **params), rel=1e-12)


@pytest.mark.parametrize("name", PRIORS)
def test_eppf_is_exchangeable_and_ignores_empty_blocks(name):
    prior, params = PRIORS[name]
    values = [log_eppf(list(s), prior, **params) for s in itertools.permutations([4, 0, 2, 1])]
    np.testing.assert_allclose(values, log_eppf([1, 2, 4], prior, **params), rtol=1e-13)


def test_eppf_limits_and_arrays():
    for sizes in ([1], [3, 1], [2, 2, 1]):
        dp = log_eppf_dp(sizes, 1.3)
        assert log_eppf_pitman_yor(sizes, 1.3, 0.0) == pytest.approx(dp, rel=1e-12)
        finite = log_eppf(sizes, "finite", concentration=1.3, n_components=10**6)
        assert finite == pytest.approx(dp, abs=1e-5)
        for prior, params in PRIORS.values():
            if params["concentration"] < 0:
                continue
            alphas = np.array([0.2, 1.0, 7.0])
            rest = {k: v for k, v in params.items() if k != "concentration"}
            together = log_eppf(sizes, prior, concentration=alphas, **rest)
            one_by_one = [log_eppf(sizes, prior, concentration=x, **rest) for x in alphas]
            np.testing.assert_allclose(together, one_by_one, rtol=1e-14, atol=1e-15)


def test_finite_eppf_is_that_of_component_labels():
    """Summed over all labellings by k0 components, Dirichlet-multinomial with a each."""
    k0, total, n = 3, 2.4, 4
    a = total / k0
    law = np.zeros(BELL[n])
    for labels in itertools.product(range(k0), repeat=n):
        p, counts = 1.0, np.zeros(k0)
        for i, k in enumerate(labels):
            p *= (counts[k] + a) / (i + total)
            counts[k] += 1
        law[partition_index(labels)] += p
    expected = eppf_over_partitions(n, "finite", {"concentration": total, "n_components": k0})
    np.testing.assert_allclose(law, expected, rtol=1e-12)


def test_prior_errors_and_gamma_density():
    with pytest.raises(ValueError, match="unknown prior"):
        log_eppf([1], "crp", concentration=1)
    with pytest.raises(ValueError, match="concentration > -discount"):
        log_eppf([1], "pitman_yor", concentration=-0.5, discount=0.3)
    x = np.array([0.01, 1.0, 30.0])
    expected = stats.gamma(1.7, scale=1 / 0.3).logpdf(x)
    np.testing.assert_allclose(log_gamma_density(x, 1.7, 0.3), expected, rtol=1e-12)


# One cluster's marginal = a chain of predictives that are written here a second time


def predict_gaussian(past, x, *, mean, mean_precision, df, scale):
    """Student t of the updated normal-inverse-Wishart (Murphy 2007, eqs. 250-258)."""
    n, n_features = past.shape
    precision, nu = mean_precision + n, df + n
    centre, spread = np.asarray(mean, dtype=float), np.asarray(scale, dtype=float)
    if n:
        average = past.mean(axis=0)
        shift = average - centre
        spread = (
            spread
            + (past - average).T @ (past - average)
            + mean_precision * n / precision * np.outer(shift, shift)
        )
        centre = (mean_precision * centre + n * average) / precision
    t = nu - n_features + 1
    shape = spread * (precision + 1) / (precision * t)
    return stats.multivariate_t(loc=centre, shape=shape, df=t).logpdf(x)


def predict_gaussian_diag(past, x, *, mean, mean_precision, df, scale, covariance_type):
    total = 0.0
    for column, value, u, s in zip(past.T, x, mean, scale, strict=True):
        if np.isnan(value):
            continue
        seen = column[~np.isnan(column)]
        n, precision, nu, square = len(seen), mean_precision, df, s
        if n:
            square += seen.var() * n + precision * n / (precision + n) * (seen.mean() - u) ** 2
            u = (precision * u + seen.sum()) / (precision + n)
            precision, nu = precision + n, nu + n
        spread = np.sqrt(square / nu * (precision + 1) / precision)
        total += stats.t(nu, loc=u, scale=spread).logpdf(value)
    return total


def predict_bernoulli(past, x, *, a, b):
    total = 0.0
    for column, value in zip(past.T, x, strict=True):
        if not np.isnan(value):
            law = stats.betabinom(1, a + np.nansum(column), b + np.nansum(1 - column))
            total += law.logpmf(value)
    return total


def predict_categorical(past, x, *, concentration, n_categories):
    total = 0.0
    for column, value, n_codes in zip(past.T, x, n_categories, strict=True):
        if not np.isnan(value):
            seen = (~np.isnan(column)).sum()
            same = (column == value).sum()
            total += np.log((concentration + same) / (n_codes * concentration + seen))
    return total


def predict_multinomial(past, x, *, concentration):
    weights = concentration + past.sum(axis=0)
    return stats.dirichlet_multinomial(weights, int(x.sum())).logpmf(x.astype(int))


def predict_poisson(past, x, *, shape, rate):
    total = 0.0
    for column, value in zip(past.T, x, strict=True):
        if not np.isnan(value):
            seen = column[~np.isnan(column)]
            r = rate + len(seen)
            total += stats.nbinom(shape + seen.sum(), r / (r + 1)).logpmf(value)
    return total


def predict_grid(past, x, *, log_likelihood, grid, log_weights, sample):
    total = 0.0
    for column, value, log_w in zip(past.T, x, log_weights, strict=True):
        weights = np.exp(log_w)
        for y in column[~np.isnan(column)]:
            weights = weights * stats.norm(grid, GRID_SD).pdf(y)
        if not np.isnan(value):
            density = stats.norm(grid, GRID_SD).pdf(value)
            total += np.log(weights @ density / weights.sum())
    return total


def predict_pyclone(past, x, *, n_grid, **params):
    """The posterior of each sample, one mutation at a time."""
    total, phi = 0.0, np.linspace(0, 1, n_grid)
    for first in range(0, len(x), 6):
        weights = np.ones(n_grid)
        for row in past[:, first : first + 6]:
            weights = weights * np.exp(log_pyclone(row, phi, **params))
        density = np.exp(log_pyclone(x[first : first + 6], phi, **params))
        total += np.log(weights @ density / weights.sum())
    return total


PREDICTIVES = {
    "gaussian": predict_gaussian,
    "gaussian_diag": predict_gaussian_diag,
    "bernoulli": predict_bernoulli,
    "categorical": predict_categorical,
    "multinomial": predict_multinomial,
    "poisson": predict_poisson,
    "grid": predict_grid,
    "pyclone": predict_pyclone,
}


@pytest.mark.parametrize("likelihood", PREDICTIVES)
def test_marginal_is_the_chain_of_predictives(likelihood):
    rng = np.random.default_rng(11)
    case = enumeration_case(likelihood)
    n_features = case.X.shape[1]
    totals = {"totals": rng.integers(0, 9, size=9)} if likelihood == "multinomial" else {}
    for X in (case.X, example(rng, likelihood, 9, n_features, **totals, **case.params)):
        for order in (np.arange(len(X)), rng.permutation(len(X))):
            chain = sum(
                PREDICTIVES[likelihood](X[order[:m]], X[order[m]], **case.params)
                for m in range(len(X))
            )
            assert LOG_MARGINALS[likelihood](X, **case.params) == pytest.approx(chain, rel=1e-10)
        assert LOG_MARGINALS[likelihood](X[:0], **case.params) == 0


def test_gaussian_in_three_dimensions_far_from_its_mean():
    rng = np.random.default_rng(12)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 3)) + 1000
    params = {
        "mean": [1.0, 2, 3],
        "mean_precision": 0.01,
        "df": 3.7,
        "scale": np.diag([1.0, 2, 3]),
    }
    chain = sum(predict_gaussian(X[:m], X[m], **params) for m in range(len(X)))
    assert log_marginal_gaussian(X, **params) == pytest.approx(chain, rel=1e-9)


def test_gaussian_scale_and_covariance_types():
    X = np.random.default_rng(13).standard_normal((4, 3))
    common = {"mean": 0.2, "mean_precision": 0.5, "df": 5.0}
    forms = [2.0, [2.0, 2.0, 2.0], 2.0 * np.eye(3)]
    values = [log_marginal_gaussian(X, scale=s, **common) for s in forms]
    np.testing.assert_allclose(values, values[0], rtol=1e-13)
    column = X[:, :1]
    full = log_marginal_gaussian(column, scale=2.0, **common)
    diag = log_marginal_gaussian(column, scale=2.0, covariance_type="diag", **common)
    assert full == pytest.approx(diag, rel=1e-13)
    # a column given its rows' common mean and variance is multivariate t
    law = stats.multivariate_t(loc=np.full(4, 0.2), shape=2.0 / 5 * (np.eye(4) + 1 / 0.5), df=5.0)
    assert diag == pytest.approx(law.logpdf(column[:, 0]), rel=1e-12)


def integral(f, low, high):
    value, error = quad(f, low, high, epsabs=0, epsrel=1e-11, limit=500)
    assert error < 1e-9 * value
    return np.log(value)


def test_marginals_by_quadrature():
    x = np.array([0.3, -1.2, 2.0])
    u, r, nu, s = 0.4, 0.7, 4.5, 1.3

    def gaussian(variance):
        covariance = variance * (np.eye(3) + 1 / r)  # the mean integrated out: normal
        normal = stats.multivariate_normal(np.full(3, u), covariance)
        return normal.pdf(x) * stats.invgamma(nu / 2, scale=s / 2).pdf(variance)

    expected = integral(gaussian, 0, 60)
    expected = np.logaddexp(expected, integral(gaussian, 60, np.inf))
    params = {"mean": u, "mean_precision": r, "df": nu, "scale": s}
    for kind in ("full", "diag"):
        value = log_marginal_gaussian(x[:, None], covariance_type=kind, **params)
        assert value == pytest.approx(expected, rel=1e-8)

    # the mean as well: a double integral on a grid, midpoint rule in (mean, log variance)
    means, log_variances = np.linspace(-12, 13, 2001), np.linspace(-4, 8, 601)
    variances = np.exp(log_variances)[:, None]
    density = stats.invgamma(nu / 2, scale=s / 2).pdf(variances) * variances
    density = density * stats.norm(u, np.sqrt(variances / r)).pdf(means)
    for value in x:
        density = density * stats.norm(means, np.sqrt(variances)).pdf(value)
    grid = np.log(density.sum() * np.diff(means)[0] * np.diff(log_variances)[0])
    assert grid == pytest.approx(expected, abs=1e-4)

    x = np.array([1.0, 0, 1, 1])
    value = log_marginal_bernoulli(x[:, None], a=1.6, b=2.2)
    beta = stats.beta(1.6, 2.2)
    assert value == pytest.approx(integral(lambda p: beta.pdf(p) * p**3 * (1 - p), 0, 1), rel=1e-9)

    x = np.array([3, 0, 7])
    value = log_marginal_poisson(x[:, None], shape=1.6, rate=0.3)
    gamma = stats.gamma(1.6, scale=1 / 0.3)
    assert value == pytest.approx(
        integral(lambda m: gamma.pdf(m) * stats.poisson(m).pmf(x).prod(), 0, 60), rel=1e-9
    )

    x = np.array([[2, 1], [0, 3]])
    value = log_marginal_multinomial(x, concentration=0.8)
    beta = stats.beta(0.8, 0.8)
    assert value == pytest.approx(
        integral(lambda p: beta.pdf(p) * 3 * p**2 * (1 - p) * (1 - p) ** 3, 0, 1), rel=1e-8
    )


def test_gaussian_by_simulation_from_the_prior():
    """The covariance's prior is SciPy's inverse Wishart: mean of densities over the prior."""
    rng = np.random.default_rng(14)
    mean, r, nu, S = np.array([0.3, -0.5]), 0.7, 4.5, np.array([[1.2, 0.4], [0.4, 0.8]])
    X = np.array([[0.5, 0.1], [-0.4, -0.9]])
    covariances = stats.invwishart(nu, S).rvs(size=40_000, random_state=rng)
    means = mean + np.einsum(
        "sij,sj->si", np.linalg.cholesky(covariances), rng.standard_normal((40_000, 2))
    ) / np.sqrt(r)
    density = np.ones(40_000)
    for x in X:
        z = x - means
        quadratic = np.einsum("si,sij,sj->s", z, np.linalg.inv(covariances), z)
        density *= np.exp(-quadratic / 2) / (2 * np.pi * np.sqrt(np.linalg.det(covariances)))
    expected = np.exp(log_marginal_gaussian(X, mean=mean, mean_precision=r, df=nu, scale=S))
    assert abs(density.mean() - expected) < 4.5 * density.std() / np.sqrt(len(density))
    assert density.std() / np.sqrt(len(density)) < 0.01 * expected


def test_discrete_marginals_sum_to_one():
    codes = itertools.product([0, 1], repeat=6)
    total = [log_marginal_bernoulli(np.reshape(x, (3, 2)), a=0.6, b=1.4) for x in codes]
    assert logsumexp(total) == pytest.approx(0, abs=1e-12)

    params = {"concentration": 0.7, "n_categories": [3, 4]}
    rows = list(itertools.product(range(3), range(4)))
    total = [
        log_marginal_categorical(np.array(X), **params) for X in itertools.product(rows, repeat=2)
    ]
    assert logsumexp(total) == pytest.approx(0, abs=1e-12)

    def compositions(n):
        return [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]

    for concentration in (0.8, [0.3, 1.0, 2.5]):
        total = [
            log_marginal_multinomial(np.array(X), concentration=concentration)
            for X in itertools.product(compositions(2), compositions(4))
        ]
        assert logsumexp(total) == pytest.approx(0, abs=1e-12)

    total = [
        log_marginal_poisson(np.array([[x], [y]]), shape=1.5, rate=3.0)
        for x in range(45)
        for y in range(45)
    ]
    assert logsumexp(total) == pytest.approx(0, abs=1e-9)


def test_missing_values_are_summed_out():
    X = np.array([[0.0, 1], [1, np.nan], [np.nan, 0]])

    def filled(x, y):
        return np.array([[0.0, 1], [1, x], [y, 0]])

    params = {"a": 0.6, "b": 1.4}
    total = [log_marginal_bernoulli(filled(x, y), **params) for x in (0, 1) for y in (0, 1)]
    assert log_marginal_bernoulli(X, **params) == pytest.approx(logsumexp(total), rel=1e-12)
    params = {"concentration": 0.7, "n_categories": [2, 3]}
    total = [log_marginal_categorical(filled(x, y), **params) for x in range(3) for y in (0, 1)]
    assert log_marginal_categorical(X, **params) == pytest.approx(logsumexp(total), rel=1e-12)
    params = {"shape": 1.5, "rate": 3.0}
    total = [log_marginal_poisson(filled(x, y), **params) for x in range(45) for y in range(45)]
    assert log_marginal_poisson(X, **params) == pytest.approx(logsumexp(total), abs=1e-9)
    nothing = np.full((2, 2), np.nan)
    for likelihood in ("gaussian_diag", "categorical", "poisson"):
        params = enumeration_case(likelihood).params
        assert LOG_MARGINALS[likelihood](nothing, **params) == 0
    with pytest.raises(ValueError, match="codes"):
        log_marginal_categorical(np.array([[2.0, 3.0]]), concentration=1, n_categories=[3, 3])


# Relational


def adjacency_matrices(n, directed):
    pairs = [(i, j) for i in range(n) for j in range(n) if i < j or (directed and i > j)]
    for links in itertools.product([0.0, 1.0], repeat=len(pairs)):
        A = np.zeros((n, n))
        for (i, j), link in zip(pairs, links, strict=True):
            A[i, j] = link
            if not directed:
                A[j, i] = link
        yield A


@pytest.mark.parametrize("directed, n", [(False, 3), (False, 4), (True, 3)])
def test_relational_sums_to_one_over_all_graphs(directed, n):
    matrices = list(adjacency_matrices(n, directed))
    assert len(matrices) == 2 ** (n * (n - 1) // (1 if directed else 2))
    for labels in enumerate_partitions(n):
        total = [
            log_likelihood_relational(A, labels, a=0.6, b=0.9, directed=directed) for A in matrices
        ]
        assert logsumexp(total) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("directed", [False, True])
def test_relational_by_blocks(directed):
    """Counts from one-hot matrix products, block by block; beta-binomial from SciPy."""
    rng = np.random.default_rng(15)
    n = 7
    for _ in range(5):
        A = (rng.random((n, n)) < 0.4).astype(float)
        A[rng.random((n, n)) < 0.2] = np.nan
        if not directed:
            A = np.triu(A, 1) + np.triu(A, 1).T
        labels = rng.integers(0, 3, size=n)
        Z = np.eye(3)[labels]
        observed = ~np.isnan(A) & ~np.eye(n, dtype=bool)
        links = Z.T @ np.where(observed, A, 0) @ Z
        pairs = Z.T @ observed @ Z
        expected = 0.0
        for k in range(3):
            for m in range(3):
                ones, trials = links[k, m], pairs[k, m]
                if not directed:
                    if k > m:
                        continue
                    if k == m:
                        ones, trials = ones / 2, trials / 2
                binomial = stats.betabinom(int(trials), 0.6, 0.9).logpmf(ones)
                expected += binomial - np.log(comb(trials, ones))  # one order of the links
        value = log_likelihood_relational(A, labels, a=0.6, b=0.9, directed=directed)
        assert value == pytest.approx(expected, rel=1e-10)
        np.fill_diagonal(A, 1)
        assert value == log_likelihood_relational(A, labels, a=0.6, b=0.9, directed=directed)
        relabelled = np.array([5, -1, 2])[labels]
        again = log_likelihood_relational(A, relabelled, a=0.6, b=0.9, directed=directed)
        assert again == pytest.approx(value, rel=1e-13)


def test_relational_missing_link_is_summed_out():
    for name in ("relational", "relational_directed"):
        case = enumeration_case(name)
        i, j = np.argwhere(np.isnan(case.X))[0]
        for labels in enumerate_partitions(5)[::5]:
            total = []
            for link in (0, 1):
                A = case.X.copy()
                A[i, j] = link
                if name == "relational":
                    A[j, i] = link
                total.append(case.reference(A, labels, **case.params))
            assert case.reference(case.X, labels, **case.params) == pytest.approx(
                logsumexp(total), rel=1e-12
            )
    with pytest.raises(ValueError, match="symmetric"):
        log_likelihood_relational([[0, 1], [0, 0]], [0, 0], a=1, b=1)


# Posteriors


def case_posterior(likelihood, prior_name="dp", **changes):
    case = enumeration_case(likelihood)
    prior, prior_params = PRIOR_CASES[prior_name]
    return log_posterior(
        case.X,
        likelihood,
        prior,
        likelihood_params={**case.params, **changes},
        prior_params=prior_params,
    )


def test_every_likelihood_has_a_case():
    assert set(LIKELIHOOD_NAMES) == set(LOG_MARGINALS) | set(LOG_LIKELIHOODS)
    for name in LIKELIHOOD_NAMES:
        first, second = enumeration_case(name), enumeration_case(name)
        first.X[0, 0] = 99
        first.params.clear()
        assert second.X[0, 0] != 99
        assert second.params


@pytest.mark.parametrize("likelihood", LIKELIHOOD_NAMES)
def test_posterior_is_prior_times_likelihood(likelihood):
    case = enumeration_case(likelihood)
    all_at_once = log_likelihoods(case.X, likelihood, **case.params)
    one_by_one = [
        log_likelihood(case.X, z, likelihood, **case.params) for z in enumerate_partitions(5)
    ]
    np.testing.assert_allclose(all_at_once, one_by_one, rtol=1e-12)
    for prior_name, (prior, params) in PRIOR_CASES.items():
        posterior = case_posterior(likelihood, prior_name)
        weights = eppf_over_partitions(5, prior, params) * np.exp(one_by_one)
        np.testing.assert_allclose(posterior.probabilities, weights / weights.sum(), rtol=1e-9)
        np.testing.assert_allclose(np.exp(posterior.log_joint), weights, rtol=1e-9)
        assert posterior.log_evidence == pytest.approx(np.log(weights.sum()), rel=1e-9)
        outside = partition_sizes(posterior.partitions).astype(bool).sum(axis=1) > 3
        assert ((posterior.probabilities == 0) == (outside & (prior_name == "finite"))).all()


@pytest.mark.parametrize("likelihood", LIKELIHOOD_NAMES)
def test_cases_have_power(likelihood):
    """Not concentrated, not the prior, and a hyperparameter wrong by 10 % shows."""
    posterior = case_posterior(likelihood)
    p = posterior.probabilities
    assert -(p * posterior.log_prob).sum() > 2.2  # of log 52 = 3.95
    assert 0.5 * abs(p - eppf_over_partitions(5, *PRIOR_CASES["dp"])).sum() > 0.2
    for key, value in enumeration_case(likelihood).params.items():
        if key in ("directed", "n_categories", "n_grid"):
            continue
        if callable(value) or isinstance(value, str):
            continue
        value = np.asarray(value)
        wrong = value + 0.1 if key == "mean" else 1.1 * value
        q = case_posterior(likelihood, **{key: wrong}).probabilities
        assert 20_000 * ((q - p) ** 2 / p).sum() > 50, key


@pytest.mark.parametrize("likelihood", ["gaussian", "relational"])
def test_posterior_draws(likelihood, seed_sequence):
    posterior = case_posterior(likelihood, "finite")

    def run(seed, factor):
        labels = posterior.draw(5_000 * factor, np.random.default_rng(seed))
        return Cells(posterior.count(labels), posterior.probabilities, posterior.partitions)

    assert_p(run, seed_sequence=seed_sequence)


CONCENTRATION_PRIORS = {
    "dp": {},
    "pitman_yor": {"discount": 0.35},
    "finite": {"n_components": 3},
    "mfm": {"n_components_prior": "poisson"},
}


def concentration_posterior(prior, **options):
    case = enumeration_case("bernoulli")
    return log_posterior_concentration(
        case.X,
        "bernoulli",
        prior,
        likelihood_params=case.params,
        prior_params=CONCENTRATION_PRIORS[prior],
        concentration_prior=(1.4, 0.6),
        **options,
    )


@pytest.mark.parametrize("prior", CONCENTRATION_PRIORS)
def test_concentration_posterior_by_quadrature(prior):
    """Each cell against SciPy's adaptive quadrature over the concentration itself."""
    case = enumeration_case("bernoulli")
    posterior = concentration_posterior(prior, n_bins=6)
    p = posterior.probabilities
    assert p.shape == (52, 6)
    assert p.sum() == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(p.sum(axis=0), 1 / 6, rtol=2e-3)
    likelihoods = np.exp(log_likelihoods(case.X, "bernoulli", **case.params))
    limits = [0, *posterior.edges, np.inf]
    hyperprior = stats.gamma(1.4, scale=1 / 0.6)
    for row in (0, 1, 17, 40, 51):
        sizes = partition_sizes(posterior.partitions[row])

        def density(x, sizes=sizes):
            params = CONCENTRATION_PRIORS[prior]
            return hyperprior.pdf(x) * np.exp(log_eppf(sizes, prior, concentration=x, **params))

        for j in range(6):
            joint = quad(density, limits[j], limits[j + 1], epsabs=0, epsrel=1e-9)[0]
            expected = joint * likelihoods[row] / np.exp(posterior.log_evidence)
            assert p[row, j] == pytest.approx(expected, rel=1e-7, abs=1e-300)
        inside = p[row].sum() > 0
        assert posterior.cdf[row, -1] == pytest.approx(float(inside), abs=1e-12)


def test_concentration_posterior_of_a_narrow_prior():
    """A hyperprior that is nearly a point mass gives the posterior at that point."""
    case = enumeration_case("poisson")
    narrow = log_posterior_concentration(
        case.X,
        "poisson",
        "dp",
        likelihood_params=case.params,
        prior_params={},
        concentration_prior=(1.3e6, 1e6),
    )
    fixed = case_posterior("poisson", "dp")
    np.testing.assert_allclose(narrow.probabilities.sum(axis=1), fixed.probabilities, rtol=1e-4)
    assert narrow.log_evidence == pytest.approx(fixed.log_evidence, rel=1e-5)


@pytest.mark.parametrize("prior", CONCENTRATION_PRIORS)
def test_concentration_posterior_draws(prior, seed_sequence):
    posterior = concentration_posterior(prior)

    def run(seed, factor):
        labels, concentration = posterior.draw(20_000 * factor, np.random.default_rng(seed))
        return Cells(posterior.count(labels, concentration), posterior.probabilities)

    assert_p(run, seed_sequence=seed_sequence)


# Simulation


@pytest.mark.parametrize("name", PRIORS)
def test_simulated_partitions(name, seed_sequence):
    prior, params = PRIORS[name]
    law = eppf_over_partitions(5, prior, params)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels = simulate_partitions(prior, 5, 5_000 * factor, rng, **params)
        np.testing.assert_array_equal(labels, canonical_labels(labels))
        return Cells(np.bincount(partition_index(labels), minlength=52), law)

    if name == "finite_one":
        labels = simulate_partitions(prior, 5, 10, np.random.default_rng(0), **params)
        assert (labels == 0).all()
    else:
        assert_p(run, seed_sequence=seed_sequence)


def test_simulated_partitions_with_varying_concentration(seed_sequence):
    """Gamma mixture of Dirichlet processes: the prior half of Geweke's test."""
    case = enumeration_case("bernoulli")
    nothing = np.full_like(case.X, np.nan)
    law = log_posterior_concentration(
        nothing,
        "bernoulli",
        "dp",
        likelihood_params=case.params,
        prior_params={},
        concentration_prior=(1.4, 0.6),
    )

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        concentration = rng.gamma(1.4, 1 / 0.6, size=20_000 * factor)
        labels = simulate_partitions("dp", 5, len(concentration), rng, concentration=concentration)
        return Cells(law.count(labels, concentration), law.probabilities)

    assert law.log_evidence == pytest.approx(0, abs=1e-10)
    assert_p(run, seed_sequence=seed_sequence)


# Data sets so small that all can be listed: likelihood -> (n_features, simulation keywords,
# values of one row)
DISCRETE_DATA = {
    "bernoulli": (2, {"a": 0.6, "b": 1.4}, [(0, 0), (0, 1), (1, 0), (1, 1)]),
    "categorical": (
        2,
        {"concentration": 0.7, "n_categories": [2, 3]},
        list(itertools.product(range(2), range(3))),
    ),
    "multinomial": (
        3,
        {"concentration": 0.8, "totals": [2, 2, 2]},
        [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1)],
    ),
    "poisson": (1, {"shape": 1.5, "rate": 1.4}, [(x,) for x in range(25)]),
}


@pytest.mark.parametrize("likelihood", DISCRETE_DATA)
@pytest.mark.parametrize("labels", [[0, 0, 1], [1, 0, 1]])
def test_simulated_discrete_data(likelihood, labels, seed_sequence):
    n_features, hyper, rows = DISCRETE_DATA[likelihood]
    reference = {k: v for k, v in hyper.items() if k != "totals"}
    data = [np.array(X, dtype=float) for X in itertools.product(rows, repeat=3)]
    law = np.exp([log_likelihood(X, labels, likelihood, **reference) for X in data])
    index = {X.tobytes(): i for i, X in enumerate(data)}

    def run(seed, factor):
        size = 4_000 * factor
        X = simulate_data(
            likelihood,
            np.tile(labels, (size, 1)),
            np.random.default_rng(seed),
            n_features=n_features,
            **hyper,
        )
        assert X.shape == (size, 3, n_features)
        seen = [index.get(x.tobytes(), len(data)) for x in X]  # last: beyond the list (poisson)
        return Cells(np.bincount(seen, minlength=len(data) + 1), np.append(law, 1 - law.sum()))

    if likelihood != "poisson":
        law /= law.sum()
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("directed", [False, True])
def test_simulated_graphs(directed, seed_sequence):
    labels, params = [0, 1, 0], {"a": 0.6, "b": 0.9}
    name = "relational_directed" if directed else "relational"
    matrices = list(adjacency_matrices(3, directed))
    law = np.exp([log_likelihood(A, labels, name, **params) for A in matrices])
    index = {A.tobytes(): i for i, A in enumerate(matrices)}

    def run(seed, factor):
        batch = np.tile(labels, (4_000 * factor, 1))
        graphs = simulate_data(name, batch, np.random.default_rng(seed), **params)
        seen = [index[A.tobytes()] for A in graphs]
        return Cells(np.bincount(seen, minlength=len(matrices)), law / law.sum())

    assert_p(run, seed_sequence=seed_sequence)


def test_simulated_gaussian_data(seed_sequence):
    """Rows 0 and 1 share a cluster: the distance of 1 from its predictive given 0 is an F."""
    params = enumeration_case("gaussian").params
    m, r, nu, S = (np.asarray(params[k]) for k in ("mean", "mean_precision", "df", "scale"))

    def run(seed, factor):
        labels = np.tile([1, 1, 0], (4_000 * factor, 1))
        X = simulate_data("gaussian", labels, np.random.default_rng(seed), n_features=2, **params)
        x, y, z = X[:, 0], X[:, 1], X[:, 2]
        centre = (r * m + x) / (r + 1)
        spread = S + r / (r + 1) * np.einsum("si,sj->sij", x - m, x - m)
        shape = spread * (r + 2) / ((r + 1) * nu)  # df of the predictive: nu + 1 - D + 1 = nu
        u = np.linalg.solve(np.linalg.cholesky(shape), (y - centre)[..., None])[..., 0]
        v = np.linalg.solve(np.linalg.cholesky(S * (r + 1) / (r * (nu - 1))), (z - m).T).T
        p = [
            stats.kstest((u**2).sum(axis=1) / 2, stats.f(2, nu).cdf).pvalue,
            stats.kstest((v**2).sum(axis=1) / 2, stats.f(2, nu - 1).cdf).pvalue,
            stats.kstest(u[:, 1], stats.t(nu).cdf).pvalue,
            stats.kstest(v[:, 0], stats.t(nu - 1).cdf).pvalue,
        ]
        return correct_for_number(min(p), len(p))

    assert_p(run, seed_sequence=seed_sequence)


def test_simulated_diagonal_gaussian_data(seed_sequence):
    params = enumeration_case("gaussian_diag").params
    r, nu = params["mean_precision"], params["df"]
    m, s = np.array(params["mean"]), np.array(params["scale"])
    missing = np.zeros((3, 2), dtype=bool)
    missing[2, 1] = True

    def run(seed, factor):
        labels = np.tile([1, 1, 0], (4_000 * factor, 1))
        X = simulate_data(
            "gaussian_diag",
            labels,
            np.random.default_rng(seed),
            n_features=2,
            missing=missing,
            **params,
        )
        assert (np.isnan(X) == missing).all()
        x, y = X[:, 0], X[:, 1]
        centre = (r * m + x) / (r + 1)
        square = s + r / (r + 1) * (x - m) ** 2
        u = (y - centre) / np.sqrt(square / (nu + 1) * (r + 2) / (r + 1))
        v = (X[:, 2, 0] - m[0]) / np.sqrt(s[0] / nu * (r + 1) / r)
        p = [stats.kstest(u[:, d], stats.t(nu + 1).cdf).pvalue for d in range(2)]
        p.append(stats.kstest(v, stats.t(nu).cdf).pvalue)
        return correct_for_number(min(p), len(p))

    assert_p(run, seed_sequence=seed_sequence)


def test_simulate_one_data_set():
    for likelihood in LIKELIHOOD_NAMES:
        case = enumeration_case(likelihood)
        hyper = dict(case.params, **({"totals": 4} if likelihood == "multinomial" else {}))
        missing = np.isnan(case.X)
        X = simulate_data(
            likelihood,
            [0, 1, 0, 2, 1],
            np.random.default_rng(0),
            n_features=case.X.shape[1],
            missing=missing if missing.any() else None,
            **hyper,
        )
        assert X.shape == case.X.shape
        np.testing.assert_array_equal(np.isnan(X), missing)
        assert np.isfinite(log_likelihood(X, [0, 1, 0, 2, 1], likelihood, **case.params))


# P-values


def test_chi_squared_equals_scipy():
    counts, p = np.array([[30, 50], [18, 2]]), np.array([[0.3, 0.4], [0.2, 0.1]])
    expected = stats.chisquare(counts.ravel(), 100 * p.ravel()).pvalue
    assert chi_squared_p(counts, p) == pytest.approx(expected, rel=1e-12)


def test_chi_squared_pools_small_cells():
    p = np.array([0.5, 0.38, 0.04, 0.04, 0.04])  # expectations 50, 38 and three times 4
    pooled = stats.chisquare([55, 31, 14], [50, 38, 12]).pvalue
    assert chi_squared_p([55, 31, 4, 9, 1], p) == pytest.approx(pooled, rel=1e-12)
    p = np.array([0.5, 0.46, 0.04])  # pooled expectation 4: joins the smallest
    joined = stats.chisquare([55, 45], [50, 50]).pvalue
    assert chi_squared_p([55, 41, 4], p) == pytest.approx(joined, rel=1e-12)


def test_chi_squared_fails_on_impossible_states():
    assert chi_squared_p([50, 49, 1], [0.5, 0.5, 0]) == 0
    assert chi_squared_p([50, 50, 0], [0.5, 0.5, 0]) == 1
    # three visits to a state of probability 1e-7 cannot hide in the pool
    p = np.array([0.4, 0.4, 0.2 - 1e-7, 1e-7])
    assert 0 < chi_squared_p([400, 400, 197, 3], p) < 1e-10
    for counts, p in (([1, 2], [0.5, 0.4]), ([1, 2], [0.5, np.nan]), ([0, 0], [0.5, 0.5])):
        with pytest.raises(ValueError, match=r"probabilities|counts"):
            chi_squared_p(counts, p)
    with pytest.raises(ValueError, match="fewer than two cells"):
        chi_squared_p([2, 1], [0.5, 0.5])


def test_chi_squared_is_uniform_under_the_law(seed_sequence):
    probabilities = case_posterior("poisson").probabilities

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(4_000, probabilities, size=600 * factor)
        return uniform_p([chi_squared_p(c, probabilities) for c in counts])

    assert_p(run, seed_sequence=seed_sequence)


def test_chi_squared_sees_an_error_of_ten_percent(seed_sequence):
    """The posterior at 1.1 times the concentration, and one probability wrong by 10 %."""
    case = enumeration_case("gaussian_diag")
    law = case_posterior("gaussian_diag").probabilities
    wrong = log_posterior(
        case.X,
        "gaussian_diag",
        "dp",
        likelihood_params=case.params,
        prior_params={"concentration": 1.1 * PRIOR_CASES["dp"][1]["concentration"]},
    ).probabilities
    heavy = law.copy()
    heavy[law.argmax()] *= 1.1
    heavy /= heavy.sum()
    rng = np.random.default_rng(seed_sequence)
    for error in (wrong, heavy):
        p = [chi_squared_p(rng.multinomial(80_000, error), law) for _ in range(20)]
        assert max(p) < 1e-4


class Planned:
    """A run that gives the planned p-values and records what it was asked."""

    def __init__(self, *outcomes):
        self.outcomes, self.calls = list(outcomes), []

    def __call__(self, seed, factor):
        self.calls.append((factor, seed.spawn_key, np.random.default_rng(seed).random()))
        return self.outcomes[len(self.calls) - 1]


@pytest.mark.parametrize(
    "outcomes, n_calls, passes",
    [
        ([0.5], 1, True),
        ([1e-3], 1, True),
        ([9e-4, 0.3], 2, True),
        ([9e-4, 1e-4], 2, True),
        ([9e-4, 9e-5], 2, False),
        ([1e-30, 1e-30], 2, False),
        ([0.0], 1, False),
        ([float("nan")], 1, False),
        ([9e-4, float("nan")], 2, False),
        ([1.5], 1, False),
    ],
)
def test_assert_p_has_two_stages(outcomes, n_calls, passes):
    run = Planned(*outcomes)
    if passes:
        assert assert_p(run, seed_sequence=np.random.SeedSequence(5)) == outcomes[0]
    else:
        with pytest.raises(AssertionError, match="seed 5"):
            assert_p(run, seed_sequence=np.random.SeedSequence(5))
    assert [factor for factor, _, _ in run.calls] == [1, 4][:n_calls]
    assert len({draw for _, _, draw in run.calls}) == n_calls

    matrix = {"only": Planned(*outcomes)}
    if passes:
        worst = assert_p_matrix(matrix, seed_sequence=np.random.SeedSequence(5))
        assert worst.name == "only"
        assert worst.corrected == pytest.approx(outcomes[0])
    else:
        with pytest.raises(AssertionError, match="only"):
            assert_p_matrix(matrix, seed_sequence=np.random.SeedSequence(5))


def test_assert_p_lets_errors_through_and_names_the_worst_cells():
    def broken(seed, factor):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        assert_p(broken, seed_sequence=np.random.SeedSequence(0))

    states = [f"state{i}" for i in range(8)]
    counts = np.array([100, 100, 100, 100, 100, 100, 100, 300])
    with pytest.raises(AssertionError) as error:
        assert_p(
            lambda seed, factor: Cells(counts * factor, np.full(8, 1 / 8), states),
            seed_sequence=np.random.SeedSequence([7, 8]),
        )
    text = str(error.value)
    assert "seed [7, 8] spawn_key (1,)" in text
    assert "4 x draws" in text
    assert text.count("observed") == 2 * 5
    assert "state7: observed 300, expected 125" in text

    with pytest.raises(AssertionError, match="observed 1, expected 0"):
        assert_p(
            lambda seed, factor: ([1, 50, 50], [0, 0.5, 0.5]),
            seed_sequence=np.random.SeedSequence(0),
        )


def test_assert_p_false_alarms_are_rare_and_power_is_high():
    """Uniform p-values: the second stage is needed about once in 1000."""
    rng = np.random.default_rng(16)
    stages = Counter()

    def honest(seed, factor):
        stages[factor] += 1
        return rng.random()

    for _ in range(4_000):
        assert_p(honest, seed_sequence=np.random.SeedSequence(0))
    assert stages[1] == 4_000
    assert stages[4] <= stats.binom(4_000, 1e-3).isf(1e-9)

    law = np.full(10, 0.1)
    wrong = law * np.where(np.arange(10) < 5, 1.1, 0.9)

    def biased(seed, factor):
        return Cells(np.random.default_rng(seed).multinomial(20_000 * factor, wrong), law)

    for i in range(20):
        with pytest.raises(AssertionError, match="do not follow"):
            assert_p(biased, seed_sequence=np.random.SeedSequence(i))


def test_matrix_of_p_values():
    worst = worst_p({"a": 0.4, "b": 0.01, "c": 0.9})
    assert worst.name == "b"
    assert worst.corrected == pytest.approx(1 - 0.99**3)
    assert correct_for_number(1e-18, 100) == pytest.approx(1e-16)
    assert correct_for_number(1.0, 100) == 1
    assert worst_p({"a": 0.0, "b": float("nan")}).name == "b"
    with pytest.raises(ValueError, match="no p-values"):
        worst_p({})

    # 5e-4 is no reason to worry among 100, 1e-6 is; only the suspect runs again
    runs = {f"run{i}": Planned(0.5) for i in range(98)}
    runs |= {"low": Planned(5e-4), "suspect": Planned(1e-6, 0.2)}
    assert assert_p_matrix(runs, seed_sequence=np.random.SeedSequence(0)).name == "suspect"
    assert [len(runs[name].calls) for name in ("run0", "low", "suspect")] == [1, 1, 2]
    assert len({run.calls[0][2] for run in runs.values()}) == 100
    runs = {f"run{i}": Planned(0.5) for i in range(99)} | {"bad": Planned(1e-6, 9e-7)}
    with pytest.raises(AssertionError, match="bad"):
        assert_p_matrix(runs, seed_sequence=np.random.SeedSequence(0))


def test_seed_sequence_depends_on_test_and_seed(seed_sequence, seed, request):
    assert seed_sequence.entropy[0] == seed
    assert seed_sequence.entropy[1] != 0
    assert f"seed{seed}" in request.node.name


@pytest.mark.slow
def test_slow_tests_need_an_option(request):
    assert request.config.getoption("--run-slow")
