# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo."""

from skdpm._validation import check_choice, check_integer, check_real, is_dask
from skdpm.mixture.particles._smc import RESAMPLING
from skdpm.mixture.particles.program import FitProgram
from skdpm.mixture.particles.streams import StreamProgram
from skdpm.mixture.samplers.base import BlockSampler, Sampler


class SMC(Sampler):
    """Sequential Monte Carlo: weighted partitions, the particles, take one row after the other.

    Chains are independent particle systems, each with its own order of the rows. Their weights
    estimate the evidence p(X), without bias: `log_evidence_`. Needs a likelihood whose clusters
    are independent (capability "product"). Nothing is adapted, and draws are no Markov chain:
    `n_warmup` and `thin` are not used, `n_draws` draws of equal weight are made at the end. An
    interrupted fit has none; Ctrl-C takes effect between moves of all particles, a second one at
    once.

    The methods that Ulker, Gunsel & Cemgil (2010) compare, at a fixed concentration of the model:

    - PF: `SMC(1000, rejuvenation=None, resampling="systematic", resample_threshold=0.8)`
    - SMC-G: `SMC(100, rejuvenation=None, active_block=9, resample_threshold=0.8)`
    - SMC-A: SMC-G with `initial_concentration=1.0`

    Parameters
    ----------
    n_particles : int, default=100
        Of each chain.
    rejuvenation : None, str or Sampler, default="sams"
        What moves every particle, on the rows so far, when these have grown by `growth`, and at
        the end; hyperparameters of the likelihood that are learned are then drawn, too. None: a
        pure particle filter.
    growth : float, default=1.25
        Above 1.
    active_block : int, default=0
        So many old rows Gibbs draws anew, in every particle, after each new row: the next ones in
        turn; once they have reached the newest, the first ones again. (With 1 they never reach
        it, as there is a new one each time.) Only in `fit`.
    initial_concentration : None or float, default=None
        Annealing: the concentration of the prior before the first row. Before row n it goes part
        of the way to that of the model, and the weights follow; results are of the model's. Needs
        a fixed concentration, and pays where that is small: particles then open clusters that
        turn out to be needed many rows later.
    annealing_rate : float, default=0.01
        That part, 0 to 1.
    resampling : {"auto", "systematic", "stratified", "multinomial", "optimal"}, default="auto"
        "optimal" follows all choices of every particle, and thins them where weights have become
        uneven (Fearnhead & Clifford 2003). "auto": "optimal" where nothing is moved, otherwise
        "systematic".
    resample_threshold : float, default=0.5
        Particles are resampled where their effective sample size, divided by their number, is
        below this; 0 to 1.
    order : {"random", "given"}, default="random"
        Of the rows. "random": of each chain's own; where the estimator's `init` is "kmeans" or an
        array of labels, cluster after cluster of these by size, in random order inside each: it
        finds many separated clusters that a random order would fuse at first, and is worse on
        clusters that overlap. Particles themselves start without rows, whatever `init` is.

    References
    ----------
    Ulker, Gunsel & Cemgil (2010), Annealed SMC samplers for Dirichlet process mixture models.
    Fearnhead & Clifford (2003), On-line inference for hidden Markov models via particle filters.
    """

    requires = "product"
    online = True

    def __init__(
        self,
        n_particles=100,
        *,
        rejuvenation="sams",
        growth=1.25,
        active_block=0,
        initial_concentration=None,
        annealing_rate=0.01,
        resampling="auto",
        resample_threshold=0.5,
        order="random",
    ):
        self.n_particles = n_particles
        self.rejuvenation = rejuvenation
        self.growth = growth
        self.active_block = active_block
        self.initial_concentration = initial_concentration
        self.annealing_rate = annealing_rate
        self.resampling = resampling
        self.resample_threshold = resample_threshold
        self.order = order

    @property
    def moves(self):
        """Whether particles are moved."""
        return self.rejuvenation is not None

    @property
    def annealing(self):
        """Initial concentration and rate, or None."""
        if self.initial_concentration is None:
            return None
        return self.initial_concentration, self.annealing_rate

    @property
    def scheme(self):
        """The resampling scheme, "auto" resolved."""
        if self.resampling == "auto":
            return "systematic" if self.moves or self.active_block > 0 else "optimal"
        return self.resampling

    def _mover(self):
        """The sampler that moves particles, or None."""
        from skdpm.mixture.samplers import SAMPLERS

        mover = self.rejuvenation
        if isinstance(mover, str):
            mover = SAMPLERS[check_choice(mover, "SMC.rejuvenation", SAMPLERS)]()
        if mover is not None and (
            not isinstance(mover, Sampler) or isinstance(mover, (BlockSampler, SMC))
        ):
            raise ValueError(
                "SMC.rejuvenation must be None or a sampler that moves rows one by one or by "
                f"clusters, got {self.rejuvenation!r}"
            )
        return mover

    def kernel(self):
        """Make the kernel that moves particles, or None; parameters checked."""
        check_integer(self.n_particles, "SMC.n_particles", low=1, high=1_000_000)
        check_choice(self.resampling, "SMC.resampling", ("auto", *RESAMPLING))
        check_choice(self.order, "SMC.order", ("random", "given"))
        check_real(self.growth, "SMC.growth", low=1.0)
        check_integer(self.active_block, "SMC.active_block", low=0)
        for name in ("annealing_rate", "resample_threshold"):
            value = check_real(getattr(self, name), f"SMC.{name}", low=0.0, closed=True)
            if value > 1.0:
                raise ValueError(f"SMC.{name} must be at most 1, got {value}")
        mover = self._mover()
        return None if mover is None else mover.kernel()

    def check_prior(self, prior):
        if self.initial_concentration is not None:
            check_real(
                self.initial_concentration,
                "SMC.initial_concentration",
                low=prior.lowest_concentration,
            )

    def objection(self, likelihood, X):
        if is_dask(X):
            return (
                "SMC.fit needs all rows in memory; partial_fit takes the chunks of a dask array "
                "one after the other"
            )
        reason = super().objection(likelihood, X)
        if reason is None and self.moves:
            reason = self._mover().objection(likelihood, X)
        return reason

    def _check_annealing(self, *, concentration, **_):
        if self.initial_concentration is not None and concentration is None:
            raise ValueError(
                "SMC.initial_concentration goes over to a fixed concentration, and "
                "concentration=None is learned: give the mixture a number, or leave "
                "initial_concentration out"
            )

    def validate(self, estimator, X, likelihood, reset):
        if estimator.warm_start:
            raise ValueError(
                "warm_start goes on with Markov chains, and SMC runs none: more rows come by "
                "partial_fit, and n_draws draws are made at the end, however many; set "
                "warm_start=False"
            )
        return super().validate(estimator, X, likelihood, reset)

    def program(self, X, likelihood, *, init, **settings):
        self._check_annealing(**settings)
        grouped = not (isinstance(init, str) and init in ("auto", "single", "singletons"))
        return FitProgram.prepare(X, likelihood, rows=X, init=init, grouped=grouped, **settings)

    def batch_program(self, X, likelihood, **settings):
        self._check_annealing(**settings)
        return StreamProgram.prepare(X, likelihood, **settings)
