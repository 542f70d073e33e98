"""The commands of a page of the documentation, as one call runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.harness.command_line import parse
from benchmarks.questions import PAGE, commands, prepared

ROOT = Path(__file__).parents[2]
COMMANDS = commands((ROOT / PAGE).read_text(encoding="utf-8"))


def test_commands_of_several_lines_are_one() -> None:
    page = "```shell\npython -m one --a \\\n    --b 'c d'\nmake demo\n```\n```python\nx\n```\n"
    assert commands(page) == [["python", "-m", "one", "--a", "--b", "c d"], ["make", "demo"]]


def test_places_are_filled_in(tmp_path: Path) -> None:
    run = ["python", "-m", "benchmarks", "run", "--suite", "rows", "--data", "DIR"]
    assert prepared(run, "sets", tmp_path) == [
        sys.executable, *run[1:-1], "sets", "--out", str(tmp_path), "--resume"
    ]  # fmt: skip
    demo = ["python", "-m", "demo.photograph", "--seconds", "20"]
    assert prepared(demo, "sets", tmp_path)[1:] == [*demo[1:], "--output", str(tmp_path)]
    assert prepared(["python", "-m", "benchmarks.exact"], "sets", tmp_path)[1:] == [
        "-m",
        "benchmarks.exact",
    ]


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if one[2] == "benchmarks"], ids=" ".join
)
def test_the_page_has_options_that_suites_know(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.harness.command_line._set_environment", lambda *_: None)
    assert command[:4] == ["python", "-m", "benchmarks", "run"]
    assert parse(command[3:]).suite


def test_the_page_has_a_command_for_each_question() -> None:
    assert len(COMMANDS) >= 10
