"""All partitions of a few items, as restricted growth strings.

A partition of items 0..n-1 is written as its canonical labels: blocks numbered from 0 by first
appearance, so labels[0] = 0 and labels[i] <= 1 + max(labels[:i]).
"""

from functools import cache

import numpy as np


@cache
def enumerate_partitions(n_samples):
    """Every partition of `n_samples` items once, in lexicographic order.

    Returns
    -------
    partitions : ndarray of shape (Bell(n_samples), n_samples), dtype=int64, read-only
    """
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    partitions = np.zeros((1, 1), dtype=np.int64)
    for _ in range(1, n_samples):
        n_choices = partitions.max(axis=1) + 2  # every block so far, and a new one
        parents = np.repeat(partitions, n_choices, axis=0)
        last = np.concatenate([np.arange(m) for m in n_choices])
        partitions = np.column_stack([parents, last])
    partitions.setflags(write=False)
    return partitions


def canonical_labels(labels):
    """Renumber the blocks of each row from 0 by first appearance.

    Parameters
    ----------
    labels : array-like of int, shape (..., n_samples)
        Any integers; equal means same block.

    Returns
    -------
    canonical : ndarray of the same shape, dtype=int64
    """
    labels = np.asarray(labels)
    n_samples = labels.shape[-1]
    same = labels[..., :, None] == labels[..., None, :]
    first = same.argmax(axis=-1)  # the first item of each item's block
    rank = np.cumsum(first == np.arange(n_samples), axis=-1) - 1
    return np.take_along_axis(rank, first, axis=-1).astype(np.int64)


def partition_index(labels):
    """Row of `enumerate_partitions` that holds the partition of each label array.

    Parameters
    ----------
    labels : array-like of int, shape (..., n_samples), n_samples <= 12
        Need not be canonical.

    Returns
    -------
    index : ndarray of shape (...), dtype=int64
    """
    labels = canonical_labels(labels)
    n_samples = labels.shape[-1]
    powers = np.int64(n_samples) ** np.arange(n_samples - 1, -1, -1)
    codes = enumerate_partitions(n_samples) @ powers  # ascending: the order is lexicographic
    return np.searchsorted(codes, labels @ powers)


def partition_sizes(labels):
    """Block sizes in order of first appearance, padded with zeros.

    Parameters
    ----------
    labels : array-like of int, shape (..., n_samples)

    Returns
    -------
    sizes : ndarray of shape (..., n_samples), dtype=int64
    """
    labels = canonical_labels(labels)
    return (labels[..., :, None] == np.arange(labels.shape[-1])).sum(axis=-2)
