"""What users see."""

import numpy as np

from skdpm._validation import check_real
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm_weighted_links._weighted_links import WeightedLinksModel


class WeightedLinks(FeatureLikelihood):
    """Weighted links between the rows: x_ij ~ N(z_i' W z_j, 1 / noise_precision).

    In `fit` X is square, and its diagonal is ignored. Otherwise X has the links of new rows to the
    rows of `fit`. NaN is a link that was not observed.

    Parameters
    ----------
    noise_precision : float, default=1.0
        Precision of the noise, in units of 1 / variance.
    weight_precision : float, default=1.0
        Precision of the weights: w_kl ~ N(0, 1 / weight_precision).
    """

    pairwise = True
    needs_allocations = True
    feature_params = ("weights",)

    def __init__(self, noise_precision=1.0, weight_precision=1.0):
        self.noise_precision = noise_precision
        self.weight_precision = weight_precision

    def resolve(self, X):
        params = {
            name: check_real(getattr(self, name), f"WeightedLinks.{name}", low=0.0)
            for name in ("noise_precision", "weight_precision")
        }
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"WeightedLinks needs a square X in fit, got shape {X.shape}")
        return type(self)(**params)

    def encode(self, X):
        X = X.copy()
        np.fill_diagonal(X, np.nan)
        return {"X": X, "is_new": False}

    def encode_new(self, X):
        return {"X": np.ascontiguousarray(X), "is_new": True}

    def bind(self, data):
        return WeightedLinksModel(
            data["X"], data["is_new"], self.noise_precision, self.weight_precision
        )

    def select(self, params, features):
        return {"weights": params["weights"][np.ix_(features, features)]}

    def reconstruct(self, Z, params):
        return Z @ params["weights"] @ params["allocations"].T
