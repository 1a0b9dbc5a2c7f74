# SPDX-License-Identifier: BSD-3-Clause
"""`Gaussian`: covariances, tails, and columns that are left out."""
