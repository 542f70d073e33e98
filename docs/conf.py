"""Sphinx: Markdown pages, executed notebooks, and the docstrings of the package as its reference; `make docs` builds it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import docstrings  # noqa: E402
import gpflow_decoupled  # noqa: E402
import hover  # noqa: E402
import inventory  # noqa: E402
import links  # noqa: E402
import members  # noqa: E402
import reference  # noqa: E402
import site_files  # noqa: E402

project = "gpflow_decoupled"
author = "The gpflow_decoupled authors"
copyright = "the gpflow_decoupled authors, Apache-2.0"
release = version = gpflow_decoupled.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "papers.md"]  # CONTRIBUTING.md links to it
intersphinx_mapping = {
    "gpflow": (inventory.ADDRESS, str(HERE / "_build" / "gpflow.inv"))
}
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
nb_execution_mode = "off"  # docs/execute.py does that, and its outputs are kept
nb_mime_priority_overrides = [("dummy", "image/png", 0)]  # .ci/run's builder

html_theme = "furo"
html_title = f"gpflow_decoupled {release}"
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["fit.js"]
html_copy_source = False
html_show_sourcelink = False
mathjax_path = site_files.MATHJAX  # of a package, so that formulas need no network

autodoc_default_options = {
    "member-order": "bysource",
}
autodoc_mock_imports = ["trieste"]  # wants an older TensorFlow
autodoc_typehints = "none"  # the lists of parameters say what is taken
autodoc_preserve_defaults = True
autosummary_generate = (
    False  # tables of one line a name; the names are described below them
)
python_maximum_signature_line_length = 88
toc_object_entries = False  # an object has a page, and the menu lists pages


def skip(app, what, name, thing, would_skip, options) -> bool | None:
    """Leave out methods that TensorFlow Probability and scikit-learn put into our classes."""
    foreign = str(getattr(thing, "__module__", "")).startswith("tensorflow_probability")
    return True if foreign or re.fullmatch(r"set_\w+_request", name) else None


def leave_out_fields(app, what, name, thing, options, *signature) -> tuple | None:
    """No arguments of records: their fields are below."""
    return ("", None) if members.is_made_by_the_package(thing) else None


def keep_lines_together(app, doctree) -> None:
    """Pass formulas of several lines on as they are: Sphinx would split them, and MathJax refuse their numbers."""
    for formula in doctree.findall(nodes.math_block):
        if r"\\" in formula.astext():
            formula["nowrap"] = formula["no-wrap"] = True
            formula[:] = [nodes.Text(rf"\[{formula.astext()}\]")]


def keep_first_signature(app, doctree) -> None:
    """Show a generic function once: autodoc adds a signature for each type that is registered."""
    for thing in doctree.findall(addnodes.desc):
        for signature in list(thing.findall(addnodes.desc_signature))[1:]:
            if signature.parent is thing:
                thing.remove(signature)


def setup(app) -> None:
    """Connect what prepares docstrings, links and files to the steps of the build."""
    inventory.write(Path(intersphinx_mapping["gpflow"][1]))
    reference.write(HERE, members.shown)
    names = docstrings.public_names(gpflow_decoupled)
    for name in reference.HELPERS:  # without pages
        names.pop(name)

    def rewrite(app, what, name, thing, options, lines) -> None:
        if what == "module":
            lines[:] = reference.for_readers(thing, lines)
        if lines[:1] and lines[0].startswith("Alias for field number"):
            lines.clear()  # a field of a named tuple without words
        docstrings.rewrite(lines)
        if what == "module":
            lines += reference.summary(thing)

    def show_bases(app, name, thing, options, bases) -> None:
        bases[:] = reference.public_bases(bases, names)

    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", leave_out_fields)
    app.connect("autodoc-process-bases", show_bases)
    app.connect("autodoc-skip-member", skip)
    app.connect("source-read", site_files.offer_download)
    app.connect("doctree-read", lambda app, doctree: links.link_names(doctree, names))
    app.connect("doctree-read", keep_lines_together)
    app.connect("doctree-read", keep_first_signature)
    app.connect("missing-reference", links.resolve)
    app.connect("doctree-resolved", hover.show)
    app.connect("build-finished", site_files.copy_mathjax)


if importlib.util.find_spec(site_files.MATHJAX_PACKAGE) is None:
    raise ModuleNotFoundError(
        'the documentation needs more packages: python -m pip install ".[docs]"'
    )
