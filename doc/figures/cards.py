# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of the cards on section pages, and of the gallery: simulated, no fits.

python doc/figures/cards.py doc/images/cards
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from skdpm.plotting import cluster_colors

BLUE, ORANGE, GREEN, YELLOW = cluster_colors(4)
GREY, PALE = "0.6", "0.88"
CENTRES = np.array([[0.0, 0.0], [4.0, 1.0], [2.0, 3.6]])


def blobs(rng, n=40, spread=0.6):
    return (CENTRES[:, None] + spread * rng.normal(size=(3, n, 2))).reshape(-1, 2), np.repeat(
        [0, 1, 2], n
    )


def clusters(ax, rng):
    X, labels = blobs(rng)
    ax.scatter(*X.T, c=cluster_colors(3)[labels], s=14)
    for centre, color in zip(CENTRES, cluster_colors(3), strict=True):
        ax.add_patch(Ellipse(centre, 2.6, 2.6, facecolor="none", edgecolor=color, lw=1.5))


def crescents(ax, rng):
    angle = rng.uniform(0, np.pi, 90)
    noise = 0.07 * rng.normal(size=(2, 2, 90))
    x, y = np.cos(angle), np.sin(angle)
    ax.scatter(x + noise[0, 0], y + noise[0, 1], color=BLUE, s=14)
    ax.scatter(1 - x + noise[1, 0], 0.4 - y + noise[1, 1], color=ORANGE, s=14)


def table(ax, rng):
    words = ["price", "meal", "pets"]
    cells = [["70", "none", "no"], ["182", "half", "yes"], ["", "none", "yes"], ["91", "", "no"]]
    for j, word in enumerate(words):
        ax.text(j, 0, word, ha="center", weight="bold")
        for i, cell in enumerate(row[j] for row in cells):
            color = cluster_colors(3)[[0, 1, 0, 2][i]]
            ax.text(j, -i - 1, cell or "?", ha="center", color=color if cell else GREY)
    ax.set(xlim=(-0.7, 2.7), ylim=(-4.7, 0.9))


def gaps(ax, rng):
    image = 0.25 + 0.6 * rng.random((7, 11))
    image[rng.random(image.shape) < 0.2] = np.nan
    ax.pcolormesh(image, cmap="Blues", vmin=0, vmax=1, edgecolors="white", lw=2)
    for i, j in np.argwhere(np.isnan(image)):
        ax.text(j + 0.5, i + 0.5, "?", ha="center", va="center", color=ORANGE)


def profiles(ax, rng):
    for y, (x, half) in enumerate([(-0.4, 0.9), (1.2, 0.5), (-1.9, 0.4), (2.6, 0.5)]):
        color = BLUE if abs(x) > half else GREY
        ax.plot([x - half, x + half], [y, y], color=color, lw=3)
        ax.plot(x, y, "o", color=color, ms=9, mfc=color if abs(x) > half else "white")
    ax.axvline(0, color=PALE, zorder=0)
    ax.set(ylim=(-0.8, 3.8))


def columns(ax, rng):
    shares = [0.08, 0.15, 0.3, 0.85, 0.97]
    ax.barh(range(5), shares, color=[PALE, PALE, PALE, BLUE, BLUE])
    ax.axvline(0.5, color=ORANGE, ls="--")


def density(ax, rng):
    x = np.linspace(-4, 8, 300)
    y = np.exp(-0.5 * x**2) + 0.6 * np.exp(-0.5 * ((x - 4) / 1.4) ** 2)
    ax.fill_between(x, 0.8 * y, 1.2 * y, color=BLUE, alpha=0.25, lw=0)
    ax.plot(x, y, color=BLUE, lw=2)


def what_if(ax, rng):
    X, _ = blobs(rng)
    ax.scatter(*X.T, color=PALE, s=14)
    ax.axvline(2.0, color=ORANGE, lw=2)
    y = np.linspace(-2, 6, 200)
    ax.plot(2.0 + 2 * np.exp(-2 * (y - 3.6) ** 2) + 0.3 * np.exp(-2 * y**2), y, color=BLUE, lw=2)


def synthetic(ax, rng):
    X, labels = blobs(rng)
    ax.scatter(*X.T, color=GREY, s=14)
    X, labels = blobs(rng)
    ax.scatter(*X.T, edgecolor=cluster_colors(3)[labels], facecolor="none", s=22)


def clock(ax, rng):
    angle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.sin(angle), np.cos(angle), color=GREY)
    for hour in range(12):
        at = np.array([np.sin(hour * np.pi / 6), np.cos(hour * np.pi / 6)])
        ax.plot(*np.stack([0.9 * at, at]).T, color=GREY)
    for middle, color in ((0.2, BLUE), (3.6, ORANGE)):
        a = middle + 0.25 * rng.normal(size=40)
        ax.scatter(0.8 * np.sin(a), 0.8 * np.cos(a), color=color, s=12)
    ax.set_aspect("equal")


def known(ax, rng):
    X, _ = blobs(rng)
    ax.scatter(*X.T, color=PALE, s=14)
    for k in range(3):
        ax.scatter(*X[40 * k : 40 * k + 4].T, color=cluster_colors(3)[k], s=40)


def outliers(ax, rng):
    X, _ = blobs(rng)
    ax.scatter(*X.T, color=BLUE, s=12, alpha=0.5)
    ax.scatter([4.5, -1.2, 0.3], [4.2, 3.8, -2.0], color=ORANGE, s=45)


def cells(ax, rng):
    X, _ = blobs(rng, 300, 0.55)
    ax.hexbin(*X.T, gridsize=26, cmap="Blues", bins="log", mincnt=1)


def merges(ax, rng):
    for x, y, top in (((0, 1), (0, 0), 1), ((3, 4), (0, 0), 0.7), ((2, 3.5), (0, 0.7), 2)):
        ax.plot([x[0], x[0], x[1], x[1]], [y[0], top, top, y[1]], color=GREY, lw=1.6)
    ax.plot([0.5, 0.5, 2.75, 2.75], [1, 3, 3, 2], color=GREY, lw=1.6)
    ax.scatter(range(5), np.zeros(5), c=cluster_colors(5), s=70, zorder=3)
    ax.axhline(1.5, color=ORANGE, ls="--")


def numbers(ax, rng):
    ax.bar(range(1, 6), [0.02, 0.08, 0.72, 0.14, 0.04], color=[PALE, PALE, BLUE, PALE, PALE])


def words(ax, rng):
    said = [("oven", 3, BLUE), ("flour", 2.4, BLUE), ("soil", 2.8, GREEN), ("seed", 2.2, GREEN)]
    said += [("tempo", 2.6, ORANGE), ("choir", 2.0, ORANGE)]
    for i, (word, size, color) in enumerate(said):
        at = 0.25 + 0.5 * (i % 2), 0.82 - 0.32 * (i // 2)
        ax.text(*at, word, size=7 * size, color=color, ha="center", va="center")
    ax.set(xlim=(0, 1), ylim=(0, 1))


def topics(ax, rng):
    X = rng.normal(size=(9, 1, 2)) * 2.5 + 0.35 * rng.normal(size=(9, 30, 2))
    ax.scatter(*X.reshape(-1, 2).T, c=np.repeat(cluster_colors(9), 30, axis=0), s=10)


def directions(ax, rng):
    for middle, color in ((0.4, BLUE), (2.2, GREEN), (4.4, ORANGE)):
        for a in middle + 0.2 * rng.normal(size=9):
            ax.plot([0, np.cos(a)], [0, np.sin(a)], color=color, lw=1.2)
    ax.set_aspect("equal")


def globe(ax, rng):
    angle = np.linspace(0, 2 * np.pi, 200)
    for width in (1.0, 0.6, 0.0):
        ax.plot(width * np.cos(angle), np.sin(angle), color=PALE)
    for height in (-0.5, 0.0, 0.5):
        ax.plot(np.array([-1, 1]) * (1 - height**2) ** 0.5, [height, height], color=PALE)
    for centre, color in (((-0.5, 0.3), BLUE), ((0.35, 0.6), GREEN), ((0.4, -0.4), ORANGE)):
        ax.scatter(*(centre + 0.09 * rng.normal(size=(25, 2))).T, color=color, s=10)
    ax.set_aspect("equal")


def network(ax, rng):
    X, labels = blobs(rng, 9, 0.6)
    for i in range(len(X)):
        for j in range(i):
            if rng.random() < (0.45 if labels[i] == labels[j] else 0.02):
                ax.plot(*X[[i, j]].T, color=GREY, lw=0.7, zorder=0)
    ax.scatter(*X.T, c=cluster_colors(3)[labels], s=40)


def matrix(ax, rng):
    sizes = [8, 6, 5]
    block = np.repeat(np.arange(3), sizes)
    image = np.where(block[:, None] == block, 0.95, 0.06)
    image[6:8, 8:14] = image[8:14, 6:8] = 0.45
    ax.imshow(image, cmap="Blues", vmin=0, vmax=1)


def sample(ax, rng):
    X, labels = blobs(rng, 250)
    ax.scatter(*X.T, color=PALE, s=5)
    some = rng.choice(len(X), 60, replace=False)
    ax.scatter(*X[some].T, c=cluster_colors(3)[labels[some]], s=16)


def stream(ax, rng):
    y = np.cumsum(0.25 * rng.normal(size=120)) + 0.4 * rng.normal(size=120)
    ax.scatter(range(120), y, color=BLUE, s=8)
    ax.scatter([60, 97], [y[60] + 3.5, y[97] - 3.2], color=ORANGE, s=45)
    for x in (30, 60, 90):
        ax.axvline(x, color=PALE, zorder=0)


def months(ax, rng):
    for x, shares in ((0, [0.67, 0.33, 0.0]), (1, [0.47, 0.4, 0.13])):
        bottom = 0.0
        for share, color in zip(shares, cluster_colors(3), strict=True):
            ax.bar(x, share, bottom=bottom, color=color, width=0.55)
            bottom += share
    ax.set_xlim(-0.8, 1.8)


def slide(ax, rng):
    ax.add_patch(plt.Rectangle((0, 0), 8, 5, facecolor="none", edgecolor=GREY, lw=2))
    ax.text(0.5, 4.1, "Three kinds of guests", weight="bold")
    for y, (share, color) in enumerate([(0.5, BLUE), (0.33, ORANGE), (0.17, GREEN)]):
        ax.barh(3 - 1.1 * y, 10 * share, left=0.6, height=0.7, color=color)
    ax.set(xlim=(-0.2, 8.2), ylim=(-0.2, 5.2))


def running(ax, rng):
    ax.barh([2, 1, 0], [10, 10, 10], color=PALE, height=0.35)
    ax.barh([2, 1, 0], [10, 6.5, 2.2], color=BLUE, height=0.35)
    ax.set_ylim(-0.8, 2.8)


def chains(ax, rng, apart=0.0):
    for k, color in enumerate(cluster_colors(3)):
        walk = np.zeros(150)
        for t in range(1, 150):
            walk[t] = 0.8 * walk[t - 1] + rng.normal()
        ax.plot(walk + apart * (k == 1), color=color, lw=1)


def stuck(ax, rng):
    chains(ax, rng, 12.0)


def settings(ax, rng):
    for y, x in enumerate((0.3, 0.75, 0.5)):
        ax.plot([0, 1], [y, y], color=GREY, lw=3)
        ax.plot(x, y, "o", color=BLUE, ms=14)
    ax.set_ylim(-0.7, 2.7)


def ellipses(ax, rng):
    kinds = [(0, 0, 2, 1, 35), (3.2, 0, 2, 1, 0), (0, 2.2, 1.5, 1.5, 0), (3.2, 2.2, 1, 2, 150)]
    for (x, y, *size, angle), color in zip(kinds, cluster_colors(4), strict=True):
        for scale in (1.0, 0.55):
            shape = Ellipse((x, y), *(scale * np.array(size)), angle=angle)
            shape.set(facecolor="none", edgecolor=color, lw=2)
            ax.add_patch(shape)
    ax.set(xlim=(-1.4, 4.6), ylim=(-1.1, 3.4))


def laws(ax, rng):
    k = np.arange(12)
    factorial = np.cumprod(np.maximum(k, 1)).astype(float)
    ax.vlines(k - 0.12, 0, 3.0**k * np.exp(-3) / factorial, color=BLUE, lw=5)
    ax.vlines(k + 0.22, 0, 0.17 * 0.83**k, color=ORANGE, lw=5)


def priors(ax, rng):
    x = np.linspace(0.01, 6, 200)
    for shape, color in ((1, BLUE), (2, ORANGE), (4, GREEN)):
        y = x ** (shape - 1) * np.exp(-x * shape / 2)
        ax.plot(x, y / y.max(), color=color, lw=2)


def split(ax, rng):
    left, right = 0.35 * rng.normal(size=(2, 30, 2))
    ax.scatter(*(left + [0, 0]).T, color=GREY, s=14)
    ax.annotate("", (2.3, 0), (1.2, 0), arrowprops={"arrowstyle": "<->", "lw": 2, "color": GREY})
    ax.scatter(*(left + [3.4, 0.6]).T, color=BLUE, s=14)
    ax.scatter(*(right + [3.6, -0.7]).T, color=ORANGE, s=14)


def new_rows(ax, rng):
    X, labels = blobs(rng)
    ax.scatter(*X.T, c=cluster_colors(3)[labels], s=12, alpha=0.4)
    ax.scatter([2.0, 3.1], [1.0, 2.4], marker="*", color="0.25", s=160)


def evidence(ax, rng):
    ax.errorbar(range(3), [-3, -1, -2], yerr=[0.3, 0.25, 0.35], fmt="o", color=BLUE, capsize=5)
    ax.set(xlim=(-0.7, 2.7), ylim=(-3.8, -0.2))


def many_rows(ax, rng):
    x = np.linspace(1, 10, 20)
    ax.plot(x, x**1.6, color=ORANGE, lw=2)
    ax.plot(x, 2 + x, color=BLUE, lw=2)


def many_columns(ax, rng):
    for k, color in enumerate(cluster_colors(3)):
        curve = np.cumsum(rng.normal(size=60))
        for _ in range(6):
            ax.plot(curve + 0.6 * rng.normal(size=60) + 6 * k, color=color, lw=0.6)


def features(ax, rng):
    image = np.full((9, 19), np.nan)
    for k, part in enumerate(("cross", "box")):
        tile = np.zeros((7, 7))
        if part == "cross":
            tile[3], tile[:, 3] = 1, 1
        else:
            tile[[1, 5], 1:6], tile[1:6, [1, 5]] = 1, 1
        image[1:8, 1 + 9 * k : 8 + 9 * k] = tile
    ax.imshow(image, cmap="Blues", vmin=0, vmax=1.3)


def mutations(ax, rng):
    middles = np.array([[0.9, 0.9], [0.2, 0.7], [0.6, 0.1]])[:, None]
    X = middles + 0.05 * rng.normal(size=(3, 40, 2))
    ax.scatter(*X.reshape(-1, 2).T, c=np.repeat(cluster_colors(3), 40, axis=0), s=12)


def code(ax, rng):
    lines = ["class Geometric(Likelihood):", "    def resolve(self, X):", "        ..."]
    for i, line in enumerate(lines):
        ax.text(0.02, 0.75 - 0.25 * i, line, family="monospace", size=10, color=BLUE)
    ax.set(xlim=(0, 1), ylim=(0, 1))


def parts(ax, rng):
    names = [("likelihood", 0, 1, BLUE), ("prior", 0, 0, GREEN), ("sampler", 2.4, 0.5, ORANGE)]
    for name, x, y, color in names:
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": color, "lw": 2}
        ax.text(x, y, name, ha="center", bbox=box)
    ax.plot([0, 2.4, 0], [1, 0.5, 0], color=GREY, zorder=0)
    ax.set(xlim=(-1, 3.4), ylim=(-0.5, 1.5))


def bars(ax, rng):
    for k, (color, heights) in enumerate(
        [(BLUE, [0.9, 0.8, 0.95]), (ORANGE, [0.7, 0.9, 0.6]), (GREY, [0.6, 0.5, 0.7])]
    ):
        ax.bar(np.arange(3) + 0.25 * k, heights, 0.22, color=color)


DRAWN = {
    name: made
    for name, made in list(globals().items())
    if getattr(made, "__module__", "") == __name__ and name != "blobs" and callable(made)
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        fig, ax = plt.subplots(figsize=(3.2, 2.0), layout="constrained")
        draw(ax, np.random.default_rng(0))
        ax.set_axis_off()
        fig.savefig(folder / f"{name}.png", dpi=150)
        plt.close(fig)
