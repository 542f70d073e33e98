"""NOTATION.md agrees with the code: every name exists, every equation that the code cites is
there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import gpflow_decoupled

ROOT = Path(__file__).parents[1]
NOTATION = (ROOT / "NOTATION.md").read_text(encoding="utf-8")
SOURCES = [
    path
    for folder in ("gpflow_decoupled", "tests", "demo", "notebooks")
    for path in (ROOT / folder).rglob("*.py")
]
CITED = re.compile(r"\(([ACDNTV]\d+)\)")


def rows(section: str) -> list[list[str]]:
    """The cells of the table of a section, without its head."""
    text = NOTATION.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def exists(name: str) -> bool:
    """Whether a dotted name is a module, a class or function in it, or an attribute that the class
    has or assigns.
    """
    thing, *parts = gpflow_decoupled, *name.split(".")
    if parts[0] == "gpflow":
        thing, parts = importlib.import_module("gpflow"), parts[1:]
    for place, part in enumerate(parts):
        if not hasattr(thing, part) and inspect.ismodule(thing):
            try:
                importlib.import_module(f"{thing.__name__}.{part}")
            except ModuleNotFoundError:
                return False
        if hasattr(thing, part):
            thing = getattr(thing, part)
            continue
        last = place == len(parts) - 1
        return last and inspect.isclass(thing) and part in assigned(thing)
    return True


def assigned(kind: type) -> set[str]:
    """Attributes that the methods of a class assign to `self`."""
    trees = [
        ast.parse(inspect.getsource(base).lstrip())
        for base in kind.__mro__
        if base.__module__.startswith("gpf")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    stored = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return {
        node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"
    }


CODE = [
    name
    for section in ("Parameters", "What is computed from them")
    for cells in rows(section)
    for name in re.findall(r"`([^`]+)`", cells[1])
]


@pytest.mark.parametrize("name", CODE)
def test_name_exists(name: str) -> None:
    assert exists(name)


def test_what_does_not_exist_is_noticed() -> None:
    assert len(CODE) > 30
    assert exists("bases.OrthogonalBasis.q_mu") and exists("bases.kernel_mean.MeanScaling")
    assert (
        not exists("bases.OrthogonalBasis.q_nu")
        and not exists("bases.NoBasis")
        and not exists("basis.scaling")
    )


def test_local_names_are_used() -> None:
    used: set[str] = set()
    for path in (ROOT / "gpflow_decoupled").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used |= {getattr(node, "id", ""), getattr(node, "arg", None) or ""}
    named = {name for cells in rows("Local names") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert named and named - used == set()


def test_every_symbol_has_a_shape_and_a_place() -> None:
    for section in ("Parameters", "What is computed from them"):
        for symbol, _, shape, place in rows(section):
            assert symbol and place and (shape.startswith("[") or shape == "as the Parameters"), (
                symbol
            )


def test_every_cited_equation_is_listed() -> None:
    listed = [cells[0].strip("()") for cells in rows("Equations")]
    assert listed == sorted(set(listed), key=lambda number: (number[0], int(number[1:])))
    cited = {
        number for path in SOURCES for number in CITED.findall(path.read_text(encoding="utf-8"))
    }
    cited |= set(CITED.findall(NOTATION))
    assert {"C28", "D31"} <= cited
    assert cited - set(listed) == set()
