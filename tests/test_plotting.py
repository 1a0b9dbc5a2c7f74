"""Displays, by drawing them and by the properties of what is drawn.

Each property of an artist is compared with the draws themselves.
"""

import pickle
import sys
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.partitions import coclustering_matrix
from skdpm.plotting import (
    ClustersDisplay,
    CoclusteringDisplay,
    NumberOfClustersDisplay,
    TraceDisplay,
    cluster_colors,
)

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = ["width", "height", "depth"]
SHORT = {"n_warmup": 20, "n_draws": 30, "random_state": 0}


def fitted(model, X):
    """Short chains: whether they have mixed does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


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
    return fitted(DPMixture(likelihood="gaussian", n_chains=2, **SHORT), table)


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
    return fitted(model, X), X


def draw(display):
    """Draw it in full, as errors of artists show then alone."""
    display.figure_.canvas.draw()
    return display


def test_coclustering_matrix_is_that_of_the_draws_in_order_of_label_and_certainty(model):
    display = draw(CoclusteringDisplay.from_estimator(model))
    rows, labels = display.rows, model.labels_
    together = coclustering_matrix(model.label_samples_)
    shown = display.im_.get_array()
    np.testing.assert_array_equal(shown, together[np.ix_(rows, rows)])
    assert sorted(rows) == list(range(len(labels)))
    expected = np.array(
        [
            np.delete(together[i, labels == labels[i]], np.flatnonzero(labels == labels[i]) == i)
            for i in range(len(labels))
        ],
        dtype=object,
    )
    expected = np.array([line.mean() for line in expected])
    np.testing.assert_allclose(display.certainty, expected[rows])
    assert (np.diff(labels[rows]) >= 0).all()
    for k in range(model.n_components_):
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


def test_coclustering_of_many_rows_is_of_a_sample_that_keeps_shares(model):
    display = draw(CoclusteringDisplay.from_estimator(model, max_rows=20))
    assert display.im_.get_array().shape == (20, 20)
    share = np.bincount(display.labels) / 20.0 - np.bincount(model.labels_) / 65.0
    assert np.abs(share).max() <= 1.0 / 20.0
    again = CoclusteringDisplay.from_estimator(model, max_rows=20)
    np.testing.assert_array_equal(display.rows, again.rows)


def test_bars_are_the_shares_of_all_chains_together(model):
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
    assert display.estimate_.get_xdata() == [model.n_components_]


def test_interval_is_the_shortest_that_holds_the_level():
    def interval(level):
        counts, shares = np.arange(3, 8), np.array([0.3, 0.35, 0.2, 0.1, 0.05])
        display = NumberOfClustersDisplay(counts, shares, shares[None], 4, level=level)
        return display.plot().interval_

    assert interval(0.3) == (4, 4)
    assert interval(0.6) == (3, 4)
    assert interval(0.9) == (3, 6)
    assert interval(0.99) == (3, 7)


def test_chains_are_shown_where_they_disagree(table):
    numbers = np.repeat([[2] * 30, [3] * 30], 1, axis=0)
    apart = fitted(DPMixture(n_chains=2, **SHORT), table)
    assert NumberOfClustersDisplay.from_estimator(apart, chains=False).chains_ == []
    apart.n_components_samples_ = numbers
    apart.diagnostics_ = {"n_components": {"r_hat": np.inf}}
    assert len(draw(NumberOfClustersDisplay.from_estimator(apart)).chains_) == 2
    apart.diagnostics_ = {"n_components": {"r_hat": 1.01}}
    assert NumberOfClustersDisplay.from_estimator(apart).chains_ == []


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


def test_traces_refuse_what_is_no_number(model):
    with pytest.raises(ValueError, match=r"numbers in draws_ \(.*log_joint.*got 'labels'"):
        TraceDisplay.from_estimator(model, "labels")
    with pytest.raises(ValueError, match="quantities is empty"):
        TraceDisplay.from_estimator(model, [])


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
    with pytest.raises(ValueError, match="one of a grid"):
        display.plot(plt.figure().add_axes((0.1, 0.1, 0.8, 0.8)))


def test_ellipses_are_those_of_the_posterior_means(model, table):
    display = draw(ClustersDisplay.from_estimator(model, table, ["depth", "height"]))
    params, K = model.cluster_params_, model.n_components_
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
    np.testing.assert_allclose(colors[:, :3], cluster_colors(model.n_components_)[model.labels_])
    order = np.argsort(display.certainty)
    assert np.ptp(display.certainty) > 0.1
    steps, gaps = np.diff(colors[order, 3]), np.diff(display.certainty[order])
    assert (steps[gaps > 1e-9] > 0.0).all()
    by_rows = CoclusteringDisplay.from_estimator(model)
    np.testing.assert_allclose(display.certainty[by_rows.rows], by_rows.certainty)


def test_the_columns_chosen_are_those_in_which_clusters_are_apart(model, table):
    display = ClustersDisplay.from_estimator(model, table)
    assert display.column_names == ("width", "height")
    moved = table[["depth", "height", "width"]].to_numpy()
    again = fitted(DPMixture(likelihood="gaussian", n_chains=2, **SHORT), moved)
    assert ClustersDisplay.from_estimator(again, moved).column_names == ("column 1", "column 2")


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


def test_columns_are_checked(model, table):
    with pytest.raises(ValueError, match="no column is called 'girth': there are width, height"):
        ClustersDisplay.from_estimator(model, table, ["girth", "depth"])
    with pytest.raises(ValueError, match="two numbers or names"):
        ClustersDisplay.from_estimator(model, table, [0])
    with pytest.raises(ValueError, match="column"):
        ClustersDisplay.from_estimator(model, table, [0, 3])


def test_sixty_clusters_twenty_chains(crowd):
    model, X = crowd
    assert model.n_components_ == 60
    draw(CoclusteringDisplay.from_estimator(model))
    draw(NumberOfClustersDisplay.from_estimator(model, chains=True))
    assert len(draw(TraceDisplay.from_estimator(model)).lines_["log_joint"]) == 20
    display = draw(ClustersDisplay.from_estimator(model, X))
    assert len(display.ellipses_) == 2 * model.n_components_
    assert len(np.unique(display.points_.get_facecolors()[:, :3], axis=0)) == 27


def test_one_row_one_chain_one_draw():
    X = np.array([[1.0, 2.0]])
    model = fitted(DPMixture(n_chains=1, n_warmup=0, n_draws=1, random_state=0), X)
    draw(CoclusteringDisplay.from_estimator(model))
    draw(NumberOfClustersDisplay.from_estimator(model))
    draw(TraceDisplay.from_estimator(model))
    draw(ClustersDisplay.from_estimator(model, X))


def test_without_label_draws(table):
    model = fitted(DPMixture(store_labels=False, point_estimate="map", n_chains=1, **SHORT), table)
    with pytest.raises(ValueError, match="store_labels=True"):
        CoclusteringDisplay.from_estimator(model)
    draw(NumberOfClustersDisplay.from_estimator(model))
    display = draw(ClustersDisplay.from_estimator(model, table))
    probabilities = model.predict_proba(table)
    expected = probabilities[np.arange(len(table)), model.labels_]
    np.testing.assert_allclose(display.certainty, expected)


def test_after_a_pickle(model, table):
    again = pickle.loads(pickle.dumps(model))
    first = CoclusteringDisplay.from_estimator(model)
    second = draw(CoclusteringDisplay.from_estimator(again))
    np.testing.assert_array_equal(first.coclustering, second.coclustering)
    draw(ClustersDisplay.from_estimator(again, table))
    draw(TraceDisplay.from_estimator(again))


def test_axes_are_used_and_displays_drawn_again(model, table):
    _, ax = plt.subplots()
    display = ClustersDisplay.from_estimator(model, table, ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    first = display.points_
    assert display.plot() is display
    assert display.ax_ is not ax and display.points_ is not first


def test_other_estimators_are_refused(model):
    with pytest.raises(TypeError, match="displays are of DPMixture"):
        TraceDisplay.from_estimator(StandardScaler().fit([[0.0], [1.0]]))


def test_without_matplotlib_the_message_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr(matplotlib, "pyplot")
    with pytest.raises(ImportError, match=r"TraceDisplay needs matplotlib.*skdpm\[plotting\]"):
        TraceDisplay.from_estimator(model)
