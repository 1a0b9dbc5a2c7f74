# SPDX-License-Identifier: BSD-3-Clause
"""State of a partition: labels, clusters and sizes; tiles of rows; densities of rows."""
