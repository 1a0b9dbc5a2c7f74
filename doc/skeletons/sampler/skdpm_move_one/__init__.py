# SPDX-License-Identifier: BSD-3-Clause
"""Metropolis moves of single rows as a sampler of skdpm's mixtures."""

from skdpm_move_one.move_one import MoveOne

__all__ = ["MoveOne"]
