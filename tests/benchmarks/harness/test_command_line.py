"""Suites are found by name, and say what they can do."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.harness import command_line
from benchmarks.harness.command_line import _without_places, parse
from benchmarks.suites import SUITES

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts),
]
COMMAND = re.compile(r"(?m)(?:`python -m benchmarks (run [^`]+)`|^python -m benchmarks (run .+)$)")


def test_a_report_names_no_place() -> None:
    line = [
        "run",
        "--suite",
        "regression",
        "--out",
        "/a/b",
        "--models",
        "gpflow-5",
        "--data",
        "/c/d",
        "--gpjax-python",
        "/e/python",
        "--resume",
        "--open",
    ]
    assert _without_places(line) == [
        "run",
        "--suite",
        "regression",
        "--models",
        "gpflow-5",
        "--data",
        "d",
    ]


def test_every_suite_has_options_and_every_option_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for suite in SUITES:
        assert parse(["run", "--suite", suite, "--seed", "3"]).seed == 3
        with pytest.raises(SystemExit):
            parse(["run", "--suite", suite, "--no-such-option"])
        assert "--no-such-option" in capsys.readouterr().err


def test_help_lists_the_suites(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    shown = capsys.readouterr().out
    assert all(f"  {suite} " in shown for suite in SUITES)
    with pytest.raises(SystemExit):
        parse(["run", "--suite", "nonsense"])
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


def test_every_documented_command_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands beside the numbers of README.md and docs name suites, parts and options that there
    are.
    """
    monkeypatch.setattr(command_line, "_set_environment", lambda *_: None)
    pages = {
        page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8").replace("\\\n", " ")
        for page in PAGES
    }
    found = [
        (name, "".join(command))
        for name, text in pages.items()
        for command in COMMAND.findall(text)
    ]
    commands = [
        (page, shlex.split(command))
        for page, command in found
        if "NAME" not in command and "PART" not in command
    ]
    assert len(commands) > 15 and {page for page, _ in commands} >= {
        "README.md",
        "docs/benchmarks.md",
    }
    for page, command in commands:
        try:
            parse(command)
        except SystemExit:
            pytest.fail(f"{page}: {shlex.join(command)}")


def test_the_python_of_gpjax_is_known_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option takes the place of the environment variable."""
    monkeypatch.setenv("GPJAX_PYTHON", "/one/python")
    parse(["run", "--suite", "ci"])
    assert os.environ["GPJAX_PYTHON"] == "/one/python"
    parse(["run", "--suite", "ci", "--gpjax-python", "/other/python"])
    assert os.environ["GPJAX_PYTHON"] == "/other/python"
