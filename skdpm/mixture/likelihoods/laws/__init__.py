# SPDX-License-Identifier: BSD-3-Clause
"""Laws of columns for answers, and what values of columns say about their laws."""
