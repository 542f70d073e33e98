"""Every notebook runs from top to bottom, at reduced size, and ends with checks; the site has what
was executed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
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
SCRIPT = """# %% [markdown]
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


def execute() -> ModuleType:
    """The script docs/_ext/execute.py, which is in no package, where what it needs is installed."""
    for name in ("jupytext", "nbclient", "PIL"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location(
        "execute", EXECUTED.parent / "_ext" / "execute.py"
    )
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def cells(path: Path) -> list:
    """The cells of a notebook's script, without their outputs."""
    return execute().read(path).cells


def tags(cell: dict) -> list[str]:
    """What the site does with the cell."""
    return cell["metadata"].get("tags", [])


def is_hidden(cell: dict) -> bool:
    """Whether the site leaves the cell out: switches for the tests, and checks."""
    return "remove-cell" in tags(cell)


def stored(path: Path) -> list[dict]:
    """The cells of the executed notebook."""
    return json.loads((EXECUTED / f"{path.stem}.ipynb").read_text(encoding="utf-8"))["cells"]


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
    last = stored(path)[-1]
    checks = [node for node in ast.parse(source(last)).body if isinstance(node, ast.Assert)]
    assert checks and is_hidden(last)


def source(cell: dict) -> str:
    """The text of a cell of a stored notebook."""
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_reader_sees_is_short_and_has_no_switches(path: Path) -> None:
    for cell in stored(path):
        if cell["cell_type"] == "code" and not is_hidden(cell):
            lines = source(cell).split("\n")
            assert len(lines) < LINES and max(map(len, lines)) <= COLUMNS, source(cell)
            assert not any(word in source(cell) for word in ("FAST", "assert ", "savefig"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_the_text_of_the_notebook(path: Path) -> None:
    expected = [(cell.cell_type, cell.source, tags(cell)) for cell in cells(path)]
    found = [(cell["cell_type"], source(cell), tags(cell)) for cell in stored(path)]
    assert found == expected, "run make notebooks-site"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_that_is_shown_needs_no_code_that_is_not(path: Path) -> None:
    """Cells that show their outputs alone define nothing that a cell which is shown uses."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for cell in stored(path):
        if cell["cell_type"] == "code" and not is_hidden(cell):
            parts["remove-input" in tags(cell)].append(source(cell))
    shown, others = (names("\n".join(parts[kind])) for kind in (False, True))
    assert (shown["used"] - shown["defined"]) & others["defined"] == set()


def names(code: str) -> dict[str, set[str]]:
    """The names that code uses, and those that it defines."""
    found: dict[str, set[str]] = {"used": set(), "defined": set()}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            found["used" if isinstance(node.ctx, ast.Load) else "defined"].add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found["defined"].add(node.name)
        elif isinstance(node, ast.arg):
            found["defined"].add(node.arg)
        elif isinstance(node, ast.ExceptHandler):
            found["defined"].add(node.name or "")
        elif isinstance(node, ast.alias):
            found["defined"].add((node.asname or node.name).split(".")[0])
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_what_the_notebook_showed(path: Path) -> None:
    outputs = [output for cell in stored(path) for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs), (
        "run make notebooks-site"
    )


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


@pytest.fixture()
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Path, Path]:
    """The script, with empty folders for what it reads and what it writes."""
    script, scripts, executed = execute(), tmp_path / "scripts", tmp_path / "executed"
    scripts.mkdir(), executed.mkdir()
    monkeypatch.setattr(script, "SCRIPTS", scripts)
    monkeypatch.setattr(script, "EXECUTED", executed)
    return script, scripts, executed


@pytest.mark.exhaustive
def test_a_notebook_shows_prints_and_figures(folders: tuple[ModuleType, Path, Path]) -> None:
    script, scripts, executed = folders
    (scripts / "a.py").write_text(SCRIPT, encoding="utf-8")
    assert script.main([]) == 0
    text, hidden, (printed, value), (picture,) = (
        cell.get("outputs") for cell in json.loads((executed / "a.ipynb").read_text())["cells"]
    )
    assert text is None and hidden == [] and printed["text"] == ["printed 2\n"]
    assert value["data"]["text/plain"] == ["3"] and list(picture["data"]) == ["image/png"]
    assert (executed / "a.png").stat().st_size > 300


@pytest.mark.exhaustive
def test_only_new_code_is_executed(folders: tuple[ModuleType, Path, Path]) -> None:
    script, scripts, executed = folders
    (scripts / "a.py").write_text("# %%\nprint(1)\n")
    assert script.main([]) == 0
    first = (executed / "a.ipynb").read_text()
    assert '"1\\n"' in first
    (executed / "a.ipynb").write_text(first.replace('"1', '"kept'))
    (scripts / "a.py").write_text("# %% [markdown]\n# New text.\n\n# %%\nprint(1)\n")
    assert script.main([]) == 0
    second = (executed / "a.ipynb").read_text()
    assert "kept" in second and "New text." in second
    (scripts / "a.py").write_text("# %%\nraise ValueError\n")
    assert script.main(["a"]) == 1 and (executed / "a.ipynb").read_text() == second
    assert script.main(["a"], run_nothing=True) == 0
    assert json.loads((executed / "a.ipynb").read_text())["cells"][0]["outputs"] == []
