"""Kept draws: what `draws_` holds, and what is left of chains that an interruption cut."""

import pickle
import warnings

import numpy as np
import pytest
from support.designs import everyday

from skdpm import DPMixture, FeatureAllocation, FiniteMixture
from skdpm._run import Run
from skdpm.chains import ChainProgram, LiveChain, run_chains
from skdpm.draws import Candidates, ChainDraws, Column, Draws, Snapshots, common_snapshots
from skdpm.mixture.likelihoods import Bernoulli

pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")

FAST = {"n_warmup": 5, "n_draws": 12, "n_chains": 2, "random_state": 0}
COLUMNS = (
    Column("log_joint"),
    Column("count", dtype=np.int64),
    Column("theta", "params", shape=(2,)),
    Column("labels", "labels", shape=(3,)),
    Column("parts", "ragged"),
)


def entry(s):
    return {
        "log_joint": -float(s),
        "count": s,
        "theta": np.array([s, s + 0.5]),
        "labels": np.array([0, s, 1], dtype=np.min_scalar_type(s)),
        "parts": np.full(s % 3, s),
    }


def filled(start, stop, saved=None):
    draws = ChainDraws(COLUMNS, 400, saved)
    for s in range(start, stop):
        draws.append(**entry(s))
    return draws.save()


def test_columns_keep_what_they_are_given():
    saved = filled(0, 300)
    assert saved["log_joint"].dtype == np.float64 and saved["count"].dtype == np.int64
    assert saved["labels"].dtype == np.uint16  # widened at 256
    for s in (0, 255, 256, 299):
        np.testing.assert_array_equal(saved["theta"][s], [s, s + 0.5])
        np.testing.assert_array_equal(saved["labels"][s], [0, s, 1])
        np.testing.assert_array_equal(saved["parts"][s], np.full(s % 3, s))


def test_a_chain_goes_on_from_what_it_saved():
    whole, parts = filled(0, 300), filled(120, 300, filled(0, 120))
    for name in whole:
        for one, other in zip(whole[name], parts[name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_draw_must_have_every_column():
    with pytest.raises(ValueError, match="a draw has"):
        ChainDraws(COLUMNS, 3).append(log_joint=0.0)


def test_chains_are_cut_to_their_common_draws_and_can_go_on():
    saved = [filled(0, 5), filled(0, 9)]
    draws = Draws.of_chains(COLUMNS, saved, 5)
    assert (draws.n_chains, draws.n_draws) == (2, 5)
    assert draws["theta"].shape == (2, 5, 2) and draws["labels"].shape == (2, 5, 3)
    assert [len(chain) for chain in draws["parts"]] == [5, 5]
    assert [len(chain["count"]) for chain in saved] == [0, 4]
    whole = draws.chain(1, saved[1])
    np.testing.assert_array_equal(whole["count"], np.arange(9))
    assert [len(part) for part in whole["parts"]] == [s % 3 for s in range(9)]


def test_means():
    draws = Draws.of_chains(COLUMNS, [filled(0, 4), filled(0, 4)], 4)
    assert draws.mean("count") == 1.5
    np.testing.assert_allclose(draws.mean("theta"), [1.5, 2.0])


@pytest.mark.parametrize("n_draws", [1, 3, 7, 20])
def test_candidates_know_the_best_of_any_number_of_draws(n_draws):
    values = np.random.default_rng(n_draws).normal(size=20)
    candidates = Candidates()
    for s, value in enumerate(values):
        candidates = Candidates(candidates.save())
        candidates.offer(s, value, f"labels {s}")
    best = int(np.argmax(values[:n_draws]))
    assert candidates.best(n_draws) == (values[best], f"labels {best}")
    assert candidates.last == (19, "labels 19")
    assert len(candidates.records) < 20


def test_snapshots_are_evenly_spaced_and_share_parts():
    snapshots = Snapshots(4)
    for s in range(37):
        if snapshots.due():
            key = "even" if s % 16 == 0 else s
            snapshots.take({"keys": [key], "s": s}, {key: s}.items())
    saved = snapshots.save()
    assert [draw["s"] for draw in saved["draws"]] == [0, 16, 32]
    assert list(saved["pool"]) == ["even"]
    fewer = Snapshots(4)
    for s in range(6):
        if fewer.due():
            fewer.take({"s": s})
    common = common_snapshots([saved, fewer.save()], 20)
    assert [(c, draw["s"]) for c, draw, _ in common] == [(0, 0), (0, 16), (1, 0)]


# Estimators.


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 2)) + np.repeat([[0, 0], [6, 6]], 15, axis=0)


def test_draws_of_mixtures_are_the_attributes(blobs):
    model = DPMixture(**FAST).fit(blobs)
    learned = {f"likelihood__{name}" for name in model.likelihood_.learned}
    names = {"log_joint", "concentration", "n_components", "labels"}
    assert set(model.draws_) == names | learned and learned
    for name in model.likelihood_.learned:
        samples = model.hyperparameter_samples_[name]
        assert model.draws_[f"likelihood__{name}"] is samples
    assert model.draws_["labels"] is model.label_samples_
    assert model.draws_["concentration"] is model.concentration_samples_
    assert model.draws_["n_components"] is model.n_components_samples_
    assert model.draws_["log_joint"] is model.log_joint_samples_
    for name, values in model.draws_.items():
        assert values.shape[:2] == (2, 12), name
    names = ", ".join(model.draws_)
    size = sum(values.nbytes for values in model.draws_.values())
    assert model.draws_.nbytes == size
    found = repr(model.draws_)
    assert found == f"Draws({names}: 2 chains of 12 draws, {size / 1e6:,.1f} MB)"
    without = DPMixture(store_labels=False, point_estimate="last", **FAST).fit(blobs)
    assert "labels" not in without.draws_


def test_draws_of_features_are_the_attributes(blobs):
    model = FeatureAllocation(**FAST).fit(blobs)
    assert model.draws_["allocations"] is model.allocation_samples_
    assert model.draws_["components"] is model.component_samples_
    samples = model.hyperparameter_samples_
    assert set(samples) == {"noise_precision", "component_precision"}
    assert model.draws_["likelihood__noise_precision"] is samples["noise_precision"]
    for values in model.draws_.values():
        assert len(values) == 2 and len(values[0]) == 12
    assert set(model.draws_) >= {"log_joint", "concentration", "likelihood__component_precision"}


def test_scored_draws_tell_densities_draw_by_draw(blobs):
    """The average over draws is that of what each draw says alone."""
    model = DPMixture(**FAST).fit(blobs)
    scored = model.draws_.scored
    assert len(scored) == 24 and sum(draw["weight"] for draw in scored.draws) == pytest.approx(1)
    alone = pickle.loads(pickle.dumps(model))
    terms = []
    for draw in scored.draws:
        alone._predictor.scored.draws = [{**draw, "weight": 1.0}]
        vars(alone._predictor.scored).pop("mixtures", None)  # pooled once
        terms.append(alone.score_samples(blobs))
    np.testing.assert_allclose(np.logaddexp.reduce(terms) - np.log(24), model.score_samples(blobs))


# Bugs that were.


class CoupledBernoulli(Bernoulli):
    """States less than its kernel does: that clusters are coupled."""

    capabilities = frozenset({"joint"})


def test_a_kernel_that_contradicts_its_likelihood_is_refused(blobs):
    """B3: it used to sample to the end and die of a KeyError."""
    X = (blobs > 3).astype(float)
    for cls in (DPMixture, FiniteMixture):
        model = cls(likelihood=CoupledBernoulli(), **FAST)
        with pytest.raises(ValueError, match=r'CoupledBernoulli lacks .*"product".*must agree'):
            model.fit(X)
        assert not hasattr(model, "draws_")


def test_rows_can_be_drawn_whatever_number_of_mixtures_is_stored(blobs):
    """B9: `sample` assumed that there is one, as where clusters are independent."""
    X = (blobs > 3).astype(float)
    model = DPMixture(likelihood=Bernoulli(), **FAST).fit(X)
    scored = model.draws_.scored
    # Each draw for itself, as where clusters are coupled.
    for draw in scored.draws:
        draw["stats"] = scored.stats[draw.pop("clusters")]
        draw["labels"] = None
    assert len(scored.mixtures) == len(scored) > 1
    drawn, labels = model.sample(4_000)
    assert drawn.shape == (4_000, 2) and labels.max() < model.n_clusters_
    np.testing.assert_allclose(drawn.mean(axis=0), X.mean(axis=0), atol=0.15)


def test_sample_asks_the_likelihood_that_was_fitted(blobs):
    """B9: the parameter may have changed since."""
    model = DPMixture(likelihood=Bernoulli(), **FAST).fit((blobs > 3).astype(float))
    model.set_params(likelihood="relational")
    assert model.sample(3)[0].shape == (3, 2)
    model = DPMixture(likelihood="relational", **FAST).fit(np.eye(4))
    model.set_params(likelihood="gaussian")
    assert not hasattr(model, "sample")


@pytest.mark.parametrize("point_estimate", ["map", "last"])
@pytest.mark.parametrize("seed", everyday(range(12), 0, 1, 2))
@pytest.mark.some(2)
def test_interrupted_fits_do_not_depend_on_what_is_stored(point_estimate, seed, blobs):
    """B8: with labels not stored, the point estimate could be a draw that was cut off."""
    fits = []
    for store_labels in (True, False):
        model = DPMixture(
            store_labels=store_labels,
            point_estimate=point_estimate,
            sampler="gibbs",
            concentration=3.0,
            **{**FAST, "random_state": seed, "n_chains": 3},
        )
        X = model._validate_fit(blobs, *parts(model, blobs), reset=True)
        program = model._program(X, *parts(model, blobs))
        chains = [program.chain(seed, c) for c in range(3)]
        for chain, n_iterations in zip(chains, (5 + 11, 5 + 6, 5 + 8), strict=True):
            program.advance(chain, n_iterations, lambda **figures: True)
        run = Run(entropy=seed, signature={}, chains=chains, program=program)
        vars(model).update(model._concluded(run, 6))
        fits.append(model)
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)


def parts(model, X):
    likelihood = model._resolved("likelihood")
    return likelihood, model._resolved_sampler(likelihood, X)


@pytest.mark.slow
def test_chains_are_pickled_for_a_warm_start_alone(blobs):
    """B12: they hold all that was kept, and were pickled with every fit."""
    slim = DPMixture(**FAST).fit(blobs)
    whole = DPMixture(warm_start=True, **FAST).fit(blobs)
    assert len(pickle.dumps(slim)) < 0.7 * len(pickle.dumps(whole))
    copy = pickle.loads(pickle.dumps(slim))
    np.testing.assert_array_equal(copy.score_samples(blobs), slim.score_samples(blobs))
    # What is not there cannot go on, and says so.
    copy.set_params(warm_start=True, n_draws=20)
    with pytest.warns(UserWarning, match="a new run starts"):
        copy.fit(blobs)
    expected = DPMixture(**{**FAST, "n_draws": 20}).fit(blobs)
    np.testing.assert_array_equal(copy.label_samples_, expected.label_samples_)


def test_chains_share_their_clusters_with_what_scores_new_rows(blobs):
    """B12: the statistics of stored clusters were there twice."""
    model = DPMixture(**FAST).fit(blobs)
    pools = [chain["snapshots"]["pool"] for chain in model._run.chains]
    shared = sum(stats.base is model.draws_.scored.stats for p in pools for stats in p.values())
    assert shared >= len(model.draws_.scored.stats) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", everyday(range(8), 0))
def test_scores_go_on_to_the_bit_with_several_chains(seed):
    """Chains that have the same cluster have its statistics in other last digits where they round;
    each goes on with its own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + np.repeat([[0, 0], [3, 3]], 20, axis=0)
    params = {"n_chains": 3, "n_warmup": 5, "random_state": seed}
    whole = DPMixture(n_draws=150, **params).fit(X)
    parts = DPMixture(n_draws=40, warm_start=True, **params).fit(X)
    parts.set_params(n_draws=150).fit(X)
    np.testing.assert_array_equal(parts.score_samples(X), whole.score_samples(X))


@pytest.mark.long
def test_parameters_that_cannot_be_pickled_are_compared_as_they_are(blobs):
    law = lambda K: K * np.log(0.5)  # noqa: E731
    model = FiniteMixture(None, n_components_prior=law, warm_start=True, **FAST).fit(blobs)
    whole = FiniteMixture(None, n_components_prior=law, **{**FAST, "n_draws": 20}).fit(blobs)
    model.set_params(n_draws=20).fit(blobs)
    np.testing.assert_array_equal(model.label_samples_, whole.label_samples_)
    model.set_params(n_draws=30, n_components_prior=lambda K: K * np.log(0.5))
    with pytest.raises(ValueError, match="but n_components_prior changed"):
        model.fit(blobs)


def test_a_law_of_the_number_of_components_is_evaluated_once(blobs):
    calls = []

    def law(K):
        calls.append(np.size(K))
        return K * np.log(0.5)

    FiniteMixture(None, n_components_prior=law, **FAST).fit(blobs)
    assert sum(calls) < 5_000


class NaNChain(LiveChain):
    def step(self, iteration):
        self.iteration = iteration

    def compute_log_joint(self):
        return np.nan if self.iteration == 3 else -1.0

    def keep(self, draw, log_joint):
        return {"log_joint": log_joint}

    def save(self):
        return {}


class NaNProgram(ChainProgram):
    def columns(self):
        return [Column("log_joint")]

    def resume(self, chain):
        return NaNChain()


def test_a_log_joint_that_is_no_number_ends_the_fit():
    """B7: it gave an R-hat of NaN, which is not above any threshold."""
    program = NaNProgram(
        likelihood=None,
        sampler=None,
        n_samples=2,
        prior_of=None,
        concentration=1.0,
        concentration_prior=(1.0, 1.0),
        n_warmup=0,
        n_draws=9,
        thin=1,
        n_chains=1,
    )
    chain = program.chain(0, 0)
    with pytest.raises(FloatingPointError, match="log joint density is nan after iteration 4"):
        run_chains(program.advance, [chain], 9)
    assert chain == {"index": 0, "entropy": 0, "iteration": 0}


def test_an_r_hat_that_is_no_number_is_warned_of(blobs):
    model = DPMixture(**FAST).fit(blobs)
    model.diagnostics_ = {"n_components": {"r_hat": np.nan, "ess_bulk": np.nan}}
    with pytest.warns(match="not mixed: they found different numbers of components"):
        model._warn_if_not_converged(ChainProgram)
    model = DPMixture(**{**FAST, "n_draws": 3}).fit(blobs)  # too few for an R-hat
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._warn_if_not_converged(ChainProgram)
