# SPDX-License-Identifier: BSD-3-Clause
"""Chains of feature allocations: programs and starts."""
