"""PyClone with a learned precision: its layers, and the joint law of partition and precision.

A precision counts as the nearest layer, so the joint posterior of partition and layer is
enumerated: the prior of a layer is the mass of the precisions that count as it.
"""

import functools
import warnings

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from scipy import stats
from scipy.special import logsumexp
from sklearn.metrics import v_measure_score
from support.designs import everyday
from support.pvalues import Cells, assert_p, chi_squared_p

from skdpm import DPMixture
from skdpm.datasets import make_pyclone
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import PyClone
from skdpm.mixture.likelihoods.grid._grid import GridModel
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import Gibbs
from skdpm.mixture.state._state import MixtureState

NAN = np.nan
ROWS = np.array(
    [
        [14, 26, 2, 1, 1, 1.0, 36, 4, 2, 0, 1, 0.6],
        [33, 7, 2, 0, 1, 0.6, NAN, NAN, 1, 1, 2, 0.8],
        [22, 18, 1, 1, 2, 0.8, 23, 17, 2, 1, 1, 0.7],
        [33, 7, 2, 1, 1, 0.7, 31, 9, 2, 1, 1, 1.0],
        [20, 20, 2, 1, 1, 1.0, 35, 5, 2, 0, 1, 0.6],
    ]
)
LAYERS = np.array([12.5, 25.0, 50.0, 100.0, 200.0, 400.0])
PRIOR = Gamma(1.5, 0.02)
ALPHA = 1.2
N_GRID = 21
GIBBS = Gibbs().kernel()


def learned(**params):
    params = {"n_grid": N_GRID, "hyperpriors": {"precision": PRIOR}, **params}
    return PyClone(**params)


def test_layers_reach_ten_times_the_largest_depth():
    np.testing.assert_array_equal(learned().resolve(ROWS).layers, LAYERS)
    deep = ROWS.copy()
    deep[2, 0] = 3000
    layers = learned().resolve(deep).layers
    assert layers[-1] >= 30_000 > layers[-2]
    assert learned().resolve(np.full((2, 6), NAN)).layers[-1] >= 200


def test_only_an_open_precision_of_spread_reads_is_learned():
    for likelihood in (PyClone("binomial"), PyClone("binomial", 50.0), PyClone(precision=50.0)):
        assert likelihood.hyperparameters == likelihood.resolve(ROWS).learned == ()
    resolved = PyClone().resolve(ROWS)
    assert resolved.learned_priors == {"precision": Gamma(1.0, 1e-4)}
    assert resolved.precision == 200.0


@pytest.mark.parametrize("likelihood", [PyClone("binomial"), PyClone(precision=50.0)])
def test_a_prior_of_a_fixed_precision_has_no_effect(likelihood):
    resolved = likelihood.set_params(hyperpriors={"precision": PRIOR}).resolve(ROWS)
    assert resolved.learned_priors == {}
    with pytest.raises(ValueError, match="entry for 'depth'"):
        likelihood.set_params(hyperpriors={"depth": PRIOR}).resolve(ROWS)


def test_a_coarse_grid_is_told_beside_a_row_that_fits_no_prevalence():
    """The row has nearly only variant reads in a sample with few cancer cells."""
    depth = 200_000
    X = np.tile([0.0, 0.0, 2.0, 1.0, 1.0, 0.9], (41, 1))
    X[:, 1] = np.random.default_rng(0).binomial(depth, 0.2, size=41)
    X[:, 0] = depth - X[:, 1]
    X[40] = 20, 980, 2, 1, 1, 0.3
    for likelihood, text in [
        (PyClone("binomial"), "clusters will be split"),
        (PyClone(), "if the learned precision is far above the depth"),
    ]:
        resolved = likelihood.resolve(X)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            resolved.encode(X)
        assert [text in str(warning.message) for warning in caught] == [True]


@functools.cache
def enumerated():
    """p(partition, layer | ROWS), (52, n_layers), and the distribution function of the prior at
    the ends of layers."""
    ends = np.concatenate([[0.0], np.sqrt(LAYERS[1:] * LAYERS[:-1]), [np.inf]])
    below = stats.gamma.cdf(ends, PRIOR.shape, scale=1.0 / PRIOR.rate)
    partitions = enumerate_partitions(len(ROWS))
    params = {
        "density": "beta_binomial",
        "error_rate": 1e-3,
        "genotype_prior": "major_copy_number",
        "n_grid": N_GRID,
    }
    log_p = np.array(
        [
            log_eppf(np.unique(z, return_counts=True)[1], "dp", concentration=ALPHA)
            + np.array([log_likelihood(ROWS, z, "pyclone", precision=s, **params) for s in LAYERS])
            for z in partitions
        ]
    )
    log_p += np.log(np.diff(below))
    return partitions, np.exp(log_p - logsumexp(log_p)), below


def joint_run(hyperprior=PRIOR, factor_of_layers=1.0, n_starts=3_000, n_steps=3):
    """A run for `assert_p`: starts from the posterior, which some iterations must keep."""
    partitions, law, below = enumerated()
    likelihood = learned().resolve(ROWS)
    data = likelihood.encode(ROWS)
    tables = dict(likelihood.tables(data, len(ROWS)))
    tables["layers"] = factor_of_layers * tables["layers"]
    model = GridModel(data, tables, "precision", likelihood.precision)
    state = MixtureState(model, DirichletProcessPrior(len(ROWS), ALPHA), np.zeros(5, np.intp))

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        index, layer = np.divmod(
            rng.choice(law.size, round(n_starts * factor), p=law.ravel()), len(LAYERS)
        )
        u = rng.uniform(below[layer], below[layer + 1])
        values = stats.gamma.ppf(u, PRIOR.shape, scale=1.0 / PRIOR.rate)
        labels = partitions[index]
        for s in range(len(values)):
            model.set_hyperparameters([values[s]])
            state.assign(labels[s].astype(np.intp))
            for _ in range(n_steps):
                GIBBS.run(state, rng.bit_generator)
                values[s] = model.resample_hyperparameters(
                    state.cluster_slots(), {"precision": hyperprior}, rng.bit_generator
                )[0]
            labels[s] = state.cluster_labels()
        nearest = np.abs(np.log(values[:, None] / LAYERS)).argmin(axis=1)
        seen = np.zeros(law.shape, dtype=int)
        np.add.at(seen, (partition_index(canonical_labels(labels)), nearest), 1)
        return Cells(seen, law)

    return run


@pytest.mark.slow
def test_partition_and_precision_keep_their_joint_posterior(seed_sequence):
    assert_p(joint_run(), seed_sequence=seed_sequence)


@pytest.mark.parametrize(
    "planted",
    [{"hyperprior": Gamma(1.5, 0.04)}, {"factor_of_layers": 2.0}],
    ids=["wrong rate", "layers of other precisions"],
)
@pytest.mark.slow
def test_planted_errors_are_seen(planted, seed_sequence):
    cells = joint_run(**planted, n_starts=6_000)(seed_sequence, 1)
    assert chi_squared_p(*cells[:2]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("precision", everyday([None, 100.0], 100.0))
def test_spread_reads_do_not_make_clusters(precision):
    """Four clusters of deep reads: a binomial law divides them if the reads are spread."""
    X, labels, _ = make_pyclone(
        80, 3, n_clusters=4, depth=2000, precision=precision, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPMixture(likelihood="pyclone", n_chains=2, n_draws=60, random_state=0).fit(X)
    found = np.median(model.hyperparameter_samples_["precision"])
    if precision is None:
        assert found > 10_000.0
    else:
        assert precision / 2.0 < found < 2.0 * precision
    assert v_measure_score(labels, model.labels_) > 0.9
