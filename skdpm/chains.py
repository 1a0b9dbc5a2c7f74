# SPDX-License-Identifier: BSD-3-Clause
"""Runs of several Markov chains: seeds, threads, progress, limits, interruption.

A chain is a plain dict, which a `ChainProgram` advances. The dict holds everything that the chain
needs, so pickling, exact continuation and interruption are one mechanism. Its keys are "index"
(number of the chain), "entropy" and "iteration"; after the first iteration also "acceptance"
(proposed and accepted moves after warm-up, by kind), "draws" (`ChainDraws.save`) and the keys
that its `LiveChain` saves.
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import joblib
import numpy as np
from joblib import delayed

from skdpm import _convergence
from skdpm.draws import ChainDraws, Column, column_of
from skdpm.hyperpriors import Hyperprior

# Number of draws of all chains that score new rows.
N_SCORED_DRAWS = 100

# Seconds of a chain's turn in the first second, if there are fewer threads than chains. Turns grow
# with the time, up to a factor. So a short fit that is interrupted has draws of all chains too.
TURN, LARGEST_GROWTH = 0.1, 10.0

# Seconds of a chain's turn otherwise, if somebody waits for a forecast of the time.
PATIENCE = 5.0

# Numbers of warm-up iterations after which `n_warmup="auto"` may end the warm-up, and numbers of
# draws of each chain after which `n_draws="auto"` may end the fit.
WARMUP_LOOKS = (50, 75, 113, 170, 250)
DRAW_LOOKS = (100, 150, 225, 250)
# Iterations of a chain between estimates of the log mass around its state.
MASS_EVERY = 10
# Largest number of draws of each chain with `n_draws="auto"` and `target_ess`.
MOST_DRAWS = 10 * DRAW_LOOKS[-1]


def clocks():
    """Seconds of the clock and of the processors of this program: ndarray of shape (2,)."""
    return np.array([time.monotonic(), time.process_time()])


def seed_entropy(random_state):
    """The entropy of the random streams of a run, an int."""
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
    """The bit generator of one stream of a run. Streams with different keys are independent."""
    return np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=key))


@dataclass(kw_only=True)
class ChainProgram:
    """What the chains of a fit share. Samplers choose the class of the program.

    A subclass implements `resume` and adds to `columns`.

    - `likelihood`, `sampler`: Resolved likelihood, and sampler.
    - `prior_of`: callable. Function (number of rows, concentration) that makes the prior.
    - `concentration`: float or None. Fixed value. None: drawn under `concentration_prior`.
    - `n_warmup`, `n_draws`, `thin`, `n_chains`: int. Lengths; the largest ones if they are found.
      `n_warmup` and `n_draws` may be given as None: the last of their looks.
    - `finds_warmup`, `finds_draws`: bool. Whether warm-up ends when the chains have settled, and
      the draws when the answers are known well enough.
    - `warmup_looks`, `draw_looks`: tuple of int. Numbers of iterations, and of draws, after which
      that is decided.
    - `shortens_warmup`: bool. Whether the warm-up may end early: it does not depend on its length.
    - `summaries`: float. Number of iterations of all chains that take about as long as summaries.
    - `complaint`, `remedies`: str. Words of the warning that chains disagree, and advice.
    - `fewest_compared`: int. Smallest number of draws per chain for R-hat.
    """

    likelihood: object
    sampler: object
    n_samples: int
    prior_of: Callable
    concentration: float | None
    concentration_prior: Hyperprior
    n_warmup: int
    n_draws: int
    thin: int
    n_chains: int
    finds_warmup: bool = False
    finds_draws: bool = False

    warmup_looks = WARMUP_LOOKS
    draw_looks = DRAW_LOOKS
    shortens_warmup = False
    summaries = 15.0
    halts = True  # whether chains can stop before n_iterations
    regroups = False  # whether chains far below the best one restart from it during warm-up
    complaint = "the chains have not mixed"
    remedies = "more iterations (n_warmup, n_draws), another init or another sampler"
    fewest_compared = 4

    def __post_init__(self):
        if self.n_warmup is None:
            self.n_warmup = self.warmup_looks[-1]
        if self.n_draws is None:
            self.n_draws = self.draw_looks[-1]

    @property
    def first_concentration(self):
        """Initial concentration: the fixed value, or 1."""
        return 1.0 if self.concentration is None else self.concentration

    @property
    def n_iterations(self):
        return self.n_warmup + self.n_draws * self.thin

    @property
    def quantities(self):
        """Names of the draws whose effective sample sizes decide when chains stop."""
        names = ("log_joint", "n_components")
        return names if self.concentration is not None else (*names, "concentration")

    @property
    def compared(self):
        """Names of the draws that `diagnostics_` compares between chains."""
        learned = self.likelihood.learned
        numbers = (name for name in learned if not np.ndim(getattr(self.likelihood, name)))
        return (*self.quantities, *map(column_of, numbers))

    def end_warmup(self, chains, n_done):
        """End the warm-up of all chains, which have done n_done iterations."""
        for chain in chains:
            chain["n_warmup"] = n_done
            chain.pop("warmup", None)
        self.continue_from(chains)

    def continue_from(self, chains):
        """Take the length of the warm-up from chains that have ended it early."""
        if "n_warmup" in chains[0]:
            self.n_warmup = chains[0]["n_warmup"]
            self.finds_warmup = False

    def end_draws(self, chains, done):
        """End the draws of continued chains, which have `done` draws each, if a fit that finds
        their number ended with these. Returns the number of draws."""
        # A fit that ended by itself is complete; one that was interrupted goes on.
        ended = len({chain["iteration"] for chain in chains}) == 1
        if self.finds_draws and (done > self.n_draws or (ended and done in self.draw_looks)):
            self.n_draws = done
        return self.n_draws

    def regroup(self, chains, n_done, go_on=lambda **_: True):
        """Restart chains in warm-up, which need not be reversible: those whose log mass is far
        below that of the best one go on from its state. A probe ends where `go_on` says so.

        Returns whether a chain was restarted.
        """
        if not (self.regroups and n_done in self.warmup_looks and n_done < self.n_warmup):
            return False
        if chains[0].get("regrouped") == n_done:
            return True  # a fit that was interrupted asks again
        found, masses = chains, masses_between(chains, n_done // 2, n_done)
        below = _convergence.below_largest(masses)
        if not any("origin" in c for c in chains):
            differ = below.max() > _convergence.FARTHEST_MASS
            probe = self.probe(chains, n_done, differ, go_on)
            if probe is not None:
                found = [*chains, probe]
                masses = masses_between(found, n_done // 2, n_done)
                below = np.maximum(below, _convergence.below_largest(masses)[:-1])
        low = np.flatnonzero(below > _convergence.FARTHEST_MASS)
        for c in low:
            self.restart(chains[c], found[int(np.argmax(masses.mean(axis=1)))])
        if len(low):
            for chain in chains:
                chain["regrouped"] = n_done
        return len(low) > 0

    def probe(self, chains, n_done, differ, go_on):
        """Make a further chain, from another kind of start, as if it had done n_done iterations;
        or None, also if `go_on` ends it. Asked until chains restart; they may restart from it. A
        better start may exist if states `differ`, or have lost what chains might have found."""

    def restart(self, chain, other):
        """Give a chain the state of another one; its random streams stay."""
        raise NotImplementedError(f"{type(self).__name__} must implement `restart`")

    def make_prior(self, concentration, n_samples=None):
        """Make the prior over n_samples rows, by default all, with this concentration."""
        return self.prior_of(self.n_samples if n_samples is None else n_samples, concentration)

    def n_draws_after(self, iteration):
        """Number of draws that a chain has kept after this number of iterations."""
        return max(0, (iteration - self.n_warmup) // self.thin)

    def iteration_of(self, n_draws):
        """Number of iterations after which a chain has kept n_draws > 0 draws."""
        return self.n_warmup + n_draws * self.thin

    @property
    def n_scored_draws(self):
        """Largest number of draws per chain that score new rows."""
        return max(1, N_SCORED_DRAWS // self.n_chains)

    def scores(self, index):
        """Whether draws of chain number `index` score new rows."""
        return index < N_SCORED_DRAWS

    def resample_concentration(self, prior, counts, bit_generator):
        """Draw the concentration of a prior given its counts, unless it is fixed."""
        if self.concentration is None:
            prior.resample(counts, self.concentration_prior, bit_generator)

    def log_hyperprior(self, concentration):
        """log density of concentrations under their hyperprior; 0 if fixed."""
        if self.concentration is not None:
            return np.zeros_like(concentration)
        return self.concentration_prior.log_density(concentration)

    def columns(self):
        """The columns of the kept draws: list of `Column`."""
        return [
            Column("log_joint"),
            Column("concentration"),
            Column("n_components", dtype=np.int64),
        ]

    def resume(self, chain):
        """Make the `LiveChain` of a chain's dict, before its first or after any iteration."""
        raise NotImplementedError(f"{type(self).__name__} must implement `resume`")

    def chain(self, entropy, index):
        """The dict of a chain that has not begun."""
        return {"index": index, "entropy": entropy, "iteration": 0}

    def diagnostics(self, figures, chains):
        """`diagnostics_` of the estimator from those of the draws: dict of dicts."""
        return figures

    def carried(self, run):
        """The part of a finished `Run` that an estimator keeps to continue it."""
        return run

    def advance(self, chain, n_iterations, go_on):
        """Advance a chain in place: see `run_chains`."""
        # Room only for the draws of this call, which limits have already reduced.
        expected = self.n_draws_after(n_iterations)
        draws = ChainDraws(self.columns(), expected, chain.get("draws"))
        iteration = chain["iteration"]
        moves_in_warmup, trace = {}, list(chain.get("warmup", ()))
        masses = list(chain.get("masses", ()))
        with self.resume(chain) as live:
            running = True
            while running and iteration < n_iterations:
                live.step(iteration)
                iteration += 1
                log_joint = live.compute_log_joint()
                if not np.isfinite(log_joint):
                    raise FloatingPointError(
                        f"the log joint density is {log_joint} after iteration {iteration} of "
                        f"chain {chain['index']}; rescale the columns of X"
                    )
                if self.regroups and iteration % MASS_EVERY == 0:
                    masses.append((iteration, live.log_mass(log_joint)))
                if iteration <= self.n_warmup:
                    moves_in_warmup = live.acceptance()
                    trace.append(live.trace(log_joint))
                elif (iteration - self.n_warmup) % self.thin == 0:
                    draws.append(**live.keep(draws.n_kept, log_joint))
                running = go_on(**live.figures(), log_joint=f"{log_joint:.6g}")
            chain.update(
                live.save(),
                iteration=iteration,
                acceptance=_moves(chain.get("acceptance", {}), live.acceptance(), moves_in_warmup),
                draws=draws.save(),
            )
            if self.finds_warmup:
                chain["warmup"] = trace
            if self.regroups:
                chain["masses"] = masses


class LiveChain(contextlib.AbstractContextManager):
    """A chain while it runs, made from its dict of plain objects.

    It is a context manager, so that it may hold resources such as a pool of threads. Its state is
    `state`.
    """

    def __exit__(self, *exception):
        pass

    def step(self, iteration):
        """Do the iteration with this number, from 0: move the state, draw hyperparameters."""
        raise NotImplementedError(f"{type(self).__name__} must implement `step`")

    def compute_log_joint(self):
        """log p of state and data at the current hyperparameters, natural logarithm."""
        return self.state.compute_log_joint()

    def keep(self, draw, log_joint):
        """The entries of the program's columns for draw number `draw`: dict."""
        raise NotImplementedError(f"{type(self).__name__} must implement `keep`")

    def save(self):
        """The state from which `resume` continues to the bit: dict of plain objects."""
        raise NotImplementedError(f"{type(self).__name__} must implement `save`")

    def log_mass(self, log_joint):
        """An estimate of the log of the posterior mass around the state, up to a constant: the log
        joint density, hyperpriors included, plus the entropy of the state given its parameters."""
        raise NotImplementedError(f"{type(self).__name__} must implement `log_mass`")

    def trace(self, log_joint):
        """Numbers whose levels show whether the warm-up can end: tuple of float."""
        return (log_joint,)

    def figures(self):
        """Numbers for the progress bar, by name."""
        return {}

    def acceptance(self):
        """Numbers of moves since the chain was resumed: dict of (proposed, accepted) by kind."""
        return {}


def masses_between(chains, first, last):
    """Estimates of the log mass of each chain in the iterations first + 1, ..., last: ndarray of
    shape (n_chains, n_estimates)."""
    return np.array([[m for i, m in c.get("masses", ()) if first < i <= last] for c in chains])


def _moves(before, now, in_warmup):
    """Numbers of moves after warm-up, including those of earlier calls of `advance`."""
    zero = np.zeros(2, dtype=np.int64)
    return {
        move: before.get(move, zero)
        + np.asarray(now[move])
        - np.asarray(in_warmup.get(move, zero))
        for move in now
    }


def run_chains(
    advance, chains, n_iterations, *, n_jobs=None, verbose=0, halts=None, forecast=None
):
    """Advance each chain, in threads, until it has done `n_iterations`.

    If there are fewer threads than chains, the chains take turns, so that all have about the same
    number of draws when Ctrl-C comes.

    - `advance`: callable. Function `advance(chain, n_iterations, go_on)` that advances a chain in
      place until its `"iteration"` is `n_iterations`. It calls `go_on(**figures)` after each
      iteration, or `go_on(n_done, **figures)` after n_done of them, and stops if that returns
      False. If it raises an error, the chain stays unchanged.
    - `chains`: list of dict. Plain chain states, each with an `"iteration"`.
    - `n_jobs`: int or None. Number of threads. The result does not depend on it.
    - `verbose`: int. Whether to show a progress bar.
    - `halts`: callable or None. Function of the number of iterations that all chains have done. It
      returns the iteration at which they wait for each other next, or None to stop: see `Halts`.
      It is called by the thread that calls `run_chains`. None: chains run to the end.

    Returns `interrupted`: bool. Whether Ctrl-C stopped the chains early.
    """
    remaining = sum(max(0, n_iterations - chain["iteration"]) for chain in chains)
    takes_turns = joblib.effective_n_jobs(n_jobs) < len(chains)
    turn, began = math.inf if forecast is None else PATIENCE, time.monotonic()
    words = None if halts is None else f"at most {remaining}"
    with Interruption() as interruption, _progress_bar(remaining, verbose, words) as report:

        def work(chain, stop):
            end = time.monotonic() + turn

            def go_on(n_done=1, **figures):
                report(figures, n_done)
                return not interruption.requested and time.monotonic() < end

            if interruption.requested:
                return
            try:
                advance(chain, stop, go_on)
            except BaseException:
                interruption.requested = True  # stops the other chains
                raise

        stop = n_iterations if halts is None else halts(min(c["iteration"] for c in chains))
        while stop is not None and not interruption.requested:
            waiting = [chain for chain in chains if chain["iteration"] < stop]
            if waiting:
                if takes_turns:
                    turn = TURN * min(max(1.0, time.monotonic() - began), LARGEST_GROWTH)
                since = None if forecast is None else clocks()
                joblib.Parallel(n_jobs=n_jobs, require="sharedmem")(
                    delayed(work)(chain, stop) for chain in waiting
                )
                if forecast is not None:
                    forecast(sum(chain["iteration"] for chain in chains) / len(chains), since)
            else:
                stop = None if halts is None else halts(stop)
        return interruption.requested


class Interruption:
    """Turn Ctrl-C into a flag, which chains poll between iterations; a second Ctrl-C is immediate.

    Only the main thread can handle signals; in other threads nothing is installed.
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
def _progress_bar(n_iterations, verbose, words):
    """Context that gives a function (figures, number of iterations done) for all chains. Words are
    before the bar until it ends."""
    if not verbose:
        yield lambda figures, n_done: None
        return
    from tqdm.auto import tqdm

    lock = threading.Lock()
    with tqdm(total=n_iterations, unit="it", desc=words) as bar:

        def report(figures, n_done):
            with lock:
                bar.set_postfix(figures, refresh=False)
                bar.update(n_done)

        yield report
        bar.total = bar.n  # chains may stop early
        bar.set_description(None, refresh=False)
