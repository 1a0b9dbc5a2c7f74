# SPDX-License-Identifier: BSD-3-Clause
"""`Product(select=True)`: the units of selection, and what is learned about them.

A unit is a column of a part whose columns are independent given the cluster, with separate
hyperparameters, or another part as a whole. `_product` has the law. A unit that is not selected
has one law for all rows: its statistics are those of all rows, in whatever cluster a row is.
"""

import copy

import numpy as np
from scipy.special import betaln

from skdpm.mixture.likelihoods.composite._product import ProductModel
from skdpm.mixture.likelihoods.laws.laws import JointLaws
from skdpm.mixture.likelihoods.laws.means import ColumnMeans

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
                    parts.append((f"{name}.{j}", unit.keeping_columns(), [int(columns[j])]))
                    positions.append(columns[j : j + 1])
            else:
                parts.append((name, likelihood, columns))
                positions.append(columns)
            groups.append((name, range(first, len(parts)), separate))
        other = cls(parts, select=True)
        other._positions, other._columns = positions, product._columns
        other._n_features, other._groups = product._n_features, groups
        other._selected, other._selects = np.ones(len(parts)), True
        return other

    def for_columns(self, X):
        return self

    def _part_of(self, unit):
        owners = {self.parts[u][0]: name for name, group, _ in self._groups for u in group}
        return owners[unit]

    def resolve_summary(self, summary):
        resolved = super().resolve_summary(summary)
        for name in ("_groups", "_selected", "_selects"):
            setattr(resolved, name, getattr(self, name))
        return resolved

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
        units = self._likelihoods()
        places = [j for _, group, _ in self._groups for j in range(len(group))]
        model = ProductModel(
            [
                unit.bind(*part)
                for unit, *part in zip(units, data["parts"], tables["parts"], strict=True)
            ],
            self.hyper_names(),
            data["n_coordinates"],
            [unit.discrete for unit in units],
            self._selected,
            places,
        )
        model.take_all(data.get("all"))
        return model

    def independent(self, X, completion=None):
        """The columns of the selected units, side by side; all if none is selected."""
        selected = np.flatnonzero(self.selected > 0.5)
        return X[:, selected] if len(selected) else super().independent(X)

    # Hyperparameters.

    def _units(self):
        """Name, likelihoods of the units, and whether they are columns, for each part."""
        units = self._likelihoods()
        return [(name, [units[u] for u in group], column) for name, group, column in self._groups]

    @property
    def selected(self):
        """1 for each column in a selected unit, otherwise 0: ndarray of shape (n_features,)."""
        selected = np.zeros(self._n_features)
        for value, positions in zip(self._selected, self._positions, strict=True):
            selected[positions] = value
        return selected

    def __getattr__(self, name):
        part, found, parameter = name.partition("__")
        if found and part and "_groups" in self.__dict__:
            for other, units, separate in self._units():
                if other == part and hasattr(units[0], parameter):
                    values = [getattr(unit, parameter) for unit in units]
                    if not separate:
                        return values[0]
                    if isinstance(values[0], list):
                        return [entry for value in values for entry in value]
                    return np.concatenate(list(map(np.ravel, values)))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def hyperparameters(self):
        names = [
            f"{name}__{parameter}"
            for name, units, _ in self._units()
            for parameter in units[0].hyperparameters
        ]
        return (*names, SELECTED)

    @property
    def learned_priors(self):
        priors = {}
        for name, units, _ in self._units():
            for parameter in units[0].learned_priors:
                own = tuple(unit.learned_priors[parameter] for unit in units)
                priors[f"{name}__{parameter}"] = own
        return {**priors, SELECTED: Inclusion()} if self._selects else priors

    def hyper_names(self):
        names = [
            f"{name}__{parameter}"
            for name, units, _ in self._units()
            for unit in units
            for parameter in unit.hyper_names()
        ]
        return (*names, *[SELECTED] * len(self.parts))

    def flat_hyperparameters(self):
        values = [unit.flat_hyperparameters() for unit in self._likelihoods()]
        return np.concatenate([*values, self._selected])

    def learned_values(self, flat):
        values, first = {}, 0
        for name, (unit, *others), separate in self._units():
            stop = first + (1 + len(others)) * len(unit.hyper_names())
            if separate:  # a number per parameter of each column
                table = np.reshape(flat[first:stop], (1 + len(others), -1)).T
                learned = unit.learned_priors
                for parameter, row in zip(unit.hyperparameters, table, strict=True):
                    if parameter in learned:
                        values[f"{name}__{parameter}"] = row.copy()
            else:
                for parameter, value in unit.learned_values(flat[first:stop]).items():
                    values[f"{name}__{parameter}"] = value
            first = stop
        if self._selects:
            values[SELECTED] = self._with_selected(flat[first:]).selected
        return values

    def _with_selected(self, selected):
        other = copy.copy(self)
        other._selected = np.asarray(selected, dtype=np.float64)
        return other

    def _values_of_units(self, values):
        """Values of the hyperparameters of each unit, by their names in the unit: list of dict."""
        of_units = []
        for name, units, separate in self._units():
            for j, unit in enumerate(units):
                own = {}
                for parameter in unit.hyperparameters:
                    value = values.get(f"{name}__{parameter}")
                    if value is not None and separate:
                        value = np.reshape(value[j], np.shape(getattr(unit, parameter)))
                        value = value if value.ndim else float(value)
                    if value is not None:
                        own[parameter] = value
                of_units.append(own)
        return of_units

    def at(self, values):
        known = self.hyperparameters
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no hyperparameter {unknown[0]!r}")
        other = self
        if SELECTED in values:
            # Means of draws select the columns that are selected in most of them.
            selected = [values[SELECTED][positions[0]] for positions in self._positions]
            other = self._with_selected(np.greater_equal(selected, 0.5))
        own = iter(self._values_of_units(values))
        return other._with(lambda _, unit: unit.at(next(own)))

    def without_learning(self):
        other = super().without_learning()
        other._selects = False
        return other

    def log_hyperprior(self, values):
        units = zip(self._likelihoods(), self._values_of_units(values), strict=True)
        total = sum((unit.log_hyperprior(own) for unit, own in units if own), 0.0)
        if self._selects:
            selected = [values[SELECTED][positions[0]] for positions in self._positions]
            total += Inclusion().log_density(selected)
        return total

    def draw_hyperparameters(self, rng):
        flat = []
        for unit in self._likelihoods():
            flat.append(unit.at(unit.draw_hyperparameters(rng)).flat_hyperparameters())
        flat.append(Inclusion().draw(rng, len(self.parts)))
        return self.learned_values(np.concatenate(flat))

    def relevance(self, selected):
        """Probability of each column of X, from the mean of draws of "selected"; NaN for a column
        in no part."""
        relevance = np.full(self._n_features, np.nan)
        inside = np.concatenate(self._positions)
        relevance[inside] = selected[inside]
        return relevance

    # Clusters: units that are not selected have the statistics of all rows.

    def _split_all(self):
        return np.split(self._all[None], np.cumsum(self._n_stats)[:-1], axis=1)

    def _split_stats(self, stats):
        everything = self._split_all()
        return [
            (*unit, part if selected > 0.5 else np.repeat(everything[u], len(stats), axis=0))
            for u, ((*unit, part), selected) in enumerate(
                zip(super()._split_stats(stats), self._selected, strict=True)
            )
        ]

    def cluster_params(self, stats):
        split = self._split_stats(stats)
        params = {}
        for name, group, separate in self._groups:
            own = [split[u][1].cluster_params(split[u][3]) for u in group]
            params[name] = _side_by_side(own) if separate else own[0]
        return params

    def _grouped(self):
        return [
            (name, self.parts[group[0]][1], np.concatenate([self._positions[u] for u in group]))
            for name, group, _ in self._groups
        ]

    def laws(self, stats, rng=None):
        split = self._split_stats(stats)
        return JointLaws(
            self._n_features,
            [positions for _, _, positions, _ in split],
            [
                unit.laws(part, rng)
                if rng is None or selected > 0.5
                else _repeated(unit.laws(part[:1], rng), len(stats))
                for (_, unit, _, part), selected in zip(split, self._selected, strict=True)
            ],
        )

    def column_means(self, stats, n_draws=None, rng=None):
        split = self._split_stats(stats)
        means = []
        for (_, unit, _, part), selected in zip(split, self._selected, strict=True):
            if selected > 0.5:
                means.append(unit.column_means(part, n_draws, rng))
                continue
            # One draw of the parameters for all clusters.
            found = unit.column_means(part[:1], n_draws, rng)
            values = np.repeat(found.values, len(stats), axis=-2)
            means.append(ColumnMeans(found.columns, found.codes, found.kinds, values))
        return ColumnMeans.joined(means, [positions for _, _, positions, _ in split])


def _side_by_side(params):
    """Parameters of single columns as those of all: dict of ndarrays (n_clusters, n_columns,
    ...), with zeros beyond the end of shorter last axes."""
    joined = {}
    for name in params[0]:
        arrays = [own[name] for own in params]
        longest = np.max([array.shape[2:] for array in arrays], axis=0).astype(int)
        padded = []
        for array in arrays:
            gaps = [(0, m - n) for m, n in zip(longest, array.shape[2:], strict=True)]
            padded.append(np.pad(array, [(0, 0), (0, 0), *gaps]))
        joined[name] = np.concatenate(padded, axis=1)
    return joined


def _repeated(laws, n):
    """The laws of one cluster as those of n."""
    return type(laws).joined([laws] * n)
