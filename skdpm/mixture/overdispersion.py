# SPDX-License-Identifier: BSD-3-Clause
"""Whether counts vary more within clusters than the Poisson law of a fit allows.

The likelihood of the fit is compared with the same that has `NegativeBinomial` in place of
`Poisson`, first by components that are merged under each, then by evidence. Totals of rows,
networks and multinomial counts have tests of their own: see `doc/design.md`.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from skdpm.mixture.chains.automatic import merge_pieces, take_values
from skdpm.mixture.likelihoods import NegativeBinomial, Poisson
from skdpm.mixture.samplers import SMC, Gibbs
from skdpm.mixture.state._state import MixtureState

# Fewest rows that are checked, and the most.
FEWEST_ROWS, MOST_ROWS = 50, 1000
# Differences of log joint densities of merged components, and of log evidences, above which a fit
# is said to have overdispersed counts.
CLEAR_MERGED, CLEAR = 10.0, 6.0
# First values of the dispersions; the evidence may have several maxima.
FIRST_DISPERSIONS = 0.05, 0.2, 0.8
# Difference of log joint densities per row above which rows are said to have unequal totals, and
# the fewest columns in which that is checked.
CLEAR_OF_TOTALS, FEWEST_COLUMNS = 1.1, 5
# Standard deviations above which pairs of multinomial counts are said to be too many (the largest
# of 1000 data sets that follow the law was 3), the fewest rows that are checked, and the number of
# rows from which a cluster is hardly a part of another.
CLEAR_OF_SHARES, FEWEST_WITH_SHARES, MANY_EACH = 4.5, 10, 20
# Fewest small clusters, and fewest columns, of which the former may be fragments. Pairs were too
# many in 12 of 15,000 data sets of 12 to 30 columns that follow the law; more often in 5 columns.
FEWEST_SMALL, FEWEST_WORDS = 5, 10
# Gibbs sweeps that bring the hyperparameters of either model to typical values.
N_SWEEPS = 15
N_PARTICLES, N_RUNS = 100, 3
# Smallest excess of the variance within a cluster, relative to the mean, of a named column.
NAMED = 0.2
# Numbers of clusters of nodes that are tried.
FEW_CLUSTERS = 1, 2, 3, 4, 6, 9


def overdispersed_columns(program, labels, bit_generator):
    """Positions of the columns whose counts vary more within clusters than Poisson counts: list of
    int. It is empty without clear evidence, or if the likelihood has no Poisson columns. The
    program is that of a fit at its end, with rows in memory; labels are components of a draw."""
    given = program.likelihood
    if len(labels) < FEWEST_ROWS or given.select or not _columns_of(program, Poisson):
        return []
    step = -(-len(labels) // MOST_ROWS)
    X = np.ascontiguousarray(program.given[::step], dtype=np.float64)
    labels = np.unique(labels[::step], return_inverse=True)[1]
    changes = (partial(_relearned, cls) for cls in (Poisson, NegativeBinomial))
    laws = (given.changed_by_columns(change, X) for change in changes)
    one, other = (Comparison(program, law, X, bit_generator) for law in laws)
    try:
        return _compare(one, other, labels)
    except FloatingPointError:
        return []  # a warning is not worth an error


def _columns_of(program, *classes):
    """Positions of the columns with likelihoods of these classes: list of int."""
    parts = program.likelihood.by_columns(program.given.shape[1])
    return [int(d) for part, columns in parts if isinstance(part, classes) for d in columns]


def _relearned(cls, likelihood, X):
    """A resolved likelihood, or this class in place of `Poisson`, resolved on X, all learned."""
    if not isinstance(likelihood, Poisson):
        return likelihood
    relearned = cls(hyperpriors=likelihood.hyperpriors)
    return (relearned.with_exposure() if likelihood.exposed else relearned).resolve(X)


def columns_with_totals(program, labels, bit_generator):
    """Positions of the columns of counts, if clusters are parts of kinds of rows that differ in
    totals over these; otherwise []. See `overdispersed_columns`. Only complete rows count."""
    columns = _columns_of(program, Poisson, NegativeBinomial)
    if program.likelihood.exposed or len(columns) < FEWEST_COLUMNS:
        return []
    X = np.asarray(program.given[:, columns], dtype=np.float64)
    totals = X.sum(axis=1)
    kept = np.flatnonzero(totals > 0.0)  # NaN is not
    if len(kept) < FEWEST_ROWS:
        return []
    kept = kept[:: -(-len(kept) // MOST_ROWS)]
    X, exposure = X[kept], totals[kept] / totals[kept].mean()
    labels = np.unique(labels[kept], return_inverse=True)[1]
    laws = NegativeBinomial(), NegativeBinomial().with_exposure()
    pairs = zip(laws, (X, np.column_stack([X, exposure])), strict=True)
    plain, exposed = (Comparison(program, law.resolve(x), x, bit_generator) for law, x in pairs)
    try:
        gain = exposed.log_joint_merged(labels) - plain.log_joint_merged(labels)
    except FloatingPointError:
        return []  # a warning is not worth an error
    return columns if gain > CLEAR_OF_TOTALS * len(X) + CLEAR_MERGED else []


def vary_in_shares(X, labels):
    """Whether multinomial clusters are small, and counts, dense or CSR, vary more in them than the
    law allows; labels are components of a draw."""
    if not FEWEST_WITH_SHARES <= len(labels) < MANY_EACH * len(np.unique(labels)):
        return False
    X, of, sizes = _members(X, labels)
    sums, totals = (of @ X).sum(axis=1), X.sum(axis=1)
    known = (sums > 1.0) & (sizes > 1)
    expected = _pairs(of @ X) * (of @ (totals**2 - totals)) / np.where(known, sums**2 - sums, 1.0)
    more = np.sum((of @ _pairs(X) - expected)[known])
    return bool(more > CLEAR_OF_SHARES * np.sqrt(2.0 * np.sum(expected[known])))


def are_fragments(X, labels):
    """Whether many multinomial clusters have one or two rows, with words of other clusters; see
    `vary_in_shares`."""
    X, of, sizes = _members(X, labels)
    counts = sp.csr_array(of @ X)
    n_columns, n_small = np.count_nonzero(counts.sum(axis=0)), np.count_nonzero(sizes <= 2)
    if n_small < max(FEWEST_SMALL, len(sizes) / 6) or n_columns < FEWEST_WORDS:
        return False
    more = variance = 0.0
    for sign, part in ((1.0, counts), (-1.0, counts[sizes > 2])):
        totals = part.sum(axis=1)
        rest = part.power(2).sum(axis=1) - totals**2 / n_columns
        more += sign * (np.sum(part.sum(axis=0) ** 2) - totals.sum() ** 2 / n_columns - rest.sum())
        variance += sign * (rest.sum() ** 2 - np.sum(rest**2))
    return bool(more > CLEAR_OF_SHARES * np.sqrt(2.0 * variance / (n_columns - 1)))


def _pairs(X):
    """Numbers of ordered pairs of equal items in rows of counts, CSR: (n_rows,)."""
    return X.power(2).sum(axis=1) - X.sum(axis=1)


def _members(X, labels):
    """Counts, CSR; the matrix whose product with these has the sums of clusters; their sizes."""
    labels = np.unique(labels, return_inverse=True)[1]
    X = sp.csr_array(X, dtype=np.float64)
    of = sp.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
    return X, of, np.bincount(labels)


def has_overdispersed_links(program, labels, bit_generator):
    """Whether numbers of links between nodes of two clusters vary more than Poisson numbers.

    For the parameters see `overdispersed_columns`. Returns False for links without numbers.
    """
    given = program.likelihood
    counted = getattr(given, "degree_correction", False) and given.weights is None
    if not counted or len(labels) < FEWEST_ROWS:
        return False
    from sklearn.cluster import KMeans  # not loaded by `import skdpm`

    step = -(-len(labels) // MOST_ROWS)
    X = program.given[::step][:, ::step]
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    labels = np.unique(labels[::step], return_inverse=True)[1]
    fitted = Comparison(program, given, X, bit_generator)
    found = fitted.log_joint(labels)
    points = given.coordinates(X)
    for n_clusters in FEW_CLUSTERS:
        few = KMeans(n_clusters, n_init=1, random_state=0).fit_predict(points)
        few = np.unique(few, return_inverse=True)[1]
        gain = _gain_of_dispersion(X, few, given.directed)
        clear = fitted.log_joint(few) + gain - found
        if gain > CLEAR and clear > CLEAR:
            return True
    return False


def _gain_of_dispersion(X, labels, directed):
    """Log ratio of negative binomial to Poisson probabilities of numbers of links between
    different nodes, at means that follow from clusters and numbers of links of nodes."""
    links = X * (1.0 - np.eye(len(X)))
    ones = np.eye(labels.max() + 1)[labels]
    ends = links.sum(axis=1), links.sum(axis=0)
    out, into = (side / np.maximum(ones.T @ side, 1.0)[labels] for side in ends)
    means = (ones.T @ links @ ones)[labels][:, labels] * np.outer(out, into)
    pairs = ~np.eye(len(X), dtype=bool) if directed else np.triu(np.ones(X.shape, bool), 1)
    pairs &= means > 0.0
    x, m = links[pairs], means[pairs]
    if not len(x):
        return 0.0
    dispersion = np.sum((x - m) ** 2 - x) / np.sum(m**2)
    if dispersion < NAMED:
        return 0.0
    r, p = 1.0 / dispersion, dispersion * m
    log_ratios = gammaln(x + r) - gammaln(r) - r * np.log1p(p) + x * np.log(dispersion / (1.0 + p))
    return np.sum(log_ratios + m) - 0.5 * np.log(len(x))


def _compare(one, other, labels):
    if not other.log_joint_merged(labels) - one.log_joint_merged(labels) > CLEAR_MERGED:
        return []
    one.settle(labels)
    most = np.max(one.log_evidences())
    for first in FIRST_DISPERSIONS:
        other.begin(first)
        if np.min(other.log_evidences()) - most > CLEAR:
            means = np.nansum(one.X, axis=0) / np.maximum((~np.isnan(one.X)).sum(axis=0), 1)
            excess = {
                int(d): phi * means[d]
                for part, columns in other.likelihood.by_columns(one.X.shape[1])
                if isinstance(part, NegativeBinomial)
                for d, phi in zip(columns, part.dispersion.tolist(), strict=False)
            }
            named = [d for d in excess if excess[d] > NAMED]
            return named or [max(excess, key=excess.get)]
    return []


class Comparison:
    """A resolved likelihood with hyperparameters for some rows, and their evidence."""

    def __init__(self, program, likelihood, X, bit_generator):
        self.program = replace(program, likelihood=likelihood)
        self.likelihood, self.X, self.bit_generator = likelihood, X, bit_generator
        self.rng = np.random.Generator(bit_generator)
        self.prior = program.make_prior(program.first_concentration, len(X))

    def _model(self, X, n_max):
        data = self.likelihood.encode(X)
        return self.likelihood.bind(data, self.likelihood.tables(data, n_max))

    def log_joint(self, labels):
        """Log joint density of the clusters of labels; priors of hyperparameters are left out."""
        state = MixtureState(self._model(self.X, len(self.X) + 1), self.prior, labels)
        return state.compute_log_joint()

    def log_joint_merged(self, labels):
        """The same of the clusters into which some are merged."""
        model = self._model(self.X, len(self.X) + 1)
        prior = self.program.make_prior(self.program.first_concentration, len(self.X))
        stats = MixtureState(model, prior, labels).dump()
        model.clear(0)
        merged = merge_pieces(self.program, model, prior, stats, self.bit_generator)
        take_values(self.likelihood, model, prior, merged)
        total = model.log_marginals(merged.stats).sum() + model.log_density_apart()
        if not model.constants_vary:
            total += model.sum_log_constants(len(self.X))
        return total + prior.log_probability(merged.stats[:, 0].astype(np.intp))

    def begin(self, dispersion):
        """Set all dispersions, and let the other hyperparameters follow."""
        values = {
            name: np.full(np.shape(getattr(self.likelihood, name)), dispersion)
            for name in self.likelihood.learned
            if name.split("__")[-1] == "dispersion"
        }
        self.likelihood = self.likelihood.at(values)
        system, order = self._system()
        p = int(np.argmax(system.final_log_weights()))
        labels = np.empty(len(order), dtype=np.intp)
        labels[order] = system.labels_of(p)
        self.settle(labels)

    def settle(self, labels):
        """Bring hyperparameters to typical values by Gibbs sweeps that start from labels."""
        model = self._model(self.X, len(self.X) + 1)
        state = MixtureState(model, self.prior, labels)
        kernel = Gibbs().kernel()
        for _ in range(N_SWEEPS):
            sizes = state.cluster_sizes()
            self.program.resample_concentration(self.prior, sizes, self.bit_generator)
            if self.likelihood.learned:
                flat = model.resample_hyperparameters(
                    state.cluster_slots(), self.likelihood.learned_priors, self.bit_generator
                )
            kernel.run(state, self.bit_generator)
        if self.likelihood.learned:
            self.likelihood = self.likelihood.at(self.likelihood.learned_values(flat))

    def log_evidences(self):
        """Estimates of log p(X) given the hyperparameters: list of float."""
        return [self._system()[0].log_evidence for _ in range(N_RUNS)]

    def _system(self):
        """A particle system that has taken all rows, and the order in which they came."""
        order = self.rng.permutation(len(self.X))
        model = self._model(self.X[order], None)
        prior = self.program.make_prior(self.prior.concentration, len(order))
        system = SMC(N_PARTICLES).system(prior, None, True)
        system.begin([model])
        system.run(self.bit_generator, 0, len(order))
        return system, order
