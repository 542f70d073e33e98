"""Execute the notebooks whose code changed: `python docs/_ext/execute.py [01_quickstart ...]`.

`docs/notebooks` holds the executed notebooks, outputs and pictures included, so that building the
site runs nothing. A notebook whose code has not changed keeps its outputs and takes the new text.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image, ImageOps

DOCS = Path(__file__).parents[1]
SCRIPTS, EXECUTED = DOCS.parent / "notebooks", DOCS / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"}
COLOURS = 96  # of a picture: four times smaller files than with all colours, and looks the same
THUMBNAIL = (360, 220)
PNG = "image/png"


def main(names: list[str], run_nothing: bool = False) -> int:
    """Bring the named notebooks up to date, all of them without names; return how many failed.

    With `run_nothing`, a notebook with new code is written without outputs.
    """
    failed = 0
    for script in [SCRIPTS / f"{name}.py" for name in names] or sorted(SCRIPTS.glob("*.py")):
        notebook, target = read(script), EXECUTED / f"{script.stem}.ipynb"
        keep_outputs(notebook, target)
        try:
            if not run_nothing and not any(cell.outputs for cell in code(notebook)):
                execute(notebook)
        except Exception as error:  # the other notebooks do not depend on this one
            print(f"{script.stem}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        nbformat.validate(notebook)
        nbformat.write(notebook, target)
        thumbnail(notebook).save(target.with_suffix(".png"), optimize=True)
        print(script.stem, flush=True)
    return failed


def read(script: Path) -> NotebookNode:
    """The notebook of a percent script, with cell names that do not change from run to run."""
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.nbformat_minor = 5
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
        cell.metadata.pop("lines_to_next_cell", None)
    return notebook


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that are executed."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def keep_outputs(notebook: NotebookNode, target: Path) -> None:
    """Copy the outputs of an executed notebook if the code is the same."""
    stored = code(nbformat.read(target, as_version=4)) if target.is_file() else []
    if [cell.source for cell in stored] == [cell.source for cell in code(notebook)]:
        for cell, old in zip(code(notebook), stored):
            cell.outputs, cell.execution_count = old.outputs, old.execution_count


def execute(notebook: NotebookNode) -> None:
    """Run a notebook in an empty folder, and keep what a reader of the site should see.

    That is not progress and notes of TensorFlow, nor the value of a cell that draws a figure.
    """
    os.environ.pop("MPLBACKEND", None)  # the kernel's own one puts figures into the notebook
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, coalesce_streams=True, resources=resources)
        client.extra_arguments = ["--InlineBackend.rc", "{'figure.dpi': 80}"]
        client.execute()
    for cell in code(notebook):
        cell.metadata.pop("execution", None)  # times of the run
        unseen = {"execute_result"} if pictures(cell) else set()
        shown = [one for one in cell.outputs if one.get("name") != "stderr"]
        cell.outputs = [one for one in shown if one.output_type not in unseen]
        for output in cell.outputs:
            if picture := output.get("data", {}).get(PNG):
                file = io.BytesIO()
                decoded(picture).quantize(COLOURS).save(file, "PNG", optimize=True)
                output.data = NotebookNode({PNG: base64.b64encode(file.getvalue()).decode()})


def pictures(cell: NotebookNode) -> list[str]:
    """The pictures that a cell drew, in base 64."""
    return [one.data[PNG] for one in cell.outputs if PNG in one.get("data", {})]


def decoded(picture: str) -> Image.Image:
    """The image of a PNG in base 64."""
    return Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")


def thumbnail(notebook: NotebookNode) -> Image.Image:
    """The left part of the first picture, of the cell tagged "thumbnail" if there is one."""
    cells = sorted(
        code(notebook), key=lambda cell: "thumbnail" not in cell.metadata.get("tags", [])
    )
    for picture in (picture for cell in cells for picture in pictures(cell)):
        return ImageOps.fit(decoded(picture), THUMBNAIL, centering=(0.0, 0.5)).quantize(COLOURS)
    return Image.new("L", THUMBNAIL, 240)  # was not executed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="names of notebooks, all of them without")
    parser.add_argument("--text", action="store_true", help="run nothing; new code has no outputs")
    options = parser.parse_args()
    sys.exit(main(options.names, run_nothing=options.text))
