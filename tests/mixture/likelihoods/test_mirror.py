"""The second copy of the counts in the kernel of `Multinomial`: weighing a row under many clusters
gives the bits of one cluster at a time, which reads the rows of the clusters."""

import numpy as np
import pytest
from scipy.special import gammaln
from support.laws import Case
from support.probes import Probe

from skdpm.mixture.likelihoods import Multinomial

N_SLOTS, N_ROWS, N_COLUMNS = 40, 60, 50


def _rows(rng):
    """Rows of counts up to 30, most of them small, one row without words."""
    shares = rng.dirichlet(np.full(N_COLUMNS, 0.2), size=5)
    X = np.array([rng.multinomial(rng.integers(1, 90), shares[i % 5]) for i in range(N_ROWS)])
    X[7] = 0
    return X.astype(float)


class Clusters:
    """Clusters of items in the slots of a kernel, changed at random."""

    def __init__(self, likelihood, X, rng, n_slots=N_SLOTS):
        self.rng = rng
        self.probe = Probe(Case(likelihood, X).probe().model, n_slots)
        self.items = {self.probe.acquire(): [] for _ in range(n_slots // 2)}
        self.outside = list(range(len(X) - 5))
        self.n_mirrored = 0

    def any_slot(self):
        return int(self.rng.choice(list(self.items)))

    def add(self):
        if self.outside:
            i = self.outside.pop(self.rng.integers(len(self.outside)))
            slot = self.any_slot()
            self.probe.add(slot, i)
            self.items[slot].append(i)

    def remove(self):
        slot = self.any_slot()
        if self.items[slot]:
            i = self.items[slot].pop(self.rng.integers(len(self.items[slot])))
            self.probe.remove(slot, i)
            self.outside.append(i)

    def move(self):
        self.remove()
        self.add()

    def copy(self):
        """A copy in place of another cluster; items may then be in two clusters."""
        src, dst = self.any_slot(), self.any_slot()
        if src != dst:
            self.probe.copy(dst, src)
            self.items[dst] = list(self.items[src])

    def restore(self):
        """A cluster changes, and its old row returns to its slot."""
        slot, kept = self.any_slot(), self.probe.acquire()
        self.probe.copy(kept, slot)
        self.probe.add(slot, 58)
        self.check()
        self.probe.copy(slot, kept)
        self.probe.release(kept)

    def merge(self):
        src, dst = self.any_slot(), self.any_slot()
        if src != dst:
            self.probe.merge(dst, src)
            self.items[dst] += self.items[src]

    def close_and_open(self):
        slot = self.any_slot()
        self.outside += [i for i in self.items.pop(slot) if i not in self.outside]
        self.probe.release(slot)
        self.items[self.probe.acquire()] = []

    def learn(self):
        self.probe.model.set_hyperparameters([self.rng.uniform(0.1, 2.0)])

    def grow(self):
        self.probe.reserve(self.probe.model.n_slots + 1)

    def check(self):
        slots = self.rng.permutation(list(self.items))
        for i in (7, 55, 56, 57, 59):
            many = self.probe.log_predictive_many(slots, i)
            single = [self.probe.log_predictive(int(slot), i) for slot in slots]
            np.testing.assert_array_equal(many, single)
            # In parts, as within a Product.
            parts = [self.probe.log_predictive_many(slots[j : j + 9], i) for j in (0, 9)]
            np.testing.assert_array_equal(np.concatenate(parts), many[:18])
        self.n_mirrored += self.probe.model.n_columns > 0


OFTEN, SELDOM = (
    ("add", "move", "move", "move", "remove"),
    (
        "copy",
        "restore",
        "merge",
        "close_and_open",
        "learn",
        "grow",
    ),
)


@pytest.mark.parametrize(
    "likelihood",
    [
        Multinomial(concentration=0.3),
        Multinomial(concentration=0.3, base=np.arange(1.0, N_COLUMNS + 1.0)),
    ],
    ids=["uniform", "base"],
)
def test_the_mirror_has_the_counts_of_the_rows(likelihood, seed):
    rng = np.random.default_rng(seed)
    clusters = Clusters(likelihood, _rows(rng), rng)
    for t in range(160):
        getattr(clusters, rng.choice(OFTEN if t % 8 else SELDOM))()
        clusters.check()
    assert clusters.n_mirrored > 100


@pytest.mark.parametrize("concentration", [1e-30, 1e18, 1e19, 1e25, 1e100])
def test_pseudo_counts_of_any_size(concentration):
    """Large ones: columns have equal probabilities. Small ones: an empty cluster is certain of a
    row with a single word."""
    X = np.zeros((3, N_COLUMNS))
    X[0, :40] = 1.0
    X[1, 3] = 1.0
    probe = Case(Multinomial(concentration=concentration), X).probe()
    slot = Probe(probe.model, 1).acquire()
    expected = [gammaln(41.0) - 40 * np.log(N_COLUMNS), -np.log(N_COLUMNS)]
    values = [Probe(probe.model, 1).log_predictive(slot, i) for i in (0, 1)]
    np.testing.assert_allclose(values[1:], expected[1:], rtol=1e-10)
    if concentration > 1.0:
        np.testing.assert_allclose(values, expected, rtol=1e-10)


def test_counts_too_large_for_the_mirror(seed):
    """Beyond 2**24, where float32 has no odd numbers, only rows are read."""
    rng = np.random.default_rng(seed)
    X = _rows(rng)
    X[:50, 0] += 2.0**20
    X[:50, 1] += 1.0 + 2.0 * rng.integers(2**18, 2**19, 50)
    clusters = Clusters(Multinomial(concentration=0.3), X, rng)
    for _ in range(30):
        clusters.move()
        clusters.check()
    assert clusters.n_mirrored > 0
    for i in clusters.outside[:]:
        clusters.outside.remove(i)
        clusters.probe.add(0, i)
        clusters.check()
    assert clusters.probe.model.n_columns == 0
