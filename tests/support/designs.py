"""Which combinations of settings are tested every day."""

import itertools
import math

import pytest


def combinations(**axes):
    """A mark like `pytest.mark.parametrize` for every combination of the entries of some lists.

    Every day runs a design in which each entry of the longest list occurs, and each combination of
    entries of the others. All other combinations are slow.
    """
    lists = [list(entries) for entries in axes.values()]
    everyday = _everyday([len(entries) for entries in lists])
    cells = [
        pytest.param(
            *(entries[k] for entries, k in zip(lists, cell, strict=True)),
            marks=[] if cell in everyday else [pytest.mark.slow],
        )
        for cell in itertools.product(*(range(len(entries)) for entries in lists))
    ]
    return pytest.mark.parametrize(tuple(axes), cells, ids=_name)


def _everyday(lengths):
    """Positions in lists of such lengths."""
    longest = lengths.index(max(lengths))
    others = [n for j, n in enumerate(lengths) if j != longest]
    n_cells = max(lengths[longest], math.prod(others))
    cells = set()
    for cell, k in zip(
        itertools.cycle(itertools.product(*map(range, others))), range(n_cells), strict=False
    ):
        cells.add((*cell[:longest], k % lengths[longest], *cell[longest:]))
    return cells


def _name(value):
    """The repr of what pytest would call by its position."""
    return None if isinstance(value, (str, bool, int, float, type(None))) else repr(value)
