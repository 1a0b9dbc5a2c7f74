# SPDX-License-Identifier: BSD-3-Clause
"""Names that users know from other libraries, with the way to what they mean, for errors."""

# Arguments of `fit` and `partial_fit`.
IN_FIT = {
    "sample_weight": (
        "rows have no weights. Draw a sample of rows with these weights as probabilities; do not "
        "repeat rows, because copies look like narrow clusters"
    )
}

# Parameters of estimators.
PARAMETERS = {
    "algorithm": "its name is sampler",
    "alpha": "its name is concentration",
    "init_params": "its name is init",
    **dict.fromkeys(("max_iter", "n_iter"), "iterations are n_warmup and n_draws"),
    **dict.fromkeys(("k", "max_components", "n_clusters"), "its name is n_components"),
    "n_init": "independent chains are n_chains",
    "n_samples": "draws are n_draws; sample(n) draws rows after fit",
    "seed": "its name is random_state",
    "tol": "a fit ends when answers are known well enough; target_ess and max_time are limits",
}

_IN_GAUSSIAN = "set it in the likelihood: likelihood=Gaussian({})".format
_NO_DISTANCE = "no distance is given; the likelihood learns how far clusters reach"
_NO_START = "pass labels as a start, init=labels; each chain finds its own start otherwise"
_NO_SIZE = "clusters may have any size; with noise=True single rows far from all others are noise"
OF_MIXTURES = {
    **PARAMETERS,
    "covariance_prior": _IN_GAUSSIAN("scale=..."),
    "covariance_type": _IN_GAUSSIAN('covariance_type="diag"'),
    "degrees_of_freedom_prior": _IN_GAUSSIAN("df=..."),
    **dict.fromkeys(("distance_threshold", "eps", "linkage", "metric"), _NO_DISTANCE),
    "mean_precision_prior": _IN_GAUSSIAN("mean_precision=..."),
    "mean_prior": _IN_GAUSSIAN("mean=..."),
    **dict.fromkeys(("means_init", "precisions_init", "weights_init"), _NO_START),
    **dict.fromkeys(("min_cluster_size", "min_samples"), _NO_SIZE),
    "reg_covar": "priors keep covariances regular; set their scale, Gaussian(scale=...)",
    "weight_concentration_prior": (
        "use concentration, the total of all components: n_components times the number of "
        "scikit-learn, which is for one"
    ),
    "weight_concentration_prior_type": "use DPMixture for a Dirichlet process, or FiniteMixture",
}

NUMBER_IS_INFERRED = (
    "the number of clusters is inferred. Use FiniteMixture(n_components=...) for a given number, "
    "or estimate_labels(max_clusters=...) for fewer clusters in the estimate alone"
)

OF_DPMIXTURE = {
    **OF_MIXTURES,
    **dict.fromkeys(("k", "max_components", "n_clusters", "n_components"), NUMBER_IS_INFERRED),
    "weight_concentration_prior": "its name is concentration",
}

# Arguments of `estimate_labels`.
IN_ESTIMATE_LABELS = dict.fromkeys(("k", "n_clusters", "n_components"), "its name is max_clusters")

# Attributes of mixtures.
_CRITERIA = (
    'compare models by score(X) of rows held back, or by log_evidence_ of fits with sampler="smc"'
)
_MEANS = 'means of Gaussian clusters are cluster_params_["means"]'
_NO_ARRAY = "the estimator is no array; labels_ has the labels, also after estimate_labels"
_SMC = 'only a fit with sampler="smc" has it'
_SEVERAL = "call estimate_labels(n_estimates=...) first"
ATTRIBUTES = {
    **dict.fromkeys(("aic", "bic", "inertia_", "lower_bound_"), _CRITERIA),
    **dict.fromkeys(("cluster_centers_", "means_"), _MEANS),
    **dict.fromkeys(("effective_sample_size_", "log_evidence_", "log_evidence_chains_"), _SMC),
    **dict.fromkeys(("astype", "dtype", "max", "min", "shape", "size", "tolist"), _NO_ARRAY),
    **dict.fromkeys(("estimate_weights_", "label_estimates_"), _SEVERAL),
    "core_sample_indices_": "no row is a core; probabilities_ has how certain its cluster is",
    "covariances_": 'covariances of Gaussian clusters are cluster_params_["covariances"]',
    "n_components_": (
        "clusters of the estimate are n_clusters_; components of the draws are "
        "n_components_samples_"
    ),
    "noise_probabilities_": "only a fit with noise=True has it",
    "transform": "predict_proba(X) has probabilities of clusters",
    "relevance_": "only a fit with the likelihood Product(parts, select=True) has it",
}

# An attribute that some fits do not keep.
NOT_KEPT = {"label_samples_": "not kept by partial_fit, nor with store_labels=False"}
