"""Fits as ArviZ has them: names, dimensions and values of all groups; its figures and ours."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest

from skdpm import DPMixture, FeatureAllocation, FiniteMixture
from skdpm.features.likelihoods import LinearGaussian
from skdpm.mixture.likelihoods import Gaussian, Poisson, Product

pytest.importorskip("arviz_base")
arviz_stats = pytest.importorskip("arviz_stats")
if not hasattr(arviz_stats, "loo"):
    pytest.skip("arviz-stats without xarray", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_chains": 3, "n_warmup": 10, "n_draws": 40, "random_state": 0}
COLUMNS = ["height", "width"]


@pytest.fixture(scope="module")
def table():
    X = np.random.default_rng(0).normal(size=(30, 2)) + np.tile([0, 3, 6], 10)[:, None]
    return pd.DataFrame(X, columns=COLUMNS)


@pytest.fixture(scope="module")
def mixture(table):
    return DPMixture(likelihood="gaussian", **FAST).fit(table)


@pytest.mark.long
def test_posterior(mixture):
    posterior = mixture.to_datatree().posterior
    expected = {
        "n_components": (mixture.n_components_samples_, ()),
        "concentration": (mixture.concentration_samples_, ()),
        "labels": (mixture.label_samples_, ("row",)),
    }
    dims = {"mean": ("column",), "scale": ("column",), "mean_precision": (), "df": ()}
    for name, values in mixture.hyperparameter_samples_.items():
        expected[f"likelihood__{name}"] = (values, dims[name])
    assert set(posterior.data_vars) == set(expected)
    for name, (values, more) in expected.items():
        assert posterior[name].dims == ("chain", "draw", *more), name
        np.testing.assert_array_equal(posterior[name], values, err_msg=name)
    at = {"chain": 2, "draw": 7, "column": "width"}
    value = mixture.hyperparameter_samples_["scale"][2, 7, 1]
    assert posterior["likelihood__scale"].sel(at) == value
    np.testing.assert_array_equal(posterior["row"], np.arange(30))


@pytest.mark.long
def test_columns_of_parts_keep_their_names(table):
    counts = table.assign(n=np.arange(30.0) % 4, m=1.0)
    parts = [
        ("low", Poisson(), ["n"]),
        ("size", Gaussian(covariance_type="diag"), ["width", "height"]),
    ]
    mixture = DPMixture(likelihood=Product(parts), **FAST).fit(counts)
    posterior = mixture.to_datatree(counts, log_likelihood=True).posterior
    scale = posterior["likelihood__size__scale"]
    assert scale.dims == ("chain", "draw", "size_column")
    for j, name in enumerate(["width", "height"]):  # of the part, in the order of the part
        np.testing.assert_array_equal(
            scale.sel(size_column=name), mixture.hyperparameter_samples_["size__scale"][..., j]
        )
    assert posterior["likelihood__low__rate"].dims == ("chain", "draw")


@pytest.mark.long
def test_sample_stats(mixture):
    stats = mixture.to_datatree().sample_stats
    assert stats["lp"].dims == ("chain", "draw")
    np.testing.assert_allclose(stats["lp"], mixture.log_joint_samples_, rtol=1e-10)
    assert set(stats["move"].values) == set(mixture.acceptance_rate_)
    for move, rates in mixture.acceptance_rate_.items():
        np.testing.assert_array_equal(stats["acceptance_rate"].sel(move=move), rates)


def test_figures_are_those_of_arviz(mixture):
    tree = mixture.to_datatree()
    compared = 0
    for name, figures in mixture.diagnostics_.items():
        if name in ("coclustering", "log_density", "n_clusters"):
            continue
        draws = tree.sample_stats["lp"] if name == "log_joint" else tree.posterior[name]
        expected = {
            "r_hat": arviz_stats.rhat(draws, method="rank"),
            "ess_bulk": arviz_stats.ess(draws, method="bulk"),
            "ess_tail": arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95)),
            "mcse_mean": arviz_stats.mcse(draws, method="mean"),
        }
        own = {"below_highest", "chance_of_drift", "difference_chains", "difference_masses"}
        own |= {"lost_mass", "n_starts"}
        assert figures.keys() - own == expected.keys()
        assert name == "log_joint" or not figures.keys() & own
        for figure, value in expected.items():
            assert figures[figure] == pytest.approx(float(value), rel=1e-10), (name, figure)
            compared += 1
    assert compared == 20
    summary = arviz_stats.summary(tree, var_names=["~labels"], round_to="none")
    assert summary.loc["n_components", "r_hat"] == pytest.approx(
        mixture.diagnostics_["n_components"]["r_hat"]
    )


def test_what_is_fixed_or_not_kept_is_left_out(table):
    likelihood = Gaussian(mean=0.0, mean_precision=0.1, df=5.0, scale=1.0)
    params = {"concentration": 1.0, "store_labels": False, "point_estimate": "map"}
    model = FiniteMixture(3, likelihood=likelihood, sampler="gibbs", **params, **FAST).fit(table)
    tree = model.to_datatree()
    assert set(tree.children) == {"posterior", "sample_stats"}
    assert list(tree.posterior.data_vars) == ["n_components"]
    assert list(tree.sample_stats.data_vars) == ["lp"]


def test_observed_data(mixture, table):
    for X in (table, table.astype("Float64")):
        data = mixture.to_datatree(X).observed_data
        assert data["x"].dims == ("row", "column")
        np.testing.assert_array_equal(data["x"], table.to_numpy())
        np.testing.assert_array_equal(data["x"].sel(column="width"), table["width"])
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        mixture.to_datatree(table + 1)
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        pickle.loads(pickle.dumps(mixture)).to_datatree(table[:10])


def test_tables_with_words():
    from skdpm._arviz import _observed

    table = pd.DataFrame(
        {
            "city": pd.Categorical(["Paris", None, "Rome"]),
            "rooms": pd.array([1, None, 3], dtype="Int64"),
            "old": pd.array([True, None, False], dtype="boolean"),
        }
    )
    found = _observed(table)
    assert found["city"].tolist() == ["Paris", "nan", "Rome"]
    np.testing.assert_array_equal(found["rooms"], [1, np.nan, 3])
    np.testing.assert_array_equal(found["old"], [1, np.nan, 0])
    matrix = _observed(table[["rooms", "old"]])
    np.testing.assert_array_equal(matrix["x"], [[1, 1], [np.nan, np.nan], [3, 0]])


def test_log_likelihood(mixture, table, monkeypatch):
    """Densities go with the draws and chains that they are of."""
    scored = [(draw["chain"], draw["draw"]) for draw in mixture.draws_.scored.draws]
    values = np.array([1000 * c + s + np.arange(30) / 100 for c, s in scored]).reshape(3, -1, 30)
    assert values.shape[1] < 40
    monkeypatch.setattr(DPMixture, "pointwise_log_likelihood", lambda self, X: values)
    tree = mixture.to_datatree(table, log_likelihood=True)
    density = tree.log_likelihood["x"]
    assert density.dims == ("chain", "draw", "row")
    for c, s in scored:
        assert density.sel(chain=c, draw=s, row=25) == 1000 * c + s + 0.25
    assert tree.posterior.sizes["draw"] == 40 and "observed_data" in tree.children
    with pytest.raises(ValueError, match="needs X"):
        mixture.to_datatree(log_likelihood=True)
    with pytest.raises(ValueError, match="log_likelihood must be"):
        mixture.to_datatree(table, log_likelihood="x")


@pytest.mark.filterwarnings("ignore:.*are copies")
def test_groups_have_the_same_rows(table):
    X = np.tile(table, (2, 1))
    model = DPMixture(n_chains=1, n_warmup=5, n_draws=5, random_state=0).fit(X)
    tree = model.to_datatree(X, log_likelihood=True)
    for group in (tree.posterior, tree.log_likelihood, tree.observed_data):
        assert group.sizes["row"] == 60


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_loo_is_cross_validation():
    """What ArviZ makes of the densities, and fits without each row."""
    X = np.random.default_rng(3).normal(size=(12, 1)) + np.tile([0.0, 3.0], 6)[:, None]
    likelihood = Gaussian(mean=1.5, mean_precision=0.2, df=4.0, scale=1.0)
    params = {"likelihood": likelihood, "sampler": "gibbs", "n_warmup": 20, "random_state": 0}
    model = DPMixture(**params, n_draws=400, thin=4).fit(X)
    left_out = []
    for i in range(12):
        others = DPMixture(**params, n_chains=1, n_draws=100, thin=4).fit(np.delete(X, i, axis=0))
        left_out.append(others.score_samples(X[i : i + 1])[0])
    tree = model.to_datatree(X, log_likelihood=True)
    loo = arviz_stats.loo(tree, pointwise=True, reff=1.0)
    # Densities of both are means over 100 draws.
    np.testing.assert_allclose(loo.elpd_i, left_out, atol=0.2)
    assert abs(loo.elpd - np.sum(left_out)) < 0.3
    # Those of the rows under a fit that has them are higher.
    assert model.score_samples(X).sum() > loo.elpd + 1.0


def test_features(table):
    model = FeatureAllocation(likelihood=LinearGaussian(noise_precision=1.0), **FAST).fit(table)
    tree = model.to_datatree(table)
    assert set(tree.posterior.data_vars) == {
        "n_components",
        "concentration",
        "likelihood__component_precision",
        "intercept",
    }
    np.testing.assert_array_equal(tree.posterior["n_components"], model.n_components_samples_)
    assert tree.posterior["intercept"].dims == ("chain", "draw", "column")
    np.testing.assert_array_equal(tree.posterior["intercept"], model.intercept_samples_)
    assert set(tree.sample_stats.data_vars) == {"lp"}
    with pytest.raises(ValueError, match="FeatureAllocation has no pointwise log likelihood"):
        model.to_datatree(table, log_likelihood=True)


def test_without_arviz_the_extra_is_named(mixture, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ImportError, match=r'pip install "skdpm\[arviz\]"'):
        mixture.to_datatree()
