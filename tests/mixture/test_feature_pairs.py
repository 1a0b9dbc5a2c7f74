"""Every pair of features of a mixture: it works, or an error names both."""

import itertools
import re

import numpy as np
import pytest
from support.designs import cover, everyday

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import (
    Gaussian,
    NegativeBinomial,
    Poisson,
    Product,
    Subspace,
    VonMisesFisher,
)
from skdpm.mixture.samplers import SAMPLERS

COVARIANCES = ("diag", "tied", "spherical")
LAWS = {
    "Subspace": Subspace,
    "NegativeBinomial": NegativeBinomial,
    "VonMisesFisher": VonMisesFisher,
}

# Words for each feature, of which an error has one.
WORDS = {
    "noise": "noise",
    "known_labels": "known.labels",
    "tails": "tails",
    "NaN": "NaN|missing",
    **{name: f'covariance_type="{name}"|{name}' for name in COVARIANCES},
    "Product": "Product",
    "select": "select",
    **{name: name for name in LAWS},
    "store_labels": "store_labels",
    "FiniteMixture": "FiniteMixture|n_components",
    "partial_fit": "partial_fit|SMC",
    **{name: cls.__name__ for name, cls in SAMPLERS.items()},
}

# At most one feature of each.
ONE_OF = [(*COVARIANCES, *LAWS), ("tails", *LAWS), tuple(SAMPLERS)]
# Streams are those of SMC.
NOT_ASKED = {("partial_fit", name) for name in SAMPLERS}

PAIRS = [
    pair
    for pair in itertools.combinations(WORDS, 2)
    if not any(set(pair) <= set(group) for group in ONE_OF) and not {pair, pair[::-1]} & NOT_ASKED
]


# What no model has yet, or what cannot be. A pair that works may leave the list.
REFUSED = {
    *itertools.product(["noise"], ["tails", "select", "store_labels"]),
    ("known_labels", "store_labels"),
    *itertools.product(["tails"], ["select", "blocked_gibbs", "sub_cluster"]),
    *itertools.product(["NaN"], ["Subspace", "VonMisesFisher", "blocked_gibbs", "sub_cluster"]),
    *itertools.product(["select"], ["partial_fit", "blocked_gibbs", "smc", "sub_cluster"]),
}


def law_of(features):
    for name, cls in LAWS.items():
        if name in features:
            return cls()
    covariance = next((name for name in COVARIANCES if name in features), "full")
    if "select" in features and covariance == "full":
        covariance = "diag"
    return Gaussian(covariance_type=covariance, tails="t" if "tails" in features else None)


def likelihood_of(features):
    law = law_of(features)
    if "Product" in features:
        parts = [("law", law, [0, 1]), ("counts", Poisson(), [2])]
        return Product(parts, select="select" in features)
    if "select" in features:
        return Product([("law", law, [0, 1, 2])], select=True)
    return law


def fitted(features):
    rng = np.random.default_rng(0)
    side = np.arange(24) % 2
    X = rng.normal(size=(24, 3)) + 6.0 * side[:, None]
    if "NegativeBinomial" in features:
        X = rng.poisson(np.exp(1.0 + side)[:, None], size=(24, 3)).astype(float)
    if "Product" in features:
        X[:, 2] = rng.poisson(2.0 + 9.0 * side)
    if "NaN" in features:
        X[3, 1] = np.nan
    online = "partial_fit" in features
    sampler = next((name for name in SAMPLERS if name in features), "smc" if online else "auto")
    finite = {"FiniteMixture", "blocked_gibbs"} & set(features)
    model = (FiniteMixture if finite else DPMixture)(
        likelihood=likelihood_of(features),
        sampler=sampler,
        noise=True if "noise" in features else None,
        store_labels="store_labels" not in features,
        n_warmup=3,
        n_draws=4,
        n_chains=1,
        random_state=0,
    )
    known = np.where(np.arange(24) < 4, side, -1) if "known_labels" in features else None
    if online:
        return X, model.partial_fit(X, known_labels=known)
    return X, model.fit(X, known_labels=known)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", everyday(PAIRS, *cover(PAIRS), *REFUSED), ids="-".join)
@pytest.mark.some(10)
def test_pairs(pair):
    try:
        X, model = fitted(pair)
    except ValueError as error:
        assert pair in REFUSED
        assert all(re.search(WORDS[feature], str(error)) for feature in pair)
        return
    n = len(X)
    assert model.labels_.shape == (n,) and model.labels_.dtype == np.int64
    assert -1 <= model.labels_.min() and model.n_clusters_ >= 1
    assert np.isfinite(model.log_joint_samples_).all()
    X = X[~np.isnan(X).any(axis=1)]
    assert np.isfinite(model.score_samples(X)).all()
    shares = model.predict_proba(X)
    assert shares.shape == (len(X), model.n_clusters_) and (shares >= 0).all()
    assert (shares.sum(axis=1) < 1 + 1e-9).all()
