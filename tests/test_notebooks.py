"""Every notebook runs from top to bottom, at reduced size, and ends with checks; the site has what
was executed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
EXECUTED = ROOT / "docs" / "notebooks"
LINES, COLUMNS = 25, 88
SCRIPT = """# a header
# %% [markdown]
# # Title
#
# Text.

# %% tags=["remove-cell"]
x = 2

# %%
print("printed", x)
x + 1

# %%
import matplotlib.pyplot as plt
plt.plot([0, 1], [0, x])
"""


def load(name: str) -> ModuleType:
    """A module of the folder docs, which is no package."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found  # `execute` imports `percent`
    spec.loader.exec_module(found)
    return found


percent = load("percent")


def cells(path: Path) -> list:
    """The cells of a notebook's script."""
    return percent.read_script(path.read_text(encoding="utf-8"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "NOTEBOOK_FAST": "1", "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "notebook_output").glob("*.png")), "no picture was drawn"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_a_percent_script_that_ends_with_a_check(path: Path) -> None:
    assert "format_name: percent" in path.read_text(encoding="utf-8").split("# %%")[0]
    last = cells(path)[-1]
    assert (
        any(isinstance(node, ast.Assert) for node in ast.parse(last.source).body)
        and not last.is_shown
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_reader_sees_is_short_and_has_no_switches(path: Path) -> None:
    for cell in cells(path):
        if cell.kind == "code" and cell.is_shown:
            lines = cell.source.split("\n")
            assert len(lines) < LINES and max(map(len, lines)) <= COLUMNS, cell.source
            assert not any(word in cell.source for word in ("FAST", "assert ", "savefig")), (
                cell.source
            )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_the_text_of_the_notebook(path: Path) -> None:
    stored = (EXECUTED / f"{path.stem}.ipynb").read_text(encoding="utf-8")
    assert percent.read_notebook(stored) == cells(path), "run make notebooks-site"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_what_the_notebook_showed(path: Path) -> None:
    shown = percent.outputs((EXECUTED / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    pictures = [
        output for outputs in shown for output in outputs if "image/png" in output.get("data", {})
    ]
    assert pictures, "run make notebooks-site"


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


def test_a_script_becomes_a_notebook_and_comes_back() -> None:
    read = percent.read_script(SCRIPT)
    assert [cell.kind for cell in read] == ["markdown", "code", "code", "code"]
    assert read[0].source == "# Title\n\nText." and [cell.is_shown for cell in read] == [
        True,
        False,
        True,
        True,
    ]
    shown = [[], [], [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]]
    stored = percent.notebook(read, shown)
    assert percent.read_notebook(stored) == read and percent.outputs(stored) == shown


def test_a_cell_shows_what_it_prints_its_last_value_and_its_figures() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    pytest.importorskip("PIL")
    pytest.importorskip("matplotlib.pyplot").close("all")  # those of other tests
    execute = load("execute")
    read = percent.read_script(SCRIPT)
    hidden, (printed, value), (picture,) = execute.execute(read, "name")
    assert hidden == [] and printed["text"] == ["printed 2\n"]
    assert value["data"] == {"text/plain": "3"} and list(picture["data"]) == ["image/png"]
    assert execute.thumbnail(read, [hidden, [printed, value], [picture]]).size == execute.THUMBNAIL


def test_only_new_code_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = load("execute")
    scripts, executed = tmp_path / "scripts", tmp_path / "executed"
    scripts.mkdir(), executed.mkdir()
    monkeypatch.setattr(execute, "SCRIPTS", scripts)
    monkeypatch.setattr(execute, "EXECUTED", executed)
    (scripts / "a.py").write_text("# %%\nprint(1)\n")
    assert execute.main([]) == 0
    first = (executed / "a.ipynb").read_text()
    assert percent.outputs(first)[0][0]["text"] == ["1\n"]
    (executed / "a.ipynb").write_text(first.replace('"1', '"kept'))
    (scripts / "a.py").write_text("# %% [markdown]\n# New text.\n\n# %%\nprint(1)\n")
    assert execute.main([]) == 0 and "kept" in (executed / "a.ipynb").read_text()
    (scripts / "a.py").write_text("# %%\nraise ValueError\n")
    assert execute.main(["a"]) == 1 and "kept" in (executed / "a.ipynb").read_text()
    assert execute.main(["a"], run_nothing=True) == 0 and percent.outputs(
        (executed / "a.ipynb").read_text()
    ) == [[]]
