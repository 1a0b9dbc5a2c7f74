# SPDX-License-Identifier: BSD-3-Clause
"""Agreement of chains, and the words of the warning if they disagree."""

import numpy as np

from skdpm import diagnostics

# A quantity whose split R-hat is above this has not mixed (Vehtari et al. 2021 recommend 1.01 for
# publication; a clustering is useful before that).
LARGEST_R_HAT = 1.05

# Largest standard deviation of estimates of a log evidence. Above it, the largest estimate decides
# their mean.
LARGEST_STD = 1.0

# Smallest number of draws for comparing the halves of one chain. Even for independent draws, R-hat
# exceeds the limit in one case of 20 with halves of 50 draws, and in one of 5 with 25.
FEWEST_OF_ONE_CHAIN = 100

# Largest number of chains that a warning names, and of quantities that it describes.
MOST_NAMED = 4
MOST_DESCRIBED = 3


def figures(draws, names):
    """`diagnostics_` of some quantities and of the partitions, if these are kept.

    Parameters
    ----------
    draws : Draws
    names : iterable of str

    Returns
    -------
    figures : dict of dicts
    """
    found = {}
    for name in names:
        values = draws[name]
        if name == "log_joint":
            values = diagnostics.without_last_bits(values)
        found[name] = {
            "r_hat": diagnostics.split_rhat(values),
            "ess_bulk": diagnostics.bulk_ess(values),
            "ess_tail": diagnostics.tail_ess(values),
            "mcse_mean": diagnostics.mcse_mean(values),
        }
    if "labels" in draws:
        found["coclustering"] = diagnostics.coclustering_diagnostics(draws["labels"])
    return found


def disagreements(figures, n_chains, n_draws, fewest_compared):
    """Names of the quantities on which chains disagree.

    Parameters
    ----------
    figures : dict of dicts
        `diagnostics_` of an estimator.
    n_chains, n_draws : int
    fewest_compared : int
        Smallest number of draws per chain for R-hat.

    Returns
    -------
    names : list of str
    """
    if n_chains == 1:
        fewest_compared = max(fewest_compared, FEWEST_OF_ONE_CHAIN)
    bad = []
    for name, entry in figures.items():
        # NaN, for enough draws, counts as disagreement.
        mixed = n_draws < fewest_compared or entry.get("r_hat", 1.0) <= LARGEST_R_HAT
        if not (mixed and entry.get("std", 0.0) <= LARGEST_STD):
            bad.append(name)
    return bad


def describe(entry, draws):
    """Words about a number on which chains disagree.

    Parameters
    ----------
    entry : dict
        Entry of `diagnostics_`.
    draws : ndarray of shape (n_chains, n_draws) or (n_chains,)

    Returns
    -------
    words : str
        For example "chain 0 at -2849, others at -2829 (R-hat 1.53)".
    """
    if "std" in entry:
        return f"{_levels(draws)} (standard deviation {entry['std']:.2g})"
    n_chains, n_draws = draws.shape
    r_hat = f"(R-hat {entry['r_hat']:.2f})"
    half = n_draws // 2
    halves = np.stack([draws[:, :half], draws[:, n_draws - half :]])
    if not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return r_hat
    first, second = halves.mean(axis=2)
    if entry["r_hat"] == np.inf:
        if n_chains == 1 or (first != second).any():
            return f"constant at different values, {_moved(first, second)}"
        return f"constant at different values, {_levels(first)}"
    if n_chains == 1 or np.mean((first - second) ** 2) / 4 > np.var(draws.mean(axis=1)):
        return f"{_moved(first, second)} {r_hat}"
    if diagnostics.location_rhat(draws) <= LARGEST_R_HAT:
        return f"standard deviation: {_levels(draws.std(axis=1))} {r_hat}"
    return f"{_levels(draws.mean(axis=1))} {r_hat}"


def describe_partitions(entry, labels):
    """Words about partitions on which chains disagree, like `describe`."""
    r_hat = f"(R-hat {entry['r_hat']:.2f})"
    means = diagnostics.together(labels).mean(axis=1)
    n_chains = len(means)
    if n_chains == 1:
        return f"the halves of the chain group rows differently {r_hat}"
    if n_chains > 2:
        others = (means.sum(axis=0) - means) / (n_chains - 1)
        distances = ((means - others) ** 2).sum(axis=1)
        odd, *rest = np.argsort(-distances)
        # If the others agree, their distances are 1 / (n_chains - 1)^2 times that of the odd one.
        if distances[odd] > 2 * distances[rest[0]]:
            return f"chain {odd} groups rows differently from the others {r_hat}"
    return f"chains group rows differently {r_hat}"


def _moved(first, second):
    """Words about the chain that has moved most from its first to its second half."""
    c = int(np.argmax(np.abs(first - second)))
    a, b = _numbers(first[c], second[c])
    who = "it" if len(first) == 1 else f"chain {c}"
    return f"{who} goes from {a} to {b}"


def _levels(levels):
    """Words about two levels of chains if one gap stands out, otherwise about their range."""
    order = np.argsort(levels, kind="stable")
    gaps = np.diff(levels[order])
    widest = int(np.argmax(gaps))
    low, high = order[: widest + 1], order[widest + 1 :]
    if 2 * gaps[widest] < gaps.sum():
        a, b = _numbers(levels[order[0]], levels[order[-1]])
        return f"from {a} (chain {order[0]}) to {b} (chain {order[-1]})"
    if len(low) == len(high):
        few, many = sorted((low, high), key=min)
    else:
        few, many = sorted((low, high), key=len)
    a, b = _numbers(levels[few].mean(), levels[many].mean())
    others = f"chain {many[0]}" if len(many) == 1 else "others"
    return f"{_named(few, len(levels))} at {a}, {others} at {b}"


def _named(chains, n_chains):
    if len(chains) == 1:
        return f"chain {chains[0]}"
    if len(chains) > MOST_NAMED:
        return f"{len(chains)} of {n_chains} chains"
    return f"chains {', '.join(str(c) for c in np.sort(chains))}"


def _numbers(a, b):
    """Two numbers with enough digits to distinguish them."""
    difference = abs(a - b)
    if not 1e-6 < difference < 1e9:
        return f"{a:.6g}", f"{b:.6g}"
    decimals = max(0, 1 - int(np.floor(np.log10(difference))))
    return f"{a:.{decimals}f}", f"{b:.{decimals}f}"
