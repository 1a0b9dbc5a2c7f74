# SPDX-License-Identifier: BSD-3-Clause
"""Synthetic data sets of the papers that skdpm implements.

Generators of mixtures return (X, labels), of shapes (n_samples, n_features) and (n_samples,).
`labels` are the clusters that the rows were drawn from, int64 from 0; unless stated otherwise
their sizes differ by at most one. Generators of feature allocations return (X, Z, parameters),
where Z holds the features of each row. Generators of mutations return prevalences as well. The
same `random_state` gives the same data. The titles of the papers are in `doc/references.bib`.
"""

import numpy as np
from scipy.special import expit

from skdpm import mutations
from skdpm._validation import check_bool, check_integer, check_real
from skdpm.chains import seed_entropy, stream

__all__ = [
    "make_cambridge_bars",
    "make_embeddings",
    "make_gaussian_mixture",
    "make_high_dimensional_gaussians",
    "make_lfrm",
    "make_linear_gaussian_features",
    "make_pyclone",
    "make_subclones",
]
__dir__ = __all__.copy

Arrays = tuple[np.ndarray, ...]

# The parts of `make_cambridge_bars`, as images of 6 x 6 pixels; neighbours share pixels.
CAMBRIDGE_BARS = np.array(
    [
        [[pixel == "#" for pixel in line] for line in part.split()]
        for part in (
            "####.. #..#.. #..#.. ####.. ...... ......",
            "..#### ....#. ....#. ....#. ...... ......",
            "...... ...... #..... ##.... ###... ####..",
            "...... ...... ...#.. ..#### ...#.. ...#..",
        )
    ],
    dtype=np.float64,
)

# Range of the centres of `make_gaussian_mixture` in each column.
CENTRES = (0.14, 0.86)

# Random placement of equal discs in a square jams at about half of it; up to here it is quick.
LARGEST_COVERAGE = 0.35

# Number of units of the network of `make_embeddings`, and of rows in a batch.
N_UNITS, BLOCK_ROWS = 256, 10_000


def make_gaussian_mixture(
    n_samples=5000, *, n_clusters=15, spread=0.03, separation=0.145, random_state=None
) -> Arrays:
    """Gaussian clusters of equal size in two columns, with separated centres.

    >>> from skdpm.datasets import make_gaussian_mixture
    >>> X, labels = make_gaussian_mixture(spread=0.05, random_state=0)
    >>> X.shape
    (5000, 2)

    The data resemble the sets S1 to S4. Centres lie in the middle of the unit square, no two
    closer than `separation`. Standard deviations within clusters are 0.03 in S1 and 0.04 in S2;
    values of 0.05 and 0.06 give overlaps like those of S3 and S4.

    Source: Franti & Virmajoki (2006), whose S1 to S4 are used by Bouchard-Cote, Doucet & Roth
    (2017), section 4.3. Those data sets are fixed; these are draws of the same kind.

    Parameters
    ----------
    n_samples, n_clusters : int, default=5000, 15
        Numbers of rows and clusters.
    spread : float, default=0.03
        Mean over clusters of the square root of the geometric mean of the two variances within a
        cluster. Each cluster deviates from it by at most a fifth, and has an axis ratio of 1 to
        1.6 and a random orientation.
    separation : float, default=0.145
        Smallest distance of two centres, which lie in a square of side 0.72.
    random_state : int, RandomState, Generator or None, default=None
    """
    rng, labels = _start(n_samples, n_clusters, random_state)
    spread = check_real(spread, "spread", low=0.0)
    separation = check_real(separation, "separation", low=0.0, closed=True)
    low, high = CENTRES
    coverage = n_clusters * np.pi * (separation / 2) ** 2 / (high - low + separation) ** 2
    if coverage > LARGEST_COVERAGE:
        raise ValueError(
            f"separation={separation:g} is too large for {n_clusters} centres in a square of side "
            f"{high - low:g}"
        )
    centres = np.empty((n_clusters, 2))
    n_placed = 0
    while n_placed < n_clusters:
        # Restarts are needed: the first centres may leave no room for the last ones.
        n_placed = 0
        for centre in rng.uniform(low, high, size=(100 * n_clusters, 2)):
            distances = np.linalg.norm(centres[:n_placed] - centre, axis=1)
            if n_placed < n_clusters and (distances >= separation).all():
                centres[n_placed] = centre
                n_placed += 1
    width = spread * rng.uniform(0.8, 1.2, size=n_clusters)
    ratio = np.sqrt(rng.uniform(1.0, 1.6, size=n_clusters))
    angle = rng.uniform(0.0, np.pi, size=n_clusters)
    axes = np.column_stack([width * ratio, width / ratio])[labels]
    x, y = (axes * rng.standard_normal((n_samples, 2))).T
    cosine, sine = np.cos(angle)[labels], np.sin(angle)[labels]
    return centres[labels] + np.column_stack(
        [cosine * x - sine * y, sine * x + cosine * y]
    ), labels


def make_high_dimensional_gaussians(
    n_samples=1024, n_features=128, *, n_clusters=16, random_state=None
) -> Arrays:
    """Spherical Gaussian clusters in many columns, with distant centres.

    >>> from skdpm.datasets import make_high_dimensional_gaussians
    >>> X, labels = make_high_dimensional_gaussians(random_state=0)
    >>> X.shape
    (1024, 128)

    The data resemble the sets DIM032 to DIM1024. In each column the centres are uniform on [40,
    215]. The standard deviation of a cluster, uniform on [1, 2.7], is the same in all.

    Source: Franti, Virmajoki & Hautamaki (2006), whose DIM064 and DIM128 are used by
    Bouchard-Cote, Doucet & Roth (2017), section 4.3. Theirs are fixed; these are draws, with
    lighter tails.

    Parameters
    ----------
    n_samples, n_features, n_clusters : int, default=1024, 128, 16
        Numbers of rows, columns and clusters.
    random_state : int, RandomState, Generator or None, default=None
    """
    rng, labels = _start(n_samples, n_clusters, random_state)
    n_features = check_integer(n_features, "n_features", low=1)
    centres = rng.uniform(40.0, 215.0, size=(n_clusters, n_features))
    widths = rng.uniform(1.0, 2.7, size=(n_clusters, 1))
    X = centres[labels] + widths[labels] * rng.standard_normal((n_samples, n_features))
    return X, labels


def make_embeddings(
    n_samples=10_000,
    n_features=128,
    *,
    n_clusters=79,
    n_dimensions=10,
    spread=0.55,
    noise=0.3,
    random_state=None,
) -> Arrays:
    """Rows that resemble embeddings by a neural network: classes overlap, are curved, and have
    unequal sizes.

    >>> from skdpm.datasets import make_embeddings
    >>> X, labels = make_embeddings(500, random_state=0)
    >>> X.shape
    (500, 128)

    Each class is Gaussian in a space of few dimensions, with a standard normal centre, random axes
    and standard deviations along them of `spread` times log-normal numbers. A random network with
    one layer of rectified linear units maps this space to the columns, and noise is added to each
    column. Sizes of classes are multinomial; probabilities are proportional to log-normal numbers.

    With the defaults the classes overlap: k-means with the true number of centres reaches a
    normalised mutual information of 0.74.

    Parameters
    ----------
    n_samples, n_features, n_clusters : int, default=10_000, 128, 79
        Numbers of rows, columns and classes.
    n_dimensions : int, default=10
        Dimension of the space that is mapped to the columns.
    spread : float, default=0.55
        Scale of the standard deviations within classes; larger values give more overlap.
    noise : float, default=0.3
        Standard deviation of the noise in a column.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,), int64
        A class may have no rows.
    """
    n_samples = check_integer(n_samples, "n_samples", low=1)
    n_features = check_integer(n_features, "n_features", low=1)
    n_clusters = check_integer(n_clusters, "n_clusters", low=1)
    n_dimensions = check_integer(n_dimensions, "n_dimensions", low=1)
    spread = check_real(spread, "spread", low=0.0, closed=True)
    noise = check_real(noise, "noise", low=0.0, closed=True)
    rng = _generator(random_state)
    centres = rng.standard_normal((n_clusters, n_dimensions))
    scales = spread * np.exp(0.5 * rng.standard_normal((n_clusters, n_dimensions)))
    axes = np.linalg.qr(rng.standard_normal((n_clusters, n_dimensions, n_dimensions)))[0]
    units = rng.standard_normal((n_dimensions, N_UNITS)) * (1.5 / np.sqrt(n_dimensions))
    offsets = 0.5 * rng.standard_normal(N_UNITS)
    columns = rng.standard_normal((N_UNITS, n_features)) / np.sqrt(N_UNITS)
    shares = np.exp(0.7 * rng.standard_normal(n_clusters))
    labels = rng.choice(n_clusters, size=n_samples, p=shares / shares.sum())
    X = np.empty((n_samples, n_features))
    for first in range(0, n_samples, BLOCK_ROWS):
        k = labels[first : first + BLOCK_ROWS]
        z = scales[k] * rng.standard_normal((len(k), n_dimensions))
        z = centres[k] + (axes[k] @ z[:, :, None])[..., 0]
        block = np.maximum(z @ units + offsets, 0.0) @ columns
        X[first : first + BLOCK_ROWS] = block + noise * rng.standard_normal(block.shape)
    return X, labels


def make_linear_gaussian_features(
    n_samples=1000,
    n_components=20,
    n_features=10,
    *,
    concentration=2.0,
    component_precision=0.25,
    noise_precision=25.0,
    random_state=None,
) -> Arrays:
    """Rows that are sums of components and Gaussian noise.

    >>> from skdpm.datasets import make_linear_gaussian_features
    >>> X, Z, components = make_linear_gaussian_features(100, random_state=0)
    >>> X.shape, Z.shape, components.shape
    ((100, 10), (100, 20), (20, 10))

    A row has component k with probability pi_k ~ Beta(concentration / n_components, 1), whose
    entries are N(0, 1 / component_precision); the noise is N(0, 1 / noise_precision). Some
    components may be in no row.

    Source: Bouchard-Cote & Roth, sections 3.2 (100 rows) and 3.3.1 (1000 rows; 5, 20 components).

    Parameters
    ----------
    n_samples, n_components, n_features : int, default=1000, 20, 10
        Numbers of rows, components and columns of X.
    concentration : float, default=2.0
        Approximate expected number of components of a row, if n_components is large.
    component_precision : float, default=0.25
        Prior precision of the entries of components.
    noise_precision : float, default=25.0
        Precision of the noise.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    Z : ndarray of shape (n_samples, n_components), bool
        Components of each row.
    components : ndarray of shape (n_components, n_features)
    """
    n_features = check_integer(n_features, "n_features", low=1)
    component_precision = check_real(component_precision, "component_precision", low=0.0)
    noise_precision = check_real(noise_precision, "noise_precision", low=0.0)
    rng, Z = _allocate(n_samples, n_components, concentration, random_state)
    components = rng.standard_normal((n_components, n_features)) / np.sqrt(component_precision)
    noise = rng.standard_normal((n_samples, n_features)) / np.sqrt(noise_precision)
    return Z @ components + noise, Z, components


def make_lfrm(
    n_samples=100,
    n_components=20,
    *,
    concentration=2.0,
    weight_precision=0.25,
    bias=0.0,
    directed=False,
    random_state=None,
) -> Arrays:
    """A network whose nodes have features, with a weight for each pair of features.

    >>> from skdpm.datasets import make_lfrm
    >>> X, Z, weights = make_lfrm(50, 5, random_state=0)
    >>> X.shape, Z.shape, weights.shape
    ((50, 50), (50, 5), (5, 5))

    A node has feature k with probability pi_k ~ Beta(concentration / n_components, 1). Nodes i
    and j are linked with probability 1 / (1 + exp(-(bias + z_i' W z_j))), with weights N(0, 1 /
    weight_precision). Some features may be in no node.

    Source: Miller, Griffiths & Jordan (2009); Bouchard-Cote & Roth, section 3.3.2.

    Parameters
    ----------
    n_samples, n_components : int, default=100, 20
        Numbers of nodes and features.
    concentration : float, default=2.0
        Approximate expected number of features of a node, if n_components is large.
    weight_precision : float, default=0.25
        Precision of the weights.
    bias : float, default=0.0
        Log odds of a link between nodes without features.
    directed : bool, default=False
        Whether X[i, j] and X[j, i] are two links. If not, X and W are symmetric.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_samples)
        Zeros and ones; the diagonal is zero and is not part of the data.
    Z : ndarray of shape (n_samples, n_components), bool
        Features of each node.
    weights : ndarray of shape (n_components, n_components)
    """
    weight_precision = check_real(weight_precision, "weight_precision", low=0.0)
    bias = check_real(bias, "bias")
    check_bool(directed, "directed")
    rng, Z = _allocate(n_samples, n_components, concentration, random_state)
    weights = rng.standard_normal((n_components, n_components)) / np.sqrt(weight_precision)
    if not directed:
        weights = np.triu(weights) + np.triu(weights, 1).T
    probabilities = expit(bias + Z @ weights @ Z.T)
    X = (rng.random(probabilities.shape) < probabilities).astype(np.float64)
    if not directed:
        X = np.triu(X, 1) + np.triu(X, 1).T
    np.fill_diagonal(X, 0.0)
    return X, Z, weights


def make_cambridge_bars(n_samples=100, *, noise=0.5, random_state=None) -> Arrays:
    """Noisy images of 6 x 6 pixels, each of which shows some of four parts.

    >>> from skdpm.datasets import make_cambridge_bars
    >>> X, Z, components = make_cambridge_bars(random_state=0)
    >>> X.shape, Z.shape
    ((100, 36), (100, 4))

    Each part is in an image with probability 1/2. The parts overlap: a pixel in two parts is twice
    as bright if the image has both.

    Source: Griffiths & Ghahramani (2011), whose images have four other parts in separate corners.

    Parameters
    ----------
    n_samples : int, default=100
    noise : float, default=0.5
        Standard deviation of the noise of a pixel; parts have brightness 1.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 36)
        One image per row; `X.reshape(-1, 6, 6)` gives the images.
    Z : ndarray of shape (n_samples, 4), bool
        Parts of each image.
    components : ndarray of shape (4, 36)
        The parts.
    """
    n_samples = check_integer(n_samples, "n_samples", low=1)
    noise = check_real(noise, "noise", low=0.0, closed=True)
    rng = _generator(random_state)
    components = CAMBRIDGE_BARS.reshape(len(CAMBRIDGE_BARS), -1).copy()
    Z = rng.random((n_samples, len(components))) < 0.5
    X = Z @ components + noise * rng.standard_normal((n_samples, components.shape[1]))
    return X, Z, components


def make_pyclone(
    n_samples=500,
    n_tumour_samples=4,
    *,
    n_clusters=10,
    depth=100,
    copy_numbers=((1, 1),),
    tumour_content=1.0,
    precision=None,
    error_rate=1e-3,
    random_state=None,
) -> Arrays:
    """Mutations in clusters that have the same prevalences in the samples of a tumour.

    >>> from skdpm.datasets import make_pyclone
    >>> X, labels, prevalences = make_pyclone(100, 3, random_state=0)
    >>> X.shape, prevalences.shape
    ((100, 18), (10, 3))

    Prevalences are uniform on [0, 1]. The copy numbers of a mutation are drawn from a list, and
    its genotype is one of those of `genotype_prior="major_copy_number"`. Both are the same in all
    samples of the tumour.

    Source: Bouchard-Cote, Doucet & Roth (2017), appendix E. Their mutations are not published.

    Parameters
    ----------
    n_samples, n_tumour_samples, n_clusters : int, default=500, 4, 10
        Numbers of mutations, samples of the tumour and clusters.
    depth : float, default=100
        Expected number of reads of a mutation in a sample; the number is Poisson.
    copy_numbers : sequence of pairs of int, default=((1, 1),)
        Possible minor and major copy numbers of a mutation, equally likely. Normal cells have two.
    tumour_content : float or sequence of n_tumour_samples floats, default=1.0
        Share of tumour cells, in all samples or in each.
    precision : float or None, default=None
        Precision of beta-binomial reads. None: binomial reads.
    error_rate : float, default=1e-3
        Share of reads that are variant, or reference, by mistake.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 6 * n_tumour_samples)
        Mutations in the form of `skdpm.mutations.mutation_design`.
    labels : ndarray of shape (n_samples,), int64
    prevalences : ndarray of shape (n_clusters, n_tumour_samples)
        Prevalences of the clusters.
    """
    rng, labels = _start(n_samples, n_clusters, random_state)
    n_tumour_samples = check_integer(n_tumour_samples, "n_tumour_samples", low=1)
    prevalences = rng.random((n_clusters, n_tumour_samples))
    X = _reads(
        rng, prevalences[labels], depth, copy_numbers, tumour_content, precision, error_rate
    )
    return X, labels, prevalences


def make_subclones(
    n_samples=200,
    n_components=4,
    n_tumour_samples=4,
    *,
    concentration=2.0,
    prevalence_concentration=1.0,
    depth=1000,
    copy_numbers=((1, 1),),
    tumour_content=1.0,
    precision=None,
    error_rate=1e-3,
    random_state=None,
) -> Arrays:
    """Mutations that are in some of the clones of a tumour.

    >>> from skdpm.datasets import make_subclones
    >>> X, Z, prevalences = make_subclones(random_state=0)
    >>> X.shape, Z.shape, prevalences.shape
    ((200, 24), (200, 4), (4, 4))

    Clone k has a mutation with probability pi_k ~ Beta(concentration / n_components, 1). The
    prevalences of the clones in a sample are Dirichlet. The prevalence of a mutation is the sum
    over its clones; a mutation may have none. Copy numbers and genotypes are as in `make_pyclone`.

    Source: Bouchard-Cote & Roth, section 3.3.3: K = 4, 8, 12 clones in D = 4, 10, 10 samples.

    Parameters
    ----------
    n_samples, n_components, n_tumour_samples : int, default=200, 4, 4
        Numbers of mutations, clones and samples of the tumour.
    concentration : float, default=2.0
        Approximate expected number of clones of a mutation, if n_components is large.
    prevalence_concentration : float, default=1.0
        Pseudo-count of each clone in the Dirichlet distribution.
    depth, copy_numbers, tumour_content, precision, error_rate
        As in `make_pyclone`.
    random_state : int, RandomState, Generator or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 6 * n_tumour_samples)
        Mutations in the form of `skdpm.mutations.mutation_design`.
    Z : ndarray of shape (n_samples, n_components), bool
        Clones of each mutation.
    prevalences : ndarray of shape (n_components, n_tumour_samples)
        Prevalences of the clones; they sum to 1 in each sample.
    """
    n_tumour_samples = check_integer(n_tumour_samples, "n_tumour_samples", low=1)
    shape = check_real(prevalence_concentration, "prevalence_concentration", low=0.0)
    rng, Z = _allocate(n_samples, n_components, concentration, random_state)
    prevalences = rng.dirichlet(np.full(n_components, shape), n_tumour_samples)
    prevalences = np.ascontiguousarray(prevalences.T)
    # Rounding may raise a sum above 1.
    phi = np.minimum(Z @ prevalences, 1.0)
    X = _reads(rng, phi, depth, copy_numbers, tumour_content, precision, error_rate)
    return X, Z, prevalences


def _reads(rng, phi, depth, copy_numbers, tumour_content, precision, error_rate):
    """Draw X of mutations with given prevalences, (n_samples, n_tumour_samples)."""
    depth = check_real(depth, "depth", low=0.0)
    error_rate = check_real(error_rate, "error_rate", low=0.0, high=0.5)
    if precision is not None:
        precision = check_real(precision, "precision", low=0.0)
    n_samples, n_tumours = phi.shape
    contents = np.asarray(tumour_content, dtype=np.float64)
    if contents.shape not in ((), (n_tumours,)):
        raise ValueError(
            f"tumour_content must be a number or {n_tumours} numbers, one per sample; got "
            f"{tumour_content!r}"
        )
    copies = np.asarray(copy_numbers)
    if copies.ndim != 2 or copies.shape[1] != 2 or len(copies) == 0:
        raise ValueError(
            f"copy_numbers must be pairs (minor, major) of integers, got {copy_numbers!r}"
        )
    cells = np.empty((n_samples, n_tumours, len(mutations.FIELDS)))
    cells[..., 0] = rng.poisson(depth, size=phi.shape)
    cells[..., 1] = 0.0
    cells[..., 2] = 2.0
    cells[..., 3:5] = copies[rng.integers(len(copies), size=n_samples)][:, None]
    cells[..., 5] = contents
    params = {"error_rate": error_rate, "genotype_prior": "major_copy_number"}
    data = mutations.encode(cells.reshape(n_samples, -1), **params)
    first = data["starts"][data["genotypes"]]
    n_states = data["starts"][data["genotypes"] + 1] - first
    chosen = first + (rng.random((n_samples, 1)) * n_states).astype(np.intp)
    xi, _ = mutations.expected_shares(data["states"][chosen], phi)
    if precision is not None:
        xi = rng.beta(precision * xi, precision * (1.0 - xi))
    cells[..., 1] = rng.binomial(cells[..., 0].astype(np.int64), xi)
    cells[..., 0] -= cells[..., 1]
    return cells.reshape(n_samples, -1)


def _generator(random_state):
    return np.random.Generator(stream(seed_entropy(random_state)))


def _start(n_samples, n_clusters, random_state):
    """Generator of a data set, and its labels."""
    n_samples = check_integer(n_samples, "n_samples", low=1)
    n_clusters = check_integer(n_clusters, "n_clusters", low=1)
    rng = _generator(random_state)
    return rng, rng.permutation(np.arange(n_samples, dtype=np.int64) % n_clusters)


def _allocate(n_samples, n_components, concentration, random_state):
    """Generator of a data set, and its Z, drawn from the finite prior."""
    n_samples = check_integer(n_samples, "n_samples", low=1)
    n_components = check_integer(n_components, "n_components", low=1)
    concentration = check_real(concentration, "concentration", low=0.0)
    rng = _generator(random_state)
    probabilities = rng.beta(concentration / n_components, 1.0, size=n_components)
    return rng, rng.random((n_samples, n_components)) < probabilities
