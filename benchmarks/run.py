"""The one entry: `python -m benchmarks.run SUITE [options]`; `--help` lists suites, `tiny` runs all of them in minutes."""

from __future__ import annotations

__all__ = ["main"]

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

SUITES = (
    "speed",
    "quality",
    "memory",
    "convergence",
    "classification",
    "linear",
    "policies",
    "lagrangian",
    "affine",
    "topics",
    "sparse",
    "certificates",
)
TINY = (
    "speed --sizes 20 --batch-size 64 --rounds 2 --seconds 0.2 --tasks synthetic",
    "quality --tasks diabetes --models coupled-20 orthogonal-20+30 gpflow-20 --budgets 2 --batch-size 128",
    "memory --sizes 100 200 --num-beta 20 --batch-size 64 --steps 3",
    "convergence --num-data 150 --num-beta 10 --num-gamma 30 --iterations 20 --methods mixed-diagonal newton",
    "classification --tasks digits35 --num-data 120 --seconds 1 --repeats 1",
    "linear --tasks generated generated_wide --rows 20500 --columns 5 --seconds 15",
    "policies --problems 1 --num-data 20",
    "lagrangian --sizes 50 --starts 1 --num-data 40 --rounds 1",
    "affine --parts gain kernel routes hmc --models 1 --sizes 8 --weights 3 --splits 1 --training 10 --sites 6 --dimensions 3 "
    "--rounds 1 --processes 0 --gp-data 5 --chains 2 --draws 60 --no-jit",
    "topics --tasks generated --topics 6 --passes 10",
    "sparse --num-data 40 --points 4 --starts 1 --iterations 20 --methods vfe fitc --parts numbers added recovery",
    "certificates --sets 2 --sizes 20 --tasks cancer --num-data 100 --settings 2 --rows fixed",
)
"""Everything, at a size that finishes in a few minutes; `tests/benchmarks/test_tiny.py` runs it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, fix the number of threads before TensorFlow is imported, run the suite and write its report."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", default=os.environ.get("GPFLOW_DECOUPLED_DATA"), help="folder of NAME.npz files")
    shared.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="folder of the reports")
    shared.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    shared.add_argument("--seed", type=int, default=0)
    _set_environment(shared.parse_known_args(arguments)[0].threads)

    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    choices = parser.add_subparsers(dest="suite", required=True)
    for name in SUITES:
        module = import_module(f"benchmarks.{name}")
        module.add_arguments(choices.add_parser(name, parents=[shared], help=module.__doc__))
    choices.add_parser("tiny", parents=[shared], help="everything, in a few minutes")
    options = parser.parse_args(arguments)
    if options.suite == "tiny":
        for line in TINY:
            _run(parser, [*line.split(), "--output", str(options.output)])
    else:
        _run(parser, arguments)


def _run(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    options = parser.parse_args(arguments)
    command = "python -m benchmarks.run " + shlex.join(_without_folders(arguments))
    import_module(f"benchmarks.{options.suite}").run(options, command, options.output)
    print(f"{options.suite}: wrote {options.output / options.suite}.md", flush=True)


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """The arguments without --output, and of --data the last name: a report names no place on a machine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--output")
    parser.add_argument("--data", type=lambda folder: Path(folder).name)
    folders, rest = parser.parse_known_args(arguments)
    return rest + (["--data", folders.data] if folders.data else [])


def _set_environment(threads: int | None) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threads:
        # read by TensorFlow when it starts; inherited by the processes of the memory suite
        os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(threads)
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)  # NumPy's, SciPy's


if __name__ == "__main__":
    main()
