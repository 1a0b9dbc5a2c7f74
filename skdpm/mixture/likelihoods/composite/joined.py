# SPDX-License-Identifier: BSD-3-Clause
"""How a `Product` joins what its parts are, know and learn.

Hyperparameters are those of units, in the order of the parts. A unit is a part, or under selection
perhaps one of its columns (`selection`).
"""

import copy

import numpy as np

from skdpm.mixture.likelihoods.contract.roles import OF_ONE_PART
from skdpm.mixture.likelihoods.laws.background import JointBackground
from skdpm.mixture.likelihoods.laws.laws import JointLaws
from skdpm.mixture.likelihoods.laws.means import ColumnMeans


class Once:
    """A property of a `Product`, computed once if it is resolved: no parameter changes then."""

    def __init__(self, compute):
        self.compute = compute

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, product, owner=None):
        if product is None:
            return self
        known = product._known
        if known is None:
            return self.compute(product)
        if self.name not in known:
            known[self.name] = self.compute(product)
        return known[self.name]


class OfParts(Once):
    """What `any`, `all` or another function makes of the attributes of the parts."""

    def __init__(self, join):
        self.join = join

    def compute(self, product):
        return self.join(getattr(part, self.name) for part in product._likelihoods())


class OfRows(OfParts):
    """A method of rows, whose results for the columns of the parts are joined."""

    def __get__(self, product, owner=None):
        if product is None:
            return self
        return lambda X: self.join(
            [getattr(likelihood, self.name)(part) for _, likelihood, part in product._split(X)]
        )


class LeftOut:
    """The columns of all parts that clusters are not made of (`Likelihood.left_out`). `parts`
    lists, for each part with such columns, their positions and its `left_out`."""

    def __init__(self, parts):
        self.parts = parts
        self.left_out = np.concatenate([columns[part.left_out] for columns, part in parts])
        self.constants = np.concatenate([part.constants for _, part in parts])

    def log_density(self, X):
        """The sum over parts."""
        return sum(part.log_density(X[:, columns]) for columns, part in self.parts)

    def log_density_known(self, X):
        """The sum over parts."""
        return sum(part.log_density_known(X[:, columns]) for columns, part in self.parts)

    def departs(self, X):
        """Those of the parts, joined."""
        return np.hstack([part.departs(X[:, columns]) for columns, part in self.parts])


class JoinedHyperparameters:
    """The role of learned hyperparameters of a `Product`, with names ``part__parameter``. Those of
    units that are the columns of one part are one vector, and their priors a tuple."""

    def _units(self):
        """For each part: its name, likelihoods of its units, and whether these are its columns."""
        return [(name, [likelihood], False) for name, likelihood, _ in self._with_objects()]

    def __getattr__(self, name):
        part, found, parameter = name.partition("__")
        if found and part and not name.startswith("_") and "parts" in self.__dict__:
            for other, units, are_columns in self._units() if self._likelihoods() else ():
                if other == part and hasattr(units[0], parameter):
                    values = [getattr(unit, parameter) for unit in units]
                    if not are_columns:
                        return values[0]
                    if isinstance(values[0], list):
                        return [entry for value in values for entry in value]
                    return np.concatenate(list(map(np.ravel, values)))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _hyperparameters(self):
        return tuple(
            f"{name}__{parameter}"
            for name, units, _ in self._units()
            for parameter in units[0].hyperparameters
        )

    def _learned_priors(self):
        priors = {}
        for name, units, are_columns in self._units():
            for parameter, prior in units[0].learned_priors.items():
                if are_columns:
                    prior = tuple(unit.learned_priors[parameter] for unit in units)
                priors[f"{name}__{parameter}"] = prior
        return priors

    hyperparameters = Once(lambda self: self._hyperparameters())
    learned_priors = Once(lambda self: self._learned_priors())

    def hyper_names(self):
        return tuple(
            f"{name}__{parameter}"
            for name, units, _ in self._units()
            for unit in units
            for parameter in unit.hyper_names()
        )

    def flat_hyperparameters(self):
        return np.concatenate([unit.flat_hyperparameters() for unit in self._likelihoods()])

    def learned_values(self, flat):
        values, first = {}, 0
        for name, units, are_columns in self._units():
            stop = first + len(units) * len(units[0].hyper_names())
            if are_columns:  # a number per parameter of each column
                table = np.reshape(flat[first:stop], (len(units), -1)).T
                own = zip(units[0].hyperparameters, map(np.copy, table), strict=True)
            else:
                own = units[0].learned_values(flat[first:stop]).items()
            learned = units[0].learned_priors
            values |= {f"{name}__{key}": value for key, value in own if key in learned}
            first = stop
        return values

    def _values_of_units(self, values):
        """Values of the hyperparameters of each unit, by their names in the unit: list of dict."""
        of_units = []
        for name, units, are_columns in self._units():
            for j, unit in enumerate(units):
                own = {}
                for parameter in unit.hyperparameters:
                    value = values.get(f"{name}__{parameter}")
                    if value is not None and are_columns:
                        value = np.reshape(value[j], np.shape(getattr(unit, parameter)))
                        value = value if value.ndim else float(value)
                    if value is not None:
                        own[parameter] = value
                of_units.append(own)
        return of_units

    def at(self, values):
        unknown = [name for name in values if name not in self.hyperparameters]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no hyperparameter {unknown[0]!r}")
        own = iter(self._values_of_units(values))
        other = self._with(lambda _, unit: unit.at(next(own)))
        other._known = self._known  # it does not depend on values
        return other

    def _draws_of_units(self, draws):
        """Name of the part and likelihood of each unit, with the pairs of its values and its
        statistics in draws. Columns have laws of their own and are left out."""
        found = [
            zip(
                self._values_of_units(values),
                self.at(values)._of_clusters(stats, lambda *pair: pair),
                strict=True,
            )
            for values, stats in draws
        ]
        for name, units, are_columns in self._units():
            for unit in units:
                own = [(values, stats) for values, (_, stats) in map(next, found)]
                if not are_columns:
                    yield name, unit, own

    def integrated(self, values, stats):
        for name, unit, (own,) in self._draws_of_units([(values, stats)]):
            found = unit.integrated(*own)
            values = values | {f"{name}__{key}": found[key] for key in found}
        return values

    def beyond(self, draws):
        return [
            (log_shares, {f"{name}__{key}": value for key, value in values.items()})
            for name, unit, own in self._draws_of_units(draws)
            for log_shares, values in unit.beyond(own)
        ]

    def without_learning(self):
        return self._with(lambda _, unit: unit.without_learning())

    def log_hyperprior(self, values):
        units = zip(self._likelihoods(), self._values_of_units(values), strict=True)
        return sum((unit.log_hyperprior(own) for unit, own in units if own), 0.0)

    def draw_hyperparameters(self, rng):
        return self.learned_values(self._drawn(rng))

    def _drawn(self, rng):
        """Hyperparameters in one vector, the learned ones drawn from their priors."""
        drawn = [unit.at(unit.draw_hyperparameters(rng)) for unit in self._likelihoods()]
        return np.concatenate([unit.flat_hyperparameters() for unit in drawn])

    def _with(self, change):
        """A copy whose parts have the likelihoods change(name, likelihood)."""
        other = copy.copy(self)
        other.parts = [
            (name, change(name, likelihood), columns) for name, likelihood, columns in self.parts
        ]
        other._known = None if self._known is None else {}
        return other


class JoinedAnswers:
    """The role of answers of a `Product`. All parts need what it has."""

    def _stats_of_parts(self, stats):
        return np.split(stats, np.cumsum(self._n_stats)[:-1], axis=1)

    def _of_clusters(self, stats, answer, repeat=None):
        """answer(likelihood, its statistics of clusters) of each part, a list. If the parameters
        of a part are those of all clusters, its answer is repeat(answer for one, n_clusters);
        without `repeat`, clusters have separate answers."""
        parts = zip(self._likelihoods(), self._stats_of_parts(stats), strict=True)
        return [answer(likelihood, own) for likelihood, own in parts]

    def grouped(self):
        """Name, a likelihood and positions of the columns of each part of the user."""
        positions = iter(self._positions)
        return [
            (name, units[0], np.concatenate([next(positions) for _ in units]))
            for name, units, _ in self._units()
        ]

    def cluster_params(self, stats):
        """Parameters of the parts: a dict of dicts, by name."""
        found = iter(self._of_clusters(stats, lambda unit, own: unit.cluster_params(own)))
        params = {}
        for name, units, are_columns in self._units():
            own = [next(found) for _ in units]
            params[name] = _side_by_side(own) if are_columns else own[0]
        return params

    def moments(self, params, directions):
        means = covariances = 0.0
        known = np.zeros(len(directions), dtype=bool)
        for name, likelihood, positions in self.grouped():
            known[positions] = True
            if directions[positions].any():
                # Parts are independent given the cluster, so their terms are summed.
                mean, covariance = likelihood.moments(params[name], directions[positions])
                if mean is None:
                    return None, None
                means, covariances = means + mean, covariances + covariance
        return (None, None) if directions[~known].any() else (means, covariances)

    def columns_with_means(self, params, n_features):
        columns = [
            positions
            for name, likelihood, positions in self.grouped()
            if likelihood.moments(params[name], np.zeros((len(positions), 0)))[0] is not None
        ]
        columns = np.sort(np.concatenate(columns)) if columns else columns
        return columns if len(columns) > 1 else np.arange(n_features)

    def column_posterior(self, stats, column):
        pairs = self._of_clusters(stats, lambda *pair: pair)
        for (likelihood, own), positions in zip(pairs, self._positions, strict=True):
            if column in positions and likelihood.column_posterior is not None:
                return likelihood.column_posterior(own, list(positions).index(column))
        return None

    def lacks(self, role):
        """See `Likelihood`. All parts need the role, or one of them (`OF_ONE_PART`)."""
        if self.select and role == "with_exposure":
            return "Product(select=True)"
        parts = self._with_objects() if self._likelihoods() else ()
        lacking = [
            f"{who} (part {self._part_of(name)!r})"
            for name, likelihood, _ in parts
            if (who := likelihood.lacks(role)) is not None
        ]
        enough = role in OF_ONE_PART and len(lacking) < len(parts)
        return lacking[0] if lacking and not enough else None

    def draw_rows(self, stats, clusters, n_features, rng):
        """Rows, with NaN in columns that are in no part."""
        X = np.full((len(clusters), n_features), np.nan)
        widths = map(len, self._positions)
        found = self._of_clusters(
            stats, lambda part, own: part.draw_rows(own, clusters, next(widths), rng)
        )
        for positions, rows in zip(self._positions, found, strict=True):
            X[:, positions] = rows
        return X

    def laws(self, stats, rng=None):
        return JointLaws(
            self._n_features,
            [self._columns_of(likelihood, at) for _, likelihood, at in self._bound()],
            self._of_clusters(
                stats,
                lambda part, own: part.laws(own, rng),
                lambda laws, n: type(laws).joined([laws] * n),
            ),
        )

    def background(self, X):
        return JointBackground(
            self._n_features,
            [(at, likelihood.background(X[:, at])) for _, likelihood, at in self._bound()],
        )

    def column_means(self, stats, n_draws=None, rng=None):
        found = self._of_clusters(
            stats, lambda part, own: part.column_means(own, n_draws, rng), ColumnMeans.repeated
        )
        return ColumnMeans.joined(found, self._positions)

    def doubtful(self, X, least):
        return {
            positions[d]: what
            for _, likelihood, positions in self._bound()
            for d, what in likelihood.doubtful(X[:, positions], least).items()
            if d is not None  # rows may differ in other parts
        }

    @property
    def left_out(self):
        parts = [
            (positions, likelihood.left_out)
            for _, likelihood, positions in self._bound()
            if likelihood.left_out is not None
        ]
        return LeftOut(parts) if parts else None


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
