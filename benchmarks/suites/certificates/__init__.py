"""PAC-Bayes certificates of GP classifiers beside their true held-out errors, and how often a
certificate fails.

- `coverage`: resampled data sets of a problem with known risk;
- `errors`: real data under priors that are fixed beforehand, chosen by certificate from a grid,
  learned on a split of the data, or learned on the same data, which certifies nothing;
- `priors`: the models of `errors`, each under its prior.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from ..full_gp.problems import TASKS
from . import coverage, errors, priors


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=list(TASKS),
        help="default: USPS with --data, and the embedded breast cancer",
    )
    parser.add_argument("--num-data", type=int, help="at most so many rows of a task")
    parser.add_argument(
        "--rows",
        nargs="*",
        default=list(errors.ROWS),
        choices=list(errors.ROWS),
        help="of the part errors, beside the grid",
    )
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument(
        "--sets", type=int, default=200, help="resampled data sets of the part coverage"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[60, 250, 1000], help="of resampled data sets"
    )
    parser.add_argument(
        "--settings", type=int, default=priors.NUM_SETTINGS, help="at most so many of the grid"
    )
    parser.add_argument("--steps", type=int, default=100, help="where hyperparameters are learned")


SUITE = Suite(
    "PAC-Bayes certificates",
    {"coverage": coverage.PART, "errors": errors.PART},
    _add_arguments,
    selecting=("tasks", "sizes"),
)
