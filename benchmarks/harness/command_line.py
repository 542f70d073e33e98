"""The command line: suites by name, their options, and the command that a report names."""

from __future__ import annotations

__all__ = ["execute", "parse"]

import argparse
import os
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suites import SUITES

if TYPE_CHECKING:
    from .runner import Suite


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the suite that is named.

    The number of threads is set here, before the suite is imported, because TensorFlow reads it
    when it starts."""
    suite = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    suite.add_argument("--suite", choices=list(SUITES))
    suite.add_argument("--threads", type=int)
    suite.add_argument("--gpjax-python")
    known = suite.parse_known_args(arguments)[0]
    _set_environment(known.threads, known.gpjax_python)
    listing = "\n".join(f"  {name:13s} {what}" for name, what in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"With --suite NAME --help: the options of that suite.\n\nsuites:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_shared(parser)
    if known.suite:
        from .runner import (
            add_arguments,
        )  # only now: it imports NumPy, which reads the number of threads

        add_arguments(_suite(known.suite), parser)
    return parser.parse_args(arguments)


def execute(arguments: Sequence[str]) -> Path:
    """Run a suite, say in its report how it was run, and return the path of its page."""
    options = parse(arguments)

    from .runner import run

    run(
        _suite(options.suite),
        options,
        "python -m benchmarks " + shlex.join(_without_places(arguments)),
        options.out,
    )
    return options.out / f"{options.suite}.html"


def _suite(name: str) -> Suite:
    """The suite of that name. It is imported only now, because it imports TensorFlow."""
    return import_module(f"benchmarks.suites.{name}").SUITE


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=["run"])
    parser.add_argument("--suite", required=True, choices=list(SUITES), metavar="NAME")
    parser.add_argument(
        "--data", default=os.environ.get("GPFLOW_DECOUPLED_DATA"), help="folder of NAME.npz files"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results"), help="folder of the reports"
    )
    parser.add_argument("--threads", type=int, help="of TensorFlow and NumPy; default: all cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--resume", action="store_true", help="keep what an interrupted run left in the folder"
    )
    parser.add_argument("--open", action="store_true", help="show the report in a browser")
    parser.add_argument(
        "--gpjax-python",
        help=(
            "Python of an environment that has GPJax; default: the environment variable"
            " GPJAX_PYTHON"
        ),
    )


def _without_places(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that do not change results; of the folder of data, its name is
    left.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out")
    parser.add_argument("--gpjax-python")
    parser.add_argument("--data", type=lambda folder: Path(folder).name)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--open", action="store_true")
    places, rest = parser.parse_known_args(arguments)
    return rest + (["--data", places.data] if places.data else [])


def _set_environment(threads: int | None, gpjax_python: str | None) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threads:
        # read by TensorFlow when it starts; inherited by processes that a suite starts
        os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(threads)
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(
            threads
        )  # NumPy's, SciPy's
    if gpjax_python:
        os.environ["GPJAX_PYTHON"] = gpjax_python
