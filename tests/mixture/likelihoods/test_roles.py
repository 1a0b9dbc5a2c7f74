# SPDX-License-Identifier: BSD-3-Clause
"""Roles: what users are told about a likelihood that lacks one."""

import pathlib
import re

import pytest

from skdpm.mixture.likelihoods import Bernoulli, Grid, Multinomial, Product, Relational
from skdpm.mixture.likelihoods.composite import registry
from skdpm.mixture.likelihoods.contract.roles import ROLES

GUIDE = pathlib.Path(__file__).parents[3] / "doc/guide/likelihoods.md"


class Known(Relational):
    """A likelihood with all roles."""

    draw = laws = background = column_means = Bernoulli.draw


@pytest.mark.parametrize("role", ROLES)
def test_refusals_name_every_likelihood_with_the_role(role, monkeypatch):
    assert registry.refusal(Bernoulli(), role) is None
    before = registry.refusal(Relational(), role)
    assert before.startswith(f"the likelihood Relational has no {ROLES[role]}; use Bernoulli, ")
    assert "Grid" not in before
    monkeypatch.setitem(registry.SINGLE, "known", Known)
    expected = before.replace(" or a Product", ", Known or a Product")
    assert registry.refusal(Relational(), role) == expected


def test_refusals_name_the_part_without_the_role():
    product = Product([("flags", Bernoulli(), [0]), ("words", Multinomial(), [1, 2])])
    assert registry.refusal(product, "background") is None
    why = registry.refusal(product, "draw")
    assert why.startswith("the likelihood Multinomial (part 'words') has no law of whole rows")
    assert Product([]).lacks("draw") is None  # an error says what is wrong with it


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
