# SPDX-License-Identifier: BSD-3-Clause
"""Splits and merges of clusters whose rows are in blocks, by how a split finds its two sides:
`random` draws them blindly, `launched` row by row, `sub_clusters` fits them during the passes."""
