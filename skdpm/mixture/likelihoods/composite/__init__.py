# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods made of likelihoods, and the registry of all."""
