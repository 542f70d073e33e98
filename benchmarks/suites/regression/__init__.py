"""Regression: Table 1 of the orthogonal paper in small, quality for time, and a comparison at equal
seconds.

- `table`: the models of Table 1 of Salimbeni et al. (2018) after equal numbers of steps;
- `seconds`: test errors and log densities after given seconds of training, our models and those of
  other libraries;
- `curves`: its Figure 2, each basis by natural gradients and by Adam, against steps and seconds;
- `clock`: decoupled models against a coupled one whose steps take as long;
- `intervals`: a mean on all data with more and more points of the covariance, or neighbours, at
  the kernel that few points learned;
- `runs`: what they share, one run of a model on a split.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import clock, curves, intervals, seconds, table


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs="+", help="default: those of each part; without --data embedded ones"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        help=(
            "FAMILY-M or FAMILY-M+MEAN_POINTS, -adam: all by Adam, -start: a start from the data,"
            " -auto: a kernel chosen for neighbours, -tight: the tighter bound"
        ),
    )
    parser.add_argument(
        "--splits",
        nargs="+",
        type=int,
        default=[0],
        help="those that a set does not have are left out",
    )
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument(
        "--learning-rate", type=float, default=0.03, help="of Adam, ours and the peers'"
    )
    parser.add_argument(
        "--natural-gradient",
        type=float,
        help="step size of natural gradients, ours and GPflow's; default: that of fit",
    )
    parser.add_argument(
        "--anneal",
        type=float,
        default=0.2,
        help="share of a run over which step sizes fall, ours and GPflow's",
    )
    parser.add_argument(
        "--float32", action="store_true", help="our models in float32; GPflow stays in float64"
    )
    for part in (table, seconds, clock, intervals):
        part.add_arguments(parser)


SUITE = Suite(
    "Regression",
    {
        "table": table.PART,
        "curves": curves.PART,
        "seconds": seconds.PART,
        "clock": clock.PART,
        "intervals": intervals.PART,
    },
    _add_arguments,
    selecting=("tasks", "models", "splits"),
)
