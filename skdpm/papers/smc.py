# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo as Ulker, Gunsel & Cemgil (2010) compare it."""

from dataclasses import KW_ONLY

from skdpm._validation import check_integer, check_real, check_share, parameters
from skdpm.mixture.samplers.smc import SMC
from skdpm.papers._annealed import AnnealedSystem


def make(variant, **params):
    """Make a variant that Ulker, Gunsel & Cemgil (2010) compare.

    >>> from skdpm.mixture.samplers import SMC
    >>> SMC.from_paper("SMC-A")
    AnnealedSMC(initial_concentration=1.0)

    Rows come in their order in X and particles are resampled systematically, as in the paper. The
    paper does not give the parameters of its base measure: those of the likelihood are used.

    Parameters
    ----------
    variant : {"PF", "SMC-G", "SMC-A"}
        "PF": particle filter, 1000 particles. "SMC-G": 100 particles, and Gibbs draws the next
        9 earlier rows again after each row. "SMC-A": the same, with a concentration that
        starts at 1.0 and moves towards that of the model, which must be fixed.
    **params
        Parameters of `SMC` to change.
    """
    settings = {"rejuvenation": None, "resample_threshold": 0.8, "order": "given", **params}
    if variant == "PF":
        return SMC(**{"n_particles": 1000, "resampling": "systematic", **settings})
    if variant == "SMC-A":
        settings = {"initial_concentration": 1.0, **settings}
    return AnnealedSMC(**settings)


@parameters
class AnnealedSMC(SMC):
    """`SMC` with an active block and an annealed concentration, of Ulker, Gunsel & Cemgil (2010).

    `SMC.from_paper` makes the paper's settings, which are the defaults here (SMC-G).

    Parameters
    ----------
    n_particles, rejuvenation, growth, resampling, resample_threshold, order, half_life
        As for `SMC`, but `half_life` must be None, and the default order is "given". Resampling
        "auto" is "optimal" if nothing is moved and no row drawn again.
    active_block : int, default=9
        Number of earlier rows that Gibbs draws again, in every particle, after each new row: the
        next ones in turn. When they reach the newest row they start again from the first one.
        (With 1 they never reach it, as each time there is a new one.) Only in `fit`.
    initial_concentration : None or float, default=None
        Concentration of the prior at the first row. Before each further row it moves part of the
        way to that of the model, and the weights follow; results are for that of the model. Needs
        a fixed concentration, and helps if that is small: particles then open clusters that turn
        out to be needed many rows later. None: the concentration does not change.
    annealing_rate : float, default=0.01
        Fraction of the remaining distance that the concentration moves per row, 0 to 1.
    """

    _: KW_ONLY
    rejuvenation: object = None
    resample_threshold: float = 0.8
    order: str = "given"
    active_block: int = 9
    initial_concentration: float | None = None
    annealing_rate: float = 0.01

    def system(self, prior, concentration_prior, moves_rows, noise=None):
        annealing = None
        if self.initial_concentration is not None:
            annealing = self.initial_concentration, self.annealing_rate
            if concentration_prior is not None:
                raise ValueError(
                    "AnnealedSMC.initial_concentration needs a fixed concentration, and "
                    "concentration=None is learned: set the mixture's concentration to a number, "
                    "or initial_concentration=None"
                )
        return AnnealedSystem(
            self.n_particles,
            self._scheme(moves_rows and (self.moves or self.active_block > 0)),
            self.resample_threshold,
            prior,
            concentration_prior,
            annealing,
            self.active_block if moves_rows else 0,
            noise,
        )

    def kernel(self):
        check_integer(self.active_block, "AnnealedSMC.active_block", low=0)
        check_share(self.annealing_rate, "AnnealedSMC.annealing_rate")
        if self.half_life is not None:
            raise ValueError("AnnealedSMC has no half_life: set it to None, or use SMC")
        return super().kernel()

    def check_prior(self, prior):
        super().check_prior(prior)
        if self.initial_concentration is not None:
            check_real(
                self.initial_concentration,
                "AnnealedSMC.initial_concentration",
                low=prior.lowest_concentration,
            )
