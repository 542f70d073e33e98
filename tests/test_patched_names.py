"""Names that tests replace in modules are there: few of these tests are in the short run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent
PATCHES = {"setattr", "interrupt_call"}


def _modules(tree: ast.Module) -> dict[str, ModuleType]:
    """Modules of the package by the names that a file gives them, and no other object."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpflow_decoupled"):
            try:
                parent = importlib.import_module(node.module)
            except ImportError:  # needs a library that is not installed, and its tests are skipped
                continue
            for alias in node.names:
                part = vars(parent).get(alias.name)
                if isinstance(part, ModuleType):
                    found[alias.asname or alias.name] = part
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store}
    return {name: module for name, module in found.items() if name not in bound}


def _pairs(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What stands for an object and a name: in a call that patches, and in tables of such calls."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            parts = node.args if name in PATCHES else []
        yield from zip(parts, parts[1:])


def missing(text: str) -> list[str]:
    """Names that are looked for in a module of the package, and not there."""
    tree = ast.parse(text)
    modules, found = _modules(tree), []
    for owner, name in _pairs(tree):
        module = modules.get(getattr(owner, "id", ""))
        word = getattr(name, "value", None)
        if module is not None and isinstance(word, str) and not hasattr(module, word):
            found.append(f"{module.__name__}.{word}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                found.append(f"{module.__name__}.{node.attr}")
    return found


@pytest.mark.exhaustive
def test_names_that_tests_patch_are_there() -> None:
    found = {str(path): missing(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        'patch.setattr(fit, "no_such_name", None)',
        'CASES = {"one": (fit, "no_such_name", 1)}',
        "fit.no_such_name()",
    ],
)
def test_a_name_that_has_moved_is_found(line: str) -> None:
    text = f"from gpflow_decoupled.training import keras as fit\n{line}"
    assert missing(text) == ["gpflow_decoupled.training.keras.no_such_name"]
