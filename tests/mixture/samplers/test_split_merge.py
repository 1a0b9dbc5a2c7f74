"""PGSM, SAMS and Jain-Neal as pure kernels, against enumerated posteriors, over their settings.

`test_enumeration.py` runs one setting of each with every likelihood and prior; here the settings
vary, and the sizes at which mistakes show: closures of exactly the anchors, a finite mixture with
all components in use, orders that matter from six rows on. Small mistakes, such as those of
conditional resampling, need the settings in which they are largest, and several moves from each
start, over which they add up.
"""

import itertools
import pickle
from functools import cache, partial

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions
from reference.likelihoods import log_posterior
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES, enumeration_case
from support.designs import combinations, everyday
from support.exactness import (
    invariance_run,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
)
from support.kernels import bind
from support.probes import allocation
from support.pvalues import assert_p_matrix
from support.states import case_of, log_likelihood_of, new_state

from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import PGSM, SAMS, SplitMerge
from skdpm.mixture.state._state import MixtureState

SCHEMES = ("multinomial", "stratified", "systematic", "optimal")


def rows(likelihood, n):
    """The first n rows of a case; beyond them its rows again, in other columns' order."""
    X = enumeration_case(likelihood).X
    return np.concatenate([X, X[::-1, ::-1]])[:n]


@cache
def problem(likelihood, prior_case, n, with_data=True, **changes):
    """Rows, a function that makes their prior, and the enumerated posterior."""
    prior, params = PRIOR_CASES[prior_case]
    params = {**params, **changes}
    X = rows(likelihood, n) if with_data else np.full((n, 1), np.nan)
    posterior = log_posterior(
        X,
        likelihood,
        prior,
        likelihood_params=enumeration_case(likelihood).params,
        prior_params=params,
    )
    return X, lambda: make_prior(prior, n, **params), posterior


def cell(
    sampler,
    likelihood,
    prior_case,
    n,
    *,
    n_starts=6_000,
    n_iterations=1,
    warmup=0,
    with_data=True,
    **changes,
):
    """A run for `assert_p` of a pure kernel on n rows; `changes` are those of the prior."""
    X, new_prior, posterior = problem(likelihood, prior_case, n, with_data, **changes)
    state = make_state(make_likelihood(likelihood), X, new_prior())
    kernel = sampler.kernel()
    for _ in range(warmup):
        kernel.run(state, np.random.PCG64(0), True)
    return invariance_run(state, kernel, posterior, n_starts=n_starts, n_iterations=n_iterations)


def check(runs, seed_sequence, record_property):
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def covering(full):
    """Settings of PGSM; without `full` a design in which any three values of three factors meet,
    of those there are."""
    factors = {
        "n_particles": (2, 3, 20),
        "resample_threshold": (0.0, 0.5, 1.0),
        "resampling": SCHEMES,
        "n_anchors": (2, 3, 4),
        "prior": tuple(PRIOR_CASES),
        "likelihood": ("gaussian", "bernoulli"),
        "n": (2, 3, 4, 5, 6),
    }
    product = [
        dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())
    ]
    if full:
        return product

    def triples(setting):
        return set(itertools.combinations(setting.items(), 3))

    rng = np.random.default_rng(0)
    missing = set().union(*map(triples, product))
    chosen = []
    while missing:
        some = [product[index] for index in rng.choice(len(product), 60, replace=False)]
        chosen.append(max(some, key=lambda setting: len(triples(setting) & missing)))
        missing -= triples(chosen[-1])
    return chosen


def pgsm_runs(full):
    runs = {}
    for setting in covering(full):
        name = " ".join(map(str, setting.values()))
        likelihood, prior, n = (setting.pop(key) for key in ("likelihood", "prior", "n"))
        sampler = PGSM(anchors="uniform", gibbs_sweeps=0, **setting)
        runs[name] = cell(sampler, likelihood, prior, n, n_starts=1_000 if full else 3_000)
    return runs


@pytest.mark.slow
def test_pgsm_settings(seed_sequence, record_property):
    check(pgsm_runs(False), seed_sequence, record_property)


@pytest.mark.slow
def test_pgsm_settings_in_full(seed_sequence, record_property):
    check(pgsm_runs(True), seed_sequence, record_property)


@pytest.mark.slow
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


@pytest.mark.parametrize("variant", everyday(["basic", 0.5, 3.0], "basic"))
@pytest.mark.long
def test_pgsm_with_other_targets(variant, seed_sequence, record_property):
    """The targets of section 3.3, and schedules with other powers."""
    params = {"anchors": "uniform", "n_particles": 3, "resample_threshold": 1.0}
    if variant != "basic":
        params["annealing_power"], variant = variant, "PGSM"
    runs = {
        f"{scheme} {n_anchors} {prior}": cell(
            PGSM.from_paper(variant, n_anchors=n_anchors, resampling=scheme, **params),
            "gaussian",
            prior,
            5,
            **changes,
        )
        for scheme, n_anchors in (("multinomial", 2), ("systematic", 3), ("optimal", 3))
        for prior, changes in (("dp", {"concentration": 0.05}), ("pitman_yor", {}), ("finite", {}))
    }
    check(runs, seed_sequence, record_property)


def test_targets_of_section_3_3_are_greedy():
    """If the prior is against a split, only annealed targets propose one."""
    X = np.repeat([[-9.0], [9.0]], 10, axis=0) + np.linspace(-1, 1, 20)[:, None]
    found = {}
    for variant, params in (("PGSM", {}), ("PGSM", {"annealing_power": 2.0}), ("basic", {})):
        prior = make_prior("dp", 20, concentration=1e-12)
        state = make_state(Gaussian(mean=0.0, mean_precision=0.1, df=3.0, scale=1.0), X, prior)
        state.assign(np.zeros(20, dtype=np.int64))
        kernel = PGSM.from_paper(variant, anchors="uniform", **params).kernel()
        rng = np.random.PCG64(0)
        for _ in range(60):
            kernel.run(state, rng)
        found[variant, *params] = state.n_clusters
    assert found == {("PGSM",): 2, ("PGSM", "annealing_power"): 2, ("basic",): 1}


def test_the_threshold_of_informed_anchors():
    """Clusters below the threshold are not drawn for the second anchor."""
    X = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    found = []
    for threshold in (0.0, 0.5, 1.0):
        sampler = PGSM.from_paper(
            "PGSM", anchors="threshold_informed", attachment_threshold=threshold
        )
        likelihood = Gaussian(mean=0.0, mean_precision=0.1, df=3.0, scale=1.0)
        state = make_state(likelihood, X, make_prior("dp", 6, concentration=1.0))
        state.assign(np.array([0, 0, 0, 1, 1, 1]))
        kernel = sampler.kernel()
        kernel.run(state, np.random.PCG64(0), True)
        found.append(kernel.get_adaptation()["snapshots"][0]["arrays"]["eligible"].sum())
    assert found[0] > found[1] > found[2]
    for name, value in (("attachment_threshold", 2.0), ("annealing_power", 0.0)):
        with pytest.raises(ValueError, match=f"PGSM.{name} must be"):
            PGSM.from_paper("PGSM", **{name: value}).kernel()
    with pytest.raises(ValueError, match=r"variant of PGSM.from_paper must be one of PGSM, basic"):
        PGSM.from_paper("annealed")


@pytest.mark.parametrize("n", everyday([2, 3, 4, 5], 3))
@pytest.mark.long
def test_closures_of_exactly_the_anchors(n, seed_sequence, record_property):
    """No generation follows the anchors': the last one carries the whole target."""
    runs = {
        f"{scheme} {prior} {changes}": cell(
            PGSM(
                n_particles=3,
                n_anchors=n,
                anchors="uniform",
                resample_threshold=1.0,
                resampling=scheme,
                gibbs_sweeps=0,
            ),
            "gaussian",
            prior,
            n,
            **changes,
        )
        for scheme in SCHEMES
        for prior, changes in (("dp", {"concentration": 0.05}), ("pitman_yor", {}), ("finite", {}))
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.parametrize(
    "scheme", everyday(["multinomial", "stratified", "systematic"], "stratified")
)
@pytest.mark.long
def test_conditional_resampling(scheme, seed_sequence, record_property):
    """Where it shows most how the retained path is treated: which of the strata is its own, that
    equal particles are one in this, whether it counts in the effective sample size."""
    runs = {
        f"{n_particles} {n_anchors} {likelihood} {prior} {concentration}": cell(
            PGSM(
                n_particles=n_particles,
                n_anchors=n_anchors,
                anchors="uniform",
                resample_threshold=1.0,
                resampling=scheme,
                gibbs_sweeps=0,
            ),
            likelihood,
            prior,
            5,
            n_starts=8_000,
            n_iterations=6,
            concentration=concentration,
        )
        for n_particles, n_anchors, likelihood, prior, concentration in (
            (3, 4, "categorical", "finite", 0.3),
            (5, 3, "categorical", "finite", 0.3),
            (8, 3, "gaussian", "dp", 0.05),
            (3, 2, "bernoulli", "dp", 0.05),
        )
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.long
def test_optimal_resampling_with_ties(seed_sequence, record_property):
    """Where the data say nothing, many weights are equal up to rounding, and some to the threshold
    at which a particle is sure to survive: the search for it must end, and the law hold."""
    runs = {
        f"{n_particles} {n_anchors} {prior} {n}": cell(
            PGSM(
                n_particles=n_particles,
                n_anchors=n_anchors,
                anchors="uniform",
                resampling="optimal",
                gibbs_sweeps=0,
            ),
            "bernoulli",
            prior,
            n,
            n_starts=2_000,
            with_data=False,
            concentration=concentration,
        )
        for n_particles, n_anchors in ((3, 2), (4, 3), (6, 3))
        for prior, concentration in (("dp", 1.0), ("finite", 3.0))
        for n in (6, 7)
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.parametrize("resampling", SCHEMES)
def test_room_for_more_nodes_in_the_middle_of_a_move(resampling):
    """A kernel that starts with room for one node and one with ample room make the same draws."""
    n = 60
    X = np.random.default_rng(0).normal(size=(n, 2))
    sampler = PGSM(n_particles=10, n_anchors=3, resampling=resampling, anchors="uniform")
    for seed in range(10):
        ends = []
        for n_nodes in (1, 200):
            prior = make_prior("dp", n, concentration=1.0)
            state = make_state(make_likelihood("gaussian"), X, prior, np.arange(n) % 4)
            kernel, bit_generator = sampler.kernel(), np.random.PCG64(seed)
            kernel.n_reserved = n_nodes
            ends.append([])
            for _ in range(5):
                kernel.run(state, bit_generator)
                ends[-1].append(state.cluster_labels().tolist())
            ends[-1].append(state.compute_log_joint())
        assert ends[0] == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize("resampling", everyday(SCHEMES, "stratified"))
def test_moves_with_all_components_in_use(resampling):
    """What one move can do then is a matter of the anchors, one of which every block holds: two
    exchange rows of two clusters, three rows of three clusters, and four are needed for a cluster
    to split in two while two others merge."""
    start = np.array([0, 0, 1, 1, 2, 2])
    prior = make_prior("finite", 6, **PRIOR_CASES["finite"][1])
    state = make_state(make_likelihood("bernoulli"), np.full((6, 1), np.nan), prior)
    for n_anchors in (2, 3, 4):
        sampler = PGSM(
            n_particles=3,
            n_anchors=n_anchors,
            anchors="uniform",
            resampling=resampling,
            gibbs_sweeps=0,
        )
        kernel, bit_generator = sampler.kernel(), np.random.PCG64(0)
        found = set()
        for _ in range(3_000):
            state.assign(start)
            kernel.run(state, bit_generator)
            found.add(tuple(canonical_labels(state.cluster_labels()).tolist()))
        assert all(max(labels) < 3 for labels in found)
        n_new = [  # clusters that are not among the first ones, where none is lost
            3 - (labels[0] == labels[1]) - (labels[2] == labels[3]) - (labels[4] == labels[5])
            for labels in found
            if sorted(np.bincount(labels)) == [2, 2, 2]
        ]
        assert (3 in n_new) == (n_anchors >= 3)
        assert ((0, 1, 2, 2, 2, 2) in found) == (n_anchors >= 4)


@pytest.mark.parametrize(
    "anchors", everyday(["cluster_informed", "threshold_informed"], "threshold_informed")
)
@pytest.mark.long
def test_informed_anchors(anchors, seed_sequence, record_property):
    """A snapshot that warm-up left behind is a law of the anchors like any other."""
    runs = {}
    for prior in ("dp", "finite"):
        for sampler in (
            PGSM(n_particles=4, anchors=anchors, gibbs_sweeps=0),
            PGSM(n_particles=4, n_anchors=3, anchors=anchors, gibbs_sweeps=0),
            SAMS(anchors=anchors, gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=1, anchors=anchors, gibbs_sweeps=0),
        ):
            runs[f"{sampler!r} {prior}"] = cell(sampler, "gaussian", prior, 5, warmup=30)
    check(runs, seed_sequence, record_property)


@pytest.mark.slow
def test_split_merge_on_six_rows(seed_sequence, record_property):
    """Items are placed given the ones before them: five rows have three of those at most."""
    runs = {
        f"{sampler!r} {likelihood} {prior}": cell(
            sampler, likelihood, prior, 6, n_starts=8_000, n_iterations=2
        )
        for sampler in (
            SAMS(gibbs_sweeps=0),
            SAMS(anchors="neighbours", gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=0, gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=1, anchors="neighbours", gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=3, gibbs_sweeps=0),
        )
        for likelihood, prior in (
            ("bernoulli", "dp"),
            ("poisson", "pitman_yor"),
            ("gaussian", "pitman_yor_negative"),
            ("categorical", "finite"),
        )
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.slow
def test_order_of_allocation(seed_sequence, record_property):
    """Rows on which the probability of an allocation depends strongly on its order: that of a
    merge's reverse must have the law of a split's order, whatever the clusters are."""
    X = np.array(
        [[0.4, 0], [-0.3, -1], [-0.4, -1.2], [-3.6, -1.8], [0.7, 2.3], [2.7, 0.1], [1.3, 1.4]]
    )
    params = {
        "mean": [0.0, 0.0],
        "mean_precision": 0.1,
        "df": 4.0,
        "scale": [[0.05, 0.0], [0.0, 0.05]],
    }
    runs = {}
    for n in (6, 7):
        posterior = log_posterior(
            X[:n],
            "gaussian",
            "dp",
            likelihood_params=params,
            prior_params={"concentration": 0.1},
        )
        for sampler in (
            SAMS(gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=0, gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=2, gibbs_sweeps=0),
        ):
            prior = make_prior("dp", n, concentration=0.1)
            state = make_state(make_likelihood("gaussian", **params), X[:n], prior)
            runs[f"{sampler!r} {n}"] = invariance_run(
                state, sampler.kernel(), posterior, n_starts=15_000, n_iterations=5
            )
    check(runs, seed_sequence, record_property)


@combinations(prior=PRIOR_CASES, name=likelihood_names())
def test_probability_of_an_allocation(name, prior):
    """Of all allocations in an order the probabilities add up to one, and SAMS's are products of
    the reference's conditionals: q itself, of which invariance shows gross errors only."""
    case = case_of(name, n_samples=8)
    for seed in range(3):
        labels = np.array([0, 1, 0, 0, 1, 0, 0, 1]) if seed % 2 else np.arange(8) % 2
        state = new_state(name, case, prior, labels)
        for sampler in (
            SAMS(),
            SplitMerge(n_restricted_scans=0),
            SplitMerge(n_restricted_scans=2),
        ):
            kernel = sampler.kernel()
            items, drawn, log_q = allocation(kernel, state, np.random.PCG64(seed))
            total = 0.0
            for rest in itertools.product([0, 1], repeat=len(items) - 2):
                again, sides, forced = allocation(
                    kernel, state, np.random.PCG64(seed), (0, 1, *rest)
                )
                assert again.tolist() == items.tolist() and sides.tolist() == [0, 1, *rest]
                total += np.exp(forced)
                if sides.tolist() == drawn.tolist():
                    assert forced == pytest.approx(log_q, abs=1e-9)
            assert total == pytest.approx(1.0, abs=1e-9)
            np.testing.assert_array_equal(state.cluster_labels(), labels)
            if isinstance(sampler, SAMS):
                expected = log_sequential(name, case, prior, labels, items, drawn)
                assert log_q == pytest.approx(expected, abs=1e-8)


def log_sequential(name, case, prior_case, labels, items, sides):
    """log probability of sides to which items are allocated one by one, by the reference."""
    prior, params = PRIOR_CASES[prior_case]
    now = np.where(np.isin(np.arange(len(labels)), items), -1, labels)
    now[items[:2]] = labels.max() + 1, labels.max() + 2
    total = 0.0
    for item, side in zip(items[2:], sides[2:], strict=True):
        log_joint = []
        for b in (0, 1):
            now[item] = labels.max() + 1 + b
            # Other clusters drop out of the prior's ratio (with them there may be too many).
            sizes = np.unique(now[now > labels.max()], return_counts=True)[1]
            log_joint.append(log_eppf(sizes, prior, **params) + log_likelihood_of(name, case, now))
        now[item] = labels.max() + 1 + side
        total += log_joint[side] - np.logaddexp(*log_joint)
    return total


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
    saved = kernel.get_adaptation()
    (frozen,) = saved["snapshots"]
    assert frozen["frozen"]
    for name in ("labels", "members", "start"):
        assert frozen["arrays"][name].dtype == np.uint8  # it is saved with every chain
    kernel.run(new_state(np.arange(40) % 5), np.random.PCG64(2), False)
    (again,) = kernel.get_adaptation()["snapshots"]
    assert again["arrays"].keys() == frozen["arrays"].keys()
    for name, array in again["arrays"].items():
        np.testing.assert_array_equal(array, frozen["arrays"][name])

    other = sampler.kernel()
    other.set_adaptation(pickle.loads(pickle.dumps(saved)))
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
    with pytest.raises(ValueError, match=r"PGSM.anchors must be one of"):
        PGSM(anchors="neighbours").kernel()
    with pytest.raises(ValueError, match=r"SAMS.anchors must be one of"):
        SAMS(anchors="informed").kernel()
    with pytest.raises(ValueError, match=r"SplitMerge.anchors must be one of"):
        SplitMerge(anchors="informed").kernel()
    assert SAMS(anchors="informed").requires == "joint"  # else the likelihood is blamed
    with pytest.raises(ValueError, match=r"SplitMerge.n_restricted_scans"):
        SplitMerge(n_restricted_scans=-1).kernel()


def state_with_nan(n=6, row=None, concentration=1.0, labels=None):
    """Two Gaussian columns; one row of the kernel, or the concentration, is NaN."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    likelihood = make_likelihood("gaussian").resolve(X)
    data = likelihood.encode(X)
    if row is not None:
        X[row] = np.nan
    model = bind(likelihood, {**data, "X": X}, n)
    prior = make_prior("dp", n, concentration=concentration)
    return MixtureState(model, prior, np.zeros(n, np.intp) if labels is None else labels)


@pytest.mark.parametrize("gibbs_sweeps", [0, 1])
@pytest.mark.parametrize("labels", [[0, 0], [0, 1]])
@pytest.mark.parametrize(
    "sampler, message",
    [
        (SAMS, "rows [01] and [01]: a split between them has no density"),
        (SplitMerge, "rows [01] and [01]: a split between them has no density"),
        (
            partial(SAMS, anchors="neighbours"),
            "rows [01] and [01]: a split between them has no density",
        ),
        *(
            (
                partial(PGSM, resampling=scheme, n_particles=3),
                "row [01]: no cluster has a positive",
            )
            for scheme in SCHEMES[:3]
        ),
        (partial(PGSM, resampling="optimal", n_particles=3), "row [01]: the weights of the part"),
    ],
)
def test_what_is_no_density_is_refused(sampler, message, labels, gibbs_sweeps):
    """It is never taken for a rejection, and the message names rows."""
    kernel = sampler(gibbs_sweeps=gibbs_sweeps).kernel()
    state = state_with_nan(2, labels=np.array(labels), concentration=np.nan)
    with pytest.raises(FloatingPointError, match=message):
        kernel.run(state, np.random.PCG64(0))


@pytest.mark.parametrize(
    "sampler",
    [
        SAMS(),
        SAMS(anchors="neighbours"),
        SplitMerge(),
        *(PGSM(resampling=s, n_particles=3) for s in SCHEMES),
    ],
    ids=repr,
)
def test_a_row_that_is_nan_is_refused(sampler):
    """In the midst of a closure, where it is in a cluster with others."""
    state = state_with_nan(row=4, labels=np.arange(6) % 2)
    kernel, bit_generator = sampler.kernel(), np.random.PCG64(1)
    with pytest.raises(FloatingPointError, match=r"^rows? \d"):
        for _ in range(20):
            kernel.run(state, bit_generator)


@pytest.mark.parametrize(
    "anchors, message",
    [
        ("cluster_informed", "rows 0 and 1: the union of their clusters has no density"),
        ("threshold_informed", "row 0: a density is not a number"),
    ],
)
def test_a_snapshot_without_densities_is_refused(anchors, message):
    """Else its law of the anchors would be whatever comparisons with NaN make of it."""
    state = state_with_nan(row=3, labels=np.arange(6) % 2)
    with pytest.raises(FloatingPointError, match=message):
        PGSM(anchors=anchors).kernel().run(state, np.random.PCG64(0), adapting=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("n_anchors", [2, 5])
def test_fewer_rows_than_anchors(n, n_anchors):
    """All rows are anchors then."""
    X = rows("gaussian", n)
    state = make_state(make_likelihood("gaussian"), X, make_prior("dp", n, concentration=1.0))
    kernel, found = PGSM(n_anchors=n_anchors, gibbs_sweeps=0).kernel(), set()
    bit_generator = np.random.PCG64(0)
    for _ in range(300):
        kernel.run(state, bit_generator)
        found.add(tuple(canonical_labels(state.cluster_labels()).tolist()))
    assert len(found) == len(enumerate_partitions(n))
