"""One method with one step size: its bound and held-out log loss against seconds and passes, and
the report of several.
"""

from __future__ import annotations

__all__ = ["Method", "Run", "Started", "best_runs", "pieces", "random_batches", "section", "trace"]

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ...harness.machine import clock
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table

_FLOOR, _DEPTH = 1e-6, 40.0
"""The smallest distance in the picture, and how far below the optimum it reaches, in nats."""
_WORST = 1.0
"""The largest held-out log loss in the picture, nats per row; that of the prior is log 2."""
_END = 0.8
"""The end of a run is its last fifth."""
_TIE = 1e-3
"""Ends that are nearer than this, in nats, count as equal."""

Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Rows [B] and the number of the step -> whether it was taken."""


class Run(NamedTuple):
    """One method with one step size."""

    problem: str
    num_data: int
    method: str
    size: float
    """rho of the sites, or the learning rate of Adam"""
    batch: int
    """rows of a step"""
    samples: int | None
    """draws per row; None where expectations are exact"""
    steps: int
    compile_seconds: float
    seconds: list[float]
    """without compilation and without those of the bound, where the bound was computed"""
    passes: list[float]
    """rows read until then, over the number of rows"""
    bounds: list[float]
    """nats"""
    losses: list[float]
    """held-out log loss in nats per row, there; empty where no rows are held out"""
    note: str


class Started(NamedTuple):
    """A method before its first step."""

    model: gpflow.models.GPModel
    step: Step
    state: Sequence[tf.Variable]
    """what a step changes"""
    elbo: Callable[[], tf.Tensor]
    """the bound of all data, nats"""


class Method(NamedTuple):
    """How a method is called and started."""

    label: str
    batches: bool
    """whether its steps are on minibatches with draws"""
    adam: bool
    """whether its sizes are learning rates"""
    start: Callable[[Any, float, int | None, int], Started]
    """problem, size, draws per row (None: exact expectations) and seed -> a method that is ready"""


def trace(
    started: Started,
    batches: Iterator[np.ndarray],
    rows: int,
    limit: float,
    held_out: tuple[np.ndarray, np.ndarray] | None = None,
    pace: float = 1.1,
) -> dict[str, Any]:
    """Take steps for `limit` seconds, or until steps on all rows no longer change the bound.

    :param started: the method; its first step, which compiles, is taken back.
    :param rows: N.
    :param held_out: rows X [T, D], Y [T, 1] whose log loss is taken wherever the bound is.
    :param pace: the bound is computed whenever the seconds have grown by this factor.
    :return: the fields of a `Run` from `steps` on.
    """
    compiled, elbo = (
        tf.function(started.step, autograph=False),
        tf.function(started.elbo, autograph=False),
    )
    density = tf.function(lambda: started.model.predict_log_density(held_out), autograph=False)
    elbo()
    before, now = [variable.numpy() for variable in started.state], clock()
    compiled(tf.constant(next(batches)), tf.constant(0))
    compile_seconds = clock() - now
    for variable, value in zip(started.state, before):
        variable.assign(value)
    seconds, read, number, note = 0.0, 0, 0, "stopped at the limit"
    points: list[tuple[float, float, float]] = []
    losses: list[float] = []
    while seconds < limit:
        batch, now = next(batches), clock()
        ok = bool(compiled(tf.constant(batch), tf.constant(number)))
        seconds, read, number = seconds + clock() - now, read + len(batch), number + 1
        if ok and points and seconds < min(pace * points[-1][0], limit):
            continue
        points.append((seconds, read / rows, float(elbo()) if ok else np.nan))
        if held_out is not None:
            losses.append(-float(tf.reduce_mean(density())))
        if not np.isfinite(points[-1][2]):
            note = "diverged"
            break
        change = abs(points[-1][2] - points[-2][2]) if len(points) > 1 else np.inf
        if len(batch) == rows and change <= 1e-10 * abs(points[-1][2]):
            note = "converged"
            break
    columns = (list(column) for column in zip(*points))
    return {
        "steps": number,
        "compile_seconds": compile_seconds,
        **dict(zip(("seconds", "passes", "bounds"), columns)),
        "losses": losses,
        "note": note,
    }


def random_batches(rows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Minibatches without replacement, pass after pass; what is left over at the end of a pass is
    skipped.
    """
    generator = np.random.default_rng(seed)
    while True:
        order = (
            np.arange(rows, dtype=np.int32)
            if size == rows
            else generator.permutation(rows).astype(np.int32)
        )
        yield from (order[i : i + size] for i in range(0, rows - size + 1, size))


def best_runs(runs: list[Run]) -> list[Run]:
    """One run of each method: the highest at the end and, of those within 1e-3 nats of it, the
    first within a nat of that.

    The end is the mean bound over the last fifth of the seconds; runs that diverged come last.
    """
    best = []
    for name in dict.fromkeys(run.method for run in runs):
        mine = [run for run in runs if run.method == name]
        highest = max(_end(run) for run in mine)
        among = [run for run in mine if _end(run) >= highest - _TIE]
        best.append(min(among, key=lambda run: _first(run, highest - 1.0)))  # noqa: B023
    return best


def _end(run: Run) -> float:
    late = [bound for bound, at in zip(run.bounds, run.seconds) if at >= _END * run.seconds[-1]]
    return float(np.mean(late)) if np.all(np.isfinite(run.bounds)) else -np.inf


def pieces(methods: Mapping[str, Method], options: argparse.Namespace) -> list[tuple]:
    """Method and step size; conjugate computation on all rows has the size 1 alone."""
    found: list[tuple] = []
    for name, method in methods.items():
        sizes = [1.0] if name == "cvi" else options.rates if method.adam else options.site_steps
        found += [(name, size) for size in sizes]
    return found


def section(
    name: str,
    start: str,
    methods: Mapping[str, Method],
    runs: list[Run],
    options: argparse.Namespace,
) -> Section:
    """A table of the best run of each method, and panels of bounds, distances from the optimum and
    log losses.

    :param name: of the picture.
    :param start: the q that all start from, in words.
    """
    first, best = runs[0], best_runs(runs)
    optimum = max(value for run in runs for value in run.bounds if np.isfinite(value))
    header = [
        "method",
        "step size",
        "tried",
        "steps",
        "ms per step",
        "1 pass: nats below",
        "10 passes",
        "end",
    ]
    header += [
        "s to within 1 nat",
        "to within 0.1",
        "to within 1 by any size",
        "compilation s",
        "stopped",
    ]
    header += ["held-out log loss: 1 pass", "10 passes", "end"] if first.losses else []
    title = (
        f"{first.problem}, N = {first.num_data}, minibatches of {options.batch_size},"
        f" {options.samples} draws: "
    )
    title += f"optimum {optimum:.4f} nats"
    panels = []
    for label, field in (("seconds", "seconds"), ("passes over the rows", "passes")):
        values, gaps, losses = [], [], []
        for run in best:
            shown = methods[run.method].label, getattr(run, field)
            dashed = methods[run.method].adam
            values.append(
                Series(*shown, [max(value, optimum - _DEPTH) for value in run.bounds], dashed)
            )
            gaps.append(
                Series(*shown, [max(optimum - value, _FLOOR) for value in run.bounds], dashed)
            )
            losses.append(Series(*shown, [min(loss, _WORST) for loss in run.losses], dashed))
        panels.append(
            Panel(f"{first.problem}, N = {first.num_data}", label, "bound (nats)", values, "x")
        )
        panels.append(
            Panel(f"N = {first.num_data}", label, "distance from the optimum (nats)", gaps, "xy")
        )
        if first.losses:
            panels.append(
                Panel(
                    f"N = {first.num_data}", label, "held-out log loss (nats per row)", losses, "x"
                )
            )
    caption = (
        "Bounds against seconds and passes: updates of sites (solid), Adam on a parametrised q"
        " (dashed)."
    )
    notes = [
        f"All start at {start}. Steps on minibatches have draws, those on all rows exact"
        " expectations. Of the step sizes that were tried the one with the highest mean bound over"
        " its last fifth is shown, the fastest of those within 1e-3 nats of it; one column is of"
        " the size that came first within 1 nat. Seconds are without compilation and bounds."
    ]
    rows = [
        _row(
            run,
            methods[run.method].label,
            [one for one in runs if one.method == run.method],
            optimum,
        )
        for run in best
    ]
    figure = Figure(name, caption, panels, columns=3 if first.losses else 2)
    return Section([Table(title, header, rows)], [figure], notes)


def _first(run: Run, least: float) -> float:
    """Seconds until the bound is that high for the first time."""
    return next((at for at, bound in zip(run.seconds, run.bounds) if bound >= least), np.inf)


def _row(run: Run, label: str, tried: list[Run], optimum: float) -> list[str]:
    gaps = optimum - np.asarray(run.bounds)

    def after(passes: float, values: Sequence[float] | np.ndarray = gaps) -> str:
        """The last of the values that were computed up to then."""
        places = np.flatnonzero(np.asarray(run.passes) <= passes + 1e-9)
        return f"{values[places[-1]]:.3g}" if len(places) else "-"

    def within(nats: float, some: list[Run]) -> str:
        least = min(_first(one, optimum - nats) for one in some)
        return f"{least:.3g}" if np.isfinite(least) else "-"

    return [
        label,
        f"{run.size:g}",
        " ".join(f"{one.size:g}" for one in tried),
        f"{run.steps:,}",
        f"{1e3 * run.seconds[-1] / run.steps:.2f}",
        after(1.0),
        after(10.0),
        "-" if not np.isfinite(_end(run)) else f"{optimum - _end(run):.3g}",
        within(1.0, [run]),
        within(0.1, [run]),
        within(1.0, tried),
        f"{run.compile_seconds:.1f}",
        run.note,
        *(
            [after(1.0, run.losses), after(10.0, run.losses), f"{run.losses[-1]:.4f}"]
            if run.losses
            else []
        ),
    ]
