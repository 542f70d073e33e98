"""The inventory of GPflow's names that intersphinx reads.

It is made from the installed GPflow, whose pages have a fixed address for each public name, so that a build without a
network has the same links as one with it.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gpflow

ADDRESS = "https://gpflow.github.io/GPflow/develop/"
HEADER = f"""# Sphinx inventory version 2
# Project: GPflow
# Version: {gpflow.__version__}
# The remainder of this file is compressed using zlib.
"""


def write(file: Path) -> None:
    """Write the inventory in the format of Sphinx, version 2."""
    lines = (
        f"{name} py:{kind} 1 {page} -\n" for name, (kind, page) in entries().items()
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(HEADER.encode() + zlib.compress("".join(lines).encode()))


def entries() -> dict[str, tuple[str, str]]:
    """By name: what it is, and its place below `ADDRESS`.

    A thing with several names has one place there, below the first module that declares it or has it in `__all__`.
    """
    places: dict[int, str] = {}
    for module, name, thing in things():
        if thing.__module__ == module.__name__ or name in getattr(
            module, "__all__", ()
        ):
            page = module.__name__.replace(".", "/")
            address = f"api/{page}/index.html#{module.__name__}.{name}"
            places.setdefault(id(thing), address)
    found: dict[str, tuple[str, str]] = {}
    for module, name, thing in things():
        place, path = places.get(id(thing)), f"{module.__name__}.{name}"
        if place is None:
            continue
        found[path] = ("class" if inspect.isclass(thing) else "function", place)
        for method, _ in inspect.getmembers(thing, inspect.isroutine):
            if inspect.isclass(thing) and not method.startswith("_"):
                found[f"{path}.{method}"] = ("method", f"{place}.{method}")
    return found


def things() -> Iterator[tuple[ModuleType, str, Any]]:
    """GPflow's public classes and functions with module and name, those of shorter paths first."""
    level = [gpflow]
    while level:
        members = [
            (module, name, thing)
            for module in level
            for name, thing in sorted(vars(module).items())
            if not name.startswith("_")
        ]
        for module, name, thing in members:
            ours = str(getattr(thing, "__module__", "")).startswith("gpflow.")
            if ours and (inspect.isclass(thing) or inspect.isfunction(thing)):
                yield module, name, thing
        level = [
            thing
            for module, name, thing in members
            if inspect.ismodule(thing) and thing.__name__ == f"{module.__name__}.{name}"
        ]
