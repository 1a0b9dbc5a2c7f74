# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures inside the tools that make embeddings: BERTopic and AnnData."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score

from skdpm import DPMixture

SUBJECTS = [
    "oven flour butter dough bake sugar recipe yeast crust whisk".split(),
    "soil seed prune compost bloom weed root mulch hedge water".split(),
    "chord tempo violin melody scale rhythm choir score tune bow".split(),
]


class Stub:
    """The part of BERTopic that meets a cluster model, for machines without BERTopic.

    As BERTopic 0.17, it passes classes to `fit` by the name y, and reads `labels_`,
    `probabilities_` and `predict`.
    """

    def __init__(self, hdbscan_model):
        self.hdbscan_model = hdbscan_model

    def fit_transform(self, documents, embeddings, y=None):
        self.hdbscan_model.fit(embeddings, y=y)
        self.topics_ = self.hdbscan_model.labels_.tolist()
        return self.topics_, self.hdbscan_model.probabilities_

    def transform(self, documents, embeddings):
        return self.hdbscan_model.predict(embeddings).tolist(), None


def real(hdbscan_model):
    """BERTopic without its reduction of columns."""
    pytest.importorskip("hdbscan")  # BERTopic's `transform` fails without it
    bertopic = pytest.importorskip("bertopic")
    reduction = pytest.importorskip("bertopic.dimensionality").BaseDimensionalityReduction()
    return bertopic.BERTopic(
        embedding_model=None, umap_model=reduction, hdbscan_model=hdbscan_model
    )


@pytest.fixture(scope="module")
def corpus():
    """Notes about three subjects, their embeddings, and the subjects."""
    rng = np.random.default_rng(0)
    subject = np.arange(150) % 3
    documents = [" ".join(rng.choice(SUBJECTS[k], size=9)) for k in subject]
    tfidf = TfidfVectorizer().fit_transform(documents)
    return documents, TruncatedSVD(5, random_state=0).fit_transform(tfidf), subject


@pytest.mark.filterwarnings("ignore:.*on lines or planes")
@pytest.mark.parametrize("noise", [None, True])
@pytest.mark.parametrize("make", [Stub, real])
@pytest.mark.some(2)
@pytest.mark.long
def test_a_mixture_takes_the_place_of_hdbscan(make, noise, corpus):
    documents, embeddings, subject = corpus
    model = DPMixture(n_chains=1, n_warmup=50, n_draws=50, noise=noise, random_state=0)
    topics = make(model)
    labels, probabilities = topics.fit_transform(documents[:140], embeddings=embeddings[:140])
    assert adjusted_rand_score(subject[:140], labels) > 0.95
    assert np.shape(probabilities) == (140,)
    assert 0.0 <= min(probabilities) <= max(probabilities) <= 1.0
    new, _ = topics.transform(documents[140:], embeddings=embeddings[140:])
    assert adjusted_rand_score(subject, [*labels, *new]) > 0.95


@pytest.mark.filterwarnings("ignore:.*mode.chained_assignment")  # of AnnData's own code
def test_cells_of_anndata_get_categories():
    pd = pytest.importorskip("pandas")
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 3
    components = rng.normal(5.0 * np.eye(3)[kind])
    cells = anndata.AnnData(rng.poisson(2.0, (90, 10)).astype(float))
    cells.obsm["X_pca"] = components
    model = DPMixture(n_chains=1, n_warmup=50, n_draws=50, random_state=0)
    model.fit(cells.obsm["X_pca"])
    cells.obs["cluster"] = pd.Categorical(model.labels_)
    assert adjusted_rand_score(kind, cells.obs["cluster"]) > 0.9
    part = model.predict(cells[:5].obsm["X_pca"])
    np.testing.assert_array_equal(part, model.predict(components[:5]))
