"""Meanings of words under the pointer: links to the glossary have its entries as their titles."""

from __future__ import annotations

import functools

from docutils import nodes

PAGE = "glossary"


def meanings(doctree: nodes.document) -> dict[str, str]:
    """The text of each entry of the glossary, by the anchor of each of its terms."""
    found = {}
    for item in doctree.findall(nodes.definition_list_item):
        text = " ".join(item.children[-1].astext().split())
        found |= {term["ids"][0]: text for term in item.findall(nodes.term)}
    return found


@functools.cache
def of_site(env) -> dict[str, str]:
    """The meanings of the glossary of a site; read once, after all pages are."""
    return meanings(env.get_doctree(PAGE))


def give_titles(doctree: nodes.document, found: dict[str, str]) -> None:
    """Give each link to a term the term's meaning as its title, which browsers show."""
    for link in doctree.findall(nodes.reference):
        anchor = link.get("refid") or link.get("refuri", "").rpartition("#")[2]
        if anchor in found:
            link["reftitle"] = found[anchor]


def show(app, doctree: nodes.document, page: str) -> None:
    """Give the links of a page their titles, once they are resolved."""
    give_titles(doctree, of_site(app.env))
