"""The report of a run, without a model."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

from benchmarks.harness.pictures import Figure, Panel, Series
from benchmarks.harness.report import Report, Section, Table, write


def test_report(tmp_path: Path) -> None:
    """JSON, Markdown, page and picture; parts may share a note, and chapters come last."""
    series = [
        Series("ours", [1, 2], [3, 4], spread=[0.1, 0.2]),
        Series("peer", [1, 2], [5, 6], dashed=True),
    ]
    figure = Figure(
        "picture", "What it shows.", [Panel("panel", "seconds (s)", "RMSE", series, log="xy")]
    )
    table = Table("numbers", ["model", "RMSE"], [["ours", "0.1"]])
    command = "python -m benchmarks run --suite made"
    sections = [
        Section([table], [figure], ["Note."]),
        Section([], [], ["Note.", "Another."], ["## Chapter"]),
    ]
    path = write(tmp_path, Report("made", "Made", command, [{"x": [1.0, float("nan")]}], sections))
    text = path.read_text()
    for part in (
        f"`{command}`",
        "| ours | 0.1 |",
        "![picture](picture.png)",
        "- Note.\n- Another.",
        "tensorflow",
        f"measured {date.today():%Y-%m-%d}, python",
    ):
        assert part in text
    assert text.endswith("## Chapter\n")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    page = (tmp_path / "made.html").read_text()
    for part in ("<h1>Made</h1>", "<td>0.1</td>", 'src="picture.png"', "<li>Note.</li>"):
        assert part in page
    content = json.loads((tmp_path / "made.json").read_text())
    assert content["results"] == [{"x": [1.0, None]}]
    assert content["command"] == command
