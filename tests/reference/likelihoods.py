"""Log marginal likelihoods of one cluster, and posteriors over all partitions of few items.

Each `log_marginal_*` is log p(X_subset | the rows form one cluster), parameters integrated out,
all constants included; no rows give 0. Hyperparameters are called as in the estimators. NaN means
missing wherever it is allowed. Everything else (predictives, posteriors) is a difference of these.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import betaln, gammaln, ive, logsumexp, multigammaln, xlogy
from scipy.stats import betabinom, binom, gamma, multivariate_normal, multivariate_t, norm

from reference.enumerate import enumerate_partitions, partition_index, partition_sizes
from reference.priors import log_eppf, log_gamma_density


def as_matrix(scale, n_features):
    """The scale of an inverse Wishart: s means s I, a vector its diagonal."""
    scale = np.asarray(scale, dtype=float)
    return scale if scale.ndim == 2 else np.diag(np.broadcast_to(scale, n_features))


@cache
def _log_gamma_ratio(df, n, n_features):
    return multigammaln((df + n) / 2, n_features) - multigammaln(df / 2, n_features)


def _log_matrix_t(X, mean, mean_precision, df, scale):
    """Log density of X whose rows share mean and covariance, both integrated out.

    X is matrix-variate t: given covariance C ~ InvWishart(df, scale) it is normal with rows'
    covariance Ω = I + 1 1ᵀ / mean_precision (Gupta & Nagar 2000, definition 4.2.1; Dawid 1981).
    With Ω = L Lᵀ and W = L⁻¹ (X - mean) the density is
    Γ_D((ν+n)/2) / (π^{nD/2} Γ_D(ν/2)) |Ω|^{-D/2} |S|^{ν/2} |S + Wᵀ W|^{-(ν+n)/2}.
    No mean, no sum of squares and no recursion: nothing in common with the kernels.
    """
    n, n_features = X.shape
    L = np.linalg.cholesky(np.eye(n) + 1 / mean_precision)
    W = solve_triangular(L, X - mean, lower=True)
    return (
        _log_gamma_ratio(df, n, n_features)
        - n * n_features / 2 * np.log(np.pi)
        - n_features * np.log(np.diag(L)).sum()
        + df / 2 * np.linalg.slogdet(scale)[1]
        - (df + n) / 2 * np.linalg.slogdet(scale + W.T @ W)[1]
    )


# Parents of the columns of the case with sparse covariances, in their order. That a fit finds
# these is tested in mixture/likelihoods/test_sparse.py.
PARENTS = {1: [], 0: [1], 2: [1, 0]}


def log_marginal_gaussian(
    X,
    *,
    mean,
    mean_precision,
    scale,
    df=None,
    covariance_type="full",
    n_parents=None,
    parents=PARENTS,
):
    """Normal rows, covariance ~ InvWishart(df, scale), mean | cov ~ N(mean, cov / mean_precision).

    "diag": the columns are independent, each with variance ~ InvGamma(df / 2, rate scale / 2); NaN
    is missing. All four parameters may then be one number or one per column.
    "spherical": as "diag", with one variance ~ InvGamma(df / 2, rate scale / 2) for all columns.
    "tied": the covariance is `scale`; df does not matter.
    "sparse": regressions of columns on others, see `_log_marginal_sparse`.
    """
    X = np.asarray(X, dtype=float)
    n, n_features = X.shape
    if covariance_type == "full":
        if n == 0:
            return 0.0
        scale = as_matrix(scale, n_features)
        mean = np.broadcast_to(np.asarray(mean, dtype=float), n_features)
        return _log_matrix_t(X, mean, mean_precision, df, scale)
    if covariance_type == "spherical":
        return _log_marginal_spherical(X, mean, mean_precision, df, scale)
    if covariance_type == "tied":
        return _log_marginal_tied(X, mean, mean_precision, as_matrix(scale, n_features))
    if covariance_type == "sparse":
        return log_marginal_sparse(X, mean, mean_precision, df, scale, parents)
    if covariance_type != "diag":
        raise ValueError(f"unknown covariance_type {covariance_type!r}")
    params = np.broadcast_arrays(*np.atleast_1d(mean, mean_precision, df, scale), X[:1].sum(0))
    total = 0.0
    for x, u, r, nu, s in zip(X.T, *params[:4], strict=True):
        x = x[~np.isnan(x)]
        if len(x):
            total += _log_matrix_t(x[:, None], u, r, nu, np.array([[s]]))
    return total


def _log_marginal_spherical(X, mean, mean_precision, df, scale):
    """All entries present are one multivariate t vector, whose shape is scale / df times
    1 + 1 / mean_precision on the diagonal and 1 / mean_precision between entries of a column."""
    rows, columns = np.nonzero(~np.isnan(X))
    if len(rows) == 0:
        return 0.0
    shape = np.eye(len(rows)) + (columns[:, None] == columns) / mean_precision
    mean = np.broadcast_to(np.asarray(mean, dtype=float), X.shape[1])[columns]
    return multivariate_t.logpdf(X[rows, columns], mean, scale / df * shape, df)


def log_marginal_sparse(X, mean, mean_precision, df, scale, parents):
    """Each column is a regression on its parents: variance ~ InvGamma(df / 2, rate scale / 2),
    slopes ~ N(0, variance / scale of the parent), level ~ N(mean, variance / mean_precision) where
    the parents have their prior means. So a column is one multivariate t vector given its parents.

    - `parents`: dict of column to a list of columns.
    """
    if len(X) == 0:
        return 0.0
    mean, scale = (np.broadcast_to(np.asarray(p, float), X.shape[1]) for p in (mean, scale))
    total = 0.0
    for d, others in parents.items():
        gaps = (X - mean)[:, others]
        shape = np.eye(len(X)) + 1.0 / mean_precision + gaps / scale[others] @ gaps.T
        at = np.full(len(X), mean[d])
        total += multivariate_t.logpdf(X[:, d], at, scale[d] / df * shape, df)
    return total


def _log_marginal_tied(X, mean, mean_precision, covariance):
    """All entries are one normal vector: the covariance of two rows is `covariance` divided by
    mean_precision, plus `covariance` itself if they are the same."""
    n, n_features = X.shape
    if n == 0:
        return 0.0
    mean = np.tile(np.broadcast_to(np.asarray(mean, dtype=float), n_features), n)
    between = np.kron(np.eye(n) + 1.0 / mean_precision, covariance)
    return multivariate_normal.logpdf(X.ravel(), mean, between)


def log_marginal_bernoulli(X, *, a, b):
    """Columns of 0/1 with success probability ~ Beta(a, b) each; NaN is missing."""
    X = np.asarray(X, dtype=float)
    ones, zeros = (X == 1).sum(axis=0), (X == 0).sum(axis=0)
    return (betaln(a + ones, b + zeros) - betaln(a, b)).sum()


def log_marginal_categorical(X, *, concentration, n_categories, handle_unknown="error"):
    """Columns of codes, probabilities ~ Dirichlet(concentration, ...) each; NaN is missing.

    `concentration`, `n_categories`: one number or one per column.
    """
    X = np.asarray(X, dtype=float)
    total = 0.0
    columns = (np.broadcast_to(value, X.shape[1]) for value in (concentration, n_categories))
    for x, c, n_codes in zip(X.T, *columns, strict=True):
        counts = np.array([(x == code).sum() for code in range(n_codes)])
        if counts.sum() != (~np.isnan(x)).sum():
            raise ValueError(f"codes must be 0..{n_codes - 1}")
        total += gammaln(n_codes * c) - gammaln(n_codes * c + counts.sum())
        total += (gammaln(c + counts) - gammaln(c)).sum()
    return total


def log_marginal_multinomial(X, *, concentration, base=1.0):
    """Rows of counts given their totals, probabilities ~ Dirichlet with pseudo-counts in
    proportion to `base`, of mean `concentration`.

    The multinomial coefficient of each row is included.
    """
    X = np.asarray(X, dtype=float)
    c = np.ones(X.shape[1]) * (1.0 if isinstance(base, str) else base)
    c *= concentration / c.mean()
    coefficients = gammaln(X.sum(axis=1) + 1).sum() - gammaln(X + 1).sum()
    counts = X.sum(axis=0)
    return (
        coefficients
        + gammaln(c.sum())
        - gammaln(c.sum() + counts.sum())
        + (gammaln(c + counts) - gammaln(c)).sum()
    )


def log_marginal_poisson(X, *, shape, rate, exposure=1.0):
    """Columns of counts with rate ~ Gamma(shape, rate) each, 1/x! included; NaN is missing. The
    means of a row are its rates times its exposure."""
    X = np.asarray(X, dtype=float)
    present = ~np.isnan(X)
    counts = np.where(present, X, 0)
    exposures = np.broadcast_to(exposure, len(X))[:, None] * present
    total, m = counts.sum(axis=0), exposures.sum(axis=0)
    log_columns = (
        xlogy(shape, rate)
        - gammaln(shape)
        + gammaln(shape + total)
        - (shape + total) * np.log(rate + m)
    )
    return log_columns.sum() - gammaln(counts + 1).sum() + xlogy(counts, exposures).sum()


def log_marginal_negative_binomial(X, *, shape, rate, dispersion, exposure=1.0):
    """Columns of counts of variance mu + dispersion mu^2. With r = 1 / dispersion, the mean is
    mu = r (1 - p) / p with p ~ Beta(1 + k r, k m), m = shape / rate, k = rate + shape dispersion.
    NaN is missing. A row with an exposure is the sum of that many rows with exposure 1."""
    X = np.asarray(X, dtype=float)
    present = ~np.isnan(X)
    counts = np.where(present, X, 0)
    exposures = np.broadcast_to(exposure, len(X))[:, None] * present
    total, m = counts.sum(axis=0), exposures.sum(axis=0)
    r = 1 / np.broadcast_to(np.asarray(dispersion, dtype=float), X.shape[1:])
    k = rate + shape / r
    a, b = 1 + k * r, k * shape / rate
    log_columns = (
        gammaln(a + m * r) + gammaln(b + total) - gammaln(a + m * r + b + total) - betaln(a, b)
    )
    sizes = np.where(present, exposures * r, 1.0)
    log_choices = gammaln(counts + sizes) - gammaln(sizes) - gammaln(counts + 1)
    return log_columns.sum() + log_choices[present].sum()


def log_marginal_grid(X, *, log_likelihood, grid, log_weights, sample=None):
    """Rows in blocks, each with a point of the grid as its parameter.

    `log_likelihood(X, grid)` is (n, n_blocks, n_points), None: X is that table, block after block;
    `log_weights` has the prior of the points, of each block, up to a constant.
    """
    X = np.asarray(X, dtype=float)
    if log_likelihood is None:
        table = X.reshape(len(X), -1, len(grid))
    else:
        table = np.array([log_likelihood(x[None], np.asarray(grid))[0] for x in X])
    log_prior = np.asarray(log_weights, dtype=float)
    log_prior = log_prior - logsumexp(log_prior, axis=-1, keepdims=True)
    # (n_blocks, n_points): the sum over rows inside, that over points outside.
    return logsumexp(log_prior + sum(table), axis=-1).sum() if len(X) else 0.0


def von_mises_fisher_grid(concentration, spread, n_points=64):
    """Concentrations even in the logarithm, of equal probability; above 1e9 they count as 1e9."""
    return np.minimum(concentration * np.exp(spread * np.linspace(-1, 1, n_points)), 1e9)


def log_von_mises_fisher_constant(kappa, n_features):
    """log C(kappa) + kappa of the density C(kappa) exp(kappa mean'x) on the sphere, for few
    columns. Without kappa, large terms would not cancel in sums."""
    nu = n_features / 2 - 1
    kappa = np.asarray(kappa, dtype=float)
    # Near 0, I_nu(t) = (t / 2)^nu / Gamma(nu + 1) (1 + t^2 / (4 nu + 4) + ...).
    at_zero = gammaln(n_features / 2) - np.log(2) - n_features / 2 * np.log(np.pi)
    small = at_zero - kappa**2 / (2 * n_features) + kappa
    t = np.clip(kappa, 1e-3, 1e5)
    log_bessel = np.log(ive(nu, t))
    # Hankel's expansion (Abramowitz & Stegun 9.7.1).
    t = np.maximum(kappa, 1e5)
    terms = series = np.ones_like(t)
    for j in range(1, 6):
        terms = -terms * (4 * nu**2 - (2 * j - 1) ** 2) / (j * 8 * t)
        series = series + terms
    far = np.log(series) - np.log(2 * np.pi * t) / 2
    t = np.maximum(kappa, 1e-3)
    value = nu * np.log(t) - n_features / 2 * np.log(2 * np.pi)
    value -= np.where(kappa > 1e5, far, log_bessel)
    return np.where(kappa > 1e-3, value, small)


def log_marginal_von_mises_fisher(X, *, concentration, spread):
    """Directions of rows, the mean direction uniform on the sphere, the concentration on a grid.
    With n rows of sum r: the mean over the grid of C(k)^n C(0) / C(k |r|). Rows of zeros have no
    direction, and do not count."""
    X = np.asarray(X, dtype=float)
    X = X[X.any(axis=1)]
    X = X / np.sqrt((X**2).sum(axis=1, keepdims=True))
    n, n_features = X.shape
    kappa = von_mises_fisher_grid(concentration, spread)
    log_c = partial(log_von_mises_fisher_constant, n_features=n_features)
    length = np.sqrt((X.sum(axis=0) ** 2).sum())
    # n - |r|, from the squared distances of all pairs of rows.
    gap = ((X[:, None] - X) ** 2).sum() / 2 / (n + length) if n else 0.0
    terms = n * log_c(kappa) + log_c(0.0) - log_c(kappa * length) - kappa * gap
    return logsumexp(terms) - np.log(len(kappa))


def pyclone_states(normal, minor, major, genotype_prior):
    """Genotypes that a mutation may have: pairs (copies with it, copies in cells without it)."""
    total = minor + major
    if genotype_prior == "major_copy_number":
        return {(b, normal) for b in range(1, major + 1)} | {(1, total)}
    if genotype_prior == "parental":
        return {(b, normal) for b in (major, minor, 1) if b > 0} | {(1, total)}
    return {(b, c) for b in range(1, total + 1) for c in (normal, total)}


def pyclone_shares(kind, copies, phi, error_rate):
    """Expected share of variant reads of a genotype; `kind` has normal, minor and major copies and
    the tumour content."""
    (normal, minor, major, t), (variant, others) = kind, copies
    total = minor + major
    mu = variant / total if variant < total else 1 - error_rate
    weights = np.array([(1 - t) * normal + 0 * phi, t * (1 - phi) * others, t * phi * total])
    return np.array([error_rate, error_rate, mu]) @ weights / weights.sum(axis=0)


def log_pyclone(cell, phi, **params):
    """log p(reads of one mutation in one sample | prevalences), an entry for each prevalence."""
    return _log_pyclone(tuple(map(float, cell)), tuple(map(float, phi)), **params)


@cache
def _log_pyclone(cell, phi, *, density, precision, error_rate, genotype_prior):
    phi = np.array(phi)
    n_ref, n_alt, *kind = cell
    if np.isnan(n_ref):
        return np.zeros(len(phi))
    depth, terms = n_ref + n_alt, []
    for copies in pyclone_states(*map(int, kind[:3]), genotype_prior):
        xi = pyclone_shares(kind, copies, phi, error_rate)
        if density == "binomial":
            terms.append(binom.logpmf(n_alt, depth, xi))
        else:
            terms.append(betabinom.logpmf(n_alt, depth, precision * xi, precision * (1 - xi)))
    return logsumexp(terms, axis=0) - np.log(len(terms))


def log_pyclone_weighted(cell, phi, weights, error_rate, precision=None):
    """`log_pyclone` with given genotypes (equations 36 and 37 of Bouchard-Cote et al. 2017, with
    erratum 7): `weights` maps genotypes of normal cells, of cancer cells without and with the
    mutation, texts of A and B, to their weights."""
    n_ref, n_alt, _, _, _, t = cell
    total = 0.0
    for genotypes, weight in weights.items():
        c_n, c_r, c_v = map(len, genotypes)
        mu_n, mu_r, mu_v = (
            {0: error_rate, len(g): 1 - error_rate}.get(g.count("B"), g.count("B") / len(g))
            for g in genotypes
        )
        below = (1 - t) * c_n + t * (1 - phi) * c_r + t * phi * c_v
        xi = ((1 - t) * c_n * mu_n + t * (1 - phi) * c_r * mu_r + t * phi * c_v * mu_v) / below
        if precision is None:
            p = binom.pmf(n_alt, n_ref + n_alt, xi)
        else:
            p = betabinom.pmf(n_alt, n_ref + n_alt, precision * xi, precision * (1 - xi))
        total = total + weight / sum(weights.values()) * p
    return np.log(total)


def log_marginal_pyclone(X, *, n_grid, **params):
    """Mutations, six columns for each sample, of the same prevalences, uniform on a grid."""
    X = np.asarray(X, dtype=float)
    phi = np.linspace(0, 1, n_grid)
    total = 0.0
    for sample in np.split(X, X.shape[1] // 6, axis=1):
        terms = sum(log_pyclone(cell, phi, **params) for cell in sample)
        total += logsumexp(terms + np.zeros(n_grid)) - np.log(n_grid)
    return total


def log_likelihood_relational(
    A,
    labels,
    *,
    a,
    b,
    directed=False,
    degree_correction=False,
    degree_concentration=None,
    weights=None,
):
    """log p(A | partition), every pair of blocks with its own link probability ~ Beta(a, b).

    Undirected: over pairs of items i < j and pairs of blocks k <= l (erratum 18). Directed: over
    ordered pairs i != j and all ordered pairs of blocks. NaN is an unobserved pair; the diagonal
    is ignored. Infinite relational model, Kemp et al. (2006).

    With degree correction: see `log_likelihood_degree_corrected`.

    `weights`: name of a log marginal and its keywords. Entries of A that are not 0 are links with
    these weights. Given the links, the weights of a pair of blocks have this marginal, those of
    the negative binomial less 1. Items labelled -1 have no weights. Peixoto (2018).
    """
    A = np.asarray(A, dtype=float)
    if weights is not None:
        links = np.where(np.isnan(A), A, A != 0)
        hyper = {"a": a, "b": b, "degree_correction": degree_correction, "directed": directed}
        hyper["degree_concentration"] = degree_concentration
        return log_likelihood_relational(links, labels, **hyper) + log_likelihood_weights(
            A, labels, *weights, directed=directed, loops=degree_correction
        )
    if degree_correction:
        return log_likelihood_degree_corrected(
            A, labels, a=a, b=b, directed=directed, gamma=degree_concentration
        )
    labels = np.asarray(labels)
    if not directed and not np.array_equal(
        *(M[np.triu_indices(len(A), 1)] for M in (A, A.T)), equal_nan=True
    ):
        raise ValueError("an undirected adjacency matrix must be symmetric")
    links = {}
    for i in range(len(A)):
        for j in range(len(A)):
            if i == j or (not directed and i > j) or np.isnan(A[i, j]):
                continue
            pair = (labels[i], labels[j])
            links.setdefault(pair if directed else tuple(sorted(pair)), []).append(A[i, j])
    return sum(
        (betaln(a + sum(x), b + len(x) - sum(x)) - betaln(a, b) for x in links.values()), 0.0
    )


def log_likelihood_weights(A, labels, name, params, *, directed, loops):
    """log p(weights | links, partition); see `log_likelihood_relational`."""
    weights = {}
    for i in range(len(A)):
        for j in range(A.shape[1] if directed else i + 1):
            known = not np.isnan(A[i, j]) and A[i, j] != 0 and min(labels[i], labels[j]) >= 0
            if known and (loops or i != j):
                pair = (labels[i], labels[j])
                pair = pair if directed else tuple(sorted(pair))
                weights.setdefault(pair, []).append([A[i, j] - (name == "negative_binomial")])
    return sum((LOG_MARGINALS[name](np.array(x), **params) for x in weights.values()), 0.0)


def log_likelihood_degree_corrected(A, labels, *, a, b, gamma, directed=False):
    """log p(A | partition) of numbers of links. A[i, j] ~ Poisson(u_i v_j r) with the rate
    r ~ Gamma(a, rate b) of the blocks of i and j; u / n ~ Dirichlet(gamma, ..., gamma) in each
    block of n items, and v so as well. Undirected: u = v, over i <= j, half the mean at i = j.
    Directed: A may lack columns of the last items, which then send links and receive none.

    From the law of the ends of links: given how many there are in a block, they fall on its items
    as balls of a Polya urn; given the blocks of both ends, links are Gamma-Poisson. Items labelled
    -1 are left out, but for their part in the ends of others, in terms without the partition.
    """
    A = np.asarray(A, dtype=float)
    senders = np.asarray(labels)
    receivers = senders[: A.shape[1]]
    kinds = {"out": (senders, A.sum(axis=1)), "in": (receivers, A.sum(axis=0))}
    if not directed:
        kinds = {"end": (senders, A.sum(axis=1) + np.diag(A))}
    total, blocks = 0.0, np.unique(senders[senders >= 0])
    for items, ends in kinds.values():
        total += (gammaln(gamma + ends[items >= 0]) - gammaln(gamma)).sum()
    for i, row in enumerate(A):
        if senders[i] >= 0:
            total -= gammaln(row + 1).sum() / (1 if directed else 2)
            if not directed:
                total -= gammaln(row[i] + 1) / 2 + row[i] * np.log(2)
    numbers = {}
    for k in blocks:
        for m in blocks:
            if k > m and not directed:
                continue
            links = A[np.ix_(senders == k, receivers == m)]
            count, exposure = links.sum(), links.size
            if k == m and not directed:
                count, exposure = np.triu(links).sum(), links.size / 2
            for end in ((k, "out"), (m, "in")) if directed else ((k, "end"), (m, "end")):
                numbers[end] = numbers.get(end, 0) + count
            total += a * np.log(b) - gammaln(a) + gammaln(a + count)
            total -= (a + count) * np.log(b + exposure)
    for (k, kind), count in numbers.items():
        size = (kinds[kind][0] == k).sum()
        if size > 0:
            total += xlogy(count, size) + gammaln(size * gamma) - gammaln(size * gamma + count)
    return total


def log_likelihood_link_counts(X, labels, *, shape, rate):
    """log p(X | partition) of a symmetric matrix of counts of links, the mean of those between two
    clusters ~ Gamma(shape, rate); the diagonal is ignored. The law of a skeleton of doc/."""
    counts = {}
    for i in range(len(X)):
        for j in range(i):
            counts.setdefault(tuple(sorted((labels[i], labels[j]))), []).append([X[i][j]])
    return sum((log_marginal_poisson(x, shape=shape, rate=rate) for x in counts.values()), 0.0)


def log_marginal_subspace(X, X_fit, *, n_axes, departs=True, **hyper):
    """log p(rows of one cluster): Gaussian along the first principal axes of all rows, under
    hyperparameters of these coordinates; along the others a common law of all rows. Axes from
    singular vectors, each with its largest entry positive."""
    center, axes, spread = _subspace(X_fit.tobytes(), X_fit.shape, n_axes)
    coordinates = (X - center) @ axes.T
    rest = log_of_rest(coordinates[:, n_axes:], spread, len(X_fit) if departs else np.inf).sum()
    return log_marginal_gaussian(coordinates[:, :n_axes], **hyper) + rest


@cache
def _subspace(fitted, shape, n_axes):
    """Center, all axes, and the standard deviations along those without a cluster's law."""
    X_fit = np.frombuffer(fitted).reshape(shape)
    center = X_fit.mean(axis=0)
    _, singular, axes = np.linalg.svd(X_fit - center)
    signs = [np.sign(axis[np.argmax(np.abs(axis))]) for axis in axes]
    variances = np.zeros(X_fit.shape[1])
    variances[: len(singular)] = singular**2 / len(X_fit)
    one_more = variances.mean() or (1e-6 * np.abs(X_fit).max()) ** 2
    spread = np.sqrt(variances_of_rest(variances[n_axes:], len(X_fit), n_axes, one_more))
    return center, axes * np.array(signs)[:, None], spread


def log_of_rest(coordinates, spread, n_rows):
    """Log densities of rows along the other axes: normal, or for one of n_rows + 2 rows as wide as
    one of twelve powers of 2, each with the same probability."""
    if np.isinf(n_rows):
        return norm.logpdf(coordinates, scale=spread).sum(axis=1)
    powers = [0.0]
    while len(powers) < 13:
        powers.append(1.6 * powers[-1] + 1.0)
    shares = [(n_rows + 1) / (n_rows + 2), *[1 / (12 * (n_rows + 2))] * 12]
    if not coordinates.shape[1]:
        return np.zeros(len(coordinates))
    scales = 2.0 ** np.array(powers)[:, None, None] * spread
    terms = norm.logpdf(coordinates, scale=scales).sum(axis=2) + np.log(shares)[:, None]
    return np.logaddexp.reduce(terms, axis=0)


def variances_of_rest(variances, n_rows, n_axes, one_more):
    """Expected variances of the covariance matrix ~ IW(df, scale), with the number of rows of a
    shared variance in `scale` whose evidence is the greatest."""
    size, left = len(variances), max(n_rows - n_axes - 1, 0)
    if size == 0:
        return variances
    shared = (n_rows * np.mean(variances) + one_more) / (left + 1)
    scatter = np.diag(n_rows * variances)

    def log_constant(df, scale):
        return df / 2 * np.linalg.slogdet(scale / 2)[1] - multigammaln(df / 2, size)

    found = []
    for n_alike in (0.0, *np.geomspace(1.0, 1e4, 41)):
        df, scale = size + 2 + n_alike, (one_more + n_alike * shared) * np.eye(size)
        evidence = log_constant(df, scale) - log_constant(df + left, scale + scatter)
        found.append((evidence, np.diag(scale + scatter) / (df + left - size - 1)))
    return max(found, key=lambda pair: pair[0])[1]


def log_marginal_product(X, *, parts):
    """Columns in parts, independent given the cluster: [(name of the law, columns, its hyper)]."""
    return sum(LOG_MARGINALS[name](X[:, columns], **hyper) for name, columns, hyper in parts)


# One cluster's marginal by name; a relational likelihood has none (see log_likelihood).
LOG_MARGINALS = {
    "gaussian": log_marginal_gaussian,
    "gaussian_diag": partial(log_marginal_gaussian, covariance_type="diag"),
    "gaussian_spherical": partial(log_marginal_gaussian, covariance_type="spherical"),
    "gaussian_tied": partial(log_marginal_gaussian, covariance_type="tied"),
    "gaussian_sparse": partial(log_marginal_gaussian, covariance_type="sparse"),
    "bernoulli": log_marginal_bernoulli,
    "categorical": log_marginal_categorical,
    "multinomial": log_marginal_multinomial,
    "negative_binomial": log_marginal_negative_binomial,
    "poisson": log_marginal_poisson,
    "grid": log_marginal_grid,
    "pyclone": log_marginal_pyclone,
    "von_mises_fisher": log_marginal_von_mises_fisher,
}

# Likelihoods of a whole partition by name.
LOG_LIKELIHOODS = {
    "relational": log_likelihood_relational,
    "relational_directed": partial(log_likelihood_relational, directed=True),
}


def log_likelihood(X, labels, likelihood, **hyper):
    """log p(X | partition) under the likelihood of that name."""
    if likelihood in LOG_LIKELIHOODS:
        return LOG_LIKELIHOODS[likelihood](X, labels, **hyper)
    labels = np.asarray(labels)
    X = np.asarray(X)
    log_marginal = LOG_MARGINALS[likelihood]
    return sum(log_marginal(X[labels == k], **hyper) for k in np.unique(labels))


def log_likelihoods(X, likelihood, **hyper):
    """log p(X | partition) for every row of `enumerate_partitions(len(X))`; the likelihood may be
    a log marginal."""
    partitions = enumerate_partitions(len(X))
    if likelihood in LOG_LIKELIHOODS:
        return np.array([log_likelihood(X, z, likelihood, **hyper) for z in partitions])
    X = np.asarray(X)
    log_marginal = likelihood if callable(likelihood) else LOG_MARGINALS[likelihood]
    items = np.arange(len(X))
    known = [0.0]  # by the set of rows, written in binary
    for code in range(1, 2 ** len(X)):
        known.append(log_marginal(X[(code >> items) & 1 == 1], **hyper))
    blocks = (partitions[:, :, None] == items) * (1 << items)[:, None]
    return np.array(known)[blocks.sum(axis=1)].sum(axis=1)


class PartitionPosterior(NamedTuple):
    """The posterior over all partitions, in the order of `enumerate_partitions`."""

    partitions: np.ndarray  # (Bell(n), n)
    log_joint: np.ndarray  # log p(partition) + log p(X | partition)
    log_prob: np.ndarray  # log p(partition | X)
    log_evidence: float  # log p(X)

    @property
    def probabilities(self):
        return np.exp(self.log_prob)

    def draw(self, size, rng):
        """Independent draws, an array of labels of shape (size, n)."""
        rows = rng.choice(len(self.partitions), size=size, p=self.probabilities)
        return self.partitions[rows]

    def count(self, labels):
        """How often each partition occurs among label arrays of shape (m, n)."""
        return np.bincount(partition_index(labels), minlength=len(self.partitions))


def log_posterior(X, likelihood, prior, *, likelihood_params, prior_params):
    """Enumerate the posterior over partitions of the rows of X.

    Parameters
    ----------
    X : array-like of shape (n, n_features), n <= 8 or so
    likelihood : str or callable
        A key of LOG_MARGINALS or LOG_LIKELIHOODS, or a log marginal.
    prior : {"dp", "pitman_yor", "finite"}
    likelihood_params, prior_params : dict
        Keywords of the log marginal and of `log_eppf`.

    Returns
    -------
    posterior : PartitionPosterior
    """
    partitions = enumerate_partitions(len(X))
    log_prior = np.array([log_eppf(s, prior, **prior_params) for s in partition_sizes(partitions)])
    log_joint = log_prior + log_likelihoods(X, likelihood, **likelihood_params)
    log_evidence = logsumexp(log_joint)
    return PartitionPosterior(partitions, log_joint, log_joint - log_evidence, log_evidence)


class ConcentrationPosterior(NamedTuple):
    """The joint posterior of partition and concentration, the latter cut into bins."""

    partitions: np.ndarray  # (Bell(n), n)
    edges: np.ndarray  # (n_bins - 1,) inner edges, concentrations
    probabilities: np.ndarray  # (Bell(n), n_bins), sums to 1
    log_evidence: float  # log p(X), concentration integrated out
    log_grid: np.ndarray  # (m,) logarithms of concentrations
    cdf: np.ndarray  # (Bell(n), m) distribution function of log concentration given the partition

    def draw(self, size, rng):
        """Independent draws: labels of shape (size, n), concentrations of shape (size,)."""
        weights = self.probabilities.sum(axis=1)
        rows = rng.choice(len(weights), size=size, p=weights / weights.sum())
        log_concentration = np.empty(size)
        for row in np.unique(rows):
            here = rows == row
            u = rng.random(here.sum())
            log_concentration[here] = np.interp(u, self.cdf[row], self.log_grid)
        return self.partitions[rows], np.exp(log_concentration)

    def count(self, labels, concentration):
        """How often each (partition, bin) occurs, an array like `probabilities`."""
        n_partitions, n_bins = self.probabilities.shape
        cells = partition_index(labels) * n_bins + np.digitize(concentration, self.edges)
        return np.bincount(cells, minlength=n_partitions * n_bins).reshape(n_partitions, n_bins)


def log_posterior_concentration(
    X, likelihood, prior, *, likelihood_params, prior_params, concentration_prior, n_bins=8
):
    """Enumeration times quadrature: p(partition, concentration | X), under any hyperprior.

    The bins of the concentration have (nearly) equal posterior mass. All integrals are
    composite Gauss-Legendre sums over the logarithm of the concentration. Draws are uniform within
    panels of 0.04, too wide for a prior of that width.

    Parameters
    ----------
    X, likelihood, prior, likelihood_params
        As in `log_posterior`.
    prior_params : dict
        Keywords of `log_eppf` except the concentration (for "finite": of the total).
    concentration_prior : tuple (shape, rate) or frozen distribution of scipy.stats
        Of the concentration; a pair is that of a Gamma.
    n_bins : int, default=8

    Returns
    -------
    posterior : ConcentrationPosterior
    """
    partitions = enumerate_partitions(len(X))
    sizes = -np.sort(-partition_sizes(partitions), axis=1)
    kinds, kind = np.unique(sizes, axis=0, return_inverse=True)
    kind = kind.ravel()  # NumPy 2.0 gives a column
    log_lik = log_likelihoods(X, likelihood, **likelihood_params)
    log_scale = log_lik.max()
    nodes, weights = np.polynomial.legendre.leggauss(4)

    def panel_masses(edges):
        """Mass of each (kind of sizes, panel between two log concentrations), times evidence."""
        half = np.diff(edges) / 2
        t = edges[:-1, None] + half[:, None] * (nodes + 1)
        log_density = log_prior(np.exp(t)) + t  # Jacobian of the logarithm
        values = np.stack(
            [
                np.exp(log_density + log_eppf(s, prior, concentration=np.exp(t), **prior_params))
                for s in kinds
            ]
        )
        return (values * weights).sum(axis=-1) * half

    # Both tails of the prior left out are below 1e-25, and p(partition | concentration) <= 1.
    if isinstance(concentration_prior, tuple):
        shape, rate = concentration_prior
        log_prior = partial(log_gamma_density, shape=shape, rate=rate)
        low = (-60 + gammaln(shape + 1)) / shape - np.log(rate)
        high = np.log(gamma.isf(1e-25, shape) / rate)
    else:
        log_prior = concentration_prior.logpdf
        low = np.log(concentration_prior.ppf(1e-25))
        high = np.log(concentration_prior.isf(1e-25))
    grid = np.linspace(low, high, int((high - low) / 0.04) + 2)
    masses = panel_masses(grid)
    likelihood_ratio = np.exp(log_lik - log_scale)
    marginal = np.cumsum(likelihood_ratio @ masses[kind])
    inner = np.interp(np.arange(1, n_bins) / n_bins * marginal[-1], marginal, grid[1:])

    cut = np.union1d(grid, inner)
    bin_of_panel = np.searchsorted(inner, (cut[1:] + cut[:-1]) / 2)
    fine = panel_masses(cut)
    binned = np.stack([fine[:, bin_of_panel == j].sum(axis=1) for j in range(n_bins)], axis=1)
    joint = likelihood_ratio[:, None] * binned[kind]

    cdf = np.concatenate([np.zeros((len(kinds), 1)), np.cumsum(masses, axis=1)], axis=1)
    total = np.where(cdf[:, -1:] > 0, cdf[:, -1:], 1)  # 0: a kind outside the support
    return ConcentrationPosterior(
        partitions,
        np.exp(inner),
        joint / joint.sum(),
        np.log(joint.sum()) + log_scale,
        grid,
        (cdf / total)[kind],
    )
