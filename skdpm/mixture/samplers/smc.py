# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo."""

from dataclasses import KW_ONLY

from skdpm._papers import paper_variants
from skdpm._validation import (
    check_choice,
    check_integer,
    check_real,
    check_share,
    is_dask,
    parameters,
)
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.particles._weights import RESAMPLING
from skdpm.mixture.particles.program import FitProgram
from skdpm.mixture.particles.streams import StreamProgram
from skdpm.mixture.samplers.alternate import Alternate
from skdpm.mixture.samplers.arm import ARM
from skdpm.mixture.samplers.base import BlockSampler, Sampler
from skdpm.mixture.samplers.gibbs import Gibbs
from skdpm.mixture.samplers.pgsm import PGSM
from skdpm.mixture.samplers.split_merge import SAMS, SplitMerge

# Samplers that can move particles, by name.
MOVERS = {
    "alternate": Alternate,
    "arm": ARM,
    "gibbs": Gibbs,
    "pgsm": PGSM,
    "sams": SAMS,
    "split_merge": SplitMerge,
}


@parameters
class SMC(Sampler):
    """Sequential Monte Carlo: weighted partitions, the particles, take one row after the other.

    Chains are independent particle systems, each with its own order of the rows. Their weights
    give an unbiased estimate of the evidence p(X), or that of the known entries: `log_evidence_`.
    Needs a likelihood whose clusters are independent (capability "product"). `n_draws` draws of
    equal weight are made at the end; `n_warmup` and `thin` are not used.

    Parameters
    ----------
    n_particles : int, default=100
        Number of particles of each chain.
    rejuvenation : None, str or Sampler, default="sams"
        Sampler that moves every particle each time their rows have grown by `growth`, and at the
        end. None: nothing is moved (a particle filter).
    growth : float, default=1.25
        Factor, above 1, by which the number of rows grows between moves.
    resampling : {"auto", "systematic", "stratified", "multinomial", "optimal"}, default="auto"
        Resampling scheme; "auto" is "optimal" if nothing is moved, otherwise "systematic".
    resample_threshold : float, default=0.5
        Threshold, 0 to 1, of the effective sample size divided by the number of particles, below
        which particles are resampled.
    order : {"random", "given"}, default="random"
        Order in which rows are taken. "random": a separate order for each chain, or cluster after
        cluster if `init` is "kmeans" or labels.
    half_life : float, default=None
        Half-life of the rows of a stream, above 0, in rows. `partial_fit` keeps its rows and
        forgets each after a time: of the rows that came a rows ago, the share 2^(-a / half_life)
        is kept, up to 10 half-lives, and results are those of the rows that are kept. Rows of
        `fit` count as the last ones before the stream. None: no row is forgotten, or kept.

    References
    ----------
    Ulker, Gunsel & Cemgil (2010): `SMC.from_paper("SMC-A")`; Fearnhead & Clifford (2003).
    """

    requires = "product"
    online = True

    n_particles: int = 100
    _: KW_ONLY
    rejuvenation: object = "sams"
    growth: float = 1.25
    resampling: str = "auto"
    resample_threshold: float = 0.5
    order: str = "random"
    half_life: float | None = None

    from_paper = paper_variants(
        "smc", ("PF", "SMC-G", "SMC-A"), "which Ulker et al. (2010) compare"
    )

    @property
    def moves(self):
        """Whether particles are moved."""
        return self.rejuvenation is not None

    @property
    def takes_noise(self):
        return not self.moves or self._mover().takes_noise

    def system(self, prior, concentration_prior, moves_rows, noise=None):
        """Make the particle system of a chain; see `ParticleSystem`. `moves_rows` is whether rows
        taken earlier can be moved, which they cannot in a stream."""
        return ParticleSystem(
            self.n_particles,
            self._scheme(moves_rows and self.moves),
            self.resample_threshold,
            prior,
            concentration_prior,
            noise,
        )

    def _scheme(self, moves):
        if self.resampling == "auto":
            return "systematic" if moves else "optimal"
        return self.resampling

    def _mover(self):
        mover = self.rejuvenation
        if isinstance(mover, str):
            mover = MOVERS[check_choice(mover, "SMC.rejuvenation", MOVERS)]()
        if mover is not None and (
            not isinstance(mover, Sampler) or isinstance(mover, (BlockSampler, SMC))
        ):
            raise ValueError(
                "SMC.rejuvenation must be None or a sampler that keeps its rows in memory, got "
                f"{self.rejuvenation!r}; choose one of {', '.join(MOVERS)}"
            )
        return mover

    def check_prior(self, prior):
        if prior.latent:
            raise ValueError(
                f"SMC does not support {type(prior).__name__}, whose "
                f"{' and '.join(prior.latent)} must be drawn with the partition: with "
                "FiniteMixture choose dynamic=False, or another sampler"
            )

    def kernel(self):
        """Make the kernel that moves particles, or None; parameters checked."""
        check_integer(self.n_particles, "SMC.n_particles", low=1, high=1_000_000)
        check_choice(self.resampling, "SMC.resampling", ("auto", *RESAMPLING))
        check_choice(self.order, "SMC.order", ("random", "given"))
        check_real(self.growth, "SMC.growth", low=1.0)
        check_share(self.resample_threshold, "SMC.resample_threshold")
        if self.half_life is not None:
            check_real(self.half_life, "SMC.half_life", low=0.0)
        mover = self._mover()
        return None if mover is None else mover.kernel()

    def objection(self, likelihood, X):
        if is_dask(X):
            return (
                "SMC.fit needs all rows in memory; partial_fit takes the chunks of a dask array "
                "one after the other"
            )
        if likelihood.select:
            return self._cannot_select()
        reason = super().objection(likelihood, X)
        if reason is None and self.moves:
            reason = self._mover().objection(likelihood, X)
        return reason

    def validate(self, estimator, X, likelihood, reset):
        if estimator.warm_start:
            raise ValueError(
                "warm_start is not supported with SMC; set warm_start=False, and use partial_fit "
                "to add rows"
            )
        return super().validate(estimator, X, likelihood, reset)

    def program(self, X, likelihood, *, init, **settings):
        grouped = not (isinstance(init, str) and init in ("auto", "single", "singletons"))
        settings |= {"rows": X, "init": init, "grouped": grouped}
        return self._checked(FitProgram.prepare(X, likelihood, **settings))

    def batch_program(self, X, likelihood, **settings):
        self._refuse("known labels" if settings["known"].unites else None)
        return self._checked(StreamProgram.prepare(X, likelihood, **settings))

    def _checked(self, program):
        """The program. Raises ValueError if rows cannot leave their clusters, but must."""
        reason = None
        if program.known.unites:
            reason = "known labels"
        elif program.noise_law.takes_rows:
            reason = "noise"
        elif program.model().n_incomplete > 0:
            reason = "missing entries or weights of rows that particles draw"
        self._refuse(reason)
        return program

    def _refuse(self, reason):
        if self.half_life is not None and reason is not None:
            raise ValueError(
                f"SMC.half_life cannot be combined with {reason}; set SMC(half_life=None)"
            )
