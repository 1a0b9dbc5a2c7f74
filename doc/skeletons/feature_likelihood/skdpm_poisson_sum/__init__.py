"""Counts whose rates are sums over features, as a likelihood for skdpm."""

from skdpm_poisson_sum.poisson_sum import PoissonSum

__all__ = ["PoissonSum"]
