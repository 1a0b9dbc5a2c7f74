# SPDX-License-Identifier: BSD-3-Clause
"""One fit as an object: the chains, and what must stay the same for them to continue."""

import copy
from dataclasses import dataclass, field, replace

import numpy as np

from skdpm import diagnostics
from skdpm.chains import ChainProgram


@dataclass(kw_only=True)
class Run:
    """A running fit. Without its program, it is the state that an estimator keeps to continue it.

    - `entropy`: int. Entropy of the random streams.
    - `signature`: dict of str to list. Hashes of each parameter that must not change.
    - `chains`: list of dict
    - `data`: tuple or None. `fingerprint` of the rows. None for particles, which do not keep rows.
    - `trials`: dict of str to float. Mean held-out log density of each law that was tried, by its
      repr; the law of the fit comes first.
    - `program`: ChainProgram or None. None after the fit: the encoded rows are not kept.
    - `likelihood`: Likelihood or None. The resolved one, for particles that can take more rows.
    - `noise_law`: NoiseLaw or None. Law of noise, for particles that can take more rows.
    - `known`: KnownLabels, Unlabelled or None. For particles that can take more rows: known labels
      of the last rows, with all classes so far.
    - `kept`: Window or None. For particles that forget rows: the rows that are kept.
    - `pool`: dict. For particles that can take more rows: see `StreamProgram`.
    - `shortened_from`: int or None. Number of warm-up iterations that were asked for, if a time
      limit or Ctrl-C allowed fewer.
    - `at_cut`: list of dict or None. The chains where that warm-up ended, until they have made as
      many iterations as it lacked, or some are dropped.
    - `told`: tuple of str. Quantities that a warning of `partial_fit` has named already.
    - `n_judged`: int. Number of rows when `partial_fit` last compared the chains.
    """

    entropy: int
    signature: dict
    chains: list
    data: tuple | None = None
    trials: dict = field(default_factory=dict)
    program: ChainProgram | None = None
    likelihood: object = None
    noise_law: object = None
    known: object = None
    kept: object = None
    pool: dict = field(default_factory=dict)
    shortened_from: int | None = None
    at_cut: list | None = None
    told: tuple = ()
    n_judged: int = 0

    @property
    def n_draws(self):
        """Number of draws that all chains have; after an interruption some have more."""
        kept = [chain["draws"]["log_joint"] if "draws" in chain else [] for chain in self.chains]
        return min(self.program.n_draws, *map(len, kept))

    @property
    def is_cut(self):
        """Whether the chains have made fewer iterations than a warm-up that was cut."""
        wanted = self.shortened_from
        return wanted is not None and min(c["iteration"] for c in self.chains) < wanted

    def cut_warmup(self):
        """End the warm-up early, where the first chain is; after an interruption others follow.
        Returns whether it had not ended."""
        program, ahead = self.program, max(chain["iteration"] for chain in self.chains)
        if ahead >= program.n_warmup:
            return False
        self.shortened_from = program.n_warmup
        self.at_cut = copy.deepcopy(self.chains)
        program.end_warmup(self.chains, ahead)
        return True

    @property
    def words_about_warmup(self):
        asked = "" if self.shortened_from is None else f" of {self.shortened_from}"
        return f"{self.program.n_warmup}{asked} warm-up iterations"

    def least_ess(self, n_draws, draws=None):
        """Smallest bulk effective sample size of the program's `quantities` in the first n_draws
        draws of each chain, by default those that the chains hold; NaN if one is NaN."""
        sizes = []
        for name in self.program.quantities:
            values = [c["draws"][name] for c in self.chains] if draws is None else draws[name]
            sizes.append(diagnostics.bulk_ess(np.array([chain[:n_draws] for chain in values])))
        return float(np.min(sizes))

    def __getstate__(self):
        return {**vars(self), "pool": {}}

    def finished(self):
        """What an estimator keeps after the fit."""
        at_cut = self.at_cut if self.is_cut else None
        return replace(self.program.carried(self), program=None, at_cut=at_cut)
