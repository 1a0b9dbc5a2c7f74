"""Warnings about rows that a likelihood takes for something else than a user may mean."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture import doubts, likelihoods
from skdpm.networks import adjacency

SHORT = {"n_chains": 1, "n_warmup": 5, "n_draws": 5, "random_state": 0}


@pytest.mark.long
def test_degrees_are_no_directions():
    rng = np.random.default_rng(0)
    model = DPMixture(likelihood="von_mises_fisher", **SHORT)
    places = [47.0, 8.0] + 3.0 * rng.normal(size=(60, 2))
    for X in (places, places[:, ::-1], places * [1.0, -10.0]):
        with pytest.warns(UserWarning, match=r"degrees.*radians.*cos\(lat\) \* cos\(lon\)"):
            model.fit(X)
    with pytest.raises(ValueError, match="of angles or hours pass cosines and sines"):
        model.fit(rng.random((60, 1)) * 24.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        others = places * 10.0, places * [2.2, 8.0]
        for X in (rng.normal(size=(60, 2)), 50.0 * rng.normal(size=(60, 3)), *others):
            model.fit(X)


@pytest.mark.long
def test_sines_and_cosines_are_directions():
    """The code of the advice finds clusters that arcs of the circle hide."""
    rng = np.random.default_rng(2)
    hours, y = 2.0 * np.pi * rng.random((150, 2)), rng.integers(2, size=150)
    circle = np.column_stack([np.sin(hours[:, 0]), np.cos(hours[:, 0])])
    numbers = rng.normal(size=(150, 2)) + 6.0 * y[:, None]
    X = np.hstack([numbers, circle, np.cos(hours[:, 1:]), np.sin(hours[:, 1:])])
    with pytest.warns(UserWarning, match="column 2, .* and column 5 of X .*angles") as said:
        DPMixture(**SHORT).fit(X)
    code = str(said[0].message).partition("likelihood=")[2].partition(", with the classes")[0]
    advised = eval(code, vars(likelihoods))
    labels = DPMixture(likelihood=advised, n_warmup=40, n_draws=20, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, labels) > 0.9
    with pytest.warns(UserWarning, match="'a' and column 'b' of X are sines"):
        DPMixture(**SHORT).fit(pd.DataFrame(circle.astype(np.float32), columns=["a", "b"]))
    with pytest.warns(UserWarning, match=r"sines.*\n.*angle0.* \[0, 1\].*\n.*numeric.* \[2\]"):
        DPMixture(**SHORT).fit(np.column_stack([circle, -circle[:, 0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        circle[0] *= 1.01
        for other in (circle, 1e100 * circle, numbers[:, :1]):
            DPMixture(**SHORT).fit(other)
        DPMixture(likelihood="bernoulli", **SHORT).fit(np.column_stack([y, 1 - y]))
    with pytest.warns(UserWarning, match="two different values") as said:
        DPMixture(**SHORT).fit(np.column_stack([y, 1 - y]))
    assert "sines" not in str(said[0].message)


def test_angles_of_later_rows_count(monkeypatch):
    """A pair whose first rows are all 0 and 1 is one of directions if others are not."""
    monkeypatch.setattr(doubts, "BLOCK_ROWS", 8)
    t = 0.5 * np.pi * np.append(np.arange(8), np.linspace(0.0, 4.0, 9))
    X = np.column_stack([np.sin(t), np.cos(t), t])
    assert doubts._angles(X).tolist() == [0]
    assert doubts._angles(X[:8]).tolist() == []


@pytest.mark.long
def test_numbers_that_go_round_are_named():
    rng = np.random.default_rng(0)
    near = rng.normal(size=200)
    for period, x in ((24, near), (360, 20.0 * near), (366, (15.0 * near).round())):
        X = pd.DataFrame({"size": rng.normal(size=200), "t": x % period + (period == 366)})
        words = rf"^column 't' of X has .* ends of a period of {period}.*of t = 2 \* np.pi \* x / "
        with pytest.warns(UserWarning, match=words):
            DPMixture(**SHORT).fit(X)
    with pytest.warns(UserWarning, match="ends of a period of 360"):
        DPMixture(**SHORT).fit((20.0 * near[:, None] + 360.0) % 360.0 - 180.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        even, high = 24.0 * rng.random(200), 12.0 + 3.0 * near
        for x in (even, high, 25.0 * (near % 1.0), (near % 24.0)[:40], 0.04 * (near % 24.0)):
            DPMixture(**SHORT).fit(x[:, None])


@pytest.mark.long
def test_groups_in_a_column_that_others_outweigh_are_named():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = rng.normal(size=(300, 24))
    X[:, 7] += 5.0 * y
    with pytest.warns(UserWarning, match="groups in column 7. The other columns") as said:
        assert DPMixture(**SHORT).fit(X).n_components_samples_.max() == 1
    code = str(said[-1].message).partition("likelihood=")[2]
    advised = eval(code, vars(likelihoods))
    labels = DPMixture(likelihood=advised, n_draws=20, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, labels) > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for x in (rng.normal(size=300), rng.random(300), (9.0 * X[:, 0]).round(), X[:80, 7]):
            table = np.column_stack([x, X[: len(x), :7]])
            DPMixture(likelihood="gaussian", **SHORT).fit(table)


def test_a_list_of_links_is_no_table_of_categories():
    rng = np.random.default_rng(0)
    links = pd.DataFrame({side: rng.choice([f"n{i}" for i in range(20)], 80) for side in "ab"})
    for X in (links, links.assign(weight=rng.normal(size=80)), links.to_numpy()):
        with pytest.warns(UserWarning, match=r"share most of their values.*adjacency\(X\)"):
            DPMixture(likelihood="mixed", **SHORT).fit(X)
    assert DPMixture(likelihood="relational", **SHORT).fit(adjacency(links)).n_features_in_ == 20
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        DPMixture(likelihood="mixed", **SHORT).fit(links.assign(b=rng.choice(list("xyz"), 80)))
        DPMixture(likelihood="categorical", **SHORT).fit(links > "n14")  # two values each


def _said(X, model=DPMixture, **settings):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model(**SHORT | {"likelihood": "gaussian"} | settings).fit(X)
    return [str(warning.message) for warning in said]


def test_distances_and_correlations_are_no_properties_of_rows():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    distances = np.sqrt(np.square(rows[:, None] - rows).sum(axis=2))
    noisy = distances * (1.0 + 1e-12 * rows[:, :1])
    for X in (distances, noisy, 1e-3 * np.square(distances), 1.0 - np.corrcoef(rows)):
        assert "diagonal 0, as distances" in _said(X)[0]
    correlations = pd.DataFrame(rows.T).corr()
    for X in (correlations, correlations.abs(), np.exp(-distances)):
        said = _said(X)[0]
        assert "diagonal 1, as similarities" in said and "1 - X by sklearn.manifold.MDS" in said
    assert "as distances" in _said(distances, FiniteMixture, n_components=2)[0]
    others = rows @ rows.T, distances + np.eye(30), distances * rows[:, :1], distances[:7, :7]
    for X in (*others, distances[:29], np.full((9, 9), 0.5), 2.0 - distances / distances.max()):
        assert not any("is symmetric" in words for words in _said(X))


def test_messages_of_a_fit_agree():
    """None says that labels or densities can be used if another names a value of many rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) + 5.0 * rng.integers(3, size=(200, 1))
    filled = np.where(rng.random(X.shape) < 0.2, -1.0, X)
    said = " ".join(_said(filled, n_chains=2, n_warmup=30))
    assert "make it NaN" in said and "not mixed" in said and "can be" not in said
    line = np.vstack([X, rng.normal(size=(100, 1)) * [1.0, 2.0, 3.0] - 20.0])
    said = " ".join(_said(line, n_warmup=30))
    assert "are on lines or planes" in said and "can be" not in said


def test_clusters_of_rows_that_hardly_differ_are_named():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(100, 3)) + 5.0 * rng.integers(3, size=(100, 1))
    X = rows[rng.integers(100, size=250)]
    said = _said(X + 1e-3 * rng.normal(size=X.shape), n_warmup=20)
    assert any("clusters of few rows that hardly differ" in words for words in said)
    wide = np.repeat(rows[:12], 20, axis=0) + 1e-3 * rng.normal(size=(240, 3))
    for other in (rows, wide):
        assert not any("hardly differ" in words for words in _said(other, n_warmup=20))
