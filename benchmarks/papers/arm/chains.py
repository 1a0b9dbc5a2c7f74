# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a fit with a clock that counts Gibbs sweeps, and the figures of merit of the paper.

A chain is the one that `DPMixture.fit` would run, advanced an iteration at a time. Its cost is its
processor time over that of a Gibbs sweep, which is measured every `PROBE_EVERY` iterations on a
copy of the chain's own state: the paper's normalised time, in which a sweep costs 1 whatever the
machine does meanwhile.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from skdpm import DPMixture
from skdpm.mixture.samplers import Gibbs

PROBE_EVERY = 20


def _clock_cost():
    """Seconds that reading the clock adds to a timed interval."""
    began = time.process_time()
    for _ in range(2000):
        time.process_time()
    return (time.process_time() - began) / 2000


CLOCK_COST = _clock_cost()


class Problem:
    """Rows under a likelihood without learned parameters, Dirichlet process, concentration 1."""

    def __init__(self, X, likelihood):
        self.X = np.ascontiguousarray(X, dtype=float)
        self.likelihood = likelihood

    def program(self, sampler, n_warmup, init):
        model = DPMixture(
            likelihood=self.likelihood,
            concentration=1.0,
            sampler=sampler,
            init=init,
            n_chains=1,
            n_warmup=n_warmup,
            n_draws=10**6,
        )
        return model._program(self.X, self.likelihood, sampler)


class Chain:
    """One public chain. Of a sampler that keeps several states side by side, all are looked at.

    Parameters
    ----------
    problem : Problem
    sampler : Sampler
    seed, index : int
        Entropy of the run, number of the chain.
    n_warmup : int
        Iterations in which the sampler may learn.
    init : str or ndarray
        As that of `DPMixture`; of companions, the sampler decides.
    adaptation : dict or None
        What the sampler's kernel is to know from the start.

    Attributes
    ----------
    seconds : float
        Processor time of the iterations so far, all states together.
    """

    def __init__(self, problem, sampler, seed, index, *, n_warmup, init="single", adaptation=None):
        program = problem.program(sampler, n_warmup, init)
        self.n_warmup = n_warmup
        self.n_states = sampler.n_replicas
        start = program.chain(seed, index)
        if adaptation is not None:
            start["adaptation"] = adaptation
        self.live = program.resume(start)
        probe = problem.program(Gibbs(), 0, "single")
        self.probe = probe.resume(probe.chain(seed, 10**6 + index))
        self.iteration = 0
        self.seconds = 0.0
        self.probed = []
        self.moves_in_warmup = np.zeros((2, 2), dtype=np.int64)

    def step(self):
        self.seconds += _timed(self.live, self.iteration)
        self.iteration += 1
        if self.iteration == self.n_warmup:
            self.moves_in_warmup = self._moves()
        if self.iteration % PROBE_EVERY == 1:
            self.probe.state.assign(_labels(self.live.state))
            _timed(self.probe, 0)  # its memory is cold
            self.probed.append(_timed(self.probe, 0))

    @property
    def states(self):
        """The states that are kept: without companions that only serve the warm-up."""
        return [replica.state for replica in self.live.replicas[: self.n_states]]

    @property
    def sweep_seconds(self):
        """Of a Gibbs sweep, mean over probes; those of the first quarter, from where chains
        start, count only while there are no others."""
        return np.mean(self.probed[len(self.probed) // 4 :])

    @property
    def cost(self):
        """Gibbs sweeps that the time so far was worth, per state that is kept."""
        return self.seconds / self.sweep_seconds / self.n_states

    def _moves(self):
        """Splits and merges so far: rows (proposed, accepted), columns the two. Where samplers
        take turns that have both, those of the first."""
        moves = self.live.acceptance()
        found = [moves.get(kind, moves.get(f"{kind}_1", (0, 0))) for kind in ("split", "merge")]
        return np.array(found).T

    def moves(self):
        """Splits and merges proposed and accepted after warm-up, (2,)."""
        return (self._moves() - self.moves_in_warmup).sum(axis=1)


def _timed(live, iteration):
    began = time.process_time()
    live.step(iteration)
    return time.process_time() - began - CLOCK_COST


def _labels(state):
    return np.unique(state.cluster_labels(), return_inverse=True)[1]


class Cells:
    """Results of chains, a file each, so that a run that was stopped goes on where it was."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name, make, *arguments, **keywords):
        """The arrays of a cell: read, or made by `make(*arguments, **keywords)` and kept.

        Returns
        -------
        arrays : dict of str to ndarray
        """
        path = self.folder / f"{name.replace(' ', '_')}.npz"
        if not path.exists():
            arrays = make(*arguments, **keywords)
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(temporary, path)
        with np.load(path) as arrays:
            return {key: arrays[key] for key in arrays.files}


def autocorrelation_time(x):
    """1 + 2 times the sum of the sample autocorrelations before the first that is not positive.

    Parameters
    ----------
    x : array-like of shape (n_series, n_iterations)

    Returns
    -------
    tau : ndarray of shape (n_series,)
        1 for a series that is constant.
    """
    x = np.asarray(x, dtype=float)
    n = x.shape[1]
    moves = np.ptp(x, axis=1) > 0
    x = x - x.mean(axis=1, keepdims=True)
    power = np.abs(np.fft.rfft(x, 2 * n, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :n]
    r = covariance[moves] / covariance[moves, :1]
    ends = np.argmax(r <= 0, axis=1)  # r sums to -1/2 over lags above 0, so that there is one
    tau = np.ones(len(x))
    tau[moves] = [1.0 + 2.0 * row[1:end].sum() for row, end in zip(r, ends, strict=True)]
    return tau


def gelman_rubin(x):
    """R-hat = sqrt(((N - 1) / N W + B) / W) of chains, (n_chains, N): no split, no ranks.

    W is the mean of the variances within chains, B the variance of their means.
    """
    x = np.asarray(x, dtype=float)
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean()
    between = x.mean(axis=1).var(ddof=1)
    if within == 0.0:
        return 1.0 if between == 0.0 else np.inf
    return np.sqrt((n - 1) / n + between / within)


def uncertain(values, digits):
    """Mean and, in parentheses, standard deviation in units of the last digit, as in the paper."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        return f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    spread = values.std(ddof=1)
    return f"{values.mean():.{digits}f}({round(spread * 10**digits)})"
