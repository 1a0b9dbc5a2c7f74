"""Short chains from many starts, for tests of what their ends follow."""

import copy
import dataclasses
import math

import numpy as np

from skdpm.mixture.blocks.program import BlockProgram, open_rows
from skdpm.mixture.blocks.state import BlockState


def run_chains(starts, n_iterations, *, begin, step, read):
    """The ends of one chain from each start, all on one state.

    Parameters
    ----------
    starts : sequence
    n_iterations : int or sequence of int
        Of each chain, or of all.
    begin : callable
        (start): sets the state.
    step : callable
        (): one iteration.
    read : callable
        (): what to keep of the state.

    Returns
    -------
    ends : ndarray
        What `read` returned at the end of each chain.
    """
    ends = []
    for start, n in zip(starts, np.broadcast_to(n_iterations, len(starts)), strict=True):
        begin(start)
        for _ in range(n):
            step()
        ends.append(read())
    return np.array(ends)


class LearningChains:
    """Real chains that start anywhere: iterations after which hyperparameters are drawn.

    Parameters
    ----------
    estimator : DPMixture or FiniteMixture
        With a sampler of rows or of blocks, and a fixed concentration.
    likelihood : Likelihood
    X : ndarray of shape (n_samples, n_features)
        Of which the hyperpriors are made.
    """

    def __init__(self, estimator, likelihood, X):
        estimator = estimator.__sklearn_clone__().set_params(likelihood=likelihood, n_warmup=0)
        self.program = estimator._program(X, likelihood, estimator._resolved("sampler"))
        self.concentration = estimator.concentration

    def over(self, X):
        """The same over other rows: hyperpriors stay."""
        other = copy.copy(self)
        program = self.program
        data = program.likelihood.encode(X)
        tables = program.likelihood.tables(data, len(X))
        changed = {"data": data, "tables": tables, "n_samples": len(X)}
        if isinstance(program, BlockProgram):
            changed["rows"] = open_rows(X, 2)
        other.program = dataclasses.replace(program, **changed)
        return other

    def step(self, labels, values, rng, n_iterations=1, completion=None):
        """Labels and values of hyperparameters after some iterations; of missing entries too, if
        their first values are given."""
        program = self.program
        chain = program.chain(int(rng.integers(2**62)), 0)
        start = {"values": dict(values), "concentration": self.concentration, "latent": {}}
        if isinstance(program, BlockProgram):
            state = BlockState.start(program.rows, program.likelihood, labels, 3)
            chain.update(start, state=state)
        else:
            bit_generator = np.random.PCG64(rng.integers(2**62)).state
            start |= {"labels": labels, "bit_generator": bit_generator}
            chain["replicas"] = [{**start, "completion": completion}]
        with program.resume(chain) as live:
            model = live.state.model
            period = math.lcm(*map(model.hyper_period_of, program.likelihood.learned_priors))
            for iteration in range(1, n_iterations + 1):
                live.step(iteration * period - 1)
            found = live.state.cluster_labels(), live.values
            return found if completion is None else (*found, model.completion())
