# SPDX-License-Identifier: BSD-3-Clause
"""Where the chains of a fit wait for each other, where warm-up ends, and where the fit ends.

Chains stop together, each with the same number of draws, so that a fit with the numbers that this
one used gives the same bits. Lengths that are "auto" and effective sample sizes are decided after
fixed numbers of iterations, by the chains alone. Only time limits depend on the machine.
"""

import math
import time

import numpy as np

from skdpm import _convergence, diagnostics
from skdpm.chains import PATIENCE, clocks, masses_between

# Seconds between checks of the time limit, for which all chains wait.
ROUND = 0.5

# Number of draws of each chain at the first computation of the effective sample size, and the
# factor by which it grows until the next one.
FIRST_LOOK = 50
LOOK_GROWTH = 1.1

# Largest R-hat in the second half of a warm-up that has settled, and largest drift of the chains
# that have not moved in one direction, in standard errors of its mean over the chains.
SETTLED_R_HAT = 1.1
SETTLED_DRIFT = 1.0
# Smallest number of iterations per component in warm-up, and the standard error of the mean log
# mass, in nats, up to which they are not needed: a drift by FARTHEST_MASS would then be seen.
# Components split and merge one at a time, so that many of them drift slowly.
ITERATIONS_PER_COMPONENT = 3
LARGEST_ERROR = _convergence.FARTHEST_MASS / 3.0

# Seconds from which a fit without a progress bar shows after `PATIENCE` how long it will take.
LONG = 60.0
# Smallest ratio of the pace, in seconds per iteration, to the one before that counts as steady.
STEADY = 2.0 / 3.0
# Share of a processor below which the machine is called busy.
BUSY = 0.5

# Largest share of a time limit that is kept for summaries of the draws.
MOST_FOR_SUMMARIES = 0.4
# Share of a time limit after which no probe goes on.
MOST_FOR_PROBES = 0.4


class Halts:
    """Function of the number of iterations that all chains have done: see `__call__`.

    - `run`: Run. Its program's `n_warmup` becomes that of settled chains, if it `finds_warmup`.
    - `well_known`: callable. Function of the run and a number of draws per chain: whether the
      answers are known well enough. Asked if the program `finds_draws`.
    - `began`: float or None. Start of the fit on the clock of `time.monotonic`.
    - `max_time`: float or None. Limit of the fit in seconds. It is checked in rounds, first longer
      and longer, then shorter. No draw is begun that would probably end too late.
    - `reports`: FitReports or None. Reports to callbacks, which may end the fit.
    - `is_late`: bool. Whether the time was over before the first draw, or cut the warm-up.
    - `ess`: float. Last computed effective sample size; NaN before the first.
    """

    def __init__(self, run, well_known, began, *, max_time=None, target_ess=None, reports=None):
        self.run = run
        self.program = program = run.program
        self.chains = run.chains
        self.began = began
        self.max_time = math.inf if max_time is None else max_time
        self.target_ess = math.inf if target_ess is None else target_ess
        self.well_known = well_known
        self.reports = reports
        self.is_late = False
        self.ess = math.nan
        self._ended = False  # by a callback
        self._looked = False
        self.clock = None if max_time is None else _Clock(began, max_time, program)

    def __call__(self, n_done):
        """The iteration, after n_done, at which chains wait next; None: they stop now."""
        program = self.program
        if self.reports is not None:
            self._ended |= self.reports.tell(n_done)
        regrouped = program.regroup(self.chains, n_done, self._affords_probe)
        looks = program.warmup_looks if program.finds_warmup and not regrouped else ()
        if n_done in looks and n_done <= program.n_warmup:
            if n_done == looks[-1] or settled(self.chains, n_done):
                program.end_warmup(self.chains, n_done)
        steps = math.inf if self.clock is None else self.clock.affordable(n_done, program)
        if steps < 1 and 0 < n_done < program.n_warmup and program.shortens_warmup:
            # The rest of the warm-up would leave no time for draws.
            self.is_late |= self.run.cut_warmup()
            if n_done < program.n_warmup:
                return program.n_warmup
            steps = self.clock.affordable(n_done, program)
        n_draws = program.n_draws_after(n_done)
        if n_done >= program.n_iterations or self._enough(n_draws):
            return None
        stop = min(program.n_iterations, self._next_look(n_done, n_draws))
        if self.reports is not None:
            stop = min(stop, self.reports.next_after(n_done))
        if self._ended or steps < 1:
            # A callback ends the fit when chains can be compared, a time limit at the first draw.
            fewest = min(program.fewest_compared, program.n_draws) if self._ended else 1
            if n_draws >= fewest:
                return None
            self.is_late |= not self._ended
            return min(stop, program.iteration_of(fewest))
        if steps == math.inf:
            return stop
        if n_done < program.n_warmup:
            return min(stop, n_done + steps, program.n_warmup)
        # Chains must have the same number of draws.
        return min(stop, program.iteration_of(n_draws + max(1, steps // program.thin)))

    def _affords_probe(self, **_):
        """Whether a probe may go on: until a share of the time limit is over."""
        return time.monotonic() < (self.began or 0.0) + MOST_FOR_PROBES * self.max_time

    def _enough(self, n_draws):
        program = self.program
        if n_draws > 0 and program.finds_draws and self.target_ess == math.inf:
            return n_draws in program.draw_looks and self.well_known(self.run, n_draws)
        if self.target_ess == math.inf or n_draws < min(FIRST_LOOK, program.n_draws):
            return False
        if not self._looked or n_draws in self._looks(n_draws):
            self._looked = True
            self.ess = self.run.least_ess(n_draws)
        return self.ess >= self.target_ess

    def _looks(self, n_draws):
        """Numbers of draws, up to n_draws and the next one, at which the ESS is computed."""
        looks = [FIRST_LOOK]
        while looks[-1] <= n_draws:
            looks.append(math.ceil(LOOK_GROWTH * looks[-1]))
        return looks

    def _next_look(self, n_done, n_draws):
        """The next iteration after which something is decided."""
        program = self.program
        if n_done < program.n_warmup and (program.finds_warmup or program.regroups):
            looks = [look for look in program.warmup_looks if n_done < look <= program.n_warmup]
            if looks:
                return min(looks)
        if self.target_ess != math.inf:
            return program.iteration_of(self._looks(n_draws)[-1])
        if program.finds_draws:
            later = [look for look in program.draw_looks if look > n_draws]
            return program.iteration_of(min(later, default=program.n_draws))
        return program.n_iterations


class _Clock:
    """Division of a time limit among warm-up, draws and summaries, which take as long as
    `summaries` iterations. `began` and `max_time` are those of `Halts`."""

    def __init__(self, began, max_time, program):
        self.began, self.end = began, began + max_time
        self.most_for_summaries = MOST_FOR_SUMMARIES * max_time
        self.summaries = program.summaries
        self.whole = np.array(_lengths(program, 0))  # before a warm-up is cut
        self._first = None  # iterations and time at the first check, then after the first round
        self._last = None  # iterations and time at the last check
        self._pace = None  # seconds per iteration in the last round
        self._steps = 1  # iterations of the round
        self._sampling = None  # when the first whole iteration began

    def affordable(self, n_done, program):
        """Number of iterations of the next round; 0 if time is over, or would be before a draw, or
        warm-up has taken its share."""
        now = time.monotonic()
        if self._last is None:
            # The first round includes the start of the chains, so it has no pace.
            self._last = self._first = (n_done, now)
            return 1 if now < self.end or n_done == 0 else 0
        if n_done > self._last[0]:
            if self._last != self._first:
                self._pace = (now - self._last[1]) / (n_done - self._last[0])
            self._last = (n_done, now)
            if self._sampling is None:
                self._sampling = now
        if self._pace is None:
            return 1 if now < self.end else 0
        end = self.end - min(self.most_for_summaries, self.summaries * self._pace)
        if n_done < program.n_warmup and program.shortens_warmup:
            # Warm-up takes its share of the iterations, or half of the time if that is more.
            share = min(0.5, 1.0 - program.n_warmup / program.n_iterations)
            end -= max(end - self._sampling, 0.0) * share
        remaining = end - now
        if remaining <= 0.0:
            return 0
        if n_done >= program.n_warmup and remaining < self._pace * program.thin:
            return 0
        # At most half of the remaining time, because iterations may become slower.
        most = min(ROUND, remaining / 2) / self._pace if self._pace > 0.0 else math.inf
        self._steps = max(1, int(min(2 * self._steps, most)))
        return self._steps

    def words_about_whole(self):
        """Words about the time of a whole fit, by the pace of this one in its last round."""
        done, now = self._last
        pace = self._pace or (now - self.began) / max(1, done)
        return _durations(*(now - self.began + pace * (self.whole - done + self.summaries)))


def settled(chains, n_done):
    """Whether chains in warm-up have settled: whether the second half of their first n_done
    iterations agrees about the log joint and the number of components, or shows no common drift,
    and is not too short for a drift of many components.

    Chains that stay apart may be settled: more warm-up would not join them. `chains` are dicts
    with "warmup", an array of shape (n_iterations, n_quantities), and maybe "masses".
    """
    traces = np.array([chain["warmup"][:n_done] for chain in chains])
    traces = traces[:, traces.shape[1] // 2 :]
    if not all(_is_level(traces[:, :, q]) for q in range(traces.shape[2])):
        return False
    masses = masses_between(chains, n_done // 2, n_done)
    if masses.size == 0 or n_done >= ITERATIONS_PER_COMPONENT * traces[:, :, 1].mean():
        return True
    error = np.sqrt(masses.var(axis=1, ddof=1).mean() / masses.size)
    return bool(error <= LARGEST_ERROR)


def _is_level(values):
    """Whether traces (n_chains, n_iterations) agree, or show no common drift."""
    if diagnostics.split_rhat(diagnostics.without_last_bits(values)) <= SETTLED_R_HAT:
        return True
    n_chains, half = len(values), values.shape[1] // 2
    if n_chains < 3:
        return False
    drifts = values[:, -half:].mean(axis=1) - values[:, :half].mean(axis=1)
    error = drifts.std(ddof=1) / np.sqrt(n_chains)
    return bool(abs(drifts.mean()) <= SETTLED_DRIFT * error)


class Forecast:
    """Report once, after a few seconds, that a fit will take minutes, by the function `say` of a
    message. `began` is the start of the fit on the clock of `time.monotonic`, `n_jobs` the number
    of chains that run at once.

    A call has the number of iterations and the times at which these began to run (`clocks`); what
    chains do while they wait for each other does not count. The first call is after the starts of
    the chains. The pace is that since the last call, in processor time; the share of the processor
    that the fit gets is the mean of all calls, as it varies. First iterations are slower, up to
    ten times, so a pace counts if it is not much faster than the one before. A single one may be
    slower, too, so the faster of both is taken. If the fit finds its lengths, the times are those
    of the shortest and of the longest, and their geometric mean decides whether the fit is long.
    """

    def __init__(self, program, began, n_jobs, say):
        self.program = program
        self.n_jobs = n_jobs
        self.began = began
        self.say = say
        self.said = False
        self._spent = np.zeros(2)  # seconds in which chains ran, and of processors
        self._n_before = None  # iterations at the last call
        self._pace = 0.0  # processor seconds per iteration before it; 0: unknown

    def __call__(self, n_done, since):
        now = clocks()
        n_before, self._n_before = self._n_before, n_done
        if self.said or n_before is None or n_done <= n_before:
            return
        self._spent += now - since
        pace, earlier = (now - since)[1] / (n_done - n_before), self._pace
        self._pace = pace
        if self._spent[0] < PATIENCE or not pace > STEADY * earlier > 0.0:
            return
        share = self._spent[1] / self._spent[0]
        left = np.array(_lengths(self.program, n_done)) - n_done + self.program.summaries
        times = now[0] - self.began + min(pace, earlier) * left / share
        if math.sqrt(times.prod()) < LONG:
            return
        self.said = True
        words = f"this fit will take about {_durations(*times)}"
        if share < BUSY * self.n_jobs:
            words += f" on this busy machine ({_durations(*share * times)} of processor time)"
        self.say(words)


def _lengths(program, n_done):
    """Smallest and largest number of iterations that a fit with n_done of them will have."""
    n_warmup, n_draws = program.n_warmup, program.n_draws
    if program.finds_warmup:
        n_warmup = min((look for look in program.warmup_looks if look >= n_done), default=n_warmup)
    if program.finds_draws:
        done = program.n_draws_after(n_done)
        n_draws = min((look for look in program.draw_looks if look >= done), default=n_draws)
    return n_warmup + n_draws * program.thin, program.n_iterations


def _durations(shortest, longest):
    (number, unit), last = _duration(shortest).split(), _duration(longest)
    if last == f"{number} {unit}":
        return last
    return f"{number} {'' if last.split()[1].startswith(unit) else f'{unit} '}to {last}"


def _duration(seconds):
    if seconds < 45.0:
        return f"{seconds:.0f} s"
    for unit, name in ((86400, "days"), (3600, "hours")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.2g} {name}"
    minutes = round(seconds / 60)
    return "1 minute" if minutes <= 1 else f"{minutes} minutes"
