# SPDX-License-Identifier: BSD-3-Clause
"""Roles: what users are told about a likelihood that lacks one."""

import pathlib
import re

import pytest

from skdpm.mixture.likelihoods import (
    Bernoulli,
    Grid,
    Poisson,
    Product,
    Relational,
)
from skdpm.mixture.likelihoods.composite import registry
from skdpm.mixture.likelihoods.contract.roles import ROLES

NAMES = {cls.__name__: name for name, cls in registry.SINGLE.items()}
GUIDE = pathlib.Path(__file__).parents[3] / "doc/guide/likelihoods.md"


class Known(Relational):
    """A likelihood with all roles."""


for _role in ROLES:
    setattr(Known, _role, Bernoulli.laws)


@pytest.mark.parametrize("role", ROLES)
def test_refusals_name_every_likelihood_with_the_role(role, monkeypatch):
    names = registry.with_role(role)
    assert names
    assert "Grid" not in names
    assert registry.refusal(registry.SINGLE[NAMES[names[0]]](), role) is None
    before = registry.refusal(Relational(), role)
    use = f"the likelihood Relational has no {ROLES[role]}; use {', '.join(names)}"
    assert before.startswith(f"{use} or a Product ")
    monkeypatch.setitem(registry.SINGLE, "known", Known)
    assert registry.refusal(Relational(), role) == before.replace(use, f"{use}, Known")


def test_refusals_name_the_part_without_the_role():
    product = Product([("flags", Bernoulli(), [0]), ("words", "multinomial", [1, 2])])
    assert registry.refusal(product, "background") is None
    why = registry.refusal(product, "draw")
    assert why.startswith("the likelihood Multinomial (part 'words') has no law of whole rows")
    assert Product([]).lacks("draw") is None  # an error says what is wrong with it


def test_one_part_is_enough_for_some_roles():
    parts = [("flags", Bernoulli(), [0]), ("counts", Poisson(), [1])]
    assert Product(parts).lacks("with_exposure") is None
    assert Product(parts, select=True).lacks("with_exposure") == "Product(select=True)"
    why = registry.refusal(Product(parts[:1]), "with_exposure")
    assert why.startswith("the likelihood Bernoulli (part 'flags') has no means of counts")
    assert why.endswith("use NegativeBinomial, Poisson or a Product with one of these")


def test_grid_draws_with_a_function():
    assert Grid(sample=max).lacks("draw") is None
    assert "Grid(sample=...)" in Grid().lacks("draw")


def test_the_guide_lists_the_likelihoods_with_each_role():
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.count("|") == 5]
    found = {
        cells[0].strip("`"): (cells[1], re.findall(r"`(\w+)`", cells[3]))
        for cells in table
        if cells[0].strip("`") in ROLES
    }
    assert found == {role: (what, registry.with_role(role)) for role, what in ROLES.items()}
