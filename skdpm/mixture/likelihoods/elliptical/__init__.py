# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of Gaussian clusters: shapes of covariances, weights of rows, missing entries."""
