# SPDX-License-Identifier: BSD-3-Clause
"""Somatic mutations in tumour samples: tables in, tables out, and what reads say of a mutation.

A mutation in a sample has a reference and b variant reads, of d = a + b. In a share phi of the
cancer cells, the cellular prevalence, it is there; with the share t of cancer cells in the sample
(its tumour content) and a genotype state of c_N, c_R and c_V copies of the locus in normal cells,
cancer cells without and cancer cells with the mutation, a share mu of which is variant in each::

    xi(phi) = [(1 - t) c_N mu_N + t (1 - phi) c_R mu_R + t phi c_V mu_V]
              / [(1 - t) c_N + t (1 - phi) c_R + t phi c_V],
    p(b | d, phi) = mean over states of Binomial(b | d, xi(phi)),

or of a beta-binomial of mean xi(phi) and precision s (Roth et al. 2014). `DPMixture` and
`FiniteMixture` give the mutations of a cluster the same phi; `FeatureAllocation` makes phi the sum
of the prevalences of the clones that have the mutation. `likelihood="pyclone"` is either.
"""

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

from skdpm._validation import check_choice, check_columns, check_counts, check_real, fingerprint
from skdpm.partitions import label_probabilities, relabel_by_size

__all__ = ["mutation_design", "mutation_table"]

# Columns of X, of each sample.
FIELDS = ("ref_counts", "alt_counts", "normal_cn", "minor_cn", "major_cn", "tumour_content")

# What columns of the long table are also called.
SPELLINGS = {"var_counts": "alt_counts", "tumor_content": "tumour_content"}

DENSITIES = ("binomial", "beta_binomial")
GENOTYPE_PRIORS = ("major_copy_number", "parental", "total")

# There are up to twice as many states as copies.
MOST_COPIES = 1000

# Of so many reads logarithms of densities, differences of numbers 20 times that, still have six
# digits after the point.
MOST_READS = 10**8

# Draws that `mutation_table` averages, evenly spaced ones.
MOST_DRAWS = 500

# Entries of a table of log likelihoods that are computed at a time.
CHUNK = 2**20


def __dir__():
    return __all__


def states(normal_cn, minor_cn, major_cn, tumour_content, *, error_rate, genotype_prior):
    """List the genotype states that a mutation may have, which are equally likely.

    Of a prevalence phi, the shares of variant and of reference reads are proportional to
    (1 - phi) p0 + phi p1 and (1 - phi) r0 + phi r1.

    Parameters
    ----------
    normal_cn, minor_cn, major_cn : int
    tumour_content, error_rate : float
    genotype_prior : str
        "major_copy_number": with the mutation on 1 to `major_cn` copies, before any change of the
        number of copies; or on one copy, after it. "parental": on `major_cn`, `minor_cn` or one
        copy before, or on one after. "total": on any number of copies, before or after.

    Returns
    -------
    states : ndarray of shape (n_states, 4)
        p0, p1, r0, r1; each state once.
    """
    total = minor_cn + major_cn
    if genotype_prior == "major_copy_number":
        pairs = [(b, normal_cn) for b in range(1, major_cn + 1)] + [(1, total)]
    elif genotype_prior == "parental":
        pairs = [(b, normal_cn) for b in (major_cn, minor_cn, 1) if b > 0] + [(1, total)]
    else:
        pairs = [(b, c) for b in range(1, total + 1) for c in (normal_cn, total)]
    variant_copies, others = np.array(list(dict.fromkeys(pairs)), dtype=np.float64).T
    t, normal = tumour_content, (1.0 - tumour_content) * normal_cn
    pure = variant_copies == total
    variant = np.where(pure, (1.0 - error_rate) * total, variant_copies)
    reference = np.where(pure, error_rate * total, total - variant_copies)
    return np.column_stack(
        [
            (normal + t * others) * error_rate,
            normal * error_rate + t * variant,
            (normal + t * others) * (1.0 - error_rate),
            normal * (1.0 - error_rate) + t * reference,
        ]
    )


def check_params(likelihood):
    """Check the parameters that all models of mutations have.

    Parameters
    ----------
    likelihood : object
        With `density`, `error_rate` and `genotype_prior`.

    Returns
    -------
    params : dict
        These, checked.
    """
    name = type(likelihood).__name__
    check_choice(likelihood.density, f"{name}.density", DENSITIES)
    check_choice(likelihood.genotype_prior, f"{name}.genotype_prior", GENOTYPE_PRIORS)
    error_rate = check_real(likelihood.error_rate, f"{name}.error_rate", low=1e-100, high=0.5)
    return {
        "density": likelihood.density,
        "error_rate": error_rate,
        "genotype_prior": likelihood.genotype_prior,
    }


def check_design(X):
    """Check rows of mutations.

    Parameters
    ----------
    X : ndarray of shape (n_samples, 6 * n_tumour_samples)

    Raises
    ------
    ValueError
        Naming the column and a value that cannot be.
    """
    if X.shape[1] % len(FIELDS):
        raise ValueError(
            f"PyClone needs {len(FIELDS)} columns for each tumour sample ({', '.join(FIELDS)}; "
            f"skdpm.mutations.mutation_design makes them); X has {X.shape[1]} columns"
        )
    fields = _fields(X)
    given = {name: fields[name] for name in FIELDS}
    missing = np.isnan(given["ref_counts"])

    def check(bad, name, what):
        everywhere = np.zeros(X.shape, dtype=bool)
        everywhere[:, FIELDS.index(name) :: len(FIELDS)] = bad & ~missing
        check_columns(X, everywhere, f"PyClone needs {what}")

    one_only = np.zeros(X.shape, dtype=bool)
    for name, other in (("ref_counts", "alt_counts"), ("alt_counts", "ref_counts")):
        columns = slice(FIELDS.index(name), None, len(FIELDS))
        one_only[:, columns] = np.isnan(given[name]) & ~np.isnan(given[other])
    check_columns(X, one_only, "PyClone needs ref_counts and alt_counts, or NaN in both")
    counts = np.zeros(X.shape)
    counts[:, 0 :: len(FIELDS)] = np.where(missing, 0.0, given["ref_counts"])
    counts[:, 1 :: len(FIELDS)] = np.where(missing, 0.0, given["alt_counts"])
    check_counts(counts, "PyClone")
    check_columns(X, counts > MOST_READS, f"PyClone needs counts of at most {MOST_READS}")
    for name, low in (("normal_cn", 1), ("minor_cn", 0), ("major_cn", 1)):
        value = given[name]
        whole = (value >= low) & (value <= MOST_COPIES) & (value == np.floor(value))
        check(~whole, name, f"{name} to be an integer from {low} to {MOST_COPIES}")
    check(given["minor_cn"] > given["major_cn"], "minor_cn", "minor_cn of at most major_cn")
    t = given["tumour_content"]
    check(~((t > 0.0) & (t <= 1.0)), "tumour_content", "tumour_content above 0 and at most 1")


def encode(X, *, error_rate, genotype_prior):
    """Bring rows of mutations, which are checked here, into the form of the models.

    Parameters
    ----------
    X : ndarray of shape (n_samples, 6 * n_tumour_samples)
    error_rate, genotype_prior
        As in `states`.

    Returns
    -------
    data : dict
        ref_counts, alt_counts : ndarray of shape (n_samples, n_tumour_samples)
            0 where they are missing.
        genotypes : ndarray of the same shape, intp
            The genotype of a mutation in a sample: that of the states from `starts[g]` to
            `starts[g + 1]`. Genotype 0 has no states: nothing was measured.
        starts : ndarray of shape (n_genotypes + 1,), intp
        states : ndarray of shape (n_states, 4)
        constants : ndarray of shape (n_samples, n_tumour_samples)
            log of the binomial coefficient, less that of the number of states.
    """
    check_design(X)
    fields = _fields(X)
    a, b = fields["ref_counts"], fields["alt_counts"]
    missing = np.isnan(a)
    a, b = np.where(missing, 0.0, a), np.where(missing, 0.0, b)
    kinds = np.stack([fields[name] for name in FIELDS[2:]], axis=-1)[~missing]
    kinds, which = np.unique(kinds, axis=0, return_inverse=True)
    genotypes = np.zeros(a.shape, dtype=np.intp)
    genotypes[~missing] = 1 + which.ravel()
    table = [
        states(
            int(normal),
            int(minor),
            int(major),
            float(content),
            error_rate=error_rate,
            genotype_prior=genotype_prior,
        )
        for normal, minor, major, content in kinds
    ]
    sizes = np.array([0, *map(len, table)])
    coefficients = gammaln(a + b + 1.0) - gammaln(a + 1.0) - gammaln(b + 1.0)
    return {
        "ref_counts": np.ascontiguousarray(a),
        "alt_counts": np.ascontiguousarray(b),
        "genotypes": genotypes,
        "starts": np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        "states": np.concatenate([np.empty((0, 4)), *table]),
        "constants": coefficients - np.log(np.maximum(sizes[genotypes], 1)),
    }


def log_likelihoods(data, prevalences, precision=None):
    """Compute log p(reads of a mutation in a sample | prevalence) at every point of a grid.

    Parameters
    ----------
    data : dict
        From `encode`.
    prevalences : ndarray of shape (n_points,)
    precision : float or None, default=None
        Of the beta-binomial; None: binomial.

    Returns
    -------
    log_likelihoods : ndarray of shape (n_samples, n_tumour_samples, n_points)
    """
    a, b = data["ref_counts"].ravel(), data["alt_counts"].ravel()
    genotypes = data["genotypes"].ravel()
    out = np.zeros((len(a), len(prevalences)))
    order = np.argsort(genotypes, kind="stable")
    stops = np.searchsorted(genotypes[order], np.arange(len(data["starts"])))
    for g in range(1, len(data["starts"]) - 1):
        found = data["states"][data["starts"][g] : data["starts"][g + 1]]
        p, r = _shares(found, prevalences)
        step = max(1, CHUNK // p.size)
        for first in range(stops[g], stops[g + 1], step):
            cells = order[first : min(first + step, stops[g + 1])]
            n_ref, n_alt = a[cells][:, None, None], b[cells][:, None, None]
            if precision is None:
                terms = n_alt * np.log(p) + n_ref * np.log(r)
            else:
                s, f = precision * p, precision * r
                terms = betaln(n_alt + s, n_ref + f) - betaln(s, f)
            out[cells] = logsumexp(terms, axis=1)
    out += data["constants"].ravel()[:, None]
    return out.reshape(*data["constants"].shape, -1)


def _shares(found, prevalences):
    """Expected shares of variant and of reference reads, each (n_states, n_points)."""
    p0, p1, r0, r1 = found.T[:, :, None]
    p = (1.0 - prevalences) * p0 + prevalences * p1
    r = (1.0 - prevalences) * r0 + prevalences * r1
    return p / (p + r), r / (p + r)


def _fields(X):
    """The columns by their meaning, each (n_samples, n_tumour_samples)."""
    return {name: X[:, f :: len(FIELDS)] for f, name in enumerate(FIELDS)}


# Tables of users.


def mutation_design(df, *, deleted="error"):
    """Bring a long table of mutations into the wide one that estimators take.

    Parameters
    ----------
    df : pandas.DataFrame
        A line for each mutation in each tumour sample, with the columns that PyClone-VI reads:
        `mutation_id`, `sample_id`, `ref_counts`, `alt_counts` (or `var_counts`, as in PyClone),
        `normal_cn`, `minor_cn`, `major_cn` and, where it is not 1, `tumour_content` (or
        `tumor_content`). Other columns are ignored, PyClone-VI's `error_rate` among them: that is
        a parameter of the likelihood.
    deleted : {"error", "missing"}, default="error"
        What to do where `major_cn` is 0, so that no copy is left to have the mutation: to raise,
        or to take the mutation as not measured in that sample.

    Returns
    -------
    design : pandas.DataFrame
        A row for each mutation, in order of appearance, named by `mutation_id`; six columns for
        each sample: "T1:ref_counts", "T1:alt_counts", "T1:normal_cn", "T1:minor_cn",
        "T1:major_cn", "T1:tumour_content". NaN where a mutation has no line for a sample: it is
        not dropped.

    Raises
    ------
    ValueError
        Naming a column that is missing, or a mutation and a sample with two lines or without
        copies.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpm.mutations import mutation_design
    >>> lines = pd.DataFrame(
    ...     {
    ...         "mutation_id": ["m0", "m1", "m0"],
    ...         "sample_id": ["T1", "T1", "T2"],
    ...         "ref_counts": [70, 81, 52],
    ...         "alt_counts": [30, 22, 51],
    ...         "normal_cn": 2,
    ...         "minor_cn": 1,
    ...         "major_cn": 1,
    ...     }
    ... )
    >>> design = mutation_design(lines)
    >>> design.shape, design["T2:alt_counts"].tolist()
    ((2, 12), [51.0, nan])
    """
    pd = _pandas("mutation_design")
    check_choice(deleted, "deleted", ("error", "missing"))
    df = pd.DataFrame(df)
    for other, name in SPELLINGS.items():
        if name not in df and other in df:
            df = df.rename(columns={other: name})
    if "tumour_content" not in df:
        df = df.assign(tumour_content=1.0)
    names = ("mutation_id", "sample_id", *FIELDS)
    absent = [name for name in names if name not in df]
    if absent:
        raise ValueError(f"the table of mutations has no column {', '.join(absent)}")
    if df.empty:
        raise ValueError("the table of mutations has no lines")
    for name in names[:2]:
        if df[name].isna().any():
            raise ValueError(f"the table of mutations has a line without {name}")
    twice = df.duplicated(["mutation_id", "sample_id"])
    if twice.any():
        raise ValueError(f"the table of mutations has two lines for {_line(df, twice)}")
    values = df[list(FIELDS)].astype(np.float64)
    gone = values["major_cn"] == 0
    if gone.any() and deleted == "error":
        raise ValueError(
            f"major_cn is 0 for {_line(df, gone)}: no copy is left to have the mutation; "
            'deleted="missing" takes such lines as not measured'
        )
    values[gone] = np.nan
    rows, mutations = pd.factorize(df["mutation_id"])
    columns, samples = pd.factorize(df["sample_id"])
    wide = np.full((len(mutations), len(samples), len(FIELDS)), np.nan)
    wide[rows, columns] = values
    return pd.DataFrame(
        wide.reshape(len(mutations), -1),
        index=pd.Index(mutations, name="mutation_id"),
        columns=[f"{sample}:{field}" for sample in samples for field in FIELDS],
    )


def mutation_table(model, X, *, min_prevalence=0.02):
    """Tell what a fitted model says of each mutation in each tumour sample.

    Parameters
    ----------
    model : DPMixture, FiniteMixture or FeatureAllocation
        Fitted with a PyClone likelihood.
    X : pandas.DataFrame or array-like of shape (n_samples, 6 * n_tumour_samples)
        The mutations that it was fitted to, in the same order. Names are those of
        `mutation_design`, samples as text; rows and samples without are numbered from 0.
    min_prevalence : float, default=0.02
        Of feature allocations: a clone counts where its prevalence is above that in some sample.
        Others are next to free to have, so that many mutations have them by chance, in one draw
        and not in the next.

    Returns
    -------
    table : pandas.DataFrame
        A line for each mutation and sample, with the columns

        - `mutation_id`, `sample_id`
        - `cluster_id`: of mixtures, `labels_`; of feature allocations, which mutations have the
          same clones in `allocations_`, numbered by decreasing size
        - `cellular_prevalence`, `cellular_prevalence_std`: posterior mean and standard deviation
          of the cluster's; of feature allocations, of the mean over its mutations
        - `cluster_assignment_prob`: how often, over draws, the mutation is together with another
          one of its cluster; alone, where it is its only one
        - `mutation_prevalence`, `mutation_prevalence_std`: the mutation's own, over all draws,
          whatever cluster it is in
        - `clones`, of feature allocations: the columns of `allocations_` that the mutation has,
          such as "0+2".

    Notes
    -----
    At most 500 draws, evenly spaced ones, are looked at.
    """
    pd = _pandas("mutation_table")
    min_prevalence = check_real(min_prevalence, "min_prevalence", low=0.0, closed=True)
    names = getattr(X, "columns", None)
    mutations = None if names is None else X.index
    if names is not None and list(names) != list(getattr(model, "feature_names_in_", names)):
        raise ValueError(
            "mutation_table needs the columns that the model was fitted to, in their order: those "
            "of mutation_design"
        )
    X = np.asarray(X, dtype=np.float64)
    is_mixture = hasattr(model, "label_samples_")
    if not is_mixture and not hasattr(model, "prevalence_samples_"):
        if hasattr(model, "labels_"):
            raise ValueError(
                "mutation_table needs label_samples_, which a fit has with store_labels=True and "
                "partial_fit has not"
            )
        raise ValueError(
            "mutation_table needs a fitted DPMixture, FiniteMixture or FeatureAllocation with a "
            f"PyClone or Subclones likelihood, got {model!r}"
        )
    n_samples = len(model.labels_ if is_mixture else model.allocations_)
    if X.shape != (n_samples, model.n_features_in_):
        raise ValueError(
            f"mutation_table needs the rows that the model was fitted to, ({n_samples}, "
            f"{model.n_features_in_}); X has shape {X.shape}"
        )
    if fingerprint(np.ascontiguousarray(X)) != model._data:
        raise ValueError(
            "mutation_table needs the mutations that the model was fitted to, in their order; "
            "others are in X"
        )
    n_tumours = X.shape[1] // len(FIELDS)
    mutations = np.arange(n_samples) if mutations is None else mutations
    samples = np.arange(n_tumours)
    if names is not None:
        samples = [str(name).rsplit(":", 1)[0] for name in names[:: len(FIELDS)]]
    summary = _of_mixture(model, X) if is_mixture else _of_features(model, min_prevalence)
    columns = {
        "mutation_id": np.repeat(mutations, n_tumours),
        "sample_id": np.tile(samples, n_samples),
    }
    for name, value in summary.items():
        wide = np.asarray(value)
        columns[name] = np.repeat(wide, n_tumours) if wide.ndim == 1 else wide.ravel()
    return pd.DataFrame(columns)


def _of_mixture(model, X):
    """Columns of the table: one value per mutation, or per mutation and sample."""
    likelihood, labels = model.likelihood_, model.labels_
    if "cellular_prevalence" not in model.cluster_params_:
        raise ValueError(f"mutation_table needs a PyClone likelihood, not {likelihood!r}")
    draws = model.label_samples_.reshape(-1, len(labels))
    draws = draws[_spaced(len(draws))].astype(np.intp)
    table = likelihood.table(X)
    total, squares = np.zeros((2, *table.shape[:2]))
    for z in draws:
        order = np.argsort(z, kind="stable")
        starts = np.flatnonzero(np.diff(z[order], prepend=-1))
        sums = np.add.reduceat(table[order], starts, axis=0)
        weights = np.exp(sums - sums.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        place = np.searchsorted(z[order][starts], z)
        total += (weights @ likelihood.grid)[place]
        squares += (weights @ likelihood.grid**2)[place]
    mean, std = _moments(total, squares, len(draws))
    return {
        "cluster_id": labels,
        "cellular_prevalence": model.cluster_params_["cellular_prevalence"][labels],
        "cellular_prevalence_std": model.cluster_params_["cellular_prevalence_std"][labels],
        "cluster_assignment_prob": label_probabilities(draws, labels),
        "mutation_prevalence": mean,
        "mutation_prevalence_std": std,
    }


def _of_features(model, min_prevalence):
    """The same. Of each draw, mutations with the same clones are a cluster."""
    kept = np.flatnonzero((model.prevalences_ > min_prevalence).any(axis=1))
    labels = relabel_by_size(_rows_alike(model.allocations_[:, kept]))
    pairs = [
        (Z, F)
        for chain in zip(model.allocation_samples_, model.prevalence_samples_, strict=True)
        for Z, F in zip(*chain, strict=True)
    ]
    pairs = [pairs[s] for s in _spaced(len(pairs))]
    sizes = np.bincount(labels)
    n_tumours = model.prevalences_.shape[1]
    total, squares = np.zeros((2, len(labels), n_tumours))
    cluster_total, cluster_squares = np.zeros((2, len(sizes), n_tumours))
    draws = []
    for Z, F in pairs:
        phi = Z @ F
        total += phi
        squares += phi**2
        means = np.zeros((len(sizes), n_tumours))
        np.add.at(means, labels, phi)
        means /= sizes[:, None]
        cluster_total += means
        cluster_squares += means**2
        draws.append(_rows_alike(Z[:, (F > min_prevalence).any(axis=1)]))
    mean, std = _moments(total, squares, len(pairs))
    cluster_mean, cluster_std = _moments(cluster_total, cluster_squares, len(pairs))
    return {
        "cluster_id": labels,
        "cellular_prevalence": cluster_mean[labels],
        "cellular_prevalence_std": cluster_std[labels],
        "cluster_assignment_prob": label_probabilities(draws, labels),
        "mutation_prevalence": mean,
        "mutation_prevalence_std": std,
        "clones": [
            "+".join(str(k) for k in kept if has[k]) for has in model.allocations_.astype(bool)
        ],
    }


def _spaced(n):
    """At most MOST_DRAWS of n, evenly spaced."""
    return np.linspace(0, n - 1, min(n, MOST_DRAWS)).astype(np.intp)


def _moments(total, squares, n):
    mean = total / n
    return mean, np.sqrt(np.maximum(squares / n - mean**2, 0.0))


def _rows_alike(Z):
    """Number the distinct rows: the number of each row's."""
    return np.unique(Z, axis=0, return_inverse=True)[1].ravel()


def _line(df, where):
    """The first line where `where` holds, in words."""
    line = df.loc[where, ["mutation_id", "sample_id"]].iloc[0]
    return f"mutation {line.iloc[0]} in sample {line.iloc[1]}"


def _pandas(who):
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"skdpm.mutations.{who} needs pandas: pip install pandas") from error
    return pandas
