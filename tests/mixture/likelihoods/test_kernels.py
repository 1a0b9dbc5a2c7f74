"""How kernels are made: from data and tables that all share, and as their likelihood says."""

import numpy as np
import pytest
from support.designs import thirds
from support.examples import examples_of
from support.kernels import bind
from support.probes import Probe

from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Grid,
    NegativeBinomial,
    Product,
    Subspace,
)
from skdpm.mixture.likelihoods.contract._base import ClusterModel
from skdpm.mixture.likelihoods.contract._parametric import ParametricModel
from skdpm.mixture.likelihoods.contract.base import Likelihood


def examples():
    for name, cls in LIKELIHOODS.items():
        for number, (likelihood, X) in enumerate(examples_of(cls)):
            yield pytest.param(likelihood.resolve(X), X, id=f"{name}{number}")


every = thirds("likelihood, X", list(examples()))


def arrays(shared):
    """All arrays of data or tables, those in tuples too."""
    values = shared.values() if isinstance(shared, dict) else shared
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, (dict, tuple)):
            yield from arrays(value)


def densities(model):
    """Of all items but the first two, under a cluster of these."""
    probe = Probe(model, 2)
    labels = np.full(model.n_samples, -1, dtype=np.intp)
    model.bind_labels(labels)
    slot = probe.acquire()
    for i in (0, 1):
        probe.add(slot, i)
        labels[i] = slot
    return model.log_predictive_rows([slot], 2, model.n_samples)


@every
def test_a_kernel_agrees_with_the_capabilities_of_its_likelihood(likelihood, X):
    model = bind(likelihood, likelihood.encode(X), X.shape[0])
    assert isinstance(model, ClusterModel)
    assert model.factorizes == ("product" in likelihood.capabilities)
    assert "joint" in likelihood.capabilities
    writes = type(likelihood).parametric is not Likelihood.parametric
    assert writes == ("instantiated" in likelihood.capabilities)
    if writes:
        parametric = likelihood.parametric(X)
        assert isinstance(parametric, ParametricModel)
        assert (parametric.n_samples, parametric.n_stats) == (model.n_samples, model.n_stats)


@every
def test_data_and_tables_are_read_only(likelihood, X):
    for data in (likelihood.encode(X), likelihood.encode_new(X)):
        tables = likelihood.tables(data, X.shape[0])
        assert "n_max" in tables
        shared = [*arrays(data), *arrays(tables)]
        assert not any(array.flags.writeable for array in shared)
    for array in arrays({"X": X} if isinstance(X, np.ndarray) else vars(X)):
        assert array.flags.writeable  # X itself is left alone


@every
def test_kernels_share_the_memory_of_tables(likelihood, X):
    """What is written into a (writable) table is seen by every kernel bound to it."""
    if isinstance(likelihood, Product):
        pytest.skip("its tables are those of its parts")
    if isinstance(likelihood, NegativeBinomial):
        pytest.skip("a table counts what is in the data")
    data = likelihood.encode(X)
    tables = likelihood.tables(data, X.shape[0])
    numbers = [
        name
        for name, table in tables.items()
        if isinstance(table, np.ndarray) and table.dtype == np.float64 and table.size
        if name not in ("origin", "spread", "floor")  # of hyperpriors
    ]
    if not numbers:
        pytest.skip("it has no tables")
    mine = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in tables.items()
    }
    one, two, other = (likelihood.bind(data, each) for each in (mine, mine, tables))
    expected = densities(other)
    np.testing.assert_array_equal(densities(one), expected)
    for name in numbers:
        mine[name] += np.arange(1, mine[name].shape[-1] + 1)
    changed = densities(one)
    assert (changed != expected).any()
    np.testing.assert_array_equal(densities(two), changed)
    np.testing.assert_array_equal(densities(other), expected)


@every
def test_log_constants_are_those_of_the_likelihood(likelihood, X):
    """Of rows of `fit`, and the same of new ones."""
    if "product" not in likelihood.capabilities:
        pytest.skip("its constants belong to pairs of items")
    expected = likelihood.log_constants(X)
    if not isinstance(likelihood, Grid):
        assert expected.shape == (X.shape[0],)
    for data in (likelihood.encode(X), likelihood.encode_new(X)):
        model = bind(likelihood, data, X.shape[0])
        if model.log_constants is None:
            np.testing.assert_array_equal(expected, 0.0)
        elif not isinstance(likelihood, Grid):
            np.testing.assert_array_equal(model.log_constants, expected)
    with pytest.raises(ValueError, match="constants for"):
        model.keep_log_constants(np.zeros(X.shape[0] + 1))


@every
def test_rows_may_stand_within_those_of_another_model(likelihood, X):
    """As the columns of a product of likelihoods do: slots are then the other model's."""
    if "product" not in likelihood.capabilities:
        pytest.skip("a row is not all there is of a cluster")
    alone, child, host = (
        Probe(bind(likelihood, likelihood.encode(X), X.shape[0]), 4) for _ in range(3)
    )
    if host.model.width < 2 * child.model.width:
        n_copies = 2 * child.model.width if type(likelihood) is Grid else 9
        wide = np.tile(X if isinstance(X, np.ndarray) else X.toarray(), n_copies)
        if type(likelihood) in (Gaussian, Subspace):  # copies are no further directions
            wide = wide + np.random.default_rng(0).normal(size=wide.shape)
        other = type(likelihood)()
        if isinstance(likelihood, Product):
            other = Gaussian(covariance_type="diag")
        other = other.resolve(wide)
        host = Probe(bind(other, other.encode(wide), X.shape[0]), 4)
    assert host.model.width >= 2 * child.model.width
    child.place_within(host.model, child.model.width)
    expected = [alone.acquire(), alone.acquire()]
    slots = [host.acquire(), host.acquire()]
    for probe, (a, b) in ((alone, expected), (child, slots)):
        if probe is child:
            for slot in slots:
                child.reset(slot)
        for i in (0, 2, 3):
            probe.add(a, i)
        for i in (1, 4):
            probe.add(b, i)
        probe.remove(a, 2)
        probe.merge(b, a)
    np.testing.assert_array_equal(child.model.dump(slots, True), alone.model.dump(expected, True))
    for i in (5, 6):
        actual = [child.log_predictive(slot, i) for slot in slots]
        assert actual == [alone.log_predictive(slot, i) for slot in expected]
