# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters: shapes of covariances, tails, missing entries."""
