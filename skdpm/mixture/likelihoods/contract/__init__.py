# SPDX-License-Identifier: BSD-3-Clause
"""What every likelihood is: `Likelihood`, `ClusterModel` and `ParametricModel`."""
