"""A page for each public class and function, written before the site is built.

A page of `api` that has `automodule` of a package keeps the package's own words and a table of its
objects, and each object gets a page in `api/objects`, with links to the pages that use it.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import gpflow
from sphinx.ext.autodoc.mock import mock

MODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
OTHERS = ("gpflow", "tfp", "tfd", "tf", "np", "sklearn")
"""Libraries whose objects may have the same name."""
PACKAGE = "gpflow_decoupled"
FOLDER = "api/objects"
USES = 3
"""How many pages are linked to at most: those that name the object most often."""
LISTS = (
    "api/",
    "benchmarks",
    "changelog",
    "papers",
    "glossary",
    "mathematics/notation",
)
"""Pages that name nearly everything and show nothing at work."""
Shown = Callable[[type, Mapping[type, str], str], tuple[list[str], dict]]


def objects(module: ModuleType) -> list[str]:
    """Names of the public classes and functions of a module."""
    return [
        name
        for name in getattr(module, "__all__", ())
        if inspect.isclass(thing := getattr(module, name)) or inspect.isfunction(thing)
    ]


def page_of(module: str, name: str) -> str:
    """The page of an object, from the root of the site and without its suffix."""
    return f"{FOLDER}/{module.partition('.')[2]}.{name}"


def summary(module: ModuleType) -> list[str]:
    """A table of the objects of a module, a line for each, and their pages for the menu."""
    shown = objects(module)
    if not shown:
        return []
    table = [
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *(f"   {name}" for name in shown),
    ]
    pages = [
        f"   {name} </{page_of(module.__name__, name)}>" for name in objects(module)
    ]
    return ["", *table, "", ".. toctree::", "   :hidden:", "", *pages, ""]


def for_readers(module: ModuleType, lines: list[str]) -> list[str]:
    """The words of a package without the paragraphs that say which of its files holds what."""
    folders = map(Path, getattr(module, "__path__", ()))  # a module has none
    files = {path.stem for folder in folders for path in folder.iterdir()}
    files -= set(getattr(module, "__all__", ()))
    paragraphs = "\n".join(lines).split("\n\n")
    kept = [
        text for text in paragraphs if not files & set(re.findall(r"`(\w+)`", text))
    ]
    return "\n\n".join(kept).split("\n")


def users(name: str, texts: dict[str, str]) -> list[str]:
    """The pages that name an object in code, the most frequent first."""
    word = re.compile(rf"(?<![\w.])((?:\w+\.)*){name}(?!\w)")
    # the bare name of what GPflow has, too, is GPflow's
    alone = not (hasattr(gpflow.likelihoods, name) or hasattr(gpflow.kernels, name))

    def count(text: str) -> int:
        codes = [
            code for code in CODE.findall(text) if not code.lstrip().startswith("```{")
        ]
        found = [prefix for code in codes for prefix in word.findall(code)]
        return sum(
            prefix.split(".")[0] not in OTHERS if prefix else alone for prefix in found
        )

    counts = {page: count(text) for page, text in texts.items()}
    found = sorted(
        (page for page in counts if counts[page]), key=lambda page: -counts[page]
    )
    return found[:USES]


def public_bases(bases: Sequence[object], names: Container[str]) -> list[object]:
    """Base classes where those of this package that have no page stand for their own bases."""
    found: list[object] = []
    for base in bases:
        ours = isinstance(base, type) and base.__module__.startswith(PACKAGE)
        if ours and base.__name__ not in names:
            found += public_bases(base.__bases__, names)
        else:
            found.append(base)
    kept = [base for base in dict.fromkeys(found) if base not in (object, abc.ABC)]
    return kept or [object]


def text_of(
    module: str,
    name: str,
    kind: str,
    used_on: list[str],
    left_out: Sequence[str] = (),
    elsewhere: Mapping[str, Sequence[str]] = {},
) -> str:
    """The page of an object, in reStructuredText; `kind` is "class" or "function".

    :param left_out: members that are not described here.
    :param elsewhere: and those of them that are on the pages of other classes, by their paths.
    """
    lines = [name, "=" * len(name), "", f".. auto{kind}:: {module}.{name}"]
    if left_out:
        lines.append(f"   :exclude-members: {', '.join(left_out)}")
    lines.append("")
    for path, names in elsewhere.items():
        roles = ", ".join(f":py:obj:`~{path}.{member}`" for member in names)
        lines += [f"As in :py:class:`~{path}`: {roles}.", ""]
    if used_on:
        lines += [f"See also {', '.join(f':doc:`/{page}`' for page in used_on)}.", ""]
    return "\n".join(lines)


def written(docs: Path, shown: Shown) -> Iterator[tuple[Path, str]]:
    """The files of all pages and their texts."""
    pages = {
        path.relative_to(docs).with_suffix("").as_posix(): path.read_text(
            encoding="utf-8"
        )
        for path in sorted([*docs.rglob("*.md"), *docs.rglob("*.ipynb")])
        if "_build" not in path.parts
    }
    guides = {page: text for page, text in pages.items() if not page.startswith(LISTS)}
    with mock(["trieste"]):  # which wants an older TensorFlow
        found = [
            (path, name, getattr(importlib.import_module(path), name))
            for text in pages.values()
            for path in MODULE.findall(text)
            for name in objects(importlib.import_module(path))
        ]
    codes = "\n".join(
        [*guides.values(), *(inspect.getdoc(thing) or "" for *_, thing in found)]
    )
    paths = {thing: f"{path}.{name}" for path, name, thing in found}
    for path, name, thing in found:
        is_class = inspect.isclass(thing)
        parts = shown(thing, paths, codes) if is_class else ()
        kind = "class" if is_class else "function"
        text = text_of(path, name, kind, users(name, guides), *parts)
        yield docs / f"{page_of(path, name)}.rst", text


def write(docs: Path, shown: Shown) -> None:
    """Write the pages; those that stay the same keep their dates, so that Sphinx reads the others
    alone.

    :param shown: see `members.shown`.
    """
    (docs / FOLDER).mkdir(exist_ok=True)
    files = dict(written(docs, shown))
    for file in set((docs / FOLDER).iterdir()) - set(files):
        file.unlink()
    for file, text in files.items():
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
