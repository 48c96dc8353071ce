"""Sphinx configuration: the Markdown pages of this folder, and the Python API from docstrings."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

project = "beambert"
author = "the beambert authors"
copyright = "2026, the beambert authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# The table of contents is index.rst; README.md, the same page on GitHub, is included there.
exclude_patterns = ["_build", "README.md"]
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# ```sh and ```text blocks of Markdown need no lexer that understands them.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# A word in backticks is code, as in Markdown.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "beambert"
html_static_path: list[str] = []
html_show_sphinx = False
