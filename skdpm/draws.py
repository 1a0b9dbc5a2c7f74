# SPDX-License-Identifier: BSD-3-Clause
"""Kept draws: columns with an entry per draw, and snapshots that score new rows.

A chain fills a `ChainDraws`, which is saved as a plain dict. `Draws` combines all chains for
users: a mapping from names to arrays whose first two axes are chains and draws.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["Column", "Draws"]
__dir__ = __all__.copy


def column_of(name):
    """Name of the column of the draws that holds a learned hyperparameter of the likelihood."""
    return f"likelihood__{name}"


class Column(NamedTuple):
    """A quantity of every draw.

    Attributes
    ----------
    name : str
    kind : {"scalar", "params", "labels", "ragged"}
        Kind of the quantity: a number; an array of one shape; labels 0, 1, ..., kept in the
        smallest unsigned type for all draws, or in the smallest signed type if `dtype` is int8;
        an array whose shape differs between draws.
    dtype : numpy dtype
        Dtype of scalars and params.
    shape : tuple of int
        Shape of params and labels.
    """

    name: str
    kind: str = "scalar"
    dtype: object = np.float64
    shape: tuple = ()


class ChainDraws:
    """The kept draws of one chain while it runs, for an expected number of draws. `columns` are
    `Column`s, and `saved` is the result of `save`, to continue."""

    def __init__(self, columns, n_draws, saved=None):
        self.columns = {column.name: column for column in columns}
        saved = dict.fromkeys(self.columns, ()) if saved is None else saved
        self.n_kept = len(saved[columns[0].name])
        self.values = {
            name: _room(column, n_draws, saved[name]) for name, column in self.columns.items()
        }

    def append(self, **values):
        """Keep one draw, an entry for each column."""
        if values.keys() != self.columns.keys():
            raise ValueError(
                f"a draw has {sorted(values)}, but columns are {sorted(self.columns)}"
            )
        s = self.n_kept
        for name, value in values.items():
            kept = self.values[name]
            if isinstance(kept, list):
                kept.append(value)
                continue
            if self.columns[name].kind == "labels" and value.dtype.itemsize > kept.itemsize:
                self.values[name] = kept = kept.astype(value.dtype)
            kept[s] = value
        self.n_kept += 1

    def save(self):
        """The draws so far: dict of arrays and lists."""
        return {name: values[: self.n_kept] for name, values in self.values.items()}


def _room(column, n_draws, saved):
    """An array, or a list, that begins with the saved entries, with room for n_draws."""
    if column.kind == "ragged":
        return list(saved)
    dtype = column.dtype
    if column.kind == "labels":
        smallest = np.dtype(np.int8 if column.dtype == np.int8 else np.uint8)
        dtype = saved.dtype if len(saved) else smallest
    values = np.empty((max(n_draws, len(saved)), *column.shape), dtype=dtype)
    if len(saved):
        values[: len(saved)] = saved
    return values


class Draws(Mapping):
    """The kept draws of all chains: a mapping from names to arrays (n_chains, n_draws, ...).

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> draws = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X).draws_
    >>> sorted(name for name in draws if not name.startswith("likelihood__"))
    ['concentration', 'labels', 'log_joint', 'n_components']
    >>> draws["labels"].shape, draws["likelihood__scale"].shape
    ((1, 50, 20), (1, 50, 1))

    A quantity whose shape differs between draws is a list of lists of arrays instead,
    ``draws[name][chain][draw]``. The arrays are those of the estimator's attributes, not copies.
    But labels leave out rows that are copies (see `Gaussian`), which `label_samples_` repeats.

    Parameters
    ----------
    values : dict of str to ndarray or list
    scored : object or None
        Some of the draws in a compact form, from which densities of new rows are computed.
    """

    def __init__(self, values, scored=None):
        self._values = dict(values)
        self.scored = scored

    @classmethod
    def of_chains(cls, columns, saved, n_draws):
        """Combine the first n_draws draws of all chains, which are removed from `saved`, the
        `ChainDraws.save` of each chain; later ones stay."""
        values = {}
        for column in columns:
            parts = [chain.pop(column.name) for chain in saved]
            if column.kind == "ragged":
                values[column.name] = [part[:n_draws] for part in parts]
            else:
                dtype = np.result_type(*parts)
                values[column.name] = np.empty((len(parts), n_draws, *column.shape), dtype=dtype)
            for c, chain in enumerate(saved):
                # One chain after the other, so that memory does not hold all draws twice.
                part, parts[c] = parts[c], None
                if column.kind != "ragged":
                    values[column.name][c] = part[:n_draws]
                chain[column.name] = part[n_draws:].copy()
        return cls(values)

    def chain(self, index, beyond):
        """Undo `of_chains` for a chain: its draws here, then its own beyond the common number."""
        whole = {}
        for name, values in self._values.items():
            if isinstance(values, list):
                whole[name] = values[index] + beyond[name]
            else:
                whole[name] = np.concatenate([values[index], beyond[name]])
        return whole

    def with_scored(self, scored):
        """The same draws with others in compact form."""
        return Draws(self._values, scored)

    def only(self, chains):
        """The draws of a list of chains, without `scored`."""
        values = {
            name: [values[c] for c in chains] if isinstance(values, list) else values[chains]
            for name, values in self._values.items()
        }
        return Draws(values)

    @property
    def n_chains(self) -> int:
        return len(next(iter(self._values.values())))

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return len(next(iter(self._values.values()))[0])

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        return sum(_nbytes(values) for values in self._values.values())

    def mean(self, name: str) -> np.ndarray:
        """Posterior mean of a scalar or of an array of one shape."""
        values = self._values[name]
        if isinstance(values, list):
            raise TypeError(f"{name!r} has no mean, because its shape differs between draws")
        return values.mean(axis=(0, 1))

    def __getitem__(self, name):
        return self._values[name]

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def __repr__(self):
        return (
            f"Draws({', '.join(self)}: {self.n_chains} chains of {self.n_draws} draws, "
            f"{self.nbytes / 1e6:,.1f} MB)"
        )


def _nbytes(values):
    return sum(map(_nbytes, values)) if isinstance(values, list) else values.nbytes


class Candidates:
    """Draws of one chain that may become the point estimate, if labels are not stored. `saved` is
    the result of `save`, to continue.

    The best of the first n draws, for any n, is a draw better than all before it. So only these
    record draws, and the last draw, are kept. (A chain that has settled has about log n records.)
    """

    def __init__(self, saved=None):
        saved = {"records": [], "last": None} if saved is None else saved
        self.records = list(saved["records"])  # of (draw, value, kept), both increasing
        self.last = saved["last"]  # (draw, kept)

    def offer(self, draw, value, kept):
        """Consider a new draw, with the value that is compared and a record of its labels."""
        self.last = (draw, kept)
        if not self.records or value > self.records[-1][1]:
            self.records.append((draw, float(value), kept))

    def best(self, n_draws):
        """Value and record of labels of the best of the first n_draws draws."""
        _, value, kept = [record for record in self.records if record[0] < n_draws][-1]
        return value, kept

    def save(self):
        return {"records": self.records, "last": self.last}


class Snapshots:
    """Evenly spaced draws of one chain, in a form from which densities of new rows are computed.

    Kept are the draws whose numbers are multiples of a power of two, the smallest that leaves at
    most `most` of them. The choice depends only on the number of draws, and continuing a chain
    only drops some. Parts that draws share are stored once. `saved`: of `save`, to continue.
    """

    def __init__(self, most, saved=None):
        saved = {"n_seen": 0, "stride": 1, "draws": [], "pool": {}} if saved is None else saved
        self.most = most
        self.n_seen = saved["n_seen"]
        self.stride = saved["stride"]
        self.draws = list(saved["draws"])
        self.pool = dict(saved["pool"])

    def due(self):
        """Count a draw; return whether it should be kept."""
        draw = self.n_seen
        self.n_seen += 1
        return draw % self.stride == 0

    def take(self, snapshot, parts=()):
        """Keep the draw that was due: a dict of plain objects, whose "keys" lists the shared parts
        that it needs. `parts` are pairs (key, part) that `pool` lacks."""
        self.pool.update(parts)
        self.draws.append({**snapshot, "draw": self.n_seen - 1})
        if len(self.draws) > self.most:
            self.stride *= 2
            self.draws = [kept for kept in self.draws if kept["draw"] % self.stride == 0]
            used = {key for kept in self.draws for key in kept.get("keys", ())}
            self.pool = {key: part for key, part in self.pool.items() if key in used}

    def save(self):
        return {name: value for name, value in vars(self).items() if name != "most"}


def common_snapshots(chains, n_draws):
    """Snapshots at the same draws, of the first n_draws, of each chain with any: list of (number
    of the chain, snapshot, its pool of shared parts). `chains` has each `Snapshots.save`."""
    chains = [chain for chain in chains if chain["draws"]]
    stride = max(chain["stride"] for chain in chains)
    return [
        (c, draw, chain["pool"])
        for c, chain in enumerate(chains)
        for draw in chain["draws"]
        if draw["draw"] < n_draws and draw["draw"] % stride == 0
    ]
