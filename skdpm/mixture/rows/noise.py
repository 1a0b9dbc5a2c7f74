# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are noise: their law, and draws of clusters in which some rows are in none (-1)."""

from dataclasses import dataclass

import numpy as np

from skdpm._validation import check_real, is_dask
from skdpm.mixture.likelihoods.composite.registry import refusal
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.state._state import Noise
from skdpm.partitions import _relabel_inside

# Beta law of the probability of noise with `noise=True`.
DEFAULT = (1.0, 49.0)


@dataclass(frozen=True, eq=False)
class NoiseLaw:
    """A row is noise with a probability that follows Beta(a, b), and then has the law
    `background`. If a is 0, no row is noise."""

    a: float = 0.0
    b: float = 1.0
    background: object = None

    @property
    def takes_rows(self):
        """Whether rows may be noise."""
        return self.a > 0.0

    def of(self, X, known=UNLABELLED, new=False):
        """The law of the rows X of `fit`, or of `new` rows of a stream, for states: Noise, or None
        if there is none. A row whose class is known is no noise."""
        if not self.takes_rows:
            return None
        log_density = np.array(self.background.log_density(X, new))
        log_density[known.rows] = -np.inf
        return Noise(self.a, self.b, log_density)

    def weight(self, n_noise, n_samples):
        """Probability that a new row is noise, if n_noise of n_samples rows are."""
        return (self.a + n_noise) / (self.a + self.b + n_samples)


NO_NOISE = NoiseLaw()


def laws_of_noise(beta, likelihood, X, known=UNLABELLED):
    """Fields `noise_law` and `noise` of a program of a fit to X, from the parameters of the Beta
    law, or None, and the resolved likelihood."""
    if not beta:
        return {"noise_law": NO_NOISE}
    seen = likelihood.as_seen(X)
    law = NoiseLaw(*beta, likelihood.background(seen))
    return {"noise_law": law, "noise": law.of(seen, known)}


def check_noise(noise):
    """The parameters (a, b) of a Beta law, from the parameter `noise`; None if there is none."""
    given = noise.tolist() if isinstance(noise, (np.bool_, np.ndarray)) else noise
    if given is None or given is False:
        return None
    if given is True:
        return DEFAULT
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ValueError(
            f"noise must be None, True or a pair (a, b), the parameters of a Beta law, as "
            f"(1, 9) for a mean share of 0.1; got {given!r}"
        )
    return tuple(check_real(given[j], f"noise[{j}]", low=0.0) for j in range(2))


def refuse_noise(likelihood, sampler, X):
    """Raise ValueError if the model, the sampler or the rows cannot have noise."""
    if is_dask(X):
        raise ValueError(
            "a noise component needs all rows in memory, and X is a dask array; set "
            "noise=None, or give partial_fit the rows in parts, with sampler=SMC()"
        )
    if not sampler.takes_noise:
        raise ValueError(
            f'{sampler!r} cannot have a noise component; use sampler="auto", which chooses '
            "one that can, or set noise=None"
        )
    if likelihood.weighs_rows:
        raise ValueError(
            "noise cannot be combined with Gaussian(tails=...); set noise=None or tails=None"
        )
    if likelihood.select:
        raise ValueError(
            "columns cannot be selected with a noise component; set noise=None or "
            "Product(select=False)"
        )
    if likelihood.constants_vary and sampler.requires == "instantiated":
        raise ValueError(
            f"{type(sampler).__name__} cannot have a noise component with NegativeBinomial, "
            'whose dispersions follow the rows in clusters; use sampler="auto"'
        )
    if why := refusal(likelihood, "background"):
        raise ValueError(f"{why}, or set noise=None")
    if "product" not in likelihood.capabilities:
        raise ValueError(
            "noise needs a likelihood whose clusters are independent, and those of "
            f"{type(likelihood).__name__} are not; set noise=None"
        )


def alone(labels):
    """Labels in which every row that is noise, -1, is a cluster of one row: ndarray of the same
    shape (..., n_samples), without negative labels. Labels without noise stay as they are."""
    if np.min(labels, initial=0) >= 0:
        return labels
    found = np.asarray(labels).reshape(-1, np.shape(labels)[-1]).astype(np.int64)
    for out in found:
        is_noise = out < 0
        out[is_noise] = out.max(initial=-1) + 1 + np.arange(np.count_nonzero(is_noise))
    most = int(found.max(initial=0))
    return found.astype(np.min_scalar_type(most)).reshape(np.shape(labels))


def share_of_noise(draws):
    """Share of draws, (..., n_samples), in which each row is noise: (n_samples,)."""
    return (draws.reshape(-1, draws.shape[-1]) < 0).mean(axis=0)


def components_of(labels, of_draw):
    """Components of clusters of labels: parts together in a draw, by falling size; -1 for others.

    Rows that are noise in the draw count only for clusters of which the draw has no other rows.
    """
    outside = of_draw < 0
    has_rows = np.isin(labels, labels[~outside])
    cells = of_draw.astype(np.int64) * len(labels) + labels
    cells[outside] = -len(labels) + labels[outside] - 1
    cells -= cells.min(initial=0)
    chosen = (labels >= 0) & ~(outside & has_rows)
    return _relabel_inside(np.where(chosen, cells, -1))
