"""Bound against seconds and passes: sites, PG-SVI, and gradients of a parametrised q, on all rows or on minibatches.

All start at the prior. Steps on all rows have exact expectations; those on minibatches have draws, the same number for all
methods. Each method is run with several step sizes, and the one with the best end is shown.
"""

from __future__ import annotations

__all__ = ["METHODS", "PART", "Method", "Run", "Started", "best_runs", "trace"]

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

from ...harness.machine import clock
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ..full_gp.problems import Problem
from .gradients import VGPGradient
from .problems import labels
from .proximal import ProximalGradient

_FLOOR, _DEPTH = 1e-6, 40.0
"""The smallest distance in the picture, and how far below the optimum it reaches, in nats."""
_WORST = 1.0
"""The largest held-out log loss in the picture, nats per row; that of the prior is log 2."""
_PACE = 1.1
"""The bound is computed whenever the seconds have grown by this factor."""
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
    """A method at the prior, before its first step."""

    model: gpflow.models.GPModel
    step: Step
    state: Sequence[tf.Variable]
    """what a step changes"""


Start = Callable[[Problem, float, int | None, int], Started]
"""Problem, size, draws per row (None: exact expectations) and seed -> a method that is ready."""


class Method(NamedTuple):
    """How a method is called and started."""

    label: str
    batches: bool
    """whether its steps are on minibatches with draws"""
    adam: bool
    """whether its sizes are learning rates"""
    start: Start


def _conjugate(update: str) -> Start:
    def start(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
        model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        rule = ConjugateComputation(size, update=update, samples=samples, seed=seed)
        return Started(model, lambda rows, step: rule.minimize(model, rows, step).ok, model.basis.variables)

    return start


def _proximal(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
    model = CVIGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
    rule = ProximalGradient(model, size, samples=samples, seed=seed)
    return Started(model, lambda rows, step: rule.minimize(rows, step).ok, model.basis.variables)


def _gradient(estimator: str | None) -> Start:
    def start(problem: Problem, size: float, samples: int | None, seed: int) -> Started:
        model = gpflow.models.VGP((problem.X, problem.Y), problem.kernel(), problem.likelihood())
        rule = VGPGradient(model, estimator, samples=samples or 1, rate=size, seed=seed)
        rule.adam.build(rule.variables)

        def step(rows: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            rule.minimize(rows, number)
            return tf.constant(True)

        return Started(model, step, [*rule.variables, *rule.adam.variables])

    return start


METHODS = {
    "cvi": Method("CVI, all rows", False, False, _conjugate("local")),
    "pg-svi": Method("PG-SVI, all rows", False, False, _proximal),
    "vgp": Method("VGP, exact gradient, all rows", False, True, _gradient(None)),
    "cvi-local": Method("CVI, local (C20)", True, False, _conjugate("local")),
    "cvi-global": Method("CVI, global (C19)", True, False, _conjugate("global")),
    "pg-svi-batches": Method("PG-SVI (C65)", True, False, _proximal),
    "reparameterised": Method("VGP, reparameterised", True, True, _gradient("reparameterised")),
    "score-function": Method("VGP, score function", True, True, _gradient("score function")),
}
"""Name -> method, in the order of the report."""


def trace(
    started: Started,
    batches: Iterator[np.ndarray],
    rows: int,
    limit: float,
    held_out: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Take steps for `limit` seconds, or until steps on all rows no longer change the bound.

    :param started: the method; its first step, which compiles, is taken back.
    :param rows: N.
    :param held_out: rows X [T, D], Y [T, 1] whose log loss is taken wherever the bound is.
    :return: the fields of a `Run` from `steps` on.
    """
    compiled, elbo = tf.function(started.step, autograph=False), tf.function(started.model.elbo)
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
        if ok and points and seconds < min(_PACE * points[-1][0], limit):
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


def _batches(rows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Minibatches without replacement, pass after pass; what is left over at the end of a pass is skipped."""
    generator = np.random.default_rng(seed)
    while True:
        order = np.arange(rows, dtype=np.int32) if size == rows else generator.permutation(rows).astype(np.int32)
        yield from (order[i : i + size] for i in range(0, rows - size + 1, size))


def _pieces(options: argparse.Namespace) -> list[tuple]:
    pieces: list[tuple] = []
    for name, method in METHODS.items():
        sizes = [1.0] if name == "cvi" else options.rates if method.adam else options.site_steps
        pieces += [(name, size) for size in sizes]
    return pieces


def _measure(options: argparse.Namespace, name: str, size: float) -> list[Run]:
    problem, method = labels(options, options.num_data), METHODS[name]
    held_out = (problem.X[problem.test], problem.Y[problem.test]) if problem.test.any() else None
    problem = problem.training()
    rows = len(problem.X)
    batch, samples = (min(options.batch_size, rows), options.samples) if method.batches else (rows, None)
    started = method.start(problem, size, samples, options.seed)
    found = trace(started, _batches(rows, batch, options.seed), rows, options.stochastic_seconds, held_out)
    return [Run(problem.name, rows, name, size, batch, samples, **found)]


def best_runs(runs: list[Run]) -> list[Run]:
    """One run of each method: the highest at the end and, of those within 1e-3 nats of it, the first within a nat of that.

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


def _section(runs: list[Run], options: argparse.Namespace) -> Section:
    """A table of the best run of each method, and panels of bounds and of distances from the optimum."""
    first, best = runs[0], best_runs(runs)
    optimum = max(value for run in runs for value in run.bounds if np.isfinite(value))
    header = ["method", "step size", "tried", "steps", "ms per step", "1 pass: nats below", "10 passes", "end"]
    header += ["s to within 1 nat", "to within 0.1", "to within 1 by any size", "compilation s", "stopped"]
    header += ["held-out log loss: 1 pass", "10 passes", "end"] if first.losses else []
    title = f"{first.problem}, N = {first.num_data}, minibatches of {options.batch_size}, {options.samples} draws: "
    title += f"optimum {optimum:.4f} nats"
    panels = []
    for label, field in (("seconds", "seconds"), ("passes over the rows", "passes")):
        values, gaps, losses = [], [], []
        for run in best:
            shown = METHODS[run.method].label, getattr(run, field)
            dashed = METHODS[run.method].adam
            values.append(Series(*shown, [max(value, optimum - _DEPTH) for value in run.bounds], dashed))
            gaps.append(Series(*shown, [max(optimum - value, _FLOOR) for value in run.bounds], dashed))
            losses.append(Series(*shown, [min(loss, _WORST) for loss in run.losses], dashed))
        panels.append(Panel(f"{first.problem}, N = {first.num_data}", label, "bound (nats)", values, "x"))
        panels.append(Panel(f"N = {first.num_data}", label, "distance from the optimum (nats)", gaps, "xy"))
        if first.losses:
            panels.append(Panel(f"N = {first.num_data}", label, "held-out log loss (nats per row)", losses, "x"))
    caption = "Bounds against seconds and passes: updates of sites (solid), Adam on a parametrised q (dashed)."
    notes = [
        "All start at the prior. Steps on minibatches have draws, those on all rows exact expectations. Of the step sizes "
        "that were tried the one with the highest mean bound over its last fifth is shown, the fastest of those within 1e-3 "
        "nats of it; one column is of the size that came first within 1 nat. Seconds are without compilation and bounds."
    ]
    rows = [_row(run, [one for one in runs if one.method == run.method], optimum) for run in best]
    figure = Figure("rivals_stochastic", caption, panels, columns=3 if first.losses else 2)
    return Section([Table(title, header, rows)], [figure], notes)


def _first(run: Run, least: float) -> float:
    """Seconds until the bound is that high for the first time."""
    return next((at for at, bound in zip(run.seconds, run.bounds) if bound >= least), np.inf)


def _row(run: Run, tried: list[Run], optimum: float) -> list[str]:
    gaps = optimum - np.asarray(run.bounds)

    def after(passes: float, values: Sequence[float] | np.ndarray = gaps) -> str:
        """The last of the values that were computed up to then."""
        places = np.flatnonzero(np.asarray(run.passes) <= passes + 1e-9)
        return f"{values[places[-1]]:.3g}" if len(places) else "-"

    def within(nats: float, some: list[Run]) -> str:
        least = min(_first(one, optimum - nats) for one in some)
        return f"{least:.3g}" if np.isfinite(least) else "-"

    return [
        METHODS[run.method].label,
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
        *([after(1.0, run.losses), after(10.0, run.losses), f"{run.losses[-1]:.4f}"] if run.losses else []),
    ]


PART = Part(Run, _pieces, _measure, _section)
