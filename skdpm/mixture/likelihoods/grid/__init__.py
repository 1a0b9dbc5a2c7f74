# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods on a grid of parameters."""
