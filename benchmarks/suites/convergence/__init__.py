"""The gap to the optimum at fixed hyperparameters, full batch, against iterations and seconds.

After Figure 2 of Salimbeni et al. (2018): one orthogonal basis, and so one optimum, for all
methods. They differ in the coordinates of the mean coefficients, in what updates them, and in
whether natural gradients update the rest of q.

- `problems`: two problems with fixed hyperparameters, and the optimum for Gaussian noise;
- `methods`: the methods, and their curves;
- here: the report, and the suite.
"""

from __future__ import annotations

__all__ = ["SUITE", "optima"]

import argparse
from collections.abc import Sequence
from itertools import product

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .methods import METHODS, OPTIMUM, Curve, measure

_GOALS = (10.0, 1.0, 0.1)
"""Gaps in nats whose iterations and seconds are in the tables."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gaussian", default="synthetic", help="task of the Gaussian panels")
    parser.add_argument(
        "--bernoulli", default="synthetic", help="task of the Bernoulli panels; labels are Y > 0"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--num-data", type=int, default=2000)
    parser.add_argument("--num-beta", type=int, default=50)
    parser.add_argument("--num-gamma", type=int, default=400)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--lengthscale", type=float, default=0.5)


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """The optimum, then every method, on both problems."""
    return list(product(("gaussian", "bernoulli"), [OPTIMUM, *options.methods]))


def optima(curves: Sequence[Curve]) -> dict[str, float]:
    """Problem -> its optimum in nats: the known one for Gaussian noise, else the best ELBO of all
    curves.
    """
    found = {}
    for known in (one for one in curves if one.label == OPTIMUM):
        others = (
            []
            if known.gaussian
            else [max(one.elbo) for one in curves if one.problem == known.problem]
        )
        found[known.problem] = max([known.elbo[-1], *others])
    return found


def _section(curves: list[Curve], _: argparse.Namespace) -> Section:
    """A table per problem, and a panel each against iterations and against seconds."""
    tables, panels = [], []
    for name, optimum in optima(curves).items():
        mine = [one for one in curves if one.problem == name and one.label != OPTIMUM]
        rows = [
            [
                one.label,
                *(_reach(one, optimum, goal) for goal in _GOALS),
                f"{one.gaps(optimum)[-1]:.2e}",
            ]
            for one in mine
        ]
        header = ["method", *(f"to within {goal:g} nats" for goal in _GOALS), "last gap (nats)"]
        tables.append(Table(f"{name}: optimum {optimum:.4f} nats", header, rows))
        for field in ("iterations", "seconds"):
            series = [_series(one, field, optimum) for one in mine]
            panels.append(Panel(name, field, "gap to the optimum (nats)", series, log="xy"))
    notes = [
        (
            "Full batch, kernel and likelihood fixed, the same start; compilation and evaluation do"
            " not count."
        ),
        (
            "Optimum: equation (D31) for Gaussian noise; else the best of L-BFGS (whitened) and of"
            " all curves."
        ),
    ]
    figure = Figure(
        "convergence", "Gap to the optimum at fixed hyperparameters.", panels, columns=2
    )
    return Section(tables, [figure], notes)


def _series(curve: Curve, field: str, optimum: float) -> Series:
    x, y = getattr(curve, field)[1:], curve.gaps(optimum)[1:]
    return Series(curve.label, x, y, dashed=curve.label.startswith("Adam"))


def _reach(curve: Curve, optimum: float, goal: float) -> str:
    for iteration, seconds, gap in zip(curve.iterations, curve.seconds, curve.gaps(optimum)):
        if gap <= goal:
            return f"{iteration} its, {seconds:.2f} s"
    return "not reached"


SUITE = Suite(
    "Convergence at fixed hyperparameters",
    {"convergence": Part(Curve, _pieces, measure, _section)},
    _add_arguments,
    selecting=("methods",),
)
