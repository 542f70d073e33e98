"""The reference: autosummary makes a page for each public class and function.

A page of `api` that has `automodule` of a package keeps the package's own words; a table of its
objects is put below them, from which autosummary makes their pages by `_templates/object.rst`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import gpflow
from sphinx.ext.autodoc.mock import mock

MODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"(?<![\w.])(?:(?:gd|gpflow_decoupled)\.(?:\w+\.)*)?(\w+)\b")
PACKAGE = "gpflow_decoupled"
OBJECTS = "api/objects"
USES = 2  # pages that are linked to at most: those that name an object most often
LISTS = ("api/", "benchmarks", "changelog", "papers", "glossary")
"""Pages that name nearly everything and show nothing at work."""
OTHERS = ("gpflow.", "sklearn.", "tensorflow_probability.", "builtins")
GPFLOWS = {*vars(gpflow.likelihoods), *vars(gpflow.kernels)}
"""Without a path GPflow's are meant."""


class Pages(NamedTuple):
    """Objects with a page, by full name, and how often each guide names which words in code."""

    objects: dict[str, object]
    words: dict[str, Counter[str]]

    @property
    def names(self) -> dict[str, str]:
        """Full names, by names that are not GPflow's too."""
        short = {path.rpartition(".")[2]: path for path in self.objects}
        return {name: path for name, path in short.items() if name not in GPFLOWS}

    def has(self, base: type) -> bool:
        """Whether a base class is described: on a page, or by another library."""
        ours = base.__module__.startswith(PACKAGE)
        return base in self.objects.values() if ours else base.__module__.startswith(OTHERS)

    def show_bases(self, app, name: str, owner: type, options, bases: list[type]) -> None:
        """Show the nearest base class that is described; `gpflow.Module` tells a reader nothing."""
        told = (base for base in owner.__mro__[1:] if self.has(base) and base is not gpflow.Module)
        bases[:] = [next(told)]

    def skip(self, app, what: str, name: str, thing: object, skipped: bool, options) -> bool | None:
        """Leave out members that are described with a base class, or come from other libraries."""
        owner = self.objects.get(app.env.temp_data.get("docname", "").rpartition("/")[2])
        if not inspect.isclass(owner) or name.startswith("_"):
            return None
        declared = "__annotations__"
        given = (one for one in owner.__mro__ if name in {*vars(one), *vars(one).get(declared, ())})
        base = next(given, owner)
        foreign = not base.__module__.startswith(PACKAGE) or re.fullmatch(r"set_\w+_request", name)
        foreign = foreign or str(getattr(thing, "__module__", "")).startswith("tensorflow_")
        return True if foreign or (base is not owner and self.has(base)) else None

    def see_also(self, app, what, name: str, thing, options, lines: list[str]) -> None:
        """Link to the pages that show an object at work, and clear words that Python makes."""
        if lines and lines[0].startswith("Alias for field number"):
            lines.clear()
        word = name.rpartition(".")[2]
        counts = Counter({page: words[word] for page, words in self.words.items()})
        found = [f":doc:`/{page}`" for page, count in counts.most_common(USES) if count]
        if found and name in self.objects and word in self.names:
            lines += ["", f"See also {', '.join(found)}.", ""]


def objects(module: ModuleType) -> list[str]:
    """Names of the public classes and functions of a module."""
    things = ((name, getattr(module, name)) for name in getattr(module, "__all__", ()))
    return [name for name, thing in things if inspect.isclass(thing) or inspect.isfunction(thing)]


def words_of(module: ModuleType) -> str:
    """The words of a package but for those on its files, and the table of its objects."""
    folders = map(Path, getattr(module, "__path__", ()))  # a module has none
    files = {path.stem for folder in folders for path in folder.iterdir()}
    files -= set(getattr(module, "__all__", ()))
    parts = (inspect.getdoc(module) or "").split("\n\n")
    kept = [text for text in parts if not files & set(re.findall(r"`(\w+)`", text))]
    options = [f":toctree: {Path(OBJECTS).name}", ":template: object.rst", ":nosignatures:", ""]
    table = "\n".join(f"   {line}".rstrip() for line in [*options, *objects(module)])
    return "\n\n".join([*kept, f".. autosummary::\n{table}\n"])


def prepare(docs: Path, mocked: Sequence[str]) -> Pages:
    """Give the packages the words of their pages, and remove pages of objects that are gone."""
    files = [path for path in docs.rglob("*") if path.suffix in (".md", ".ipynb")]
    texts = {path.relative_to(docs).with_suffix("").as_posix(): path.read_text() for path in files}
    found: dict[str, object] = {}
    with mock(mocked):
        for path in (path for text in texts.values() for path in MODULE.findall(text)):
            module = importlib.import_module(path)
            found |= {f"{path}.{name}": getattr(module, name) for name in objects(module)}
            module.__doc__ = words_of(module)
    for file in (docs / OBJECTS).glob("*.rst"):
        if file.stem not in found:
            file.unlink()
    guides = {page: text for page, text in texts.items() if not page.startswith((*LISTS, "_"))}
    return Pages(found, {page: Counter(named(text)) for page, text in guides.items()})


def named(text: str) -> list[str]:
    """The names in the code of a page, those of other libraries left out."""
    codes = [code for code in CODE.findall(text) if not code.lstrip().startswith("```{")]
    return [name for code in codes for name in NAME.findall(code)]
