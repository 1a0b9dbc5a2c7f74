# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs split-merge."""

from skdpm._papers import paper_variants
from skdpm._validation import check_choice, check_integer, check_share, parameters
from skdpm.mixture.particles._weights import RESAMPLING
from skdpm.mixture.samplers._anchors import INFORMED, AnchorProposal
from skdpm.mixture.samplers._pgsm import PGSMKernel
from skdpm.mixture.samplers.base import Sampler


@parameters
class PGSM(Sampler):
    """Particle Gibbs split-merge: the clusters of a few anchor rows are drawn again at once.

    Each iteration picks anchor rows, gathers all rows of their clusters, and draws a new partition
    of these rows by conditional sequential Monte Carlo, with an anchor in every cluster. It has no
    acceptance ratio. Needs a likelihood whose clusters are independent (capability "product").

    Parameters
    ----------
    n_particles : int, default=20
        Number of particles, 2 to 10,000. A chain needs 5 bytes per particle and row.
    n_anchors : int, default=2
        Number of anchors, 2 to 5.
    anchors : {"uniform", "cluster_informed", "threshold_informed"}, default="cluster_informed"
        Law of the second anchor given the first: uniform, or likely in a cluster that the first
        one fits. Others are uniform.
    resample_threshold : float, default=0.5
        Threshold, 0 to 1, of the effective sample size divided by the number of particles, below
        which particles are resampled.
    resampling : {"multinomial", "stratified", "systematic", "optimal"}, default="multinomial"
        Conditional resampling scheme. "optimal" keeps about n_particles of all possible choices.
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move; 0 gives the pure kernel.

    References
    ----------
    Bouchard-Cote, Doucet & Roth (2017).
    """

    requires = "product"
    takes_noise = True

    n_particles: int = 20
    n_anchors: int = 2
    anchors: str = "cluster_informed"
    resample_threshold: float = 0.5
    resampling: str = "multinomial"
    gibbs_sweeps: int = 1

    from_paper = paper_variants("pgsm", ("PGSM", "basic"), "of Bouchard-Cote et al. (2017)")

    def _anchors(self):
        return AnchorProposal(check_choice(self.anchors, "PGSM.anchors", ("uniform", *INFORMED)))

    def kernel(self):
        return PGSMKernel(*self._settings())

    def _settings(self):
        return (
            check_integer(self.n_particles, "PGSM.n_particles", low=2, high=10_000),
            check_integer(self.n_anchors, "PGSM.n_anchors", low=2, high=5),
            self._anchors(),
            check_share(self.resample_threshold, "PGSM.resample_threshold"),
            check_choice(self.resampling, "PGSM.resampling", RESAMPLING),
            check_integer(self.gibbs_sweeps, "PGSM.gibbs_sweeps", low=0),
        )
