# SPDX-License-Identifier: BSD-3-Clause
"""Chains whose rows are visited in blocks, in parallel, given drawn parameters of the clusters.

- `program`: the program of a fit and its chains; `state`: clusters of a chain, by statistics;
  `kernel`: the interface of an iteration. The kernels themselves are in `samplers`.
- `rows`: the rows of a fit in memory, cut into blocks; `dask_rows`: in the chunks of a dask array,
  with `remote`, which runs on its workers.
- `_visit`: the C loop over the rows of a block, which draws labels and collects statistics;
  `order`: the order in which it takes them; `_launch`: the loop that draws sides of a split.
- `moves`: splits and merges.
- `records`: small objects that these exchange, and the words for them.
"""
