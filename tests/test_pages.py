# SPDX-License-Identifier: BSD-3-Clause
"""Code on pages that is no doctest, because it needs another package or data of the reader.

It is run here on small data, with stubs of packages that are large. Doctests of pages are run by
`pytest --doctest-glob='*.md' README.md doc`.
"""

import pathlib
import re
import sys
import types

import numpy as np
import pytest

from skdpm import DPMixture

ROOT = pathlib.Path(__file__).parents[1]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks():
    for page in [ROOT / "README.md", *sorted(ROOT.glob("doc/**/*.md"))]:
        for n, found in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            if ">>>" not in found[2]:
                yield pytest.param(found[2], id=f"{page.stem}-{n}")


class Topics:
    """BERTopic without its models of language."""

    def __init__(self, hdbscan_model, umap_model=None):
        self.model = hdbscan_model

    def fit_transform(self, documents, embeddings=None, y=None):
        if embeddings is None:
            embeddings = np.random.default_rng(0).normal(size=(len(documents), 3))
        self.model.fit(embeddings, y=y)
        return self.model.labels_, self.model.probabilities_


class Given:
    """Accepts the labels that it is told, as the class of this place in BERTopic."""

    def fit(self, embeddings, y):
        self.labels_ = y
        self.probabilities_ = np.ones(len(y))


@pytest.fixture
def names(monkeypatch, tmp_path):
    """Names that the code takes from the reader."""
    for module, name, cls in (
        ("bertopic", "BERTopic", Topics),
        ("bertopic.cluster", "BaseCluster", Given),
        ("bertopic.dimensionality", "BaseDimensionalityReduction", object),
    ):
        monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{name: cls}))
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(60, 2)) + np.arange(60)[:, None] % 2 * 9.0
    quiet = types.SimpleNamespace(rank_genes_groups=print, umap=lambda *args, **kwargs: None)
    return {
        "DPMixture": DPMixture,
        "X": X,
        "model": DPMixture(n_warmup=5, n_draws=20, n_chains=2, random_state=0).fit(X),
        "documents": [f"document {i}" for i in range(60)],
        "embeddings": X,
        "adata": types.SimpleNamespace(obsm={"X_pca": X}, obs={}),
        "scanpy": types.SimpleNamespace(tl=quiet, pl=quiet),
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("code", list(blocks()))
def test_code_of_pages_runs(code, names):
    for module in re.findall(r"^(?:import|from) ([\w.]+)", code, re.MULTILINE):
        if module not in sys.modules:
            pytest.importorskip(module)
    if "ProgressBar" in code:
        pytest.importorskip("rich")
    exec(code, names)
