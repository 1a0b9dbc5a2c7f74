# SPDX-License-Identifier: BSD-3-Clause
"""What an iteration of `SubCluster` costs on a Dask cluster, and what becomes of it when workers
come, go and are slow.

    python benchmarks/dask_workers.py exchange           # what one exchange costs, no rows
    python benchmarks/dask_workers.py threads            # 10^6 and 10^7 rows: threads, then Dask
    python benchmarks/dask_workers.py file --rows 100000000 --folder FOLDER
    python benchmarks/dask_workers.py workers            # one lost, one added, one slow

Workers are processes of one thread on this machine. Times are on the wall, since several processes
share the work: run it where nothing else runs. Those of threads and of Dask alternate. `file`
writes rows of eight float32 columns (3.2 GB for 10^8) into a memory-mapped file in FOLDER, and
deletes it in the end. `doc/dask_limits.md` reads the results.
"""

import argparse
import logging
import pickle
import tempfile
import time
import warnings

import dask.array
import numpy as np
import psutil
from distributed import Client, LocalCluster

from skdpm import DPMixture
from skdpm.datasets import make_gaussian_mixture
from skdpm.mixture.blocks import dask_rows
from skdpm.mixture.samplers import SubCluster


def cluster(n_workers):
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
    )


# Chains with clocks.


class Chain:
    """A chain that is advanced by hand, and the seconds that each iteration took."""

    def __init__(self, X, n_threads=1, init="single", block_size=65536, seed=0):
        model = DPMixture(
            sampler=SubCluster(block_size=block_size),
            n_chains=1,
            n_jobs=n_threads,
            n_warmup=0,
            n_draws=10**6,
            init=init,
            store_labels=False,
            point_estimate="last",
        )
        self.program = model._program(X, model._resolved("likelihood"), model._resolved("sampler"))
        self.state = self.program.chain(seed, 0)
        self.seconds = []

    def run(self, n_iterations, look=None):
        began = time.perf_counter()

        def go_on(**figures):
            nonlocal began
            self.seconds.append(time.perf_counter() - began)
            if look is not None:
                look(self.seconds[-1])
            began = time.perf_counter()
            return True

        self.program.advance(self.state, self.state["iteration"] + n_iterations, go_on)

    def log_joint(self):
        return self.state["draws"]["log_joint"]

    def n_clusters(self):
        return int(self.state["draws"]["n_components"][-1])

    def median(self, n_iterations):
        return np.median(self.seconds[-n_iterations:])


# What an exchange costs.


def cpu_seconds():
    """Processor time so far: of this process (client and scheduler), and of its workers."""
    me = psutil.Process()
    return (
        sum(me.cpu_times()[:2]),
        sum(sum(child.cpu_times()[:2]) for child in me.children(recursive=True)),
    )


def nothing(X, block, start, store):
    return None


def exchange(args):
    """An exchange that does nothing, and as many tasks that do nothing, by number of workers."""
    print(f"{'workers':>8}{'exchange':>10}{'tasks':>10}   processor time of client and scheduler")
    for n_workers in args.workers:
        with cluster(n_workers) as there, Client(there):
            X = dask.array.zeros((64 * n_workers, 2), chunks=(64, 2))
            rows = dask_rows.DaskRows(X, 64)

            def by_exchange(rows=rows):
                rows._exchange(nothing, (), list)

            def by_tasks(rows=rows):
                workers = list(rows.client.nthreads())
                tasks = [rows.client.submit(abs, 1, workers=[w], pure=False) for w in workers]
                rows.client.gather(tasks)

            lines = []
            for call in (by_exchange, by_tasks):
                for _ in range(10):
                    call()
                before, seconds = cpu_seconds()[0], []
                for _ in range(args.repetitions):
                    began = time.perf_counter()
                    call()
                    seconds.append(time.perf_counter() - began)
                lines.append((np.median(seconds), (cpu_seconds()[0] - before) / args.repetitions))
            (one, one_cpu), (other, other_cpu) = lines
            print(
                f"{n_workers:>8}{1e3 * one:>7.1f} ms{1e3 * other:>7.1f} ms   "
                f"{1e3 * one_cpu:.1f} ms, {1e3 * other_cpu:.1f} ms",
                flush=True,
            )


def bytes_of_a_visit(chain):
    """Bytes to each worker and back from a block or a node of the tree of sums."""
    codes, collected = chain.state["state"]["codes"], chain.state["state"]["collected"]
    sent = len(pickle.dumps((chain.program.likelihood, None, codes.task, codes.key)))
    return sent, len(pickle.dumps(collected))


# Threads and Dask.


def threads(args):
    """The same rows in two threads and on two workers, in 16 chunks, block by block the same."""
    for n_rows in args.rows or (10**6, 10**7):
        X, _ = make_gaussian_mixture(n_rows, n_clusters=12, spread=0.02, random_state=0)
        chunk = n_rows // 16
        block_size = chunk // -(-chunk // 65536)
        with cluster(2) as there, Client(there):
            here = Chain(X, 2, block_size=block_size)
            remote_chain = Chain(
                dask.array.from_array(X, chunks=(chunk, 2)), block_size=block_size
            )
            for chain in (here, remote_chain):
                chain.run(args.warmup)
            for _ in range(args.turns):
                here.run(args.iterations)
                remote_chain.run(args.iterations)
            n = args.turns * args.iterations
            same = np.array_equal(here.log_joint(), remote_chain.log_joint())
            one, other = here.median(n), remote_chain.median(n)
            sent, back = bytes_of_a_visit(remote_chain)
            print(
                f"{n_rows} x 2, {remote_chain.n_clusters()} clusters: two threads "
                f"{1e3 * one:.1f} ms, two workers {1e3 * other:.1f} ms, "
                f"{100 * (other / one - 1):+.0f} %; "
                f"the same log joints: {same}; {sent} bytes to a worker, {back} from a node",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("which", choices=["exchange", "threads"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    globals()[args.which](args)


if __name__ == "__main__":
    main()
