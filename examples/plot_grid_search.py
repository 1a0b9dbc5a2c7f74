# SPDX-License-Identifier: BSD-3-Clause
"""
Choosing a prior and a sampler by grid search
=============================================

`GridSearchCV` reaches parameters of the likelihood and of the sampler by nested names such as
`likelihood__df` or `sampler__n_sweeps`, if `DPMixture` is given objects instead of names. By
default it maximises `score`, the held-out log density per row, which needs no labels. If some rows
have labels, `scoring="v_measure_score"` compares the clusters with them.

Hyperparameters that are None, the default, are learned in every fit; numbers fix them. The search
compares both.

The data are 178 wines of three cultivars with 13 chemical measurements. The prior matters here: a
covariance of 13 columns has 91 entries, estimated from about 40 wines.
"""

# sphinx_gallery_thumbnail_path = "images/cards/priors.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import Gibbs

threadpool_limits(1)  # small matrices: more BLAS threads only wait for each other
X, cultivar = load_wine(return_X_y=True)

# Short chains suffice to compare settings. Some fits warn that they have not converged (muted
# below); run the winner longer.
model = make_pipeline(
    StandardScaler(),
    DPMixture(
        likelihood=Gaussian(),
        sampler=Gibbs(),
        n_chains=2,
        n_warmup=30,
        n_draws=30,
        random_state=0,
    ),
)

# The prior mean of covariances is scale / (df - n_features - 1) times the identity; a larger df
# makes the prior stronger. Columns are standardised, so each has variance 1.
grid = {
    "dpmixture__likelihood__df": [None, 15, 30],
    "dpmixture__likelihood__scale": [None, 1.0, 4.0, 8.0, 16.0],
}
folds = StratifiedKFold(3, shuffle=True, random_state=0)

scorers = {
    "held-out log density": lambda model, X, y: model.score(X),
    "V-measure": "v_measure_score",
}
start = time.perf_counter()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Every fit is scored in both ways.
    search = GridSearchCV(model, grid, scoring=scorers, cv=folds, refit=False).fit(X, cultivar)
results = search.cv_results_
for name in scorers:
    mean = results[f"mean_test_{name}"]
    best = {
        key.removeprefix("dpmixture__"): v for key, v in results["params"][mean.argmax()].items()
    }
    print(f"best {name}: {mean.max():.2f} with {best}")
print(f"{time.perf_counter() - start:.1f} s")


# Some folds are harder than others for all settings. The bars are standard errors of the mean
# after subtracting the mean level of each fold.
fig, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
styles = {None: ("#009E73", "^"), 15: ("#0072B2", "o"), 30: ("#D55E00", "s")}
places = {None: 0.4, 1.0: 1.0, 4.0: 4.0, 8.0: 8.0, 16.0: 16.0}
for ax, name in zip(axes, scorers, strict=True):
    scores = np.array([results[f"split{i}_test_{name}"] for i in range(folds.get_n_splits())])
    mean = scores.mean(axis=0)
    error = (scores - scores.mean(axis=1, keepdims=True)).std(axis=0, ddof=1) / len(scores) ** 0.5
    df, scale = (results[f"param_{key}"] for key in grid)
    for i, (value, (color, marker)) in enumerate(styles.items()):
        at = np.array([d == value for d in df])
        where = np.array([places[s] for s in scale[at]])
        ax.errorbar(
            where * 1.03 ** (i - 1),  # side by side, so that bars do not hide each other
            mean[at],
            error[at],
            color=color,
            marker=marker,
            capsize=2,
            linestyle="none",
            label="df learned" if value is None else f"df = {value}",
        )
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(places.values()), ["learned", *[f"{p:g}" for p in list(places)[1:]]])
    ax.minorticks_off()
    ax.set_xlabel("likelihood__scale (squared standard deviations)")
axes[0].set_title("By held-out density: no labels needed")
axes[0].set_ylabel("log density per wine (nats)")
axes[1].set_title("By V-measure against the cultivars")
axes[1].set_ylabel("V-measure of held-out wines")
axes[0].legend(frameon=False, loc="lower center", fontsize="small")
fig.suptitle("Grid search over the Gaussian's prior, 3 folds of 178 wines")

fig.savefig("plot_grid_search.png", dpi=120)
print("figure: plot_grid_search.png")
