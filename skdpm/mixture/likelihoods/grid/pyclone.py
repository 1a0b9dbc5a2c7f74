# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `PyClone`, for mutations in the samples of a tumour."""

import numpy as np

from skdpm import mutations
from skdpm._validation import check_integer, check_real, parameters
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.contract.base import read_only
from skdpm.mixture.likelihoods.grid._grid import GridModel
from skdpm.mixture.likelihoods.grid.grid import Grid

# Prior of Roth et al. (2014).
PRECISION_PRIOR = Gamma(1.0, 1e-4)
# A learned precision counts as the nearest of LOWEST, STEP LOWEST, ... up to at least NEARLY times
# the largest depth, where reads are nearly binomial. With hundreds of reads, the data tell apart
# precisions that differ by the factor STEP, and hardly closer ones.
LOWEST, STEP, NEARLY = 12.5, 2.0, 10.0
# Where chains start. It is one of them.
FIRST_PRECISION = 200.0


@parameters
class PyClone(Grid):
    """Reads of mutations. Mutations in a cluster have the same cellular prevalences.

    The cellular prevalence of a mutation is the share of cancer cells that have it. A row of X is
    a mutation, with six columns for each sample of the tumour, which
    `skdpm.mutations.mutation_design` makes from the input table of PyClone-VI. NaN in both counts
    means that the mutation was not measured in that sample. The prior of a prevalence is uniform
    on a grid.

    Parameters
    ----------
    density : {"beta_binomial", "binomial"}, default="beta_binomial"
        Law of the variant reads given their expected share.
    precision : float or None, default=None
        Precision of the beta-binomial in reads: the variance is the binomial one times (depth +
        precision) / (1 + precision). None: learned.
    error_rate : float, default=1e-3
        Share of reads that are variant, or reference, by mistake.
    genotype_prior : str or dict, default="major_copy_number"
        Possible genotypes, equally likely: the mutation is on 1 to `major_cn` copies, or on one
        copy after the number of copies has changed ("major_copy_number"); on `major_cn`,
        `minor_cn` or one copy ("parental"); on any number of copies ("total"). A dict gives
        genotypes with weights: see the page "Mutations of a tumour" of the guide.
    n_grid : int, default=101
        Number of points of the grid from 0 to 1.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Prior of a learned precision. None: that on the page "Laws in detail" of the guide.

    References
    ----------
    Roth et al. (2014); Gillis & Roth (2020).
    """

    allow_nan = True
    text_hint = "; skdpm.mutations.mutation_design makes X from a table of mutations"
    log_likelihood = sample = None

    density: str = "beta_binomial"
    precision: float | None = None
    error_rate: float = 1e-3
    genotype_prior: object = "major_copy_number"
    n_grid: int = 101
    hyperpriors: dict | None = None

    @property
    def hyperparameters(self):
        """The precision, if it is learned."""
        learned = self.density == "beta_binomial" and (
            self.precision is None or hasattr(self, "layers")
        )
        return ("precision",) if learned else ()

    def resolve(self, X):
        n_grid = check_integer(self.n_grid, "PyClone.n_grid", low=2)
        params = mutations.check_params(self) | {"n_grid": n_grid}
        if self.precision is not None:
            params["precision"] = check_real(
                self.precision, "PyClone.precision", low=0.0, high=1e7
            )
        mutations.check_design(X)
        hyperpriors = {}
        if self.density == "beta_binomial" and self.precision is None:
            params["precision"] = FIRST_PRECISION
            hyperpriors = {"precision": PRECISION_PRIOR}
        resolved = self._copy(**params)
        # An entry for a fixed precision is checked too, and has no effect.
        learned = type(self)(hyperpriors=self.hyperpriors)
        resolved.learned_priors = learned._learn_under(hyperpriors)
        if hyperpriors:
            highest = max(NEARLY * mutations.largest_depth(X), FIRST_PRECISION)
            n_layers = 1 + int(np.ceil(np.log(highest / LOWEST) / np.log(STEP)))
            resolved.layers = read_only(LOWEST * STEP ** np.arange(n_layers))
        resolved.grid = read_only(np.linspace(0.0, 1.0, n_grid))
        resolved.log_weights = read_only(np.zeros((X.shape[1] // len(mutations.FIELDS), n_grid)))
        return resolved

    def tables(self, data, n_max):
        tables = super().tables(data, n_max)
        return {**tables, "layers": self.layers} if self.hyperparameters else tables

    def bind(self, data, tables):
        if not self.hyperparameters:
            return GridModel(data, tables)
        return GridModel(data, tables, "precision", self.precision)

    @property
    def _layers(self):
        if not self.hyperparameters:
            return 1, 0
        return len(self.layers), int(np.abs(np.log(self.precision / self.layers)).argmin())

    @property
    def counted_precision(self):
        """The value that the precision of a resolved likelihood counts as; None: binomial."""
        if self.density == "binomial":
            return None
        return self.layers[self._layers[1]] if self.hyperparameters else self.precision

    def table(self, X):
        """log p(reads of each mutation in each sample | prevalence) of a resolved likelihood:
        (n_rows, n_tumour_samples, n_grid)."""
        return self._table(X, [self.counted_precision])

    def _evaluate(self, X):
        return self._table(X, self.layers) if self.hyperparameters else self.table(X)

    def _table(self, X, precisions):
        data = mutations.encode(X, error_rate=self.error_rate, genotype_prior=self.genotype_prior)
        tables = [mutations.log_likelihoods(data, self.grid, s) for s in precisions]
        return tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1)

    def cluster_params(self, stats):
        """Posterior means `cellular_prevalence` of prevalences of clusters, standard deviations
        `cellular_prevalence_std`, and central 95 % intervals from `cellular_prevalence_low` to
        `cellular_prevalence_high`, each (n_clusters, n_tumour_samples)."""
        params = super().cluster_params(stats)
        ends = mutations.interval(params["grid_weights"], self.grid)
        means, stds = params["means"], params["stds"]
        return mutations.described("cellular_prevalence", means, stds, ends)

    _finer = "use a larger PyClone.n_grid"

    @property
    def _if_coarse(self):
        if not self.hyperparameters:
            return super()._if_coarse
        return (
            "clusters may be split between neighbouring points if the learned precision is far "
            "above the depth"
        )
