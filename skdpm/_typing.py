# SPDX-License-Identifier: BSD-3-Clause
"""Types of arguments that many functions share. Fitted attributes are typed where they are set."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Seed = int | np.random.RandomState | np.random.Generator | None
Loss = str | tuple[str, float]
# What a decorator returns as it gets it, for the eyes of a type checker.
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
