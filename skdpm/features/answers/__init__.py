# SPDX-License-Identifier: BSD-3-Clause
"""Answers read off the draws: laws of new rows."""
