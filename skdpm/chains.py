# SPDX-License-Identifier: BSD-3-Clause
"""Run several Markov chains: seeds, threads, progress, interruption.

A chain is a plain dict, and a family of models supplies one function that advances it. Pickling,
exact continuation and interruption are then one mechanism: whatever a chain needs is in its dict.
"""

import contextlib
import math
import signal
import threading
import time

import joblib
import numpy as np
from joblib import delayed

# Seconds that a chain runs before the next one has its turn, where threads are fewer than chains.
TURN = 1.0


def seed_entropy(random_state):
    """The entropy of a run's random streams, an int, from any `random_state`.

    Parameters
    ----------
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None

    Returns
    -------
    entropy : int

    Raises
    ------
    ValueError
        For anything else.
    """
    if random_state is None:
        return np.random.SeedSequence().entropy
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}")
        return int(random_state)
    if random_state is np.random:
        random_state = np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        words = random_state.randint(0, 2**32, size=4, dtype=np.uint64)
    elif isinstance(random_state, np.random.Generator):
        words = random_state.integers(0, 2**32, size=4, dtype=np.uint64)
    else:
        raise ValueError(
            "random_state must be an int, a numpy RandomState or Generator, or None; got "
            f"{random_state!r}"
        )
    return sum(int(word) << (32 * j) for j, word in enumerate(words))


def stream(entropy, *key):
    """The bit generator of one stream of a run; streams of different keys are independent."""
    return np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=key))


def run_chains(advance, chains, n_iterations, *, n_jobs=None, verbose=0):
    """Advance each chain, in threads, until it has done `n_iterations`.

    Where there are fewer threads than chains, the chains take turns, so that all have about as
    many draws when Ctrl-C comes.

    Parameters
    ----------
    advance : callable
        `advance(chain, n_iterations, go_on)` advances a chain in place until its `"iteration"`
        is `n_iterations`, and calls `go_on(**figures)` after every iteration; where that returns
        False it stops, leaving the chain as after a completed iteration. One that raises leaves
        the chain as it was.
    chains : list of dict
        Plain chain states, each with an `"iteration"`.
    n_iterations : int
    n_jobs : int or None
        Threads; the result does not depend on it.
    verbose : int
        Positive: a progress bar.

    Returns
    -------
    interrupted : bool
        Whether Ctrl-C stopped the chains early.
    """
    remaining = sum(n_iterations - chain["iteration"] for chain in chains)
    turn = TURN if joblib.effective_n_jobs(n_jobs) < len(chains) else math.inf
    with _Interruption() as interruption, _progress_bar(remaining, verbose) as report:

        def work(chain):
            end = time.monotonic() + turn

            def go_on(**figures):
                report(figures)
                return not interruption.requested and time.monotonic() < end

            if interruption.requested:
                return
            try:
                advance(chain, n_iterations, go_on)
            except BaseException:
                interruption.requested = True  # no use in finishing the others
                raise

        while not interruption.requested:
            waiting = [chain for chain in chains if chain["iteration"] < n_iterations]
            if not waiting:
                break
            joblib.Parallel(n_jobs=n_jobs, require="sharedmem")(
                delayed(work)(chain) for chain in waiting
            )
        return interruption.requested


class _Interruption:
    """Turn Ctrl-C into a flag that chains poll between iterations; a second Ctrl-C is immediate.

    Signals can be handled in the main thread only; elsewhere nothing is installed.
    """

    def __init__(self):
        self.requested = False

    def __enter__(self):
        self._previous = None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is not None:
                signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *exception):
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _request(self, signum, frame):
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextlib.contextmanager
def _progress_bar(n_iterations, verbose):
    """A function that takes the figures of each iteration, of whichever chain."""
    if not verbose:
        yield lambda figures: None
        return
    from tqdm.auto import tqdm

    lock = threading.Lock()
    with tqdm(total=n_iterations, unit="it") as bar:

        def report(figures):
            with lock:
                bar.set_postfix(figures, refresh=False)
                bar.update()

        yield report
