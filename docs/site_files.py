"""What the site carries beside its pages: MathJax, and the notebooks to download."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

MATHJAX_PACKAGE = "sphinx-mathjax-offline"
MATHJAX = "mathjax/tex-chtml.js"
FONTS = "mathjax/output/chtml/fonts/woff-v2"


def copy_mathjax(app, failure: Exception | None) -> None:
    """Copy what a page with formulas loads, one script and its fonts, from the package that ships MathJax."""
    if failure is not None or app.builder.format != "html":
        return
    source = Path(importlib.util.find_spec(MATHJAX_PACKAGE).origin).parent / "static"
    target = Path(app.outdir) / "_static"
    (target / FONTS).mkdir(parents=True, exist_ok=True)
    for file in [source / MATHJAX, *(source / FONTS).iterdir()]:
        shutil.copyfile(file, target / file.relative_to(source))


def offer_download(app, page: str, source: list[str]) -> None:
    """Put a line with the notebook and its script, to download, below the heading of a notebook."""
    folder, _, name = page.rpartition("/")
    if folder != "notebooks":
        return
    notebook = json.loads(source[0])
    heading, _, text = "".join(notebook["cells"][0]["source"]).partition("\n")
    line = (
        f"{{download}}`{name}.ipynb` · {{download}}`{name}.py <../../notebooks/{name}.py>`, "
        "with the code of pictures and comparisons"
    )
    notebook["cells"][0]["source"] = f"{heading}\n\n{line}\n{text}".splitlines(
        keepends=True
    )
    source[0] = json.dumps(notebook)
