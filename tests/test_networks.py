"""Networks from graphs and lists of links, and the names of their nodes."""

import pickle
import re
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from skdpm import DPMixture, FeatureAllocation, suggest_likelihood
from skdpm.features.likelihoods import LFRM
from skdpm.metrics import description_length
from skdpm.mixture.likelihoods import Relational
from skdpm.networks import adjacency
from skdpm.plotting import AdjacencyDisplay

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PAIRS = [("Ann", "Bob"), ("Ann", "Cem"), ("Bob", "Dot"), ("Bob", "Ann"), ("Dot", "Dot")]
SHORT = {"n_warmup": 5, "n_draws": 5, "n_chains": 1, "random_state": 0}
MODEL = DPMixture(likelihood="relational", **SHORT)


def two_cliques(names="abcdefgh"):
    half = len(names) // 2
    graph = nx.disjoint_union(nx.complete_graph(half), nx.complete_graph(half))
    return nx.relabel_nodes(graph, dict(enumerate(names)))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("count", [False, True])
def test_lists_are_graphs_of_networkx(directed, count):
    kind = [[nx.Graph, nx.DiGraph], [nx.MultiGraph, nx.MultiDiGraph]][count][directed]
    graph = kind(PAIRS)
    expected = nx.to_numpy_array(graph)
    frame = pd.DataFrame(PAIRS, columns=["from", "to"]).assign(other=1.0)
    forms = [PAIRS, np.array(PAIRS), frame, frame.astype("category"), pl.from_pandas(frame)]
    for links in (*forms, pa.Table.from_pandas(frame), graph):
        options = {} if links is graph else {"directed": directed, "count": count}
        X = adjacency(links, **options)
        assert X.nodes == list(graph) == ["Ann", "Bob", "Cem", "Dot"]
        np.testing.assert_array_equal(X.toarray(), expected)
        X = adjacency(links, nodes=["Eve", "Dot", "Cem", "Bob", "Ann"], **options)
        np.testing.assert_array_equal(X.toarray()[:0:-1, :0:-1], expected)
        assert not X[[0]].nnz and not X[:, [0]].nnz


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_weights_of_links(kind):
    triples = [(3, 1, 2.0), (1, 2, 0.5), (3, 3, 4.0), (2, 1, 1.0)]
    graph = kind()
    graph.add_weighted_edges_from(triples, weight="w")
    expected = nx.to_numpy_array(graph, weight="w")
    np.testing.assert_array_equal(adjacency(graph, weight="w").toarray(), expected)
    if graph.is_multigraph():
        frame = pd.DataFrame(triples, columns=["a", "b", "w"])
        for links, weight in ((triples, 2), (np.array(triples), 2), (frame, "w")):
            X = adjacency(links, directed=graph.is_directed(), weight=weight)
            np.testing.assert_array_equal(X.toarray(), expected)
    graph.add_edge(2, 3, w=None)
    unknown = adjacency(graph, weight="w").toarray()
    assert np.isnan(unknown).sum() == (1 if graph.is_directed() else 2)
    assert np.isnan(unknown[list(graph).index(2), list(graph).index(3)])


@pytest.mark.parametrize(
    ("links", "options", "message"),
    [
        ([("a", None)], {}, "lacks a node"),
        ([("a", np.nan)], {}, "lacks a node"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [2, 3]}), {}, "lacks a node"),
        (pd.DataFrame({"a": [1], "b": [2]}), {"weight": "w"}, "a column of links, got 'w'"),
        (pd.DataFrame({"a": [1]}), {}, "must be pairs of nodes"),
        (["ab"], {}, "must be pairs of nodes"),
        ([(1, 2, 3)], {}, "must be pairs of nodes"),
        ([(1, 2)], {"weight": 2}, "with weight=2, triples"),
        ([(1, 2, "heavy")], {"weight": 2}, "could not convert string to float: 'heavy'"),
        (
            pd.DataFrame({"a": [1], "b": [2], "fee": ["15.21 EUR"]}),
            {"weight": "fee"},
            "weight='fee' must hold numbers or None: could not convert .*'15.21 EUR'$",
        ),
        ([(1, 2, [3.0])], {"weight": 2}, "weight=2 must hold numbers or None: setting an array"),
        ([(1, 2)], {"nodes": [1, 2, 1]}, "nodes contains a node twice"),
        ([(1, 2)], {"nodes": [1]}, "nodes lacks 2"),
        ([(1, 2)], {"directed": 1}, "directed must be a bool"),
        ([(1, 2)], {"count": "yes"}, "count must be a bool"),
        ([(1, 2, 3)], {"weight": "w"}, "weight must be None or 2 if links are tuples, got 'w'"),
        ([(1, 2, 3)], {"weight": 1}, "weight must be None or 2 if links are tuples, got 1"),
        ([(1, 2, np.inf)], {"weight": 2}, "a weight is infinite"),
        (np.eye(5), {}, "links is a matrix of links already"),
        (sp.csr_array(np.eye(2)), {}, "links is a matrix of links already"),
        (nx.path_graph(3), {"weight": "w"}, "a link of the graph has no attribute 'w'"),
    ],
)
def test_what_is_no_list_of_links(links, options, message):
    with pytest.raises(ValueError, match=message):
        adjacency(links, **options)


MATRIX = pd.DataFrame(
    [[0, 1, 1, 0], [1, 0, 0, 2.5], [1, 0, 0, np.nan], [0, 2.5, np.nan, 0]],
    index=["Ann", "Bob", "Cem", "Dot"],
    columns=["Ann", "Bob", "Cem", "Dot"],
)


def test_data_frames_that_are_matrices():
    """By the names of index and columns, in whatever order, or of a first column of names."""
    columns = pd.DataFrame({"node": MATRIX.index, **{name: MATRIX[name].array for name in MATRIX}})
    forms = [MATRIX, MATRIX[["Dot", "Cem", "Ann", "Bob"]], columns, pl.from_pandas(columns)]
    for frame in (*forms, pa.Table.from_pandas(columns, preserve_index=False)):
        X = adjacency(frame)
        assert X.nodes == list(MATRIX)
        np.testing.assert_array_equal(X.toarray(), MATRIX)
        X = adjacency(frame, nodes=["Eve", "Dot", "Cem", "Bob", "Ann"])
        np.testing.assert_array_equal(X.toarray()[:0:-1, :0:-1], MATRIX)
    for objects in (MATRIX.astype(object), MATRIX.astype({"Cem": str})):
        np.testing.assert_array_equal(adjacency(objects).toarray(), MATRIX)
    for part, single in ((MATRIX.iloc[1:], "Ann"), (MATRIX.iloc[:, :3], "Dot")):
        with pytest.raises(ValueError, match=f"names in index and columns; '{single}' is in one"):
            adjacency(part)
    with pytest.raises(ValueError, match="2 columns of X have the name"):
        adjacency(MATRIX.set_axis(list("aabc"), axis=1))
    numbered = MATRIX.set_axis([7, 8, 9, 3], axis=0).set_axis([7, 8, 9, 3], axis=1)
    assert adjacency(numbered).nodes == [7, 8, 9, 3]
    assert adjacency(numbered > 0).toarray().sum() == 6
    directed = MATRIX.copy()
    directed.loc["Ann", "Bob"] = 0.0
    np.testing.assert_array_equal(adjacency(directed).toarray(), directed)
    # A list of links that is as long as wide.
    for links in ([(1, 2), (2, 3)], [(1, 2, 9), (2, 3, 9), (3, 4, 9)]):
        frame = pd.DataFrame(links, columns=["from", "to", "year"][: len(links[0])])
        assert adjacency(frame).nodes == [1, 2, 3, 4][: len(links) + 1]
    assert adjacency(pd.DataFrame([("a", "b"), ("b", "c")])).nodes == ["a", "b", "c"]


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame([(1, 2), (2, 3)]), pl.from_pandas(MATRIX), MATRIX.reset_index(drop=True)],
)
def test_square_tables_that_may_be_either(frame):
    with pytest.raises(ValueError, match="may be a matrix or a list of links: give a matrix"):
        adjacency(frame)


def test_graphs_are_fitted_as_their_matrices():
    graph = two_cliques()
    X = nx.to_scipy_sparse_array(graph, dtype=float, weight=None)
    by_matrix, by_graph = (pickle.loads(pickle.dumps(MODEL.fit(G))) for G in (X, graph))
    np.testing.assert_array_equal(by_graph.label_samples_, by_matrix.label_samples_)
    assert not hasattr(by_matrix, "feature_names_in_")
    assert by_graph.feature_names_in_.tolist() == list("abcdefgh")
    for method in ("predict", "predict_proba", "score_samples", "pointwise_log_likelihood"):
        expected = getattr(by_matrix, method)(X)
        for new in (graph, adjacency(graph)):
            np.testing.assert_array_equal(getattr(by_graph, method)(new), expected)
    assert sp.issparse(by_graph.impute(graph))
    # Nodes 0, 1, ... are numbers of rows, not names; others are strings, as scikit-learn asks.
    assert not hasattr(MODEL.fit(two_cliques(range(8))), "feature_names_in_")
    assert MODEL.fit(two_cliques(range(1, 9))).feature_names_in_.tolist() == list("12345678")
    roles = FeatureAllocation(likelihood="lfrm", n_warmup=2, n_draws=2, n_chains=1).fit(graph)
    assert roles.feature_names_in_.tolist() == list("abcdefgh")
    assert "a" in roles.summary()


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph])
@pytest.mark.long
def test_fits_say_that_weights_of_graphs_are_left_out(kind):
    graph = kind([("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")])
    likelihood = Relational(directed=graph.is_directed())
    models = [
        DPMixture(likelihood=likelihood, **SHORT),
        FeatureAllocation(likelihood=LFRM(directed=graph.is_directed()), **SHORT),
    ]

    def n_warnings(X):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for model in models:
                model.fit(X).score_samples(X)
        return sum('differ in the attribute "weight"' in str(w.message) for w in caught)

    assert n_warnings(graph) == 0
    nx.set_edge_attributes(graph, 2.0, "weight")
    assert n_warnings(graph) == 0
    next(iter(graph.edges(data=True)))[-1]["weight"] = 3.0
    assert n_warnings(graph) == 2
    assert n_warnings(adjacency(graph)) == 0
    # NaN is not another weight than NaN, and arrays are none.
    for weights in ([float("nan") for _ in graph.edges], list(np.eye(graph.size()))):
        for found, weight in zip(graph.edges(data=True), weights, strict=True):
            found[-1]["weight"] = weight
        assert n_warnings(graph) == 0
    assert n_warnings(np.ones((4, 4))) == 0


def test_probabilities_of_named_nodes():
    graph = two_cliques()
    for X in (graph, pd.DataFrame(nx.to_numpy_array(graph), list(graph), list(graph))):
        model = DPMixture(likelihood="relational", **SHORT).fit(X)
        expected = model.probability_together(1, 6)
        for pair in (("b", "g"), ("b", 6), (1, "g")):
            assert model.probability_together(*pair) == expected
        with pytest.raises(ValueError, match="second must be a node of the network of fit, got"):
            model.probability_together("a", "Ann")
        with pytest.raises(ValueError, match=r"one of . rows, must be at most 7, got 8"):
            model.probability_together(8, "a")
    for X in (nx.to_numpy_array(graph), two_cliques(range(8))):
        with pytest.raises(ValueError, match=r"one of . rows, must be an integer, got 'a'"):
            model.fit(X).probability_together("a", 1)
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 1.0, 0.0]}, index=list("abc"))
    with pytest.raises(ValueError, match=r"\(not the name\) of one of . rows, must be an integer"):
        DPMixture(likelihood="gaussian", **SHORT).fit(table).probability_together("a", 1)


class Called:
    def __str__(self):
        return "same"


@pytest.mark.parametrize(
    "nodes",
    [[3, 1, 2, 0, 4, 5, 6, 7], range(100, 108), [1, "1", *"bcdefg"]]
    + [[(i % 2, i // 2) for i in range(8)], [Called() for _ in range(8)]],
)
def test_probabilities_of_nodes_that_are_no_strings(nodes):
    """Nodes themselves count, not positions, and strings if only one node is called so."""
    nodes = list(nodes)
    model = DPMixture(likelihood="relational", **SHORT).fit(two_cliques(nodes))
    clusters = model.cluster_samples_
    for i, j in np.ndindex(8, 8):
        expected = (clusters[:, :, i] == clusters[:, :, j]).mean()
        pairs = [(nodes[i], nodes[j])]
        if isinstance(nodes[0], int | tuple) and 0 not in (i, j):
            pairs.append((str(nodes[i]), str(nodes[j])))
        for pair in pairs:
            assert model.probability_together(*pair)[0] == expected
    refused = ["same", [1]] if isinstance(nodes[0], Called | tuple) else ["same", [1], 8]
    for row in refused:
        with pytest.raises(ValueError, match="first must be a node of the network of fit, got"):
            model.probability_together(row, nodes[0])


@pytest.mark.parametrize(
    ("graph", "likelihood", "message"),
    [
        (two_cliques(), "auto", "X is a network: use likelihood="),
        (two_cliques(), "multinomial", "X is a network: use likelihood="),
        (nx.MultiGraph([(1, 2), (2, 1)]), "relational", "column '1' .*, and with count=False"),
        (nx.path_graph(4), "mixed", 'use likelihood="relational" for a network'),
        (sp.csr_array(np.eye(4)), "mixed", 'use likelihood="relational" for a network'),
        ([("a", "b"), ("b", "c")], "relational", r"networks\.adjacency\(links\)"),
        ([(1, 2), (2, 3), (3, 1)], "relational", r"networks\.adjacency\(links\)"),
        ([(1, 2, 3.0), (2, 3, 1.0)], "relational", r"networks\.adjacency\(links\)"),
        (nx.DiGraph([(1, 2), (2, 3)]), "relational", "use directed=True if links have directions"),
    ],
)
def test_networks_that_do_not_fit_the_likelihood(graph, likelihood, message):
    with pytest.raises((TypeError, ValueError), match=message):
        DPMixture(likelihood=likelihood).fit(graph)


@pytest.mark.parametrize("likelihood", ["relational", "lfrm"])
@pytest.mark.parametrize(
    ("fitted", "other"),
    [("abcdefgh", "abcdefhg"), (range(8), [1, 0, *range(2, 8)]), (range(8), "abcdefgh")]
    + [(range(1, 9), "12345678")],
)
def test_new_rows_have_the_nodes_of_fit(likelihood, fitted, other):
    estimator = MODEL
    if likelihood == "lfrm":
        estimator = FeatureAllocation(likelihood="lfrm", n_warmup=2, n_draws=2, n_chains=1)
    graph, changed = two_cliques(fitted), two_cliques(other)
    model = pickle.loads(pickle.dumps(estimator.fit(graph)))
    with pytest.raises(ValueError, match=r"in the same order: .*adjacency\(G, nodes=list\(F\)\)"):
        model.score_samples(changed)
    X = adjacency(graph)
    expected = model.score_samples(X[[0, 3]])  # of a slice, nodes are not known
    assert expected.shape == (2,)
    if set(fitted) == set(other):
        X = adjacency(changed, nodes=list(graph))
        np.testing.assert_array_equal(model.score_samples(X)[[0, 3]], expected)
    # A fit of a matrix forgets the nodes of the one before.
    estimator.fit(X.toarray()).score_samples(changed)


def test_copies_have_nodes():
    X = adjacency(PAIRS)
    for same in (X.copy(), X.astype(int), X.astype(X.dtype, copy=False)):
        assert same.nodes == X.nodes and not (same != X).nnz
    assert not np.shares_memory(X.copy().indices, X.indices)
    assert X[[0]].nodes is None and (X @ X).nodes is None


def test_imputed_networks_are_matrices_of_their_own():
    links = [(a, b, 1.0) for a, b in two_cliques().edges]
    X = adjacency([*links, ("a", "h", None), ("b", "g", None)], weight=2)
    model = MODEL.fit(X)
    filled = [model.impute(X), *model.impute(X, n_draws=10)]
    parts = [part for Y in (X, *filled) for part in (Y.data, Y.indices, Y.indptr)]
    for i, part in enumerate(parts):
        assert not any(np.shares_memory(part, other) for other in parts[:i])
    assert all(Y.nodes == X.nodes for Y in filled)
    assert all((Y.data != 0).all() for Y in filled)
    assert min(Y.nnz for Y in filled) < X.nnz  # some draws lack an unobserved link


@pytest.mark.parametrize("value", [-1.0, 0.5, 3.0])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, adjacency])
def test_advice_about_weights_keeps_unobserved_pairs(value, form):
    X = np.zeros((6, 6))
    X[0, 1] = X[1, 0] = value
    X[2, 3] = X[3, 2] = 1.0
    X[4, 5] = X[5, 4] = np.nan
    if form is adjacency:
        with pytest.raises(ValueError, match="without weight=, and with count=False"):
            MODEL.fit(adjacency([("a", "b", value)], weight=2))
        return
    X = form(X)
    with pytest.raises(ValueError) as refused:
        MODEL.fit(X)
    (advice,) = re.findall(r"use (X.*?0\))", str(refused.value))
    assert ("use degree_correction=True" in str(refused.value)) == (value == 3.0)
    scope = {"X": X, "np": np}
    exec(advice, scope)
    links = scope["X"].toarray() if sp.issparse(X) else scope["X"]
    assert np.isnan(links[4, 5]) and links[2, 3] == 1.0 and links[0, 1] == (value > 0.0)
    MODEL.fit(links)


def test_columns_of_weights_are_no_nodes():
    frame = pd.DataFrame({"w": [2.0, 3.0], "a": ["x", "y"], "b": ["y", "z"]})
    for names in (["w", "a", "b"], ["a", "w", "b"], ["a", "b", "w"]):
        X = adjacency(frame[names], weight="w")
        assert X.nodes == ["x", "y", "z"]
        np.testing.assert_array_equal(X.toarray(), [[0, 2, 0], [2, 0, 3], [0, 3, 0]])


@pytest.mark.parametrize("X", [two_cliques(), sp.csr_array(np.eye(3))])
def test_networks_have_no_columns_to_suggest_likelihoods_for(X):
    with pytest.raises(TypeError, match='use likelihood="relational" for a network'):
        suggest_likelihood(X)


def test_description_length_of_graphs():
    graph, labels = two_cliques(), np.repeat([0, 1], 4)
    expected = description_length(nx.to_numpy_array(graph), labels)
    assert description_length(graph, labels) == expected


def test_loops_and_parallel_links_are_counted_with_degree_correction():
    graph = nx.MultiGraph([(1, 2), (2, 1), (2, 2), (1, 3), (3, 4)])
    likelihood = Relational(degree_correction=True)
    by_graph, by_matrix = (
        DPMixture(likelihood=likelihood, n_warmup=5, n_draws=5, random_state=0).fit(X)
        for X in (graph, [[0, 2, 1, 0], [2, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]])
    )
    np.testing.assert_array_equal(by_graph.log_joint_samples_, by_matrix.log_joint_samples_)


def test_names_in_summaries_and_pictures():
    model = MODEL.fit(two_cliques("abcdefghijklmnop"))
    lines = model.estimate_labels(max_clusters=2).summary().splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if line.startswith("cluster ")] == [
        "a, b, c, d, 4 more",
        "i, j, k, l, 4 more",
    ]
    assert "cluster 0" not in MODEL.fit(two_cliques(range(8))).summary()
    graph = two_cliques()
    model.fit(graph)
    for X in (graph, nx.to_numpy_array(graph)):
        assert sorted(AdjacencyDisplay.from_estimator(model, X).names) == list("abcdefgh")


@pytest.mark.long
def test_matrices_of_links_are_named_as_such():
    """Also with directions, if rows have the names of columns."""
    names = list("abcdefgh")
    links = nx.to_pandas_adjacency(two_cliques()).astype(float)
    directed = links.copy()
    directed.loc["a", "h"] = 1.0
    other = DPMixture(likelihood="bernoulli", n_warmup=5, n_draws=5, n_chains=1, random_state=0)
    for X in (links, links.to_numpy(), directed, sp.csr_array(links)):
        with pytest.warns(UserWarning, match='between nodes.*use likelihood="relational"'):
            other.fit(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "X has as many columns as rows")
        other.fit(directed.to_numpy())
        other.fit(directed.set_axis(names[::-1]))
        other.fit(links.iloc[:7, :7])
        MODEL.fit(links)
