"""Docstrings are plain text with `code` in single backticks; Sphinx reads reStructuredText.

Sphinx's `default_role` would read them too, but for formulas: `a*`, `q_` and `|x|` are markup in
reStructuredText, and tables in docstrings are those of Markdown, as on the pages.
"""

from __future__ import annotations

import re

CODE = re.compile(r"(`+.+?`+)")
SPECIAL = re.compile(r"([\\*|]|_(?![\w\[(]))")
BULLET = re.compile(r"^\s*[*-] ")
LETTER = re.compile(r"^(\s*:param \w+: )([A-Za-z])\.$")  # "L." would be the item of a list
SHAPES = re.compile(r"(?m)^:\w+(?: \w+)?:(?:\n +\* \*\*\w+\*\* has shape \[.*)+\n?")
"""Fields that GPflow's check_shapes adds."""
TABLE = re.compile(r"(?m)^( *)\|.*\|\n *\|[-|: ]+\|(?:\n *\|.*\|)*$")


def rewrite(lines: list[str]) -> None:
    """Rewrite a docstring in place: code becomes literal, special characters are escaped.

    Literal blocks, below a line that ends in `::`, stay. Lines that continue a field are indented.
    """
    block: int | None = None  # the indentation of the line that opened a literal block
    in_field, result = False, []
    text = SHAPES.sub("", "\n".join(lines))
    for line in TABLE.sub(_table, text).split("\n"):
        depth = len(line) - len(line.lstrip())
        if block is not None and line.strip() and depth <= block:
            block = None
        if block is None:
            line = _line(line)
            block = depth if line.endswith("::") else None
        in_field = line.startswith(":") or (in_field and bool(line.strip()))
        result.append(f"    {line}" if in_field and not line.startswith(":") else line)
    lines[:] = result


def _table(match: re.Match[str]) -> str:
    """A table of Markdown as reStructuredText; its first row is the header."""
    head, _, *rows = match[0].split("\n")
    # with a space, so that it opens no literal block
    lines = [".. list-table:: ", "   :header-rows: 1", ""]
    for row in (head, *rows):
        first, *others = re.split(r"(?<!\\) *\| *", row.strip())[1:-1]
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
    return "\n".join([*(match[1] + line for line in lines), ""])


def _line(line: str) -> str:
    bullet = BULLET.match(line)
    start = bullet.end() if bullet else 0
    words = CODE.split(LETTER.sub(r"\1`\2`.", line[start:]))
    words[::2] = [SPECIAL.sub(r"\\\1", text) for text in words[::2]]
    words[1::2] = [f"``{code.strip('`')}``" for code in words[1::2]]
    return line[:start] + "".join(words)
