"""Suites are found by name, and say what they can do."""

from __future__ import annotations

import pytest

from benchmarks.command_line import SUITES, _without_places, parse


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
        "--resume",
        "--open",
    ]
    assert _without_places(line) == ["run", "--suite", "regression", "--models", "gpflow-5", "--data", "d"]


def test_every_suite_has_options_and_every_option_is_known(capsys: pytest.CaptureFixture[str]) -> None:
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
