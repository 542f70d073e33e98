"""Quality for time: test errors and log densities after given seconds of training, our models and
the peers.
"""

from __future__ import annotations

__all__ = ["PART", "add_arguments"]

import argparse
from collections.abc import Sequence

from ...harness.machine import training_clock
from ...harness.metrics import METRICS
from ...harness.pictures import Figure, Panel, Series
from ...harness.records import times_up_to
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.training import installed, missing
from .runs import Run, cell, pieces, settings_of, trained

TASKS = ("kin40k", "protein", "elevators")
MODELS = (
    "neighbours-30",
    "neighbours-30-auto",
    "data-300",
    "data-500",
    "coupled-300",
    "coupled-500",
    "orthogonal-300+1000",
    "orthogonal-300+4000",
    "hybrid-300+1000",
    "decoupled-300+1000",
    "gpflow-300",
    "gpflow-500",
    "sgpr-500",
    "trees-1000",
    "gpytorch-300",
    "gpytorch-300+700",
    "gpjax-300",
    "vecchia-20",
    "vnngp-32",
    "lightgbm-5000",
)
_SHOWN = {
    "rmse": METRICS["rmse"].label,
    "log_density": METRICS["log_density"].label,
    "coverage": "share in 95 % intervals",
}
"""The panels of a task."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budgets", nargs="+", type=float, default=[60.0, 180.0], help="seconds: of training"
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return pieces(options, TASKS, installed(options.models or MODELS))


def _measure(options: argparse.Namespace, task: str, split: int, model: str) -> list[Run]:
    """Train one model, once for each budget where its step sizes fall towards the end of its
    time.
    """
    settings = settings_of(options, options.budgets, "seconds")
    with training_clock():
        return [trained(options, settings, times_up_to(options.budgets), task, split, model)]


def _section(runs: Sequence[Run], options: argparse.Namespace) -> Section:
    """A table and two panels for each split of a task."""
    groups: dict[str, list[Run]] = {}
    for one in runs:
        title = one.task if len(options.splits) == 1 else f"{one.task}, split {one.split}"
        groups.setdefault(f"{title}: seconds of training", []).append(one)
    tables = [_table(title, group, options.budgets) for title, group in groups.items()]
    notes = [
        (
            "Standardised with training statistics. Log density: mean over test rows, larger is"
            " better."
        ),
        (
            "Seconds are those of the processor with `--threads 1`, else wall-clock, without"
            " compilation, k-means and evaluation. All models start at the same kernel, noise and"
            " inducing points, and learn all of them. Best of a column in bold. Coverage: the share"
            " of test outputs within intervals of 95 %."
        ),
        (
            "`fit` lets its step sizes fall over the last fifth of the time it is given, and"
            " GPflow's SVGP is trained likewise, so that each budget is a run of its own (points)."
            " Other peers keep their step sizes, and are evaluated in between."
        ),
        (
            "`data`: the mean on all training rows, whose last solve may take longer. `sgpr`:"
            " L-BFGS, evaluated when each budget has passed. `trees`, `lightgbm`: gradient-boosted"
            " trees until their own stop; their log density is that of a Gaussian with the variance"
            " of the residuals on a tenth of the training rows that was held out."
        ),
        (
            "`neighbours`: nearest-neighbour GPs with the start of `build`, `-auto` with a chosen"
            " kernel; their seconds are those of everything, compilation included. `vecchia`:"
            " GPBoost's, until its own stop. `vnngp`: GPyTorch's, without the seconds of its search"
            " for neighbours."
        ),
        *(
            f"Left out: {reason}"
            for reason in map(missing, ("gpytorch", "gpjax", "gpboost", "lightgbm"))
            if reason and not options.models
        ),
    ]
    panels = [
        Panel(
            title,
            "training time (s)",
            label,
            [s for one in group for s in _series(one, name)],
            "x",
        )
        for title, group in groups.items()
        for name, label in _SHOWN.items()
    ]
    caption = "Accuracy and calibration against seconds of training; peers dashed."
    figure = Figure("regression_seconds", caption, panels, columns=len(_SHOWN))
    return Section(tables, [figure], notes)


def _table(title: str, here: Sequence[Run], budgets: Sequence[float]) -> Table:
    header = ["model", "library", "ms per step"]
    columns: list[list[str]] = []
    for budget in budgets:
        for name in ("mae", "rmse", "log_density", "elbo"):
            values = [one.at(budget).metrics.get(name, float("nan")) for one in here]
            header.append(f"{name} {budget:g} s")
            best = METRICS[name].best(values)
            columns.append([cell(name, value, value == best) for value in values])
        header.append(f"coverage {budget:g} s")
        columns.append(
            [cell("coverage", one.at(budget).metrics.get("coverage", float("nan"))) for one in here]
        )
        header.append(f"took {budget:g} s")
        columns.append([f"{one.at(budget).seconds:.1f}" for one in here])
    header.append("note")
    rows = [
        [
            one.model,
            one.library,
            f"{one.ms_per_step:.1f}",
            *(column[i] for column in columns),
            one.note,
        ]
        for i, one in enumerate(here)
    ]
    return Table(title, header, rows)


def _series(one: Run, metric: str) -> list[Series]:
    """The run of the largest budget as a line, and the ends of runs with smaller budgets as
    points.
    """
    largest = max(snapshot.target for snapshot in one.snapshots)
    ends = [s for s in one.snapshots if s.final and s.target < largest and s.metrics]
    line = [s for s in one.snapshots if not (s.final and s.target < largest) and s.metrics]
    values = [
        ([s.seconds for s in chosen], [s.metrics.get(metric, float("nan")) for s in chosen])
        for chosen in (line, ends)
    ]
    peer = one.library != "gpflow_decoupled"
    return [
        Series(one.model, *values[0], peer),
        *([Series(one.model, *values[1], alone=True)] if ends else []),
    ]


PART = Part(Run, _pieces, _measure, _section)
