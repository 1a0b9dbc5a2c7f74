# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the site has all that is public, and no more."""

import importlib
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "doc" / "api"
MODULES = (
    "skdpm",
    "skdpm.mixture.likelihoods",
    "skdpm.mixture.priors",
    "skdpm.mixture.samplers",
    "skdpm.features.likelihoods",
    "skdpm.features.samplers",
    "skdpm.partitions",
    "skdpm.diagnostics",
    "skdpm.draws",
    "skdpm.model_selection",
    "skdpm.metrics",
    "skdpm.plotting",
    "skdpm.mutations",
    "skdpm.datasets",
)


def listed_names():
    """All names in the tables of `autosummary`, with their modules."""
    names = set()
    for page in PAGES.glob("*.rst"):
        module = None
        for line in page.read_text().splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif module and re.fullmatch(r"   [A-Za-z_][\w.]*", line):
                names.add(f"{module}.{line.strip()}")
    return names


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_page(module):
    public = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert public
    assert not public - listed_names()


def test_every_page_is_of_something_that_exists():
    for name in listed_names():
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
