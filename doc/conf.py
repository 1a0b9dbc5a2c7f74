# SPDX-License-Identifier: BSD-3-Clause
"""`pip install ".[doc]" && sphinx-build -W doc doc/_build`."""

import importlib.metadata

project = "skdpm"
author = "the skdpm developers"
release = importlib.metadata.version("skdpm")
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "skeletons"]
html_theme = "alabaster"
html_theme_options = {"description": "Bayesian mixture models", "page_width": "1000px"}
html_show_sourcelink = False
myst_heading_anchors = 3
numpydoc_class_members_toctree = False
numpydoc_show_inherited_class_members = False
autodoc_member_order = "bysource"
