"""Links from names in code to their documentation: of this package, GPflow, TensorFlow and NumPy.

TensorFlow publishes no inventory for intersphinx, and those of the others would have to be fetched.
All three are linked by the pattern of their addresses, for names that can be imported, so that a
build needs no network.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys

from docutils import nodes
from sphinx.addnodes import desc_signature, download_reference, pending_xref

ADDRESSES = {
    "gpflow": "https://gpflow.github.io/GPflow/develop/api/{folder}/index.html#{name}",
    "tensorflow": "https://www.tensorflow.org/api_docs/python/tf/{path}",
    "numpy": "https://numpy.org/doc/stable/reference/generated/{name}.html",
}
SHORT = {"tf": "tensorflow", "np": "numpy"}
NAME = re.compile(r"\w+(?:\.\w+)*")
LINKED = (nodes.reference, nodes.title, pending_xref, download_reference, desc_signature)
"""Nodes whose code stays as it is."""


def link_names(doctree: nodes.document, names: dict[str, str]) -> None:
    """Make links of the literals that are names; `names` has the full ones of this package."""
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        if not NAME.fullmatch(text) or is_linked(literal):
            continue
        name = re.sub(r"^(gd|gpflow_decoupled)\.", "", text)
        path = f"gpflow_decoupled.{name}"
        place = path if path in names.values() else names.get(name)
        if place:
            link = pending_xref(
                "", refdomain="py", reftype="obj", reftarget=place, refexplicit=True
            )
        elif address := elsewhere(text):
            link = nodes.reference("", "", refuri=address, internal=False)
        else:
            continue
        literal.replace_self(link)
        link += literal


def is_linked(node: nodes.Node | None) -> bool:
    """Whether a node is within a link, a heading or a signature."""
    return node is not None and (isinstance(node, LINKED) or is_linked(node.parent))


def resolve(app, env, node: pending_xref, content) -> nodes.reference | None:
    """Resolve what a signature or a docstring names of another package."""
    address = elsewhere(node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    return nodes.reference("", "", content, refuri=address, internal=False) if address else None


@functools.cache
def elsewhere(text: str) -> str | None:
    """The address of a name of GPflow, TensorFlow or NumPy, where it exists."""
    first, _, rest = text.partition(".")
    root = SHORT.get(first, first)
    if root not in ADDRESSES or not rest:
        return None
    things = [importlib.import_module(root)]
    for part in rest.split("."):
        things.append(getattr(things[-1], part, None))
    if things[-1] is None or inspect.ismodule(things[-1]):
        return None
    parts = [thing for thing in things[1:] if not inspect.ismodule(thing)]
    folder, name = root, f"{root}.{rest}"
    if root == "gpflow":
        folder = shown_in(parts[0])
        name = ".".join([folder, *rest.split(".")[-len(parts) :]])
    elif exported := getattr(things[-1], "_tf_api_names", None):
        name = f"{root}.{exported[0]}"
    path = name.partition(".")[2].replace(".", "/")
    return ADDRESSES[root].format(folder=folder.replace(".", "/"), name=name, path=path)


def shown_in(thing: type) -> str:
    """The module of GPflow that documents a thing: the first with it in `__all__`, or its own."""
    parts = getattr(thing, "__module__", "gpflow").split(".")
    for end in range(1, len(parts)):
        path = ".".join(parts[:end])
        if getattr(thing, "__name__", "") in getattr(sys.modules.get(path), "__all__", ()):
            return path
    return ".".join(parts)
