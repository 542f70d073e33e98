"""What the tasks of docs/tasks.md cost: the code of how-tos, as printed, with a clock.

    python -m benchmarks.howtos [--only table counts]

For each block of a page: processor seconds, and statements from the data to the answer. Lines that
a block prints stand above its own. With one thread seconds are those of one core::

    OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 \\
        python -m benchmarks.howtos --only save
"""

from __future__ import annotations

__all__ = ["Block", "blocks", "run"]

import argparse
import ast
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path("docs/howto")
_SECTION = re.compile(r"^## ([^\n]+)$|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block of code of a page."""

    section: str
    """The heading above, empty before the first."""
    code: str

    @property
    def statements(self) -> int:
        """Lines as the pages count them, without imports."""
        tree = ast.parse(self.code).body
        return sum(not isinstance(one, (ast.Import, ast.ImportFrom)) for one in tree)


def blocks(page: str) -> list[Block]:
    """The blocks of a page that a script can have; those of an interpreter's session are not."""
    section, found = "", []
    for heading, code in _SECTION.findall(page):
        section = heading or section
        if code and not code.startswith(">>>"):
            found.append(Block(section, code))
    return found


def run(page: str) -> Iterator[tuple[Block, float | str]]:
    """Run the blocks of a page one after the other; yield each with its processor seconds, or with
    the name of a library that is not installed.
    """
    names: dict[str, Any] = {}
    for block in blocks(page):
        began = time.process_time()
        try:
            exec(compile(block.code, block.section or "page", "exec"), names)
        except ModuleNotFoundError as error:
            yield block, str(error.name)
        else:
            yield block, time.process_time() - began


def main() -> None:
    """Run the pages that the command line names, in a folder that is thrown away."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", help="names of pages; default: all")
    options = parser.parse_args()
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    os.environ.setdefault("MPLBACKEND", "Agg")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in options.only or pages:
            print(f"== {name}", flush=True)
            for block, found in run(pages[name]):
                seconds = f"left out, {found} is not installed"
                if isinstance(found, float):
                    seconds = f"{found:.1f} s, {block.statements} lines"
                print(f"-- {block.section or 'the task'}: {seconds}", flush=True)


if __name__ == "__main__":
    main()
