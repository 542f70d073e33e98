"""A page for each public class and function, written before the site is built.

A page of `api` that has `automodule` of a package keeps the package's own words and a table of its
objects, and each object gets a page in `api/objects`, with links to the pages that use it.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Generic, NamedTuple, Protocol

import gpflow
import tensorflow as tf
from sphinx.ext.autodoc.mock import mock

MODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"::\n\n((?: +.*\n?|\n)+)")
OTHERS = ("gpflow", "tfp", "tfd", "tf", "np", "sklearn")
"""Libraries whose objects may have the same name."""
PACKAGE = "gpflow_decoupled"
FOLDER = "api/objects"
USES = 2
"""How many pages are linked to at most: those that name the object most often."""
PLAIN = (
    object,
    abc.ABC,
    tuple,
    NamedTuple,
    Protocol,
    Generic,
    tf.Module,
    gpflow.Module,
)
"""Base classes that tell a reader nothing."""
LISTS = (
    "api/",
    "benchmarks",
    "changelog",
    "papers",
    "glossary",
)
"""Pages that name nearly everything and show nothing at work."""
HELPERS = (
    "BinomialLoss",
    "CensoredLikelihood",
    "ConvexPiecewiseLogitLoss",
    "Expansion",
    "ExpectationParameters",
    "ExpectedLoss",
    "GaussianLoss",
    "HingeLoss",
    "LabelRounds",
    "LaplaceLoss",
    "LegendrePair",
    "LogLinearLoss",
    "LogitLoss",
    "Maximiser",
    "MomentParameters",
    "NaturalParameters",
    "PiecewiseLogitLoss",
    "QuantileLoss",
    "RunRecord",
    "SiteRounds",
    "assign_moments",
    "check_disjoint",
    "check_inducing",
    "check_labels",
    "check_option",
    "check_parameters",
    "dirichlet_fisher_solve",
    "dirichlet_log_mean",
    "dirichlet_log_partition",
    "legendre_pair",
    "likelihood_site",
    "moment_parameters",
    "not_a_number",
    "observation_columns",
    "observation_moments",
    "observation_quantiles",
    "prior_site",
)
"""Public names for code that extends the package: `help` has their words, and no page."""
Shown = Callable[[type, Collection[type], str], list[str]]


def objects(module: ModuleType) -> list[str]:
    """Names of the public classes and functions of a module that have pages."""
    return [
        name
        for name in getattr(module, "__all__", ())
        if name not in HELPERS
        and (
            inspect.isclass(thing := getattr(module, name)) or inspect.isfunction(thing)
        )
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
    helpers = [
        f"``{name}``" for name in HELPERS if name in getattr(module, "__all__", ())
    ]
    more = [f"For code beside the package, see ``help``: {', '.join(helpers)}.", ""]
    menu = ["", *table, "", ".. toctree::", "   :hidden:", "", *pages, ""]
    return menu + more if helpers else menu


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


def code_of(text: str) -> list[str]:
    """The code of a page or docstring, in blocks and in lines."""
    codes = [*CODE.findall(text), *BLOCK.findall(text)]
    return [code for code in codes if not code.lstrip().startswith("```{")]


def users(name: str, texts: dict[str, str]) -> list[str]:
    """The pages that name an object in code, the most frequent first."""
    word = re.compile(rf"(?<![\w.])((?:\w+\.)*){name}(?!\w)")
    # the bare name of what GPflow has, too, is GPflow's
    alone = not (hasattr(gpflow.likelihoods, name) or hasattr(gpflow.kernels, name))

    def count(text: str) -> int:
        found = [prefix for code in code_of(text) for prefix in word.findall(code)]
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
    return [base for base in dict.fromkeys(found) if base not in PLAIN]


def text_of(
    module: str,
    name: str,
    kind: str,
    used_on: Sequence[str],
    members: Sequence[str] = (),
    has_bases: bool = False,
) -> str:
    """The page of an object, in reStructuredText; `kind` is "class" or "function".

    :param members: of a class, that are described.
    """
    lines = [name, "=" * len(name), "", f".. auto{kind}:: {module}.{name}"]
    if members:
        lines.append(f"   :members: {', '.join(members)}")
    if has_bases:
        lines.append("   :show-inheritance:")
    lines.append("")
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
    texts = [*guides.values(), *(inspect.getdoc(thing) or "" for *_, thing in found)]
    codes = "\n".join(code for text in texts for code in code_of(text))
    names = {name for _, name, _ in found}
    classes = {thing for *_, thing in found if inspect.isclass(thing)}
    for path, name, thing in found:
        used_on = users(name, guides)
        if inspect.isclass(thing):
            described = shown(thing, classes, codes)
            has_bases = bool(public_bases(thing.__bases__, names))
            text = text_of(path, name, "class", used_on, described, has_bases)
        else:
            text = text_of(path, name, "function", used_on)
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
