"""Every suite on embedded data, in minutes, and one page of what came out; the tests run it."""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
import re
import time
from pathlib import Path

from tqdm import tqdm

from .command_line import SUITES, execute
from .report import Report, Table, write

PARTS = {
    "steps": "--sizes 20 --batch-size 64 --rounds 2 --seconds 0.05 --tasks synthetic --mean-points 100 200 --num-beta 20 "
    "--num-gamma 40 --num-data 1000 --steps 2 --dimensions L --points 2 --models coupled GPflow --processes 0",
    "startup": "--rounds 1 --size 10 --batch-size 64",
    "regression": "--parts table seconds --tasks diabetes --models coupled-20-adam gpflow-20 --sizes 20 30 25 --steps 60 "
    "--budgets 1 --batch-size 128",
    "convergence": "--num-data 150 --num-beta 10 --num-gamma 30 --iterations 20 --methods mixed-diagonal newton",
    "classification": "--steps 30 --sizes 10 20 15 --batch-size 100 --models orthogonal-10+20 gpflow-15-adam network logistic "
    "--network-seconds 0.6 --network-depths 2",
    "full_gp": "--tasks digits35 --num-data 120 --seconds 1 --repeats 1",
    "glm": "--tasks generated generated_wide --rows 20500 --columns 5 --seconds 2",
    "policies": "--problems 1 --num-data 20",
    "lagrangian": "--sizes 50 --starts 1 --variants curvature --num-data 40 --rounds 1",
    "affine": "--parts gain kernel routes hmc --models 1 --sizes 8 --weights 3 --splits 1 --training 10 --sites 6 "
    "--dimensions 3 --rounds 1 --processes 0 --gp-data 5 --chains 2 --draws 60 --no-jit",
    "topics": "--tasks generated --topics 6 --passes 10",
    "sparse": "--num-data 40 --points 4 --starts 1 --iterations 20 --methods vfe fitc --parts numbers added recovery",
    "certificates": "--sets 2 --sizes 20 --tasks cancer --num-data 100 --settings 2 --rows fixed",
}
"""Suite -> its options at a size of seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these suites")


def run(options: argparse.Namespace, command: str, folder: Path) -> dict[str, float]:
    """Run the suites one after the other, and write a page of all their reports; seconds a suite."""
    seconds: dict[str, float] = {}
    bar = tqdm(options.only, unit="suite", dynamic_ncols=True)
    for name in bar:
        bar.set_description(name)
        start = time.perf_counter()
        shared = ["--out", str(folder), "--seed", str(options.seed), *(["--resume"] if options.resume else [])]
        execute(["run", "--suite", name, *PARTS[name].split(), *shared])
        seconds[name] = time.perf_counter() - start
    rows = [[f"[{name}](#{name})", SUITES[name], f"{taken:.0f}"] for name, taken in seconds.items()]
    table = Table("What was run", ["suite", "what it measures", "seconds"], rows)
    notes = [
        "Sizes are those of a smoke test on a few hundred rows: they show that every suite runs and what its report "
        "looks like, not which method is best. Each section names the command that made it.",
    ]
    chapters = [_chapter(folder / f"{name}.md", name) for name in seconds]
    write(folder, Report("ci", "All benchmarks in small", command, seconds, [table], [], notes), chapters)
    return seconds


def _chapter(path: Path, name: str) -> str:
    """A report as part of a larger one: headings a level down, and the machine, which is the same for all, left out."""
    title, command, _, *rest = path.read_text().strip().split("\n\n")
    parts = [f'<a id="{name}"></a>', title, command, *rest]
    return "\n\n".join(re.sub(r"^(#+ )", r"#\1", part) for part in parts)
