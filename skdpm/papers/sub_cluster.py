# SPDX-License-Identifier: BSD-3-Clause
"""Variants of sub-cluster splits that Chang & Fisher (2013) compare."""

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers.sub_cluster import SubCluster
from skdpm.mixture.samplers.sub_cluster_kernel import SubClusterKernel
from skdpm.papers.grouped_sweep import GroupedSweep, draw_groups

# Variants of the paper: whether they restrict rows to super-clusters, and whether splits wait
# until sub-clusters have burned in.
VARIANTS = {
    "SUBC+SUPC": (True, True),
    "SUBC APPROX": (False, False),
    "SUBC+SUPC APPROX": (True, False),
}


def make(variant, **params):
    """Make a variant that Chang & Fisher (2013) compare, for reproductions.

    Parameters
    ----------
    variant : {"SUBC", "SUBC+SUPC", "SUBC APPROX", "SUBC+SUPC APPROX"}
        "SUBC": `SubCluster`. "SUPC": each row is restricted to its super-cluster, a group of
        similar clusters that is drawn anew in every iteration (their Algorithm 1 with the
        J-divergence, except that no cluster is its own neighbour); not possible with Dask
        arrays. "APPROX": in warm-up a split into sub-clusters is proposed in every iteration,
        without waiting until the sub-clusters have burned in, that is until their marginal
        likelihood no longer rises.
    **params
        Parameters of `SubCluster` to change.
    """
    check_choice(variant, "variant of SubCluster.from_paper", ("SUBC", *VARIANTS))
    return SubCluster(**params) if variant == "SUBC" else PaperSubCluster(variant, **params)


class PaperSubCluster(SubCluster):
    """A variant of `SubCluster`; see `SubCluster.from_paper`."""

    takes_noise = False

    def __init__(self, variant, block_size=65536):
        super().__init__(block_size)
        self.variant = variant

    @property
    def needs_labels(self):
        return VARIANTS.get(self.variant, (False, True))[0]

    def kernel(self):
        check_integer(self.block_size, "SubCluster.block_size", low=1)
        check_choice(self.variant, "SubCluster.variant", VARIANTS)
        in_groups, wait = VARIANTS[self.variant]
        return PaperSubClusterKernel(in_groups=in_groups, wait=wait)


class PaperSubClusterKernel(SubClusterKernel):
    """One iteration of a variant; see `VARIANTS`. Options are parameters of `SubClusterKernel`."""

    def __init__(self, in_groups=False, wait=True, **options):
        super().__init__(**options)
        self.in_groups = in_groups
        self.wait = wait

    def _ready(self):
        return self.memory.ready | (not self.wait)

    def _parameters(self, state, totals, rng):
        sweep = super()._parameters(state, totals, rng)
        if not self.in_groups:
            return sweep
        divergences = state.likelihood.divergences(sweep.params)
        return GroupedSweep.of(sweep, draw_groups(divergences, rng))
