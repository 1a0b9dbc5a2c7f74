# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs split-merge with other targets (Bouchard-Cote, Doucet & Roth 2017)."""

from skdpm._validation import check_real, check_share, parameters
from skdpm.mixture.samplers._anchors import AnchorProposal
from skdpm.mixture.samplers._pgsm import PGSMKernel
from skdpm.mixture.samplers.pgsm import PGSM


def make(variant, **params):
    """Make a sampler of Bouchard-Cote, Doucet & Roth (2017) without Gibbs sweeps.

    >>> from skdpm.mixture.samplers import PGSM
    >>> PGSM.from_paper("PGSM", annealing_power=2.0)
    PaperPGSM(annealing_power=2.0, gibbs_sweeps=0)

    The sampler deviates from the paper in these points. Informed anchors follow every change of
    the number of clusters in warm-up and are fixed after it: in the paper they change each time
    that this number breaks its record. They are uniform if the warm-up ends in more than 512
    clusters. Threshold-informed anchors weigh a cluster of b rows by tau_2(b + 1) / tau_2(b),
    where algorithm 5 prints tau_2(b).

    Parameters
    ----------
    variant : {"PGSM", "basic"}
        "PGSM": annealed targets, section 3.4. "basic": the targets of section 3.3, which put the
        whole prior ratio of a split and a merge on the anchors.
    **params
        Parameters of `PaperPGSM` to change, such as `gibbs_sweeps=1`.
    """
    if variant == "basic":
        params = {"annealing_power": None, **params}
    return PaperPGSM(**{"gibbs_sweeps": 0, **params})


@parameters
class PaperPGSM(PGSM):
    """`PGSM.from_paper`: `PGSM` with further parameters.

    Parameters
    ----------
    n_particles, n_anchors, anchors, resample_threshold, resampling, gibbs_sweeps
        As for `PGSM`.
    annealing_power : None or float, default=1.0
        Power r > 0 of the schedule zeta_t = ((t - s) / (n - s))^r, for s anchors among n rows. The
        paper uses 1. None: the targets of section 3.3.
    attachment_threshold : float, default=0.01
        Least probability, 0 to 1, with which the first anchor would join the cluster of the
        second, for anchors "threshold_informed".
    """

    annealing_power: float | None = 1.0
    attachment_threshold: float = 0.01

    def _anchors(self):
        threshold = check_share(self.attachment_threshold, "PGSM.attachment_threshold")
        return AnchorProposal(super()._anchors().kind, threshold)

    def kernel(self):
        power = self.annealing_power
        if power is not None:
            check_real(power, "PGSM.annealing_power", low=0.0)
        return PGSMKernel(*self._settings(), power or 0.0)
