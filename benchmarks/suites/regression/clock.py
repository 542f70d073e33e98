"""Equal seconds: decoupled models against a coupled one whose step takes as long, after section 4
of Salimbeni et al. (2018).

There, 1500 + 3500 points took as long as 2000 coupled ones. Here the size of the coupled model is
measured first. All models then take as many steps as the first one takes in the given seconds.
Seconds are those of the processor, so that other work on the machine does not count."""

from __future__ import annotations

__all__ = ["PART", "add_arguments", "section"]

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...harness.data import Data
from ...harness.measuring import interleave
from ...harness.metrics import METRICS
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.models import build, parse
from ...libraries.ours import whole_step
from .runs import Run, cell, regression_data, settings_of, trained

_COUPLED = "coupled"
"""The piece whose model is sized by the measurement of the first."""
_ROUNDS = 5
_SECONDS = 0.3
"""Length of the timing of one model in one round."""
_RATIOS = (1.0, 1.4, 2.0)
"""Sizes of the coupled models that are timed, as multiples of the covariance points of the first
model; between them times are interpolated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clock-task", help="clock: default flights, or synthetic without --data")
    parser.add_argument(
        "--clock-models",
        nargs="+",
        default=["orthogonal-150+350", "hybrid-150+350-adam", "decoupled-150+350-adam"],
        help="clock: the coupled model is as large as takes as long as the first of these",
    )
    parser.add_argument(
        "--clock-seconds", type=float, default=150.0, help="clock: processor seconds of each model"
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """The first model, a coupled one whose size is not known yet, and the other models."""
    task, first, *others = (
        options.clock_task or ("flights" if options.data else "synthetic"),
        *options.clock_models,
    )
    return [(task, options.splits[0], model) for model in (first, _COUPLED, *others)]


def _measure(
    options: argparse.Namespace, task: str, split: int, model: str, earlier: Sequence[Run]
) -> list[Run]:
    """Train one model for the steps that the first has seconds for; with the first, time steps and
    size the coupled model.
    """
    first = options.clock_models[0]
    timed = (
        earlier[0].timed
        if earlier
        else _timed(first, regression_data(task, split, options.data), options)
    )
    steps = max(10, round(1e3 * options.clock_seconds / timed[first]))
    targets = sorted({max(1, round(share * steps)) for share in np.geomspace(0.05, 1.0, 6)})
    name = f"coupled-{_coupled_size(timed)}" if model == _COUPLED else model
    run = trained(options, settings_of(options, [steps], "steps"), targets, task, split, name)
    return [replace(run, timed={} if earlier else timed)]


def _timed(name: str, data: Data, options: argparse.Namespace) -> dict[str, float]:
    """Processor milliseconds of a step of model `name`, which comes first, and of coupled models of
    several sizes.
    """
    settings = settings_of(options, [], "steps")
    names = [name, *(f"coupled-{round(ratio * parse(name).num_beta)}" for ratio in _RATIOS)]
    steps = {
        one: whole_step(build(parse(one), data, settings), data, settings, hold_sites=True)
        for one in names
    }
    times = interleave(steps, _ROUNDS, _SECONDS, time.process_time)
    return {one: float(np.median(values)) for one, values in times.items()}


def _coupled_size(timed: dict[str, float]) -> int:
    """The size at which a coupled model's step takes as long as that of the first model, by log-log
    interpolation.
    """
    (_, ms), *coupled = timed.items()
    sizes = [parse(name).num_beta for name, _ in coupled]
    times = np.maximum.accumulate([one for _, one in coupled])
    return round(float(np.exp(np.interp(np.log(ms), np.log(times), np.log(sizes)))))


def section(runs: Sequence[Run], _: argparse.Namespace) -> Section:
    """Where each run ended, and three curves of each."""
    rows = []
    best = {
        name: METRICS[name].best([_end(one, name) for one in runs])
        for name in ("mae", "rmse", "log_density", "elbo")
    }
    for one in runs:
        last = one.snapshots[-1]
        values = [cell(name, _end(one, name), _end(one, name) == best[name]) for name in best]
        rows.append(
            [
                one.model,
                f"{one.processor_ms:.1f}",
                str(last.step),
                f"{last.cpu_seconds:.0f}",
                *values,
                one.note,
            ]
        )
    title = f"{runs[0].task}: equal seconds"
    table = Table(title, ["model", "ms per step", "steps", "s", *best, "note"], rows)
    panels = [
        Panel(
            title,
            "processor seconds",
            METRICS[name].label,
            [_series(one, name) for one in runs],
            log="x",
        )
        for name in ("elbo", "log_density", "mae")
    ]
    note = (
        "Equal seconds: the coupled model has the size at which its step takes as long as that of"
        " the first model, and all models take the same number of steps. Seconds are of the"
        " processor, without compilation, k-means and evaluation."
    )
    return Section(
        [table], [Figure("regression_clock", "Quality against processor seconds.", panels)], [note]
    )


def _end(one: Run, name: str) -> float:
    return one.snapshots[-1].metrics.get(name, float("nan"))


def _series(one: Run, name: str) -> Series:
    seen = [snapshot for snapshot in one.snapshots if snapshot.metrics]
    return Series(one.model, [s.cpu_seconds for s in seen], [s.metrics[name] for s in seen])


PART = Part(Run, _pieces, _measure, section, uses_earlier=True)
