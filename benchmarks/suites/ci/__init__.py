"""Every other suite at a size of seconds, on embedded data, and one page of all their reports. The
tests run it.

`TINY` has the options of each suite at that size. A run with `--resume` goes on in the middle of a
suite, too."""

from __future__ import annotations

__all__ = ["SUITE", "TINY", "tiny"]

import argparse
import re
import time
from pathlib import Path
from typing import NamedTuple

from ...harness.command_line import execute
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .. import SUITES

TINY = {
    "rows": "--sizes 40 60 --series-sizes 60",
    "steps": (
        "--sizes 20 --batch-size 64 --rounds 2 --seconds 0.05 --tasks synthetic --mean-points 100"
        " 200 --num-beta 20 --num-gamma 40 --num-data 1000 --steps 2 --dimensions L --points 2"
        " --models coupled GPflow --processes 0 --product-rows 1500 --right-hand-sides 2"
        " --solve-rows 400 --rank 50 --small-sizes 10 --batches 32 --latents 1 2 --loop-steps 3"
    ),
    "regression": (
        "--parts table curves seconds intervals --tasks diabetes --models coupled-20-adam gpflow-20"
        " --sizes 20 30 25 --steps 60 --budgets 1 --batch-size 128 --learned-points 10"
        " --learned-seconds 1 --more-points 30 --near-neighbours 20"
    ),
    "classification": (
        "--steps 100 --sizes 10 20 15 --batch-size 100 --models orthogonal-10+20 gpflow-15-adam"
        " network logistic --network-seconds 0.6 --network-depths 2"
    ),
    "full_gp": "--tasks digits35 --num-data 120 --seconds 1 --repeats 1",
    "labels": "--sizes 20 --methods build scikit-learn",
    "rivals": (
        "--num-data 60 --gp-data 8 --chains 2 --draws 150 --repeats 1 --no-jit --stochastic-seconds"
        " 0.5 --batch-size 20 --site-steps 0.1 --rates 0.03 --rows 2000 --columns 5"
    ),
    "glm": "--tasks generated generated_wide --rows 20500 --columns 5 --seconds 2",
    "lagrangian": "--sizes 50 --starts 1 --variants curvature --num-data 40 --rounds 1",
    "affine": (
        "--parts gain kernel routes hmc --models 1 --sizes 8 --weights 3 --splits 1 --training 10"
        " --sites 6 --dimensions 3 --rounds 1 --processes 0 --gp-data 5 --chains 2 --draws 60"
        " --no-jit"
    ),
    "evidence": (
        "--tasks diabetes --noises 0.3 --num-data 80 --num-points 8 --neighbours 5 --probes 2"
        " --learning-rows 30 --iterations 3 --evaluations 6 --climbs 2"
        " --ways exact tight rounds-diagonal solved-5"
    ),
    "sparse": "--num-data 40 --points 4 --starts 1 --iterations 20 --methods vfe fitc",
    "replicas": (
        "--processes 1 2 --sizes 20 --mean-points 30 --rows 64 128 --repeats 1 --megabytes 8"
        " --data-rows 300 --round-rows 20 40"
    ),
}
"""Suite -> its options at a size of seconds."""


class Ran(NamedTuple):
    """One suite at its tiny size."""

    suite: str
    seconds: float
    """wall-clock, report included"""


def tiny(name: str, folder: Path, seed: int = 0, resume: bool = False) -> list[str]:
    """The arguments of the command line that run suite `name` at its tiny size."""
    shared = ["--out", str(folder), "--seed", str(seed), *(["--resume"] if resume else [])]
    return ["run", "--suite", name, *TINY[name].split(), *shared]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", choices=list(TINY), default=list(TINY), help="these suites"
    )


def _measure(options: argparse.Namespace, name: str) -> list[Ran]:
    """Run one suite, which writes its own journal and report."""
    start = time.perf_counter()
    execute(tiny(name, options.out, options.seed, options.resume))
    return [Ran(name, time.perf_counter() - start)]


def _section(rows: list[Ran], options: argparse.Namespace) -> Section:
    """What was run, and the reports of all suites as chapters."""
    cells = [
        [f"[{row.suite}](#{row.suite})", SUITES[row.suite], f"{row.seconds:.0f}"] for row in rows
    ]
    note = (
        "Sizes are those of a smoke test on a few hundred rows: they show that every suite runs and"
        " what its report looks like, not which method is best. Each section names the command that"
        " made it."
    )
    chapters = [_chapter(options.out / f"{row.suite}.md", row.suite) for row in rows]
    return Section(
        [Table("What was run", ["suite", "what it measures", "seconds"], cells)],
        [],
        [note],
        chapters,
    )


def _chapter(path: Path, name: str) -> str:
    """A report as part of a larger one: headings are a level lower, and the machine, the same for
    all, is left out.
    """
    title, command, _, *rest = path.read_text().strip().split("\n\n")
    parts = [f'<a id="{name}"></a>', title, command, *rest]
    return "\n\n".join(re.sub(r"^(#+ )", r"#\1", part) for part in parts)


SUITE = Suite(
    "All benchmarks in small",
    {"ci": Part(Ran, lambda options: [(name,) for name in options.only], _measure, _section)},
    _add_arguments,
    selecting=("only",),
)
