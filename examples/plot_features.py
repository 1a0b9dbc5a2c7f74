# SPDX-License-Identifier: BSD-3-Clause
"""
The parts of which images are made
==================================

Each image of 6 x 6 pixels contains any of four overlapping parts, and noise half as strong as a
part. A fifth of all pixels is missing. `FeatureAllocation` knows neither the parts nor their
number. It learns them, finds the parts of each image, and imputes the missing pixels. A sampler
that only changes one entry of the allocation at a time gets stuck from some random starts: its
chains end in different places, which R-hat shows.
"""

# sphinx_gallery_thumbnail_path = "images/cards/features.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdpm import FeatureAllocation
from skdpm.datasets import make_cambridge_bars
from skdpm.features.likelihoods import LinearGaussian
from skdpm.features.samplers import ElementGibbs
from skdpm.metrics import b_cubed_score

complete, Z_true, parts = make_cambridge_bars(100, noise=0.5, random_state=0)
rng = np.random.default_rng(0)
X = np.where(rng.random(complete.shape) < 0.2, np.nan, complete)
missing = np.isnan(X)

# An image without parts is black, so there is no intercept.
settings = {"n_warmup": 250, "random_state": 2}
model = FeatureAllocation(likelihood=LinearGaussian(intercept=False), **settings)
start = time.perf_counter()
model.fit(X)
print(
    f"{model.n_chains} chains of {model.n_iter_} iterations: {time.perf_counter() - start:.1f} s"
)
counts, frequency = np.unique(model.n_components_samples_, return_counts=True)
for count, p in zip(counts, frequency / frequency.sum(), strict=True):
    print(f"  {count} features: {p:.3f}")
for name, figures in model.diagnostics_.items():
    print(f"  {name:19} R-hat {figures['r_hat']:.2f}, effective draws {figures['ess_bulk']:.0f}")
score = b_cubed_score(Z_true, model.allocations_)
print(f"agreement of the features with the true parts (B-cubed): {score:.3f}")

imputed = model.impute(X)
clean = Z_true @ parts
guesses = {"column means": np.where(missing, np.nanmean(X, axis=0), X), "imputed": imputed}
for name, guess in guesses.items():
    for target, pixels in (("image without noise", clean), ("hidden pixels", complete)):
        rmse = np.sqrt(np.mean((guess - pixels)[missing] ** 2))
        print(f"  {name}, RMSE to the {target}: {rmse:.2f}")

# The same posterior, one entry of Z at a time, from random starts and without moves of whole
# features. (The example mutes the warning that the chains disagree, because it shows just that.)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    element = FeatureAllocation(
        likelihood=LinearGaussian(intercept=False),
        sampler=ElementGibbs(column_moves=0),
        init="prior",
        **settings,
    ).fit(X)
r_hat = element.diagnostics_["log_joint"]["r_hat"]
print(
    f"element-wise Gibbs alone: R-hat of the log joint {r_hat:.2f}; mean log joint of each chain:"
)
print(f"  {element.log_joint_samples_.mean(axis=1).round(0)}")
print(f"  {model.log_joint_samples_.mean(axis=1).round(0)} by the discrete particle filter")

# Each learned feature below the true part that most of its images have.
order = []
for part in Z_true.T:
    agreement = (model.allocations_ == part[:, None]).mean(axis=0)
    order.append(int(np.argmax(agreement)))
order += [k for k in range(model.n_components_) if k not in order]
n_columns = max(len(order), 5)

fig = plt.figure(figsize=(10, 5.6), layout="constrained")
left, right = fig.subfigures(1, 2, width_ratios=[1.25, 1])
top, bottom = left.subfigures(2, 1, height_ratios=[1, 1.5])
gray = plt.get_cmap("gray").with_extremes(bad="#D55E00")
brightness = {"cmap": gray, "vmin": -0.5, "vmax": 2.0}


def show(ax, image, title=""):
    ax.imshow(image.reshape(6, 6), **brightness)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=9)


axes = top.subplots(2, len(order))
for k, feature in enumerate(order):
    if k < len(parts):
        show(axes[0, k], parts[k], f"in {Z_true[:, k].sum()} images")
    else:
        axes[0, k].set_axis_off()
    used = model.allocations_[:, feature].sum()
    show(axes[1, k], model.components_[feature], f"in {used} images")
axes[0, 0].set_ylabel("true parts", fontsize=9)
axes[1, 0].set_ylabel("learned", fontsize=9)
top.suptitle("The parts, and the images that have them")

# Images with three or four parts are most informative about pixels that parts share.
chosen = np.argsort(-Z_true.sum(axis=1) - 0.01 * missing.sum(axis=1), kind="stable")[:5]
axes = bottom.subplots(3, len(chosen))
for k, i in enumerate(chosen):
    for ax, image in zip(axes[:, k], (X[i], imputed[i], clean[i]), strict=True):
        show(ax, image)
for ax, name in zip(axes[:, 0], ("given", "imputed", "no noise"), strict=True):
    ax.set_ylabel(name, fontsize=9)
bottom.suptitle("Missing pixels (orange) and their posterior means")

axes = right.subplots(2, 1)
width = 0.4
for offset, (name, fitted, color) in enumerate(
    (
        ("discrete particle filter", model, "#0072B2"),
        ("element-wise Gibbs", element, "#E69F00"),
    )
):
    for c, trace in enumerate(fitted.log_joint_samples_):
        axes[0].plot(trace, color=color, lw=0.8, alpha=0.8, label=name if c == 0 else None)
    values, frequency = np.unique(fitted.n_components_samples_, return_counts=True)
    axes[1].bar(
        values + (offset - 0.5) * width,
        frequency / frequency.sum(),
        width,
        color=color,
        label=name,
    )
axes[0].set(xlabel="kept draw", ylabel="log joint (nats)", title="Four chains each")
axes[1].set(xlabel="features", ylabel="share of the draws", title="How many parts?")
axes[1].legend(frameon=False)

fig.savefig("plot_features.png", dpi=120)
print("figure: plot_features.png")
