# SPDX-License-Identifier: BSD-3-Clause
"""Variants of samplers for the reproduction of papers, which are imported when they are made."""

from importlib import import_module

from skdpm._validation import check_choice


def paper_variants(module, variants, words, make="make"):
    """The method `from_paper` of a sampler, by its module in `skdpm.papers` and the function there
    that makes variants: a tuple of their names, which words describe."""

    def from_paper(cls, variant, **params):
        check_choice(variant, f"variant of {cls.__name__}.from_paper", variants)
        return getattr(import_module(f"skdpm.papers.{module}"), make)(variant, **params)

    names = ", ".join(map(repr, variants))
    from_paper.__doc__ = f"Make {names}, {words}: see `skdpm.papers.{module}`."
    from_paper.variants = variants
    return classmethod(from_paper)
