"""Links between rows, weighted by their features, as a likelihood for skdpm."""

from skdpm_weighted_links.weighted_links import WeightedLinks

__all__ = ["WeightedLinks"]
