# SPDX-License-Identifier: BSD-3-Clause
"""Variants of samplers for the reproduction of papers: what `from_paper` of a sampler makes.

A module has the name of its sampler's module, and its function `make` is the sampler's
`from_paper`; for `DiscreteParticleFilter` it is `make_discrete`.

- `gibbs`: Lovell, Adams & Mansinghka (2012), to which Chang & Fisher (2013) compare.
- `sub_cluster`: Chang & Fisher (2013).
- `arm`, `split_merge`: Herlau, Mørup, Teh & Schmidt (2014).
- `pgsm`: Bouchard-Côté, Doucet & Roth (2017).
- `smc`: Ulker, Gunsel & Cemgil (2010).
- `particle_gibbs`: Bouchard-Côté & Roth.

Nothing else of the package imports these modules before a variant is made.
"""
