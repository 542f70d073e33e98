"""From the package's docstrings, plain text with `code` in single backticks, to reStructuredText."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from types import ModuleType

FIELD = re.compile(r"(?<=\S) +(?=:(?:param|return)\b)")
SEVERAL = re.compile(r"(?m)^(\s*:param )(\w+(?:, \w+)+)(?=:)")
LITERAL = re.compile(r"(`+)(.+?)\1")
SPECIAL = re.compile(r"([\\*|]|_(?![\w\[(]))")
BULLET = re.compile(r"\s*[*-] ")
TABLE = re.compile(r"(?m)^( *)\|.*\|\n *\|[-|: ]+\|(?:\n *\|.*\|)*$")
CELLS = re.compile(r"(?<!\\) *\| *")
LETTER = re.compile(r"(?m)^( *:param \w+: )([A-Za-z])\.$")


def public_names(package: ModuleType) -> dict[str, str]:
    """Where each public name of the package's packages is documented; of namesakes none."""
    parts = [
        getattr(package, name)
        for name in package.__all__
        if isinstance(getattr(package, name), ModuleType)
    ]
    found = {
        name: package.__name__
        for name in package.__all__
        if not isinstance(getattr(package, name), ModuleType)
    }
    found = {name: f"{place}.{name}" for name, place in found.items()}
    inner = [public_names(part) for part in parts]
    taken = Counter(name for names in inner for name in names)
    for names in inner:  # what a package passes on is documented where it comes from
        found.update(names)
    return {name: path for name, path in found.items() if taken[name] < 2}


def rewrite(lines: list[str], names: dict[str, str]) -> None:
    """Rewrite a docstring in place: what looks like markup and is not is escaped, public names become links."""
    text = TABLE.sub(_table, _fields("\n".join(lines))).split("\n")
    indent: int | None = None  # of the line whose `::` opened a literal block
    in_field = False
    result = []
    for line in text:
        depth = len(line) - len(line.lstrip())
        if in_field and line.strip() and depth == 0 and not line.startswith(":"):
            result.append("")
        in_field = line.startswith(":") or (in_field and depth > 0)
        if indent is not None and line.strip() and depth <= indent:
            indent = None
        if indent is None:
            if line.endswith("::"):
                indent = depth
            line = _line(line, names)
        result.append(line)
    lines[:] = result


def summary(module: ModuleType) -> list[str]:
    """A table of what a module or package makes public and documents: a line for each name."""
    things = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    shown = [
        name
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    ]
    return (
        [
            "",
            ".. autosummary::",
            "   :nosignatures:",
            "",
            *(f"   {name}" for name in shown),
            "",
        ]
        if len(shown) > 1
        else []
    )


def _fields(text: str) -> str:
    """`:param a: ... :param b: ...` in one line becomes two fields; the names of `:param a, b: ...` become one word.

    A parameter that is described by one letter, as "L." is, would be an item of a list.
    """
    text = SEVERAL.sub(
        lambda match: match[1] + match[2].replace(" ", "\u200b"), FIELD.sub("\n", text)
    )
    return LETTER.sub("\\1`\\2`.", text)


def _table(match: re.Match[str]) -> str:
    """A table in Markdown as reStructuredText; its first row is the header."""
    indent = match[1]
    head, _, *rows = match[0].split("\n")
    lines = [
        f"{indent}.. list-table:: ",  # with a space, so that it opens no literal block
        f"{indent}   :header-rows: 1",
        "",
    ]
    for row in (head, *rows):
        cells = CELLS.split(row.strip())[1:-1]
        lines += [
            f"{indent}   {'*' if number == 0 else ' '} - {cell}"
            for number, cell in enumerate(cells)
        ]
    return "\n".join([*lines, ""])


def _line(line: str, names: dict[str, str]) -> str:
    bullet = BULLET.match(line)
    start = bullet.end() if bullet else 0
    parts, place = [line[:start]], start
    for match in LITERAL.finditer(line, start):
        parts += [
            SPECIAL.sub(r"\\\1", line[place : match.start()]),
            _code(match[2], names),
        ]
        place = match.end()
    return "".join([*parts, SPECIAL.sub(r"\\\1", line[place:])])


def _code(text: str, names: dict[str, str]) -> str:
    return f":py:obj:`~{names[text]}`" if text in names else f"``{text}``"
