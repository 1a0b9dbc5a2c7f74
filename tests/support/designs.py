"""Which combinations of settings are tested at each commit."""

import itertools
import math
from zlib import crc32

import pytest

MOST = 4


def everyday(entries, *chosen, n_values=1):
    """Entries for `pytest.mark.parametrize`, of which all but the chosen are slow.

    Parameters
    ----------
    entries : iterable
    *chosen
        Entries; or the repr of the first value of one, or its id.
    n_values : int, default=1
        Number of parameters. If there are several, an entry is a tuple.
    """
    left, params = list(chosen), []
    for entry in entries:
        if not hasattr(entry, "marks"):
            entry = pytest.param(*((entry,) if n_values == 1 else entry))
        values = entry.values[0] if n_values == 1 else tuple(entry.values)
        names = [values, repr(entry.values[0])]
        if entry.id is not None:
            names.append(entry.id)
        hits = [one for one in chosen if any(_same(one, name) for name in names)]
        left = [one for one in left if not any(one is hit for hit in hits)]
        marks = [*entry.marks, *([] if hits else [pytest.mark.slow])]
        params.append(pytest.param(*entry.values, marks=marks, id=entry.id))
    if left:
        raise ValueError(f"no entry is {left[0]!r}")
    return params


def _same(one, other):
    return one is other or (type(one) is type(other) and bool(one == other))


def cover(cells):
    """Few of some tuples, in which each entry of a tuple occurs at its place."""
    cells, chosen = list(cells), []
    missing = {pair for cell in cells for pair in enumerate(cell)}
    while missing:
        chosen.append(max(cells, key=lambda cell: len(missing.intersection(enumerate(cell)))))
        missing.difference_update(enumerate(chosen[-1]))
    return chosen


def rest(cells):
    """The others."""
    cells = list(cells)
    covering = cover(cells)
    return [cell for cell in cells if cell not in covering]


# For a test of many cells at once, which runs over `share(cells)`: few at each commit.
in_shares = pytest.mark.parametrize(
    "share", [cover, pytest.param(rest, marks=pytest.mark.slow)], ids=["cover", "rest"]
)


def thirds(names, entries, **options):
    """A decorator like `pytest.mark.parametrize`. Every day tests a third of the entries, another
    one in each test. All others are slow.
    """

    def decorate(test):
        first = crc32(test.__name__.encode())
        params = [
            param._replace(marks=[*param.marks, *[pytest.mark.slow] * ((k - first) % 3 > 0)])
            for k, param in enumerate(_param(entry, names) for entry in entries)
        ]
        return pytest.mark.parametrize(names, params, **options)(test)

    return decorate


def _param(entry, names):
    if hasattr(entry, "marks"):
        return entry
    return pytest.param(*(entry if "," in names else (entry,)))


def combinations(**axes):
    """A decorator like `pytest.mark.parametrize` for every combination of the entries of some
    lists.

    Every day runs a design in which each entry of a list occurs; of a list with more than `MOST`
    entries a third, another one in each test. All other combinations are slow.
    """
    lists = [list(entries) for entries in axes.values()]

    def decorate(test):
        everyday = _everyday([len(entries) for entries in lists], crc32(test.__name__.encode()))
        cells = [
            pytest.param(
                *(entries[k] for entries, k in zip(lists, cell, strict=True)),
                marks=[] if cell in everyday else [pytest.mark.slow],
            )
            for cell in itertools.product(*(range(len(entries)) for entries in lists))
        ]
        return pytest.mark.parametrize(tuple(axes), cells, ids=_name)(test)

    return decorate


def _everyday(lengths, first):
    """Positions in lists of such lengths."""
    n_cells = max(n if n <= MOST else math.ceil(n / 3) for n in lengths)
    steps = [max(n // n_cells, 1) for n in lengths]
    return {
        tuple((first + k * step) % n for n, step in zip(lengths, steps, strict=True))
        for k in range(n_cells)
    }


def _name(value):
    """The repr of what pytest would call by its position."""
    return None if isinstance(value, (str, bool, int, float, type(None))) else repr(value)
