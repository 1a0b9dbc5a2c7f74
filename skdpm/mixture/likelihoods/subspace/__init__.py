# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters along the principal axes of many columns."""
