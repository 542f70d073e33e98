"""Suites by name, their options, and the command that a report names."""

from __future__ import annotations

__all__ = ["SUITES", "execute", "parse"]

import argparse
import os
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

SUITES = {
    "ci": "every suite on embedded data, in minutes",
    "steps": "milliseconds and memory of a training step, and how they scale",
    "startup": "seconds to the import and to the first training step",
    "regression": "test errors and log densities for seconds of training",
    "convergence": "gap to the optimum at fixed hyperparameters",
    "classification": "Table 2 of the orthogonal paper: accuracy, log loss, average ranks",
    "full_gp": "full-GP classification: seconds to the best bound",
    "glm": "Bayesian logistic regression: seconds and memory to the optimum",
    "policies": "what becomes of negative precisions",
    "lagrangian": "decoupled variational Gaussian inference",
    "affine": "skewed and heavy-tailed posteriors",
    "topics": "topic models on held-out words",
    "sparse": "VFE, FITC and DTC on one regression",
    "certificates": "PAC-Bayes certificates beside held-out errors",
}
"""Name, which is that of a module here, and what it measures."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the suite that is named; sets the number of threads, before the suite imports TensorFlow."""
    suite = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    suite.add_argument("--suite", choices=list(SUITES))
    suite.add_argument("--threads", type=int)
    known = suite.parse_known_args(arguments)[0]
    _set_environment(known.threads)
    listing = "\n".join(f"  {name:13s} {what}" for name, what in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"With --suite NAME --help: the options of that suite.\n\nsuites:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_shared(parser)
    if known.suite:
        import_module(f"benchmarks.{known.suite}").add_arguments(parser)
    return parser.parse_args(arguments)


def execute(arguments: Sequence[str]) -> Path:
    """Run a suite, say in its report how, and return the path of its page."""
    options = parse(arguments)
    command = "python -m benchmarks " + shlex.join(_without_places(arguments))
    import_module(f"benchmarks.{options.suite}").run(options, command, options.out)
    return options.out / f"{options.suite}.html"


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=["run"])
    parser.add_argument("--suite", required=True, choices=list(SUITES), metavar="NAME")
    parser.add_argument("--data", default=os.environ.get("GPFLOW_DECOUPLED_DATA"), help="folder of NAME.npz files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of the reports")
    parser.add_argument("--threads", type=int, help="of TensorFlow and NumPy; default: all cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run left in the folder")
    parser.add_argument("--open", action="store_true", help="show the report in a browser")


def _without_places(arguments: Sequence[str]) -> list[str]:
    """Without what does not change results, and of --data the last name: a report names no place on a machine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out")
    parser.add_argument("--data", type=lambda folder: Path(folder).name)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--open", action="store_true")
    places, rest = parser.parse_known_args(arguments)
    return rest + (["--data", places.data] if places.data else [])


def _set_environment(threads: int | None) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if threads:
        # read by TensorFlow when it starts; inherited by processes that a suite starts
        os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(threads)
        os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)  # NumPy's, SciPy's
