# SPDX-License-Identifier: BSD-3-Clause
"""Answers read off the draws: predictive densities, leave-one-out densities, clusters."""
