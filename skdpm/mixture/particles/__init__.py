# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo: systems of particles, and streams of rows that they learn."""
