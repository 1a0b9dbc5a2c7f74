# SPDX-License-Identifier: BSD-3-Clause
"""The likelihoods that `likelihood="auto"` and `likelihood="mixed"` choose by the columns of X."""

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from skdpm._rows import given_rows
from skdpm._tables import NUMBERS, CodeFor, Table, as_table, listed
from skdpm._validation import given_shape, has_nan, is_dask, warn
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.composite.check_up import (
    ONE_HOT,
    check_up,
    columns_of,
    fill_of,
    names_of,
)
from skdpm.mixture.likelihoods.composite.derived import products_among, sums_among
from skdpm.mixture.likelihoods.composite.discrete import (
    ENOUGH_ROWS,
    Numbers,
    columns_of_codes,
    columns_of_kinds,
    may_be_discrete,
)
from skdpm.mixture.likelihoods.composite.product import Product
from skdpm.mixture.likelihoods.counts.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.counts.categorical import Categorical
from skdpm.mixture.likelihoods.counts.multinomial import Multinomial
from skdpm.mixture.likelihoods.counts.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian
from skdpm.mixture.likelihoods.laws.columns import SLIGHTLY_SKEWED, doubtful_columns, words_about
from skdpm.mixture.likelihoods.subspace.subspace import Subspace

# Number of columns from which on `likelihood="auto"` chooses between laws by their held-out
# densities. With fewer columns it is `Gaussian`.
MANY_COLUMNS = 8
# Full covariances are among these laws up to MOST_FULL columns, or rows times squared columns; if
# rows are few or laws are not compared, up to ALWAYS_FULL columns.
ALWAYS_FULL, MOST_FULL, MOST_WORK = 32, 64, 2e7
# Laws of rows fewer than twice the columns, or than FEW_ROWS, let means of clusters be equal. With
# rows fewer than many columns the diagonal one expects as much variance inside clusters as in all
# rows. Otherwise each column of noise makes it more probable that every row is a cluster.
FEW_ROWS = 50
MEANS_ALIKE = {"mean_precision": Gamma(0.5, 0.005)}
ALIKE = {**MEANS_ALIKE, "scale": Gamma(0.5, 0.25)}

# Name and class of the parts, by the kind of their columns.
PARTS = {
    "float": ("numeric", Gaussian),
    "bool": ("boolean", Bernoulli),
    "category": ("categorical", Categorical),
    "count": ("counts", NegativeBinomial),
}


class Automatic(Gaussian):
    """ "auto". Its tags, before columns are known, hold for `Gaussian` and for `Subspace`."""

    n_errors = 2.0  # by which another law must be better than the first one

    def for_columns(self, X):
        return _laws_of_numbers(X)[0]

    def for_batch(self, X):
        # A batch contains too little information about principal axes.
        return Gaussian().keeping_columns()

    def suits_blocks(self, n_samples, n_features):
        return _laws_of_shape(n_samples, n_features)[0].suits_blocks(n_samples, n_features)


def laws_for(X):
    """Laws among which "auto" chooses for these rows: list of Likelihood. The first is preferred.
    Of chunks of rows that are not in memory the number of columns alone decides."""
    table = _unless_measured(X)
    if table is None:
        return _laws_of_numbers(X)
    columns = [table.column(d, reads_numbers=True) for d in range(table.shape[1])]
    columns = Numbers({d: column for d, column in enumerate(columns) if column.kind in NUMBERS})
    if len(columns) < table.shape[1]:
        return _laws_of_numbers(X)  # which refuse X
    products = products_among(columns.some_rows(columns))
    for d in products:
        del columns[d]
    codes, copies = columns_of_codes(columns)
    declared = [d for d in columns if table.column(d).categories is not None]
    # Ordered ones, as answers on a scale, may be numbers.
    declared = [d for d in declared if not getattr(table.native(d).dtype, "ordered", False)]
    codes, copies = sorted({*codes, *declared}), [d for d in copies if d not in declared]
    answers, counts, follow = columns_of_kinds(columns, [*codes, *copies])
    counts = [d for d in counts if d not in declared]
    codes, copies = [[d for d in own if d not in counts] for own in (codes, copies)]
    if table.shape[1] <= ALWAYS_FULL and set(columns).difference(codes, copies, answers, counts):
        # Normal clusters divide by columns of two values, whatever other columns say.
        codes = sorted({*codes, *(d for d in answers if len(columns.levels[d][0]) == 2)})
        answers = [d for d in answers if d not in codes]
    others = [d for d in range(table.shape[1]) if d not in {*codes, *copies, *products}]
    laws = _laws_of_numbers(X, len(others))
    if codes or products:
        laws = [_law_of_parts(table, law, others, codes, (), products) for law in laws]
    if answers or counts:
        discrete = [*codes, *answers, *counts]
        numbers = [d for d in others if d in columns and d not in {*discrete, *follow}]
        follow += [*copies, *products, *sums_among(numbers, columns, discrete)]
        others = [d for d in others if d not in {*discrete, *follow}]
        law = _laws_of_shape(table.shape[0], len(others))[0]
        laws.append(_law_of_parts(table, law, others, sorted([*codes, *answers]), counts, follow))
    return laws


def _law_of_parts(table, law, numbers, categories, counts=(), follow=()):
    """A law of numbers, of categories and of counts: a `Product` if there are several, or columns
    in none, which follow from others."""
    parts = (
        ("numeric", law, numbers),
        ("categorical", Categorical(reads_numbers=True), categories),
        ("counts", NegativeBinomial(), counts),
    )
    parts = [part for part in parts if len(part[2])]
    return (Product(parts) if len(parts) > 1 or follow else parts[0][1]).for_columns(table)


def _laws_of_numbers(X, n_columns=None):
    shape = (*given_shape(X), 1, 1)[:2] if n_columns is None else (given_shape(X)[0], n_columns)
    if is_dask(X):
        return [Subspace() if shape[1] > ALWAYS_FULL else Gaussian()]
    laws = _laws_of_shape(*shape)
    if laws[0].suits_blocks(*shape):
        # Many rows need a law whose sampler visits them in blocks.
        laws = [law for law in laws if law.suits_blocks(*shape)]
    if len(laws) > 1 and has_nan(X):
        laws = [law for law in laws if law.allow_nan]
    return laws


def _laws_of_shape(n_samples, n_features):
    full, diagonal, subspace = Gaussian(), Gaussian(covariance_type="diag"), Subspace()
    tied = Gaussian(covariance_type="tied")
    if n_features < MANY_COLUMNS:
        return [full]
    # Fewer rows do not determine the covariances of two clusters, along axes or of columns.
    more = [subspace] if n_features > subspace.n_axes <= n_samples / 3 else []
    if more and n_features > MOST_FULL and n_samples * n_features**2 > MOST_WORK:
        return [*more, diagonal]
    if n_samples < max(2 * n_features, FEW_ROWS):
        full.hyperpriors = diagonal.hyperpriors = tied.hyperpriors = dict(MEANS_ALIKE)
    if n_features > max(n_samples, ALWAYS_FULL):
        diagonal.hyperpriors = dict(ALIKE)
    if n_samples >= 2 * n_features:
        return [full, diagonal, *more, tied]
    return [diagonal, *more] if n_features > ALWAYS_FULL else [diagonal, full, *more]


def _unless_measured(X):
    """The table of rows in memory; None if all columns are measurements, and none is a product of
    others."""
    rows = given_rows(X)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2:
        if not any(map(may_be_discrete, rows[:ENOUGH_ROWS].T)):
            step = -(-len(rows) // ENOUGH_ROWS) or 1  # a random order of all rows takes memory
            if not products_among(rows[::step]):
                return None  # without a copy of many rows
    return None if is_dask(X) else as_table(rows, numbers=True)


def laws_by_name(asked, bound, X):
    """Laws among which short fits choose, if "auto" or "mixed" was asked for: dict from names to
    Likelihood, the preferred one first. `bound` is what was asked for, with the columns of X."""
    if isinstance(asked, Automatic):
        return {_name_of(law): law for law in laws_for(X)}
    is_table = len(given_shape(X)) == 2  # otherwise the check of X raises an error
    found = bound._bound() if isinstance(asked, Mixed) and is_table else []
    return {
        f"{name}: {law!r}": bound._with(lambda at, was, new=law, to=name: new if at == to else was)
        for name, part, own in found
        if isinstance(part, Gaussian) and _may_covary(bound, own, X)
        for law in (Gaussian(), part)
    }


def _name_of(law):
    """Code of a law; of several, with their numbers of columns."""
    words = [f"{part!r} of {len(own)} columns" for part, own in law.by_columns(0)]
    return " and ".join(words) if isinstance(law, Product) else repr(law)


def _may_covary(product, positions, X):
    """Whether the part of the columns at `positions` can have covariances: the rows determine
    them, and the sampler draws missing entries."""
    n_rows, columns = (*given_shape(X), 1)[0], columns_of(X)
    if is_dask(X) or not 2 <= len(positions) <= min(ALWAYS_FULL, n_rows // 2):
        return False
    have_gaps = any(columns[d].gaps.any() for d in positions)
    # Samplers of rows in blocks cannot draw missing entries.
    return not (have_gaps and product.suits_blocks(n_rows, len(columns)))


class Mixed(Product):
    """ "mixed": a likelihood for each type of column."""

    n_errors = 1.0  # covariances of few independent columns cost little

    def __init__(self):
        super().__init__([(*_part(kind), []) for kind in ("float", "bool", "category")])

    def get_params(self, deep=True):
        return {}

    def for_columns(self, X):
        """The `Product` for the columns of X. Raises ValueError if the types of columns do not
        determine their likelihoods, and warns of floats without fractions."""
        findings = check_up(X)
        product = _of_findings(X, findings)
        # Covariances describe copies of numbers.
        described = "float" if laws_by_name(self, product, X) else None
        copies = [found.is_copy and found.type != described for found in findings]
        one_hot = [found.words == ONE_HOT and found.type == "bool" for found in findings]
        twice = "columns of X follow from others and count twice, which divides clusters"
        takes = 'likelihood="mixed" takes these columns of X as'
        ways = "\nskdpm.suggest_likelihood(X) returns a Product with other likelihoods for them"
        doubtful = [found.is_doubtful and found.type for found in findings]
        for chosen, words, advice in (
            (copies, f"{twice}: leave them out", ""),
            ([kind == "float" for kind in doubtful], f"{takes} measurements:", ways),
            (one_hot, f"{takes} independent flags, and each may be a cluster:", ways),
            ([kind == "category" for kind in doubtful], f"{takes} categories:", ""),
        ):
            if any(chosen):
                warn(f"{words}{_report(X, findings, chosen)}{advice}")
        return product

    def for_batch(self, X):
        """See `Likelihood`. Later rows may repeat categories of a batch, and vary in constants."""
        return _of_findings(X, check_up(X, batch=True)).keeping_columns()


def suggest_likelihood(X) -> Product:
    """Suggest a likelihood for a table with columns of several kinds.

    >>> import warnings
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpm import suggest_likelihood
    >>> rng = np.random.default_rng(0)
    >>> guests = pd.DataFrame({
    ...     "guest": [f"G{i:04}" for i in range(60)],
    ...     "price": rng.normal(90.0, 15.0, 60),
    ...     "nights": rng.poisson(4.0, 60),
    ...     "meal": rng.choice(["none", "breakfast"], 60),
    ... })
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     suggest_likelihood(guests)
    Product([
        ('numeric', Gaussian(covariance_type='diag'), ['price']),
        ('categorical', Categorical(), ['meal']),
        ('counts', NegativeBinomial(), ['nights']),
    ])

    Columns are judged by their types and values. Its answer is a start: edit it where you know
    more. It also answers where ``likelihood="mixed"`` refuses to guess, as for whole numbers.

    Whole numbers, also as floats with missing entries, are codes of categories if they have two
    different values or lie between 1 and 7. Otherwise they are counts if they begin at 0 or 1 and
    stay below 10,000, and measurements if not. 0 and 1 are "boolean".

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_samples, n_features)
        Rows for `fit`.

    Returns
    -------
    likelihood : Product
        Parts "numeric" (`Gaussian`, for 2 to 32 columns with two rows for each with covariances),
        "boolean" (`Bernoulli`), "categorical" (`Categorical`), "counts" (`NegativeBinomial`) and,
        for one-hot codes, "one_hot_1", ... (`Multinomial`), as far as X has columns for them. Its
        repr is Python code.

    Warns
    -----
    UserWarning
        About columns that are left out (identifiers, times, text, constants, and what follows from
        another column), whole numbers, one-hot codes, measurements of two values, skewed amounts,
        numbers in strings, and marks of missing entries or other values of many rows, with lines
        of code.
    """
    X = given_rows(X)
    if not (isinstance(X, Table) or is_dask(X) or sp.issparse(X)):
        X = check_array(X, dtype=None, ensure_all_finite=False)
    findings = check_up(X)
    report, product = _report(X, findings), _proposal(X, findings)
    if product is None:
        raise ValueError(f"no column of X suits a likelihood:{report or ' X has no columns'}")
    if report:
        warn(f"look at these columns of X before you fit the likelihood:{report}")
    return product


def _report(X, findings, chosen=None):
    """A line for each remarkable group of columns, of those that are chosen; None: of all, also
    about those that are skewed or have marks of missing entries or a value of many rows."""
    names, columns, groups = names_of(X), columns_of(X), {}
    for d, finding in enumerate(findings):
        words = finding.words
        if words and finding.kind is not None:
            words += f"; {type(_part(finding.kind)[1]).__name__} is proposed"
        if words and (chosen is None or chosen[d]):
            groups.setdefault((words, finding.form), []).append(d)
    lines = []
    for (words, form), own in groups.items():
        if form is not None:
            words += f"; to make numbers of them: {CodeFor(X, names).with_numbers(own, form)}"
        lines.append(f"{listed(own, names)}: {words}")
    if chosen is None and columns:
        used = {d: columns[d] for d, finding in enumerate(findings) if finding.kind is not None}
        fills = {d: fill for d, column in used.items() if (fill := fill_of(column))}
        values = np.zeros((len(columns[0].values), len(columns)))
        for d, column in used.items():
            if findings[d].kind == "float":
                values[:, d] = column.values
        found = doubtful_columns(values, SLIGHTLY_SKEWED, {}) | fills
        lines += [words_about(found, X, values, names, "\n- ")] if found else []
    return "".join(f"\n- {line}" for line in lines)


def _proposal(X, findings):
    """The `Product` that the findings propose; None without columns."""
    names = names_of(X) or range(len(findings))
    parts = _parts(names, [finding.kind for finding in findings])
    product = Product(parts) if parts else None
    numeric = [d for d, finding in enumerate(findings) if finding.kind == "float"]
    if _may_covary(product, numeric, X):
        product.set_params(numeric=Gaussian())
    return product


def _of_findings(X, findings):
    """The `Product` by the types of the columns. Raises ValueError if columns are refused."""
    if any(finding.refused for finding in findings):
        product = _proposal(X, findings)
        paste = ""
        if product is not None:
            used = sorted({type(likelihood).__name__ for _, likelihood, _ in product.parts})
            paste = (
                "\nPass a Product instead. This one is a start, which skdpm.suggest_likelihood(X) "
                "returns, too; it leaves out what cannot be used:\n"
                f"from skdpm.mixture.likelihoods import {', '.join(used)}, Product\n"
                f"likelihood = {product!r}"
            )
        raise ValueError(
            'likelihood="mixed" does not guess what columns of X mean:'
            f"{_report(X, findings)}{paste}"
        )
    parts = _parts(range(len(findings)), [finding.type for finding in findings])
    return Product(parts or [(*_part("float"), [])]).for_columns(X)


def _parts(names, kinds):
    """Parts with the columns of these names, of these kinds."""
    pairs = [*zip(names, kinds, strict=True)]
    kinds = dict.fromkeys([*PARTS, *(kind for kind in kinds if kind)])
    columns = {kind: [name for name, own in pairs if own == kind] for kind in kinds}
    return [(*_part(kind), chosen) for kind, chosen in columns.items() if chosen]


def _part(kind):
    name, cls = PARTS.get(kind, (kind, Multinomial))
    return name, cls(covariance_type="diag") if cls is Gaussian else cls()
