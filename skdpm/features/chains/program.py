# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a feature allocation model."""

from dataclasses import dataclass

import numpy as np

from skdpm.chains import ChainProgram, LiveChain, stream
from skdpm.draws import Column, Snapshots, column_of
from skdpm.features.chains.start import first_state
from skdpm.features.state._state import FeatureState


@dataclass(kw_only=True)
class FeatureProgram(ChainProgram):
    """Chains of a feature allocation model.

    - `data`: dict. Encoded rows, shared by all kernels.
    - `n_columns`: int. Number of columns of X.
    - `init`: str or (n_samples, n_latent), uint8. Start of the chains: see `start.first_state`.
    """

    data: dict
    n_columns: int
    init: str | np.ndarray

    @classmethod
    def prepare(cls, X, likelihood, **settings):
        """Make the program of a fit to the validated rows X.

        Raises ValueError if X does not suit the likelihood, which is resolved here.
        """
        likelihood = likelihood.resolve(X)
        return cls(
            likelihood=likelihood, data=likelihood.encode(X), n_columns=X.shape[1], **settings
        )

    def __post_init__(self):
        super().__post_init__()
        self.finds_warmup &= not self.likelihood.tempers

    @property
    def compared(self):
        return (*self.quantities, *(column_of(name) for name in self.likelihood.learned))

    def columns(self):
        likelihood = self.likelihood
        return [
            Column("log_joint"),
            Column("concentration"),
            Column("n_components", dtype=np.int64),
            *(Column(column_of(name)) for name in likelihood.hyperparameters),
            *(
                Column(name, "params", shape=(self.n_columns,))
                for name in likelihood.common_params
            ),
            Column("allocations", "ragged"),
            *(Column(name, "ragged") for name in likelihood.feature_params),
        ]

    def resume(self, chain):
        return FeatureChain(self, chain)


class FeatureChain(LiveChain):
    """A running chain: kernels of rows and of columns, and a `FeatureState`."""

    def __init__(self, program, chain):
        self.program = program
        self.index = chain["index"]
        self.bit_generator = np.random.PCG64()
        self.kernel = program.sampler.kernel()
        self.column_kernel = program.sampler.column_kernel()
        self.snapshots = Snapshots(program.n_scored_draws, chain.get("snapshots"))
        if "allocations" in chain:
            self.bit_generator.state = chain["bit_generator"]
            self.model = program.likelihood.bind(program.data)
            self.model.load(chain["params"])
            self.model.set_adaptation(chain["adaptation"])
            prior = program.make_prior(chain["concentration"])
            self.state = FeatureState(self.model, prior, chain["allocations"])
        else:
            self.bit_generator = stream(chain["entropy"], self.index)
            self.state = first_state(program, self.bit_generator)
            self.model = self.state.model

    def step(self, iteration):
        program, state = self.program, self.state
        adapting = iteration < program.n_warmup
        for _sweep in range(self.model.n_sweeps):
            self.kernel.run(state, self.bit_generator, adapting)
            self.column_kernel.run(state, self.bit_generator, adapting)
            state.update_params(self.bit_generator, adapting)
            program.resample_concentration(state.prior, state.column_sums(), self.bit_generator)

    def compute_log_joint(self):
        return self.state.compute_log_joint()

    def trace(self, log_joint):
        return log_joint, float(self.figures()["features"])

    def figures(self):
        return {"features": int(np.count_nonzero(self.state.column_sums()))}

    def keep(self, draw, log_joint):
        """Record the state without features that no row has."""
        state, likelihood = self.state, self.program.likelihood
        col_sums = state.column_sums()
        used = np.flatnonzero(col_sums)
        params = state.model.save()
        params.update(likelihood.select(params, used))
        Z = state.allocations()[:, used].astype(bool)
        if self.program.scores(self.index) and self.snapshots.due():
            shown = {"allocations": Z} if likelihood.needs_allocations else {}
            self.snapshots.take(
                {
                    "concentration": state.prior.concentration,
                    "col_sums": col_sums[used],
                    "params": params | shown,
                }
            )
        return {
            "log_joint": log_joint,
            "concentration": state.prior.concentration,
            "n_components": len(used),
            "allocations": Z,
            **{column_of(name): params[name] for name in likelihood.hyperparameters},
            **{n: params[n] for n in (*likelihood.common_params, *likelihood.feature_params)},
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
