# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of fits for ArviZ: an xarray.DataTree of groups, whose variables have the dimensions
chain and draw first. Only functions that are the same in arviz-base 0.8 and 1 are used."""

import numpy as np
import scipy.sparse

from skdpm._validation import is_dask
from skdpm.diagnostics import without_last_bits
from skdpm.draws import column_of


def datatree(estimator, X=None, log_likelihood=None):
    """Make the xarray.DataTree of a fitted estimator. X are the rows of the fit, unchecked;
    `log_likelihood` is a pair: numbers of draws, and an ndarray (n_chains, n_draws, n_samples)."""
    try:
        import arviz_base
        import xarray
    except ImportError as error:
        raise ImportError('to_datatree needs arviz-base: pip install "skdpm[arviz]"') from error

    draws = estimator.draws_
    n_features = estimator.n_features_in_
    columns = np.arange(n_features)
    if hasattr(estimator, "feature_names_in_"):
        columns = estimator.feature_names_in_.astype(str)
    parts = getattr(estimator.likelihood_, "columns_of_parts", dict)()
    parts = {part: columns[own] for part, own in parts.items()}

    def dataset(variables, dims, **kwargs):
        used = {dim for names in dims.values() for dim in names}
        known = {"column": columns, **{f"{part}_column": own for part, own in parts.items()}}
        coords = {dim: known[dim] for dim in known if dim in used}
        return arviz_base.dict_to_dataset(variables, coords=coords, dims=dims, **kwargs)

    posterior = {name: draws[name] for name in _parameters(estimator)}
    if "labels" in posterior:  # of all rows, where those of `draws` leave copies out
        posterior["labels"] = estimator.label_samples_
    dims = {
        name: _dims(name, values.shape[2:], n_features, parts)
        for name, values in posterior.items()
    }
    groups = {"posterior": dataset(posterior, dims)}
    sample_stats = dataset({"lp": without_last_bits(draws["log_joint"])}, {})
    rates = getattr(estimator, "acceptance_rate_", {})
    if rates:
        # A number per chain, without the dimension of draws.
        sample_stats = sample_stats.assign_coords(move=list(rates))
        sample_stats["acceptance_rate"] = (("chain", "move"), np.array(list(rates.values())).T)
    groups["sample_stats"] = sample_stats
    if log_likelihood is not None:
        numbers, values = log_likelihood
        group = dataset({"x": values}, {"x": ["row"]}, skip_event_dims=True)
        groups["log_likelihood"] = group.assign_coords(draw=numbers)
    if X is not None and not scipy.sparse.issparse(X) and not is_dask(X):
        observed = _observed(X)
        dims = {name: ["row", "column"][: values.ndim] for name, values in observed.items()}
        groups["observed_data"] = dataset(observed, dims, sample_dims=[])
    return xarray.DataTree.from_dict(groups)


def _parameters(estimator):
    """Names of the draws of parameters that are not fixed and have one shape."""
    draws = estimator.draws_
    fixed = {"log_joint"} if estimator.concentration is None else {"log_joint", "concentration"}
    learned = {column_of(name) for name in estimator.hyperparameter_samples_}
    fixed |= {name for name in draws if name.startswith(column_of("")) and name not in learned}
    return [name for name in draws if name not in fixed and not isinstance(draws[name], list)]


def _dims(name, shape, n_features, parts):
    """Names of the dimensions after chain and draw."""
    if name == "labels":
        return ["row"]
    column = "column"
    for part, own in parts.items():
        if name.startswith(f"likelihood__{part}__"):
            column, n_features = f"{part}_column", len(own)
    if shape == (n_features,):
        return [column]
    if shape == (n_features, n_features):
        return [column, f"other_{column}"]
    return [f"{name}_dim_{axis}" for axis in range(len(shape))]


def _observed(X):
    """Rows as variables: a matrix, or for a table with text a variable per column."""
    if not hasattr(X, "columns"):
        return {"x": np.asarray(X)}
    table = {str(name): _plain(X[name]) for name in X.columns}
    if all(values.dtype.kind in "biuf" for values in table.values()):
        return {"x": np.column_stack(list(table.values()))}
    return table


def _plain(column):
    """A column of a table as an array that can be stored: numbers (NaN if missing) or text."""
    values = np.asarray(column)
    if values.dtype != object:
        return values
    if getattr(column.dtype, "kind", "O") in "biuf":
        return np.asarray(column.astype("float64"))
    return np.array([str(value) for value in values])
