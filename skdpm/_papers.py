# SPDX-License-Identifier: BSD-3-Clause
"""Variants of samplers for the reproduction of papers, which are imported when they are made."""

from importlib import import_module


def paper_variant(sampler, variant, **params):
    """Make a variant of a sampler, named by its module in `skdpm.papers`."""
    return import_module(f"skdpm.papers.{sampler}").make(variant, **params)
