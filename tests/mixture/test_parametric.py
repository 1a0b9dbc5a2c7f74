"""Items under drawn parameters: every likelihood that states the capability "instantiated"."""

import dataclasses
import itertools
from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from reference import likelihoods as reference
from scipy import stats
from scipy.special import ive, ndtr
from support.designs import thirds
from support.examples import examples_of
from support.kernels import bind
from support.laws import example, numbers_of, reference_of
from support.probes import Probe, accumulated
from support.pvalues import assert_p, assert_p_matrix

from skdpm.hyperpriors import Hyperprior
from skdpm.mixture.likelihoods import LIKELIHOODS, Gaussian, Grid, Product, PyClone, Subspace
from skdpm.mixture.likelihoods.contract.base import Likelihood
from skdpm.mixture.likelihoods.laws.recorded import Recording

N_TILES = 1200  # items for more than two tiles


class Case:
    """An example of a likelihood, on its own data and, of the same rows, on more than a tile."""

    def __init__(self, name, likelihood, X):
        self.name, self.given, self.X = name, likelihood, X
        self.likelihood = likelihood.resolve(X)
        self.n = X.shape[0]
        self.dense = X.toarray() if sp.issparse(X) else X
        rows = np.random.default_rng(1).integers(self.n, size=N_TILES)
        self.many = X[rows]

    def model(self, X=None):
        return self.likelihood.parametric(self.X if X is None else X)

    def probe(self, X=None):
        X = self.X if X is None else X
        probe = Probe(bind(self.likelihood, self.likelihood.encode(X), X.shape[0]), 1)
        assert probe.acquire() == 0
        return probe

    def stats(self, items, X=None):
        """Of the cluster kernel, one item after another."""
        probe = self.probe(X)
        for i in items:
            probe.add(0, i)
        return probe.model.dump([0])[0]

    def draw(self, items, n_draws, *, power=1.0, seed=0):
        rows = np.tile(self.stats(items), (n_draws, 1))
        bit_generator = np.random.PCG64(seed)
        return self.model().draw(rows, np.full(n_draws, power), bit_generator)


EXAMPLES = [
    example(name, number, Case(f"{name}{number}", likelihood, X))
    for name, cls in LIKELIHOODS.items()
    for number, (likelihood, X) in enumerate(examples_of(cls))
    if "instantiated" in likelihood.capabilities
]
CASES = [param.values[0] for param in EXAMPLES]
every = thirds("case", EXAMPLES)


def log_table(likelihood, X):
    """log p(row, block | point) of a resolved `Grid`: (n_rows, n_blocks, n_points). Impossible
    points are as in the kernel."""
    table = likelihood.table(X) if isinstance(likelihood, PyClone) else likelihood._evaluate(X)
    table = np.asarray(table, dtype=float)
    table = table[:, None] if table.ndim == 2 else table
    return np.maximum(table, table.max(axis=2, keepdims=True) - 1e10)


def law(likelihood, theta):
    """What a vector of parameters says: a function of a row, its log density."""
    name = type(likelihood).__name__
    if name == "VonMisesFisher":
        kappa, constant = von_mises_fisher(theta)
        # A row of zeros has no direction.
        return lambda x: constant + theta[1:] @ x / np.linalg.norm(x) - kappa if x.any() else 0.0
    if isinstance(likelihood, Grid):
        chosen = np.arange(len(theta)), theta.astype(int)
        return lambda x: log_table(likelihood, x[None])[0][chosen].sum()
    if name == "Product":
        own = [(law(part, mine), where) for part, where, mine in parts_of(likelihood, theta)]
        return lambda x: sum(log_density(x[where]) for log_density, where in own)
    if name == "Subspace":
        log_density = law(likelihood._inner, theta)
        return lambda x: (
            log_density(likelihood.axes_ @ (x - likelihood.center_))
            + likelihood.log_constants(x[None])[0]
        )
    if name == "Gaussian" and likelihood.covariance_type in ("full", "sparse", "tied"):
        mean, covariance = gaussian_moments(likelihood, theta)
        return stats.multivariate_normal(mean, covariance).logpdf
    if name == "Gaussian":
        mean, variance = gaussian_moments(likelihood, theta)
        columns = [stats.norm(m, np.sqrt(v)).logpdf for m, v in zip(mean, variance, strict=True)]
    elif name == "Poisson":
        columns = [stats.poisson(rate).logpmf for rate in rates(likelihood, theta)]
    elif name == "NegativeBinomial":
        columns = [law.logpmf for law in negative_binomials(likelihood, theta)]
    elif name == "Multinomial":
        p = np.exp(theta)
        return lambda x: stats.multinomial(x.sum(), p / p.sum()).logpmf(x)
    else:
        columns = [
            lambda x, p=p: stats.rv_discrete(values=(np.arange(len(p)), p)).logpmf(x)
            for p in probabilities(likelihood, theta)
        ]
    return lambda x: sum(
        column(value) for column, value in zip(columns, x, strict=True) if not np.isnan(value)
    )


def parts_of(likelihood, theta):
    """Likelihood, columns and parameters of each part of a Product."""
    first = 0
    for _, part, columns in likelihood.parts:
        where = np.arange(likelihood._n_features)[columns]
        n_params = part.parametric(np.ones((1, len(where)))).n_params
        yield part, where, theta[first : first + n_params]
        first += n_params


def gaussian_moments(likelihood, theta):
    """Mean, and covariance or variances."""
    D = len(likelihood.mean)
    if likelihood.covariance_type == "sparse":
        W, center = regressions(likelihood, theta)
        return likelihood.mean + np.linalg.solve(W, center), np.linalg.inv(W.T @ W)
    if likelihood.covariance_type != "full":
        w, center, _ = np.split(theta[1:], 3)
        if likelihood.covariance_type == "tied":
            root = np.linalg.cholesky(likelihood.scale)
            return likelihood.mean + root @ (center / w), root / w @ root.T
        return likelihood.mean + center / w, w**-2
    W = np.zeros((D, D))
    W[np.tril_indices(D)] = theta[1 + D :]
    return likelihood.mean + np.linalg.solve(W, theta[1 : 1 + D]), np.linalg.inv(W.T @ W)


def regressions(likelihood, theta):
    """Of sparse covariances: a root W of the precision matrix, a row per column, and W times the
    gap between the means of the cluster and of the prior."""
    D, n_parents = likelihood.parents_.shape
    slopes = theta[1:].reshape(D, n_parents + 2)
    W = np.diag(slopes[:, n_parents])
    for d, k in zip(*np.nonzero(likelihood.parents_ >= 0), strict=True):
        W[d, likelihood.parents_[d, k]] = slopes[d, k]
    return W, slopes[:, -1]


def von_mises_fisher(theta):
    """The concentration, and the logarithm of the largest density."""
    kappa = np.linalg.norm(theta[1:])
    return kappa, reference.log_von_mises_fisher_constant(kappa, len(theta) - 1)


def angle_cdf(kappa, n_features, angle):
    """Distribution function of the angle to the mean of a von Mises-Fisher law."""
    grid = np.linspace(0.0, min(np.pi, 12.0 * np.sqrt(n_features / max(kappa, 1e-9))), 20_001)
    density = np.sin(grid) ** (n_features - 2) * np.exp(kappa * (np.cos(grid) - 1.0))
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return np.interp(angle, grid, mass / mass[-1])


def rates(likelihood, theta):
    return np.exp(np.split(theta[1:], 2)[0])


def negative_binomials(likelihood, theta):
    sizes = 1.0 / likelihood.dispersion
    p = np.exp(-np.split(theta[1:], 2)[1] / sizes)
    return [stats.nbinom(*column) for column in zip(sizes, p, strict=True)]


def probabilities(likelihood, theta):
    """Of the categories of each column."""
    if type(likelihood).__name__ == "Bernoulli":
        return np.exp(theta[:-1]).reshape(-1, 2)
    return np.split(np.exp(theta[:-1]), np.cumsum(likelihood.n_categories)[:-1])


# Densities.


@every
def test_log_densities_are_those_of_scipy(case):
    """Less a term of each row, the same for all parameters: `log_constants`."""
    params = np.vstack([case.draw(items, 2) for items in ([], [0, 3, 4], np.arange(case.n))])
    actual = case.model().log_densities(params)
    laws = [law(case.likelihood, theta) for theta in params]
    expected = np.array([[log_density(x) for x in case.dense] for log_density in laws])
    gaps = expected - actual
    np.testing.assert_allclose(gaps, np.tile(gaps[0], (len(params), 1)), atol=1e-8, rtol=1e-9)
    np.testing.assert_allclose(
        gaps[0], case.likelihood.log_constants(case.X), atol=1e-7, rtol=1e-9
    )


@every
@pytest.mark.parametrize("n_params", [1, 2, 7, 8, 9, 19])
@pytest.mark.some(9)
def test_log_densities_have_the_same_bits_in_any_tile(case, n_params):
    params = case.draw([0, 3, 4], n_params)
    model = case.model(case.many)
    together = model.log_densities(params)
    order = np.random.default_rng(2).permutation(N_TILES)[:700]
    np.testing.assert_array_equal(model.log_densities(params, order), together[:, order])
    block = case.model(case.many[500:530])
    np.testing.assert_array_equal(block.log_densities(params), together[:, 500:530])
    for i in (0, 511, 512, N_TILES - 1):
        np.testing.assert_array_equal(model.log_densities(params, [i])[:, 0], together[:, i])
    for k in range(n_params):
        np.testing.assert_array_equal(model.log_densities(params[[k]])[0], together[k])


@every
def test_blocks_without_rows(case):
    model = case.model(case.X[:0])
    params = case.draw([1, 2], 2)
    assert model.n_samples == 0
    assert model.log_densities(params).shape == (2, 0)
    row = case.stats([1, 2])
    np.testing.assert_array_equal(accumulated(model, row), row)
    again = model.draw(row[None], np.ones(1), np.random.PCG64(0))
    np.testing.assert_array_equal(again, params[:1])


# Statistics.


@every
def test_accumulate_is_adding_one_by_one(case):
    rng = np.random.default_rng(3)
    model = case.model(case.many)
    for n_first, n_then in ((0, 1), (0, N_TILES), (1, 700), (400, 5), (7, 0)):
        items = rng.permutation(N_TILES)[: n_first + n_then]
        row = case.stats(items[:n_first], case.many)
        actual = accumulated(model, row, items[n_first:])
        expected = case.stats(items, case.many)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
        second = accumulated(model, np.zeros(model.n_stats), items[n_first:])
        np.testing.assert_allclose(
            model.combined([row], [second])[0], expected, rtol=1e-9, atol=1e-9
        )


def other_forms(X):
    """The same rows in other types and layouts, as far as these can hold them."""
    if sp.issparse(X):
        rng = np.random.default_rng(4)
        for dtype in (np.uint16, np.float32, np.int64):
            yield sp.csr_array(X, dtype=dtype)
        # Entries in any order, some of them in two parts, some of them zero.
        Y = X.tocoo()
        half = np.floor(Y.data / 2)
        row, column = np.tile(np.concatenate(Y.coords).reshape(2, -1), 2)
        indices, data, indptr = [], [], [0]
        for i in range(X.shape[0]):
            mine = rng.permutation(np.flatnonzero(row == i))
            indices += [*column[mine], 0]
            data += [*np.concatenate([half, Y.data - half])[mine], 0.0]
            indptr.append(len(indices))
        form = sp.csr_array((data, np.array(indices, dtype=np.int64), indptr), shape=X.shape)
        assert (form.toarray() == X.toarray()).all()
        yield form
        yield sp.csr_matrix(X)
        yield X.toarray()
        return
    yield np.asfortranarray(X)
    yield np.repeat(X, 2, axis=0)[::2]
    yield X.astype(">f8")
    if np.array_equal(X, X.astype(np.float32), equal_nan=True):
        yield X.astype(np.float32)
    if not np.isnan(X).any() and (np.floor(X) == X).all():
        yield X.astype(np.int32)
        yield X.astype(np.int64)
        if X.max() <= 255:
            yield X.astype(np.uint8)
        if X.max() <= 1:
            yield X.astype(bool)


@every
def test_other_types_and_layouts(case):
    items = [0, 2, 5]
    params = case.draw(items, 9)
    forms = list(other_forms(case.X))
    for form in forms:
        model = case.model(form)
        expected = case.model().log_densities(params)
        np.testing.assert_allclose(model.log_densities(params), expected, rtol=1e-9, atol=1e-9)
        row = accumulated(model, np.zeros(model.n_stats), items)
        np.testing.assert_allclose(row, case.stats(items), rtol=1e-9, atol=1e-9)
        assert_same_likelihood(case.given.resolve(form), case.likelihood)
        np.testing.assert_allclose(
            case.likelihood.log_constants(form),
            case.likelihood.log_constants(case.X),
            rtol=1e-12,
        )
    assert len(forms) >= 3


def test_float32_gaussian():
    """Rows that float32 cannot hold in full, far from the prior mean."""
    X = np.random.default_rng(0).normal(5.0, 1.0, size=(700, 3)).astype(np.float32)
    for covariance_type in ("full", "diag", "sparse", "tied", "spherical"):
        given = Gaussian(mean=1.0 / 3.0, covariance_type=covariance_type)
        exact = Case("", given, X.astype(np.float64))
        params = exact.draw([3, 4, 5], 3)
        np.testing.assert_array_equal(
            exact.model(X).log_densities(params), exact.model().log_densities(params)
        )
        assert_same_likelihood(given.resolve(X), exact.likelihood)


@every
def test_marginal_from_blocks(case):
    """Statistics of blocks in a cluster kernel."""
    probe = case.probe(case.many)
    for i in range(N_TILES):
        probe.add(0, i)
    expected = probe.log_marginal(0)
    rows = []
    for block in (case.many[:700], case.many[700:700], case.many[700:]):
        model = case.model(block)
        rows.append(accumulated(model, np.zeros(model.n_stats)))
    total = reduce(lambda a, b: model.combined([a], [b])[0], rows)
    probe.model.load([total])
    np.testing.assert_allclose(probe.log_marginal(0), expected, rtol=1e-9, atol=1e-7)


# Draws.


def pivots(case, items, power, params):
    """Functions of the parameters with a known law: {name: (values, distribution function)}."""
    likelihood, X = case.likelihood, case.dense[items]
    if isinstance(likelihood, Product):
        drawn = [list(parts_of(likelihood, theta)) for theta in params]
        return {
            f"part {p}, {name}": pivot
            for p, (part, where, _) in enumerate(drawn[0])
            for name, pivot in pivots(
                SimpleNamespace(likelihood=part, dense=case.dense[:, where]),
                items,
                power,
                np.array([each[p][2] for each in drawn]),
            ).items()
        }
    if isinstance(likelihood, Subspace):
        X = (X - likelihood.center_) @ likelihood.axes_.T
        likelihood = likelihood._inner
    name = type(likelihood).__name__
    D = X.shape[1]
    out = {}
    if isinstance(likelihood, Grid):
        log_p = power * log_table(likelihood, X).sum(axis=0) + likelihood.log_weights
        rng = np.random.default_rng(0)
        for d, p in enumerate(np.exp(log_p - log_p.max(axis=1, keepdims=True))):
            # A uniform variate within the step of the distribution function.
            ends = np.append(0.0, np.cumsum(p / p.sum()))
            m = params[:, d].astype(int)
            out[f"point {d}"] = ends[m] + rng.random(len(m)) * np.diff(ends)[m], stats.uniform.cdf
        return out
    if name == "VonMisesFisher":
        # Of the concentration, made continuous; of the angle between the mean direction and the
        # sum of rows; and of the part of the mean direction that is across.
        X = X[X.any(axis=1)]
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        r = power * X.sum(axis=0)
        grid = reference.von_mises_fisher_grid(likelihood.concentration, likelihood.spread)
        length, n = np.linalg.norm(r), power * len(X)
        log_p = n * reference.log_von_mises_fisher_constant(grid, D) - n * grid
        log_p -= reference.log_von_mises_fisher_constant(grid * length, D) - grid * length
        below = np.cumsum(np.exp(log_p - log_p.max()))
        kappa = np.linalg.norm(params[:, 1:], axis=1)
        g = np.abs(np.log(kappa[:, None] / grid)).argmin(axis=1)
        first = np.concatenate([[0.0], below])[g]
        u = np.random.default_rng(0).random(len(g))
        out["concentration"] = (first + u * (below[g] - first)) / below[-1], stats.uniform.cdf
        axis = r / length if length > 0.0 else np.eye(D)[0]
        along = params[:, 1:] @ axis / kappa
        across = params[:, 1:] / kappa[:, None] - along[:, None] * axis
        angles = np.arctan2(np.linalg.norm(across, axis=1), along)
        u = [angle_cdf(k * length, D, angle) for k, angle in zip(kappa, angles, strict=True)]
        out["angle"] = np.array(u), stats.uniform.cdf
        if D > 2:
            side = np.linalg.svd(axis[None])[2][-1]
            w = across @ side / np.linalg.norm(across, axis=1)
            out["across"] = (1.0 + w) / 2.0, stats.beta(D / 2 - 1, D / 2 - 1).cdf
        return out
    if name == "Gaussian":
        known = ~np.isnan(X)
        n = power * known.sum(axis=0)
        u, r, nu, S = (
            likelihood.mean,
            likelihood.mean_precision,
            likelihood.df,
            likelihood.scale,
        )
        x_bar = np.where(known, X, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        gaps = np.where(known, X - x_bar, 0.0)
        rho = r + n
        pull = r * n / rho
        m = u + n / rho * (x_bar - u)
        moments = [gaussian_moments(likelihood, theta) for theta in params]
        means = np.array([mean for mean, _ in moments])
        spread = np.array([covariance for _, covariance in moments])
        if likelihood.covariance_type == "spherical":
            S = S + (power * gaps**2 + pull * (x_bar - u) ** 2 / len(X)).sum()
            df = nu + n.sum()
            out["variance"] = S / spread[:, 0], stats.chi2(df).cdf
            z = (means - m) * np.sqrt(rho / spread)
            out["mean given variance"] = (z**2).sum(axis=1), stats.chi2(D).cdf
            out["mean"] = (means - m)[:, 0] * np.sqrt(rho[0] * df / S), stats.t(df).cdf
            return out
        if likelihood.covariance_type == "tied":
            z = (means - m) * np.sqrt(rho) @ np.linalg.inv(np.linalg.cholesky(S)).T
            out |= {f"mean {d}": (z[:, d], ndtr) for d in range(D)}
            out["mean"] = (z**2).sum(axis=1), stats.chi2(D).cdf
            return out
        if likelihood.covariance_type == "sparse":
            S = np.diag(S) + power * gaps.T @ gaps + pull[0] * np.outer(x_bar - u, x_bar - u)
            roots = np.array([regressions(likelihood, theta)[0] for theta in params])
            z = np.einsum("kde,ke->kd", roots, means - m) * np.sqrt(rho[0])
            for d in range(D):
                others = likelihood.parents_[d][likelihood.parents_[d] >= 0]
                slopes = np.linalg.solve(S[np.ix_(others, others)], S[others, d])
                square = (S[d, d] - slopes @ S[others, d]) * roots[:, d, d] ** 2
                out[f"variance {d}"] = square, stats.chi2(nu + n[0]).cdf
                more = roots[:, d, others] + slopes * roots[:, d, d, None]
                more = np.einsum("kd,de,ke->k", more, S[np.ix_(others, others)], more)
                if len(others):
                    out[f"slopes {d}"] = more, stats.chi2(len(others)).cdf
                out[f"mean {d}"] = z[:, d], ndtr
            return out
        if likelihood.covariance_type == "diag":
            S = S + power * (gaps**2).sum(axis=0) + pull * (x_bar - u) ** 2
            for d in range(D):
                out[f"variance {d}"] = S[d] / spread[:, d], stats.chi2(nu + n[d]).cdf
                t = (means[:, d] - m[d]) * np.sqrt(rho[d] * (nu + n[d]) / S[d])
                out[f"mean {d}"] = t, stats.t(nu + n[d]).cdf
                z = (means[:, d] - m[d]) * np.sqrt(rho[d] / spread[:, d])
                out[f"mean {d} given variance"] = z, ndtr
            return out
        n, rho = n[0], rho[0]
        a = np.linspace(1.0, -0.7, D)
        S = (
            reference.as_matrix(S, D)
            + power * gaps.T @ gaps
            + pull[0] * np.outer(x_bar - u, x_bar - u)
        )
        precision = np.linalg.inv(spread)
        df = nu + n - D + 1
        ratio = precision @ a @ a / (np.linalg.inv(S) @ a @ a)
        out["precision"] = ratio, stats.chi2(nu + n).cdf
        out["covariance"] = (S @ a @ a) / (spread @ a @ a), stats.chi2(df).cdf
        t = (means - m) @ a * np.sqrt(rho * df / (S @ a @ a))
        out["mean"] = t, stats.t(df).cdf
        squares = rho * np.einsum("kd,kde,ke->k", means - m, precision, means - m)
        out["mean given covariance"] = squares, stats.chi2(D).cdf
    elif name == "Poisson":
        drawn = np.array([rates(likelihood, theta) for theta in params])
        for d in range(D):
            known = X[~np.isnan(X[:, d]), d]
            posterior = stats.gamma(
                likelihood.shape + power * known.sum(),
                scale=1.0 / (likelihood.rate + power * len(known)),
            )
            out[f"rate {d}"] = drawn[:, d], posterior.cdf
    elif name == "NegativeBinomial":
        drawn = np.array([np.exp(np.split(theta[1:], 2)[0]) for theta in params])
        for d in range(D):
            known = X[~np.isnan(X[:, d]), d]
            phi, shape, rate = likelihood.dispersion[d], likelihood.shape, likelihood.rate
            worth = rate + shape * phi
            posterior = stats.beta(
                worth * shape / rate + power * known.sum(),
                1.0 + (worth + power * len(known)) / phi,
            )
            out[f"probability {d}"] = drawn[:, d], posterior.cdf
    else:
        if name == "Multinomial":
            base = np.ones(D) * (likelihood.base if np.ndim(likelihood.base) else 1.0)
            prior = likelihood.concentration * base / base.mean()
            columns = [(X.sum(axis=0), prior, np.exp(params))]
        else:
            drawn = [probabilities(likelihood, theta) for theta in params]
            columns = []
            for d in range(D):
                p = np.array([theta[d] for theta in drawn])
                counts = np.array([(X[:, d] == code).sum() for code in range(p.shape[1])])
                if name == "Bernoulli":
                    pair = (likelihood.b, likelihood.a)
                    prior = np.array([np.broadcast_to(x, D)[d] for x in pair])
                else:
                    concentration = np.broadcast_to(likelihood.concentration, D)
                    prior = np.full(p.shape[1], concentration[d])
                columns.append((counts, prior, p))
        for d, (counts, prior, p) in enumerate(columns):
            shapes = prior + power * counts
            np.testing.assert_allclose(p.sum(axis=1), 1.0)
            for t in range(len(shapes)):
                beta = stats.beta(shapes[t], shapes.sum() - shapes[t])
                out[f"probability {d}, {t}"] = p[:, t], beta.cdf
            if len(shapes) > 2:
                beta = stats.beta(shapes[:2].sum(), shapes[2:].sum())
                out[f"probability {d}, 0 or 1"] = p[:, :2].sum(axis=1), beta.cdf
    return out


@every
@pytest.mark.parametrize("powers", [(0.5,), pytest.param((0.0, 1.0), marks=pytest.mark.slow)])
@pytest.mark.long
def test_draws_follow_the_posterior(case, powers, seed_sequence):
    items = [1, 2, 3, 5, 8, 9]
    runs = {}
    for power in powers:
        for pivot in pivots(case, items, power, case.draw(items, 2)):

            def run(seed, factor, power=power, pivot=pivot):
                params = case.draw(items, round(500 * factor), power=power, seed=seed)
                values, cdf = pivots(case, items, power, params)[pivot]
                return stats.kstest(values, cdf).pvalue

            runs[f"power {power}, {pivot}"] = run
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@every
def test_mean_density_is_the_predictive(case, seed_sequence):
    """The mean of p(x | theta) over the posterior of theta given other rows."""
    if case.name in ("poisson2", "grid2"):
        pytest.skip("rows so precise that no drawn parameter comes near those of another row")
    items = np.arange(2, case.n)
    log_marginal = reference_of(case.likelihood, case.dense)
    hyper = numbers_of(case.likelihood)
    before = log_marginal(case.dense[items], **hyper)
    for i in (0, 1):
        log_predictive = log_marginal(case.dense[[i, *items]], **hyper) - before
        (constant,) = case.likelihood.log_constants(case.X[i : i + 1])

        def run(seed, factor, i=i, shift=constant - log_predictive):
            params = case.draw(items, round(4000 * factor), seed=seed)
            ratios = np.exp(case.model().log_densities(params, [i])[:, 0] + shift)
            if np.ptp(ratios) < 1e-9:  # a row of zeros, or without entries
                return float(np.isclose(ratios[0], 1.0))
            return stats.ttest_1samp(ratios, 1.0).pvalue

        assert_p(run, seed_sequence=seed_sequence)


# Blocks of rows.


def assert_same_likelihood(actual, desired):
    assert type(actual) is type(desired)
    assert vars(actual).keys() == vars(desired).keys()
    for name, value in vars(desired).items():
        if name == "_fitted_levels":
            for one, other in zip(getattr(actual, name), value, strict=True):
                np.testing.assert_array_equal(one, other)
        elif name == "parts":
            for (_, part, _), (_, other, _) in zip(actual.parts, value, strict=True):
                assert_same_likelihood(part, other)
        elif name in ("_positions", "_columns"):
            np.testing.assert_equal(getattr(actual, name), value)
        elif isinstance(value, Recording):
            np.testing.assert_equal(vars(getattr(actual, name)), vars(value))
        elif isinstance(value, Likelihood):  # of coordinates
            assert_same_likelihood(getattr(actual, name), value)
        elif isinstance(value, (str, Hyperprior, type(None))) or callable(value):
            assert getattr(actual, name) == value
        elif isinstance(value, dict):  # hyperpriors
            other = getattr(actual, name)
            assert other.keys() == value.keys()
            for key, prior in value.items():
                for field in dataclasses.fields(prior):
                    each, actual_entry = (getattr(p, field.name) for p in (prior, other[key]))
                    if isinstance(each, Hyperprior):
                        assert actual_entry == each
                    else:
                        np.testing.assert_allclose(actual_entry, each, 1e-10, 1e-12)
        else:
            np.testing.assert_allclose(
                getattr(actual, name), value, rtol=1e-10, atol=1e-12, err_msg=name
            )


@every
def test_summaries_of_blocks_are_that_of_the_whole(case):
    for cuts in ([], [5], [0, 4, 4, 7], [12], list(range(1, case.n))):
        blocks = [case.X[a:b] for a, b in zip([0, *cuts], [*cuts, case.n], strict=True)]
        summaries = [case.given.summarise(block) for block in blocks]
        actual = case.given.resolve_summary(reduce(case.given.merge_summaries, summaries))
        assert_same_likelihood(actual, case.likelihood)


# Divergences.


def divergence(likelihood, a, b):
    """KL(a | b), by sums over all rows or by a quadrature that is exact for squares. Half the
    squared distance of points of a `Grid`, which has no divergence."""
    if isinstance(likelihood, Grid):
        grid = likelihood.grid.reshape(len(likelihood.grid), -1)
        gaps = (grid[a.astype(int)] - grid[b.astype(int)]) / grid.std(axis=0)
        return 0.5 * (gaps**2).sum()
    if isinstance(likelihood, Product):
        pairs = zip(parts_of(likelihood, a), parts_of(likelihood, b), strict=True)
        return sum(divergence(part, mine, other) for (part, _, mine), (*_, other) in pairs)
    if isinstance(likelihood, Subspace):
        likelihood = likelihood._inner
    name = type(likelihood).__name__
    if name == "VonMisesFisher":
        (kappa, constant), (other, other_constant) = map(von_mises_fisher, (a, b))
        nu = len(a) / 2 - 1.5
        mean = a[1:] / kappa * ive(nu + 1, kappa) / ive(nu, kappa)
        return constant - kappa - (other_constant - other) + (a - b)[1:] @ mean
    if name == "Poisson":
        x = np.arange(5000)
        pairs = zip(rates(likelihood, a), rates(likelihood, b), strict=True)
        total = 0.0
        for rate, other in pairs:
            if max(rate, other) > 1000:  # a window around the first mean
                x = np.arange(max(0, int(rate - 40 * rate**0.5)), int(rate + 40 * rate**0.5 + 40))
            p = stats.poisson(rate).pmf(x)
            total += p @ (stats.poisson(rate).logpmf(x) - stats.poisson(other).logpmf(x))
        return total
    if name == "NegativeBinomial":
        # log p(x | a) - log p(x | b) is linear in x.
        pairs = zip(
            negative_binomials(likelihood, a), negative_binomials(likelihood, b), strict=True
        )
        x = np.arange(2)
        gaps = [(one.logpmf(x) - other.logpmf(x), one.mean()) for one, other in pairs]
        return sum(gap[0] + (gap[1] - gap[0]) * mean for gap, mean in gaps)
    if name == "Gaussian":
        mean, covariance = gaussian_moments(likelihood, a)
        nodes, weights = np.polynomial.hermite_e.hermegauss(3)
        D = len(mean)
        grid = np.stack(np.meshgrid(*[nodes] * D), axis=-1).reshape(-1, D)
        weights = np.stack(np.meshgrid(*[weights] * D), axis=-1).reshape(-1, D).prod(axis=1)
        if covariance.ndim == 1:
            covariance = np.diag(covariance)
        x = mean + grid @ np.linalg.cholesky(covariance).T
        log_a, log_b = law(likelihood, a), law(likelihood, b)
        return weights @ [log_a(row) - log_b(row) for row in x] / weights.sum()
    columns = (
        [(np.exp(a), np.exp(b))]
        if name == "Multinomial"
        else zip(probabilities(likelihood, a), probabilities(likelihood, b), strict=True)
    )
    return sum(stats.entropy(p, q) for p, q in columns)


@every
def test_divergences(case):
    params = np.vstack([case.draw(items, 2) for items in ([0, 3, 4, 7], np.arange(case.n))])
    actual = case.likelihood.divergences(params)
    for i, j in itertools.combinations(range(len(params)), 2):
        a, b = params[i], params[j]
        expected = divergence(case.likelihood, a, b) + divergence(case.likelihood, b, a)
        np.testing.assert_allclose(actual[i, j], expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(actual.diagonal(), 0.0, atol=1e-8)
    np.testing.assert_array_equal(actual, actual.T)
