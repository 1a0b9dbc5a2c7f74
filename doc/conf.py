# SPDX-License-Identifier: BSD-3-Clause
"""`pip install ".[doc,examples]" && sphinx-build -W doc doc/_build`: the site, all examples run.

`-D plot_gallery=0` leaves the examples out. Links into the documentation of other projects need
the network, and so are made only where SKDPM_DOC_LINKS=1 (or on Read the Docs).
"""

import importlib.metadata
import os
import warnings

from sphinx_gallery.sorting import ExampleTitleSortKey

project = "skdpm"
author = "the skdpm developers"
copyright = author
release = importlib.metadata.version("skdpm")
version = release

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "skeletons", "figures", "gallery/*.ipynb", "sg_execution_times.rst"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # of the gallery's settings, which hold functions

default_role = "py:obj"  # links where there is a page of that name, and code elsewhere

# Pages in Markdown.
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3

# The reference: one page for each class and function.
autosummary_generate = True
autosummary_imported_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"

# What is copied has no prompts and no output.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

links = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "sklearn": "https://scikit-learn.org/stable",
    "xarray": "https://docs.xarray.dev/en/stable",
    "arviz": "https://python.arviz.org/en/stable",
}
online = os.environ.get("SKDPM_DOC_LINKS") == "1" or "READTHEDOCS" in os.environ
intersphinx_mapping = {name: (url, None) for name, url in links.items()} if online else {}


# The gallery. An example that warns or fails, fails the build.
def warnings_are_errors(gallery_conf, fname, when):
    """Turn warnings of an example into errors, and bring the filters back after it."""
    if when == "before":
        gallery_conf["filters"] = warnings.filters[:]
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "this fit will take")  # on a busy machine
    else:
        warnings.filters[:] = gallery_conf.pop("filters")


# From first contact to what few need; others follow by name.
ORDER = (
    "quickstart displays mixed outliers density grid_search samplers evidence stream large "
    "network roles features grid mutations"
).split()


class ByOrder(ExampleTitleSortKey):
    """Sort examples by their place in `ORDER`."""

    def __call__(self, filename):
        stem = filename.removeprefix("plot_").removesuffix(".py")
        return ORDER.index(stem) if stem in ORDER else len(ORDER)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": ByOrder,
    "thumbnail_size": (640, 400),
    "filename_pattern": r"/plot_",
    "abort_on_example_error": False,  # the build fails at its end, and names all that failed
    "reset_modules": ("matplotlib", warnings_are_errors),
    "reset_modules_order": "both",
    "backreferences_dir": "api/backreferences",
    "doc_module": ("skdpm",),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 10_000,
}

# Figures of pages, drawn by the scripts of doc/figures.
plot_basedir = "figures"
plot_formats = [("png", 160)]
plot_html_show_formats = False
plot_html_show_source_link = False

html_theme = "pydata_sphinx_theme"
html_title = f"skdpm {release}"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["skdpm.css"]
html_search_scorer = os.path.join(os.path.dirname(__file__), "scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "skdpm"},
    "header_links_before_dropdown": 7,
    "icon_links": [
        {"name": "Source", "url": "https://github.com/skdpm/skdpm", "icon": "fa-brands fa-github"}
    ],
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "switcher": {
        "json_url": "https://skdpm.readthedocs.io/en/latest/_static/versions.json"
        if online
        else "_static/versions.json",
        "version_match": ".".join(release.split(".")[:2]),
    },
    "check_switcher": False,
    "show_toc_level": 2,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": ["version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {"index": [], "api/generated/*": ["sidebar-nav-bs"]}


def trim_doctests(*event):
    """Leave out the empty line by which doctest knows the end of an output."""
    source = event[-1]
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def setup(app):
    app.connect("source-read", trim_doctests)
    app.connect("include-read", trim_doctests)
