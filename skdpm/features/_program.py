# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a feature allocation model: how one starts, advances, and what it keeps of draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skdpm.chains import ChainProgram, LiveChain, stream
from skdpm.draws import Column, Snapshots
from skdpm.features._state import FeatureState


@dataclass(kw_only=True)
class FeatureProgram(ChainProgram):
    """Chains of a feature allocation model.

    Attributes
    ----------
    data : dict
        The likelihood's encoded rows, which all kernels share.
    initial_allocations : callable
        Of a prior and a Generator; gives Z.
    fit_start : bool
        Draw the parameters given that Z first: it is no arbitrary one.
    """

    data: dict
    initial_allocations: Callable
    fit_start: bool

    @classmethod
    def prepare(cls, X, likelihood, **settings):
        """Make the program of a fit to X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Validated.
        likelihood : FeatureLikelihood
            As the user gave it.
        **settings
            The other fields.

        Raises
        ------
        ValueError
            Where X does not fit the likelihood.
        """
        likelihood = likelihood.resolve(X)
        return cls(likelihood=likelihood, data=likelihood.encode(X), **settings)

    def columns(self):
        saved = self.likelihood.bind(self.data).save()
        return [
            Column("log_joint"),
            Column("log_marginal"),
            Column("concentration"),
            Column("n_components", dtype=np.int64),
            *(Column(name) for name in self.likelihood.hyperparameters),
            *(
                Column(name, "params", shape=np.shape(saved[name]))
                for name in self.likelihood.common_params
            ),
            Column("allocations", "ragged"),
            *(Column(name, "ragged") for name in self.likelihood.feature_params),
        ]

    def resume(self, chain):
        return FeatureChain(self, chain)


class FeatureChain(LiveChain):
    """One chain while it runs: kernels of rows and of columns, and a `FeatureState`."""

    def __init__(self, program, chain):
        self.program = program
        self.index = chain["index"]
        self.bit_generator = np.random.PCG64()
        self.kernel = program.sampler.kernel()
        self.column_kernel = program.sampler.column_kernel()
        self.snapshots = Snapshots(program.n_scored_draws, chain.get("snapshots"))
        self.model = program.likelihood.bind(program.data)
        if "allocations" in chain:
            self.bit_generator.state = chain["bit_generator"]
            self.model.load(chain["params"])
            self.model.set_adaptation(chain["adaptation"])
            prior = program.make_prior(chain["concentration"])
            self.state = FeatureState(self.model, prior, chain["allocations"])
        else:
            self._start(chain)

    def _start(self, chain):
        program = self.program
        self.bit_generator = stream(chain["entropy"], self.index)
        prior = program.make_prior(program.first_concentration)
        Z = program.initial_allocations(prior, np.random.Generator(self.bit_generator))
        self.model.start(Z.shape[1], self.bit_generator)
        self.state = FeatureState(self.model, prior, Z)
        if program.fit_start:
            self.state.update_params(self.bit_generator, program.n_warmup > 0)

    def step(self, iteration):
        program, state = self.program, self.state
        adapting = iteration < program.n_warmup
        self.kernel.run(state, self.bit_generator, adapting)
        self.column_kernel.run(state, self.bit_generator, adapting)
        state.update_params(self.bit_generator, adapting)
        program.resample_concentration(state.prior, state.column_sums(), self.bit_generator)

    def compute_log_joint(self):
        return self.state.compute_log_joint()

    def figures(self):
        return {"features": int(np.count_nonzero(self.state.column_sums()))}

    def keep(self, draw, log_joint):
        """The state, without features that no row has."""
        state, likelihood = self.state, self.program.likelihood
        col_sums = state.column_sums()
        used = np.flatnonzero(col_sums)
        params = state.model.save()
        params.update(likelihood.select(params, used))
        Z = state.allocations()[:, used].astype(bool)
        if self.program.scores(self.index) and self.snapshots.due():
            self.snapshots.take(
                {
                    "concentration": state.prior.concentration,
                    "col_sums": col_sums[used],
                    "params": {**params, "allocations": Z}
                    if likelihood.needs_allocations
                    else params,
                }
            )
        return {
            "log_joint": log_joint,
            "log_marginal": state.compute_log_marginal(),
            "concentration": state.prior.concentration,
            "n_components": len(used),
            "allocations": Z,
            **{name: params[name] for name in likelihood.hyperparameters},
            **{name: params[name] for name in likelihood.common_params},
            **{name: params[name] for name in likelihood.feature_params},
        }

    def save(self):
        return {
            "allocations": self.state.allocations(),
            "params": self.model.save(),
            "adaptation": self.model.get_adaptation(),
            "concentration": self.state.prior.concentration,
            "bit_generator": self.bit_generator.state,
            "snapshots": self.snapshots.save(),
        }
