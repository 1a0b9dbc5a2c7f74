# SPDX-License-Identifier: BSD-3-Clause
"""Networks as matrices with names: from graphs of networkx, or lists of links."""

import itertools
from numbers import Number

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from skdpm._tables import Table, filled_table, is_frame, refuse_repeated_names, without_marks
from skdpm._validation import check_bool, check_columns, fingerprint

__all__ = ["adjacency"]
__dir__ = __all__.copy


class Adjacency(sp.csr_array):
    """Matrix of the links of a network: a CSR array with `nodes`, the list of the objects that its
    rows and columns stand for. Slices and products of it have no nodes: None. `lacks_weights` says
    whether it is of a graph whose links differ in the attribute "weight", which was left out."""

    nodes = None
    lacks_weights = False

    def _with_data(self, *args, **kwargs):  # for copy and astype
        X = super()._with_data(*args, **kwargs)
        X.nodes = self.nodes
        return X


def is_graph(X):
    """Whether X has the attributes of a graph of networkx, which is not imported."""
    return all(hasattr(X, name) for name in ("adj", "edges", "is_directed", "is_multigraph"))


def adjacency(links, *, directed=False, weight=None, count=None, nodes=None) -> Adjacency:
    """Matrix of a network, with its nodes, from a graph or a list of links.

    >>> from skdpm.networks import adjacency
    >>> X = adjacency([("Ann", "Bob"), ("Ann", "Cem"), ("Bob", "Dot")])
    >>> X.nodes
    ['Ann', 'Bob', 'Cem', 'Dot']
    >>> X.toarray()
    array([[0., 1., 1., 0.],
           [1., 0., 0., 1.],
           [1., 0., 0., 0.],
           [0., 1., 0., 0.]])

    Estimators take this matrix, with the nodes as names of its rows and columns. They take a graph
    of networkx as `adjacency(graph)`, without weights.

    Parameters
    ----------
    links : graph of networkx, DataFrame, or sequence of tuples
        A graph; a data frame whose first two columns, without that of weights, are the nodes of
        each link; pairs of nodes; or a data frame that is a matrix, with the same names of columns
        as in its index or first column. Nodes are hashable objects.
    directed : bool, default=False
        Whether links go from the first node to the second. A graph knows this itself.
    weight : object, default=None
        Attribute of the links of a graph, name of a column of a data frame, or 2 for the third
        entry of tuples. Weights of repeated links are added; NaN or None marks an unobserved pair.
        None: a link is 1.
    count : bool, default=None
        Whether a link listed k times, without weights, is k, not 1. None: in multigraphs only.
    nodes : sequence, default=None
        All nodes, in the order of rows. None: those of a graph in its order, or those of a list by
        first appearance.

    Returns
    -------
    X : CSR array of shape (n_nodes, n_nodes)
        Links from the node of a row to that of a column, with the attribute `nodes`, a list.
    """
    directed = check_bool(directed, "directed")
    count = None if count is None else check_bool(count, "count")
    if is_graph(links):
        directed = links.is_directed()
        count = links.is_multigraph() if count is None else count
        nodes = list(links) if nodes is None else nodes
    elif is_frame(links) and weight is None and (matrix := _named_matrix(links)) is not None:
        names, links = matrix
        nodes, directed, weight = names if nodes is None else nodes, True, 2
    first, second, *weights = map(without_marks, _entries(links, weight))
    if None in first or None in second:
        raise ValueError("a link lacks a node; drop it, and list nodes without links in nodes")
    ends = itertools.chain.from_iterable(zip(first, second, strict=True))
    nodes = list(dict.fromkeys(ends) if nodes is None else nodes)
    number = {node: i for i, node in enumerate(nodes)}
    if len(number) < len(nodes):
        raise ValueError("nodes contains a node twice")
    try:
        i, j = (np.array([number[node] for node in side], int) for side in (first, second))
    except KeyError as error:
        raise ValueError(f"nodes lacks {error.args[0]!r}, which has a link") from None
    try:
        values = np.ones(len(i)) if weight is None else weights[0].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weight={weight!r} must hold numbers or None: {error}") from None
    if np.isinf(values).any():
        raise ValueError("a weight is infinite; use None for pairs that were not observed")
    if not directed:
        back = i != j
        i, j, values = np.r_[i, j[back]], np.r_[j, i[back]], np.r_[values, values[back]]
    X = Adjacency((values, (i, j)), shape=(len(nodes), len(nodes)))
    X.sum_duplicates()
    if weight is None and not count:
        X.data[:] = 1.0
    X.nodes = nodes
    return X


def network_of(graph):
    """The `Adjacency` of a graph that a user passed to an estimator."""
    X = adjacency(graph)
    weights = (weight for *_, weight in graph.edges(data="weight"))
    found = {w if isinstance(w, (Number, str)) and w == w else None for w in weights}
    X.lacks_weights = len(found) > 1  # NaN and arrays are no weights
    return X


def _named_matrix(links):
    """Names and links, triples, of a data frame that is a matrix with names; None if it is a list.
    Raises ValueError if it may be either."""
    refuse_repeated_names(links)
    frame = nw.from_native(links, eager_only=True)
    names, index = list(frame.columns), list(getattr(links, "index", []))
    if frame.shape[1] == len(frame) + 1 and frame[:, 0].to_list() == names[1:]:
        index = names = names[1:]
        frame = frame[:, 1:]
    is_named = names != list(range(len(names)))
    if is_named and len(index) and (set(index) < set(names) or set(names) < set(index)):
        single = next(name for name in (*names, *index) if (name in names) != (name in index))
        raise ValueError(
            "a matrix of links needs the same names in index and columns; "
            f"{single!r} is in one of them only"
        )
    if is_named and set(names) == set(index):
        X = Table(links).take(np.arange(links.shape[1] - len(names), links.shape[1])).numbers()
        return index, [(index[i], names[j], X[i, j]) for i, j in zip(*np.nonzero(X), strict=True)]
    values = [dtype.is_numeric() or dtype == nw.Boolean for dtype in frame.schema.values()]
    if len(names) != len(frame) or not all(values):
        return None
    if len(names) > 3 or set(names) == set(index):
        raise ValueError(
            "links may be a matrix or a list of links: give a matrix the names of its nodes as "
            "index and columns, or pass it to fit; of a list keep two columns of nodes, with names"
        )
    return None


def _entries(links, weight):
    """First and second nodes of links, and with `weight` weights: list of object arrays."""
    n_entries = 2 if weight is None else 3
    if is_graph(links):
        rows = list(links.edges(data=True))
        if weight is not None and not all(weight in found for *_, found in rows):
            raise ValueError(f"a link of the graph has no attribute {weight!r}")
        rows = [(a, b, found.get(weight))[:n_entries] for a, b, found in rows]
    elif is_frame(links):
        frame = nw.from_native(links, eager_only=True)
        names = list(frame.columns)
        if weight not in (None, *names):
            raise ValueError(f"weight must be a column of links, got {weight!r}")
        ends = [d for d, name in enumerate(names) if weight is None or name != weight][:2]
        at = ends if weight is None else [*ends, names.index(weight)]
        rows = frame[:, at].rows()
    else:
        shape = getattr(links, "shape", ())
        if sp.issparse(links) or (len(shape) == 2 and shape[0] == shape[1] > 3):
            raise ValueError("links is a matrix of links already; pass it to fit as it is")
        if weight not in (None, 2):
            raise ValueError(f"weight must be None or 2 if links are tuples, got {weight!r}")
        rows = links.tolist() if isinstance(links, np.ndarray) else list(links)
    if any(isinstance(row, str) or len(row) != n_entries for row in rows):
        raise ValueError(
            "links must be pairs of nodes or, with weight=2, triples of two nodes and a weight"
        )
    return [np.fromiter((row[d] for row in rows), object, len(rows)) for d in range(n_entries)]


# What likelihoods read of matrices.

WITHOUT_WEIGHTS = (
    'links of the graph differ in the attribute "weight", which fit leaves out, so the result '
    "depends on links alone. If it should not, pass skdpm.networks.adjacency(G, "
    'weight="weight") with Relational(weights=...); else pass adjacency(G)'
)
LIST_HINT = "; skdpm.networks.adjacency(links) makes the square matrix of links from a list"


def entries(X, who, *, new):
    """The entries of a matrix that are not zero, COO without repeated ones, and how to leave out
    weights. Raises ValueError in the name of a likelihood unless it is square or of `new` nodes.
    """
    if not new and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"{who} needs a square adjacency matrix; X has shape {X.shape}{LIST_HINT}"
        )
    way = "call skdpm.networks.adjacency without weight=, and with count=False"
    if not isinstance(X, Adjacency):
        x = "X.data" if sp.issparse(X) else "X"
        way = f"for links alone use {x} = np.where(np.isnan({x}), {x}, {x} > 0)"
    X = sp.csr_array(X, dtype=np.float64, copy=True)
    X.sum_duplicates()
    return X.tocoo(), way


def check_directions(who, directed, *parts):
    """Raise ValueError if parts of a sparse matrix are not symmetric, but links not directed."""
    for part in parts[: 0 if directed else None]:
        differs = (part != part.T).tocoo()
        if differs.nnz:
            i, j = int(differs.row[0]), int(differs.col[0])
            raise ValueError(
                f"{who}(directed=False) needs a symmetric X, but the "
                f"entries ({i}, {j}) and ({j}, {i}) differ; use directed=True if links have "
                "directions"
            )


def is_network_of(estimator, rows):
    """Whether rows, dense or CSR, are the network of a fit, which may have had the other form."""
    if fingerprint(rows) == estimator._data:
        return True
    other = rows.toarray() if sp.issparse(rows) else sp.csr_array(rows)
    return fingerprint(other) == estimator._data


def filled_network(X, rows, links):
    """A copy of a network, as a user passed it, with entries of `links` in place of NaN."""
    if not sp.issparse(rows):
        return filled_table(X, rows, np.where(np.isnan(rows), links, rows), [None] * rows.shape[1])
    filled, at = rows.copy(), rows.tocoo()
    filled.data = np.where(np.isnan(rows.data), links[at.row, at.col], rows.data)
    filled.eliminate_zeros()  # networkx would make links of them
    return filled


def links_and_holes(X, who, *, new=False, hint=""):
    """Boolean CSR arrays that mark the entries 1 and NaN of X; all others must be 0, except on the
    diagonal unless nodes are `new`. `hint` is about larger whole numbers."""
    X, way = entries(X, who, new=new)
    counts = new | (X.row != X.col)
    bad = counts & ~((X.data == 0) | (X.data == 1) | np.isnan(X.data))
    counted = np.all((X.data[bad] > 1) & (X.data[bad] == np.floor(X.data[bad])))
    way += hint if counted else ""
    check_columns(X, bad, f"{who} needs 0, 1 or NaN (unobserved)", way)
    keeps = (counts & keep for keep in (X.data == 1, np.isnan(X.data)))
    return [
        sp.csr_array((np.ones(keep.sum(), bool), (X.row[keep], X.col[keep])), shape=X.shape)
        for keep in keeps
    ]
