"""What users see."""

import numpy as np

from skdpm._validation import check_counts, check_real
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm_poisson_sum._poisson_sum import PoissonSumModel


class PoissonSum(FeatureLikelihood):
    """x_id ~ Poisson(background + sum_k z_ik w_kd), w_kd ~ Gamma(shape, rate).

    Parameters
    ----------
    background : float, default=0.1
        Rate of a row without features.
    shape, rate : float, default=1.0
        Parameters of the Gamma prior of the features' rates.
    """

    allow_nan = False
    feature_params = ("rates",)

    def __init__(self, background=0.1, shape=1.0, rate=1.0):
        self.background = background
        self.shape = shape
        self.rate = rate

    def resolve(self, X):
        params = {
            name: check_real(getattr(self, name), f"PoissonSum.{name}", low=0.0)
            for name in ("background", "shape", "rate")
        }
        check_counts(X, "PoissonSum")
        return type(self)(**params)

    def encode(self, X):
        check_counts(X, "PoissonSum")
        return {"X": np.ascontiguousarray(X, dtype=np.float64)}

    def bind(self, data):
        return PoissonSumModel(data["X"], self.background, self.shape, self.rate)

    def reconstruct(self, Z, params):
        return self.background + Z @ params["rates"]
