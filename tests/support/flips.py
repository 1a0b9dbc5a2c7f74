"""Switches of features against log likelihoods of whole matrices, for any likelihood."""

import numpy as np

from support.probes import FeatureProbe


def check_flips(likelihood, X, n_latent=4):
    """Switches add up to differences of log likelihoods, and so do tables of rows."""
    rng = np.random.default_rng(0)
    likelihood = likelihood.resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    model.start(n_latent, np.random.PCG64(0))
    probe = FeatureProbe(model)
    Z = (rng.random((len(X), n_latent)) < 0.5).astype(np.uint8)
    for i in range(len(X)):
        z, base = Z.copy(), probe.log_likelihood(Z)
        total = 0.0
        for k in rng.permutation(n_latent):
            probe.begin_row(i, z[i])  # anew: the log likelihood visits other rows
            probe.copy(2, 0)
            change = probe.log_flip_many([0, 2], k, not z[i, k])
            assert change[0] == change[1]
            probe.flip(2, k, not z[i, k])
            back = probe.log_flip_many([2], k, z[i, k])
            np.testing.assert_allclose(back, -change[:1], atol=1e-9)
            z[i, k] = not z[i, k]
            total += change[0]
            np.testing.assert_allclose(probe.log_likelihood(z) - base, total, atol=1e-9)
        z[i] = 0
        base = probe.log_likelihood(z)
        probe.begin_row(i, z[i])
        features, log_odds = rng.permutation(n_latent), rng.normal(size=n_latent)
        for _ in range(2):  # candidate 0 is as it was
            table = probe.log_rows(features, log_odds)
        for r, value in enumerate(table):
            bits = (r >> np.arange(n_latent)) & 1
            z[i, features] = bits
            expected = probe.log_likelihood(z) - base + bits @ log_odds
            np.testing.assert_allclose(value, expected, atol=1e-9)
