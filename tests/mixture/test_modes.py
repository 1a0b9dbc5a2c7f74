# SPDX-License-Identifier: BSD-3-Clause
"""Default chains reach the posterior mass that chains from the truth have: a fixed sample of
`benchmarks/modes.py`."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "modes.py"


@pytest.fixture(scope="module")
def modes():
    spec = importlib.util.spec_from_file_location("modes", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "case"),
    [("full", 3), ("diag", 13), ("spherical", 2), ("tied", 25), ("bernoulli", 15)]
    + [("categorical", 5), ("poisson", 28), ("multinomial", 30), ("von_mises_fisher", 9)],
)
def test_default_chains_reach_the_mass_around_the_truth(modes, family, case):
    cell = modes.measure(*modes.simulate(family, case, 600))
    assert cell["mass_gap"] < modes.MISS or not cell["converged"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["full", "diag"])
def test_many_small_clusters_are_found(modes, family):
    """Forty clusters of 25 rows, far apart in two columns."""
    rng = np.random.default_rng(40)
    y = np.repeat(np.arange(40), 25)
    corners = np.stack(np.meshgrid(np.arange(8), np.arange(5)), axis=-1).reshape(-1, 2)
    X = 15.0 * corners[y] + 3.0 * rng.normal(size=(40, 2))[y] + rng.normal(size=(1000, 2))
    likelihood = modes.Gaussian(covariance_type=family)
    cell = modes.measure(X, y, likelihood)
    assert cell["converged"] and cell["gap"] < modes.MISS and 39.0 < cell["k"] < 44.0
