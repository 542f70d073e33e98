"""Links from names in code to their documentation: of this package, GPflow, TensorFlow and NumPy.

GPflow's names are resolved by intersphinx, from the inventory that `inventory.py` makes. TensorFlow publishes none for
Sphinx, and NumPy's would have to be fetched: these two are linked by the pattern of their addresses, for names that can
be imported, so that a build without a network is the same as one with it.
"""

from __future__ import annotations

import functools
import importlib
import re

from docutils import nodes
from sphinx import addnodes

ADDRESSES = {
    "tensorflow": "https://www.tensorflow.org/api_docs/python/tf/{path}",
    "numpy": "https://numpy.org/doc/stable/reference/generated/{name}.html",
}
ROOTS = {
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "np": "numpy",
    "numpy": "numpy",
}
NAME = re.compile(r"\w+(?:\.\w+)*")
OURS = ("gd.", "gpflow_decoupled.", "")


def link_names(doctree: nodes.document, names: dict[str, str]) -> None:
    """Make links of the literals that are names: of public things, `names` says where each is documented."""
    paths = set(names.values())
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        if not NAME.fullmatch(text) or is_linked(literal):
            continue
        place, address = documented(text, names, paths), elsewhere(text)
        place = text if text.startswith("gpflow.") else place  # for intersphinx
        if place:
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=place, refexplicit=True
            )
        elif address:
            link = nodes.reference("", "", refuri=address, internal=False)
        else:
            continue
        literal.replace_self(link)
        link += literal


def is_linked(literal: nodes.literal) -> bool:
    """Whether a literal is within a link, a heading or a signature."""
    within = (
        nodes.reference,
        addnodes.pending_xref,
        addnodes.download_reference,
        nodes.title,
        addnodes.desc_signature,
    )
    node = literal.parent
    while node is not None:
        if isinstance(node, within):
            return True
        node = node.parent
    return False


def documented(text: str, names: dict[str, str], paths: set[str]) -> str | None:
    """Where a name of this package is documented, short or with its path."""
    for prefix in OURS:
        name = text.removeprefix(prefix)
        if text.startswith(prefix) and f"gpflow_decoupled.{name}" in paths:
            return f"gpflow_decoupled.{name}"
        if text.startswith(prefix) and name in names:
            return names[name]
    return None


def resolve(
    app, env, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.reference | None:
    """Resolve what a signature or a docstring names of another package."""
    address = (
        elsewhere(node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    )
    return (
        nodes.reference("", "", content, refuri=address, internal=False)
        if address
        else None
    )


@functools.cache
def elsewhere(text: str) -> str | None:
    """The address of a name of TensorFlow or NumPy, where it exists."""
    first, _, rest = text.partition(".")
    root = ROOTS.get(first)
    if root is None or not rest:
        return None
    thing = importlib.import_module(root)
    for part in rest.split("."):
        thing = getattr(thing, part, None)
    if thing is None or isinstance(thing, type(importlib)):
        return None
    name = public_path(root, rest, thing)
    path = name.partition(".")[2].replace(".", "/")
    return ADDRESSES[root].format(name=name, path=path) if path else None


def public_path(root: str, rest: str, thing: object) -> str:
    """The path that the documentation of a package has for a thing: not that of the file that defines it."""
    exported = getattr(thing, "_tf_api_names", None)
    if root == "tensorflow" and exported:
        return f"tensorflow.{exported[0]}"
    return f"{root}.{rest}"
