# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of documents: time and clusters of default fits to counts of words.

    python benchmarks/text.py [--kos FILE] [--words FILE]
        [--likelihoods multinomial von_mises_fisher]

- "KOS": counts of 3430 documents and 6906 words (UCI Bag of Words), a file of `scipy.sparse`.
- "simulated": 11,314 documents of 20,000 words about 30 subjects, as large as 20 newsgroups. The
  words of a subject are a Dirichlet draw around frequencies by Zipf's law, so subjects share
  common words. Lengths of documents are log-normal with median 100.
- "words": which of 100 words are in 3000 documents of 20 newsgroups, under `Bernoulli`. A file of
  `numpy.savez` with `X`, of 0 and 1, and `y`, the subjects.

`VonMisesFisher` has tf-idf of the same counts. Times are wall times of a fit and processor times
of all threads. NMI is the normalised mutual information of labels and subjects.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import normalized_mutual_info_score

from skdpm import DPMixture


def make_corpus(n_documents=11_314, n_words=20_000, n_subjects=30, random_state=0):
    """Counts of words, (n_documents, n_words) CSR, and subjects, (n_documents,)."""
    rng = np.random.default_rng(random_state)
    frequencies = 1.0 / (10.0 + np.arange(n_words))
    frequencies /= frequencies.sum()
    subjects = rng.dirichlet(np.full(n_subjects, 5.0))
    labels = rng.choice(n_subjects, size=n_documents, p=subjects)
    lengths = np.ceil(rng.lognormal(np.log(100.0), 0.7, size=n_documents)).astype(int)
    columns = np.empty(lengths.sum(), dtype=np.int64)
    rows = np.repeat(np.arange(n_documents), lengths)
    for k in range(n_subjects):
        weights = rng.gamma(1500.0 * frequencies) + 1e-300
        of_subject = labels[rows] == k
        columns[of_subject] = rng.choice(n_words, of_subject.sum(), p=weights / weights.sum())
    counts = sp.csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(n_documents, n_words), dtype=np.float64
    )
    counts.sum_duplicates()
    return counts, labels


def read_words(path, n_documents=3000, random_state=0):
    """Binary words, (n_documents, n_words) CSR, and subjects of a random part of a file."""
    data = np.load(path)
    rng = np.random.default_rng(random_state)
    rows = rng.choice(len(data["X"]), min(n_documents, len(data["X"])), replace=False)
    return sp.csr_array(data["X"][rows].astype(float)), data["y"][rows]


def fit(name, likelihood, X, subjects, n_jobs):
    if likelihood == "von_mises_fisher":
        X = sp.csr_array(TfidfTransformer().fit_transform(X))
    began = time.process_time(), time.perf_counter()
    model = DPMixture(likelihood=likelihood, random_state=0, n_jobs=n_jobs).fit(X)
    used, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    components = model.n_components_samples_[:, -1]
    found, nmi = model.n_clusters_, ""
    if subjects is not None:
        nmi = f", NMI {normalized_mutual_info_score(subjects, model.labels_):.3f}"
        n_subjects = len(np.unique(subjects))
        model.estimate_labels(max_clusters=n_subjects)
        told = normalized_mutual_info_score(subjects, model.labels_)
        nmi += f", {told:.3f} of at most {n_subjects} clusters"
    print(
        f"{name} {X.shape}, {X.nnz} entries, {likelihood}: {wall:.0f} s wall, {used:.0f} s of the "
        f"processor, {model.n_iter_} iterations of {len(components)} chains, "
        f"{found} clusters ({components.min()} to {components.max()} components)"
        f"{nmi}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kos", type=Path)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--likelihoods", nargs="+", default=["multinomial", "von_mises_fisher"])
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--no-simulated", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    corpora = {}
    if args.kos is not None:
        corpora["KOS"] = sp.csr_array(sp.load_npz(args.kos)), None
    if not args.no_simulated:
        corpora["simulated"] = make_corpus()
    for name, (X, subjects) in corpora.items():
        for likelihood in args.likelihoods:
            fit(name, likelihood, X, subjects, args.n_jobs)
    if args.words is not None:
        fit("words", "bernoulli", *read_words(args.words), args.n_jobs)


if __name__ == "__main__":
    main()
