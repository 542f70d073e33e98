"""A robust regression with Student-t noise, solved from many random multipliers with several
settings of the Lagrangian.
"""

from __future__ import annotations

__all__ = ["PART", "VARIANTS"]

import argparse
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.models import LCLGP
from gpflow_decoupled.optimizers import LinearlyConstrainedLagrangian

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

VARIANTS: dict[str, dict[str, Any]] = {
    "curvature": {"max_outer": 200},
    "the paper's augmented term, Newton inside": {
        "max_outer": 30,
        "curvature": False,
        "augmented": True,
    },
    "neither, Newton inside": {"max_outer": 30, "curvature": False},
    "the paper's augmented term, L-BFGS-B inside": {
        "max_outer": 5,
        "curvature": False,
        "augmented": True,
        "inner": "lbfgs",
    },
    "curvature, subproblems alone": {"max_outer": 200, "accelerate": False},
}
"""Name -> options of the Lagrangian, for noise that is not log-concave."""


class End(NamedTuple):
    """How one run from random multipliers ended."""

    variant: str
    start: int
    stop_reason: str
    outer: int
    falls: int
    """outer iterations after which the bound was lower"""
    elbo: float


def _measure(options: argparse.Namespace, variant: str) -> list[End]:
    """A regression in which a tenth of the outputs have gross errors, from every start."""
    rng = np.random.default_rng(options.seed)
    X = np.sort(rng.uniform(0.0, 10.0, (40, 1)), axis=0)
    Y = np.sin(X) + 0.1 * rng.normal(size=X.shape)
    wrong = rng.permutation(40)[:4]
    Y[wrong] += rng.normal(0.0, 4.0, (4, 1))
    model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT(scale=0.1, df=3.0))
    rule = LinearlyConstrainedLagrangian(**VARIANTS[variant])
    prepared = rule.prepare(model)
    return [_from_a_start(rule, model, prepared, variant, start) for start in range(options.starts)]


def _from_a_start(
    rule: LinearlyConstrainedLagrangian, model: LCLGP, prepared: Any, variant: str, start: int
) -> End:
    loss, rng, shape = model.site_loss(), np.random.default_rng(start), model.data[1].shape
    model.basis.alpha.assign(loss.lower + rng.uniform(0.1, 0.9, shape) * (loss.upper - loss.lower))
    model.basis.lam.assign(rng.exponential(10.0, shape))
    first = float(model.elbo())
    try:
        result = rule.run(model, prepared=prepared)
    except (NumericalError, DataError) as error:
        return End(variant, start, type(error).__name__, 0, 0, first)
    bounds = result.history["elbo"]
    falls = int(np.sum(~(np.diff(bounds) >= -1e-6)))
    return End(variant, start, result.reason, len(bounds) - 1, falls, result.elbo)


def _section(rows: list[End], _: argparse.Namespace) -> Section:
    panel = Panel("Student-t, sorted", "starts", "nats below the best", _losses(rows), log="y")
    figure = Figure("lagrangian", "Bounds that runs from random multipliers end at.", [panel])
    return Section([_table(rows)], [figure], [])


def _table(rows: list[End]) -> Table:
    best = max(one.elbo for one in rows)
    cells = []
    for variant in dict.fromkeys(one.variant for one in rows):
        mine = [one for one in rows if one.variant == variant]
        reached = [one for one in mine if one.elbo > best - 1e-2]
        falls = sum(one.falls for one in mine)
        settled = sum(one.stop_reason == "converged" for one in mine)
        rising = sum(one.stop_reason == "outer iterations done" for one in mine)
        median = sorted(one.outer for one in mine)[len(mine) // 2]
        ends = sorted(one.elbo for one in mine)
        spread = f"{ends[0]:.2f}, {ends[len(ends) // 2]:.2f}, {ends[-1]:.2f}"
        counts = len(mine), settled, rising, median, len(reached), falls
        cells.append([variant, *map(str, counts), spread])
    header = ["terms", "starts", "converged", "out of outer iterations", "outer iterations, median"]
    header += [
        "within 0.01 nats of the best",
        "outer iterations with a lower bound",
        "ELBO: least, median, most",
    ]
    return Table(
        f"Student-t noise from random multipliers, best bound {best:.4f} nats", header, cells
    )


def _losses(rows: list[End]) -> list[Series]:
    best = max(one.elbo for one in rows)
    lines = []
    for variant in dict.fromkeys(one.variant for one in rows):
        losses = sorted(max(best - one.elbo, 1e-9) for one in rows if one.variant == variant)
        lines.append(Series(variant, range(1, len(losses) + 1), losses))
    return lines


PART = Part(End, lambda options: [(variant,) for variant in options.variants], _measure, _section)
