# SPDX-License-Identifier: BSD-3-Clause
"""The latent feature relational model."""

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from skdpm._core._kmeans import kmeans
from skdpm._validation import check_bool, check_real, parameters
from skdpm.features.likelihoods._lfrm import LFRMModel
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm.hyperpriors import check_gamma
from skdpm.mixture.likelihoods.contract.base import read_only
from skdpm.networks import LIST_HINT, check_directions, links_and_holes

# Size and number of blocks at the start. Small blocks soon merge, but large ones hardly split.
NODES_PER_BLOCK = 6
MOST_BLOCKS = 50
# Quantiles of the degree above which a node has the two features of nodes with many links.
SHARES_WITH_FEWER = (0.3, 0.7)
# Steps of the power iteration for singular vectors.
N_POWERS = 10
SMALLEST = 1e-12


@parameters
class LFRM(FeatureLikelihood):
    """Latent feature relational model: overlapping features of the nodes of a network.

    Nodes i and j are linked with probability 1 / (1 + exp(-(bias + z_i' W z_j))). Each weight is
    the effect of a feature of one node and a feature of the other on the log odds of a link. X is
    the square adjacency matrix of 0 and 1, dense or CSR; NaN marks an unobserved pair. The
    attribute `weights_` holds W for `allocations_`. New nodes are rows of links to those of `fit`.

    Parameters
    ----------
    directed : bool, default=False
        Whether X[i, j] and X[j, i] are two links. If not, X must be symmetric, and so is W.
    bias : float or None, default=None
        Log odds of a link between bare nodes. None: learned under N(0, 1 / `bias_precision`).
    bias_precision : float, default=0.1
        Precision of the prior of the bias.
    weight_precision : float or None, default=None
        Weights are N(0, 1 / weight_precision). None: learned under its prior.
    weight_precision_prior : tuple (shape, rate), default=(1.0, 1.0)
        Gamma prior of the weights' precision.

    References
    ----------
    Miller, Griffiths & Jordan (2009); Polson, Scott & Windle (2013).
    """

    text_hint = LIST_HINT
    accept_sparse = True
    pairwise = True
    needs_allocations = True
    preferred_sampler = "element_gibbs"  # as good as the others, in a third of the time
    feature_params = ("weights",)
    hyperparameters = ("weight_precision", "bias")

    directed: bool = False
    bias: float | None = None
    bias_precision: float = 0.1
    weight_precision: float | None = None
    weight_precision_prior: object = (1.0, 1.0)

    def resolve(self, X):
        params = self.get_params(deep=False)
        check_bool(self.directed, "LFRM.directed")
        if self.bias is not None:
            params["bias"] = check_real(self.bias, "LFRM.bias", low=-1e6, high=1e6)
        for name in ("bias_precision", "weight_precision"):
            if params[name] is not None or name == "bias_precision":
                params[name] = check_real(params[name], f"LFRM.{name}", low=1e-12, high=1e12)
        params["weight_precision_prior"] = check_gamma(
            self.weight_precision_prior, "LFRM.weight_precision_prior"
        )
        check_directions("LFRM", self.directed, *links_and_holes(X, "LFRM"))
        return type(self)(**params)

    def initial_allocations(self, data, most, rng):
        """Guess blocks of nodes that link to the same nodes, by k-means of spectral points, and
        two features of nodes with many links. Chains merge features more easily than add them."""
        signs = data["signs"]
        n_blocks = min(MOST_BLOCKS, len(signs) // NODES_PER_BLOCK, most - len(SHARES_WITH_FEWER))
        if n_blocks < 2:
            return None
        points, degrees = _spectral_points(signs, n_blocks, self.directed, rng)
        blocks = np.eye(n_blocks, dtype=bool)[kmeans(points, n_blocks, rng.bit_generator)]
        Z = np.hstack([blocks, degrees[:, None] > np.quantile(degrees, SHARES_WITH_FEWER)])
        return Z[:, Z.any(axis=0)]

    def encode_new(self, X):
        """Encode the links of new nodes to all nodes of `fit`."""
        return self.encode(X, is_new=True)

    def encode(self, X, *, is_new=False):
        # +1 for a link, -1 for none and 0 for a pair that is not counted.
        signs = np.full(X.shape, -1, dtype=np.int8)
        for part, sign in zip(links_and_holes(X, "LFRM", new=is_new), (1, 0), strict=True):
            signs[part.nonzero()] = sign
        if not is_new:
            np.fill_diagonal(signs, 0)
        return read_only({"signs": signs, "is_new": is_new})

    def bind(self, data):
        return LFRMModel(**data, **self.get_params(deep=False))

    def select(self, params, features):
        return {"weights": params["weights"][np.ix_(features, features)]}

    def reconstruct(self, Z, params):
        """Probabilities of links from rows with features Z to the nodes of `fit`."""
        return expit(params["bias"] + Z @ params["weights"] @ params["allocations"].T)


def _spectral_points(signs, n_points, directed, rng):
    """Points of nodes, (n_samples, n_points) or twice as many columns if `directed`, and degrees.

    Points are leading singular vectors of links, which are normalised by degrees plus the mean
    degree (Qin & Rohe 2013, Regularized spectral clustering under the degree-corrected stochastic
    blockmodel). An unobserved pair counts as an average one.
    """
    holes = signs == 0
    np.fill_diagonal(holes, False)
    frequency = np.count_nonzero(signs == 1) / max(np.count_nonzero(signs), 1)
    links = sp.csr_array(signs == 1, dtype=np.float64) + frequency * sp.csr_array(holes)
    out, into = links.sum(axis=1), links.sum(axis=0)
    left, right = (
        sp.diags_array(1.0 / np.sqrt(np.maximum(d + d.mean(), SMALLEST))) for d in (out, into)
    )
    links = (left @ links @ right).tocsr()
    transposed = links.T.tocsr()
    V = rng.standard_normal((len(signs), n_points))
    for _step in range(N_POWERS):
        U = np.linalg.qr(links @ V)[0]
        V = np.linalg.qr(transposed @ U)[0]
    points = np.hstack([U, V]) if directed else U
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(lengths, SMALLEST), out + into
