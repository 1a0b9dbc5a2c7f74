# SPDX-License-Identifier: BSD-3-Clause
"""What a row may be besides a member of any cluster: noise, or of a known class."""
