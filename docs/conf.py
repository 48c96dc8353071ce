"""Sphinx configuration: the Markdown pages of this folder, and the Python API from docstrings."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

from beambert.trainers.backends.tensorflow.startup import start_tensorflow

# Imported here, TensorFlow prints nothing.
start_tensorflow()

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
# The fields of a named tuple would be listed twice otherwise.
napoleon_use_ivar = True

html_theme = "furo"
html_title = "beambert"
html_static_path: list[str] = []
html_show_sphinx = False


def _skip_tuple_field(
    _app: object, _what: str, _name: str, value: object, _skip: bool, _options: object
) -> bool | None:
    """Leave out the fields of named tuples, whose docstrings say "Alias for field number 0"."""
    return True if type(value).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Connect the hook above."""
    app.connect("autodoc-skip-member", _skip_tuple_field)
