# SPDX-License-Identifier: BSD-3-Clause
"""Weights of rows under elliptical laws with heavy tails: x | w ~ N(mean, Sigma / w).

To a state the weight of a row is what its missing entries are (_gaps).
"""
import numpy as np


cdef class RowWeights:
    """Weights of rows, under a law, a `Tails`."""

    def __init__(self, law, Py_ssize_t n_rows):
        self.law = law
        self.n_rows = n_rows
        self.relative = np.array(law.relative, dtype=np.float64)
        self.sets = np.array(law.sets, dtype=np.intp)
        self.n_weights = self.relative.shape[0]
        if self.n_weights > MOST_WEIGHTS:
            raise ValueError(f"at most {MOST_WEIGHTS} weights, got {self.n_weights}")
        self.n_lanes = 2 if self.n_weights <= 2 else MOST_WEIGHTS
        self.n_sets = max(law.sets) + 1
        self.chosen = np.full(n_rows, law.first, dtype=np.uint8)
        self.is_open = np.ones(n_rows, dtype=np.uint8)

    cdef int take(self, parameters) except -1:
        """Set what follows from the parameters of the law."""
        log_probabilities, factors = self.law.log_law(parameters)
        values = self.law.weights(parameters)[1]
        more = 0, self.n_lanes - self.n_weights
        self.log_probabilities = np.pad(log_probabilities, more, constant_values=-np.inf)
        self.factors = np.array(factors)
        self.values = np.pad(values, more, constant_values=1.0)
        return 0

    def complete(self, chosen=None):
        """Give every row a weight; see `ClusterModel.complete`."""
        if chosen is None:
            self.chosen[:] = self.law.first
        else:
            chosen = np.asarray(chosen)
            if chosen.shape != (self.n_rows,) or not (
                (0 <= chosen) & (chosen < self.n_weights)
            ).all():
                raise ValueError(
                    f"expected {self.n_rows} numbers of weights below {self.n_weights}"
                )
            self.chosen = chosen.astype(np.uint8)
        self.is_open[:] = 0
        self.drawn = chosen is not None

    def completion(self):
        """Numbers of the weights: ndarray of shape (n_rows,), uint8."""
        return np.array(self.chosen)
