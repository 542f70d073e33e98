"""Approximations of one full GP beside each other: conjugate computation, the Lagrangian,
Opper-Archambeau, EP, Laplace.

Kernel and likelihood are the same for all, and fixed. The first three maximise one bound and end at
one q(f); expectation propagation and Laplace end at others, and estimate the evidence.

- `problems`: labels of a data set, or counts of coal-mining disasters;
- `traces`: bound or estimate against seconds;
- `stochastic`: bound against seconds and passes, of conjugate computation on all rows and on
  minibatches, of PG-SVI (`proximal`) and of stochastic gradients of a parametrised q (`gradients`);
- `linear`: the same on the weights of a logistic regression with many rows (`weights`); `runs`:
  what the two share;
- `marginals`: means and standard deviations of f at the data against a long run of NUTS, and the
  estimates of the evidence against importance sampling.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse

from ...harness.runner import Suite
from ..glm.problems import TASKS
from . import linear, marginals, stochastic, traces


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        help=(
            "binary labels: a data set, or a task of full_gp; default: ionosphere, or breast cancer"
        ),
    )
    parser.add_argument("--num-data", type=int, default=700, help="rows that are timed, at most")
    parser.add_argument("--variance", type=float, default=10.0, help="of the kernel")
    parser.add_argument(
        "--repeats", type=int, default=3, help="fits of a method, of which the fastest counts"
    )
    parser.add_argument(
        "--stochastic-seconds", type=float, default=10.0, help="of each stochastic run"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="rows of a stochastic step")
    parser.add_argument(
        "--samples", type=int, default=10, help="draws per row of a stochastic step"
    )
    sizes = [0.5, 0.2, 0.05, 0.02, 0.005]
    parser.add_argument(
        "--site-steps",
        type=float,
        nargs="+",
        default=sizes,
        help="step sizes of sites that are tried",
    )
    rates = [0.1, 0.03, 0.01, 0.003, 0.001]
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=rates,
        help="learning rates of Adam that are tried",
    )
    parser.add_argument("--linear-task", choices=list(TASKS), default="generated", help="of linear")
    parser.add_argument(
        "--rows",
        type=int,
        default=581_012,
        help="of the generated task; the default is covtype's size",
    )
    parser.add_argument("--columns", type=int, default=54, help="of the generated task")
    parser.add_argument(
        "--gp-data", type=int, default=120, help="labels that are compared with NUTS"
    )
    parser.add_argument("--chains", type=int, default=4, help="of NUTS")
    parser.add_argument("--draws", type=int, default=4000, help="of each chain")
    parser.add_argument(
        "--no-jit", action="store_true", help="NUTS without XLA, which takes long to compile"
    )


SUITE = Suite(
    "Approximations of one full GP",
    {
        "traces": traces.PART,
        "stochastic": stochastic.PART,
        "linear": linear.PART,
        "marginals": marginals.PART,
    },
    _add_arguments,
)
