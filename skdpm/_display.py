# SPDX-License-Identifier: BSD-3-Clause
"""A fit in a few words: its summary, and a table for notebooks."""

import html
import math

import numpy as np

from skdpm import _convergence as agreement
from skdpm._tables import listed

# Clusters of a network, and nodes of each, that a summary names.
MOST_CLUSTERS, MOST_NODES = 20, 5


def summary_of_fit(estimator, what):
    """Summarise a fit in a few lines: dict of str to str. `what` is the name of its components."""
    if not hasattr(estimator, "draws_"):  # made by for_prediction
        law, kept = words_about_law(estimator), "none: the fit itself has draws and labels_"
        return {what: str(estimator.n_clusters_), "likelihood": law, "draws": kept}
    draws = estimator.draws_

    def usual(numbers, estimate=None):
        low, high = shortest_range(np.bincount(numbers.ravel()) / numbers.size, 0.9)
        words = f"in 90 % of the draws {low:g}" + (f" to {high:g}" if high > low else "")
        if estimate is None or low <= estimate <= high:
            return words
        which = "few draws have" if (numbers == estimate).any() else "no draw has"
        return f"{words}; {which} as {'many' if estimate > high else 'few'} as labels_"

    of_components, fitted = usual(draws["n_components"]), vars(estimator)
    if getattr(estimator, "n_components", None) is not None:
        of_components += f", of at most {estimator.n_components}"
    if "n_clusters_" in fitted:
        most, n_clusters = fitted["_most_clusters"], estimator.n_clusters_
        asked = "" if most is None else f"at most {most} asked for; "
        of_clusters = usual(estimator.n_clusters_samples_, None if asked else n_clusters)
        of_clusters += ", one for each component" * fitted["_one_for_each"]
        lines = {what: f"{n_clusters} ({asked}{of_clusters})", "components": of_components}
    else:
        lines = {what: f"{estimator.n_components_} ({of_components})"}
    lines["likelihood"] = words_about_law(estimator)
    of = "one chain" if draws.n_chains == 1 else f"each of {draws.n_chains} chains"
    lines["draws"] = f"{draws.n_draws} of {of}"
    if agreement.stay_apart(estimator.diagnostics_, draws.n_chains):
        lines["draws"] += ", which stay in separate modes"
    lines |= _about_convergence(estimator)
    if hasattr(estimator, "fit_time_"):
        lines["time"] = _duration(estimator.fit_time_)
    if estimator.likelihood_.pairwise and hasattr(estimator, "feature_names_in_"):
        lines |= _members(estimator, what.removesuffix("s"))
    return lines


def _about_convergence(estimator):
    """Whether chains agree, by which figures, and what the evidence is: dict."""
    diagnostics, draws = estimator.diagnostics_, estimator.draws_
    r_hats = {
        name: figures["r_hat"]
        for name, figures in agreement.judged(diagnostics).items()
        if not math.isnan(figures.get("r_hat", math.nan))
    }
    large = [name for name, r_hat in r_hats.items() if r_hat > agreement.LARGEST_R_HAT]
    evidence = diagnostics.get("log_evidence", {})
    large += ["log_evidence"] * (evidence.get("std", 0.0) > agreement.LARGEST_STD)
    bad = estimator._unusable(large)
    lines = {"converged": "yes" if estimator.converged_ else "no" if bad else "not judged"}
    levels = agreement.words_about_levels(diagnostics, bad)
    # Without masses, chains at different levels may have components of different probability.
    has_masses = "difference_masses" in diagnostics.get("log_joint", {})
    if estimator.converged_ and levels and not has_masses:
        lines["converged"] = "for labels and densities, not for components"
    if "log_joint" in bad and agreement.has_drifted(diagnostics["log_joint"]):
        lines["converged"] += ", log_joint has not settled"
    if r_hats:  # of those that count, if there are some
        counted = [name for name in large if name in bad and name in r_hats]
        worst = max(counted or r_hats, key=r_hats.get)
        words = f"{r_hats[worst]:.2f} ({worst})"
        if worst in large and worst not in bad and estimator.converged_:
            why = agreement.why_not_counted(worst, diagnostics[worst])
            words += f", acceptable for labels and densities: {why}"
        too_few = math.isinf(r_hats[worst]) and draws.n_draws < agreement.FEWEST_JUDGED
        lines["largest R-hat"] = "too few draws to compare" if too_few else words
    if hasattr(estimator, "log_evidence_"):
        lines["log evidence"] = f"{estimator.log_evidence_:.6g}"
        if evidence:
            lines["log evidence"] += f" +- {evidence['std'] / draws.n_chains**0.5:.2g}"
    return lines | ({"levels": levels} if levels else {})


def words_about_law(estimator):
    """Name of the likelihood; of a `Product` those of its parts, with their columns."""
    law, names = estimator.likelihood_, getattr(estimator, "feature_names_in_", None)
    parts = law.grouped() if "part_columns_" in vars(estimator) else []
    words = [f"{_name_of_law(own)} for {listed(at, names)}" for _, own, at in parts if len(at)]
    return ", ".join(words) or _name_of_law(law)


def _name_of_law(law):
    # A Gaussian that leaves out columns is one to users.
    name, tails = repr(law).partition("(")[0].removeprefix("Reduced"), getattr(law, "tails", None)
    if (covariances := getattr(law, "covariance_type", "full")) != "full":
        name += f"(covariance_type={covariances!r})"
    return name if tails is None else f"{name} with {type(tails).__name__}"


def shortest_range(probabilities, level):
    """First and last position of the shortest run with the level; of several, the likeliest."""
    cumulated = np.concatenate([[0.0], np.cumsum(probabilities)])
    for length in range(1, len(probabilities)):
        held = cumulated[length:] - cumulated[:-length]
        start = int(np.argmax(held))
        if held[start] >= level - 1e-12:
            return start, start + length - 1
    return 0, len(probabilities) - 1


def _members(estimator, what):
    """Names of the nodes of clusters, or of features, of a network: dict of str to str."""
    Z = getattr(estimator, "allocations_", None)
    Z = estimator._clusters[:, None] == np.arange(estimator.n_clusters_) if Z is None else Z > 0
    lines = {}
    for k, inside in enumerate(Z.T[:MOST_CLUSTERS]):
        names = estimator.feature_names_in_[inside].tolist()
        if len(names) > MOST_NODES:
            names[MOST_NODES - 1 :] = [f"{len(names) - MOST_NODES + 1} more"]
        lines[f"{what} {k}"] = ", ".join(names)
    return lines


def _duration(seconds):
    if seconds < 60.0:
        return f"{seconds:.2g} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def html_table(lines):
    """A small table, for display below scikit-learn's diagram of an estimator."""
    rows = "".join(
        f'<tr><th style="text-align: left">{html.escape(name)}</th>'
        f'<td style="text-align: left">{html.escape(value)}</td></tr>'
        for name, value in lines.items()
    )
    return f'<table class="skdpm-fit"><tbody>{rows}</tbody></table>'
