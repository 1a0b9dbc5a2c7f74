"""Adaptive reconfiguration moves over an explicit posterior, written for reading.

A move draws phi = (i, j, z^a, z^b, order) by a law that does not look at the partition z, and
builds a proposal z* from z: rows i and j, if together, come apart, else their clusters merge; then
the other rows, by blocks of the common refinement of z, z^a and z^b and one by one, choose where
to be. Every unit is decided once, by conditional probabilities, so that at most one path leads
from z to z*, and its probability T(z, z* | phi) is that of the proposal. What decides whether a
move is right is this table, of which everything here is made: `paths` lists all choices there are,
`forced` follows the one path to a given end.

Clusters have names here: "i" and "j" for those of the two rows ("i" for both when they merge),
("home", B) for what cluster B of z, of neither, has become, and ("new", x) for one that row x
opened.

`split_merge_transition` is the Jain-Neal move whose launch state comes from z^a and z^b.
"""

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from reference.enumerate import enumerate_partitions
from reference.likelihoods import LOG_LIKELIHOODS, LOG_MARGINALS
from reference.priors import log_eppf

BLOCKS = ("all", "pair", "none")


class Phi(NamedTuple):
    """What a move draws before it looks at the partition."""

    i: int
    j: int
    za: tuple | None  # None: no past states, c_i = {i}, c_j = {j}, and no other blocks
    zb: tuple | None
    order: tuple  # a permutation of the rows


def canonical(labels):
    """Labels by first appearance as a tuple; any hashable names may be given, and None stays."""
    names = {}
    return tuple(None if y is None else names.setdefault(y, len(names)) for y in labels)


class PartialPosterior:
    """p(partition, X) as a function, also of partitions of some of the rows.

    Parameters
    ----------
    X : array-like
    likelihood : str
        As in `log_likelihood`.
    params : dict
    prior : str
        As in `log_eppf`.
    prior_params : dict
    """

    def __init__(self, X, likelihood, params, prior, prior_params):
        self.X = np.asarray(X, dtype=float)
        self.n_samples = n = len(self.X)
        self.likelihood, self.params = likelihood, params
        # The prior is V_{n,k} times a product over clusters of (1 - discount)_{m - 1}.
        discount = {
            "dp": 0.0,
            "pitman_yor": prior_params.get("discount"),
            "finite": -prior_params["concentration"] / prior_params.get("n_components", 1),
            "mfm": -prior_params["concentration"],
        }[prior]
        m = np.arange(1, n + 1)
        log_block = gammaln(m - discount) - gammaln(1 - discount)
        self.log_block = np.concatenate([[np.nan], log_block])
        self.log_v = np.array(
            [np.nan]
            + [
                log_eppf([n - k + 1] + [1] * (k - 1), prior, **prior_params)
                - self.log_block[n - k + 1]
                for k in range(1, n + 1)
            ]
        )
        self._known = {}

    def log_likelihood(self, labels):
        """log p(the rows that have a label, None is none | their partition)."""
        if self.likelihood in LOG_LIKELIHOODS:
            key = canonical(labels)
            if key not in self._known:
                rows = [x for x in range(self.n_samples) if key[x] is not None]
                self._known[key] = LOG_LIKELIHOODS[self.likelihood](
                    self.X[np.ix_(rows, rows)], [key[x] for x in rows], **self.params
                )
            return self._known[key]
        clusters = {}
        for x, y in enumerate(labels):
            if y is not None:
                clusters.setdefault(y, []).append(x)
        return sum(self._log_marginal(tuple(rows)) for rows in clusters.values())

    def _log_marginal(self, rows):
        if rows not in self._known:
            log_marginal = LOG_MARGINALS[self.likelihood]
            self._known[rows] = log_marginal(self.X[list(rows)], **self.params)
        return self._known[rows]

    def log_join(self, size, n_rows):
        """Prior log weight of some rows in a cluster of `size` others."""
        return self.log_block[size + n_rows] - self.log_block[size]

    def log_new(self, n_clusters, n_rows):
        """Prior log weight of some rows in a cluster of their own beside `n_clusters` others:
        ratios for all rows, whatever part of them is there. With all components in use it is 0,
        also where there are more clusters than components, as while one is split."""
        if self.log_v[n_clusters + 1] == -np.inf:
            return -np.inf
        return self.log_v[n_clusters + 1] - self.log_v[n_clusters] + self.log_block[n_rows]

    def log_joint(self, labels):
        """log p(partition, X) of all rows."""
        sizes = Counter(labels).values()
        log_prior = self.log_v[len(sizes)] + sum(self.log_block[m] for m in sizes)
        return log_prior + self.log_likelihood(labels)


class Construction:
    """How a proposal is built from partition z, given phi.

    Parameters
    ----------
    posterior : PartialPosterior
    z : sequence of int
    phi : Phi
    blocks : {"all", "pair", "none"}
        Where blocks of the refinement move jointly: everywhere, in the clusters of i and j, or
        nowhere, while c_i and c_j start together.
    """

    def __init__(self, posterior, z, phi, blocks="all"):
        n, i, j = posterior.n_samples, phi.i, phi.j
        self.posterior, self.z, self.i, self.j = posterior, tuple(z), i, j
        rank = {x: r for r, x in enumerate(phi.order)}
        self.is_split = z[i] == z[j]
        self.inside = {x for x in range(n) if z[x] in (z[i], z[j])}
        if phi.za is None:
            c = list(range(n))
        else:
            c = [(z[x], phi.za[x], phi.zb[x]) for x in range(n)]
        if c[i] == c[j]:
            raise ValueError(f"rows {i} and {j} are together in both past states")
        self.name_of_j = "j" if self.is_split else "i"

        self.start = [None if x in self.inside else ("home", z[x]) for x in range(n)]
        for x in range(n):
            if c[x] == c[j]:
                self.start[x] = self.name_of_j
            if c[x] == c[i]:
                self.start[x] = "i"

        # Loop 1: blocks, the first row of each ("earmark") being that of smallest rank.
        groups = {}
        if blocks != "none" and phi.za is not None:
            for x in phi.order:
                if c[x] not in (c[i], c[j]) and (blocks == "all" or x in self.inside):
                    groups.setdefault(c[x], []).append(x)
        first = sorted(groups.values(), key=lambda rows: (-len(rows), rank[rows[0]]))
        earmarks = {rows[0] for rows in first}
        # Loop 2: rows.
        self.units = first + [[x] for x in phi.order if x not in {i, j} | earmarks]

    def options(self, place, unit):
        """Where a unit may go, and the log probabilities.

        Parameters
        ----------
        place : tuple
            Name of each row's cluster, None while it is in none.
        unit : list of int
            Rows.

        Returns
        -------
        names : list
        log_p : ndarray
        """
        x = unit[0]
        others = [None if y in unit else name for y, name in enumerate(place)]
        sizes = Counter(name for name in others if name is not None)
        if x in self.inside:
            names = [*sizes, ("new", x)]
        else:
            home = ("home", self.z[x])
            left = {y for y, name in enumerate(place) if name == home and self.z[y] == self.z[x]}
            if left == set(unit) and home in sizes:
                return [home], np.zeros(1)  # the last of its rows, which others have joined
            names = ["i", "j", home] if self.is_split else ["i", home]
        log_w = []
        for name in names:
            joined = self._put(others, unit, name)
            if name in sizes:
                log_prior = self.posterior.log_join(sizes[name], len(unit))
            else:
                log_prior = self.posterior.log_new(len(sizes), len(unit))
            log_w.append(self.posterior.log_likelihood(joined) + log_prior)
        return names, np.array(log_w) - logsumexp(log_w)

    @staticmethod
    def _put(place, unit, name):
        return [name if y in unit else old for y, old in enumerate(place)]

    def paths(self):
        """Every sequence of choices: its end and log probability, one by one."""

        def walk(place, units, log_t):
            if not units:
                yield canonical(place), log_t
                return
            names, log_p = self.options(place, units[0])
            for name, log_choice in zip(names, log_p, strict=True):
                if log_choice > -np.inf:
                    yield from walk(
                        self._put(place, units[0], name), units[1:], log_t + log_choice
                    )

        return walk(self.start, self.units, 0.0)

    def draw(self, rng):
        """Draw a proposal: its labels, and their log T."""
        place, log_t = self.start, 0.0
        for unit in self.units:
            names, log_p = self.options(place, unit)
            k = rng.choice(len(names), p=np.exp(log_p))
            place, log_t = self._put(place, unit, names[k]), log_t + log_p[k]
        return canonical(place), log_t

    def forced(self, target):
        """log T of the one path that may lead to `target`; -inf where there is none."""
        at_i, at_j = target[self.i], target[self.j]
        if (at_i != at_j) != self.is_split:
            return -np.inf
        # Where rows of each label of the target are to be found.
        where = {at_j: self.name_of_j, at_i: "i"}
        for x in range(len(target)):
            if x not in self.inside and target[x] not in (at_i, at_j):
                if where.setdefault(target[x], ("home", self.z[x])) != ("home", self.z[x]):
                    return -np.inf
        place, log_t = self.start, 0.0
        for unit in self.units:
            x = unit[0]
            name = where.setdefault(target[x], ("new", x))
            names, log_p = self.options(place, unit)
            if name not in names:
                return -np.inf
            log_t += log_p[names.index(name)]
            place = self._put(place, unit, name)
        return log_t if canonical(place) == canonical(target) else -np.inf


def forced(posterior, z, phi, target, blocks="all"):
    """log T(z, target | phi)."""
    return Construction(posterior, z, phi, blocks).forced(target)


def paths(posterior, z, phi, blocks="all"):
    """Every end that z has under phi: list of (labels, log T)."""
    return list(Construction(posterior, z, phi, blocks).paths())


class Exact(NamedTuple):
    """A Metropolis-Hastings kernel as matrices over `enumerate_partitions`."""

    proposal: np.ndarray  # T(z, z*)
    accepted: np.ndarray  # probability of proposing z* and going there, for every z* with z
    reversible: bool  # is the way back possible for every proposal?

    @property
    def transition(self):
        """The kernel: what is not accepted stays."""
        K = self.accepted.copy()
        K[np.diag_indices(len(K))] += 1 - self.accepted.sum(axis=1)
        return K


def metropolis(proposal, log_joint):
    """The Metropolis-Hastings kernel of a proposal; from states of probability 0 it never starts.

    A proposal of the state itself counts as accepted.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_t = np.log(proposal)
        log_ratio = log_joint[None, :] + log_t.T - log_joint[:, None] - log_t
    possible = log_joint > -np.inf
    made = (proposal > 0) & possible[:, None]
    ratio = np.exp(np.minimum(0.0, np.where(made, log_ratio, -np.inf)))
    there = made & possible[None, :]
    return Exact(proposal, proposal * ratio, not (there & (proposal.T == 0)).any())


def partition_tuples(n_samples):
    """`enumerate_partitions` as tuples."""
    return [tuple(row) for row in enumerate_partitions(n_samples).tolist()]


def log_joints(posterior):
    """log p(partition, X) of every partition."""
    return np.array([posterior.log_joint(z) for z in partition_tuples(posterior.n_samples)])


def proposals(posterior, phi, blocks="all"):
    """T(z, z* | phi) for every z and z* by enumeration of paths, and how many paths there are."""
    partitions = partition_tuples(posterior.n_samples)
    index = {z: k for k, z in enumerate(partitions)}
    T = np.zeros((len(partitions), len(partitions)))
    n_paths = np.zeros(T.shape, dtype=np.int64)
    for k, z in enumerate(partitions):
        if posterior.log_v[max(z) + 1] == -np.inf:
            continue  # more clusters than the prior allows: no chain is there
        for end, log_t in Construction(posterior, z, phi, blocks).paths():
            T[k, index[end]] += np.exp(log_t)
            n_paths[k, index[end]] += 1
    return T, n_paths


def transition(posterior, phi, blocks="all"):
    """The move given phi, exactly."""
    return metropolis(proposals(posterior, phi, blocks)[0], log_joints(posterior))


# The law of phi.


def disagreements(za, zb):
    """Pairs i < j that are together in one of two partitions, and not in the other."""
    pairs = itertools.combinations(range(len(za)), 2)
    return [(i, j) for i, j in pairs if (za[i] == za[j]) != (zb[i] == zb[j])]


def law_of_phi(n_samples, own=(), history=()):
    """Every phi that makes a difference, with its probability.

    z^a is one of `own`, z^b one of `history`, given that they differ; where no two do, or there
    are none, i and j are any two rows. Moves are symmetric in i and j and in z^a and z^b, and
    ranks of i and j are never asked for.

    Parameters
    ----------
    n_samples : int
    own : sequence of partitions
        Past states of the chain itself.
    history : sequence of partitions
        Of all chains, its own included.

    Returns
    -------
    law : dict of Phi to float
    """
    pairs = Counter()
    for za, zb in itertools.product(map(canonical, own), map(canonical, history)):
        if za != zb:
            pairs[tuple(sorted((za, zb)))] += 1
    law = Counter()
    if not pairs:
        chosen = {(i, j, None, None): 1.0 for i, j in itertools.combinations(range(n_samples), 2)}
        pairs = {None: 1}
    total = sum(pairs.values())
    for pair, count in pairs.items():
        if pair is not None:
            chosen = {(i, j, *pair): 1.0 for i, j in disagreements(*pair)}
        for i, j, za, zb in chosen:
            others = [x for x in range(n_samples) if x not in (i, j)]
            orders = list(itertools.permutations(others))
            for order in orders:
                phi = Phi(i, j, za, zb, (i, j, *order))
                law[phi] += count / total / len(chosen) / len(orders)
    return dict(law)


class Summary(NamedTuple):
    """What moves do in the long run, from the posterior."""

    transition: np.ndarray  # averaged over phi
    accepted: dict  # "split", "merge": probability of such a move that is accepted
    proposed: dict  # and proposed


def summarise(law, matrices, log_joint):
    """Average over phi.

    Parameters
    ----------
    law : dict of Phi to float
    matrices : callable
        Of a phi, an `Exact`.
    log_joint : ndarray of shape (Bell(n),)
    """
    pi = np.exp(log_joint - logsumexp(log_joint))
    n_samples = len(next(iter(law)).order)
    z = enumerate_partitions(n_samples)
    K = np.zeros((len(z), len(z)))
    accepted, proposed = Counter(), Counter()
    for phi, p in law.items():
        exact = matrices(phi)
        K += p * exact.transition
        together = z[:, phi.i] == z[:, phi.j]
        for name, rows in (("split", together), ("merge", ~together)):
            accepted[name] += p * (pi[rows] @ exact.accepted[rows]).sum()
            proposed[name] += p * pi[rows].sum()
    return Summary(K, dict(accepted), dict(proposed))


# Split-merge with a launch state from the past.


def split_merge_transition(posterior, phi, n_restricted_scans, include_z=False):
    """The Jain-Neal move given phi, exactly: launch c = z^a v z^b on the rows of U, z left out.

    Rows of U outside c_i and c_j are in no cluster until the first scan reaches them. With
    `include_z` c is refined by z, as printed, which is wrong. Without past states (z^a None) every
    other row has a random side at launch.
    """
    partitions = partition_tuples(posterior.n_samples)
    index = {z: k for k, z in enumerate(partitions)}
    log_joint = log_joints(posterior)
    K = np.zeros((len(partitions), len(partitions)))
    for k, z in enumerate(partitions):
        if log_joint[k] == -np.inf:
            K[k, k] = 1.0
            continue
        i, j = phi.i, phi.j
        inside = [x for x in phi.order if z[x] in (z[i], z[j])]
        rest = [x for x in inside if x not in (i, j)]
        outside = [("outer", label) if x not in inside else None for x, label in enumerate(z)]
        launches = _launches(posterior, z, phi, outside, rest, include_z)
        for _ in range(n_restricted_scans):
            after = Counter()
            for place, p in launches.items():
                for end, log_q in _scan(posterior, place, rest):
                    after[end] += p * np.exp(log_q)
            launches = after
        stay = 1.0
        for launch, p in launches.items():
            for end, log_q in _scan(posterior, launch, rest):
                if z[i] == z[j]:
                    target, weight = canonical(end), np.exp(log_q)
                    log_ratio = log_joint[index[target]] - log_joint[k] - log_q
                elif canonical(end) == z:
                    target = canonical("i" if name in ("i", "j") else name for name in end)
                    weight = 1.0
                    log_ratio = log_joint[index[target]] - log_joint[k] + log_q
                else:
                    continue
                go = p * weight * np.exp(min(0.0, log_ratio))
                K[k, index[target]] += go
                stay -= go
        K[k, k] += stay
    return K


def _launches(posterior, z, phi, outside, rest, include_z):
    place = list(outside)
    place[phi.i], place[phi.j] = "i", "j"
    if phi.za is None:
        launches = Counter()
        for sides in itertools.product("ij", repeat=len(rest)):
            for x, side in zip(rest, sides, strict=True):
                place[x] = side
            launches[tuple(place)] += 0.5 ** len(rest)
        return launches
    c = [(a, b, label if include_z else 0) for a, b, label in zip(phi.za, phi.zb, z, strict=True)]
    for x in rest:
        place[x] = {c[phi.j]: "j", c[phi.i]: "i"}.get(c[x])
    return {tuple(place): 1.0}


def _scan(posterior, place, rest):
    """Ends of a restricted scan, with log probabilities."""
    if not rest:
        yield tuple(place), 0.0
        return
    x = rest[0]
    others = [None if y == x else name for y, name in enumerate(place)]
    log_w, joined = [], []
    for side in "ij":
        joined.append([side if y == x else name for y, name in enumerate(others)])
        log_prior = posterior.log_join(others.count(side), 1)
        log_w.append(posterior.log_likelihood(joined[-1]) + log_prior)
    for after, w in zip(joined, log_w, strict=True):
        for end, log_q in _scan(posterior, after, rest[1:]):
            yield end, log_q + w - logsumexp(log_w)
