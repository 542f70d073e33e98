"""Affine-independent inference: what it gains over the best Gaussian, what it costs, and how near
it is to the truth.

- `toys`: three problems of two weights with log Z by quadrature, after Figures 1 to 3 of Challis &
  Barber (2012);
- `gain`: logistic regression after their Figure 4; `kernel`: their table of section 4.3;
- `seconds`: time beside the Gaussian KL; `routes`: three ways to compute the integrals; `cost`:
  time and memory of these against D, N and K;
- `hmc`: marginals of Gaussian processes against long runs of NUTS.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from . import cost, gain, hmc, kernel, routes, seconds, toys


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", type=int, default=6, help="of two weights")
    parser.add_argument(
        "--models", type=int, default=15, help="of each number of observations of the gain"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[5, 10, 20, 40, 70, 100], help="observations"
    )
    parser.add_argument("--weights", type=int, default=10, help="D of the gain")
    parser.add_argument(
        "--tasks", nargs="+", choices=list(kernel.PAPER), help="of kernel regression; default: all"
    )
    parser.add_argument(
        "--splits", type=int, default=10, help="of each data set of kernel regression"
    )
    parser.add_argument(
        "--training", type=int, default=100, help="rows of kernel regression, where they are drawn"
    )
    parser.add_argument(
        "--noise", type=float, default=0.0, help="on the diagonal of the kernel matrix"
    )
    parser.add_argument("--sites", type=int, default=64, help="N of the routes")
    parser.add_argument("--dimensions", type=int, default=16, help="D of the routes")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of which the median time is reported"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="0: measure no memory, which takes processes"
    )
    parser.add_argument("--cost-steps", type=int, default=4, help="points on each axis of the cost")
    parser.add_argument(
        "--gp-data", type=int, default=50, help="rows of the binary set that NUTS is run on"
    )
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=6000, help="of each chain")
    parser.add_argument(
        "--no-jit", action="store_true", help="NUTS without XLA: compiles faster, runs slower"
    )


SUITE = Suite(
    "Affine-independent KL inference",
    {
        "toys": toys.PART,
        "gain": gain.PART,
        "kernel": kernel.PART,
        "seconds": seconds.PART,
        "routes": routes.PART,
        "cost": cost.PART,
        "hmc": hmc.PART,
    },
    _add_arguments,
    selecting=("problems", "models", "sizes", "tasks", "splits", "cost_steps"),
)
