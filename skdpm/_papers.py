# SPDX-License-Identifier: BSD-3-Clause
"""Variants of samplers for the reproduction of papers, which are imported when they are made."""

from importlib import import_module


def paper_variants(module, words, make="make"):
    """The method `from_paper` of a sampler, by its module in `skdpm.papers` and the function there
    that makes variants; words describe these."""

    def from_paper(*variant, **params):
        return getattr(import_module(f"skdpm.papers.{module}"), make)(*variant, **params)

    from_paper.__doc__ = f"Make {words}: see `skdpm.papers.{module}`."
    return staticmethod(from_paper)
