# SPDX-License-Identifier: BSD-3-Clause
"""Agreement of chains, and the words of the warning if they disagree.

Arrays have the shape (n_chains, n_draws), partitions (n_chains, n_draws, n_samples) and masses
(n_chains, n_estimates). `figures` are `diagnostics_` of an estimator, and `entry` is one of them.
`bad` are names from `unusable`.
"""

import itertools

import numpy as np
import scipy.stats

from skdpm import diagnostics

# A quantity whose split R-hat is above this has not mixed (Vehtari et al. 2021 recommend 1.01 for
# publication; a clustering is useful before that).
LARGEST_R_HAT = 1.05
# R-hat of co-clustering above which the errors of probabilities are too small.
MIXED = 1.2

# Largest standard deviation of estimates of a log evidence. Above it, one estimate decides.
LARGEST_STD = 1.0

# Smallest number of draws for comparing the halves of one chain. Even for independent draws, R-hat
# exceeds the limit in one case of 20 with halves of 50 draws, and in one of 5 with 25.
FEWEST_OF_ONE_CHAIN = 100
# R-hat of its halves above which one chain cannot be judged: that of chains that have settled is
# larger with a probability of at most 1 / 100, unless fewer than 5 draws of a half are effective.
LARGEST_OF_HALVES = 1.5

# Chains whose clusters disagree can be used together if their draws agree with those of other
# chains nearly as well as with each other: the mean adjusted Rand index is at most this smaller.
LARGEST_ARI_LOSS = 0.05
# Chains whose densities disagree can be used together if their mean log densities of a row differ
# by at most this number of nats per column, and half a nat for each of ten parameters over the
# number of rows. (So much do densities of the rows of the fit gain from parameters that follow
# chance; those of new rows do not.)
LARGEST_DIFFERENCE = 0.05
N_PARAMETERS = 10
# Numbers of draws of each chain, of all draws, and of rows that are compared for that.
N_COMPARED_DRAWS, MOST_COMPARED, N_COMPARED_ROWS = 10, 100, 2000

# A chain is apart if its log joint stays more than this number of standard deviations
# (`below_highest`) below that of the highest chain. Chains to a network with two groups in one
# cluster stay 6 to 41 below, those of default fits to many data sets up to 2.3.
FARTHEST_BELOW = 5.0

# A chain has lost the posterior's mass if the mean estimate of the log mass around its draws is
# lower than that of the best chain by more than FARTHEST_MASS nats and three standard deviations
# of an estimate. Levels of the log joint say less: two components in the place of one lower it by
# the entropy of their labels, hundreds of nats, and may be as probable.
FARTHEST_MASS = 8.0
# Smallest number of estimates of each chain for that.
FEWEST_MASSES = 3
# Chains have not settled if the halves of all differ, in one direction, as those of chains that
# have settled do with a smaller probability (`chance_of_drift`). Four chains that begin at
# singletons or a single cluster, without warm-up, have at most .01 in 23 of 24 fits.
DRIFT_BY_CHANCE = 1.0 / 100.0
# Difference of the mean log joints of chains, in nats, that `summary` explains.
WORTH_WORDS = 25.0
# Smallest number of draws of each chain for the judgement that a disagreement does not matter.
FEWEST_JUDGED = 25

# Smallest number of draws of each chain for R-hat of the density; of many chains fewer score rows.
FEWEST_SCORED = 4

# Answers are known well enough without the user's request if the effective sample size of the
# partitions is at least this (a probability is then known within 0.05), and Monte Carlo errors are
# at most these: of the mean number of components, as its share or an absolute number, and of the
# mean log density of a row, in nats.
SUFFICIENT_ESS = 100.0
SUFFICIENT_SHARE, SUFFICIENT_NUMBER = 0.05, 0.1
SUFFICIENT_ERROR = 0.01

# Chains are in separate modes, which more draws would not join, if their means differ from each
# other by more than the variance that the halves of chains explain (`separation`): beyond what
# chains that drift slowly, in one direction, exceed with this probability. That is 30 times the
# variance for four chains; fits to 17 public data sets have at most 15.
APART_BY_CHANCE = 1.0 / 300.0
# So do chains that drift for longer than a fit lasts: the effective sample size of the partitions
# would, in the longest fit, stay below this share of the sufficient one.
OUT_OF_REACH = 0.25

# Largest factor by which a warning asks for more draws.
MOST_TIMES = 10

# Largest number of chains that a warning names, and of quantities that it describes.
MOST_NAMED = 4
MOST_DESCRIBED = 3


def figures(draws, names):
    """`diagnostics_` of the named quantities and of the partitions, if these are kept."""
    found = {}
    for name in names:
        values = draws[name]
        if name == "log_joint":
            values = diagnostics.without_last_bits(values)
        found[name] = of_values(values)
    if "labels" in draws:
        found["coclustering"] = diagnostics.coclustering_diagnostics(draws["labels"])
        found["coclustering"]["separation"] = separation(draws["labels"])
    return found


def of_values(values):
    """`diagnostics_` of a quantity."""
    return {
        "r_hat": diagnostics.split_rhat(values),
        "ess_bulk": diagnostics.bulk_ess(values),
        "ess_tail": diagnostics.tail_ess(values),
        "mcse_mean": diagnostics.mcse_mean(values),
    }


def level_figures(values, shape):
    """`diagnostics_` of the mean log density of rows under draws, for rows of this shape.

    They also have "difference_chains", the largest difference between the means of two chains (or
    between the halves of one) in nats per column, minus what chance explains; at least 0.
    """
    parts = values if len(values) > 1 else np.array(np.array_split(values[0], 2), dtype=object)
    means = [np.mean(part) for part in parts if len(part)]
    n_samples, n_features = shape
    chance = 0.5 * N_PARAMETERS / n_samples
    difference = float(np.maximum(np.ptp(means) / n_features - chance, 0.0))
    return {**of_values(values), "difference_chains": difference}


def below_highest(log_joint):
    """How far the log joint of each chain stays below that of the highest one: (n_chains,).

    Slow chains rise and fall. So the better half of each chain is compared with the worse half of
    the highest chain. The unit is the larger standard deviation of the two chains, at least one
    nat. 0 if a half of the chain is as high, with fewer than 4 draws, or if a value is not finite.
    """
    half = log_joint.shape[1] // 2
    if half < 2 or not np.isfinite(log_joint).all():
        return np.zeros(len(log_joint))
    halves = np.stack([log_joint[:, :half], log_joint[:, -half:]]).mean(axis=2)
    highest = np.argmax(halves.min(axis=0))
    deviations = np.maximum(log_joint.std(axis=1), 1.0)
    deviations = np.maximum(deviations, deviations[highest])
    return np.maximum(halves[:, highest].min() - halves.max(axis=0), 0.0) / deviations


def chance_of_drift(log_joint):
    """Probability that the means of the halves of independent chains that have settled differ, in
    one direction, as much as these. 1 where chains cannot be compared.

    It is that of Student's law, with 2 (C - 1) degrees of freedom for C chains. If halves are
    independent, the difference of the halves of a chain has four times the variance of their mean;
    if they are not, at most that. So variances between chains of both estimate its variance.
    """
    half = log_joint.shape[1] // 2
    if len(log_joint) < 2 or half < 2 or not np.isfinite(log_joint).all():
        return 1.0
    first, second = log_joint[:, :half].mean(axis=1), log_joint[:, -half:].mean(axis=1)
    rise = abs(np.mean(second - first))
    variance = 0.5 * np.var([second - first, second + first], axis=1, ddof=1).sum()
    if variance == 0.0:
        return float(rise == 0.0)
    n_chains = len(log_joint)
    return 2.0 * float(scipy.stats.t.sf(rise / np.sqrt(variance / n_chains), 2 * (n_chains - 1)))


def below_largest(masses):
    """How far the mean log mass of each chain is below the largest, minus what chance explains:
    (n_chains,), in nats. 0 where nothing can be compared."""
    if len(masses) < 2 or masses.shape[1] < FEWEST_MASSES or not np.isfinite(masses).all():
        return np.zeros(len(masses))
    means, deviation = masses.mean(axis=1), np.sqrt(np.mean(masses.var(axis=1, ddof=1)))
    return np.maximum(means.max() - means - 3.0 * deviation, 0.0)


def separation(labels):
    """How far chains of partitions are apart, compared with how far each of them moves.

    It is the ratio of two estimates of the variance of a chain's mean of who is together with
    whom, summed over pairs of rows: between chains, and from the halves of chains. 0 if nothing
    can be compared.
    """
    together = diagnostics.together(labels)
    n_chains, n_draws, _ = together.shape
    half = n_draws // 2
    if n_chains == 1 or n_draws < FEWEST_JUDGED:
        return 0.0
    first, second = together[:, :half].mean(axis=1), together[:, n_draws - half :].mean(axis=1)
    between = ((first + second) / 2).var(axis=0, ddof=1).sum()
    within = ((first - second) ** 2 / 4).mean(axis=0).sum()
    return float(between / within) if within > 0.0 else np.inf if between > 0.0 else 0.0


def largest_separation(n_chains):
    """Separation from which chains are in separate modes: a quantile of an F law, because the two
    variances have n_chains - 1 and n_chains degrees of freedom."""
    return scipy.stats.f.isf(APART_BY_CHANCE, max(n_chains - 1, 1), n_chains)


def stay_apart(figures, n_chains):
    """Whether chains are in separate modes, by `diagnostics_`."""
    return figures.get("coclustering", {}).get("separation", 0.0) > largest_separation(n_chains)


def agreement(cluster_samples):
    """How well draws of the clusters agree, within chains and between them: dict.

    "ari_within" and "ari_between" are the mean adjusted Rand index of two draws of the same chain,
    and of different chains (or halves of one chain), over evenly spaced chains, draws and rows. 1
    if there are no two such draws.
    """
    n_chains, n_draws, n_samples = cluster_samples.shape
    # Two draws of each chain at least, and fewer chains if these are too many.
    n_compared = max(2, min(N_COMPARED_DRAWS, MOST_COMPARED // n_chains))
    at = np.unique(np.linspace(0, n_draws - 1, n_compared).round().astype(int))
    chains = slice(None, None, -(-n_chains * n_compared // MOST_COMPARED))
    rows = slice(None, None, -(-n_samples // N_COMPARED_ROWS))
    draws = np.ascontiguousarray(cluster_samples[chains, at][..., rows], dtype=np.intp)
    for labels in draws.reshape(-1, draws.shape[2]):
        labels[:] = np.unique(labels, return_inverse=True)[1]
    if n_chains == 1:
        half = len(at) // 2
        draws = np.array([draws[0, :half], draws[0, len(at) - half :]])
    owner = np.repeat(np.arange(len(draws)), draws.shape[1])
    flat = draws.reshape(-1, draws.shape[2])
    sums, counts = np.zeros(2), np.zeros(2)
    for a, b in itertools.combinations(range(len(flat)), 2):
        same = int(owner[a] == owner[b])
        sums[same] += adjusted_rand(flat[a], flat[b])
        counts[same] += 1
    between, within = (s / n if n else 1.0 for s, n in zip(sums, counts, strict=True))
    return {"ari_within": float(within), "ari_between": float(between)}


def adjusted_rand(a, b):
    """Adjusted Rand index (Hubert & Arabie 1985) of labels, small integers; see `_n_pairs`."""
    one, other = _n_pairs(a), _n_pairs(b)
    # Labels may be of a type that does not hold the number of pairs of labels.
    pairs = a.astype(np.intp) * (int(b.max()) + 1) + b
    both, total = _n_pairs(pairs), float(len(a) * (len(a) - 1))
    expected = one * other / total if total else 0.0
    most = 0.5 * (one + other)
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _n_pairs(labels):
    """Number of ordered pairs of rows with the same label, a non-negative integer."""
    counts = np.bincount(labels)
    return float((counts * (counts - 1)).sum())


def are_well_known(n_components, partitions=None):
    """Whether numbers of components, and partitions by their `coclustering_diagnostics`, are known
    well enough to end a fit."""
    largest = max(SUFFICIENT_SHARE * np.mean(n_components), SUFFICIENT_NUMBER)
    if not diagnostics.mcse_mean(n_components) <= largest:
        return False
    if partitions is None:
        return True
    return partitions["r_hat"] <= LARGEST_R_HAT and partitions["ess_bulk"] >= SUFFICIENT_ESS


def are_out_of_reach(partitions, shape, n_longest):
    """Whether partitions, by their `coclustering_diagnostics` for chains of this shape, would be
    known badly even in the longest fit, with `n_longest` draws of each of several chains."""
    n_chains, n_draws = shape
    expected = partitions["ess_bulk"] * n_longest / n_draws
    return n_chains > 1 and expected < OUT_OF_REACH * SUFFICIENT_ESS


def is_well_known(log_density):
    """Whether mean log densities of rows, (n_chains, n_scored), are known well enough; also True
    if too few draws of each chain score rows."""
    return bool(
        log_density.shape[1] < FEWEST_SCORED
        or diagnostics.split_rhat(log_density) <= LARGEST_R_HAT
        or diagnostics.mcse_mean(log_density) <= SUFFICIENT_ERROR
    )


def unusable(figures, bad):
    """Names of the quantities on which chains disagree so that answers are unusable.

    They are the partitions, or the number of components if there are no partitions, the density,
    and the log joint if chains stay at different levels; of particles all quantities. Here `bad`
    are names from `disagreements`.
    """
    if "log_evidence" in figures:
        return bad
    clusters = "coclustering" if "coclustering" in figures else "n_components"
    names = (clusters, "log_density", "log_joint")
    found = [name for name in names if name in bad and _matters(name, figures[name])]
    if from_one_start(figures) and "log_joint" not in found:
        found.append("log_joint")
    return found


def from_one_start(figures):
    """Whether all of several chains continue one start, because the others were far below it. A
    state that one start in four finds is hardly the best one."""
    return figures.get("log_joint", {}).get("n_starts", 2) == 1


def stay_low(entry):
    """Whether chains stay far below the highest one, by the entry of the log joint."""
    return (
        entry.get("below_highest", 0.0) > FARTHEST_BELOW
        or entry.get("lost_mass", 0.0) > FARTHEST_MASS
    )


def has_drifted(entry):
    """Whether the log joint rises or falls in all chains, by its entry."""
    return entry.get("chance_of_drift", 1.0) < DRIFT_BY_CHANCE


def _matters(name, entry):
    if name == "log_joint":
        return stay_low(entry) or has_drifted(entry)
    if "ari_between" in entry:
        # NaN counts as disagreement.
        return not entry["ari_between"] >= entry["ari_within"] - LARGEST_ARI_LOSS
    return not entry.get("difference_chains", np.inf) <= LARGEST_DIFFERENCE


def why_not_counted(name, entry):
    """Words about a quantity on which chains disagree so that answers can be used."""
    if name == "log_density":
        difference = entry["difference_chains"]
        by = f"{difference:.1g} nats per row and column" if difference else "no more than chance"
        return f"chains differ by {by}"
    same = "draws of different chains agree nearly as well as those of one"
    if name == "coclustering":
        return same
    of_number = "probabilities of a number of components are known less well"
    return of_number if name == "n_components" else "no answer is read off it"


def verdict(figures, bad):
    """Words about the answers of a mixture on which chains agree."""
    words = []
    for name, entry in figures.items():
        if name == "coclustering" and name in bad:
            words.append(
                "they found different clusters, so labels_ depends on chance (mean adjusted "
                f"Rand index of two draws {entry['ari_between']:.2f} between chains, "
                f"{entry['ari_within']:.2f} within a chain)"
            )
        elif name == "coclustering":
            words.append("chains agree on labels_")
        elif name == "log_density" and name in bad:
            words.append(
                "score_samples depends on chance (chains differ "
                f"by {entry['difference_chains']:.2g} nats per row and column)"
            )
        elif name == "log_density":
            words.append("chains agree on densities")
        elif name == "n_components" and name in bad:
            words.append("they found different numbers of components")
    if from_one_start(figures):
        words.append("only one start led to this level of log_joint")
    elif "log_joint" in bad:
        words.append(
            "they stay at different levels of log_joint"
            if stay_low(figures["log_joint"])
            else "log_joint has not settled"
        )
    words.sort(key=lambda word: word.startswith("chains agree"))
    return "; ".join(words)


def low_chains(log_joint, masses):
    """Words about the chains that stay below the highest one. Without masses they may be right: a
    level is not the mass of a mode."""
    low, levels, of = below_highest(log_joint) > FARTHEST_BELOW, log_joint.mean(axis=1), ""
    lost = below_largest(masses) > FARTHEST_MASS
    if lost.any():
        low, levels, of = lost, masses.mean(axis=1), " in an estimate of the log mass"
    low = np.flatnonzero(low)
    stay = "stays" if len(low) == 1 else "stay"
    who = _named(low, len(levels)).capitalize()
    return f"{who} {stay} {levels.max() - levels[low].mean():.0f} nats below the highest{of}."


def words_about_levels(figures, bad):
    """Words about chains whose mean log joints differ, or None if that is not worth them."""
    entry = figures.get("log_joint", {})
    difference = entry.get("difference_chains", 0.0)
    if not difference > WORTH_WORDS or entry["r_hat"] <= LARGEST_R_HAT:
        return None
    words = f"log_joint differs by {difference:.0f} nats between chains"
    differ = figures.get("coclustering", {}).get("r_hat", 1.0) > MIXED or "coclustering" in bad
    if "difference_masses" in entry:
        by = f"{entry['difference_masses']:.0f}"
        if not (bad or differ):
            agree = "chains agree about labels, densities and the mass around their draws"
            return (
                f"{agree} (up to {by} nats); {words}, as components do, which is no disagreement"
            )
        words += f", estimates of the log mass around their draws by {by}"
    return f"chains {'differ' if differ else 'agree'} about labels; {words}"


def draws_to_ask(figures, names, n_draws):
    """Number of draws of each chain at which the quantities would probably agree, in hundreds."""
    least = min((figures[name].get("ess_bulk", np.inf) for name in names), default=np.inf)
    times = np.clip(4.0 * SUFFICIENT_ESS / least, 2.0, MOST_TIMES) if least > 0 else MOST_TIMES
    return int(np.ceil(times * n_draws / 100.0)) * 100


def judged(figures):
    """`diagnostics_` by which chains are judged: without the number of clusters, as clusters are
    read off so few draws that R-hat is large by chance."""
    return {name: entry for name, entry in figures.items() if name != "n_clusters"}


def disagreements(figures, n_chains, n_draws, fewest_compared):
    """Quantities on which chains disagree. R-hat needs `fewest_compared` draws of each chain."""
    if n_chains == 1:
        fewest_compared = max(fewest_compared, FEWEST_OF_ONE_CHAIN)
    bad = []
    for name, entry in judged(figures).items():
        # NaN, for enough draws, counts as disagreement.
        mixed = n_draws < fewest_compared or entry.get("r_hat", 1.0) <= LARGEST_R_HAT
        if not (mixed and entry.get("std", 0.0) <= LARGEST_STD):
            bad.append(name)
    return bad


def describe(entry, draws):
    """Words about a number on which chains disagree, such as "chain 0 at -2849, others at -2829
    (R-hat 1.53)". Estimates have one value for each chain."""
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
    few, many = sorted((low, high), key=lambda chains: (len(chains), min(chains)))
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
