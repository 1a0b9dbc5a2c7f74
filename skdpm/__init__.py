# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian mixture and feature allocation models for scikit-learn, by exact and fast MCMC."""

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

__version__ = "0.1.0"

__all__ = ["DPMixture", "FeatureAllocation", "FiniteMixture", "get_include"]


def get_include():
    """The folder of skdpm's C headers, for kernels that are built outside its tree.

    `check.h` (assertions) is needed where `skdpm._core._check` is cimported; `cholesky.h` holds
    the updates of Cholesky factors. Cython finds the `.pxd` files on `sys.path` by itself.

    Returns
    -------
    folder : str
    """
    return os.path.join(os.path.dirname(__file__), "_core")
