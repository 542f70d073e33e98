"""Decoupled variational Gaussian inference: cost of a gradient, Student-t noise from many starts,
held-out densities.

- `cost`: one gradient of the dual (V16) against one Cholesky factorisation of the kernel matrix;
- `starts`: a robust regression from random multipliers, with the terms of curvature (V20), with the
  paper's augmented term alone, with neither, and with either inner solver;
- `held_out`: counts, and regression with Laplace noise, all hyperparameters learned, against
`CVIGP` and GPflow's `VGP`."""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import cost, held_out, starts


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[500, 1000, 2000], help="N of the cost"
    )
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument(
        "--variants",
        nargs="+",
        default=list(starts.VARIANTS),
        choices=list(starts.VARIANTS),
        help="of the starts",
    )
    parser.add_argument(
        "--num-data", type=int, default=400, help="at most so many rows of a held-out task"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="of multipliers, then hyperparameters"
    )


SUITE = Suite(
    "Decoupled variational Gaussian inference",
    {"cost": cost.PART, "starts": starts.PART, "held-out": held_out.PART},
    _add_arguments,
    selecting=("sizes", "variants"),
)
