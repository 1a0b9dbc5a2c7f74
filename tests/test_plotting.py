"""Displays, by drawing them and by the properties of what is drawn.

Each property of an artist is compared with the draws themselves.
"""

import copy
import dataclasses
import itertools
import pickle
import sys
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.colors import to_rgb
from numpy.testing import assert_array_equal
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.departures import leave_out_departures
from support.designs import everyday

from skdpm import DPMixture, FeatureAllocation, FiniteMixture
from skdpm.datasets import make_cambridge_bars
from skdpm.mixture.likelihoods import Gaussian, Product, Subspace
from skdpm.partitions import MergeTree, coclustering_matrix, expected_loss, merge_tree
from skdpm.plotting import (
    AdjacencyDisplay,
    ClustersDisplay,
    CoclusteringDisplay,
    DensityDisplay,
    ExpectedLossDisplay,
    FeaturesDisplay,
    MergeTreeDisplay,
    NumberOfClustersDisplay,
    ProfilesDisplay,
    RelevanceDisplay,
    TraceDisplay,
    cluster_colors,
)
from skdpm.plotting._style import NOISE, Display

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = ["width", "height", "depth"]
SHORT = {"n_warmup": 20, "n_draws": 30, "random_state": 0}


def fitted(model, X, **params):
    """Short chains: whether they have mixed does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, **params)


@pytest.fixture(autouse=True)
def no_figures_left():
    settings = matplotlib.rcParams.copy()
    yield
    plt.close("all")
    assert matplotlib.rcParams == settings


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    slanted = rng.normal(size=(40, 3)) @ [[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 1.0]]
    other = rng.normal(size=(25, 3)) * [1.0, 0.5, 1.0] + [3.0, -2.0, 0.0]
    return pd.DataFrame(np.concatenate([slanted, other]), columns=NAMES)


@pytest.fixture(scope="module")
def model(table):
    """Each component is a cluster."""
    params = {"likelihood": "gaussian", "point_estimate": "vi", "n_chains": 2, **SHORT}
    return fitted(DPMixture(**params), table)


@pytest.fixture(scope="module")
def crowd():
    """60 clusters of two rows, and 20 chains."""
    rng = np.random.default_rng(0)
    X = 10.0 * np.repeat(np.stack(np.divmod(np.arange(60), 8), axis=1), 2, axis=0)
    X = X + 0.1 * rng.normal(size=X.shape)
    model = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=1e-4, df=20.0, scale=0.2),
        init=np.repeat(np.arange(60), 2),
        concentration=50.0,
        n_chains=20,
        n_warmup=0,
        n_draws=8,
        random_state=0,
    )
    with pytest.warns(UserWarning, match="120 rows of X are in 60 clusters .* hardly differ"):
        return fitted(model, X), X


def draw(display):
    """Draw it in full, as errors of artists show then alone."""
    display.figure_.draw_without_rendering()
    return display


def test_displays_say_what_they_draw_on_and_return():
    for cls in Display.__subclasses__():
        words = cls.from_estimator.__doc__
        assert words.count("\nax : matplotlib Axes") == 1, cls
        assert words.count("Parameters\n----------\nestimator : fitted estimator, or") == 1, cls
        assert f"\nReturns\n-------\ndisplay : {cls.__name__}\n" in words


@pytest.mark.long
def test_coclustering_matrix_is_that_of_the_draws_in_order_of_label_and_certainty(model):
    display = draw(CoclusteringDisplay.from_estimator(model))
    rows, labels = display.rows, model.labels_
    together = coclustering_matrix(model.label_samples_)
    shown, expected = np.array(display.im_.get_array()), together[np.ix_(rows, rows)]
    # On the diagonal, where rows are with themselves, as beside it; a lone row stays dark.
    for i, k in enumerate(labels[rows]):
        beside = [j for j in (i - 1, i + 1) if 0 <= j < len(rows) and labels[rows][j] == k]
        expected[i, i] = max((expected[i, j] for j in beside), default=1.0)
    np.testing.assert_array_equal(shown, expected)
    assert sorted(rows) == list(range(len(labels)))
    expected = np.empty(len(labels))
    for i, label in enumerate(labels):
        others = np.setdiff1d(np.flatnonzero(labels == label), i)
        alone = np.mean([np.sum(z == z[i]) == 1 for z in model.draws_["labels"].reshape(60, -1)])
        expected[i] = together[i, others].mean() if len(others) else alone
    np.testing.assert_allclose(display.certainty, expected[rows])
    assert (np.diff(labels[rows]) >= 0).all()
    for k in range(model.n_clusters_):
        assert (np.diff(expected[rows[labels[rows] == k]]) <= 1e-12).all()
    assert np.ptp(expected) > 0.1  # there is something to be in order


def test_coclustering_borders_and_strips_are_where_clusters_are(model):
    display = draw(CoclusteringDisplay.from_estimator(model, colorbar=False))
    sizes = np.bincount(model.labels_)
    assert [border.get_width() for border in display.borders_] == list(sizes)
    assert [border.get_x() for border in display.borders_] == list(
        np.cumsum([0, *sizes[:-1]]) - 0.5
    )
    colors = [strip.get_facecolor()[:3] for strip in display.strips_[::2]]
    np.testing.assert_allclose(colors, cluster_colors(len(sizes)))
    assert display.colorbar_ is None


def test_matrices_name_classes():
    X = np.repeat([[0.0], [9.0], [18.0]], 4, axis=0) + np.arange(12.0)[:, None] / 24
    model = DPMixture(n_chains=1, n_warmup=5, n_draws=5, random_state=0)
    model.fit(X, known_labels=np.repeat([0, 7, 1], 4))
    display = draw(CoclusteringDisplay.from_estimator(model))
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["0", "1", "7"]
    np.testing.assert_array_equal(display.labels, model.labels_[display.rows])


def test_coclustering_names_noise():
    labels = np.array([-1, -1, 0, 0, 1])
    display = draw(CoclusteringDisplay(np.eye(5), labels, np.ones(5), np.arange(5)).plot())
    for ticks in (display.ax_.get_xticklabels(), display.ax_.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == ["noise", "0", "1"]


def test_lone_rows_are_dark_whatever_the_order_of_clusters():
    labels = np.array([1, 0, 0])
    together = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.6], [0.0, 0.6, 1.0]])
    display = CoclusteringDisplay(together, labels, np.ones(3), np.arange(3)).plot()
    np.testing.assert_array_equal(np.diagonal(display.im_.get_array()), [1.0, 0.6, 0.6])


def test_coclustering_of_many_rows_is_of_a_sample_that_keeps_shares(model):
    display = draw(CoclusteringDisplay.from_estimator(model, max_rows=20))
    assert display.im_.get_array().shape == (20, 20)
    share = np.bincount(display.labels) / 20.0 - np.bincount(model.labels_) / 65.0
    assert np.abs(share).max() <= 1.0 / 20.0
    again = CoclusteringDisplay.from_estimator(model, max_rows=20)
    np.testing.assert_array_equal(display.rows, again.rows)


def test_bars_are_the_shares_of_all_chains_together(model, table):
    fused = NumberOfClustersDisplay.from_estimator(model, chains=False)
    shares = np.bincount(model.n_clusters_samples_.ravel()) / model.n_clusters_samples_.size
    np.testing.assert_allclose(fused.probabilities, shares[fused.counts])
    model = copy.deepcopy(model).estimate_labels(loss="vi", X=table)
    display = draw(NumberOfClustersDisplay.from_estimator(model, chains=True))
    heights = np.array([bar.get_height() for bar in display.bars_])
    centres = np.array([bar.get_x() + bar.get_width() / 2.0 for bar in display.bars_])
    assert heights.sum() == pytest.approx(1.0)
    numbers = model.n_components_samples_
    assert not np.array_equal(np.bincount(numbers[0]), np.bincount(numbers[1]))
    for centre, height in zip(centres, heights, strict=True):
        assert height == pytest.approx(np.mean(numbers == round(centre)))
    for line, own in zip(display.chains_, numbers, strict=True):
        np.testing.assert_allclose(
            line.get_ydata(), [np.mean(own == round(count)) for count in centres]
        )
    assert display.estimate_.get_xdata() == [model.n_clusters_]


@pytest.mark.slow
def test_interval_is_the_shortest_that_holds_the_level():
    def interval(level):
        counts, shares = np.arange(3, 8), np.array([0.3, 0.35, 0.2, 0.1, 0.05])
        display = NumberOfClustersDisplay(counts, shares, shares[None], 4, level=level)
        return display.plot().interval_

    assert interval(0.3) == (4, 4)
    assert interval(0.6) == (3, 4)
    assert interval(0.9) == (3, 6)
    assert interval(0.99) == (3, 7)


@pytest.mark.long
def test_chains_are_shown_where_they_disagree(table):
    numbers = np.array([[2] * 30, [3] * 30])
    apart = fitted(DPMixture(n_chains=2, point_estimate="vi", **SHORT), table)
    assert NumberOfClustersDisplay.from_estimator(apart, chains=False).chains_ == []
    apart.n_clusters_samples_ = apart.n_components_samples_ = numbers
    apart.diagnostics_ = {"n_components": {"r_hat": np.inf}}
    assert len(draw(NumberOfClustersDisplay.from_estimator(apart)).chains_) == 2
    apart.diagnostics_ = {"n_components": {"r_hat": 1.01}}
    assert NumberOfClustersDisplay.from_estimator(apart).chains_ == []


@pytest.fixture(scope="module")
def crescents():
    X, _ = make_moons(300, noise=0.06, random_state=0)
    return fitted(DPMixture(n_chains=2, **SHORT), X), X


@pytest.mark.parametrize("display", [ClustersDisplay, DensityDisplay])
def test_rows_of_other_columns_are_refused(display, model, table):
    with pytest.raises(ValueError, match="X has 2 features, but DPMixture is expecting 3"):
        display.from_estimator(model, table.to_numpy()[:, :2], 0)


@pytest.mark.slow
def test_clusters_of_several_components(crescents):
    """Ellipses and curves are of components, in the colour and by the sum of their cluster."""
    model, X = crescents
    assert model.n_clusters_ == 2
    display = draw(ClustersDisplay.from_estimator(model, X))
    assert len(display.ellipses_) == len(display.owners) > 4
    assert len(display.numbers_) == 2
    colors = cluster_colors(2)
    for ellipse, owner in zip(display.ellipses_, display.owners, strict=True):
        np.testing.assert_allclose(ellipse.get_facecolor()[:3], colors[owner])
    curves = draw(DensityDisplay.from_estimator(model, X, column=0)).clusters
    assert curves.shape[0] == 2
    matrix = draw(CoclusteringDisplay.from_estimator(model)).coclustering
    finer = draw(CoclusteringDisplay.from_estimator(model, of="components")).coclustering
    assert finer.mean() < matrix.mean()
    np.testing.assert_allclose(
        finer, coclustering_matrix(model.label_samples_, display_rows(model)), atol=1e-12
    )
    assert draw(NumberOfClustersDisplay.from_estimator(model)).estimate == 2
    components = draw(NumberOfClustersDisplay.from_estimator(model, of="components"))
    assert components.ax_.get_xlabel() == "number of components (60 draws)"
    assert components.counts.max() == model.n_components_samples_.max()
    for display in (CoclusteringDisplay, NumberOfClustersDisplay):
        with pytest.raises(ValueError, match="of must be one of clusters, components"):
            display.from_estimator(model, of="modes")


def display_rows(model):
    return np.lexsort((-model.probabilities_, model.labels_))


@pytest.mark.long
def test_traces_are_the_draws_of_each_chain(model):
    names = ["log_joint", "n_components", "concentration", "likelihood__df"]
    display = draw(TraceDisplay.from_estimator(model, names))
    assert len(display.axes_) == 4
    for axis, name in zip(display.axes_, names, strict=True):
        lines = display.lines_[name]
        assert [line.axes for line in lines] == [axis, axis]
        assert lines[0].get_color() != pytest.approx(lines[1].get_color())
        for line, chain in zip(lines, model.draws_[name], strict=True):
            np.testing.assert_array_equal(line.get_ydata(), chain)
            np.testing.assert_array_equal(line.get_xdata(), np.arange(21, 51))
        assert f"{model.diagnostics_[name]['r_hat']:.2f}" in axis.get_title(loc="right")
    assert "the 20 of the warm-up are not kept" in display.axes_[-1].get_xlabel()


def test_ticks_of_traces_are_whole_numbers_where_these_are(model):
    """Also where few draws of few numbers of clusters leave room for halves."""
    n_components = np.array([[2, 3, 2, 2], [3, 3, 2, 3]])
    traces = {"n_components": n_components, "concentration": n_components / 10}
    display = draw(TraceDisplay(traces, np.arange(4)).plot())
    of_numbers, of_concentrations = display.axes_
    for ticks in (of_numbers.get_yticks(), of_concentrations.get_xticks()):
        np.testing.assert_array_equal(ticks, np.round(ticks))
    assert np.any(of_concentrations.get_yticks() != np.round(of_concentrations.get_yticks()))


def test_traces_refuse_what_is_no_number(model, table):
    with pytest.raises(ValueError, match=r"scalar draws \(.*log_joint.*got 'labels'"):
        TraceDisplay.from_estimator(model, "labels")
    with pytest.raises(ValueError, match="at least one name"):
        TraceDisplay.from_estimator(model, [])
    for X in (table, table.to_numpy(), sp.csr_array(table.to_numpy())):
        with pytest.raises(TypeError, match=f"got {type(X).__name__}; TraceDisplay takes no X"):
            TraceDisplay.from_estimator(model, X)


def test_several_axes_may_be_given_or_share_the_place_of_one(model):
    names = ["log_joint", "n_components"]
    _, ax = plt.subplots()
    display = draw(TraceDisplay.from_estimator(model, names, ax=ax))
    assert display.figure_ is ax.figure and not ax.axison
    inside = [axis.get_position() for axis in display.axes_]
    place = ax.get_position()
    assert all(box.y0 >= place.y0 - 1e-9 and box.y1 <= place.y1 + 1e-9 for box in inside)
    _, axes = plt.subplots(1, 2)
    display = TraceDisplay.from_estimator(model, names, ax=axes)
    assert list(display.axes_) == list(axes)
    with pytest.raises(ValueError, match="draws on 2 axes, but got 1"):
        display.plot(axes[:1])
    with pytest.raises(ValueError, match="one axis of a grid"):
        display.plot(plt.figure().add_axes((0.1, 0.1, 0.8, 0.8)))


def test_ellipses_are_those_of_the_posterior_means(model, table):
    display = draw(ClustersDisplay.from_estimator(model, table, ["depth", "height"]))
    params, K = model.cluster_params_, model.n_clusters_
    assert len(display.ellipses_) == 2 * K
    turn = np.linspace(0.0, 2.0 * np.pi, 9)
    for n_deviations in (1, 2):
        for k, ellipse in enumerate(display.ellipses_[K * (n_deviations - 1) :][:K]):
            np.testing.assert_allclose(ellipse.center, params["means"][k, [2, 1]])
            covariance = params["covariances"][k][np.ix_([2, 1], [2, 1])]
            lengths = 2.0 * n_deviations * np.sqrt(np.linalg.eigvalsh(covariance))
            np.testing.assert_allclose(sorted([ellipse.width, ellipse.height]), lengths)
            # Every point of it is as far from the mean in the metric of the covariance.
            circle = np.column_stack([np.cos(turn), np.sin(turn)])
            points = ellipse.get_patch_transform().transform(circle) - ellipse.center
            distances = np.einsum("id,de,ie->i", points, np.linalg.inv(covariance), points)
            np.testing.assert_allclose(distances, n_deviations**2, rtol=1e-6)
            color = ellipse.get_facecolor()[:3]
            np.testing.assert_allclose(color, cluster_colors(K)[k])
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("depth", "height")
    slanted = ClustersDisplay.from_estimator(model, table, [0, 1]).ellipses_
    assert any(abs(ellipse.angle % 90.0) > 10.0 for ellipse in slanted)


def test_rows_have_their_cluster_colour_and_are_paler_the_less_certain(model, table):
    display = draw(ClustersDisplay.from_estimator(model, table))
    colors = display.points_.get_facecolors()
    np.testing.assert_allclose(colors[:, :3], cluster_colors(model.n_clusters_)[model.labels_])
    order = np.argsort(display.certainty)
    assert np.ptp(display.certainty) > 0.1
    steps, gaps = np.diff(colors[order, 3]), np.diff(display.certainty[order])
    assert (steps[gaps > 1e-9] > 0.0).all()
    by_rows = CoclusteringDisplay.from_estimator(model)
    np.testing.assert_allclose(display.certainty[by_rows.rows], by_rows.certainty)


@pytest.mark.long
def test_the_columns_chosen_are_those_in_which_clusters_are_apart(model, table):
    display = ClustersDisplay.from_estimator(model, table)
    assert display.column_names == ("width", "height")
    moved = table[["depth", "height", "width"]].to_numpy()
    again = fitted(DPMixture(likelihood="gaussian", n_chains=2, **SHORT), moved)
    assert ClustersDisplay.from_estimator(again, moved).column_names == ("column 1", "column 2")


@pytest.mark.filterwarnings("ignore:.* vary more within clusters than Poisson counts")
@pytest.mark.parametrize(
    "likelihood", [Gaussian(), Gaussian(covariance_type="diag"), Subspace(n_axes=2), "poisson"]
)
@pytest.mark.some(2)
@pytest.mark.long
def test_ellipses_of_every_likelihood_with_moments_are_those_of_drawn_rows(likelihood, table):
    """Posterior means of many rows: the law that new rows have, nearly."""
    rng = np.random.default_rng(1)
    X = np.tile(np.round(np.exp(table.to_numpy() / 3.0 + 3.0)), (20, 1))
    if likelihood != "poisson":
        X = X + rng.normal(size=X.shape)
    model = FiniteMixture(
        1, likelihood=likelihood, n_chains=1, n_warmup=0, n_draws=1, random_state=0
    )
    model = fitted(model, X)
    display = draw(ClustersDisplay.from_estimator(model, X, [0, 2]))
    one = display.ellipses_[0]
    np.testing.assert_allclose(one.center, X[:, [0, 2]].mean(axis=0), rtol=0.01)
    if likelihood == "poisson":
        expected = np.diag(X[:, [0, 2]].mean(axis=0))
    else:
        expected = np.cov(X[:, [0, 2]].T)
        if getattr(likelihood, "covariance_type", "full") == "diag":
            expected = np.diag(np.diag(expected))
    np.testing.assert_allclose(display.covariances[0], expected, rtol=0.02, atol=0.3)


def test_discriminants_set_clusters_apart_more_than_columns(model, table):
    display = draw(ClustersDisplay.from_estimator(model, table, "discriminant"))
    columns = ClustersDisplay.from_estimator(model, table)

    def apart(display):
        total = np.cov(display.points.T)
        inner = sum(
            np.cov(display.points[display.labels == k].T) * (display.labels == k).sum()
            for k in np.flatnonzero(np.bincount(display.labels) > 1)
        )
        return np.linalg.det(total) / np.linalg.det(inner / len(table))

    assert apart(display) >= 0.98 * apart(columns) > 1.0
    # Rows, means and covariances are seen from the same side.
    k = 0
    points = display.points[display.labels == k]
    np.testing.assert_allclose(display.means[k], points.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(display.covariances[k], np.cov(points.T), rtol=0.5, atol=0.4)


@pytest.mark.parametrize("kind", everyday(["dense", "csr", "frame"], "csr"))
def test_directions_are_shown_at_unit_length_on_principal_axes(kind):
    rng = np.random.default_rng(0)
    X = np.repeat([[4.0, 0.0, 0.0, 1.0], [0.0, 0.0, 3.0, 1.0]], [20, 15], axis=0)
    X = np.abs(X + 0.3 * rng.normal(size=X.shape)) * rng.exponential(size=(35, 1))
    make = {"dense": np.asarray, "csr": sp.csr_array, "frame": pd.DataFrame}[kind]
    model = DPMixture(likelihood="von_mises_fisher", init=np.repeat([0, 1], [20, 15]))
    model = fitted(model.set_params(n_chains=1, **SHORT), make(X))
    display = draw(ClustersDisplay.from_estimator(model, make(X)))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    centred = unit - unit.mean(axis=0)
    axes = np.linalg.svd(centred)[2][:2]
    turned = display.points.T @ centred @ axes.T  # the sign of an axis is free
    signs = np.sign(np.diag(turned))
    np.testing.assert_allclose(display.points, centred @ axes.T * signs, atol=1e-7)
    assert display.column_names == ("principal axis 1", "principal axis 2")
    columns = ClustersDisplay.from_estimator(model, make(X), columns=(0, 2))
    np.testing.assert_allclose(columns.points, unit[:, [0, 2]])
    best = ClustersDisplay.from_estimator(model, make(X), "discriminant").points
    assert np.ptp(best, axis=0).max() < 50.0  # no row is longer than others
    assert len(display.numbers_) == model.n_clusters_ and display.ellipses_ == []
    with pytest.raises(ValueError, match=r"three rows.*columns=\(0, 1\)"):
        ClustersDisplay.from_estimator(model, make(X)[:2])


@pytest.mark.slow
def test_principal_axes_of_points_with_ellipses_and_gaps(table):
    X = table.to_numpy()
    model = fitted(DPMixture(likelihood=Gaussian(), n_chains=1, **SHORT), X)
    display = draw(ClustersDisplay.from_estimator(model, X, "principal"))
    centred = X - X.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred)[::-1][:2]
    np.testing.assert_allclose((display.points**2).sum(axis=0), variances)
    k = 0
    points = display.points[display.labels == k]
    np.testing.assert_allclose(display.means[k], points.mean(axis=0), atol=0.3)
    gaps = X.copy()
    gaps[::9, 2] = np.nan
    ClustersDisplay.from_estimator(model.fit(gaps), gaps, "principal")
    with pytest.raises(ValueError, match='two numbers or names, "discriminant" or "principal"'):
        ClustersDisplay.from_estimator(model, X, "main")
    with pytest.raises(ValueError, match="three columns of numbers"):
        small = fitted(DPMixture(n_chains=1, **SHORT), X[:, :2])
        ClustersDisplay.from_estimator(small, X[:, :2], "principal")


@pytest.mark.long
def test_density_of_one_column_is_score_samples(table):
    x = table[["width"]]
    model = fitted(DPMixture(likelihood="gaussian", n_chains=2, **SHORT), x)
    display = draw(DensityDisplay.from_estimator(model, x))
    grid = pd.DataFrame({"width": display.grid})
    np.testing.assert_allclose(display.density, np.exp(model.score_samples(grid)), rtol=1e-9)
    np.testing.assert_array_equal(display.line_.get_ydata(), display.density)
    assert display.ax_.get_xlabel() == "width"
    assert len(display.rug_.get_segments()) == len(x)
    heights = [bar.get_height() * bar.get_width() for bar in display.histogram_]
    assert sum(heights) == pytest.approx(1.0)
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    several = ["clusters"] if model.n_clusters_ > 1 else []
    assert words == ["predictive density", "90% band", *several, f"{len(x)} rows"]


@pytest.mark.parametrize("likelihood", everyday(["full", "diag", "subspace"], "full"))
@pytest.mark.long
def test_density_of_a_column_is_the_integral_over_the_other(likelihood, table, monkeypatch):
    """Of few rows, so that degrees of freedom matter; random densities scatter around it."""
    rtol = 1e-3
    if likelihood == "subspace":
        likelihood, rtol = Subspace(n_axes=1), 0.04  # by a sum over a few variances
        leave_out_departures(monkeypatch)
    else:
        likelihood = Gaussian(covariance_type=likelihood)
    X = table[["width", "height"]].to_numpy()[::11]
    model = fitted(DPMixture(likelihood=likelihood, n_chains=1, **SHORT), X)
    grid = np.linspace(-4.0, 6.0, 15)
    display = draw(DensityDisplay.from_estimator(model, column=0, grid=grid))
    other = np.linspace(-60.0, 60.0, 2401)
    plane = np.stack(np.meshgrid(grid, other, indexing="ij"), axis=-1).reshape(-1, 2)
    joint = np.exp(model.score_samples(plane)).reshape(len(grid), -1)
    np.testing.assert_allclose(display.density, joint.sum(axis=1) * 0.05, rtol=rtol, atol=1e-5)
    assert ((display.low <= display.density) & (display.density <= display.high)).mean() > 0.8
    narrow = DensityDisplay.from_estimator(model, column=0, grid=grid, level=0.5)
    assert (narrow.high - narrow.low < display.high - display.low).all()


@pytest.mark.slow
def test_band_of_a_known_partition_is_that_of_weights_and_parameters():
    """Two clusters for certain: quantiles of the density at points, by direct simulation."""
    rng = np.random.default_rng(0)
    clusters = rng.normal(size=30), rng.normal(50.0, 1.0, size=6)
    likelihood = Gaussian(mean=0.0, mean_precision=1e-5, df=3.0, scale=1.0)
    model = DPMixture(
        likelihood=likelihood, concentration=1e-3, n_chains=1, n_draws=100, random_state=0
    )
    model = fitted(model, np.concatenate(clusters)[:, None])
    assert (model.n_components_samples_ == 2).all()
    display = draw(DensityDisplay.from_estimator(model, grid=[0.0, 1.0, 50.0], level=0.8))
    weights = rng.dirichlet([30.0, 6.0], size=20_000).T
    for i, (point, k) in enumerate([(0.0, 0), (1.0, 0), (50.0, 1)]):
        x = clusters[k]
        rho = len(x) + 1e-5
        centre = x.sum() / rho
        scale = 1.0 + (x**2).sum() - rho * centre**2
        variance = scale / rng.chisquare(3.0 + len(x), size=20_000)
        mean = rng.normal(centre, np.sqrt(variance / rho))
        density = np.exp(-0.5 * (point - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        density *= weights[k]
        low, high = np.quantile(density, [0.1, 0.9])
        assert display.low[i] == pytest.approx(low, rel=0.08)
        assert display.high[i] == pytest.approx(high, rel=0.08)
        assert display.density[i] == pytest.approx(density.mean(), rel=0.01)


@pytest.mark.slow
def test_mixed_tables_are_shown_by_their_numbers(table):
    X = table.assign(kind=pd.Categorical(np.where(table["height"] > 0, "low", "high")))
    X = X[["kind", *NAMES]]
    model = fitted(DPMixture(likelihood="mixed", n_chains=1, **SHORT), X)
    numeric = model.cluster_params_["numeric"]
    display = draw(ClustersDisplay.from_estimator(model, X))
    first, second = (NAMES.index(name) for name in display.column_names)
    np.testing.assert_allclose(display.means, numeric["means"][:, [first, second]])
    variances = np.diagonal(display.covariances, axis1=1, axis2=2)
    expected = np.diagonal(numeric["covariances"], axis1=1, axis2=2)
    np.testing.assert_allclose(variances, expected[:, [first, second]])
    assert len(draw(ClustersDisplay.from_estimator(model, X, "discriminant")).ellipses_) > 0
    grid = np.linspace(-60.0, 60.0, 4001)
    display = DensityDisplay.from_estimator(model, X, "height", grid=grid)
    assert display.density.sum() * 0.03 == pytest.approx(1.0, abs=0.01)
    mean = (display.density * grid).sum() * 0.03
    assert mean == pytest.approx(table["height"].mean(), abs=0.2)
    np.testing.assert_array_equal(display.values, table["height"])
    with pytest.raises(ValueError, match=r"column 'kind' of X holds no numbers; choose two"):
        ClustersDisplay.from_estimator(model, X, ["kind", "depth"])
    with pytest.raises(ValueError, match=r"normal or Student in every cluster.*Product"):
        DensityDisplay.from_estimator(model, X, "kind")


def test_density_needs_a_column_that_is_normal(model, table):
    with pytest.raises(ValueError, match="3 columns; choose one"):
        DensityDisplay.from_estimator(model, table)
    counts = np.arange(12.0).reshape(6, 2)
    model = fitted(DPMixture(likelihood="poisson", n_chains=1, **SHORT), counts)
    with pytest.raises(ValueError, match="which Gaussian and Subspace have; Poisson"):
        DensityDisplay.from_estimator(model, counts, 0)


@pytest.fixture(scope="module")
def bars():
    X, _, _ = make_cambridge_bars(40, noise=0.3, random_state=0)
    X = pd.DataFrame(X, columns=[f"pixel {d}" for d in range(36)])
    model = FeatureAllocation(n_chains=2, n_warmup=20, n_draws=10, random_state=0)
    return fitted(model, X)


@pytest.mark.slow
def test_features_are_images_and_rows_ordered_by_them(bars):
    display = draw(FeaturesDisplay.from_estimator(bars, image_shape=(6, 6)))
    shown = np.asarray(display.components_im_.get_array().filled(np.nan))
    assert np.isfinite(shown).sum() == bars.components_.size
    np.testing.assert_allclose(np.nansum(shown), bars.components_.sum())
    K = bars.n_components_
    for k, number in enumerate(display.numbers_):
        assert number.get_text() == f"{k}: {bars.allocations_[:, k].sum()}"
        x, y = round(number.get_position()[0] - 2.5), round(number.get_position()[1] + 0.68)
        np.testing.assert_array_equal(shown[y : y + 6, x : x + 6].ravel(), bars.components_[k])
    assert len(display.numbers_) == K
    np.testing.assert_array_equal(display.allocations, bars.allocations_[display.rows])
    codes = display.allocations @ 2 ** np.arange(K)[::-1]
    assert (np.diff(codes) <= 0).all() and np.ptp(codes) > 0
    image = display.allocations_im_.get_array()
    white = (image == 1.0).all(axis=2)
    np.testing.assert_array_equal(white, ~display.allocations)


@pytest.mark.long
def test_features_as_a_heat_map(bars):
    display = draw(FeaturesDisplay.from_estimator(bars, max_features=2))
    np.testing.assert_array_equal(display.components_im_.get_array(), bars.components_[:2])
    assert display.axes_[0].get_xlabel() == "column"  # too many to be named
    with pytest.raises(ValueError, match="height times width the 36 columns"):
        FeaturesDisplay.from_estimator(bars, image_shape=(5, 6))
    few = FeaturesDisplay(np.eye(2), np.eye(2, dtype=bool), [0, 1], [1, 1], column_names=NAMES[:2])
    assert [t.get_text() for t in draw(few.plot()).axes_[0].get_xticklabels()] == NAMES[:2]


@pytest.mark.long
def test_other_displays_of_features(bars):
    numbers = draw(NumberOfClustersDisplay.from_estimator(bars))
    assert numbers.ax_.get_xlabel() == "number of features (20 draws)"
    traces = draw(
        TraceDisplay.from_estimator(bars, ["n_components", "likelihood__noise_precision"])
    )
    assert traces.axes_[0].get_title(loc="left") == "features"
    with pytest.raises(TypeError, match="CoclusteringDisplay takes a DPMixture"):
        CoclusteringDisplay.from_estimator(bars)


@pytest.mark.slow
def test_without_features():
    X = np.arange(20.0).reshape(5, 4)
    display = FeaturesDisplay(np.empty((0, 4)), np.empty((5, 0), bool), np.arange(5), np.empty(0))
    assert "no features" in [text.get_text() for text in draw(display.plot()).axes_[0].texts]
    display.image_shape = (2, 2)
    draw(display.plot())
    with pytest.raises(TypeError, match="FeaturesDisplay takes a FeatureAllocation"):
        FeaturesDisplay.from_estimator(fitted(DPMixture(n_chains=1, **SHORT), X))


@pytest.mark.long
def test_merges_are_brackets_at_their_heights():
    linkage = np.array([[1, 2, 0.5, 2], [0, 4, 0.8, 3], [3, 5, 1.1, 4]])
    labels = np.repeat([0, 1, 2, 3], [9, 7, 5, 1])
    losses = np.array([0.3, 0.5, 0.8, 1.1])
    tree = MergeTree(labels=labels, linkage=linkage, expected_losses=losses, loss="vi")
    display = draw(MergeTreeDisplay(tree).plot())
    left = display.axes_[0]
    place = {k: at for at, k in enumerate(display.leaves_)}
    first, second, third = display.merges_.get_segments()
    assert sorted(first[:, 1]) == sorted([place[1], place[1], place[2], place[2]])
    np.testing.assert_allclose(first[:, 0], [0.3, 0.5, 0.5, 0.3])
    assert set(second[:, 1]) == {place[0], (place[1] + place[2]) / 2.0}
    assert second[:, 0].max() == 0.8 and third[:, 0].max() == 1.1
    words = [label.get_text() for label in left.get_yticklabels()]
    rows = {0: "9 rows", 1: "7 rows", 2: "5 rows", 3: "1 row"}
    assert words == [f"{k} ({rows[k]})" for k in display.leaves_]
    np.testing.assert_array_equal(display.losses_.get_xydata(), np.c_[[1, 2, 3, 4], losses[::-1]])
    words = "mean difference from the draws\n(variation of information, nats)"
    assert left.get_xlabel() == words
    tree = dataclasses.replace(tree, names=np.array([7, 0, 1, 9]))
    left = draw(MergeTreeDisplay(tree).plot()).axes_[0]
    words = [label.get_text().split()[0] for label in left.get_yticklabels()]
    assert words == [str(tree.names[k]) for k in display.leaves_]


@pytest.mark.slow
def test_merge_trees_of_fits(model, crowd):
    tree = model.merge_tree()
    display = draw(MergeTreeDisplay.from_estimator(model))
    assert sorted(display.leaves_) == list(range(model.n_clusters_))
    np.testing.assert_array_equal(display.losses_.get_ydata(), tree.expected_losses[::-1])
    words = [text.get_text().strip() for text in display.probabilities_]
    assert words == [f"{p:.2f}" for p in tree.probabilities if p >= 0.005]
    said = "numbers: probability that rows of the two sides" in display.axes_[0].get_xlabel()
    assert said == bool(words)
    assert len(MergeTreeDisplay.from_estimator(crowd[0]).leaves_) == 60


@pytest.fixture(scope="module")
def overlapping():
    """Clusters that draws join and separate, and a far row, with and without a law of noise."""
    rng = np.random.default_rng(2)
    centres = [[0, 0], [4, 0], [0, 4], [8, 4], [8, 8]]
    centres = np.repeat(centres, [20, 16, 12, 12, 12], axis=0)
    X = np.r_[centres + rng.normal(size=centres.shape), [[-15.0, 20.0]]]
    return X, {
        noise: fitted(DPMixture(noise=noise, n_chains=2, **SHORT), X) for noise in (None, True)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "noise"),
    everyday(
        [("modal", None), ("vi", None), (("binder", 0.8), None), ("vi", True)],
        *(("modal", None), ("vi", True)),
        n_values=2,
    ),
)
def test_losses_are_those_of_the_labels_that_estimate_labels_finds(overlapping, loss, noise):
    X, models = overlapping
    model = copy.deepcopy(models[noise])
    display = draw(ExpectedLossDisplay.from_estimator(model, loss=loss, X=X))
    np.testing.assert_array_equal(model.labels_, models[noise].labels_)  # stay as they are
    assert len(display.losses) >= 3
    heights = [bar.get_height() for bar in display.costs_]
    np.testing.assert_allclose(heights, display.losses[:-1] - display.losses[1:])
    centres = [bar.get_x() + bar.get_width() / 2.0 for bar in display.costs_]
    np.testing.assert_allclose(centres, np.arange(1, len(display.losses)) + 0.5)
    base = "vi" if loss == "modal" else loss
    for k, found in display.losses_.get_xydata():
        model.estimate_labels(max_clusters=int(k), loss=loss)
        assert model.n_clusters_ <= k
        inside = (model.label_samples_ >= 0).mean(axis=(0, 1)) >= 0.5
        draws = model.cluster_samples_[:, :, inside].astype(int)
        draws = np.where(draws < 0, 1000 + np.arange(inside.sum()), draws)
        labels = model.labels_[inside]
        assert found == pytest.approx(expected_loss(draws, labels, base), rel=1e-9)
    assert labels.max() + 1 == k
    assert inside.all() == (noise is None)
    assert display.loss == base
    fewer = ExpectedLossDisplay.from_estimator(model, loss=loss, max_clusters=2)
    np.testing.assert_array_equal(fewer.losses, display.losses[:2])


@pytest.mark.slow
def test_losses_mark_the_number_of_the_labels(overlapping):
    X, models = overlapping
    model = pickle.loads(pickle.dumps(models[None]))
    with pytest.raises(ValueError, match="pass them as X"):
        ExpectedLossDisplay.from_estimator(model)
    display = draw(ExpectedLossDisplay.from_estimator(model, X=X))
    K = model.n_clusters_
    assert display.estimate_.get_xydata().tolist() == [[K, display.losses[K - 1]]]
    model.estimate_labels(max_clusters=2)
    display = draw(ExpectedLossDisplay.from_estimator(model))
    assert display.estimate_.get_xydata().tolist() == [[2, display.losses[1]]]
    fewest = int(model.n_clusters_samples_.min())
    pale = [bar.get_facecolor() for bar in display.costs_]
    assert display.fewest == fewest and all(color == pale[-1] for color in pale[fewest - 1 :])
    assert all(color != pale[-1] for color in pale[: fewest - 1])
    beyond = draw(ExpectedLossDisplay.from_estimator(model, max_clusters=1))
    assert len(beyond.estimate_.get_xydata()) == 0 and len(beyond.costs_) == 0
    assert beyond.estimate_.get_label() == "point estimate: 2"
    _, axes = plt.subplots(2)
    assert list(ExpectedLossDisplay.from_estimator(model, ax=axes).axes_) == list(axes)
    with pytest.raises(ValueError, match="max_clusters"):
        ExpectedLossDisplay.from_estimator(model, max_clusters=0)
    known = fitted(
        DPMixture(n_chains=1, n_warmup=0, n_draws=1), X[:20], known_labels=[0, 1] + 18 * [-1]
    )
    with pytest.raises(ValueError, match="fit without known_labels, or choose max_clusters"):
        ExpectedLossDisplay.from_estimator(known)


@pytest.mark.long
def test_costs_of_numbers_that_no_draw_has_are_grey():
    display = draw(ExpectedLossDisplay(np.array([3.0, 2.0, 1.5, 0.2]), 4, fewest=3).plot())
    colors = [bar.get_facecolor() for bar in display.costs_]
    assert colors[0] == colors[1] != colors[2]
    assert "no draw" in display.axes_[1].get_legend().get_texts()[0].get_text()
    display = draw(ExpectedLossDisplay(np.array([3.0, 2.0, 1.5, 0.2]), 4).plot())
    assert display.axes_[1].get_legend() is None
    _, small = plt.subplots(figsize=(3, 2.4), layout="constrained")
    display = draw(ExpectedLossDisplay(np.array([3.0, 2.0, 1.5, 0.2]), 4).plot(small))
    assert all(ax.get_ylabel().count("\n") <= 1 for ax in display.axes_)


def lines_of(display):
    """Difference, interval and height of each dot."""
    lines = []
    dots = iter(display.dots_)
    for ax, collection in zip(display.axes_, display.intervals_, strict=True):
        for segment in collection.get_segments():
            dot = next(dots)
            assert dot.axes is ax and dot.get_ydata()[0] == segment[0, 1]
            lines.append([dot.get_xdata()[0], segment[0, 0], segment[1, 0], segment[0, 1]])
    assert next(dots, None) is None
    return np.array(lines)


def hollow(dot):
    return not np.array_equal(dot.get_markerfacecolor(), dot.get_color())


@pytest.mark.long
def test_profiles_are_those_of_the_description(model, table):
    display = draw(ProfilesDisplay.from_estimator(model, level=0.99))
    expected = model.describe(level=0.99)
    assert len(display.axes_) == model.n_clusters_
    names = ["difference", "difference_low", "difference_high"]
    np.testing.assert_allclose(lines_of(display)[:, :3], expected[names])
    colors = cluster_colors(model.n_clusters_)
    dots = iter(display.dots_)
    assert len(display.dots_) == len(expected)
    for k, ax in enumerate(display.axes_):
        lines = expected.loc[k]
        ticks = [tick.get_text() for tick in ax.get_yticklabels()]
        for tick, place, (index, line) in zip(
            ticks, ax.get_yticks(), lines.iterrows(), strict=True
        ):
            assert tick == f"{index[0]}  {line['mean']:.3g}"
            dot = next(dots)
            assert dot.get_ydata()[0] == place
            sure = line["difference_low"] > 0.0 or line["difference_high"] < 0.0
            assert hollow(dot) != sure
            np.testing.assert_allclose(dot.get_color(), colors[k])
        assert (np.diff(ax.get_yticks()) < 0).all()  # the first line is at the top
        title = ax.get_title(loc="left").replace("\N{NO-BREAK SPACE}", " ")
        assert f"cluster {k} ({np.sum(model.labels_ == k)} rows)" in title
    assert len({ax.get_xlim() for ax in display.axes_}) == 1
    words = "difference from the other rows, in typical spreads within a cluster\n"
    assert display.figure_.get_supxlabel() == f"{words}99% interval, hollow if it contains 0"
    largest = ProfilesDisplay.from_estimator(model, max_clusters=1, feature_names=["a", "b", "c"])
    assert "; 1 of" in largest.figure_.get_supxlabel()
    assert set(largest.table.index.unique("column")) <= {"a", "b", "c"}
    with pytest.raises(ValueError, match="feature_names must have 3 names"):
        ProfilesDisplay.from_estimator(model, feature_names=["a"])
    assert any(hollow(dot) for dot in display.dots_)


@pytest.mark.slow
def test_profiles_of_a_mixed_table_name_categories():
    rng = np.random.default_rng(0)
    side = np.repeat([0, 1], [30, 20])
    X = pd.DataFrame(
        {
            "meal": np.array(["none", "half board"])[side],
            "a column with a name that is far too long": rng.normal(9.0 * side, 1.0),
            "pets": rng.random(50) < np.where(side, 0.9, 0.002),
        }
    )
    mixed = fitted(DPMixture(likelihood="mixed", init=side, n_chains=1, **SHORT), X)
    display = draw(ProfilesDisplay.from_estimator(mixed, max_columns=3))
    ticks = [tick.get_text() for ax in display.axes_ for tick in ax.get_yticklabels()]
    assert len(ticks) == 6 == len(display.dots_)
    # Two categories are one fact.
    assert sum(tick.startswith("meal = ") for tick in ticks) == 2
    table = mixed.describe()
    shares = table.loc[1].loc["meal", "mean"]
    assert any(f"meal = {meal}  {share:.0%}" in ticks for meal, share in shares.items())
    assert any(tick.startswith("a column with … far too long  ") for tick in ticks)
    sizes = np.abs(lines_of(display)[:3, 0])
    assert (np.diff(sizes) <= 0.0).all()
    assert (sizes[-1] >= table.loc[0]["difference"].abs().sort_values().iloc[:-3]).all()


@pytest.mark.slow
def test_relevance_bars_are_the_probabilities():
    rng = np.random.default_rng(0)
    side = np.arange(60) % 2
    X = pd.DataFrame({f"column of noise {d}": rng.standard_normal(60) for d in range(4)})
    X["a column with a name that is too long"] = rng.normal(6.0 * side, 1.0)
    X["none"] = 0.0
    parts = [("x", Gaussian(covariance_type="diag"), list(X.columns[:5]))]
    likelihood = Product(parts, select=True)
    fit = fitted(DPMixture(likelihood=likelihood, n_chains=2, **SHORT), X)
    display = draw(RelevanceDisplay.from_estimator(fit))
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_array_equal(widths, np.sort(fit.relevance_[:5])[::-1])
    np.testing.assert_array_equal(fit.relevance_[display.columns_], widths)
    ticks = [tick.get_text() for tick in display.ax_.get_yticklabels()]
    assert ticks[0] == "a column with …t is too long" and display.columns_[0] == 4
    assert ticks[1:] == [X.columns[d] for d in display.columns_[1:]]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first bar is at the top
    colors = [bar.get_facecolor() for bar in display.bars_]
    dark = [color == colors[0] for color in colors]
    assert dark == [width > 0.5 for width in widths] and not all(dark)
    display = draw(RelevanceDisplay([0.2, np.nan, 0.9], max_columns=1).plot())
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["column 2"]
    _, ax = plt.subplots()
    assert draw(RelevanceDisplay.from_estimator(fit, ax=ax)).ax_ is ax
    with pytest.raises(ValueError, match="select=True"):
        RelevanceDisplay.from_estimator(fitted(DPMixture(n_chains=1, **SHORT), X.iloc[:, :2]))


@pytest.mark.parametrize("n_clusters", [2, 12, 64])
@pytest.mark.long
def test_displays_on_half_a_figure_can_be_read(n_clusters):
    """Panels of profiles are wide, with whole names, and are fewer where lines would be low. Names
    of clusters are left out where they would be tiny."""
    names = ["customer lifetime value", "age", "distance to the shop"]
    lines = pd.MultiIndex.from_product([range(n_clusters), names, [""]])
    lines.names = ["cluster", "column", "category"]
    values = {"kind": "number", "mean": 1.25, "n_rows": 40, "difference": 2.0}
    values |= {"difference_low": 1.0, "difference_high": 3.0}
    with plt.rc_context({"figure.dpi": 80}):
        _, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        profiles = ProfilesDisplay(pd.DataFrame(values, index=lines), n_clusters=n_clusters)
        panels = draw(profiles.plot(axes[1])).axes_
        assert 2 <= len(panels) <= 4
        for panel in panels:
            assert panel.get_window_extent().width > 100
            title = panel.get_tightbbox(for_layout_only=True)
            assert title.x1 <= panel.figure.bbox.x1
            words = [label.get_text().partition("  ")[0] for label in panel.get_yticklabels()]
            assert words == names
        shown = f"{len(panels)} of {n_clusters} clusters"
        assert (shown in panels[-1].get_xlabel().replace("\n", " ")) == (n_clusters > 2)
        linkage = np.array([[0, 1, 1.0, 2]])
        for k in range(2, n_clusters):
            linkage = np.vstack([linkage, [k, n_clusters + k - 2, float(k), k + 1]])
        losses = np.arange(float(n_clusters))
        labels = np.arange(n_clusters)
        tree = MergeTree(labels=labels, linkage=linkage, expected_losses=losses, loss="vi")
        _, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        left = draw(MergeTreeDisplay(tree).plot(axes[1])).axes_[0]
        words = {label.get_text() for label in left.get_yticklabels()}
        assert (words == {""}) == (n_clusters == 64)
        assert all(
            label.get_size() >= 4.0 or not label.get_text() for label in left.get_yticklabels()
        )


@pytest.mark.slow
def test_profiles_of_many_clusters_are_those_of_the_largest(crowd, model, table):
    many, X = crowd
    display = draw(ProfilesDisplay.from_estimator(many))
    assert len(display.axes_) == 6 and len(display.figure_.axes) == 6
    assert [ax.get_title(loc="left")[:9] for ax in display.axes_] == [
        f"cluster {k}" for k in range(6)
    ]
    display = draw(ProfilesDisplay.from_estimator(many, max_clusters=5, max_columns=1))
    assert len(display.axes_) == 5 == len(display.figure_.axes) == len(display.dots_)
    _, axes = plt.subplots(5)
    display = draw(ProfilesDisplay.from_estimator(many, max_clusters=5, ax=axes))
    assert list(display.axes_) == list(axes)
    _, ax = plt.subplots()
    draw(ProfilesDisplay.from_estimator(many, max_clusters=2, ax=ax))
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="pass them as X"):
        ProfilesDisplay.from_estimator(again)
    assert len(ProfilesDisplay.from_estimator(again, table).dots_) == 3 * model.n_clusters_
    one = fitted(FiniteMixture(1, likelihood="gaussian", n_chains=1, **SHORT), X)
    with pytest.raises(ValueError, match="compares clusters, and the mixture has one"):
        ProfilesDisplay.from_estimator(one)


def test_networks_are_ordered_by_cluster_and_links():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat([0, 1], 10))
    A = (rng.random((20, 20)) < np.where(group[:, None] == group, 0.8, 0.1)).astype(float)
    A = np.triu(A, 1)
    A = A + A.T
    A[0, 1] = A[1, 0] = np.nan
    model = fitted(DPMixture(likelihood="relational", n_chains=1, **SHORT), A)
    display = draw(AdjacencyDisplay.from_estimator(model, A))
    rows = display.rows
    np.testing.assert_array_equal(display.adjacency, A[np.ix_(rows, rows)])
    of_lists = AdjacencyDisplay.from_estimator(model, A.tolist())
    np.testing.assert_array_equal(of_lists.adjacency, display.adjacency)
    assert of_lists.names is None
    assert (np.diff(model.labels_[rows]) >= 0).all()
    links = np.nansum(A, axis=0) + np.nansum(A, axis=1)
    same = np.diff(model.labels_[rows]) == 0
    assert (np.diff(links[rows])[same] <= 0).all()
    with pytest.raises(ValueError, match="matrix of fit, 20 rows"):
        AdjacencyDisplay.from_estimator(model, A[:5])


def test_new_rows_have_predicted_labels(model, table):
    new = table.iloc[::3] + 0.1
    display = draw(ClustersDisplay.from_estimator(model, new))
    np.testing.assert_array_equal(display.labels, model.predict(new))
    np.testing.assert_allclose(display.certainty, model.predict_proba(new).max(axis=1))


def test_pipelines_are_taken_apart(table):
    # Their labels are of what the steps before make of X.
    pipeline = fitted(make_pipeline(StandardScaler(), DPMixture(n_chains=1, **SHORT)), table)
    display = draw(ClustersDisplay.from_estimator(pipeline, table, [0, 2]))
    np.testing.assert_allclose(display.points, pipeline[0].transform(table)[:, [0, 2]])
    assert len(CoclusteringDisplay.from_estimator(pipeline).rows) == len(table)


def test_one_cluster_has_nothing_to_merge():
    tree = draw(MergeTreeDisplay(merge_tree(np.zeros((3, 4), dtype=int), [0] * 4)).plot())
    losses = draw(ExpectedLossDisplay(np.array([0.3]), 1).plot())
    for ax in (tree.axes_[1], *losses.axes_):
        assert [text.get_text() for text in ax.texts] == ["one cluster, so nothing merges"]
    assert len(tree.axes_[0].get_yticklabels()) == 1


def test_components_of_a_draw_are_no_point_estimate():
    display = NumberOfClustersDisplay(np.arange(1, 3), np.full(2, 0.5), np.full((1, 2), 0.5), 2)
    assert draw(display.plot()).estimate_.get_label() == "point estimate: 2"
    display.what = "components"
    assert draw(display.plot()).estimate_.get_label() == "components of labels_: 2"


def test_columns_are_checked(model, table):
    with pytest.raises(ValueError, match="no column 'girth'; it has column 'width', c"):
        ClustersDisplay.from_estimator(model, table, ["girth", "depth"])
    with pytest.raises(ValueError, match="two numbers or names"):
        ClustersDisplay.from_estimator(model, table, [0])
    for columns in (0, [True] + [False] * (table.shape[1] - 1)):
        with pytest.raises(ValueError, match="two numbers or names"):
            ClustersDisplay.from_estimator(model, table, columns)
    with pytest.raises(ValueError, match="column"):
        ClustersDisplay.from_estimator(model, table, [0, 3])


@pytest.mark.slow
def test_sixty_clusters_twenty_chains(crowd):
    model, X = crowd
    assert model.n_clusters_ == 60
    draw(CoclusteringDisplay.from_estimator(model))
    draw(NumberOfClustersDisplay.from_estimator(model, chains=True))
    assert len(draw(TraceDisplay.from_estimator(model)).lines_["log_joint"]) == 20
    display = draw(ClustersDisplay.from_estimator(model, X))
    assert len(display.ellipses_) == 2 * 20
    assert len(np.unique(display.points_.get_facecolors()[:, :3], axis=0)) == 20 + 1
    display = draw(ClustersDisplay.from_estimator(model, X, max_clusters=60))
    assert len(display.ellipses_) == 2 * 60
    assert len(np.unique(display.points_.get_facecolors()[:, :3], axis=0)) == 60


@pytest.mark.slow
def test_one_row_one_chain_one_draw():
    X = np.array([[1.0, 2.0]])
    model = fitted(DPMixture(n_chains=1, n_warmup=0, n_draws=1, random_state=0), X)
    draw(CoclusteringDisplay.from_estimator(model))
    draw(NumberOfClustersDisplay.from_estimator(model))
    draw(TraceDisplay.from_estimator(model))
    draw(ClustersDisplay.from_estimator(model, X))
    assert len(draw(MergeTreeDisplay.from_estimator(model)).leaves_) == 1


@pytest.mark.long
def test_without_label_draws(table):
    model = fitted(DPMixture(store_labels=False, point_estimate="map", n_chains=1, **SHORT), table)
    for display in (CoclusteringDisplay, ExpectedLossDisplay, MergeTreeDisplay):
        with pytest.raises(AttributeError, match=f"{display.__name__} needs.*store_labels=True"):
            display.from_estimator(model)
    draw(NumberOfClustersDisplay.from_estimator(model))
    display = draw(ClustersDisplay.from_estimator(model, table))
    probabilities = model.predict_proba(table)
    expected = probabilities[np.arange(len(table)), model.labels_]
    np.testing.assert_allclose(display.certainty, expected)


@pytest.mark.slow
def test_streams(table):
    model = DPMixture(likelihood="gaussian", sampler="smc", n_chains=2, random_state=0)
    model.partial_fit(table[:40]).partial_fit(table[40:])
    np.testing.assert_array_equal(
        ClustersDisplay.from_estimator(model, table[40:]).labels, model.labels_
    )
    whole = draw(ClustersDisplay.from_estimator(model, table))
    np.testing.assert_array_equal(whole.labels, model.predict(table))
    traces = draw(TraceDisplay.from_estimator(model))
    assert traces.lines_["log_joint"][0].get_linestyle() == "None"
    assert "no order" in traces.axes_[-1].get_xlabel()
    bars = draw(NumberOfClustersDisplay.from_estimator(model)).bars_
    shares = [np.mean(model.n_components_samples_ == round(bar.get_center()[0])) for bar in bars]
    np.testing.assert_allclose([bar.get_height() for bar in bars], shares)
    with pytest.raises(
        AttributeError, match=r"CoclusteringDisplay needs label draws.*no partial_fit"
    ):
        CoclusteringDisplay.from_estimator(model)


@pytest.mark.slow
def test_rows_on_workers_are_sampled_by_whoever_draws(table):
    da = pytest.importorskip("dask.array")
    X = da.from_array(table.to_numpy(), chunks=(33, 3))
    model = DPMixture(sampler="sub_cluster", point_estimate="last", n_chains=1, **SHORT)
    model = fitted(model, X)
    for display, given in ((ClustersDisplay, (X,)), (DensityDisplay, (X, 0))):
        with pytest.raises(ValueError, match=r"rows in memory.*compute"):
            display.from_estimator(model, *given)
    with pytest.raises(ValueError, match="fit a sample of the rows"):
        CoclusteringDisplay.from_estimator(model)
    some = X[::2].compute()
    display = draw(ClustersDisplay.from_estimator(model, some))
    np.testing.assert_array_equal(display.labels, model.predict(some))


@pytest.mark.slow
def test_missing_entries_and_sparse_rows(table):
    X = table.to_numpy().copy()
    X[::5, 0] = np.nan
    likelihood = Gaussian(covariance_type="diag")
    model = fitted(DPMixture(likelihood=likelihood, n_chains=1, **SHORT), X)
    for columns in (None, (0, 1), "discriminant"):
        ClustersDisplay.from_estimator(model, X, columns)
    display = draw(DensityDisplay.from_estimator(model, X, 0))
    assert len(display.rug_.get_segments()) == 65 - 13
    counts = sp.csr_array(np.abs(np.round(table.to_numpy())))
    model = fitted(DPMixture(likelihood="multinomial", n_chains=1, **SHORT), counts)
    display = draw(ClustersDisplay.from_estimator(model, counts, (0, 1)))
    np.testing.assert_array_equal(display.points, counts[:, [0, 1]].toarray())
    assert display.ellipses_ == [] and len(display.numbers_) == model.n_clusters_


@pytest.mark.slow
def test_after_a_pickle(model, table):
    again = pickle.loads(pickle.dumps(model))
    first = CoclusteringDisplay.from_estimator(model)
    second = draw(CoclusteringDisplay.from_estimator(again))
    np.testing.assert_array_equal(first.coclustering, second.coclustering)
    ClustersDisplay.from_estimator(again, table)
    TraceDisplay.from_estimator(again)


def test_axes_are_used_and_displays_drawn_again(model, table):
    _, ax = plt.subplots()
    display = ClustersDisplay.from_estimator(model, table, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    first = display.points_
    assert display.plot() is display
    assert display.ax_ is not ax and display.points_ is not first


def test_other_estimators_are_refused(model):
    with pytest.raises(TypeError, match="displays take DPMixture"):
        TraceDisplay.from_estimator(StandardScaler().fit([[0.0], [1.0]]))


def test_without_matplotlib_the_message_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr(matplotlib, "pyplot")
    with pytest.raises(ImportError, match=r"TraceDisplay needs matplotlib.*skdpm\[plotting\]"):
        TraceDisplay.from_estimator(model)


def test_colours_of_many_clusters_differ():
    colors = cluster_colors(200)
    assert len(np.unique(colors.round(3), axis=0)) == 200
    assert_array_equal(colors[:9], cluster_colors(9))
    assert cluster_colors(0).shape == (0, 3)


def test_only_the_largest_clusters_have_colours(model, table):
    display = draw(ClustersDisplay.from_estimator(model, table, max_clusters=1))
    (number,) = display.numbers_
    largest = np.bincount(model.labels_).argmax()
    assert number.get_text() == str(largest)
    colors = display.points_.get_facecolors()[:, :3]
    assert_array_equal((colors == NOISE).all(axis=1), model.labels_ != largest)
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert words[-1] == f"{model.n_clusters_ - 1} other clusters"


def test_the_number_of_a_cluster_does_not_cover_its_only_row():
    X, labels = np.arange(14.0).reshape(7, 2), np.array([0, 0, 0, 0, 0, 1, 2])
    display = draw(ClustersDisplay(X, labels, np.ones(7)).plot())
    rows = display.ax_.transData.transform(X)
    boxes = [number.get_window_extent() for number in display.numbers_]
    assert boxes[0].contains(*rows[2])
    assert not boxes[1].contains(*rows[5]) and not boxes[2].contains(*rows[6])
    assert [box.x0 < row[0] < box.x1 for box, row in zip(boxes[1:], rows[5:], strict=True)]


def test_whole_numbers_are_moved_apart():
    points = np.repeat(np.array([[0.0, 1.0], [2.0, 3.0]]), 30, axis=0)
    display = ClustersDisplay(points, np.repeat([0, 1], 30), np.ones(60)).plot()
    shown = np.asarray(display.points_.get_offsets())
    assert len(np.unique(shown, axis=0)) == 60
    assert_array_equal(shown.round(), points)
    points[0, 0] = 0.5
    display = ClustersDisplay(points, np.repeat([0, 1], 30), np.ones(60)).plot()
    assert_array_equal(np.asarray(display.points_.get_offsets())[:, 0], points[:, 0])


@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.some(1)
@pytest.mark.long
def test_text_and_lines_stand_out_in_any_style(style, model):
    def contrast(color, ax):
        return np.ptp([np.mean(to_rgb(color)), np.mean(to_rgb(ax.get_facecolor()))])

    with plt.style.context(style):
        tree = draw(MergeTreeDisplay.from_estimator(model))
        profiles = draw(ProfilesDisplay.from_estimator(model))
        matrix = draw(CoclusteringDisplay.from_estimator(model))
        losses = draw(ExpectedLossDisplay(np.array([3.0, 2.0, 1.5, 0.2]), 4, fewest=3).plot())
    bars = losses.axes_[1]
    assert all(contrast(bar.get_facecolor()[:3], bars) > 0.16 for bar in losses.costs_)
    left, ax = tree.axes_[0], matrix.ax_
    assert contrast(tree.merges_.get_colors()[0], left) > 0.5
    assert all(contrast(label.get_color(), left) > 0.25 for label in left.get_yticklabels())
    first = profiles.axes_[0]
    assert all(contrast(label.get_color(), first) > 0.5 for label in first.get_yticklabels())
    assert contrast(matrix.im_.cmap(0.0)[:3], ax) < 0.01
    assert contrast(matrix.im_.cmap(1.0)[:3], ax) > 0.4


def test_links_have_a_key_and_names():
    A = np.kron(np.eye(2), np.ones((5, 5)))
    A[0, 7] = A[7, 0] = np.nan
    A = pd.DataFrame(A, index=[f"n{i}" for i in range(10)])
    params = {"n_chains": 1, "n_warmup": 5, "n_draws": 20, "random_state": 0}
    display = draw(
        AdjacencyDisplay.from_estimator(DPMixture(likelihood="relational", **params).fit(A), A)
    )
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert words == ["no link", "link", "unknown"]
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == [f"n{i}" for i in display.rows]


def texts_that_collide(figure):
    """Texts that overlap, or that the edge of the figure cuts: list of strings."""
    figure.canvas.draw()
    axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
    drawn = {tick for axis in axes if axis.axes.axison for tick in axis._update_ticks()}
    hidden = {tick for axis in axes for tick in axis.get_major_ticks()} - drawn
    hidden = {label for tick in hidden for label in (tick.label1, tick.label2)}
    shown = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_text().strip() and text.get_visible() and text not in hidden
    ]
    cut = [
        words
        for words, box in shown
        if min(*box.min, *(figure.bbox.size - box.max)) < -1.0 and box.overlaps(figure.bbox)
    ]
    for (words, box), (others, other) in itertools.combinations(shown, 2):
        common = np.minimum(box.max, other.max) - np.maximum(box.min, other.min)
        if common.min() > 1.5:
            cut.append(f"{words} / {others}")
    return cut


SMALL_PICTURES = {
    "clusters": lambda model, X, ax: ClustersDisplay.from_estimator(model, X, ax=ax),
    "density": lambda model, X, ax: DensityDisplay.from_estimator(model, X, "depth", ax=ax),
    "number": lambda model, X, ax: NumberOfClustersDisplay.from_estimator(model, ax=ax),
    "traces": lambda model, X, ax: TraceDisplay.from_estimator(model, ax=ax),
    "profiles": lambda model, X, ax: ProfilesDisplay.from_estimator(model, X, ax=ax),
    "tree": lambda model, X, ax: MergeTreeDisplay.from_estimator(model, ax=ax),
    "together": lambda model, X, ax: CoclusteringDisplay.from_estimator(model, ax=ax),
    "losses": lambda model, X, ax: ExpectedLossDisplay.from_estimator(model, X=X, ax=ax),
}


@pytest.mark.parametrize("size", everyday([(2.6, 2.2), (4.0, 3.0)], (2.6, 2.2)))
@pytest.mark.parametrize("name", everyday(SMALL_PICTURES, "density", "profiles", "tree"))
def test_texts_fit_on_small_axes(name, size, model, table):
    _, ax = plt.subplots(figsize=size, layout="constrained")
    assert texts_that_collide(SMALL_PICTURES[name](model, table, ax).figure_) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_PICTURES)
def test_texts_of_many_clusters_fit_on_small_axes(name, crowd):
    model, X = crowd
    _, ax = plt.subplots(figsize=(2.6, 2.2), layout="constrained")
    X = pd.DataFrame(X, columns=["depth", "height"])
    model = copy.copy(model)
    model.feature_names_in_ = np.array(list(X), dtype=object)
    assert texts_that_collide(SMALL_PICTURES[name](model, X, ax).figure_) == []


@pytest.mark.long
def test_names_are_short_and_long_labels_have_lines_on_small_axes():
    names = [f"measurement number {k}" for k in range(12)]
    _, ax = plt.subplots(figsize=(2.6, 2.2), layout="constrained")
    display = RelevanceDisplay(np.linspace(1, 0, 12), names).plot(ax)
    assert texts_that_collide(display.figure_) == []
    shown = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert len(set(shown)) == 12 and all("…" in name for name in shown)
    assert "\n" in display.ax_.get_xlabel()
    _, ax = plt.subplots(figsize=(2.6, 2.2), layout="constrained")
    units = [f"{what} {size} (cm)" for what in ("petal", "sepal") for size in ("length", "width")]
    shown = RelevanceDisplay(np.ones(4), units).plot(ax).ax_.get_yticklabels()
    assert len({label.get_text() for label in shown}) == 4
    wide = RelevanceDisplay(np.linspace(1, 0, 12), names).plot()
    assert [label.get_text() for label in wide.ax_.get_yticklabels()] == names
