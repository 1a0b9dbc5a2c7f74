# SPDX-License-Identifier: BSD-3-Clause
"""State of a feature allocation: Z and the parameters that follow from it."""
