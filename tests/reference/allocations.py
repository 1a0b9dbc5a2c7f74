"""Distances and point estimates of feature allocations by trying everything."""

import itertools

import numpy as np

from reference.features import enumerate_matrices


def distance(A, B, complements=False):
    """Fewest entries in which A and B differ, over all orders of the columns of B and, if wished,
    all exchanges of columns for complements. A column without a partner is compared with zeros."""
    n, width = len(A), max(A.shape[1], B.shape[1])
    A, B = (np.hstack([Z, np.zeros((n, width - Z.shape[1]))]).astype(bool) for Z in (A, B))
    turns = list(itertools.product((False, True), repeat=width)) if complements else [False]
    return min(
        np.count_nonzero(A != (B[:, list(order)] ^ np.array(turn, dtype=bool)))
        for order in itertools.permutations(range(width))
        for turn in turns
    )


def smallest_expected_distance(draws, most, complements=False):
    """Mean distance to the draws of the best matrix with at most `most` columns."""
    return min(
        np.mean([distance(Z, draw, complements) for draw in draws])
        for Z in enumerate_matrices(len(draws[0]), most)
    )
