# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Grid`, whose parameter is one of the points of a grid."""

import warnings

import numpy as np
from scipy.special import softmax

from skdpm.mixture.likelihoods.contract.base import Likelihood, bounds, read_only
from skdpm.mixture.likelihoods.grid._grid import CHUNK, IMPOSSIBLE, TINY, GridModel, ParametricGrid
from skdpm.mixture.likelihoods.laws.laws import drawn_places

# Largest log likelihood of a row at its best point. Beyond it, densities are not accurate to 1e-9.
LARGEST = 1e6

# Rows from which the default is `SubCluster`.
MANY = 2000

# Fewest points of a grid that represents a continuum, and of those that should matter for a row.
CONTINUUM = 20
FEWEST_EFFECTIVE = 3.0


class Tabulated(np.ndarray):
    """Result of `Grid.condense`: each row has its relative log likelihoods, the sum of the largest
    ones, and the number of those that are impossible."""


class Grid(Likelihood):
    """Any likelihood with a parameter on a grid.

    The parameter of a cluster is one of the points of the grid, with the prior probabilities of
    `log_weights`. Everything is exact for this discrete prior. The guide has examples.

    Parameters
    ----------
    log_likelihood : callable or None, default=None
        Function ``log_likelihood(X, grid)`` that returns the log density of each row at each
        point, (n_rows, n_points), or (n_rows, n_blocks, n_points) for independent blocks of a row.
        None: X is this table, block after block.
    grid : array-like of shape (n_points,) or (n_points, n_params), default=None
        Values of the parameter, or parameters. None: 0, 1, ..., one for each entry of
        `log_weights` or else each column of X.
    log_weights : array-like of shape (n_points,) or (n_blocks, n_points), default=None
        Log prior probabilities of the points, up to a constant; -inf is allowed. None: equal.
    sample : callable or None, default=None
        Function ``sample(theta, rng)`` of the point of each block, (n_blocks,) or (n_blocks,
        n_params), and a Generator, that returns a row of X. Estimators need it for `sample`.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})

    def suits_blocks(self, n_samples, n_features):
        return n_samples >= MANY

    def __init__(self, log_likelihood=None, grid=None, log_weights=None, sample=None):
        self.log_likelihood = log_likelihood
        self.grid = grid
        self.log_weights = log_weights
        self.sample = sample

    @property
    def allow_nan(self):
        """Whether X may contain NaN: if there is a function, which decides; not in a table."""
        return self.log_likelihood is not None

    def resolve(self, X):
        for name in ("log_likelihood", "sample"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ValueError(f"Grid.{name} must be a function or None, got {value!r}")
        grid = self.grid
        if grid is not None:
            grid = _numbers(grid, "Grid.grid", "points, or (n_points, n_params) of them")
            if not np.isfinite(grid).all():
                raise ValueError(f"Grid.grid must be finite, got {self.grid!r}")
        weights = self.log_weights
        if weights is not None:
            weights = _numbers(weights, "Grid.log_weights", "points, or (n_blocks, n_points)")
            if (np.isnan(weights) | (weights == np.inf)).any():
                raise ValueError(f"Grid.log_weights must not be NaN or inf, got {weights!r}")
            if not (weights > -np.inf).any(axis=-1).all():
                raise ValueError("Grid.log_weights must be above -inf somewhere in every block")
        if grid is None:
            if weights is not None:
                n_points = weights.shape[-1]
            elif self.log_likelihood is None:
                n_points = X.shape[1]
            else:
                raise ValueError("Grid.grid must be given with Grid.log_likelihood")
            grid = np.arange(float(n_points))
        n_points = len(grid)
        if weights is not None and weights.shape[-1] != n_points:
            raise ValueError(
                f"Grid.log_weights has {weights.shape[-1]} points, but Grid.grid has {n_points}"
            )
        resolved = self._copy(grid=read_only(grid))
        n_blocks = resolved._log_likelihoods(X[:1]).shape[1]
        if weights is None:
            weights = np.zeros(n_points)
        if weights.ndim == 2 and len(weights) != n_blocks:
            raise ValueError(
                f"Grid.log_weights has {len(weights)} blocks, but the log likelihoods have "
                f"{n_blocks}"
            )
        weights = np.ascontiguousarray(np.broadcast_to(weights, (n_blocks, n_points)))
        resolved.log_weights = read_only(weights)
        resolved._n_columns = X.shape[1]
        return resolved

    def resolve_summary(self, summary):
        X = np.concatenate(summary["rows"])
        resolved = self.resolve(X)
        resolved.encode(X)
        return resolved

    def encode(self, X):
        if isinstance(X, Tabulated):
            return self._encoded(X)
        log_likelihoods = self._log_likelihoods(X)
        self._check_rows_alone(X, log_likelihoods)
        data = self._encoded(self._tabulated(log_likelihoods))
        if log_likelihoods.shape[2] >= CONTINUUM:
            # Of the last layer, the most precise one: the median over rows and blocks of one over
            # the sum of squares of normalised likelihoods.
            last = log_likelihoods[:, -len(self.log_weights) :]
            last = np.exp(last - last.max(axis=2, keepdims=True))
            squares = np.einsum("idm,idm->id", last, last)
            effective = float(np.median(last.sum(axis=2) ** 2 / squares))
            if effective < FEWEST_EFFECTIVE:
                warnings.warn(
                    f"the grid of {type(self).__name__} is coarse for these data: for half of the "
                    f"rows at most {effective:.1f} of its {log_likelihoods.shape[2]} points "
                    f"matter, so {self._if_coarse}; {self._finer}",
                    stacklevel=2,
                )
        return data

    def encode_new(self, X):
        return self._encoded(self.condense(X))

    def condense(self, X):
        if isinstance(X, Tabulated):
            return X
        if len(X) == 0:
            return np.empty((0, self._layers[0] * self.log_weights.size + 2)).view(Tabulated)
        return self._tabulated(self._log_likelihoods(X))

    def log_constants(self, X):
        return np.asarray(self.condense(X))[:, -2].copy()

    def parametric(self, X):
        rows = np.ascontiguousarray(self.condense(X)).view(np.ndarray)
        return ParametricGrid(rows, self.log_weights, *self._layers)

    def divergences(self, params):
        """Squared distances of the points, each parameter divided by its standard deviation over
        the grid: a table of log likelihoods has no divergence."""
        grid = self.grid.reshape(len(self.grid), -1)
        scales = grid.std(axis=0)
        grid = grid / np.where(scales > 0.0, scales, 1.0)
        points = grid[params.astype(np.intp)].reshape(len(params), -1)
        return ((points[:, None] - points) ** 2).sum(axis=2)

    def tables(self, data, n_max):
        return read_only({"n_max": bounds(n_max)[0], "log_weights": self.log_weights})

    def bind(self, data, tables):
        return GridModel(data, tables)

    def cluster_params(self, stats):
        """Posterior `means` and `stds` of the parameter, (n_clusters, n_blocks) or (n_clusters,
        n_blocks, n_params), and probabilities `grid_weights`, (n_clusters, n_blocks, n_points)."""
        weights = self._posterior(stats)
        grid = self.grid if self.grid.ndim == 2 else self.grid[:, None]
        means = weights @ grid
        gaps = grid - means[..., None, :]
        stds = np.sqrt((weights[..., None] * gaps**2).sum(axis=-2))
        if self.grid.ndim == 1:
            means, stds = means[..., 0], stds[..., 0]
        return {"means": means, "stds": stds, "grid_weights": weights}

    def lacks(self, role):
        if role != "draw" or self.sample is not None:
            return super().lacks(role)
        can_have = "sample" in self.get_params()
        hint = " without a function (set Grid(sample=...))" if can_have else ""
        return type(self).__name__ + hint

    def draw(self, stats, rng):
        points = drawn_places(self._posterior(stats), rng)
        X = np.empty((len(stats), self._n_columns))
        for k, theta in enumerate(self.grid[points]):
            x = np.asarray(self.sample(theta, rng), dtype=np.float64)
            if x.shape != X[k].shape:
                raise ValueError(
                    f"Grid.sample must return a row of {self._n_columns} numbers; it returned an "
                    f"array of shape {x.shape}"
                )
            X[k] = x
        return X

    @property
    def _layers(self):
        """Number of layers of the table (see `_grid`), and the one that counts."""
        return 1, 0

    def _posterior(self, stats):
        """Probabilities of the points of each cluster, (n_clusters, n_blocks, n_points)."""
        sums = stats[:, 2:].reshape(len(stats), -1, *self.log_weights.shape)
        log_p = sums[:, self._layers[1]] + IMPOSSIBLE * sums[:, -1] + self.log_weights
        return softmax(log_p, axis=-1)

    # What a coarse grid does, and advice against it.
    _if_coarse = "clusters will be split between neighbouring points"
    _finer = "use more points in Grid.grid"

    def _evaluate(self, X):
        """The table of rows, unchecked."""
        if self.log_likelihood is not None:
            return self.log_likelihood(X, self.grid)
        n_points = len(self.grid)
        if X.shape[1] % n_points:
            raise ValueError(
                f"Grid needs a table of log likelihoods with a multiple of {n_points} columns, "
                f"which is the number of points; X has {X.shape[1]} columns"
            )
        return X.reshape(len(X), -1, n_points)

    def _log_likelihoods(self, X):
        """The checked table of rows, (n_rows, n_blocks, n_points)."""
        n_points = len(self.grid)
        found = np.asarray(self._evaluate(X))
        if found.dtype.kind not in "biuf":
            raise ValueError(
                f"Grid.log_likelihood must return numbers, not an array of type {found.dtype}"
            )
        table = found[:, None, :] if found.ndim == 2 else found
        if table.ndim != 3 or table.shape[0] != len(X) or table.shape[2] != n_points:
            raise ValueError(
                f"Grid.log_likelihood must return an array of shape ({len(X)}, {n_points}) or "
                f"({len(X)}, n_blocks, {n_points}) for {len(X)} rows and {n_points} points; it "
                f"returned one of shape {found.shape}"
            )
        table = np.ascontiguousarray(table, dtype=np.float64)
        bad = ~(table < np.inf)
        if bad.any():
            i, d, m = np.argwhere(bad)[0]
            raise ValueError(
                f"Grid needs log likelihoods that are numbers or -inf; that of row {i} in block "
                f"{d} at point {m} is {table[i, d, m]:g}"
            )
        return table

    def _check_rows_alone(self, X, table):
        if self.log_likelihood is None or len(X) == 1:
            return
        alone = self._log_likelihoods(X[:1])
        # Not bitwise: a product of matrices may round differently for one row and for many.
        if alone.shape != table[:1].shape or not np.allclose(
            alone, table[:1], rtol=1e-6, atol=1e-6
        ):
            raise ValueError(
                "Grid.log_likelihood must treat rows one by one, but what it returns for the "
                "first row depends on the other rows"
            )

    def _tabulated(self, table):
        """Rows of a checked table: `Tabulated`."""
        n_layers = self._layers[0]
        if table.shape[1] != n_layers * len(self.log_weights):
            raise ValueError(
                f"Grid.log_likelihood returned {table.shape[1]} blocks for these rows, but "
                f"{len(self.log_weights)} for those of `fit`"
            )
        layered = table.reshape(len(table), n_layers, *self.log_weights.shape)
        tops = layered.max(axis=(1, 3), initial=-np.inf, where=self.log_weights > -np.inf)
        if (tops == -np.inf).any():
            i, d = np.argwhere(tops == -np.inf)[0]
            raise ValueError(
                f"Grid: row {i} of X (block {d}) has log likelihood -inf at all points of "
                "positive weight; check the row, or use a wider grid"
            )
        tops = layered.max(axis=(1, 3))
        if (abs(tops) > LARGEST).any():
            i, d = np.argwhere(abs(tops) > LARGEST)[0]
            raise ValueError(
                f"Grid: the largest log likelihood of row {i} of X (block {d}) is "
                f"{tops[i, d]:g}, too far from 0 for accurate differences; subtract a constant "
                "from the row, which does not change its cluster"
            )
        table = (layered - tops[:, None, :, None]).reshape(table.shape)
        if n_layers > 1:
            # Statistics do not count impossible entries of each layer.
            table = np.maximum(table, 0.5 * IMPOSSIBLE)
        impossible = table <= IMPOSSIBLE
        table[impossible] = IMPOSSIBLE
        parts = [table.reshape(len(table), -1), tops.sum(axis=1)[:, None]]
        return np.hstack([*parts, impossible.sum(axis=(1, 2))[:, None]]).view(Tabulated)

    def _encoded(self, rows):
        """The form of the kernel, from `Tabulated` rows."""
        rows = np.asarray(rows)
        shape = len(rows), self._layers[0] * len(self.log_weights), len(self.grid)
        table = np.ascontiguousarray(rows[:, :-2]).reshape(shape)
        first = np.arange(0, table.shape[2], CHUNK)
        likelihoods = _aligned_zeros((*table.shape[:2], CHUNK * len(first)))
        np.exp(table, out=likelihoods[:, :, : table.shape[2]])
        likelihoods[likelihoods < TINY] = 0.0
        likelihoods[:, :, table.shape[2] :] = 1.0
        return read_only(
            {
                "log_likelihoods": table,
                "highest": np.maximum.reduceat(table, first, axis=2),
                "lowest": np.minimum.reduceat(table, first, axis=2),
                "likelihoods": likelihoods,
                "log_constants": rows[:, -2].copy(),
                "impossible": rows[:, -1].copy(),
            }
        )


def _numbers(value, name, what):
    """A non-empty array of floats of one or two axes."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{name} must be an array of numbers, one per {what}; got {value!r}")
    return np.ascontiguousarray(array, dtype=np.float64)


def _aligned_zeros(shape):
    """Zeros aligned to cache lines, so that each chunk of points lies in one line."""
    size = int(np.prod(shape))
    memory = np.zeros(size + 8)
    first = -memory.ctypes.data % 64 // 8
    return memory[first : first + size].reshape(shape)
