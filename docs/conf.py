"""Sphinx: Markdown pages, executed notebooks, and the docstrings as the reference; `make docs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import docstrings  # noqa: E402
import gpflow_decoupled  # noqa: E402
import links  # noqa: E402
import reference  # noqa: E402

project = "gpflow_decoupled"
author = "The gpflow_decoupled authors"
copyright = "the gpflow_decoupled authors, Apache-2.0"
release = version = gpflow_decoupled.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # formulas need no network
]
exclude_patterns = ["_build", "papers.md"]  # CONTRIBUTING.md links to it
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
nb_execution_mode = "off"  # docs/_ext/execute.py does that, and its outputs are kept
nb_mime_priority_overrides = [("dummy", "image/png", 0)]  # .ci/run's builder

html_theme = "furo"
html_title = f"gpflow_decoupled {release}"
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["fit.js"]
html_copy_source = False
html_show_sourcelink = False

autodoc_default_options = {"member-order": "bysource"}
autodoc_inherit_docstrings = False  # what a base class says is on its page
autodoc_mock_imports = ["trieste"]  # wants an older TensorFlow
autodoc_typehints = "none"  # the lists of parameters say what is taken
autodoc_preserve_defaults = True
autosummary_generate = (
    True  # a page for each name of a package, by _templates/object.rst
)
python_maximum_signature_line_length = 88
toc_object_entries = False  # an object has a page, and the menu lists pages


def offer_download(app, page: str, source: list[str]) -> None:
    """Put a line with the notebook and its script, to download, below the heading of a notebook."""
    folder, _, name = page.rpartition("/")
    if folder == "notebooks":
        notebook = json.loads(source[0])
        heading, _, text = "".join(notebook["cells"][0]["source"]).partition("\n")
        files = f"{{download}}`{name}.ipynb` · {{download}}`{name}.py <../../notebooks/{name}.py>`"
        words = (
            f"{heading}\n\n{files}, with the code of pictures and comparisons\n{text}"
        )
        notebook["cells"][0]["source"] = words
        source[0] = json.dumps(notebook)


def keep_lines_together(app, doctree) -> None:
    """Keep formulas of several lines: Sphinx would split them, and MathJax refuse their numbers."""
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
    """Connect what prepares docstrings, links and pages to the steps of the build."""
    pages = reference.prepare(HERE, autodoc_mock_imports)
    app.connect(
        "autodoc-process-docstring",
        lambda *arguments: docstrings.rewrite(arguments[-1]),
    )
    app.connect("autodoc-process-docstring", pages.see_also)
    app.connect("autodoc-process-bases", pages.show_bases)
    app.connect("autodoc-skip-member", pages.skip)
    app.connect("source-read", offer_download)
    app.connect(
        "doctree-read", lambda app, doctree: links.link_names(doctree, pages.names)
    )
    app.connect("doctree-read", keep_lines_together)
    app.connect("doctree-read", keep_first_signature)
    app.connect("missing-reference", links.resolve)
