"""Sparse approximations of one regression: what VFE, FITC and DTC do to noise variance, inducing
inputs and posterior.

The claims are those of Titsias (2009) and of Bauer, van der Wilk & Rasmussen (2016). Beside them
stand the orthogonal bound, and the uncollapsed bound by natural gradients on minibatches.

- `full`: the full GP; `numbers`: more and more inducing inputs; `added`: one more at every place;
  `recovery`: starts at the exact posterior; `optima`: random starts. They are the parts of the
  suite;
- `models`: the methods; `summaries`: what the parts share.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import added, full, numbers, optima, recovery
from .models import METHODS


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        choices=("snelson", "generated"),
        help="default: snelson with --data, else generated",
    )
    parser.add_argument("--num-data", type=int, help="at most so many rows")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument(
        "--points", nargs="+", type=int, default=[4, 6, 8, 10, 15, 20, 30], help="inducing inputs"
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=10,
        help="random starts of the part optima, and best of 3 elsewhere",
    )
    parser.add_argument("--iterations", type=int, default=1000, help="of L-BFGS")


SUITE = Suite(
    "Sparse approximations of one regression",
    {
        "exact": full.PART,
        "numbers": numbers.PART,
        "added": added.PART,
        "recovery": recovery.PART,
        "optima": optima.PART,
    },
    _add_arguments,
    selecting=("methods", "points"),
)
