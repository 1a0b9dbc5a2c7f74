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
    "alpha": "its name is concentration",
    "eps": "no distance is given; the likelihood learns how far clusters reach",
    **dict.fromkeys(("max_iter", "n_iter"), "iterations are n_warmup and n_draws"),
    "n_clusters": "its name is n_components",
    "n_init": "independent chains are n_chains",
    "n_samples": "draws are n_draws; sample(n) draws rows after fit",
    "seed": "its name is random_state",
}

OF_MIXTURES = {
    **PARAMETERS,
    "covariance_type": 'set it in the likelihood: likelihood=Gaussian(covariance_type="diag")',
}

NUMBER_IS_INFERRED = (
    "the number of clusters is inferred. Use FiniteMixture(n_components=...) for a given number, "
    "or estimate_labels(max_clusters=...) for fewer clusters in the estimate alone"
)

OF_DPMIXTURE = {
    **OF_MIXTURES,
    "n_clusters": NUMBER_IS_INFERRED,
    "n_components": NUMBER_IS_INFERRED,
}

# Arguments of `estimate_labels`.
IN_ESTIMATE_LABELS = dict.fromkeys(("k", "n_clusters", "n_components"), "its name is max_clusters")

# Attributes of mixtures.
_CRITERIA = (
    'compare models by score(X) of rows held back, or by log_evidence_ of fits with sampler="smc"'
)
_MEANS = 'means of Gaussian clusters are cluster_params_["means"]'
_SMC = 'only a fit with sampler="smc" has it'
ATTRIBUTES = {
    **dict.fromkeys(("aic", "bic", "inertia_", "lower_bound_"), _CRITERIA),
    **dict.fromkeys(("cluster_centers_", "means_"), _MEANS),
    **dict.fromkeys(("effective_sample_size_", "log_evidence_", "log_evidence_chains_"), _SMC),
    "covariances_": 'covariances of Gaussian clusters are cluster_params_["covariances"]',
    "n_components_": (
        "clusters of the estimate are n_clusters_; components of the draws are "
        "n_components_samples_"
    ),
    "noise_probabilities_": "only a fit with noise=True has it",
    "transform": "predict_proba(X) has probabilities of clusters",
    "relevance_": "only a fit with the likelihood Product(parts, select=True) has it",
}
