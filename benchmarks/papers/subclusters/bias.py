# SPDX-License-Identifier: BSD-3-Clause
"""Distance of sub-cluster samplers from posteriors that can be enumerated.

Chains start from the posterior of a few Gaussian rows and run for 1, 5 and many iterations. The
distance is the total variation between the law of their partitions and the posterior. For samplers
of `skdpm` there is also the long run: the law of all iterations after the first hundred. The
published restricted sweep (Chang & Fisher 2013, eqs. 7-9), in which clusters may become empty, is
written here in NumPy: the package has only the corrected one.

    python benchmarks/papers/subclusters/bias.py [--chains 4000] [--iterations 40000]
"""

import argparse
import time
from functools import partial

import numpy as np

from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel
from skdpm.papers.sub_cluster import PaperSubClusterKernel

CASES = {
    "five rows": (
        [[1.8, 1.0], [0.1, -1.0], [-0.3, -1.4], [2.1, 0.4], [0.0, -1.2]],
        Gaussian(mean=[0.3, -0.5], mean_precision=0.7, df=4.5, scale=[[1.2, 0.4], [0.4, 0.8]]),
        1.3,
    ),
    "four rows": (
        [[-2.0], [-1.0], [1.0], [2.0]],
        Gaussian(mean=0.0, mean_precision=0.1, df=3.0, scale=1.0),
        1.0,
    ),
}
SAMPLERS = {
    "SubCluster()": partial(SubClusterKernel, launch_every=1),
    "SUBC": PaperSubClusterKernel,
    "SUBC+SUPC": partial(PaperSubClusterKernel, in_groups=True),
    "SUBC APPROX": partial(PaperSubClusterKernel, wait=False),
    "SUBC+SUPC APPROX": partial(PaperSubClusterKernel, in_groups=True, wait=False),
    "SUBC without sub-cluster splits": partial(PaperSubClusterKernel, sub_splits=False),
}
BURN_IN = 100


def partitions_of(n):
    """Every partition of n items, clusters numbered by first appearance."""
    labels = [[0]]
    for _ in range(1, n):
        labels = [one + [k] for one in labels for k in range(max(one) + 2)]
    return np.array(labels)


class Case:
    """A posterior over the partitions of a few rows."""

    def __init__(self, X, likelihood, concentration):
        self.X = np.array(X)
        self.n = len(X)
        self.prior = DirichletProcessPrior(self.n, concentration)
        self.rows = MemoryRows(self.X, self.n)
        self.likelihood = likelihood.resolve(self.X)
        data = self.likelihood.encode(self.X)
        self.model = self.likelihood.bind(data, self.likelihood.tables(data, self.n))
        self.partitions = partitions_of(self.n)
        self.index = {labels.tobytes(): p for p, labels in enumerate(self.partitions)}
        log_joint = np.array([self.state(p).compute_log_joint() for p in self.numbers()])
        self.probabilities = np.exp(log_joint - log_joint.max())
        self.probabilities /= self.probabilities.sum()

    def numbers(self):
        return range(len(self.partitions))

    def state(self, partition):
        """A chain at a partition, given by its number."""
        labels = self.partitions[partition]
        saved = BlockState.start(self.rows, self.likelihood, labels, labels.max() + 1)
        return BlockState(self.rows, self.likelihood, self.prior, self.model, saved)

    def number(self, labels):
        """The number of a partition with any labels."""
        order = {}
        canonical = np.array([order.setdefault(k, len(order)) for k in labels.tolist()])
        return self.index[canonical.tobytes()]

    def draw(self, size, rng):
        return rng.choice(len(self.partitions), size=size, p=self.probabilities)

    def distance(self, partitions):
        """Total variation between the law of drawn partitions and the posterior."""
        counts = np.bincount(partitions, minlength=len(self.partitions))
        return 0.5 * np.abs(counts / counts.sum() - self.probabilities).sum()

    def floor(self, size):
        """Approximate distance of independent draws from the posterior."""
        p = self.probabilities
        return 0.5 * np.sqrt(2 * p * (1 - p) / (np.pi * size)).sum()


def chain(case, make, start, n_iterations, rng):
    """The partition after each iteration of a kernel."""
    state, kernel = case.state(start), make()
    out = np.empty(n_iterations, dtype=np.intp)
    entropy = int(rng.integers(2**62))
    for t in range(n_iterations):
        kernel.step(state, rng, (entropy, 0, t + 1))
        out[t] = case.number(state.cluster_labels())
    return out


def restricted_sweeps(case, starts, n_sweeps, rng, reject):
    """Sweeps of eqs. 7-9 from many partitions at once: weights, parameters, labels. A cluster
    without rows disappears; with `reject`, the sweep is undone instead.

    Returns
    -------
    partitions : ndarray of shape (len(starts),)
    """
    K, D = case.n, case.X.shape[1]
    prior_mean, precision = np.asarray(case.likelihood.mean), case.likelihood.mean_precision
    # The normal-inverse-Wishart posterior of every cluster of every partition.
    sizes = (case.partitions[:, None] == np.arange(K)[:, None]).sum(axis=-1)
    means = np.zeros((*sizes.shape, D))
    roots = np.zeros((*sizes.shape, D, D))
    for p, k in np.ndindex(sizes.shape):
        rows = case.X[case.partitions[p] == k]
        scale = np.array(case.likelihood.scale, dtype=float).reshape(D, D)
        means[p, k] = (precision * prior_mean + rows.sum(axis=0)) / (precision + len(rows))
        for centre, weight in ((rows, 1.0), (prior_mean[None], precision)):
            gap = centre - means[p, k]
            scale = scale + weight * gap.T @ gap
        roots[p, k] = np.linalg.cholesky(np.linalg.inv(scale))
    current = np.array(starts)
    for _ in range(n_sweeps):
        N = sizes[current]
        shape = (len(current), K, D, D)
        T = np.tril(rng.standard_normal(shape), -1)
        for d in range(D):
            T[..., d, d] = np.sqrt(rng.chisquare(case.likelihood.df + N - d))
        R = np.swapaxes(roots[current] @ T, -1, -2)  # R'R is the precision drawn
        z = rng.standard_normal(shape[:-1]) / np.sqrt(precision + N)[..., None]
        mu = means[current] + np.linalg.solve(R, z[..., None])[..., 0]
        with np.errstate(divide="ignore"):
            log_weights = np.log(rng.standard_gamma(np.maximum(N, 1e-300)))
        log_weights[N == 0] = -np.inf
        y = np.einsum("ckde,cnke->cnkd", R, case.X[None, :, None] - mu[:, None])
        log_det = np.log(np.diagonal(R, axis1=-2, axis2=-1)).sum(axis=-1)
        log_p = (log_weights + log_det)[:, None] - 0.5 * (y**2).sum(axis=-1)
        labels = (log_p + rng.gumbel(size=log_p.shape)).argmax(axis=-1)
        used = (labels[:, :, None] == np.arange(K)).any(axis=1).sum(axis=1)
        new = np.array([case.number(row) for row in labels])
        current = np.where(reject & (used < (N > 0).sum(axis=1)), current, new)
    return current


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chains", type=int, default=4000, help="of 1, 5 and 50 iterations")
    parser.add_argument("--iterations", type=int, default=40000, help="of the long run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    for name, arguments in CASES.items():
        case = Case(*arguments)
        clusters = case.partitions.max(axis=1) + 1
        expected = clusters @ case.probabilities
        print(f"{name}: {len(case.partitions)} partitions, {expected:.2f} clusters on average")
        n = 10 * args.chains
        starts = case.draw(n, rng)
        for reject in (False, True):
            title = "corrected restricted sweep" if reject else "published restricted sweep"
            found = [
                case.distance(restricted_sweeps(case, starts, times, rng, reject))
                for times in (1, 5, 50)
            ]
            print(f"  {title:45s}", *(f"{d:.3f}" for d in found), f"floor {case.floor(n):.3f}")
        for title, make in SAMPLERS.items():
            began = time.perf_counter()
            found = []
            for times, n_chains in ((1, args.chains), (5, args.chains), (50, args.chains // 5)):
                starts = case.draw(n_chains, rng)
                ends = [chain(case, make, start, times, rng)[-1] for start in starts]
                found.append(f"{case.distance(np.array(ends)):.3f}")
            runs = [
                chain(case, make, start, args.iterations // 10 + BURN_IN, rng)[BURN_IN:]
                for start in case.draw(10, rng)
            ]
            long_run = np.concatenate(runs)
            found.append(f"long run {case.distance(long_run):.3f}")
            halves = (
                case.distance(np.concatenate(runs[:5])),
                case.distance(np.concatenate(runs[5:])),
            )
            found.append("(halves {:.3f}, {:.3f})".format(*halves))
            found.append(f"{clusters[long_run].mean():.2f} clusters")
            print(f"  {title:45s}", *found, f"{time.perf_counter() - began:.0f} s", flush=True)
        floors = [case.floor(m) for m in (args.chains, args.chains, args.chains // 5)]
        print(f"  {'floor':45s}", *(f"{floor:.3f}" for floor in floors))


if __name__ == "__main__":
    main()
