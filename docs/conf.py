"""Sphinx: Markdown pages, and the docstrings of the package as its reference. `make docs` builds the site."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import docstrings  # noqa: E402

import gpflow_decoupled  # noqa: E402

project = "gpflow_decoupled"
author = "The gpflow_decoupled authors"
copyright = "the gpflow_decoupled authors, Apache-2.0"
release = version = gpflow_decoupled.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

html_theme = "furo"
html_title = f"gpflow_decoupled {release}"
html_copy_source = False
html_show_sourcelink = False

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_mock_imports = ["trieste"]  # wants an older TensorFlow
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
suppress_warnings = ["ref.python"]  # `Gaussian` in a signature: a part of a basis, or a family
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"


def skip(app, what, name, thing, would_skip, options) -> bool | None:
    """Leave out methods that a metaclass copies into our classes from other packages."""
    foreign = str(getattr(thing, "__module__", "")).startswith("tensorflow_probability")
    return True if foreign else None


def setup(app) -> None:
    """Docstrings are plain text with `code` in single backticks; Sphinx gets them as reStructuredText."""
    names = docstrings.public_names(gpflow_decoupled)
    app.connect(
        "autodoc-process-docstring", lambda app, what, name, obj, options, lines: docstrings.rewrite(lines, names)
    )
    app.connect("autodoc-skip-member", skip)
