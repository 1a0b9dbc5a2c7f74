# SPDX-License-Identifier: BSD-3-Clause
"""Rows visited in blocks: the state and program of chains whose samplers draw parameters."""
