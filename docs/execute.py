"""Execute the notebooks whose code changed, for the site: `python docs/execute.py [01_quickstart ...]`.

`docs/notebooks` holds the executed notebooks, outputs and pictures included, so that building the
site runs nothing. jupytext reads the scripts, nbclient runs them. A notebook whose code has not
changed keeps its outputs and takes the new text.
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

HERE = Path(__file__).parent
SCRIPTS, EXECUTED = HERE.parent / "notebooks", HERE / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
    },
}
COLOURS = 96  # of a picture: four times smaller files than with all colours, and looks the same
THUMBNAIL = (360, 220)


def main(names: list[str], run_nothing: bool = False) -> int:
    """Bring the named notebooks up to date, all of them without names; return how many failed.

    With `run_nothing`, a notebook with new code is written without outputs.
    """
    scripts = [SCRIPTS / f"{name}.py" for name in names] or sorted(SCRIPTS.glob("*.py"))
    failed = 0
    for script in scripts:
        notebook, target = read(script), EXECUTED / f"{script.stem}.ipynb"
        keep_outputs(notebook, target)
        try:
            if not run_nothing and not any(cell.outputs for cell in code(notebook)):
                execute(notebook)
        except Exception as error:  # the other notebooks do not depend on this one
            print(
                f"{script.stem}: {type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )
            failed += 1
            continue
        write(notebook, target)
        print(script.stem, flush=True)
    return failed


def read(script: Path) -> NotebookNode:
    """Return the notebook of a percent script, with cell names that do not change from run to run."""
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.nbformat_minor = 5
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
        cell.metadata.pop("lines_to_next_cell", None)
    return notebook


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that are executed."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def keep_outputs(notebook: NotebookNode, target: Path) -> None:
    """Copy the outputs of an executed notebook if the code is the same."""
    stored = code(nbformat.read(target, as_version=4)) if target.is_file() else []
    if [cell.source for cell in stored] == [cell.source for cell in code(notebook)]:
        for cell, old in zip(code(notebook), stored):
            cell.outputs, cell.execution_count = old.outputs, old.execution_count


def execute(notebook: NotebookNode) -> None:
    """Run a notebook in an empty folder, and keep what a reader of the site should see."""
    os.environ.pop(
        "MPLBACKEND", None
    )  # the kernel's own one puts figures into the notebook
    options = ["--InlineBackend.rc", "{'figure.dpi': 80}"]
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, coalesce_streams=True, resources=resources)
        client.extra_arguments = options
        client.execute()
    for cell in code(notebook):
        cell.metadata.pop("execution", None)  # times of the run
        cell.outputs = [
            shown for shown in map(smaller, cell.outputs) if is_shown(shown, cell)
        ]


def is_shown(output: NotebookNode, cell: NotebookNode) -> bool:
    """Leave out progress and notes of TensorFlow, and the value of a cell that draws a figure."""
    drawn = any("image/png" in other.get("data", {}) for other in cell.outputs)
    return output.get("name") != "stderr" and not (
        drawn and output.output_type == "execute_result"
    )


def smaller(output: NotebookNode) -> NotebookNode:
    """Return the output with its picture, if it has one, in few colours."""
    picture = output.get("data", {}).get("image/png")
    if picture:
        output.data = NotebookNode(
            {"image/png": encoded(few_colours(decoded(picture)))}
        )
    return output


def decoded(picture: str) -> Image.Image:
    """Return the image of a PNG in base 64."""
    return Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")


def encoded(image: Image.Image) -> str:
    """Return a PNG in base 64."""
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def few_colours(image: Image.Image) -> Image.Image:
    """Return an image with a palette."""
    return image.quantize(COLOURS)


def write(notebook: NotebookNode, target: Path) -> None:
    """Write a notebook, and its thumbnail beside it."""
    notebook.metadata = nbformat.from_dict(METADATA)
    nbformat.validate(notebook)
    nbformat.write(notebook, target)
    thumbnail(notebook).save(target.with_suffix(".png"), optimize=True)


def thumbnail(notebook: NotebookNode) -> Image.Image:
    """Return the left part of the first picture, of the cell tagged "thumbnail" if there is one."""
    cells = sorted(
        code(notebook),
        key=lambda cell: "thumbnail" not in cell.metadata.get("tags", []),
    )
    for cell in cells:
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                image = decoded(output.data["image/png"])
                return few_colours(ImageOps.fit(image, THUMBNAIL, centering=(0.0, 0.5)))
    return Image.new("L", THUMBNAIL, 240)  # was not executed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="names of notebooks, all of them without"
    )
    parser.add_argument(
        "--text", action="store_true", help="run nothing; new code has no outputs"
    )
    options = parser.parse_args()
    sys.exit(main(options.names, run_nothing=options.text))
