"""Quality for time: test RMSE and log density after given seconds of training, our models and the peers."""

from __future__ import annotations

__all__ = ["TASKS", "add_arguments", "run"]

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import gpytorch_peer
from .data import Data, load
from .metrics import METRICS
from .models import Settings, Spec, parse, precision
from .ours import train_ours
from .peers import train_gpflow
from .records import Record, times_up_to
from .report import Figure, Panel, Report, Series, Table, write

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
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", help=f"default: {TASKS}; without --data {EMBEDDED_TASKS}")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="FAMILY-M or FAMILY-M+MEAN_POINTS")
    parser.add_argument("--budgets", nargs="+", type=float, default=[60.0, 180.0], help="seconds of training")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=0.03, help="of Adam, ours and the peers'")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--float32", action="store_true", help="our models in float32; GPflow stays in float64")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Record]:
    """Train every (task, model) once to the largest budget; write the report after each: nothing is lost."""
    dtype = "float32" if options.float32 else "float64"
    settings = Settings(
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        seed=options.seed,
        budgets=tuple(options.budgets),
        dtype=dtype,
    )
    records: list[Record] = []
    for task in options.tasks or (TASKS if options.data else EMBEDDED_TASKS):
        data = load(task, options.split, options.data)
        for spec in map(parse, options.models):
            if spec.library == "gpytorch" and not gpytorch_peer.AVAILABLE:
                continue
            records.append(_train(spec, data, times_up_to(options.budgets), settings))
            print(_line(records[-1]), flush=True)
            _write(records, options.budgets, command, folder)
    return records


def _train(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    if spec.library == "gpflow_decoupled" and settings.dtype != "float64":
        with precision(settings.dtype):
            return train_ours(spec, data.cast(settings.dtype), targets, settings)
    train = {"gpflow": train_gpflow, "gpytorch": gpytorch_peer.train_gpytorch}.get(spec.library, train_ours)
    return train(spec, data, targets, settings)


def _line(one: Record) -> str:
    last = one.snapshots[-1]
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in last.metrics.items())
    return f"{one.task:12s} {one.model:22s} {last.seconds:6.1f} s {last.step:6d} steps  {numbers}"


def _write(records: Sequence[Record], budgets: Sequence[float], command: str, folder: Path) -> None:
    tables = [_table(records, task, budgets) for task in dict.fromkeys(one.task for one in records)]
    notes = [
        "Standardised with training statistics. Log density: mean over test rows, larger is better.",
        "Seconds are wall-clock, without compilation, k-means and evaluation. All models start at the same "
        "kernel, noise and inducing points, and learn all of them. Best of a column in bold.",
        "`fit` lets its step sizes fall towards the end of the time it is given, so each budget is a run of "
        "its own (points); the peers keep theirs and are evaluated on the way.",
    ]
    data = [asdict(one) for one in records]
    write(folder, Report("regression", "Quality for time", command, data, tables, [_figure(records)], notes))


def _table(records: Sequence[Record], task: str, budgets: Sequence[float]) -> Table:
    here = [one for one in records if one.task == task]
    header = ["model", "library", "ms a step"]
    columns: list[list[str]] = []
    for budget in budgets:
        for name, metric in ((name, METRICS[name]) for name in ("mae", "rmse", "log_density", "elbo")):
            values = [one.at(budget).metrics.get(name, float("nan")) for one in here]
            header.append(f"{name} {budget:g} s")
            best = metric.best(values)
            columns.append([_number(name, value, value == best) for value in values])
    header.append("note")
    rows = [
        [one.model, one.library, f"{one.ms_per_step:.1f}", *(column[i] for column in columns), one.note]
        for i, one in enumerate(here)
    ]
    return Table(task, header, rows)


def _number(name: str, value: float, bold: bool) -> str:
    text = "" if value != value else f"{value:.0f}" if name == "elbo" else f"{value:.4f}"
    return f"**{text}**" if bold else text


def _figure(records: Sequence[Record]) -> Figure:
    panels = []
    for task in dict.fromkeys(one.task for one in records):
        for name in ("rmse", "log_density"):
            series = [line for one in records if one.task == task for line in _series(one, name)]
            panels.append(Panel(task, "training time (s)", METRICS[name].label, series, log="x"))
    return Figure("regression", "Metric against seconds of training; peers dashed.", panels, columns=2)


def _series(one: Record, metric: str) -> list[Series]:
    """The run of the largest budget as a line; the ends of runs that were given less as points."""
    largest = max(snapshot.target for snapshot in one.snapshots)
    ends = [s for s in one.snapshots if s.final and s.target < largest]
    line = [s for s in one.snapshots if s not in ends and s.metrics]
    values = [([s.seconds for s in chosen], [s.metrics[metric] for s in chosen]) for chosen in (line, ends)]
    peer = one.library != "gpflow_decoupled"
    return [
        Series(one.model, *values[0], peer),
        *([Series(one.model, *values[1], alone=True)] if ends else []),
    ]
