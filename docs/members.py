"""Which members of a class its page shows: those that users call, where no base class says the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Collection

from sphinx.pycode import ModuleAnalyzer

PACKAGE = "gpflow_decoupled"
LIKE = re.compile(r"\bas(?: in)?\s+`(\w+)`")
"""Another class whose page says the rest, in the words of a class."""
OPEN = (
    "Base",
    "Basis",
    "Family",
    "InducingBasis",
    "LogProbFamily",
    "NumberedLikelihood",
    "RowLikelihood",
    "SiteLoss",
)
"""Classes that users derive theirs from: abstract members are shown, and those that code names."""
KEPT = (
    "inverse_transform",
    "log_evidence",
    "marginals",
    "natural",
    "refresh",
    "weights",
)
"""Members that users call, and no code of a page."""
NAMESAKES = ("inputs", "settings", "shape")
"""Members for the package alone, with the names of others that users read."""


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


def is_told(owner: type, name: str, pages: Collection[type]) -> bool:
    """Whether the page of a base class has a class's docstring of a member.

    :param pages: the classes that have pages.
    """
    said = words_of(owner, name)
    others = [base for base in owner.__mro__[1:] if base in pages]
    for base in owner.__mro__[1:]:
        if words := words_of(base, name):
            has_page = any(issubclass(other, base) for other in others)
            return said in ("", words) and has_page
    return False


def fields(owner: type) -> tuple[str, ...]:
    """The fields of a record; none of another class."""
    if dataclasses.is_dataclass(owner):
        return tuple(field.name for field in dataclasses.fields(owner))
    return getattr(owner, "_fields", ())


def shown(owner: type, pages: Collection[type], codes: str) -> list[str]:
    """The members that the page of a class describes: its own ones, and methods of bases without
    a page, that users call.

    :param pages: the classes that have pages.
    :param codes: all code of the pages; a method that is not in it is for the package.
    """
    like = LIKE.findall(inspect.getdoc(owner) or "")
    told = [base for base in owner.__mro__[1:] if base in pages]
    told += [other for other in pages if other.__name__ in like]
    bases = [
        base
        for base in owner.__mro__[1:]
        if not any(issubclass(other, base) for other in told)
    ]
    own = dict.fromkeys([*vars(owner), *attributes(owner)])
    inherited = dict.fromkeys(
        name
        for base in bases
        if base.__module__.startswith(PACKAGE)
        for name, thing in vars(base).items()
        if inspect.isroutine(thing) and words_of(base, name)
    )
    return [
        name
        for name in own | inherited
        if not name.startswith("_")
        and is_wanted(owner, name, codes, name in own)
        and not is_told(owner, name, pages)
    ]


def is_wanted(owner: type, name: str, codes: str, is_own: bool) -> bool:
    """Whether users call a member, read it, or write it for a class of theirs."""
    thing = inspect.getattr_static(owner, name, None)
    if name in KEPT or name.endswith("_"):  # as scikit-learn's
        return True
    if is_own and owner.__name__ in OPEN:
        abstract = getattr(thing, "__isabstractmethod__", False)
        written = rf"`{name}`|\bdef {name}\(|\bself\.{name}\b|\n +{name} = "
        return abstract or bool(re.search(written, codes))
    if name in NAMESAKES and name not in fields(owner):
        return False
    if inspect.isroutine(thing):
        return bool(re.search(rf"\.{name}\(", codes))
    if f":param {name}:" in (inspect.getdoc(owner) or ""):
        return False
    if is_own and name in fields(owner):
        return True
    return bool(re.search(rf"\.{name}\b", codes))


def is_made_by_the_package(thing: object) -> bool:
    """Whether a thing is a record without parameters: its page has the fields."""
    return (
        inspect.isclass(thing)
        and bool(fields(thing))
        and ":param" not in (inspect.getdoc(thing) or "")
    )
