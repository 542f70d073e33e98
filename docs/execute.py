"""Execute the notebooks that changed, for the site: `python docs/execute.py`, or with names `01_quickstart ...`.

`docs/notebooks` holds what was executed, outputs and pictures included, so that building the site runs nothing. A
notebook whose code is what was executed keeps its outputs and takes the new text. The others run one after the other
in this process, each with names of its own, as Jupyter would show them: what a cell prints, its last value, and its
figures.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS, EXECUTED = HERE.parent / "notebooks", HERE / "notebooks"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import percent  # noqa: E402

DPI, COLOURS = 80, 96
THUMBNAIL = (360, 220)


def main(names: list[str], run_nothing: bool = False) -> int:
    """Bring the named notebooks up to date, all of them without names; the number of those that failed.

    With `run_nothing` what would have to run is written without outputs.
    """
    failed = 0
    for script in [SCRIPTS / f"{name}.py" for name in names] or sorted(
        SCRIPTS.glob("*.py")
    ):
        cells, target = (
            percent.read_script(script.read_text(encoding="utf-8")),
            EXECUTED / f"{script.stem}.ipynb",
        )
        stored = target.read_text(encoding="utf-8") if target.is_file() else ""
        began = time.perf_counter()
        known = bool(stored) and code_of(percent.read_notebook(stored)) == code_of(
            cells
        )
        shown = percent.outputs(stored) if known else [[] for _ in code_of(cells)]
        if not any(shown) and not run_nothing:
            try:
                shown = execute(cells, script.stem)
            except Exception as error:  # the other notebooks do not depend on this one
                print(
                    f"{script.stem}: {type(error).__name__}: {error}",
                    file=sys.stderr,
                    flush=True,
                )
                failed += 1
                continue
        target.write_text(percent.notebook(cells, shown), encoding="utf-8")
        thumbnail(cells, shown).save(target.with_suffix(".png"), optimize=True)
        print(f"{script.stem}: {time.perf_counter() - began:.0f} s", flush=True)
    return failed


def code_of(cells: list[percent.Cell]) -> list[str]:
    """The code that was, or will be, executed."""
    return [cell.source for cell in cells if cell.kind == "code"]


def execute(cells: list[percent.Cell], name: str) -> list[list[dict]]:
    """What the code cells show when they run in turn, in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown, home = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells):
                if cell.kind == "code":
                    shown.append(run(cell.source, names, f"{name}, cell {number}"))
        finally:
            os.chdir(home)
    return shown


def run(source: str, names: dict[str, Any], place: str) -> list[dict]:
    """The outputs of one cell; what goes to the standard error (progress, TensorFlow's notes) is left out."""
    tree = ast.parse(source)
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, place, "exec"), names)
        value = (
            eval(compile(ast.Expression(last.value), place, "eval"), names)
            if last
            else None
        )
    text = printed.getvalue()
    outputs = (
        [
            {
                "name": "stdout",
                "output_type": "stream",
                "text": text.splitlines(keepends=True),
            }
        ]
        if text
        else []
    )
    if value is not None and not is_drawn(value):
        outputs.append(display({"text/plain": repr(value)} | html(value)))
    return outputs + [display({"image/png": picture}) for picture in figures()]


def is_drawn(value: Any) -> bool:
    """Whether a value is a part of a figure, or a list of some: the figure is shown."""
    first = value[0] if isinstance(value, list) and value else value
    return type(first).__module__.startswith("matplotlib")


def display(data: dict[str, str]) -> dict:
    """An output that is shown."""
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def html(value: Any) -> dict[str, str]:
    """The representation of a value for notebooks, where it has one."""
    made = value._repr_html_() if hasattr(value, "_repr_html_") else None
    return {"text/html": made} if made else {}


def figures() -> list[str]:
    """The open figures as PNG of few colours in base 64; they are closed."""
    import matplotlib.pyplot as plt
    from PIL import Image

    found = []
    for number in plt.get_fignums():
        drawn, small = io.BytesIO(), io.BytesIO()
        plt.figure(number).savefig(
            drawn, dpi=DPI, bbox_inches="tight", facecolor="white"
        )
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(
            small, "PNG", optimize=True
        )
        found.append(base64.b64encode(small.getvalue()).decode())
    plt.close("all")
    return found


def thumbnail(cells: list[percent.Cell], shown: list[list[dict]]) -> Any:
    """The left of the first picture of the cell with the tag "thumbnail", or of the first picture of all."""
    from PIL import Image, ImageOps

    code = [cell for cell in cells if cell.kind == "code"]
    order = sorted(
        range(len(code)), key=lambda place: "thumbnail" not in code[place].tags
    )
    pictures = [
        part["data"]["image/png"]
        for place in order
        for part in shown[place]
        if "image/png" in part.get("data", {})
    ]
    if not pictures:  # was not executed
        return Image.new("L", THUMBNAIL, 240)
    image = Image.open(io.BytesIO(base64.b64decode(pictures[0]))).convert("RGB")
    return ImageOps.fit(image, THUMBNAIL, centering=(0.0, 0.5)).quantize(COLOURS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="names of notebooks, all of them without"
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="run nothing: new text, and no outputs where code is new",
    )
    os.environ.setdefault("MPLBACKEND", "Agg")
    options = parser.parse_args()
    sys.exit(main(options.names, run_nothing=options.text))
