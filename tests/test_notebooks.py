"""Every notebook runs from top to bottom, at reduced size, and ends with checks of what it claims."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "NOTEBOOK_FAST": "1", "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "notebook_output").glob("*.png")), "no picture was drawn"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_a_percent_script_that_ends_with_a_check(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "format_name: percent" in text.split("# %%")[0]
    last_cell = text.split("\n# %%")[-1]
    assert any(isinstance(node, ast.Assert) for node in ast.parse(last_cell).body)


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3
