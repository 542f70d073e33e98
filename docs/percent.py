"""Scripts in the percent format, and the Jupyter notebooks that are made of them."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

MARKER = re.compile(r"^# %%(?: \[(markdown)\])?(?: tags=(\[.*\]))?$")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
    },
}


class Cell(NamedTuple):
    """A cell: `kind` is "code" or "markdown", `tags` are those of Jupyter."""

    kind: str
    source: str
    tags: tuple[str, ...] = ()

    @property
    def is_shown(self) -> bool:
        """Whether the site shows the cell: switches for tests and checks are hidden."""
        return "remove-cell" not in self.tags


def read_script(text: str) -> list[Cell]:
    """The cells of a percent script; what stands before the first marker is its header and is left out."""
    found: list[tuple[str, tuple[str, ...], list[str]]] = []
    for line in text.split("\n"):
        marker = MARKER.match(line)
        if marker:
            found.append(
                (marker[1] or "code", tuple(json.loads(marker[2] or "[]")), [])
            )
        elif found:
            found[-1][2].append(
                re.sub("^# ?", "", line) if found[-1][0] == "markdown" else line
            )
    return [
        Cell(kind, "\n".join(lines).strip("\n"), tags) for kind, tags, lines in found
    ]


def read_notebook(text: str) -> list[Cell]:
    """The cells of a Jupyter notebook, without their outputs."""
    cells = json.loads(text)["cells"]
    return [
        Cell(
            cell["cell_type"],
            "".join(cell["source"]),
            tuple(cell["metadata"].get("tags", ())),
        )
        for cell in cells
    ]


def outputs(text: str) -> list[list[dict]]:
    """What the code cells of a Jupyter notebook showed, one list a cell."""
    return [
        cell["outputs"]
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "code"
    ]


def notebook(cells: list[Cell], shown: list[list[dict]]) -> str:
    """A Jupyter notebook of cells and of what its code cells showed."""
    remaining, written, count = iter(shown), [], 0
    for place, cell in enumerate(cells):
        metadata = {"tags": list(cell.tags)} if cell.tags else {}
        entry = {
            "cell_type": cell.kind,
            "id": f"cell-{place:02d}",
            "metadata": metadata,
        }
        if cell.kind == "code":
            count += 1
            entry |= {"execution_count": count, "outputs": next(remaining)}
        written.append(entry | {"source": cell.source.splitlines(keepends=True)})
    whole = {"cells": written, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
