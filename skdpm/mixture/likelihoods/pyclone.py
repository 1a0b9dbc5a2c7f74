# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `PyClone`, for mutations in the samples of a tumour."""

import numpy as np

from skdpm import mutations
from skdpm._validation import check_integer, check_real
from skdpm.mixture.likelihoods.base import read_only
from skdpm.mixture.likelihoods.grid import Grid


class PyClone(Grid):
    """Reads of mutations. Mutations in a cluster have the same cellular prevalences.

    The cellular prevalence of a mutation is the share of cancer cells that have it. A row of X is
    a mutation, with six columns for each sample of the tumour: `ref_counts`, `alt_counts`,
    `normal_cn`, `minor_cn`, `major_cn` and `tumour_content`. `skdpm.mutations.mutation_design`
    makes them from the input table of PyClone-VI. NaN in both counts means that the mutation was
    not measured in that sample. The prior of a prevalence is uniform on a grid, separately for
    each sample.

    Parameters
    ----------
    density : {"binomial", "beta_binomial"}, default="binomial"
        Law of the variant reads given their expected share.
    precision : float, default=200.0
        Precision of the beta-binomial, in units of reads.
    error_rate : float, default=1e-3
        Share of reads that are variant, or reference, by mistake.
    genotype_prior : {"major_copy_number", "parental", "total"}, default="major_copy_number"
        Possible genotypes of a mutation, all equally likely. The mutation is on 1 to `major_cn`
        copies, or on one copy after the number of copies has changed ("major_copy_number"); on
        `major_cn`, `minor_cn` or one copy ("parental"); on any number of copies ("total").
    n_grid : int, default=101
        Number of points of the grid from 0 to 1.

    References
    ----------
    Roth et al. (2014), PyClone: statistical inference of clonal population structure in cancer.
    Gillis & Roth (2020), PyClone-VI: scalable inference of clonal population structures using
    whole genome data.
    """

    allow_nan = True
    log_likelihood = sample = None

    def __init__(
        self,
        density="binomial",
        precision=200.0,
        error_rate=1e-3,
        genotype_prior="major_copy_number",
        n_grid=101,
    ):
        self.density = density
        self.precision = precision
        self.error_rate = error_rate
        self.genotype_prior = genotype_prior
        self.n_grid = n_grid

    def resolve(self, X):
        n_grid = check_integer(self.n_grid, "PyClone.n_grid", low=2)
        resolved = self._copy(
            **mutations.check_params(self),
            precision=check_real(self.precision, "PyClone.precision", low=0.0, high=1e7),
            n_grid=n_grid,
        )
        mutations.check_design(X)
        resolved.grid = read_only(np.linspace(0.0, 1.0, n_grid))
        n_blocks = X.shape[1] // len(mutations.FIELDS)
        resolved.log_weights = read_only(np.zeros((n_blocks, n_grid)))
        return resolved

    def table(self, X):
        """log p(reads of each mutation in each sample | prevalence) of a resolved likelihood:
        (n_rows, n_tumour_samples, n_grid)."""
        data = mutations.encode(X, error_rate=self.error_rate, genotype_prior=self.genotype_prior)
        precision = None if self.density == "binomial" else self.precision
        return mutations.log_likelihoods(data, self.grid, precision)

    _evaluate = table

    def cluster_params(self, stats):
        """Posterior means `cellular_prevalence` and standard deviations
        `cellular_prevalence_std` of the prevalences of clusters, (n_clusters, n_tumour_samples).
        """
        params = super().cluster_params(stats)
        return {
            "cellular_prevalence": params["means"],
            "cellular_prevalence_std": params["stds"],
        }

    def _finer(self):
        return "use a larger PyClone.n_grid"

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        n = 12
        X = np.empty((n, 2, 6))
        X[..., 2:] = [[2.0, 1.0, 1.0, 1.0], [2.0, 1.0, 2.0, 0.7]]
        X[::3, 0, 3:5] = [0.0, 3.0]
        X[..., 1] = rng.binomial(40, rng.choice([0.1, 0.3, 0.5], size=(n, 1)), size=(n, 2))
        X[..., 0] = 40.0 - X[..., 1]
        yield cls(n_grid=21), X.reshape(n, 12).copy()
        X[[1, 4, 4], [0, 0, 1], :2] = np.nan
        X[5, 1] = np.nan
        yield (
            cls("beta_binomial", 60.0, 0.01, genotype_prior="total", n_grid=31),
            X.reshape(n, 12),
        )
