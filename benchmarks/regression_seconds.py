"""Quality for time: test errors and log density after given seconds of training, our models and the peers."""

from __future__ import annotations

__all__ = ["TASKS", "add_arguments", "measure", "section"]

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .journal import Journal
from .metrics import METRICS
from .records import Record, times_up_to
from .regression_runs import cell, installed, records, settings_of, train
from .report import Figure, Panel, Section, Series, Table

TASKS = ("kin40k", "protein", "elevators")
EMBEDDED_TASKS = ("synthetic", "diabetes")
MODELS = (
    "coupled-300",
    "coupled-500",
    "orthogonal-300+1000",
    "orthogonal-300+4000",
    "hybrid-300+1000",
    "decoupled-300+1000",
    "gpflow-300",
    "gpflow-500",
    "gpytorch-300",
    "gpytorch-300+700",
    "gpjax-300",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budgets", nargs="+", type=float, default=[60.0, 180.0], help="seconds: of training")


def measure(options: argparse.Namespace, folder: Path, report: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Train every (task, split, model) once for each budget."""
    settings = settings_of(options, options.budgets, "seconds")
    journal = Journal(folder, "regression_seconds", settings._asdict(), options.resume)
    tasks = options.tasks or (TASKS if options.data else EMBEDDED_TASKS)
    models = installed(options.models or MODELS)
    pieces = [(task, split, model) for task in tasks for split in options.splits for model in models]
    journal.collect(pieces, partial(train, options, settings, times_up_to(options.budgets)), report)


def section(results: Sequence[dict[str, Any]], options: argparse.Namespace) -> Section:
    """A table and two panels a split of a task."""
    groups: dict[str, list[Record]] = {}
    for result, record in zip(results, records(results)):
        title = record.task if len(options.splits) == 1 else f"{record.task}, split {result['split']}"
        groups.setdefault(f"{title}: seconds of training", []).append(record)
    tables = [_table(title, group, options.budgets) for title, group in groups.items()]
    notes = [
        "Standardised with training statistics. Log density: mean over test rows, larger is better.",
        "Seconds are wall-clock, without compilation, k-means and evaluation. All models start at the same "
        "kernel, noise and inducing points, and learn all of them. Best of a column in bold.",
        "`fit` lets its step sizes fall towards the end of the time it is given, so each budget is a run of "
        "its own (points); the peers keep theirs and are evaluated on the way.",
    ]
    panels = [
        Panel(title, "training time (s)", METRICS[name].label, [s for one in group for s in _series(one, name)], "x")
        for title, group in groups.items()
        for name in ("rmse", "log_density")
    ]
    caption = "Metric against seconds of training; peers dashed."
    return Section(tables, [Figure("regression_seconds", caption, panels, columns=2)], notes)


def _table(title: str, here: Sequence[Record], budgets: Sequence[float]) -> Table:
    header = ["model", "library", "ms a step"]
    columns: list[list[str]] = []
    for budget in budgets:
        for name in ("mae", "rmse", "log_density", "elbo"):
            values = [one.at(budget).metrics.get(name, float("nan")) for one in here]
            header.append(f"{name} {budget:g} s")
            best = METRICS[name].best(values)
            columns.append([cell(name, value, value == best) for value in values])
    header.append("note")
    rows = [
        [one.model, one.library, f"{one.ms_per_step:.1f}", *(column[i] for column in columns), one.note]
        for i, one in enumerate(here)
    ]
    return Table(title, header, rows)


def _series(one: Record, metric: str) -> list[Series]:
    """The run of the largest budget as a line; the ends of runs that were given less as points."""
    largest = max(snapshot.target for snapshot in one.snapshots)
    ends = [s for s in one.snapshots if s.final and s.target < largest and s.metrics]
    line = [s for s in one.snapshots if not (s.final and s.target < largest) and s.metrics]
    values = [([s.seconds for s in chosen], [s.metrics[metric] for s in chosen]) for chosen in (line, ends)]
    peer = one.library != "gpflow_decoupled"
    return [
        Series(one.model, *values[0], peer),
        *([Series(one.model, *values[1], alone=True)] if ends else []),
    ]
