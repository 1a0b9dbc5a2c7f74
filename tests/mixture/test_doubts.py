"""Warnings about rows that a likelihood takes for something else than a user may mean."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skdpm import DPMixture
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
