"""Equal seconds: decoupled models against a coupled one whose step takes as long, after section 4 of Salimbeni et al. 2018.

There, 1500 + 3500 points took as long as 2000 coupled ones. Here the coupled size is measured first; all models then take the
number of steps that the first one takes in the seconds given. The clock is that of the processor, so that other work on
the machine does not count.
"""

from __future__ import annotations

__all__ = ["add_arguments", "measure", "section"]

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .data import Data, load
from .journal import Journal
from .measuring import interleave
from .metrics import METRICS
from .models import Settings, build, parse
from .ours import whole_step
from .records import Record
from .regression_runs import cell, records, settings_of, train
from .report import Figure, Panel, Section, Series, Table

_ROUNDS = 5
_SECONDS = 0.3
"""of one model in one round of timing"""
_RATIOS = (1.0, 1.4, 2.0)
"""Coupled sizes that are timed, over the covariance points of the first model; between them times are interpolated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clock-task", help="clock: default flights, or synthetic without --data")
    parser.add_argument(
        "--clock-models",
        nargs="+",
        default=["orthogonal-150+350", "hybrid-150+350-adam", "decoupled-150+350-adam"],
        help="clock: the coupled size is fitted to the first",
    )
    parser.add_argument("--clock-seconds", type=float, default=150.0, help="clock: of the processor, for each model")


def measure(options: argparse.Namespace, folder: Path, report: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Time steps, size the coupled model, then train all for as many steps."""
    task = options.clock_task or ("flights" if options.data else "synthetic")
    first = options.clock_models[0]
    fixed = settings_of(options, [options.clock_seconds], "processor seconds")
    journal = Journal(folder, "regression_clock", fixed._asdict(), options.resume)
    split = options.splits[0]

    def time_steps(*_: Any) -> dict[str, Any]:
        return _sized(first, load(task, split, options.data), fixed)

    (sized,) = journal.collect([(task, split, "sizes", first)], time_steps, lambda _: None)
    steps = max(10, round(1e3 * options.clock_seconds / sized["ms"]))
    targets = sorted({max(1, round(share * steps)) for share in np.geomspace(0.05, 1.0, 6)})
    settings = settings_of(options, [steps], "steps")
    models = [first, f"coupled-{sized['coupled']}", *options.clock_models[1:]]
    pieces = [(task, split, model) for model in models]
    journal.collect(pieces, partial(train, options, settings, targets), report)


def _sized(name: str, data: Data, settings: Settings) -> dict[str, Any]:
    """Processor milliseconds of a step of model `name`, and the coupled size whose step takes as long."""
    spec = parse(name)
    sizes = [round(ratio * spec.num_beta) for ratio in _RATIOS]
    names = [name, *(f"coupled-{size}" for size in sizes)]
    steps = {one: whole_step(build(parse(one), data, settings), data, settings, hold_sites=True) for one in names}
    times = interleave(steps, _ROUNDS, _SECONDS, time.process_time)
    ms = {one: float(np.median(values)) for one, values in times.items()}
    coupled = np.maximum.accumulate([ms[one] for one in names[1:]])
    size = np.exp(np.interp(np.log(ms[name]), np.log(coupled), np.log(sizes)))
    return {"ms": ms[name], "coupled": int(round(float(size))), "timed": ms}


def section(results: Sequence[dict[str, Any]], options: argparse.Namespace) -> Section:
    """Where each run ended, and three curves of each."""
    runs = records(results)
    rows = []
    best = {
        name: METRICS[name].best([_end(one, name) for one in runs]) for name in ("mae", "rmse", "log_density", "elbo")
    }
    for one in runs:
        last = one.snapshots[-1]
        values = [cell(name, _end(one, name), _end(one, name) == best[name]) for name in best]
        rows.append(
            [one.model, f"{one.processor_ms:.1f}", str(last.step), f"{last.cpu_seconds:.0f}", *values, one.note]
        )
    title = f"{runs[0].task}: equal seconds"
    table = Table(title, ["model", "ms a step", "steps", "s", *best, "note"], rows)
    panels = [
        Panel(title, "processor seconds", METRICS[name].label, [_series(one, name) for one in runs], log="x")
        for name in ("elbo", "log_density", "mae")
    ]
    note = (
        "Equal seconds: the coupled model has the size at which its step takes as long as that of the first; all take the "
        "same number of steps. Seconds are of the processor, without compilation, k-means and evaluation."
    )
    return Section([table], [Figure("regression_clock", "Quality against processor seconds.", panels)], [note])


def _end(one: Record, name: str) -> float:
    return one.snapshots[-1].metrics.get(name, float("nan"))


def _series(one: Record, name: str) -> Series:
    seen = [snapshot for snapshot in one.snapshots if snapshot.metrics]
    return Series(one.model, [s.cpu_seconds for s in seen], [s.metrics[name] for s in seen])
