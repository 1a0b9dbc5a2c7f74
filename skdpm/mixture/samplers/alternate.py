# SPDX-License-Identifier: BSD-3-Clause
"""Several samplers in one chain."""

from skdpm._validation import check_integer, check_real, parameters
from skdpm.mixture.samplers._alternate import AlternateKernel
from skdpm.mixture.samplers.base import BlockSampler, Sampler
from skdpm.mixture.samplers.gibbs import Gibbs
from skdpm.mixture.samplers.split_merge import SAMS

# The fixed cost of an iteration is about that of a sweep over rows of TURN_WORK numbers. Columns
# that are independent within clusters cost little, and a few correlated ones no less than eight.
TURN_WORK, FEW_COLUMNS, MOST_TURNS = 4800, 8, 5


@parameters
class Alternate(Sampler):
    """Several samplers take turns in one chain and share the time.

    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.samplers import PGSM, Alternate, Gibbs, SAMS
    >>> sampler = Alternate([Gibbs(), PGSM(gibbs_sweeps=0), SAMS(gibbs_sweeps=0)])
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1]]
    >>> sorted(DPMixture(sampler=sampler, n_chains=1, n_draws=50).fit(X).acceptance_rate_)
    ['merge', 'pgsm', 'split']

    In each turn the first sampler makes one step, and the others as many steps as their share of
    the work allows. The work of a step is measured in warm-up, in row evaluations rather than
    seconds, so that the same seed gives the same draws. After warm-up the numbers of steps are
    fixed, which keeps the draws exact. They are then smaller, down to a fifth, for moves of which
    fewer than one in twenty turns was accepted.

    Parameters
    ----------
    samplers : sequence of Sampler or None, default=None
        Samplers that keep the rows in memory. Those after the first should be pure moves
        (`gibbs_sweeps=0`). None: `Gibbs()` and ``SAMS(anchors="neighbours", gibbs_sweeps=0)``.
    move_share : float or None, default=0.5
        Share of the work of all samplers except the first, in equal parts; between 0 and 1. None,
        or without warm-up: one step of each sampler per turn.
    n_turns : int, default=1
        Number of turns per iteration. With few rows a turn costs less than the rest of an
        iteration, so sampler="auto" takes 600 / n_samples turns, at least one and at most five.
        Of more than eight columns with full or tied covariances it takes fewer.
    """

    samplers: object = None
    move_share: float | None = 0.5
    n_turns: int = 1

    @classmethod
    def automatic(cls, likelihood, shape, make_prior):
        work = shape[0] * max(shape[1] if likelihood.draws_gaps else 0, FEW_COLUMNS)
        return cls(n_turns=max(1, min(MOST_TURNS, TURN_WORK // max(work, 1))))

    def _parts(self):
        if self.samplers is None:
            return [Gibbs(), SAMS(anchors="neighbours", gibbs_sweeps=0)]
        if not isinstance(self.samplers, list | tuple) or not self.samplers:
            raise ValueError(
                "Alternate.samplers must be a list of samplers, such as [Gibbs(), PGSM()]; got "
                f"{self.samplers!r}"
            )
        for part in self.samplers:
            if not isinstance(part, Sampler) or isinstance(part, BlockSampler):
                raise ValueError(
                    "Alternate.samplers must be sampler objects that keep the rows in memory, "
                    f"such as Gibbs(), got {part!r}"
                )
        return list(self.samplers)

    @property
    def requires(self):
        needs = [part.requires for part in self._parts()]
        return next((need for need in needs if need != "joint"), "joint")

    @property
    def takes_noise(self):
        return all(part.takes_noise for part in self._parts())

    @property
    def n_companions(self):
        return max(part.n_companions for part in self._parts())

    def objection(self, likelihood, X):
        return next(filter(None, (part.objection(likelihood, X) for part in self._parts())), None)

    def check_prior(self, prior):
        for part in self._parts():
            part.check_prior(prior)

    def kernel(self):
        parts = self._parts()
        for part in parts:
            if part.n_replicas != 1:
                raise ValueError(
                    f"Alternate.samplers: {part!r} keeps {part.n_replicas} states throughout and "
                    "cannot take turns with others; use ARM() in place of ARM.from_paper"
                )
        move_share = self.move_share
        if move_share is not None:
            move_share = check_real(move_share, "Alternate.move_share", low=0.0)
            if move_share >= 1.0:
                raise ValueError(f"Alternate.move_share must be below 1, got {self.move_share}")
        n_turns = check_integer(self.n_turns, "Alternate.n_turns", low=1)
        return AlternateKernel([part.kernel() for part in parts], move_share, n_turns)
