# SPDX-License-Identifier: BSD-3-Clause
"""One chain of a feature allocation model: how it starts, how it advances, what it keeps."""

from dataclasses import dataclass

import numpy as np

from skdpm.chains import stream
from skdpm.features._state import FeatureState


@dataclass
class FeatureProgram:
    """What the chains of one fit share: data, model, sampler."""

    likelihood: object  # resolved
    data: dict  # its encoded rows
    make_prior: object  # concentration -> FeaturePrior
    sampler: object
    concentration: float | None  # None: resampled
    concentration_prior: tuple
    n_warmup: int
    n_draws: int
    thin: int
    n_chains: int
    initial_allocations: object  # (prior, Generator) -> Z
    fit_start: bool  # draw the parameters given that Z first: it is no arbitrary one

    @property
    def n_iterations(self):
        return self.n_warmup + self.n_draws * self.thin

    def start(self, entropy, index):
        """A chain that has done no iteration, as a plain dict."""
        bit_generator = stream(entropy, index)
        concentration = 1.0 if self.concentration is None else self.concentration
        prior = self.make_prior(concentration)
        Z = self.initial_allocations(prior, np.random.Generator(bit_generator))
        model = self.likelihood.bind(self.data)
        model.start(Z.shape[1], bit_generator)
        if self.fit_start:
            FeatureState(model, prior, Z).update_params(bit_generator, self.n_warmup > 0)
        return {
            "index": index,
            "iteration": 0,
            "allocations": Z,
            "params": model.save(),
            "adaptation": model.get_adaptation(),
            "concentration": concentration,
            "bit_generator": bit_generator.state,
            "draws": {
                "log_joint": np.empty(0),
                "log_marginal": np.empty(0),
                "concentration": np.empty(0),
                "n_components": np.empty(0, dtype=np.int64),
                **{name: np.empty(0) for name in self.likelihood.hyperparameters},
                "allocations": [],
                **{name: [] for name in self.likelihood.feature_params},
            },
        }

    def advance(self, chain, n_iterations, go_on):
        """See `skdpm.chains.run_chains`."""
        bit_generator = np.random.PCG64()
        bit_generator.state = chain["bit_generator"]
        prior = self.make_prior(chain["concentration"])
        model = self.likelihood.bind(self.data)
        model.load(chain["params"])
        model.set_adaptation(chain["adaptation"])
        state = FeatureState(model, prior, chain["allocations"])
        kernel = self.sampler.kernel()
        new = {name: [] for name in chain["draws"]}
        iteration = chain["iteration"]
        running = True
        while running and iteration < n_iterations:
            adapting = iteration < self.n_warmup
            kernel.run(state, bit_generator, adapting)
            state.update_params(bit_generator, adapting)
            if self.concentration is None:
                prior.resample(state.column_sums(), *self.concentration_prior, bit_generator)
            iteration += 1
            log_joint = state.compute_log_joint()
            if iteration > self.n_warmup and (iteration - self.n_warmup) % self.thin == 0:
                self._keep(new, state, log_joint)
            running = go_on(
                features=int(np.count_nonzero(state.column_sums())), log_joint=f"{log_joint:.6g}"
            )
        draws = {}
        for name, kept in chain["draws"].items():
            if isinstance(kept, list):
                draws[name] = kept + new[name]
            else:
                draws[name] = np.append(kept, np.asarray(new[name], dtype=kept.dtype))
        chain.update(
            iteration=iteration,
            allocations=state.allocations(),
            params=model.save(),
            adaptation=model.get_adaptation(),
            concentration=prior.concentration,
            bit_generator=bit_generator.state,
            draws=draws,
        )

    def _keep(self, draws, state, log_joint):
        """Add the state to lists of draws, without features that no row has."""
        used = np.flatnonzero(state.column_sums())
        params = state.model.save()
        draws["log_joint"].append(log_joint)
        draws["log_marginal"].append(state.compute_log_marginal())
        draws["concentration"].append(state.prior.concentration)
        draws["n_components"].append(len(used))
        draws["allocations"].append(state.allocations()[:, used].astype(bool))
        for name in self.likelihood.hyperparameters:
            draws[name].append(params[name])
        for name, values in self.likelihood.select(params, used).items():
            draws[name].append(values)
