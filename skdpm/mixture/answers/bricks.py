# SPDX-License-Identifier: BSD-3-Clause
"""Components of a hill: clusters, or bricks of one cluster.

Clusters that overlap have no valley between them, and each has a separate component. A curve or a
law that is not that of the likelihood has several components, and where one ends and the next
begins is arbitrary. `evidence_of` measures for each hill what distinguishes the two, averaged over
the draws, and `log_odds` weighs it. See `doc/background/clusters.md`.

Related: components that keep apart in all draws (CliPS, arXiv 2603.00277), fusing components by
the distance of their laws (Dombowsky & Dunson 2024), ridgelines (Hennig 2010).
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.special import expit

from skdpm._convergence import adjusted_rand
from skdpm.mixture.answers import components as _components
from skdpm.mixture.answers.components import (
    MOST_COLUMNS,
    Components,
    NormalLaws,
    rows_of_mean_covariance,
    whitening,
)
from skdpm.mixture.answers.hills import Hills
from skdpm.partitions import without_gaps

# Intercept and weights in nats of the evidence, in the order of `log_odds`, of a logistic
# regression on pairs of rows; see `doc/background/clusters.md`.
INTERCEPT = -6.2
WEIGHTS = np.array([12.8, -3.6, 3.5, 2.0, 1.6, -21.5, -20.0, -1.0])
# Weight of the log number of columns above FEW_COLUMNS: in many columns, bricks recur too.
WEIGHT_OF_COLUMNS, FEW_COLUMNS = -3.0, 8
# Spread from which a hill is long, and what is added to `apart` before the logarithm.
LONG, NESTED = 0.7, 0.05
# Log, for each column, of how much denser than a component the one of the median row of its hill
# is, from which the component is thin: noise around a curve, which would hide its bricks.
THIN = np.log(10.0) / 2.0
# Distance of the core from which it is no part of the others, and what is added to it as a share
# of this before the logarithm.
OUTSIDE, INSIDE = 0.1, 0.1
# Evidence (nats) that a valley between two components which face each other has by chance.
CHANCE = 0.75
# Components with a smaller share of the rows of a hill do not count for `apart`, and the largest
# distance that counts.
LEAST_PART, FARTHEST = 0.02, 3.0
# Basins replace components as the parts of a hill if their recurrence is larger by more than this.
# Then the log odds are those of the basins less this, if they are larger.
MORE_OFTEN, DEARER = 0.1, 1.0
# Nats by which each of two peaks is above the pass between them if they have two basins.
PROMINENCE = 0.1
# Components smaller than this share of the typical size in a hill are no clusters.
SMALL = 0.15
# A component is in a plane if its smallest variance, as a multiple of that of all rows, is less
# than this, which is above the rounding errors of eigenvalues.
FLAT = 1e-13
# Largest number of columns in which normal laws find the most probable components well enough.
MOST_CELL_COLUMNS = 8
# Largest number of rows of which all most probable components are compared between draws, so that
# the order of rows does not matter, and about how many of more rows.
MOST_ROWS, SOME_ROWS = 20_000, 5_000


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of the hills of a draw, which may be clusters: components, or basins.

    - `hills`: (n_parts,), int. Hill of each part.
    - `laws`: NormalLaws. Laws of the parts.
    - `drawn`: (n_rows,), int. Part of each row inside clusters in the draw.
    - `likely`: (n_samples,), int. Most probable part of each row.
    - `facing`: (n_facing, 3). Two parts of a hill that face each other, and the evidence of the
      valley between them.
    - `are_tied`: (n_parts,). Share of the rows of each part in components that are `tied`.
    - `are_free`: (n_parts,), bool. Whether the part has no known class.
    """

    hills: np.ndarray
    laws: NormalLaws
    drawn: np.ndarray
    likely: np.ndarray
    facing: np.ndarray
    are_tied: np.ndarray
    are_free: np.ndarray

    def joined(self, split):
        """Part that each part joins if those of the hills that are `split`, (n_hills,), are
        clusters: (n_parts,). Parts much smaller than the others are none, unless they have a
        known class."""
        parts = np.arange(len(self.hills))
        for h in np.flatnonzero(split & (np.bincount(self.hills, minlength=len(split)) > 1)):
            inside = np.flatnonzero(self.hills == h)
            shares = self.laws.sizes[inside] / self.laws.sizes[inside].sum()
            typical = np.exp((shares * np.log(shares)).sum())  # 1 / effective number
            small = (shares < SMALL * typical) & self.are_free[inside]
            parts[inside[small]] = self.laws.nearest(inside[small], inside[~small])
        return parts


@dataclass(frozen=True, eq=False)
class DrawnHills:
    """Hills of a draw, and what is known of their parts.

    - `n_samples`: int. Number of rows.
    - `rows`: ndarray or slice. Rows inside clusters: those that are not noise.
    - `hills`: Hills or None. Hills of these rows. None: there are none.
    - `most_probable`: (n_samples,), int. Most probable component of each row; of a row with a
      missing entry, the component in the draw. None: nobody needs it.
    - `parts`: tuple of Parts. Components, and basins if rows have `neighbours`. Empty: nobody
      needs them.
    - `evenness`: (n_hills,). Evidence that the rows of each hill are `even`; 0 if nobody needs it.
    """

    n_samples: int
    rows: np.ndarray | slice
    hills: Hills | None
    most_probable: np.ndarray | None = None
    parts: tuple = ()
    evenness: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        points,
        labels,
        known,
        has_noise=False,
        adaptive=False,
        columns=None,
        given=None,
        neighbours=None,
    ):
        """Hills of points.

        - `labels`: (n_samples,), int. Component of each row, -1 for noise.
        - `has_noise`: bool. Whether some draw has rows that are noise.
        - `adaptive`: bool. Whether components of hills can be clusters.
        - `columns`: (n_samples, n_columns) or None. Rows as `tied` needs them. None: the draw
          gives no evidence.
        - `given`: As for `Hills.of`.
        - `neighbours`: Neighbours or None. Neighbours of the rows. None: there are no basins.
        """
        rows = np.flatnonzero(labels >= 0) if has_noise else slice(None)
        if not len(labels[rows]):
            return cls(len(labels), rows, None, np.zeros(len(labels), np.uint8))
        given = None if given is None else given[rows]
        hills = Hills.of(points[rows], labels[rows], known.take(rows), given)
        most_probable, parts, evenness = None, (), np.zeros(hills.n_hills)
        if columns is not None or (adaptive and points.shape[1] <= MOST_CELL_COLUMNS):
            guess = np.zeros(len(labels), dtype=np.intp)
            guess[rows] = hills.labels
            most_probable, some = guess.astype(hills.labels.dtype), slice(None)
            if points.shape[1] > MOST_CELL_COLUMNS:  # for `recurrence` alone
                some = slice(None, None, step_between(len(labels)))
            has_gaps = np.isnan(points[some]).any(axis=1) & (labels[some] >= 0)
            found = np.ascontiguousarray(points[some]), np.ascontiguousarray(guess[some])
            found = np.where(has_gaps, most_probable[some], hills.laws.most_probable(*found))
            most_probable[some] = found
        if adaptive or columns is not None:
            are_tied = np.zeros(len(hills.of_components))
            if columns is not None and hills.has_parts:
                evenness = even(points[rows], hills)
                if columns.shape[1] <= MOST_COLUMNS:
                    are_tied[:] = tied(columns[rows], hills.labels)
            own = hills.laws, hills.labels, most_probable, hills.facing, are_tied
            parts = (Parts(hills.of_components, *own, hills.classes < 0),)
            if neighbours is not None:
                parts += (basins_of(parts[0], points, neighbours),)
        return cls(len(labels), rows, hills, most_probable, parts, evenness)

    @property
    def of_rows(self):
        """Hill of each row inside clusters."""
        return self.hills.of_components[self.hills.labels]

    def mean_of_hills(self, values):
        """Means of values of all rows, (n_samples, n_values), over the hills:
        (n_hills, n_values)."""
        of_rows = self.of_rows
        sums = [np.bincount(of_rows, column) for column in values[self.rows].T]
        return np.column_stack(sums) / np.bincount(of_rows)[:, None]

    def log_odds(self, evidence):
        """Log odds that each hill is divided into clusters, (n_hills,), and whether these are
        its basins, (n_hills,), bool. Both are empty if none is divided. Hills are of one kind
        rather than of two: the prior odds follow from the others by the rule of succession.

        - `evidence`: list of (n_samples, 8), one for each of `parts`, or None. Result of
          `evidence_of`. None: each hill is a cluster.
        """
        if self.hills is None or evidence is None or not self.hills.has_parts:
            return np.empty(0), np.empty(0, dtype=bool)
        means = [self.mean_of_hills(of_parts) for of_parts in evidence]
        odds = [log_odds(of_hills, self.hills.laws.means.shape[1]) for of_hills in means]
        by_basins = means[-1][:, 0] - means[0][:, 0] > MORE_OFTEN  # none if there are no basins
        by_basins &= np.bincount(self.parts[-1].hills, minlength=len(by_basins)) > 1
        found = np.where(by_basins, np.maximum(odds[0], odds[-1] - DEARER), odds[0])
        several = np.bincount(self.hills.of_components) > 1
        divided, joined = expit(found) * several, expit(-found) * several
        prior = np.log1p(divided.sum() - divided) - np.log1p(joined.sum() - joined)
        return found + prior, by_basins

    def clusters(self, known, divided, by_basins, of_cells=False):
        """Clusters of all rows, -1 for noise: (n_samples,).

        - `divided`: (n_hills,), bool. Whether the parts of each hill are clusters. Empty: those
          of none.
        - `by_basins`: (n_hills,), bool. Whether these parts are the basins, not the components.
        - `of_cells`: bool. Whether a row is in the cluster of its most probable component. It is
          in that of its component in the draw with more than `MOST_CELL_COLUMNS` columns, known
          labels or no evidence.
        """
        found = np.full(self.n_samples, -1)
        if self.hills is None:
            return found
        known, labels, of = known.take(self.rows), self.hills.labels, self.hills.of_components
        groups, classes = of, self.hills.classes
        if np.any(divided):
            inside = self.parts[0].joined(divided & ~by_basins)
            groups = without_gaps(np.where(divided[of], inside, len(of) + of))
        few = self.hills.laws.means.shape[1] <= MOST_CELL_COLUMNS
        if of_cells and self.most_probable is not None and few and not known.unites:
            labels = self.most_probable[self.rows]
        if np.any(divided & by_basins):
            # A row is in its basin, wherever the draw has it on a hill of basins.
            are_basins = divided & by_basins
            labels = np.where(are_basins[of[labels]], self.most_probable, labels)
            basins = self.parts[1].joined(are_basins)[self.parts[1].likely]
            labels = np.where(are_basins[of[labels]], groups.max() + 1 + basins, groups[labels])
            labels = without_gaps(labels)
            groups, classes = np.arange(labels.max() + 1), None
        found[self.rows] = known.clusters(groups, classes, labels)
        return found


def basins_of(components, points, neighbours):
    """Basins of the hills of all `points`, as parts of these like their components."""
    likely, drawn, n_components = components.likely, components.drawn, len(components.hills)
    of_rows = neighbours.basins(components.laws, components.hills[likely], PROMINENCE)
    n_basins = int(of_rows.max()) + 1
    hills = np.zeros(n_basins, dtype=np.intp)
    hills[of_rows] = components.hills[likely]

    def shared(of_components):
        pairs = of_components.astype(np.intp) * n_basins + of_rows
        return np.bincount(pairs, minlength=n_components * n_basins).reshape(-1, n_basins)

    # The basin of a component has most of the rows for which it is the most probable one; if
    # there are none, most of its rows in the draw.
    basins = (shared(likely) + shared(drawn) / (len(points) + 1.0)).argmax(axis=1)
    basins = basins.astype(of_rows.dtype)
    facing = components.facing.copy()
    facing[:, :2] = basins[facing[:, :2].astype(np.intp)]
    one, other = facing[:, :2].astype(np.intp).T
    facing = facing[(one != other) & (hills[one] == hills[other])]
    are_tied = np.bincount(of_rows, components.are_tied[drawn]) / np.bincount(of_rows)
    laws = Components.of(points, of_rows).laws
    return Parts(hills, laws, basins[drawn], of_rows, facing, are_tied, np.ones(n_basins, bool))


def even(points, hills):
    """Evidence (nats) that the rows of each hill are spread evenly, not as its components are, on
    the line on which these differ most: (n_hills,). It is the log likelihood ratio of the uniform
    law from the first row to the last one, or 0 if this is less or there is one component."""
    nats, of = np.zeros(hills.n_hills), hills.of_components
    for h in np.flatnonzero(np.bincount(of) > 1):
        laws = hills.laws.take(of == h)
        _, (within,), (between,) = moments(laws, laws.sizes[None] / laws.sizes.sum())
        last = (len(within) - 1,) * 2
        line = scipy.linalg.eigh(between, within, subset_by_index=last)[1]
        # A missing entry is replaced by 0, as for the densities.
        t = np.nan_to_num(points[of[hills.labels] == h]) @ line
        on_line = laws.sizes, laws.means @ line, line.T @ laws.covariances @ line
        uniform = np.log(laws.sizes.sum() * np.sqrt(2.0 * np.pi) / max(np.ptp(t), 1e-300))
        nats[h] = max((uniform - NormalLaws.of(*on_line).log_densities(t)).sum(), 0.0)
    return nats


def tied(columns, labels):
    """Components in a plane in which not all rows are, because rows tie, as answers and rounded
    numbers do: (n_components,), bool. They have more rows than columns.

    - `columns`: (n_rows, n_columns). Rows as they were recorded, at most `MOST_COLUMNS` of them:
      more columns are not judged. NaN is replaced by the mean of the component.
    - `labels`: (n_rows,). Components 0, ..., K - 1.
    """
    parts = Components.of(columns, labels)
    whiten = whitening(parts.rows)
    if not whiten.size:
        return np.zeros(len(parts.sizes), dtype=bool)
    thinnest = np.linalg.eigvalsh(whiten.T @ parts.scatters @ whiten)[:, 0]
    is_flat = thinnest < FLAT * parts.sizes
    return is_flat & (parts.sizes > whiten.shape[1]) & parts.are_known


def apart(laws, of, totals):
    """Mean Bhattacharyya distance of two components of each hill `of`, with `totals` rows, whose
    covariances are scaled to one determinant, beyond what their numbers of rows give by chance:
    (n_hills,). It is 0 for components with one mean of which one is a wider copy of the other, as
    a law with heavy tails has them."""
    sizes, means, d = laws.sizes / totals[of], laws.means, laws.means.shape[1]
    of_mean = laws.covariances / laws.sizes[:, None, None]
    # The squares of the relative errors of a covariance, without that of its determinant, have
    # this sum; to second order, a sixteenth of it is the distance from the true one.
    errors = (d - 1.0) * (d + 2.0) * laws.sizes / (laws.sizes + rows_of_mean_covariance(d)) ** 2
    roots = np.diagonal(laws.whiteners, axis1=1, axis2=2)
    shapes = laws.covariances * np.exp(2.0 * np.log(roots).mean(axis=1))[:, None, None]
    counted = np.flatnonzero(sizes >= LEAST_PART)
    inside = [counted[of[counted] == h] for h in range(len(totals))]
    one, other = np.hstack([which[np.array(np.triu_indices(len(which), 1))] for which in inside])
    distances = np.empty(len(one))
    step = max(1, _components.MOST_NUMBERS // (d * d))
    for first in range(0, len(one), step):
        a, b = one[first : first + step], other[first : first + step]
        gap = (means[a] - means[b])[:, :, None]
        squares = gap * gap.transpose(0, 2, 1) - of_mean[a] - of_mean[b]
        mean = (laws.covariances[a] + laws.covariances[b]) / 2.0
        of_means = np.trace(np.linalg.solve(mean, squares), axis1=1, axis2=2) / 8.0
        of_shapes = np.linalg.slogdet((shapes[a] + shapes[b]) / 2.0)[1] / 2.0
        of_shapes -= (errors[a] + errors[b]) / 16.0
        distances[first : first + step] = np.clip(of_means + of_shapes, 0.0, FARTHEST)
    weights = sizes[one] * sizes[other]
    sums = np.bincount(of[one], weights * distances, len(totals))
    return sums / np.maximum(np.bincount(of[one], weights, len(totals)), 1e-300)


def dense(laws, of):
    """Parts that are not much thinner than that of the median row of their group, `of`:
    (n_parts,), bool."""
    heights, sizes = laws.heights, laws.sizes
    order = np.lexsort((heights, of))
    halves = np.cumsum(np.bincount(of, sizes)) - np.bincount(of, sizes) / 2.0
    medians = heights[order[np.searchsorted(np.cumsum(sizes[order]), halves)]]
    return heights >= medians[of] - THIN * laws.means.shape[1]


def moments(laws, weights):
    """Means, (n, n_columns), and covariances within and between components, (n, n_columns,
    n_columns), with weights, (n, n_components), of which each row has the sum 1."""
    means, within = weights @ laws.means, np.tensordot(weights, laws.covariances, 1)
    squares = laws.means[:, :, None] * laws.means[:, None, :]
    return means, within, np.tensordot(weights, squares, 1) - means[:, :, None] * means[:, None, :]


def outside(laws, cores, shares):
    """Distance of the core of each hill, the component with the highest peak, from the normal law
    with the moments of all others, (n_hills,). It is the Bhattacharyya distance without the axes
    on which the core is narrower, so it is 0 for a core inside wings with the same centre,
    whatever their shapes."""
    others = shares.copy()
    others[np.arange(len(cores)), cores] = 0.0
    others /= others.sum(axis=1, keepdims=True)
    mean, within, between = moments(laws, others)
    wide, narrow = within + between, laws.covariances[cores]
    gap = (laws.means[cores] - mean)[:, :, None]
    of_means = (gap * np.linalg.solve(narrow + wide, gap)).sum(axis=(1, 2)) / 4.0
    ratios = np.maximum(np.linalg.eigvals(np.linalg.solve(wide, narrow)).real, 1.0)
    return of_means + np.log((ratios + 1.0) / (2.0 * np.sqrt(ratios))).sum(axis=1) / 2.0


def of_laws(parts, n_hills):
    """Evidence of each hill that follows from the laws of its parts: (n_hills, 5). Columns are
    valleys, apart, outside, spread (largest on any line) and ties; see `log_odds`."""
    out, of = np.zeros((n_hills, 5)), parts.hills
    np.add.at(out[:, 0], of[parts.facing[:, 0].astype(np.intp)], parts.facing[:, 2] - CHANCE)
    totals = np.bincount(of, parts.laws.sizes, n_hills)
    shares = np.zeros((n_hills, len(of)))
    shares[of, np.arange(len(of))] = parts.laws.sizes / totals[of]
    # Means from those of their hills, as squares of large numbers have large rounding errors.
    laws = replace(parts.laws, means=parts.laws.means - (shares @ parts.laws.means)[of])
    out[:, 1] = apart(laws, of, totals)
    several = np.bincount(of, minlength=n_hills) > 1
    if several.any():
        cores = np.where(shares > 0.0, laws.heights, -np.inf)[several].argmax(axis=1)
        shares = shares[several]
        out[several, 2] = outside(laws, cores, shares)
        bodies = shares * dense(laws, of)
        _, within, between = moments(laws, bodies / bodies.sum(axis=1, keepdims=True))
        out[several, 3] = np.linalg.eigvals(np.linalg.solve(within + between, between)).real.max(1)
        out[several, 4] = shares @ parts.are_tied
    return out


def recurrence(several, of_rows, drawn, likely, others):
    """How far the parts of each hill are those of other draws, and how far the drawn ones are the
    most probable ones: (n_hills, 2). 1 and 0 if the hill has a single part.

    - `several`: (n_hills,), bool. Whether the hill has several parts.
    - `of_rows`: (n_rows,). Hill of each row, -1 for noise.
    - `drawn`: (n_rows,). Part of each row in the draw, any number for noise.
    - `likely`: (n_rows,). Most probable part of each row.
    - `others`: list of (n_rows,). The same of the other draws.
    """
    out = np.repeat([[1.0, 0.0]], len(several), axis=0)
    for h in np.flatnonzero(several):
        rows = np.flatnonzero(of_rows == h)
        if not len(rows):
            out[h] = 0.0
            continue
        found = [adjusted_rand(likely[rows], other[rows]) for other in others]
        out[h] = np.mean(found) if found else 0.0, adjusted_rand(drawn[rows], likely[rows])
    return out


def log_odds(evidence, n_columns):
    """Log odds that the components of hills are clusters: (n_hills,).

    - `evidence`: (n_hills, 8). Means over the draws of

      - recurrence: the adjusted Rand index of the most probable components of the rows in this
        draw and in draws of other chains. Bricks lie elsewhere in each draw.
      - certainty: the adjusted Rand index of the components of the rows in this draw and of their
        most probable ones. Components of overlapping clusters recur although it is small; bricks
        recur less than it allows.
      - valleys: the sum of the evidence for valleys between components that face each other, less
        what they have by chance. No single valley of many may be certain.
      - apart: the mean distance of the components, of which none is a wider copy of another one.
      - outside: the distance of the core from the others. It is 0 for the core of a law with heavy
        tails or with arms on all sides.
      - spread: the share of the variance that is between the components, without thin ones. It is
        close to 1 if many bricks follow a curve.
      - ties: the share of the rows in components that are in a plane. Answers and rounded numbers
        have such components, one for each value, in all draws.
      - evenness: the nats by which a uniform law is better than the components, as a column of
        years has it. They count as what they are.
    - `n_columns`: int. Number of columns of the points.
    """
    recurs, certain, valleys, distances, beyond, shares, ties, evenness = evidence.T
    terms = [
        recurs,
        certain,
        np.log1p(np.maximum(valleys, 0.0)),
        np.log(distances + NESTED),
        np.log(np.minimum(beyond / OUTSIDE, 1.0) + INSIDE),
        np.maximum(shares - LONG, 0.0),
        ties,
        evenness,
    ]
    level = INTERCEPT + WEIGHT_OF_COLUMNS * np.log(max(n_columns / FEW_COLUMNS, 1.0))
    return level + WEIGHTS @ terms


def step_between(n_samples):
    """Distance of the rows that are compared between draws."""
    return 1 if n_samples <= MOST_ROWS else -(-n_samples // SOME_ROWS)


def evidence_of(draws, grid):
    """Evidence of the hill of each row, as `log_odds` needs it, for each kind of `parts`: list of
    (n_samples, 8). It is the mean over the draws, so that the hills of all draws agree. None if no
    draw has a hill of several components.

    - `draws`: list of DrawnHills. Different draws.
    - `grid`: (n_chains, n_draws), int. Which of them each draw of each chain is.
    """
    if not any(draw.hills is not None and draw.hills.has_parts for draw in draws):
        return None
    return [_evidence(draws, grid, kind) for kind in range(max(len(d.parts) for d in draws))]


def _evidence(draws, grid, kind):
    """Evidence of the hill of each row by parts of one kind: (n_samples, 8)."""
    n_chains, n_draws = grid.shape
    n_samples = draws[0].n_samples
    total, count = np.zeros((n_samples, 8)), np.zeros(n_samples)
    step = step_between(n_samples)
    likely = [draw.parts[kind].likely if draw.parts else draw.most_probable for draw in draws]
    for i, (draw, times) in enumerate(zip(draws, np.bincount(grid.ravel()), strict=True)):
        if draw.hills is None:
            continue
        # Draws of other chains, or of a single chain those that are the farthest.
        c, s = np.argwhere(grid == i)[0]
        others = np.delete(grid[:, s], c)
        if n_chains == 1:
            others = grid[0, [(s + n_draws // 2) % n_draws]][: n_draws // 2]
        parts, n_hills = draw.parts[kind], draw.hills.n_hills
        of_all, drawn = np.full((2, n_samples), -1)
        of_all[draw.rows], drawn[draw.rows] = draw.of_rows, parts.drawn
        found, *others = (likely[j][::step] for j in [i, *others])
        several = np.bincount(parts.hills, minlength=n_hills) > 1
        recurs = recurrence(several, of_all[::step], drawn[::step], found, others)
        values = np.column_stack([recurs, of_laws(parts, n_hills), draw.evenness])
        total[draw.rows] += times * values[draw.of_rows]
        count[draw.rows] += times
    return total / np.maximum(count, 1.0)[:, None]
