# SPDX-License-Identifier: BSD-3-Clause
"""`Product(select=True)`: the units of selection, and what is learned about them.

A unit is a column of a part whose columns are independent given the cluster, with separate
hyperparameters, or another part as a whole. `_product` has the law. A unit that is not selected
has one law for all rows: its statistics are those of all rows, in whatever cluster a row is.
"""

import copy

import numpy as np
from scipy.special import betaln

# Name of the hyperparameter with the selected columns.
SELECTED = "selected"


class Inclusion:
    """Prior of the numbers gamma of all units, 1 for a selected one and otherwise 0: independent
    Bernoulli(theta), with theta ~ Beta(1, 1) integrated out."""

    def draw(self, rng, shape):
        """Draw the numbers: ndarray of this shape."""
        return (rng.random(shape) < rng.random()).astype(np.float64)

    def log_density(self, selected):
        """log probability of the numbers: float."""
        n = np.sum(selected)
        return float(betaln(1.0 + n, 1.0 + np.size(selected) - n))


class Selection:
    """Methods of a `Product` with select=True for known columns. Its parts are the units, which
    are called ``part.0``, ``part.1``, ... if they are columns of a part.

    Hyperparameters of the columns of a part are one vector, ``part__parameter``. "selected" has an
    entry for each column of X, 0 for a column in no part.
    """

    @classmethod
    def of(cls, product):
        """The units of a product for known columns."""
        parts, positions, groups = [], [], []
        for name, likelihood, columns in product._bound():
            split = [likelihood.of_column(j, len(columns)) for j in range(len(columns))]
            separate = None not in split
            first = len(parts)
            if separate:
                for j, unit in enumerate(split):
                    parts.append((f"{name}.{j}", unit, [int(columns[j])]))
                    positions.append(columns[j : j + 1])
            else:
                parts.append((name, likelihood, columns))
                positions.append(columns)
            groups.append((name, range(first, len(parts)), separate))
        other = cls(parts, select=True)
        other._positions, other._columns = positions, product._columns
        other._n_features, other._groups = product._n_features, groups
        other._relations = product._relations
        other._places = [j for _, group, _ in groups for j in range(len(group))]
        other._selected, other._selects = np.ones(len(parts)), True
        return other

    def for_columns(self, X):
        return self

    def _part_of(self, unit):
        owners = {self.parts[u][0]: name for name, group, _ in self._groups for u in group}
        return owners[unit]

    def resolve(self, X):
        resolved = super().resolve(X)
        for name, unit, _ in resolved.parts:
            if unit.weighs_rows:
                raise ValueError(
                    f"Product(select=True): part {name!r} has tails, and all rows cannot have one "
                    "law then; use Gaussian(tails=None)"
                )
            if unit.fitted_gaps:
                raise ValueError(
                    f"Product(select=True): part {name!r} has missing entries in columns that are "
                    "not independent given the cluster; fill them first, or use "
                    'Gaussian(covariance_type="diag")'
                )
        data = resolved.encode(X)
        resolved._all = resolved.bind(data, resolved.tables(data, len(X))).all_items()
        return resolved

    def encode_new(self, X):
        return {**super().encode_new(X), "all": self._all}

    def bind(self, data, tables):
        model = super().bind(data, tables)
        model.take_all(data.get("all"))
        return model

    def independent(self, X, completion=None):
        """The columns of the selected units, side by side; all if none is selected."""
        selected = np.flatnonzero(self.selected > 0.5)
        return X[:, selected] if len(selected) else super().independent(X)

    # Hyperparameters.

    def _units(self):
        units = self._likelihoods()
        return [(name, [units[u] for u in group], column) for name, group, column in self._groups]

    @property
    def selected(self):
        """1 for each column in a selected unit, otherwise 0: ndarray of shape (n_features,)."""
        selected = np.zeros(self._n_features)
        for value, positions in zip(self._selected, self._positions, strict=True):
            selected[positions] = value
        return selected

    def _hyperparameters(self):
        return (*super()._hyperparameters(), SELECTED)

    def _learned_priors(self):
        priors = super()._learned_priors()
        return {**priors, SELECTED: Inclusion()} if self._selects else priors

    def hyper_names(self):
        return (*super().hyper_names(), *[SELECTED] * len(self.parts))

    def flat_hyperparameters(self):
        return np.concatenate([super().flat_hyperparameters(), self._selected])

    def learned_values(self, flat):
        values = super().learned_values(flat)
        if self._selects:
            values[SELECTED] = self._with_selected(flat[len(flat) - len(self.parts) :]).selected
        return values

    def _with_selected(self, selected):
        other = copy.copy(self)
        other._selected = np.asarray(selected, dtype=np.float64)
        return other

    def _selected_in(self, values):
        """The value of "selected" for each unit."""
        return [values[SELECTED][positions[0]] for positions in self._positions]

    def at(self, values):
        other = super().at(values)
        if SELECTED in values:
            # Means of draws select the columns that are selected in most of them.
            other = other._with_selected(np.greater_equal(self._selected_in(values), 0.5))
        return other

    def without_learning(self):
        other = super().without_learning()
        other._selects = False
        return other

    def log_hyperprior(self, values):
        total = super().log_hyperprior(values)
        if self._selects:
            total += Inclusion().log_density(self._selected_in(values))
        return total

    def _drawn(self, rng):
        return np.concatenate([super()._drawn(rng), Inclusion().draw(rng, len(self.parts))])

    def relevance(self, selected):
        """Probability of each column, from the mean of draws of "selected"; NaN: in no part."""
        relevance = np.full(self._n_features, np.nan)
        inside = np.concatenate(self._positions)
        relevance[inside] = selected[inside]
        return relevance

    def _of_clusters(self, stats, answer, repeat=None):
        """See `JoinedAnswers`. A unit that is not selected has the statistics of all rows."""
        own, of_all = self._stats_of_parts(stats), self._stats_of_parts(self._all[None])
        units = zip(self._likelihoods(), self._selected > 0.5, own, of_all, strict=True)
        found = []
        for unit, is_selected, own, of_all in units:
            if is_selected:
                found.append(answer(unit, own))
            elif repeat is None:
                found.append(answer(unit, np.repeat(of_all, len(stats), axis=0)))
            else:
                found.append(repeat(answer(unit, of_all), len(stats)))
        return found
