"""What users see: `__all__` names all of it, each name imports and is documented, the version is
one.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gpflow_decoupled

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpflow_decoupled"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)
NEEDS = {"gpflow_decoupled.wrappers.trieste": "trieste"}
"""Modules around packages that may be missing."""
SHAPE = re.compile(r"\[[^\]]*\]|\bshapes?\b|\bscalars?\b", re.IGNORECASE)
CODE_COLUMNS = 88
"""Of code on the pages of the reference."""
ARRAY = re.compile(r"Tensor|[Aa]rray|InputData|OutputData|RegressionData|MeanAndVariance")


def defined_names(source: str, is_package: bool) -> set[str]:
    """Public functions and classes of a module; for a package, also what it takes from its own
    modules.
    """
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif is_package and isinstance(node, ast.ImportFrom) and node.level:
            names.update(alias.asname or alias.name for alias in node.names)
    return {name for name in names if not name.startswith("_")}


def takes_arrays(thing: object) -> bool:
    """Whether a function, or the constructor of a class, has a parameter annotated as an array."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return False
    annotations = [str(parameter.annotation) for parameter in parameters]
    return any(
        ARRAY.search(text) and "float" not in text for text in annotations
    )  # "float or tensor" is a scalar


def documentation(thing: object) -> str:
    """The docstring; with the constructor's for a class, and with the attributes' for a
    NamedTuple.
    """
    texts = [inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        texts.append(inspect.getdoc(thing.__init__) or "")
        if hasattr(thing, "_fields"):
            texts.append(inspect.getsource(thing))
    return "\n".join(texts)


def undocumented(name: str, thing: object) -> list[str]:
    """Complaints about the docstrings of a public function, or of a public class and its public
    methods.
    """
    complaints = []
    inherited_only = inspect.isclass(thing) and not thing.__dict__.get("__doc__")
    if not inspect.getdoc(thing) or inherited_only:
        complaints.append(f"{name} has no docstring")
    elif takes_arrays(thing) and not SHAPE.search(documentation(thing)):
        complaints.append(f"{name} takes arrays, but its docstring names no shape")
    if inspect.isclass(thing):
        for method, value in vars(thing).items():
            is_method = inspect.isfunction(value) or isinstance(
                value, property | staticmethod | classmethod
            )
            if (
                is_method
                and not method.startswith("_")
                and not inspect.getdoc(getattr(thing, method))
            ):
                complaints.append(f"{name}.{method} has no docstring")
    return complaints


def examples(source: str) -> Iterator[str]:
    """The indented blocks after `::` in all strings that stand by themselves, as the pages show
    them: without indentation.
    """
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            continue
        lines = inspect.cleandoc(node.value.value).split("\n")
        for place, line in enumerate(lines):
            if line.endswith("::"):
                depth = len(line) - len(line.lstrip())
                inside = itertools.takewhile(
                    lambda text, depth=depth: not text or len(text) - len(text.lstrip()) > depth,
                    lines[place + 1 :],
                )
                yield textwrap.dedent("\n".join(inside)).strip("\n")


def _public(module: ModuleType) -> dict[str, object]:
    """Functions and classes of `__all__` that are defined in this very module."""
    things = {name: getattr(module, name) for name in module.__all__}
    return {
        name: thing
        for name, thing in things.items()
        if getattr(thing, "__module__", "") == module.__name__
    }


def _import(name: str) -> ModuleType:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_all_is_complete(name: str) -> None:
    module = _import(name)
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    path = Path(module.__file__ or "")
    assert [public for public in module.__all__ if not hasattr(module, public)] == [], (
        "named, but not there"
    )
    assert len(module.__all__) == len(set(module.__all__)), "named twice"
    assert not any(public.startswith("_") and public != "__version__" for public in module.__all__)
    defined = defined_names(path.read_text(encoding="utf-8"), path.name == "__init__.py")
    assert defined <= set(module.__all__), (
        "public, but not in __all__: name it there, or give it a leading underscore"
    )


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str) -> None:
    module = _import(name)
    assert module.__doc__, f"{name} has no docstring"
    complaints = [
        text for public, thing in _public(module).items() for text in undocumented(public, thing)
    ]
    assert not complaints, "\n".join(complaints)


def test_code_in_docstrings_fits_on_the_pages_of_the_reference() -> None:
    found = [
        (path.relative_to(PACKAGE).as_posix(), code)
        for path in sorted(PACKAGE.rglob("*.py"))
        for code in examples(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 150
    wide = [
        (path, line)
        for path, code in found
        for line in code.split("\n")
        if len(line) > CODE_COLUMNS
    ]
    assert wide == []


REFERENCE = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")
)
DOCUMENTED = ["gpflow_decoupled", *re.findall(r"automodule:: (\S+)", REFERENCE)]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_tab_shows_public_names_alone(name: str) -> None:
    module = _import(name)
    assert set(dir(module)) == set(module.__all__)


def test_version_is_the_same_everywhere() -> None:
    version = gpflow_decoupled.__version__
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_conda_recipe_is_of_this_version_and_its_requirements() -> None:
    recipe = (ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'\n  version: "{gpflow_decoupled.__version__}"\n' in recipe
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)[1]
    for name, versions in re.findall(
        r'^    "([\w-]+)(?:\[\w+\])?([<>][^;"]*)"', listed, re.MULTILINE
    ):
        assert f"    - {name} {versions}\n" in recipe.replace(" \n", "\n"), name


def test_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_checks_notice_violations() -> None:
    def silent(x: int) -> None: ...

    def shapeless(x: np.ndarray) -> None:  # noqa: F821
        """Do something with x."""

    def good(x: tf.Tensor) -> None:  # noqa: F821
        """Do something with x [N, D]."""

    class Half:
        """A class whose method says nothing."""

        def run(self) -> None: ...

    class Heir(Half):
        def run(self) -> None:
            """Run."""

    assert undocumented("silent", silent) and undocumented("shapeless", shapeless)
    assert undocumented("Half", Half) and undocumented("Heir", Heir)
    assert undocumented("good", good) == []
    block = "        one(\n            two\n        )\n"
    words = f'"""Words.\n\n    Example::\n\n{block}\n    Another::\n\n        three\n    """\n'
    shown = list(examples(f"class A:\n    {words}\n    x = 1\n    {words}"))
    assert shown == ["one(\n    two\n)", "three"] * 2
    source = "from .a import B\nimport os\ndef f(): ...\nclass C: ...\ndef _g(): ..."
    assert defined_names(source, is_package=True) == {"B", "C", "f"}
    assert defined_names(source, is_package=False) == {"C", "f"}


def test_models_show_their_options() -> None:
    """`help` lists each keyword argument of a constructor: none stands behind `**options`."""
    models = gpflow_decoupled.models
    classes = [one for one in map(vars(models).get, models.__all__) if inspect.isclass(one)]
    hidden = [
        one.__name__
        for one in classes
        if "VAR_KEYWORD"
        in {given.kind.name for given in inspect.signature(one).parameters.values()}
    ]
    assert len(classes) > 10 and not hidden
