# SPDX-License-Identifier: BSD-3-Clause
"""Means of columns in clusters, for descriptions of clusters.

`Likelihood.column_means` makes them from the statistics of clusters: posterior means, or draws
from the posterior of the mean of a column of numbers or of the probabilities of its categories.
"""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class ColumnMeans:
    """Means of columns of numbers, and shares of binary columns and categories.

    - `columns`: (n_entries,), intp. Column of each entry, in increasing order within a likelihood.
    - `codes`: (n_entries,), intp. Category of each entry; -1 for numbers and in binary columns.
    - `kinds`: (n_entries,), str. "number", "count" or "share".
    - `values`: (..., n_clusters, n_entries). With draws as first axis, if there are some.
    """

    columns: np.ndarray
    codes: np.ndarray
    kinds: np.ndarray
    values: np.ndarray

    @classmethod
    def of_columns(cls, kind, values, coded=False):
        """Means from an array of shape (..., n_clusters, n_values) for each column. If `coded`,
        its values are the probabilities of the categories 0, 1, ..."""
        widths = [column.shape[-1] for column in values]
        codes = [np.arange(width) if coded else np.full(width, -1) for width in widths]
        return cls(
            np.repeat(np.arange(len(widths)), widths),
            np.concatenate(codes),
            np.full(sum(widths), kind),
            np.concatenate(values, axis=-1),
        )

    def repeated(self, n):
        """The means of one cluster as those of n."""
        return replace(self, values=np.repeat(self.values, n, axis=-2))

    @classmethod
    def joined(cls, parts, positions):
        """Means of the parts of a `Product`, whose columns are at these positions."""
        moved = [
            replace(part, columns=np.asarray(columns)[part.columns])
            for part, columns in zip(parts, positions, strict=True)
        ]
        lists = zip(*(vars(part).values() for part in moved), strict=True)
        return cls(*(np.concatenate(arrays, axis=-1) for arrays in lists))


def normal_means(likelihood, stats, n_columns, n_draws, rng):
    """Means of columns with a `column_posterior`: Student's t."""
    values = []
    for column in range(n_columns):
        mean, mean_precision, df, scale, _ = likelihood.column_posterior(stats, column)
        if n_draws is not None:
            spread = np.sqrt(scale / (df * mean_precision))
            mean = mean + spread * rng.standard_t(df, (n_draws, len(mean)))
        values.append(mean[..., None])
    return ColumnMeans.of_columns("number", values)


def means_of_columns(likelihood, stats, n_draws, rng):
    """Means of columns with independent `laws`: list of arrays (..., n_clusters, n_values)."""
    if n_draws is None:
        laws, shape = likelihood.laws(stats), (len(stats), -1)
    else:
        laws = likelihood.laws(np.tile(stats, (n_draws, 1)), rng)
        shape = (n_draws, len(stats), -1)
    values = []
    for law in laws.columns:
        probabilities = law.probabilities()
        values.append((law.mean() if probabilities is None else probabilities).reshape(shape))
    return values
