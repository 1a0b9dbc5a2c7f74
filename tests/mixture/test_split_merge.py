"""PGSM, SAMS and Jain-Neal as pure kernels, against enumerated posteriors, over their settings.

`test_enumeration.py` runs one setting of each with every likelihood and prior; here the settings
vary, and the sizes at which mistakes show: closures of exactly the anchors, a finite mixture with
all components in use, orders that matter from six rows on.
"""

import itertools
import pickle

import numpy as np
import pytest
from exactness import invariance_run, make_likelihood, make_prior, make_state, record_worst
from pvalues import assert_p_matrix
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case

from skdpm.mixture.samplers import PGSM, SAMS, SplitMerge

SCHEMES = ("multinomial", "stratified", "systematic", "optimal")


def rows(likelihood, n):
    """The first n rows of a case; beyond them its rows again, in other columns' order."""
    X = enumeration_case(likelihood).X
    return np.concatenate([X, X[::-1, ::-1]])[:n]


def cell(sampler, likelihood, prior_case, n, *, n_starts=6_000, warmup=0, **changes):
    """A run for `assert_p` of a pure kernel on n rows."""
    prior, params = PRIOR_CASES[prior_case]
    params = {**params, **changes}
    X = rows(likelihood, n)
    posterior = log_posterior(
        X,
        likelihood,
        prior,
        likelihood_params=enumeration_case(likelihood).params,
        prior_params=params,
    )
    state = make_state(make_likelihood(likelihood), X, make_prior(prior, n, **params))
    kernel = sampler.kernel()
    for _ in range(warmup):
        kernel.run(state, np.random.PCG64(0), True)
    return invariance_run(state, kernel, posterior, n_starts=n_starts)


def check(runs, seed_sequence, record_property):
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def covering(full):
    """Settings of PGSM; without `full` a design in which any two values of two factors meet."""
    factors = {
        "n_particles": (2, 3, 20),
        "resample_threshold": (0.0, 0.5, 1.0),
        "resampling": SCHEMES,
        "n_anchors": (2, 3, 4),
        "prior": ("dp", "pitman_yor_negative", "finite"),
        "likelihood": ("gaussian", "bernoulli"),
        "n": (2, 3, 4, 5),
    }
    product = list(itertools.product(*factors.values()))
    if full:
        return [dict(zip(factors, values, strict=True)) for values in product]
    rng = np.random.default_rng(0)
    missing = {
        (a, u, b, v)
        for a, b in itertools.combinations(factors, 2)
        for u in factors[a]
        for v in factors[b]
    }
    chosen = []
    while missing:
        best, gain = None, set()
        for index in rng.choice(len(product), 60, replace=False):
            setting = dict(zip(factors, product[index], strict=True))
            pairs = {(a, setting[a], b, setting[b]) for a, b in itertools.combinations(factors, 2)}
            if best is None or len(pairs & missing) > len(gain):
                best, gain = setting, pairs & missing
        chosen.append(best)
        missing -= gain
    return chosen


def pgsm_runs(full):
    runs = {}
    for setting in covering(full):
        name = " ".join(map(str, setting.values()))
        likelihood, prior, n = (setting.pop(key) for key in ("likelihood", "prior", "n"))
        sampler = PGSM(anchors="uniform", gibbs_sweeps=0, **setting)
        runs[name] = cell(sampler, likelihood, prior, n, n_starts=2_000 if full else 6_000)
    return runs


def test_pgsm_settings(seed_sequence, record_property):
    check(pgsm_runs(False), seed_sequence, record_property)


@pytest.mark.slow
def test_pgsm_settings_in_full(seed_sequence, record_property):
    check(pgsm_runs(True), seed_sequence, record_property)


def test_pgsm_anneals_a_strong_prior(seed_sequence, record_property):
    """At a concentration of 0.05 the prior ratio that the annealing spreads out is large."""
    runs = {
        f"{scheme} {n_anchors}": cell(
            PGSM(
                n_particles=3,
                n_anchors=n_anchors,
                anchors="uniform",
                resample_threshold=1.0,
                resampling=scheme,
                gibbs_sweeps=0,
            ),
            "gaussian",
            "dp",
            5,
            concentration=0.05,
        )
        for scheme in SCHEMES
        for n_anchors in (2, 3)
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.parametrize("anchors", ["cluster_informed", "threshold_informed"])
def test_informed_anchors(anchors, seed_sequence, record_property):
    """A snapshot that warm-up left behind is a law of the anchors like any other."""
    runs = {}
    for prior in ("dp", "finite"):
        for sampler in (
            PGSM(n_particles=4, anchors=anchors, gibbs_sweeps=0),
            PGSM(n_particles=4, n_anchors=3, anchors=anchors, gibbs_sweeps=0),
            SAMS(anchors=anchors, gibbs_sweeps=0),
        ):
            runs[f"{sampler!r} {prior}"] = cell(sampler, "gaussian", prior, 5, warmup=30)
    check(runs, seed_sequence, record_property)


def test_split_merge_on_six_rows(seed_sequence, record_property):
    """Six rows tell an order that is fixed from a random one."""
    runs = {
        f"{sampler!r} {prior}": cell(sampler, "gaussian", prior, 6, n_starts=20_000)
        for sampler in (
            SAMS(gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=0, gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=3, gibbs_sweeps=0),
        )
        for prior in ("dp", "pitman_yor", "finite")
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.parametrize("sampler", [PGSM(gibbs_sweeps=0), SAMS(gibbs_sweeps=0)])
def test_moves_are_made(sampler):
    """What invariance cannot show."""
    X = rows("gaussian", 5)
    state = make_state(make_likelihood("gaussian"), X, make_prior("dp", 5, concentration=1.0))
    kernel = sampler.kernel()
    bit_generator = np.random.PCG64(0)
    for _ in range(200):
        kernel.run(state, bit_generator)
    for proposed, accepted in kernel.acceptance().values():
        assert 0 < accepted < proposed


@pytest.mark.parametrize("anchors", ["cluster_informed", "threshold_informed"])
def test_snapshot_is_frozen_and_survives_a_pickle(anchors):
    X = np.random.default_rng(0).normal(size=(40, 2)) + 4 * np.eye(2)[np.arange(40) % 2]
    sampler = PGSM(anchors=anchors)

    def new_state(labels):
        prior = make_prior("dp", 40, concentration=1.0)
        return make_state(make_likelihood("gaussian"), X, prior, labels)

    state = new_state(np.arange(40) % 2)
    kernel, bit_generator = sampler.kernel(), np.random.PCG64(1)
    for _ in range(5):
        kernel.run(state, bit_generator, True)
    kernel.run(state, bit_generator, False)
    frozen = kernel.get_adaptation()
    assert frozen["frozen"] and frozen["arrays"]
    kernel.run(new_state(np.arange(40) % 5), np.random.PCG64(2), False)
    assert kernel.get_adaptation()["arrays"].keys() == frozen["arrays"].keys()
    for name, array in kernel.get_adaptation()["arrays"].items():
        np.testing.assert_array_equal(array, frozen["arrays"][name])

    other = sampler.kernel()
    other.set_adaptation(pickle.loads(pickle.dumps(frozen)))
    ends = []
    for one in (kernel, other):
        state = new_state(np.arange(40) % 3)
        bit_generator = np.random.PCG64(3)
        for _ in range(5):
            one.run(state, bit_generator, False)
        ends.append(state.cluster_labels().tolist())
    assert ends[0] == ends[1]


def test_no_warmup_means_uniform_anchors():
    X = rows("gaussian", 5)
    ends = []
    for anchors in ("uniform", "cluster_informed", "threshold_informed"):
        prior = make_prior("dp", 5, concentration=1.0)
        state = make_state(make_likelihood("gaussian"), X, prior, np.arange(5) % 3)
        kernel, bit_generator = PGSM(anchors=anchors).kernel(), np.random.PCG64(1)
        ends.append([])
        for _ in range(20):
            kernel.run(state, bit_generator, False)
            ends[-1].append(state.cluster_labels().tolist())
    assert ends[0] == ends[1] == ends[2]


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"PGSM.n_anchors must be at most 5, got 6"):
        PGSM(n_anchors=6).kernel()
    with pytest.raises(ValueError, match=r"PGSM.n_particles must be at least 2"):
        PGSM(n_particles=1).kernel()
    with pytest.raises(ValueError, match=r"PGSM.resample_threshold"):
        PGSM(resample_threshold=1.5).kernel()
    with pytest.raises(ValueError, match=r"PGSM.anchors must be one of"):
        PGSM(anchors="informed").kernel()
    with pytest.raises(ValueError, match=r"SAMS.anchors must be one of"):
        SAMS(anchors="informed").kernel()
    with pytest.raises(ValueError, match=r"SplitMerge.n_restricted_scans"):
        SplitMerge(n_restricted_scans=-1).kernel()
