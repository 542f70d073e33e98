"""The table of counts, and everything that was wrong."""

from __future__ import annotations

__all__ = ["markdown", "write"]

import json
from dataclasses import asdict
from pathlib import Path

from .outcome import HELD, REFUSED, WRONG
from .runner import Record
from .trials import NAMES, part


def markdown(records: list[Record]) -> str:
    """A table with one row a part, the figures of the parts, and the cases that were wrong with the
    lines that rerun them.
    """
    rows = [
        "| part | what is tried | tried | held | refused | wrong |",
        "|---|---|---|---|---|---|",
    ]
    names = [name for name in NAMES if any(record.part == name for record in records)]
    for name in names:
        rows.append(
            _row(
                f"`{name}`", part(name).words, [record for record in records if record.part == name]
            )
        )
    rows.append(_row("all", "", records))
    figures = _figures(records)
    if figures:
        rows += ["", "| figure | cases | mean | largest |", "|---|---|---|---|"]
        rows += [
            f"| {name} | {len(v)} | {sum(v) / len(v):.3g} | {max(v):.3g} |"
            for name, v in figures.items()
        ]
    wrong = [record for record in records if record.verdict == WRONG]
    for record in wrong:
        rows += [
            "",
            f"- `{record.command}`: {record.title}",
            *[f"  - {complaint}" for complaint in record.complaints],
        ]
    return "\n".join([*rows, ""])


def write(records: list[Record], folder: Path) -> Path:
    """Write `report.json`, with every case, and `report.md`; return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(
        json.dumps([asdict(record) for record in records], indent=1), encoding="utf-8"
    )
    page = folder / "report.md"
    page.write_text(markdown(records), encoding="utf-8")
    return page


def _row(name: str, words: str, records: list[Record]) -> str:
    counts = [
        sum(record.verdict == verdict for record in records) for verdict in (HELD, REFUSED, WRONG)
    ]
    return f"| {name} | {words} | {len(records)} | {' | '.join(map(str, counts))} |"


def _figures(records: list[Record]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.figures.items():
            found.setdefault(name, []).append(value)
    return found
