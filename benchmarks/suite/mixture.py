# SPDX-License-Identifier: BSD-3-Clause
"""asv: sweeps, fits, scoring and point estimates of mixture models."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdpm import DPMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.priors import (
    DirichletProcessPrior,
    FiniteDirichletPrior,
    MixtureOfFiniteMixturesPrior,
)
from skdpm.mixture.samplers import SAMPLERS, SMC
from skdpm.partitions import point_estimate
from suite.problems import NAMES, Stepper, make_problem


class Sweep:
    """One Gibbs sweep; n, D and K vary one at a time around 2000 rows, 8 columns, 8 clusters."""

    param_names = ("likelihood", "n_samples, n_features, n_clusters")
    params = (NAMES, ((2000, 8, 8), (8000, 8, 8), (2000, 32, 8), (2000, 8, 32)))

    def setup(self, name, sizes):
        n_samples, n_features, n_clusters = sizes
        if name == "relational":  # each row has a column per row
            n_samples //= 4
        problem = make_problem(name, n_samples, n_features, n_clusters)
        self.sweeper = Stepper(*problem, n_components=n_clusters)

    def time_sweep(self, name, sizes):
        self.sweeper.step()


class Yardstick:
    """The sizes for which the project states a time per sweep."""

    param_names = ("problem",)
    params = (
        (
            ("gaussian", 5000, 2, 15),
            ("gaussian", 1024, 128, 16),
            ("bernoulli", 5000, 50, 16),
        ),
    )

    def setup(self, problem):
        self.sweeper = Stepper(*make_problem(*problem), n_components=problem[-1])

    def time_sweep(self, problem):
        self.sweeper.step()


class Move:
    """One split-merge move, without the sweeps between moves."""

    param_names = ("sampler",)
    params = (("pgsm", "sams", "split_merge"),)

    def setup(self, name):
        sampler = SAMPLERS[name](gibbs_sweeps=0)
        self.stepper = Stepper(*make_problem("gaussian", 5000, 2, 15), sampler=sampler)

    def time_move(self, name):
        self.stepper.step()


class Blocks:
    """Ten iterations of a sampler that visits rows in blocks, from the clusters of the data."""

    param_names = ("likelihood", "n_samples, n_features, n_clusters")
    params = (
        tuple(name for name in NAMES if name != "relational"),
        ((200_000, 2, 6), (20_000, 32, 8)),
    )

    def setup(self, name, sizes):
        likelihood, self.X, labels = make_problem(name, *sizes)
        self.estimator = DPMixture(
            likelihood=likelihood,
            sampler="sub_cluster",
            init=labels,
            n_warmup=0,
            n_draws=10,
            n_chains=1,
            store_labels=False,
            point_estimate="last",
            random_state=0,
        )

    def time_fit(self, name, sizes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.estimator.fit(self.X)


class Filter:
    """A particle filter alone: 100 particles take 20,000 rows."""

    param_names = ("prior, concentration learned", "resampling")
    params = (
        (("dp", False), ("dp", True), ("finite", True), ("mfm", True)),
        ("systematic", "optimal"),
    )

    def setup(self, prior, resampling):
        name, learned = prior
        likelihood, X, _ = make_problem("gaussian", 20_000, 2, 15, spread=20.0)
        likelihood.set_params(mean=40.0, mean_precision=0.01, df=4.0, scale=1.0)
        likelihood = likelihood.resolve(X)
        data = likelihood.encode(X)
        self.n_samples = len(X)
        self.model = likelihood.bind(data, likelihood.tables(data, None))
        prior = {
            "dp": lambda: DirichletProcessPrior(self.n_samples, 1.0),
            "finite": lambda: FiniteDirichletPrior(self.n_samples, 1.0, 30),
            "mfm": lambda: MixtureOfFiniteMixturesPrior(self.n_samples, 1.0, "poisson"),
        }[name]()
        hyperprior = Gamma(1.0, 1.0) if learned else None
        self.system = ParticleSystem(100, resampling, 0.5, prior, hyperprior)

    def time_filter(self, prior, resampling):
        self.system.begin([self.model])
        self.system.run(np.random.PCG64(0), 0, self.n_samples)


class Particles:
    """A default fit with SMC, one chain, hyperparameters and concentration learned."""

    param_names = ("n_samples",)
    params = ((1000, 20_000),)
    timeout = 300

    def setup(self, n_samples):
        _, self.X, _ = make_problem("gaussian", n_samples, 2, 15, spread=20.0)
        self.estimator = DPMixture(sampler="smc", n_chains=1, random_state=0)

    def time_fit(self, n_samples):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.estimator.fit(self.X)


class Stream:
    """One row into `partial_fit` after a default fit of 1000 rows: 4 chains of 100 particles, with
    hyperparameters of their own. Other attributes than the score are not read."""

    param_names = ("n_features", "half_life")
    params = ((2, 8), (None, 300.0))
    timeout = 300

    def setup(self, n_features, half_life):
        _, self.X, _ = make_problem("gaussian", 1001, n_features, 4)
        self.estimator = DPMixture(sampler=SMC(half_life=half_life), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # The first call after a fit compares the chains, as every quarter more rows do.
            self.estimator.fit(self.X[:1000]).partial_fit(self.X[1000:])

    def time_row(self, n_features, half_life):
        self.estimator.partial_fit(self.X[1000:]).log_evidence_  # noqa: B018


class Fitted:
    """What follows the sampling: `log_joint`, scoring and summaries of 4 x 250 draws."""

    timeout = 300

    def setup_cache(self):
        likelihood, X, labels = make_problem("gaussian", 3000, 2, 15)
        model = DPMixture(
            likelihood=likelihood, init=labels[:2000], n_warmup=50, point_estimate="last"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(random_state=0).fit(X[:2000])
        return model, X

    def setup(self, fitted):
        _, X = fitted
        likelihood, X, labels = make_problem("gaussian", 3000, 2, 15)
        self.state = Stepper(likelihood, X, labels).state

    def time_log_joint(self, fitted):
        self.state.compute_log_joint()

    def time_score_samples(self, fitted):
        model, X = fitted
        model.score_samples(X[2000:])

    def time_predict(self, fitted):
        model, X = fitted
        model.predict(X[2000:])

    def time_point_estimate_vi(self, fitted):
        model, _ = fitted
        point_estimate(model.label_samples_, loss="vi", random_state=0)

    def time_point_estimate_binder(self, fitted):
        model, _ = fitted
        point_estimate(model.label_samples_, loss="binder", random_state=0)


class Memory:
    """Peak memory of a process that makes the data and fits; of the data alone for comparison."""

    param_names = ("n_samples",)
    params = ((10_000, 100_000),)
    timeout = 300

    def setup(self, n_samples):
        self.problem = make_problem("gaussian", n_samples, 2, 15)

    def peakmem_data(self, n_samples):
        pass

    def peakmem_fit(self, n_samples):
        likelihood, X, labels = self.problem
        model = DPMixture(
            likelihood=likelihood, init=labels, n_warmup=0, n_draws=50, point_estimate="last"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(random_state=0).fit(np.ascontiguousarray(X))
