# SPDX-License-Identifier: BSD-3-Clause
"""Somatic mutations in tumour samples: conversion of tables, and the law of the reads.

In a sample, a mutation has d = a + b reads: a reference ones and b variant ones. Its cellular
prevalence phi is the share of cancer cells that have it, and the tumour content t is the share of
cancer cells in the sample. A genotype state gives the numbers c_N, c_R and c_V of copies of the
locus in normal cells, cancer cells without and cancer cells with the mutation, and the shares mu
of these copies that are variant::

    xi(phi) = [(1 - t) c_N mu_N + t (1 - phi) c_R mu_R + t phi c_V mu_V]
              / [(1 - t) c_N + t (1 - phi) c_R + t phi c_V],
    p(b | d, phi) = sum over states of pi Binomial(b | d, xi(phi)),

or of a beta-binomial with mean xi(phi) and precision s (Roth et al. 2014). A state without variant
or without reference copies has the error rate, or 1 minus it, for mu. The probabilities pi of the
states are equal or given (Bouchard-Cote et al. 2017, equations 36 and 37). In the mixture
likelihood `PyClone` the mutations of a cluster have the same phi; in the feature likelihood
`Subclones`, phi is the sum of the prevalences of the clones that have the mutation.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, logsumexp, softmax

from skdpm._validation import (
    check_choice,
    check_columns,
    check_counts,
    check_real,
    fingerprint,
    imported,
)
from skdpm.partitions import label_probabilities, relabel_by_size

__all__ = ["mutation_design", "mutation_table"]
__dir__ = __all__.copy

# Columns of X of each sample.
FIELDS = ("ref_counts", "alt_counts", "normal_cn", "minor_cn", "major_cn", "tumour_content")

# Other names of columns of the long table.
SPELLINGS = {"var_counts": "alt_counts", "tumor_content": "tumour_content"}
# Names of columns that may mean the tumour content.
SIMILAR = re.compile("tumou?r.?(content|fraction)|purity|cellularity|^acf$", re.IGNORECASE)

DENSITIES = ("binomial", "beta_binomial")
# Kinds of copies of a genotype: reference copies A and variant copies B.
GENOTYPES = {"A"}, {"B"}, {"A", "B"}
GENOTYPE_PRIORS = ("major_copy_number", "parental", "total")

# A mutation has up to two states per copy.
MOST_COPIES = 1000

# Subject of messages about X.
TABLE = "a table of mutations"

# Log densities are differences of numbers about 20 times as large as the number of reads. With
# this many reads they still have six digits after the point.
MOST_READS = 10**8

# Largest number of draws that `mutation_table` averages.
MOST_DRAWS = 500

# Probabilities below the ends of intervals.
ENDS = 0.025, 0.975

# Number of entries of a table of log likelihoods computed at a time.
CHUNK = 2**20


def states(normal_cn, minor_cn, major_cn, tumour_content, *, error_rate, genotype_prior):
    """List the genotype states of a mutation.

    At prevalence phi, the shares of variant and of reference reads are proportional to
    (1 - phi) p0 + phi p1 and (1 - phi) r0 + phi r1.

    - `normal_cn`, `minor_cn`, `major_cn`: int
    - `tumour_content`, `error_rate`: float
    - `genotype_prior`: str or dict, with equal or given probabilities. "major_copy_number": the
      mutation came before the number of copies changed and is on 1 to `major_cn` copies, or came
      after it and is on one. "parental": before, on `major_cn`, `minor_cn` or one copy, or after,
      on one. "total": before or after, on any number of copies.

    Returns `states`: (n_states, 5). p0, p1, r0, r1 of each distinct state, and the log of its
    probability over the mean one. Raises a ValueError if a dict has no entry for the numbers.
    """
    if isinstance(genotype_prior, Mapping):
        if (normal_cn, minor_cn, major_cn) not in genotype_prior:
            raise ValueError(
                f"genotype_prior has no entry for normal_cn {normal_cn}, minor_cn {minor_cn} and "
                f"major_cn {major_cn}: add {(normal_cn, minor_cn, major_cn)}"
            )
        weights = genotype_prior[normal_cn, minor_cn, major_cn]
        genotypes = [[(len(g), g.count("B")) for g in state] for state in weights]
    else:
        total = minor_cn + major_cn
        if genotype_prior == "major_copy_number":
            pairs = [(b, normal_cn) for b in range(1, major_cn + 1)] + [(1, total)]
        elif genotype_prior == "parental":
            pairs = [(b, normal_cn) for b in (major_cn, minor_cn, 1) if b > 0] + [(1, total)]
        else:
            pairs = [(b, c) for b in range(1, total + 1) for c in (normal_cn, total)]
        weights = dict.fromkeys(pairs, 1.0)
        genotypes = [[(normal_cn, 0), (c, 0), (total, b)] for b, c in weights]
    copies, variant = np.moveaxis(np.array(genotypes, dtype=np.float64), -1, 0)
    low, high = error_rate * copies, (1.0 - error_rate) * copies
    shares = [1.0 - tumour_content, tumour_content, tumour_content]
    reads = [  # variant and reference ones of each genotype, times copies
        np.select([n == 0.0, n == copies], [low, high], n) * shares
        for n in (variant, copies - variant)
    ]
    prior = np.array(list(weights.values()), dtype=np.float64)
    log_prior = np.log(prior / prior.mean())
    return np.column_stack([*(n[:, :1] + n[:, 1:] for n in reads), log_prior])


def check_params(likelihood):
    """Check `density`, `error_rate` and `genotype_prior` of a likelihood. Returns a dict."""
    name, prior = type(likelihood).__name__, likelihood.genotype_prior
    check_choice(likelihood.density, f"{name}.density", DENSITIES)
    if isinstance(prior, Mapping):
        _check_genotypes(prior, f"{name}.genotype_prior")
    else:
        check_choice(prior, f"{name}.genotype_prior", GENOTYPE_PRIORS)
    error_rate = check_real(likelihood.error_rate, f"{name}.error_rate", low=1e-100, high=0.5)
    return {"density": likelihood.density, "error_rate": error_rate, "genotype_prior": prior}


def _check_genotypes(genotype_prior, name):
    for numbers, weights in genotype_prior.items():
        if not (isinstance(numbers, tuple) and len(numbers) == 3):
            raise ValueError(
                f"{name} needs keys (normal_cn, minor_cn, major_cn), such as (2, 1, 1); "
                f"got {numbers!r}"
            )
        if not (isinstance(weights, Mapping) and weights and all(map(_is_state, weights))):
            raise ValueError(
                f"{name} needs a dict of weights of genotypes for {numbers}, such as "
                f'{{("AA", "AA", "AB"): 1.0, ("AA", "AA", "BB"): 0.5}}, the third with a variant '
                f"copy B; got {weights!r}"
            )
        for state, weight in weights.items():
            check_real(weight, f"{name}[{numbers}][{state}]", low=0.0)


def _is_state(state):
    three = isinstance(state, tuple) and len(state) == 3
    kinds = three and all(isinstance(g, str) and set(g) in GENOTYPES for g in state)
    return kinds and "B" in state[2]


def check_design(X):
    """Check X, an ndarray of shape (n_samples, 6 * n_tumour_samples). Raises ValueError naming the
    column and an invalid value."""
    if X.shape[1] % len(FIELDS):
        raise ValueError(
            f"{TABLE} needs {len(FIELDS)} columns for each tumour sample ({', '.join(FIELDS)}; "
            f"skdpm.mutations.mutation_design makes them); X has {X.shape[1]} columns"
        )
    cells = _cells(X)
    unread = np.isnan(cells[..., :2])
    missing = unread[..., 0]

    def check(bad, fields, what):
        everywhere = np.zeros(cells.shape, dtype=bool)
        everywhere[..., fields] = bad
        check_columns(X, everywhere.reshape(X.shape), f"{TABLE} needs {what}")

    one_only = unread & ~unread.all(axis=-1, keepdims=True)
    check(one_only, slice(2), "ref_counts and alt_counts, or NaN in both")
    counts = np.zeros(cells.shape)
    counts[..., :2] = np.where(unread, 0.0, cells[..., :2])
    check_counts(counts.reshape(X.shape), TABLE)
    check(counts > MOST_READS, slice(None), f"counts of at most {MOST_READS}")
    for field, low in ((2, 1), (3, 0), (4, 1)):
        value = cells[..., field]
        whole = (value >= low) & (value <= MOST_COPIES) & (value == np.floor(value))
        what = f"{FIELDS[field]} to be an integer from {low} to {MOST_COPIES}"
        check(~whole & ~missing, field, what)
    check((cells[..., 3] > cells[..., 4]) & ~missing, 3, "minor_cn of at most major_cn")
    t = cells[..., 5]
    check(~((t > 0.0) & (t <= 1.0)) & ~missing, 5, "tumour_content above 0 and at most 1")


def largest_depth(X):
    """Largest number of reads of a mutation in a sample, at least 1, of checked rows."""
    return max(1.0, np.nan_to_num(_cells(X)[..., :2].sum(axis=-1)).max(initial=1.0))


def encode(X, *, error_rate, genotype_prior):
    """Check rows of mutations and convert them to the form of the kernels.

    - `X`: (n_samples, 6 * n_tumour_samples)
    - `error_rate`, `genotype_prior`: Parameters of `states`.

    Returns a dict:

    - `ref_counts`, `alt_counts`: (n_samples, n_tumour_samples). 0 if missing.
    - `genotypes`: the same shape, intp. Genotype of a mutation in a sample. Genotype g has the
      states from `starts[g]` to `starts[g + 1]`; 0 has none: the mutation was not measured.
    - `starts`: (n_genotypes + 1,), intp
    - `states`: (n_states, 5)
    - `constants`: (n_samples, n_tumour_samples). Log of the binomial coefficient minus log of the
      number of states.
    """
    check_design(X)
    cells = _cells(X)
    a, b = np.moveaxis(np.nan_to_num(cells[..., :2]), -1, 0)
    measured = ~np.isnan(cells[..., 0])
    kinds, which = np.unique(cells[..., 2:][measured], axis=0, return_inverse=True)
    genotypes = np.zeros(a.shape, dtype=np.intp)
    genotypes[measured] = 1 + which.ravel()
    params = {"error_rate": error_rate, "genotype_prior": genotype_prior}
    table = [states(*map(int, copies), content, **params) for *copies, content in kinds]
    sizes = np.array([0, *map(len, table)])
    coefficients = gammaln(a + b + 1.0) - gammaln(a + 1.0) - gammaln(b + 1.0)
    return {
        "ref_counts": np.ascontiguousarray(a),
        "alt_counts": np.ascontiguousarray(b),
        "genotypes": genotypes,
        "starts": np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        "states": np.concatenate([np.empty((0, 5)), *table]),
        "constants": coefficients - np.log(np.maximum(sizes[genotypes], 1)),
    }


def log_likelihoods(data, prevalences, precision=None):
    """Compute log p(reads of a mutation in a sample | prevalence) at every point of a grid:
    (n_samples, n_tumour_samples, n_points). `data` is the result of `encode`, and `precision` that
    of the beta-binomial; None: binomial."""
    a, b = data["ref_counts"].ravel(), data["alt_counts"].ravel()
    genotypes = data["genotypes"].ravel()
    out = np.zeros((len(a), len(prevalences)))
    order = np.argsort(genotypes, kind="stable")
    stops = np.searchsorted(genotypes[order], np.arange(len(data["starts"])))
    for g in range(1, len(data["starts"]) - 1):
        found = data["states"][data["starts"][g] : data["starts"][g + 1]]
        p, r = expected_shares(found[:, None], prevalences)
        step = max(1, CHUNK // p.size)
        for first in range(stops[g], stops[g + 1], step):
            cells = order[first : min(first + step, stops[g + 1])]
            n_ref, n_alt = a[cells][:, None, None], b[cells][:, None, None]
            if precision is None:
                terms = n_alt * np.log(p) + n_ref * np.log(r)
            else:
                s, f = precision * p, precision * r
                terms = betaln(n_alt + s, n_ref + f) - betaln(s, f)
            out[cells] = logsumexp(terms + found[:, 4:], axis=1)
    out += data["constants"].ravel()[:, None]
    return out.reshape(*data["constants"].shape, -1)


def interval(weights, grid):
    """Ends of central 95 % intervals by `weights` (..., n_points) on a grid: two arrays."""
    below = np.cumsum(weights, axis=-1)
    below /= below[..., -1:]
    return [grid[(below < end).sum(axis=-1)] for end in ENDS]


def described(name, mean, std, ends):
    """Means, standard deviations and the two ends of intervals, as columns: dict."""
    return dict(
        zip((name, f"{name}_std", f"{name}_low", f"{name}_high"), (mean, std, *ends), strict=True)
    )


def expected_shares(states, prevalences):
    """Expected shares of variant and of reference reads in `states` of `encode`, (..., 5)."""
    p0, p1, r0, r1 = np.moveaxis(states[..., :4], -1, 0)
    p = (1.0 - prevalences) * p0 + prevalences * p1
    r = (1.0 - prevalences) * r0 + prevalences * r1
    return p / (p + r), r / (p + r)


def _cells(X):
    """X as an array of shape (n_samples, n_tumour_samples, n_fields)."""
    return X.reshape(len(X), X.shape[1] // len(FIELDS), len(FIELDS))


# Public functions.


def mutation_design(df, *, deleted: str = "error") -> Any:
    """Convert a long table of mutations into the wide one that estimators take.

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

    Parameters
    ----------
    df : pandas.DataFrame
        A line for each mutation in each tumour sample, with the columns that PyClone-VI reads:
        `mutation_id`, `sample_id`, `ref_counts`, `alt_counts` (or `var_counts`, as in PyClone),
        `normal_cn`, `minor_cn`, `major_cn` and, unless it is 1, `tumour_content` (or
        `tumor_content`). Other columns are ignored, including PyClone-VI's `error_rate`, which is
        a parameter of the likelihood.
    deleted : {"error", "missing"}, default="error"
        Treatment of lines with `major_cn` 0, which leaves no copy to have the mutation: raise an
        error, or take the mutation as not measured in that sample.

    Returns
    -------
    design : pandas.DataFrame
        A row for each mutation, in order of appearance, named by `mutation_id`; six columns for
        each sample: "T1:ref_counts", "T1:alt_counts", "T1:normal_cn", "T1:minor_cn",
        "T1:major_cn", "T1:tumour_content". A mutation without a line for a sample is kept, with
        NaN there.
    """
    pd = imported("pandas", "skdpm.mutations.mutation_design", "pandas")
    check_choice(deleted, "deleted", ("error", "missing"))
    df = pd.DataFrame(df)
    for other, name in SPELLINGS.items():
        if name not in df and other in df:
            df = df.rename(columns={other: name})
    if "tumour_content" not in df:
        similar = [name for name in df if SIMILAR.search(str(name))]
        if similar:
            raise ValueError(
                f"the table of mutations has no column tumour_content, but {similar[0]}: rename "
                "it if it is the share of cancer cells in the sample, or else drop it"
            )
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


def mutation_table(model, X, *, min_prevalence: float = 0.02) -> Any:
    """Summarise a fitted model for each mutation in each tumour sample.

    The table averages at most 500 evenly spaced draws.

    Parameters
    ----------
    model : DPMixture, FiniteMixture or FeatureAllocation
        Fitted with likelihood `PyClone` or `Subclones`.
    X : pandas.DataFrame or array-like of shape (n_samples, 6 * n_tumour_samples)
        Mutations that the model was fitted to, in the same order. Names are those of
        `mutation_design`, samples as text; without names, rows and samples are numbered from 0.
    min_prevalence : float, default=0.02
        Smallest prevalence, in any sample, of the clones of a feature allocation that are counted.
        Clones of almost no prevalence fit any mutation, so that many mutations have them by chance
        in some draws and not in others.

    Returns
    -------
    table : pandas.DataFrame
        A line for each mutation and sample, with the columns

        - `mutation_id`, `sample_id`
        - `cluster_id`: `labels_` of a mixture. In a feature allocation, mutations with the same
          clones in `allocations_` are a cluster; clusters are numbered by decreasing size
        - `cellular_prevalence`, `cellular_prevalence_std`: posterior mean and standard deviation
          of the cluster's prevalence; in a feature allocation, of the mean over its mutations
        - `cellular_prevalence_low`, `cellular_prevalence_high`: ends of its central 95 % interval
        - `cluster_assignment_prob`: mean over the other mutations of the cluster of the share of
          draws in which the mutation is together with them; for a cluster of one mutation, share
          of draws in which it is alone
        - `mutation_prevalence`, `mutation_prevalence_std`, `mutation_prevalence_low`,
          `mutation_prevalence_high`: the same of the mutation's prevalence, over all draws
        - `clones`, for feature allocations: the columns of `allocations_` that the mutation has,
          such as "0+2".
    """
    pd = imported("pandas", "skdpm.mutations.mutation_table", "pandas")
    min_prevalence = check_real(min_prevalence, "min_prevalence", low=0.0, closed=True)
    names = getattr(X, "columns", None)
    index = None if names is None else X.index
    if names is not None and list(names) != list(getattr(model, "feature_names_in_", names)):
        raise ValueError(
            "mutation_table needs the columns that the model was fitted to, in their order: pass "
            "the table of mutation_design"
        )
    X = np.asarray(X, dtype=np.float64)
    is_mixture = hasattr(model, "label_samples_")
    if not is_mixture and not hasattr(model, "prevalence_samples_"):
        raise ValueError(
            "mutation_table needs a fitted FeatureAllocation with a Subclones likelihood, or a "
            "fitted DPMixture or FiniteMixture with a PyClone likelihood and label_samples_ "
            f"(store_labels=True, and fit, not partial_fit); got {model!r}"
        )
    if fingerprint(np.ascontiguousarray(X)) != model._data:
        raise ValueError(
            "mutation_table needs the mutations that the model was fitted to, in their order; X "
            "differs from them"
        )
    n_samples, n_tumours = len(X), X.shape[1] // len(FIELDS)
    if names is None:
        index, samples = np.arange(n_samples), np.arange(n_tumours)
    else:
        samples = [str(name).rsplit(":", 1)[0] for name in names[:: len(FIELDS)]]
    summary = _of_mixture(model, X) if is_mixture else _of_features(model, min_prevalence)
    columns = {
        "mutation_id": np.repeat(index, n_tumours),
        "sample_id": np.tile(samples, n_samples),
    }
    for name, value in summary.items():
        wide = np.asarray(value)
        columns[name] = np.repeat(wide, n_tumours) if wide.ndim == 1 else wide.ravel()
    return pd.DataFrame(columns)


def _of_mixture(model, X):
    """Columns of the table, with a value per mutation or per mutation and sample: dict."""
    likelihood, labels = model.likelihood_, model._clusters
    if "cellular_prevalence" not in model.cluster_params_:
        raise ValueError(f"mutation_table needs a PyClone likelihood, not {likelihood!r}")
    draws = model.label_samples_.reshape(-1, len(labels))
    chosen = _spaced(len(draws))
    draws = draws[chosen].astype(np.intp)
    precisions = np.full(len(draws), None)
    if likelihood.learned:
        precisions = model.hyperparameter_samples_["precision"].ravel()[chosen]
    tables = {}  # by the precision that counts
    posterior = 0.0
    for z, precision in zip(draws, precisions, strict=True):
        at = likelihood if precision is None else likelihood.at({"precision": precision})
        if at.counted_precision not in tables:
            tables[at.counted_precision] = at.table(X)
        table = tables[at.counted_precision]
        order = np.argsort(z, kind="stable")
        starts = np.flatnonzero(np.diff(z[order], prepend=-1))
        sums = np.add.reduceat(table[order], starts, axis=0)
        posterior = posterior + softmax(sums, axis=2)[np.searchsorted(z[order][starts], z)]
    grid, posterior = likelihood.grid, posterior / len(draws)
    mean = posterior @ grid
    std = np.sqrt(np.maximum(posterior @ grid**2 - mean**2, 0.0))
    of_rows = described("mutation_prevalence", mean, std, interval(posterior, grid))
    names = [name for name in model.cluster_params_ if name.startswith("cellular_prevalence")]
    return {
        "cluster_id": labels,
        **{name: model.cluster_params_[name][labels] for name in names},
        "cluster_assignment_prob": label_probabilities(draws, labels),
        **of_rows,
    }


def _of_features(model, min_prevalence):
    """The same columns. In each draw, mutations with the same clones are a cluster."""
    kept = np.flatnonzero((model.prevalences_ > min_prevalence).any(axis=1))
    labels = relabel_by_size(_rows_alike(model.allocations_[:, kept]))
    pairs = [
        (Z, F)
        for chain in zip(model.allocation_samples_, model.prevalence_samples_, strict=True)
        for Z, F in zip(*chain, strict=True)
    ]
    pairs = [pairs[s] for s in _spaced(len(pairs))]
    prevalences = np.array([Z @ F for Z, F in pairs])
    shares = np.eye(labels.max() + 1)[labels] / np.bincount(labels)  # of mutations in clusters
    means = shares.T @ prevalences
    draws = [_rows_alike(Z[:, (F > min_prevalence).any(axis=1)]) for Z, F in pairs]
    return {
        "cluster_id": labels,
        **{name: value[labels] for name, value in _summary("cellular_prevalence", means).items()},
        "cluster_assignment_prob": label_probabilities(draws, labels),
        **_summary("mutation_prevalence", prevalences),
        "clones": [
            "+".join(str(k) for k in kept if has[k]) for has in model.allocations_.astype(bool)
        ],
    }


def _spaced(n):
    """Positions of at most MOST_DRAWS of n draws, evenly spaced."""
    return np.linspace(0, n - 1, min(n, MOST_DRAWS)).astype(np.intp)


def _summary(name, draws):
    """Columns about draws, (n_draws, ...): mean, standard deviation and ends of the interval."""
    ends = np.quantile(draws, ENDS, axis=0)
    return described(name, draws.mean(axis=0), draws.std(axis=0), ends)


def _rows_alike(Z):
    return np.unique(Z, axis=0, return_inverse=True)[1].ravel()


def _line(df, chosen):
    line = df.loc[chosen, ["mutation_id", "sample_id"]].iloc[0]
    return f"mutation {line.iloc[0]} in sample {line.iloc[1]}"
