# SPDX-License-Identifier: BSD-3-Clause
"""Directions of rows."""
