"""Which members of a class its page shows in full: what a base class says is not said again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import sys
from collections.abc import Mapping
from types import FunctionType

from sphinx.pycode import ModuleAnalyzer

PACKAGE = "gpflow_decoupled"
INNER = tuple(
    f"{PACKAGE}.{name}." for name in ("bases", "models", "optimizers", "training")
)
"""Packages whose classes have public methods that only the rest of the package calls."""
KEPT = ("inverse_transform", "log_evidence", "marginals", "refresh", "weights")
"""Members of these that users call, and no page names."""
PLAIN = re.compile(
    r"(\w+): (?:bool = (?=True|False)|int = (?=-?\d+[,)])|float = (?=-?\d*\.\d|-?\d+e-)|str = (?='))"
)
"""The start of an argument whose default shows its type."""


@functools.cache
def attributes(owner: type) -> dict[str, str]:
    """The words below the attributes of a class, by name."""
    if not owner.__module__.startswith(PACKAGE):
        return {}
    found = ModuleAnalyzer.for_module(owner.__module__).find_attr_docs()
    return {
        name: "\n".join(lines).strip()
        for (place, name), lines in found.items()
        if place == owner.__qualname__
    }


def words_of(owner: type, name: str) -> str:
    """The docstring that a class itself gives a member; empty if it gives none."""
    thing = vars(owner).get(name)
    thing = getattr(thing, "__func__", thing)
    if inspect.isfunction(thing) or isinstance(thing, property):
        return inspect.cleandoc(thing.__doc__ or "")
    return attributes(owner).get(name, "")


def told_by(owner: type, name: str, pages: Mapping[type, str]) -> str | None:
    """The class, by its path, whose docstring of a member is also this class's; None if none is.

    :param pages: the classes that have pages, and their paths.
    """
    said = words_of(owner, name)
    for base in owner.__mro__[1:]:
        if words := words_of(base, name):
            repeated = said in ("", words)
            return pages.get(base) if repeated else None
    return None


def shown(owner: type, pages: Mapping[type, str], codes: str) -> tuple[list[str], dict]:
    """The members that the page of a class leaves out, and those of them that another page has.

    :param codes: all code of the pages; a method of an inner class that is not in it is for the
        package.
    """
    is_record = hasattr(owner, "_fields") or dataclasses.is_dataclass(owner)
    inner = owner.__module__.startswith(INNER) and not is_record
    left_out: list[str] = []
    elsewhere: dict[str, list[str]] = {}
    for name in dict.fromkeys([*vars(owner), *attributes(owner)]):
        if name.startswith("_"):
            continue
        called = name in KEPT or re.search(rf"[.`]{name}\b", codes)
        if inner and name in vars(owner) and not called:
            left_out.append(name)
        elif path := told_by(owner, name, pages):
            left_out.append(name)
            elsewhere.setdefault(path, []).append(name)
    return left_out, elsewhere


def arguments(thing: object) -> str | None:
    """Names alone for what is declared elsewhere: arguments of an overriding method, with those of
    the method of the base class, and fields that are described below. None for all other signatures.
    """
    if inspect.isclass(thing):
        fields = getattr(thing, "__dataclass_fields__", ())
        known = {name for base in thing.__mro__ for name in attributes(base)}
        names = getattr(thing, "_fields", None) or (
            tuple(fields) if known >= set(fields) else ()
        )
        return f"({', '.join(names)})" if names else None
    if not isinstance(thing, FunctionType) or "." not in thing.__qualname__:
        return None
    place, _, name = thing.__qualname__.rpartition(".")
    owner = operator.attrgetter(place)(sys.modules[thing.__module__])
    above = next(
        (vars(base)[name] for base in owner.__mro__[1:] if name in vars(base)), None
    )
    if not isinstance(above, FunctionType):
        return None
    names, known = (list(inspect.signature(one).parameters) for one in (thing, above))
    return f"({', '.join(names[1:])})" if names == known else None
