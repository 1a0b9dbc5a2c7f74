# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian mixture and feature allocation models for scikit-learn, by exact and fast MCMC."""

import importlib
import os

try:
    from skdpm import _concentration as _compiled  # noqa: F401
except ImportError as error:
    if "skdpm" not in str(error):
        raise
    raise ImportError(
        "the compiled parts of skdpm are missing from this folder. If Python was started in the "
        "root of the source tree, ./skdpm hides the installed package: start it elsewhere (and "
        "run `pytest`, not `python -m pytest`), or install with `pip install "
        "--no-build-isolation -e .`"
    ) from error

from skdpm.features.estimators import FeatureAllocation
from skdpm.mixture.estimators import DPMixture, FiniteMixture
from skdpm.mixture.imputer import MixtureImputer
from skdpm.mixture.likelihoods.composite.automatic import suggest_likelihood

__version__ = "0.1.0"

_SUBMODULES = {
    "allocations",
    "datasets",
    "diagnostics",
    "features",
    "hyperpriors",
    "metrics",
    "mixture",
    "model_selection",
    "mutations",
    "networks",
    "partitions",
    "plotting",
}

__all__ = [
    "DPMixture",
    "FeatureAllocation",
    "FiniteMixture",
    "MixtureImputer",
    "get_include",
    "suggest_likelihood",
]
__dir__ = [*__all__, *_SUBMODULES, "__version__"].copy


def __getattr__(name):
    # Submodules are loaded on first use (PEP 562), so that `import skdpm` stays quick.
    if name in _SUBMODULES:
        return importlib.import_module(f"skdpm.{name}")
    raise AttributeError(f"module 'skdpm' has no attribute {name!r}")


def get_include() -> str:
    """Absolute path of the folder of skdpm's C headers, for kernels built outside its tree: str.

    A kernel needs them if it cimports a `.pxd` file that includes one, as those of `skdpm._core`
    and of `ParametricModel` do. Cython finds the `.pxd` files themselves on `sys.path`.
    """
    return os.path.join(os.path.dirname(__file__), "_core")
