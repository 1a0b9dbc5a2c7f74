# SPDX-License-Identifier: BSD-3-Clause
"""Counts, categories and binary columns."""
