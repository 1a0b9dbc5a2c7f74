"""Examples of likelihoods and clusters of their items, for the laws that kernels obey."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from hypothesis import strategies as st
from reference import likelihoods as reference

from skdpm.mixture.likelihoods import LIKELIHOODS, Product, Subspace
from support.designs import thirds
from support.examples import examples_of
from support.kernels import bind
from support.probes import Probe

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=settings.default.max_examples // 5)


class Case:
    """One example of a likelihood, resolved on its data."""

    def __init__(self, likelihood, X):
        self.likelihood, self.X = likelihood.resolve(X), X
        self.fitted = X
        self.n = X.shape[0]
        self.data = self.likelihood.encode(X)

    def probe(self, n_slots=6):
        return Probe(bind(self.likelihood, self.data, self.n), n_slots)


def _number_of(name, params):
    """The number of a likelihood's first example with these parameters."""
    for number, (likelihood, _) in enumerate(examples_of(LIKELIHOODS[name])):
        if params.items() <= likelihood.get_params(deep=False).items():
            return number
    raise ValueError(f"no example of {name} has {params}")


# Besides the first examples of likelihoods: those of other covariances, and with degrees.
OTHER_EVERYDAY = [
    f"{name}{_number_of(name, params)}"
    for name, params in [
        ("gaussian", {"covariance_type": "diag"}),
        ("gaussian", {"covariance_type": "spherical"}),
        ("gaussian", {"covariance_type": "tied"}),
        ("gaussian", {"covariance_type": "sparse"}),
        ("relational", {"directed": False, "degree_correction": True, "weights": None}),
    ]
] + ["relational6"]  # with weights of links


def example(name, number, *values):
    """An entry for `pytest.mark.parametrize`: slow unless it is the first of a likelihood, or of
    one of its structures."""
    name = f"{name}{number}"
    is_slow = number > 0 and name not in OTHER_EVERYDAY
    return pytest.param(*values, id=name, marks=[pytest.mark.slow] * is_slow)


def cases(coupled):
    return list(_iterate_cases(coupled))


def _iterate_cases(coupled):
    for name, cls in LIKELIHOODS.items():
        for number, (likelihood, X) in enumerate(examples_of(cls)):
            if ("product" not in likelihood.capabilities) == coupled:
                yield example(name, number, Case(likelihood, X))


every_product = thirds("case", cases(coupled=False))
every_coupled = pytest.mark.parametrize("case", cases(coupled=True))


def assert_equal(actual, desired, *, rtol=1e-10, atol=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def random_subsets(rng, n, n_sets):
    """Disjoint sets of items, none of them empty; the last items are in none."""
    items = rng.permutation(n)
    cuts = np.sort(rng.choice(np.arange(1, n - 1), size=n_sets, replace=False))
    return np.split(items[: cuts[-1]], cuts[:-1])


def fill(probe, items, *, slot=None):
    """A cluster with these items in a slot that has been used before."""
    if slot is None:
        slot = probe.acquire()
        for i in items[::-1]:
            probe.add(slot, i)
        if len(items) > 1:
            probe.remove(slot, items[-1])
        probe.release(slot)
        assert probe.acquire() == slot
    for i in items:
        probe.add(slot, i)
    return slot


def log_marginal(probe, slot, items):
    """log p(items), which are those of the slot, with the constants of the kernel."""
    constants = probe.model.log_constants
    total = probe.log_marginal(slot)
    return total if constants is None else total + constants[np.asarray(items, np.intp)].sum()


def densities(case, probe, slots):
    """All that a row says, cached terms included, as far as it can be observed."""
    slots = np.asarray(slots, dtype=np.intp)
    return np.concatenate(
        [[probe.log_marginal(k) for k in slots]]
        + [probe.log_predictive_many(slots, i) for i in range(case.n)]
    )


def numbers_of(likelihood):
    """Parameters as the reference takes them, which knows no hyperpriors and no tails (for these
    see test_tails.py): dict."""
    params = likelihood.get_params(deep=False)
    for name in ("hyperpriors", "tails", "reads_numbers"):
        params.pop(name, None)
    if params.get("weights") is not None:  # of links
        names = {"Gaussian": "gaussian_diag", "NegativeBinomial": "negative_binomial"}
        of_weights = numbers_of(params["weights"])
        for name in ("covariance_type", "n_parents"):
            of_weights.pop(name, None)
        params["weights"] = names[type(params["weights"]).__name__], of_weights
    if params.get("covariance_type") == "sparse":
        rows = {int(d): likelihood.parents_[d] for d in likelihood._order}
        params["parents"] = {d: list(row[row >= 0]) for d, row in rows.items()}
    if hasattr(likelihood, "layers"):
        # A learned precision counts as the nearest layer.
        nearest = np.abs(np.log(likelihood.layers / params["precision"])).argmin()
        params["precision"] = float(likelihood.layers[nearest])
    return params


def log_reference(case, items):
    """log p(items form one cluster), from the reference."""
    likelihood, X = case.likelihood, case.X
    X = X.toarray() if sp.issparse(X) else X
    hyper = numbers_of(likelihood)
    return reference_of(likelihood, case.fitted)(X[items], **hyper)


def reference_of(likelihood, fitted):
    """The reference's log marginal of a likelihood resolved on some rows."""
    if isinstance(likelihood, Product):
        return partial(log_marginal_product, likelihood)
    if isinstance(likelihood, Subspace):
        return partial(reference.log_marginal_subspace, X_fit=fitted)
    return reference.LOG_MARGINALS[name_of(likelihood)]


def name_of(likelihood):
    """The name of the law of a likelihood in `reference`."""
    return {cls: name for name, cls in LIKELIHOODS.items()}[type(likelihood)]


def log_marginal_product(likelihood, X, **hyper):
    """That of a `Product`, of whose parameters the reference knows no objects."""
    parts = [(name_of(part), columns, numbers_of(part)) for _, part, columns in hyper["parts"]]
    return reference.log_marginal_product(X, parts=parts)
