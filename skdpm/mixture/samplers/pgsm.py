# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs split-merge."""

from skdpm._validation import check_choice, check_integer, check_real
from skdpm.mixture.particles._weights import RESAMPLING
from skdpm.mixture.samplers._anchors import INFORMED, AnchorProposal
from skdpm.mixture.samplers._pgsm import PGSMKernel
from skdpm.mixture.samplers.base import Sampler


class PGSM(Sampler):
    """Particle Gibbs split-merge: the clusters of a few anchor rows are drawn again at once.

    Each iteration picks anchor rows, gathers all rows of their clusters, and draws a new
    partition of these rows by conditional sequential Monte Carlo, with an anchor in every cluster.
    One move splits clusters, merges them or, with three or more anchors, does both. It has no
    acceptance ratio. Needs a likelihood whose clusters are independent (capability "product").

    Parameters
    ----------
    n_particles : int, default=20
        Number of particles, 2 to 10,000. A chain needs 5 bytes per particle and row.
    n_anchors : int, default=2
        Number of anchors, 2 to 5. In a finite mixture with all components in use, two anchors let
        two clusters exchange rows, three let three do so, and four let one cluster split while two
        others merge.
    anchors : {"uniform", "cluster_informed", "threshold_informed"}, default="cluster_informed"
        Law of the second anchor given the first; all other anchors are uniform. "uniform".
        "cluster_informed": in a cluster that would be likely after a merge with that of the first
        anchor. "threshold_informed": in one of the clusters that the first anchor would join with
        probability 0.01 or more. The informed laws use a snapshot of the clustering, frozen at the
        end of warm-up. Without warm-up, or if it ends in one cluster or in more than 512, all
        anchors are uniform.
    resample_threshold : float, default=0.5
        Threshold, 0 to 1, of the effective sample size divided by the number of particles, below
        which particles are resampled. Optimal resampling does not use it.
    resampling : {"multinomial", "stratified", "systematic", "optimal"}, default="multinomial"
        Conditional resampling scheme. "optimal" follows all possible choices of every particle
        and keeps about n_particles of them.
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move; 0 gives the pure kernel.

    References
    ----------
    Bouchard-Cote, Doucet & Roth (2017), Particle Gibbs split-merge sampling for Bayesian inference
    in mixture models. Fearnhead & Clifford (2003), On-line inference for hidden Markov models via
    particle filters. Whiteley, Andrieu & Doucet (2010), Efficient Bayesian inference for switching
    state-space models using discrete particle Markov chain Monte Carlo methods.
    """

    requires = "product"
    takes_noise = True

    def __init__(
        self,
        n_particles=20,
        n_anchors=2,
        anchors="cluster_informed",
        resample_threshold=0.5,
        resampling="multinomial",
        gibbs_sweeps=1,
    ):
        self.n_particles = n_particles
        self.n_anchors = n_anchors
        self.anchors = anchors
        self.resample_threshold = resample_threshold
        self.resampling = resampling
        self.gibbs_sweeps = gibbs_sweeps

    def kernel(self):
        n_anchors = check_integer(self.n_anchors, "PGSM.n_anchors", low=2)
        if n_anchors > 5:
            raise ValueError(f"PGSM.n_anchors must be at most 5, got {n_anchors}")
        resample_threshold = check_real(
            self.resample_threshold, "PGSM.resample_threshold", low=0.0, closed=True
        )
        if resample_threshold > 1.0:
            raise ValueError(
                f"PGSM.resample_threshold must be at most 1, got {resample_threshold}"
            )
        return PGSMKernel(
            check_integer(self.n_particles, "PGSM.n_particles", low=2, high=10_000),
            n_anchors,
            AnchorProposal(check_choice(self.anchors, "PGSM.anchors", ("uniform", *INFORMED))),
            resample_threshold,
            check_choice(self.resampling, "PGSM.resampling", RESAMPLING),
            check_integer(self.gibbs_sweeps, "PGSM.gibbs_sweeps", low=0),
        )
