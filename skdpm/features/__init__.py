# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian feature allocation models."""
