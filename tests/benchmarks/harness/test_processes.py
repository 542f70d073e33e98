"""Work in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.harness import processes
from benchmarks.harness.processes import in_a_process, run_script

SCRIPT = """
import json, os, sys
import benchmarks.harness.records  # needs the root of the repository
print("something else")
print(json.dumps({"arguments": sys.argv[1:], "told": os.environ["TOLD"], "process": os.getpid()}))
"""


def test_a_process_of_its_own_raises_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LOADED", [])  # which takes seconds
    assert in_a_process(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        in_a_process(int, "no number")


def test_a_script_answers_in_json(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    answer = run_script(script, ["a", "b c"], environment={"TOLD": "this"})
    assert (
        answer["arguments"] == ["a", "b c"]
        and answer["told"] == "this"
        and answer["process"] != os.getpid()
    )


def test_another_interpreter_does_not_see_packages_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, other = tmp_path / "script.py", tmp_path / "python"
    script.write_text(
        "import json, os\nprint(json.dumps(os.environ['PYTHONPATH'].split(os.pathsep)))"
    )
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    root = str(Path(__file__).parents[3])
    assert run_script(script, []) == [root, str(tmp_path / "packages")]
    assert run_script(script, [], python=str(other)) == [root]


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise KeyError('what it needs')")
    with pytest.raises(RuntimeError, match=r"script.py 7 failed:[\s\S]*KeyError: 'what it needs'"):
        run_script(script, ["7"])
