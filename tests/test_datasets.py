# SPDX-License-Identifier: BSD-3-Clause
"""skdpm.datasets: shapes, seeds, and the laws that the docstrings state."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import expit
from scipy.stats import betabinom, binom, kstest, norm
from support.pvalues import Cells, assert_p, correct_for_number

from skdpm import datasets
from skdpm.datasets import (
    CAMBRIDGE_BARS,
    make_cambridge_bars,
    make_embeddings,
    make_gaussian_mixture,
    make_high_dimensional_gaussians,
    make_lfrm,
    make_linear_gaussian_features,
    make_pyclone,
    make_subclones,
)

# Name -> shape of X and number of clusters, by default.
DEFAULTS = {
    "make_gaussian_mixture": ((5000, 2), 15),
    "make_high_dimensional_gaussians": ((1024, 128), 16),
}
each_mixture = pytest.mark.parametrize("name", DEFAULTS)

# Name -> shape of X and number of components, by default.
FEATURE_DEFAULTS = {
    "make_cambridge_bars": ((100, 36), 4),
    "make_linear_gaussian_features": ((1000, 10), 20),
}
# Name -> number of nodes and of components, by default.
NETWORK_DEFAULTS = {"make_lfrm": (100, 20)}
each_allocation = pytest.mark.parametrize("name", FEATURE_DEFAULTS)
MUTATIONS = ("make_subclones", "make_pyclone")
GENERATORS = [*DEFAULTS, "make_embeddings", *FEATURE_DEFAULTS, *NETWORK_DEFAULTS, *MUTATIONS]
each_generator = pytest.mark.parametrize("name", GENERATORS)


def test_every_generator_is_tested():
    assert sorted(GENERATORS) == sorted(datasets.__all__)


@each_mixture
def test_shapes_and_sizes_of_clusters(name):
    shape, n_clusters = DEFAULTS[name]
    for n_samples in (shape[0], 1, n_clusters + 1):
        X, labels = getattr(datasets, name)(n_samples, random_state=0)
        assert X.shape == (n_samples, shape[1]) and X.dtype == np.float64
        assert np.isfinite(X).all()
        assert labels.shape == (n_samples,) and labels.dtype == np.int64
        sizes = np.bincount(labels, minlength=n_clusters)
        assert len(sizes) == n_clusters and np.ptp(sizes) <= 1


def test_embeddings(seed_sequence):
    """Classes that are points without spread and noise, and noise of the size asked for."""
    size = {"n_samples": 12_000, "n_features": 7, "n_clusters": 5}

    def run(seed, factor):
        seed = int(seed.generate_state(1)[0])
        with_noise, labels = make_embeddings(**size, spread=0.3, noise=0.5, random_state=seed)
        X, same_labels = make_embeddings(**size, spread=0.3, noise=0.0, random_state=seed)
        assert X.shape == (12_000, 7) and labels.dtype == np.int64
        np.testing.assert_array_equal(labels, same_labels)
        return kstest(((with_noise - X) / 0.5).ravel(), "norm").pvalue

    assert_p(run, seed_sequence=seed_sequence)
    X, labels = make_embeddings(**size, spread=0.0, noise=0.0, random_state=0)
    sizes = np.bincount(labels, minlength=5)
    assert sizes.sum() == 12_000 and np.ptp(sizes) > 100
    for k in range(5):
        np.testing.assert_allclose(X[labels == k], X[labels == k][:1].repeat(sizes[k], axis=0))


@each_allocation
def test_shapes_of_allocations(name):
    shape, n_components = FEATURE_DEFAULTS[name]
    for n_samples in (shape[0], 1):
        X, Z, components = getattr(datasets, name)(n_samples, random_state=0)
        assert X.shape == (n_samples, shape[1]) and X.dtype == np.float64
        assert np.isfinite(X).all()
        assert Z.shape == (n_samples, n_components) and Z.dtype == bool
        assert components.shape == (n_components, shape[1]) and components.dtype == np.float64


@each_generator
@pytest.mark.some(3)
def test_one_seed_one_data_set(name):
    make = getattr(datasets, name)
    data = make(random_state=3)
    again = make(random_state=np.int64(3))
    assert all(np.array_equal(one, other) for one, other in zip(data, again, strict=True))
    for random_state in (4, None, np.random.default_rng(3)):
        assert not np.array_equal(data[0], make(random_state=random_state)[0])
    rng = np.random.RandomState(3)
    assert not np.array_equal(make(random_state=rng)[0], make(random_state=rng)[0])


@pytest.mark.parametrize("n_clusters, spread", [(15, 0.03), (15, 0.06), (10, 0.02), (1, 0.5)])
def test_gaussian_mixture_moments(n_clusters, spread):
    X, labels = make_gaussian_mixture(60_000, n_clusters=n_clusters, spread=spread, random_state=1)
    centres = np.array([X[labels == k].mean(axis=0) for k in range(n_clusters)])
    assert n_clusters == 1 or pdist(centres).min() > 0.145 - 0.1 * spread
    assert centres.min() > 0.13 - 0.1 * spread and centres.max() < 0.87 + 0.1 * spread
    variances = np.array([np.linalg.eigvalsh(np.cov(X[labels == k].T)) for k in range(n_clusters)])
    width = np.prod(variances, axis=1) ** 0.25
    assert (abs(width / spread - 1.0) < 0.23).all()
    assert (np.sqrt(variances[:, 1] / variances[:, 0]) < 1.65).all()


def test_gaussian_mixture_is_gaussian(seed_sequence):
    """Mahalanobis distances within a cluster follow chi-squared with two degrees of freedom."""

    def run(seed, factor):
        X, labels = make_gaussian_mixture(
            round(100_000 * factor), n_clusters=2, random_state=np.random.default_rng(seed)
        )
        x = X[labels == 0] - X[labels == 0].mean(axis=0)
        d = np.einsum("ni,ij,nj->n", x, np.linalg.inv(np.cov(x.T)), x)
        return kstest(d, "chi2", args=(2,)).pvalue

    assert_p(run, seed_sequence=seed_sequence)


def test_high_dimensional_gaussians_moments():
    X, labels = make_high_dimensional_gaussians(16_000, 64, random_state=0)
    centres = np.array([X[labels == k].mean(axis=0) for k in range(16)])
    widths = np.array([X[labels == k].std(axis=0) for k in range(16)])
    assert centres.min() > 39.5 and centres.max() < 215.5
    assert abs(centres.mean() - 127.5) < 6 and abs(centres.std() - 175 / np.sqrt(12)) < 4
    assert widths.min() > 0.9 and widths.max() < 2.9
    assert (np.ptp(widths, axis=1) < 0.6).all() and np.ptp(widths.mean(axis=1)) > 0.8
    assert pdist(centres).min() > 10 * widths.max()


def in_fifths(values, law):
    """Counts of integers in about a fifth of their law each."""
    edges = law.ppf([0.2, 0.4, 0.6, 0.8]).astype(int)
    counts = np.bincount(np.searchsorted(edges, values), minlength=5)
    return Cells(counts, np.diff(np.r_[0.0, law.cdf(edges), 1.0]))


def test_linear_gaussian_features_laws(seed_sequence):
    """Noise and components are Gaussian; counts of rows are Beta-binomial."""
    n, n_components, n_features = 400, 4, 50
    given = {"concentration": 3.0, "component_precision": 0.25, "noise_precision": 25.0}

    def draw(seed, factor):
        rng = np.random.default_rng(seed)
        return [
            make_linear_gaussian_features(n, n_components, n_features, random_state=rng, **given)
            for _ in range(round(20 * max(factor, 1)))
        ]

    def noise(seed, factor):
        residuals = [(X - Z @ components).ravel() for X, Z, components in draw(seed, factor)]
        return kstest(5.0 * np.concatenate(residuals), "norm").pvalue

    def entries(seed, factor):
        drawn = np.concatenate([components.ravel() for _, _, components in draw(seed, factor)])
        return kstest(0.5 * drawn, "norm").pvalue

    def counts(seed, factor):
        m = np.concatenate([Z.sum(axis=0) for _, Z, _ in draw(seed, factor)])
        return in_fifths(m, betabinom(n, given["concentration"] / n_components, 1.0))

    for run in (noise, entries, counts):
        assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("directed", [False, True])
def test_lfrm_laws(directed, seed_sequence):
    """Weights are Gaussian, counts of nodes Beta-binomial, and links as their log odds say."""
    n, n_components = 60, 3
    given = {"concentration": 3.0, "weight_precision": 0.5, "bias": -1.0, "directed": directed}

    def draw(seed, factor):
        rng = np.random.default_rng(seed)
        return [
            make_lfrm(n, n_components, random_state=rng, **given)
            for _ in range(round(60 * factor))
        ]

    def weights(seed, factor):
        drawn = np.concatenate(
            [W.ravel() if directed else W[np.triu_indices(3)] for _, _, W in draw(seed, factor)]
        )
        return kstest(np.sqrt(0.5) * drawn, "norm").pvalue

    def counts(seed, factor):
        m = np.concatenate([Z.sum(axis=0) for _, Z, _ in draw(seed, factor)])
        return in_fifths(m, betabinom(n, 1.0, 1.0))

    def links(seed, factor):
        """Of pairs with like log odds: their sum against its mean and deviation."""
        gaps = []
        pairs = np.nonzero(~np.eye(n, dtype=bool) if directed else np.triu(np.ones((n, n)), 1))
        drawn = draw(seed, factor)
        x = np.concatenate([X[pairs] for X, _, _ in drawn])
        p = np.concatenate([expit(Z @ W @ Z.T - 1.0)[pairs] for _, Z, W in drawn])
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
            of = (p >= low) & (p < high)
            gaps.append((x - p)[of].sum() / np.sqrt((p * (1 - p))[of].sum()))
        return min(1.0, 6 * norm.sf(np.abs(gaps).max()))

    for run in (weights, counts, links):
        assert_p(run, seed_sequence=seed_sequence)
    X, Z, W = make_lfrm(random_state=0, directed=directed)
    assert X.shape == (100, 100) and Z.shape == (100, 20) and W.shape == (20, 20)
    assert set(np.unique(X)) == {0.0, 1.0} and not X.diagonal().any() and Z.dtype == bool
    assert (X == X.T).all() == (W == W.T).all() == (not directed)


def test_cambridge_bars():
    X, Z, components = make_cambridge_bars(20_000, noise=0.3, random_state=0)
    assert np.array_equal(components.reshape(4, 6, 6), CAMBRIDGE_BARS)
    assert set(np.unique(components)) == {0.0, 1.0} and np.linalg.matrix_rank(components) == 4
    assert (components.sum(axis=0) == 2).any()  # parts overlap
    residual = X - Z @ components
    assert abs(residual.std() - 0.3) < 0.002 and abs(residual.mean()) < 0.002
    assert abs(np.cov(Z.T.astype(float)) - np.eye(4) / 4).max() < 0.01
    assert abs(Z.mean(axis=0) - 0.5).max() < 0.02
    components[:] = 0.0  # a copy
    assert CAMBRIDGE_BARS.any()
    X, Z, components = make_cambridge_bars(50, noise=0.0, random_state=0)
    assert np.array_equal(X, Z @ components)


@each_generator
@pytest.mark.parametrize(
    "bad, message",
    [
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"n_samples": np.int64(0)}, "n_samples must be at least 1, got 0"),
        ({"n_samples": 10.0}, "n_samples must be an integer"),
        ({"random_state": "seed"}, "random_state must be"),
    ],
)
def test_bad_input_of_all(name, bad, message):
    with pytest.raises(ValueError, match=message):
        getattr(datasets, name)(**bad)


@pytest.mark.parametrize(
    "make, bad, message",
    [
        (make_gaussian_mixture, {"spread": 0.0}, "spread must be finite and > 0"),
        (make_gaussian_mixture, {"separation": -1.0}, "separation must be finite and >= 0"),
        (make_gaussian_mixture, {"separation": 0.3}, "separation=0.3 is too large for 15 centres"),
        (make_high_dimensional_gaussians, {"n_features": 0}, "n_features must be at least 1"),
        (make_high_dimensional_gaussians, {"n_clusters": 0}, "n_clusters must be at least 1"),
        (make_embeddings, {"n_dimensions": 0}, "n_dimensions must be at least 1"),
        (make_embeddings, {"spread": -1.0}, "spread must be finite and >= 0"),
        (make_embeddings, {"noise": -1.0}, "noise must be finite and >= 0"),
        (make_cambridge_bars, {"noise": -1.0}, "noise must be finite and >= 0"),
        (make_lfrm, {"n_components": 0}, "n_components must be at least 1"),
        (make_lfrm, {"concentration": 0.0}, "concentration must be finite and > 0"),
        (make_lfrm, {"weight_precision": 0.0}, "weight_precision must be finite and > 0"),
        (make_lfrm, {"bias": np.inf}, "bias must be"),
        (make_lfrm, {"directed": "no"}, "directed must be"),
        (make_linear_gaussian_features, {"n_components": 0}, "n_components must be at least 1"),
        (make_linear_gaussian_features, {"n_features": 0}, "n_features must be at least 1"),
        (make_linear_gaussian_features, {"concentration": 0.0}, "concentration must be finite"),
        (make_linear_gaussian_features, {"noise_precision": 0.0}, "noise_precision must be fini"),
        (make_linear_gaussian_features, {"component_precision": -1.0}, "component_precision must"),
    ],
)
def test_bad_input(make, bad, message):
    with pytest.raises(ValueError, match=message):
        make(**bad)


def test_shapes_of_mutations():
    for n in (1, 30):
        X, labels, prevalences = make_pyclone(n, 3, n_clusters=4, random_state=0)
        assert X.shape == (n, 18) and X.dtype == np.float64
        assert labels.shape == (n,) and labels.dtype == np.int64
        assert prevalences.shape == (4, 3)
        X, Z, prevalences = make_subclones(n, 5, 3, random_state=0)
        assert X.shape == (n, 18)
        assert Z.shape == (n, 5) and Z.dtype == bool
        assert prevalences.shape == (5, 3) and prevalences.flags.c_contiguous
        np.testing.assert_allclose(prevalences.sum(axis=0), 1.0)


CONTENTS = np.array([1.0, 0.6, 0.3])


@pytest.mark.parametrize("precision", [None, 30.0])
@pytest.mark.parametrize("make", [make_pyclone, make_subclones])
def test_reads_of_mutations(make, precision, seed_sequence):
    """One of two copies has the mutation, or the only one that is left."""

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        p = []
        for copy_numbers, share in (((1, 1), 1 / 2), ((0, 1), 1.0)):
            X, Z, F = make(
                round(1000 * factor),
                n_tumour_samples=3,
                depth=80.0,
                copy_numbers=[copy_numbers],
                tumour_content=CONTENTS,
                precision=precision,
                error_rate=0.01,
                random_state=rng,
            )
            phi = F[Z] if make is make_pyclone else np.minimum(Z @ F, 1.0)
            ref, alt, *kind = X.reshape(len(X), 3, 6).transpose(2, 0, 1)
            total = sum(copy_numbers)
            assert (np.array(kind[:3]).T == [2, *copy_numbers]).all()
            assert (kind[3] == CONTENTS).all()
            # One copy is left in all cancer cells, or in those that have the mutation.
            laws = []
            for others in {2, total}:
                cells = np.array([2 * (1 - kind[3]), kind[3] * (1 - phi) * others])
                with_it = kind[3] * phi * total
                variant = 0.01 * cells.sum(axis=0) + with_it * min(share, 0.99)
                xi = variant / (cells.sum(axis=0) + with_it)
                if precision is None:
                    law = binom(ref + alt, xi)
                else:
                    law = betabinom(ref + alt, precision * xi, precision * (1 - xi))
                laws.append([law.cdf(alt - 1), law.pmf(alt)])
            below, at = np.mean(laws, axis=0)
            u = below + rng.random(below.shape) * at
            # The genotype is the mutation's, in all samples: a sample at a time.
            p += [kstest(u[:, m], "uniform").pvalue for m in range(3)]
        return correct_for_number(min(p), len(p))

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("make", [make_pyclone, make_subclones])
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"tumour_content": [0.5, 0.6]}, "tumour_content must be a number or 4 numbers"),
        ({"tumour_content": 1.5}, "tumour_content above 0 and at most 1"),
        ({"copy_numbers": (1, 1)}, r"copy_numbers must be pairs .* got \(1, 1\)"),
        ({"copy_numbers": [(2, 1)]}, "minor_cn of at most major_cn"),
        ({"depth": 0.0}, "depth must be finite and > 0"),
        ({"precision": -1.0}, "precision must be finite and > 0"),
        ({"error_rate": 0.5}, "error_rate must be finite"),
        ({"n_tumour_samples": 0}, "n_tumour_samples must be at least 1"),
    ],
)
def test_mutations_that_cannot_be(make, params, message):
    with pytest.raises(ValueError, match=message):
        make(20, **params)
