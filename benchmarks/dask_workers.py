# SPDX-License-Identifier: BSD-3-Clause
"""What an iteration of `SubCluster` costs on a Dask cluster, and what becomes of it when workers
come, go and are slow.

    python benchmarks/dask_workers.py exchange           # what one exchange costs, no rows
    python benchmarks/dask_workers.py messages           # bytes, and what becomes of them
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
import os
import pickle
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import dask
import dask.array
import numpy as np
import psutil
from distributed import Client, LocalCluster

from skdpm import DPMixture
from skdpm.datasets import make_gaussian_mixture
from skdpm.mixture.blocks import dask_rows
from skdpm.mixture.blocks.records import Sweep, Task
from skdpm.mixture.blocks.rows import MemoryRows, add_up
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SubCluster

# Without these, workers of dask give memory back to the system after each block and ask for it
# again: `--dask-malloc` leaves dask's own settings.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}


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

    def start_at(self, X, labels):
        """Start from the clusters of some labelled rows: all others join the likely ones."""
        n_clusters = int(labels.max()) + 1
        sweep = replace(sweep_of(X, labels, n_clusters)[1].sweep, sub_params=None)
        program, task = self.program, Task(n_clusters, sweep)
        rows, likelihood = program.rows, program.likelihood
        codes, collected = rows.visit(likelihood, rows.codes(None), task, (0, 0, 0))
        self.state["state"] = {
            "codes": codes,
            "collected": collected,
            "log_constant": rows.log_constant(likelihood),
        }
        self.state |= {"concentration": 1.0, "values": {}}
        return self

    def run(self, n_iterations):
        began = time.perf_counter()

        def go_on(**figures):
            nonlocal began
            now = time.perf_counter()
            self.seconds.append(now - began)
            began = now
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


def sweep_of(X, labels, n_clusters):
    """Likelihood, task and statistics of a pass with so many clusters, each with sub-clusters."""
    likelihood = Gaussian().resolve(X)
    rows = MemoryRows(X, len(X))
    _, collected = rows.visit(likelihood, 2 * labels, Task(n_clusters), None)
    model, rng = likelihood.parametric(X[:0]), np.random.PCG64(0)
    totals, zeros = np.repeat(collected.stats[0::2], 2, axis=0), np.zeros(2 * n_clusters)
    params = model.draw(totals, np.ones(2 * n_clusters), rng)
    sweep = Sweep(params[0::2].copy(), zeros[0::2].copy(), params, zeros)
    return likelihood, Task(n_clusters, sweep), collected


def messages(args):
    """Bytes of a visit, and what the client does with the answers, by columns and clusters."""
    rng = np.random.default_rng(0)
    print(
        f"{'columns':>8}{'clusters':>9}{'to a worker':>14}{'a node':>12}{'add up, per node':>18}"
    )
    for n_features in (2, 8, 32):
        for n_clusters in (10, 100):
            labels = np.arange(40 * n_clusters, dtype=np.int32) % n_clusters
            X = rng.standard_normal((len(labels), n_features)) + labels[:, None]
            likelihood, task, collected = sweep_of(X, labels, n_clusters)
            sent = len(pickle.dumps((likelihood, None, task, (1, 2, 3), b"0" * 16)))
            back = len(pickle.dumps(collected))
            nodes = {(0, j): collected for j in range(64)}
            model, seconds = likelihood.parametric(X[:0]), []
            for _ in range(args.repetitions // 4):
                began = time.process_time()
                pickle.loads(pickle.dumps(nodes))
                add_up(model, nodes, 64)
                seconds.append((time.process_time() - began) / 64)
            print(
                f"{n_features:>8}{n_clusters:>9}{sent / 1e3:>11.1f} kB{back / 1e3:>9.1f} kB"
                f"{1e3 * min(seconds):>15.2f} ms",
                flush=True,
            )


# Threads and Dask.


def two_threads(args):
    """The same rows in two threads and on two workers, in 16 chunks, block by block the same."""
    for n_rows in args.rows or (10**6, 10**7):
        X, y = make_gaussian_mixture(n_rows, n_clusters=12, spread=0.02, random_state=0)
        chunk = n_rows // 16
        block_size = chunk // -(-chunk // 65536)
        with cluster(2) as there, Client(there):
            chains = [
                Chain(X, 2, block_size=block_size),
                Chain(dask.array.from_array(X, chunks=(chunk, 2)), block_size=block_size),
            ]
            for chain in chains:
                chain.start_at(X[:20_000], y[:20_000]).run(args.warmup)
            work = np.zeros(2)
            for _ in range(args.turns):
                for c, chain in enumerate(chains):
                    before = sum(cpu_seconds())
                    chain.run(args.iterations)
                    work[c] += sum(cpu_seconds()) - before
        n = args.turns * args.iterations
        here, remote = (np.array(chain.seconds[-n:]) for chain in chains)
        same = np.array_equal(*(chain.log_joint() for chain in chains))
        print(
            f"{n_rows} x 2, {chains[1].n_clusters()} clusters, {n} iterations; the same log "
            f"joints: {same}"
        )
        for what, one, other in (
            ("median", np.median(here), np.median(remote)),
            ("least", here.min(), remote.min()),
            ("processor time", *work / n),
        ):
            print(
                f"  {what}: two threads {1e3 * one:.1f} ms, two workers {1e3 * other:.1f} ms, "
                f"{100 * (other / one - 1):+.0f} %",
                flush=True,
            )


def read_rows(path, block_info=None):
    """The rows of one chunk, mapped into the memory of the worker that visits them."""
    start, stop = block_info[None]["array-location"][0]
    return np.load(path, mmap_mode="r")[start:stop]


def file(args):
    """Rows of eight float32 columns in a memory-mapped file, in 64 chunks, on two workers."""
    n_rows = (args.rows or [10**8])[0]
    chunk = n_rows // 64
    rng = np.random.default_rng(0)
    centres = 8.0 * rng.standard_normal((12, 8))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = str(Path(folder) / "rows.npy")
        X = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, 8))
        for start in range(0, n_rows, chunk):
            labels = rng.integers(0, 12, min(chunk, n_rows - start))
            noise = rng.standard_normal((len(labels), 8), dtype=np.float32)
            X[start : start + chunk] = centres[labels] + noise
        del X
        rows = dask.array.map_blocks(
            read_rows,
            path,
            chunks=((chunk,) * (n_rows // chunk), (8,)),
            dtype=np.float32,
            meta=np.empty((0, 0), dtype=np.float32),
        )
        with cluster(2) as there, Client(there):
            began, before = time.perf_counter(), sum(cpu_seconds())
            chain = Chain(rows)
            first = np.load(path, mmap_mode="r")[:20_000].astype(np.float64)
            gaps = ((first[:, None, :] - centres) ** 2).sum(axis=2)
            chain.start_at(first, gaps.argmin(axis=1).astype(np.int32))
            print(
                f"{n_rows} x 8: looked through three times in {time.perf_counter() - began:.1f} s"
            )
            chain.run(args.iterations)
            work = sum(cpu_seconds()) - before
            print(
                f"  {args.iterations} iterations, from the first: "
                f"{', '.join(f'{seconds:.1f}' for seconds in chain.seconds)} s; processor time of "
                f"all {work:.0f} s; {chain.n_clusters()} clusters"
            )
            for worker in psutil.Process().children(recursive=True):
                memory = worker.memory_info()
                if memory.rss > 0.1 * n_rows:
                    own = memory.rss - memory.shared
                    print(
                        f"  a worker has {own / 1e6:.0f} MB beside {memory.shared / 1e6:.0f} MB "
                        "of the file"
                    )


def workers(args):
    """Iterations while a worker is lost, then while one is added, then while one is slow."""
    n_rows = (args.rows or [10**6])[0]
    X, y = make_gaussian_mixture(n_rows, n_clusters=12, spread=0.02, random_state=0)
    some = X[:20_000], y[:20_000]
    here = Chain(X, 1, block_size=n_rows // 16).start_at(*some)
    here.run(args.warmup)
    dask_rows.SECONDS_PER_PLACING, dask_rows.TIMES_PER_PLACING = 2.0, 1.0
    for event in args.events:
        with cluster(2) as there, Client(there) as client:
            chain = Chain(
                dask.array.from_array(X, chunks=(n_rows // 16, 2)), block_size=n_rows // 16
            ).start_at(*some)
            chain.run(args.warmup // 2)
            usual = chain.median(args.warmup // 4)
            pids = client.run(os.getpid)
            victim = psutil.Process(pids[min(pids)])
            if event == "lost":
                victim.kill()
            elif event == "added":
                there.scale(3)
                client.wait_for_workers(3)
            else:
                stop = threading.Event()
                brake = threading.Thread(target=slow_down, args=(victim, stop))
                brake.start()
            chain.run(args.warmup - args.warmup // 2)
            began = time.perf_counter()
            while time.perf_counter() - began < 6.0:
                chain.run(1)
            if event == "slow":
                stop.set()
                brake.join()
            after = np.array(chain.seconds[args.warmup // 2 :])
            n = min(len(here.log_joint()), len(chain.log_joint()))
            same = np.array_equal(here.log_joint()[:n], chain.log_joint()[:n])
            places = sorted(len(chunks) for chunks in chain.program.rows._placing.chunks.values())
            print(
                f"{event}: before {1e3 * usual:.0f} ms; then the first {1e3 * after[0]:.0f} ms, "
                f"the first ten {1e3 * np.median(after[:10]):.0f} ms, the last ten "
                f"{1e3 * np.median(after[-10:]):.0f} ms; chunks of workers {places}; the same log "
                f"joints: {same}",
                flush=True,
            )


def slow_down(process, stop, share=0.7):
    """Hold a process for that share of the time, in turns of 20 ms, until told to stop."""
    while not stop.is_set():
        process.suspend()
        time.sleep(0.02 * share)
        process.resume()
        time.sleep(0.02 * (1.0 - share))


MEASUREMENTS = {
    "exchange": exchange,
    "messages": messages,
    "threads": two_threads,
    "file": file,
    "workers": workers,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("which", choices=MEASUREMENTS)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--events", nargs="+", default=["lost", "added", "slow"])
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--dask-malloc", action="store_true")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    args = parser.parse_args()
    if not args.dask_malloc:
        environment = dask.config.get("distributed.nanny.pre-spawn-environ")
        dask.config.set({"distributed.nanny.pre-spawn-environ": {**environment, **KEEP_MEMORY}})
    warnings.simplefilter("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    MEASUREMENTS[args.which](args)


if __name__ == "__main__":
    main()
