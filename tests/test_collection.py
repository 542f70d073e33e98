"""A test of the tests: whatever looks like a test is collected, can fail, and is not hidden by a
namesake.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LOOKS_LIKE_A_TEST = re.compile(r"_*tests?(_.*)?|.*_tests?", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = tuple[ast.AST, ...]


def _functions(
    tree: ast.AST, scope: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[Function, tuple[ast.AST, ...]]]:
    """Each function with the classes and functions around it, outermost first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node, scope
        inner = (*scope, node) if isinstance(node, Function | ast.ClassDef) else scope
        yield from _functions(node, inner)


def _is_fixture(node: Function) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_collected(node: Function, scope: Scope, file_name: str) -> bool:
    classes = [outer for outer in scope if isinstance(outer, ast.ClassDef)]
    methods = {item.name for outer in classes for item in outer.body if isinstance(item, Function)}
    return (
        node.name.startswith("test")
        and file_name.startswith("test_")
        and len(classes) == len(scope)  # a test within a function never runs
        and all(outer.name.startswith("Test") for outer in classes)
        and "__init__" not in methods
    )


def uncollected(path: Path) -> list[str]:
    """Functions that look like tests and that pytest passes over."""
    return [
        f"{path.name}:{node.lineno}: {node.name} is not collected"
        for node, scope in _functions(ast.parse(path.read_text(encoding="utf-8")))
        if LOOKS_LIKE_A_TEST.fullmatch(node.name) or node.name.startswith("test")
        if not _is_fixture(node) and not _is_collected(node, scope, path.name)
    ]


def namesakes(path: Path) -> list[str]:
    """Functions and classes that replace an earlier one of the same name in the same scope."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    complaints = []
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        seen: set[str] = set()
        for node in scope.body:
            if isinstance(node, Function | ast.ClassDef):
                if node.name in seen:
                    complaints.append(
                        f"{path.name}:{node.lineno}: {node.name} hides one of the same name"
                    )
                seen.add(node.name)
    return complaints


def _says_only(statement: ast.stmt) -> bool:
    """Whether the statement does nothing, or only prints."""
    if isinstance(statement, ast.Pass):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    call = statement.value
    is_print = (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    )
    return is_print or isinstance(call, ast.Constant)


def swallowed_failures(path: Path) -> list[str]:
    """`except` clauses that print an exception, or drop it, so that the test cannot fail."""
    return [
        f"{path.name}:{node.lineno}: the exception is swallowed; use pytest.raises, or let it out"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and all(_says_only(statement) for statement in node.body)
    ]


def slow_conftest(path: Path) -> list[str]:
    """A `conftest.py` that loads TensorFlow in the process that only hands out the tests."""
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.name == "conftest.py" else []
    modules = [
        (node.lineno, alias.name)
        for node in body
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    modules += [
        (node.lineno, node.module or "") for node in body if isinstance(node, ast.ImportFrom)
    ]
    return [
        f"{path}:{line}: import {module} in the fixture that needs it"
        for line, module in modules
        if module.split(".")[0]
        in {"gpflow", "gpflow_decoupled", "tensorflow", "tensorflow_probability"}
    ]


RULES = [uncollected, namesakes, swallowed_failures, slow_conftest]


@pytest.mark.exhaustive
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tests_can_fail(rule) -> None:
    paths = sorted(TESTS.rglob("*.py"))
    assert Path(__file__) in paths
    complaints = [complaint for path in paths for complaint in rule(path)]
    assert not complaints, "\n".join(complaints)


BAD = {
    "hidden by a prefix": (uncollected, "test_a.py", "def _test_x(): assert f()"),
    "named backwards": (uncollected, "test_a.py", "def kl_test(): assert f()"),
    "in a file that is not collected": (uncollected, "kl.py", "def test_x(): assert f()"),
    "in a class that is not collected": (
        uncollected,
        "test_a.py",
        "class KL:\n    def test_x(self): assert f()",
    ),
    "in a class with __init__": (
        uncollected,
        "test_a.py",
        "class TestKL:\n    def __init__(self): ...\n    def test_x(self): assert f()",
    ),
    "in a function": (uncollected, "test_a.py", "def helper():\n    def test_x(): assert f()"),
    "at the top of a conftest": (
        slow_conftest,
        "conftest.py",
        "import numpy\nimport gpflow.config",
    ),
    "from the top of a conftest": (
        slow_conftest,
        "conftest.py",
        "from gpflow_decoupled.bases import x",
    ),
    "twice": (namesakes, "test_a.py", "def test_x(): assert f()\ndef test_x(): assert g()"),
    "twice in a class": (
        namesakes,
        "test_a.py",
        "class TestX:\n    def test_x(self): assert f()\n    def test_x(self): assert g()",
    ),
    "printed": (
        swallowed_failures,
        "test_a.py",
        "def test_x():\n    try:\n        f()\n    except Exception as e:\n        print(e)",
    ),
    "dropped": (
        swallowed_failures,
        "test_a.py",
        "def test_x():\n    try:\n        f()\n    except E:\n        pass",
    ),
}


@pytest.mark.parametrize("rule, name, text", BAD.values(), ids=BAD)
def test_rule_notices_a_violation(rule, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert rule(tmp_path / name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_good_code(rule, tmp_path: Path) -> None:
    text = """
import pytest

@pytest.fixture
def a_test(): return 1

def make_test_data(latest): return latest

def test_x():
    try:
        f()
    except E:
        raise AssertionError("f fails")

class TestX:
    def test_x(self):
        with pytest.raises(E): f()
"""
    (tmp_path / "test_a.py").write_text(text, encoding="utf-8")
    assert rule(tmp_path / "test_a.py") == []
