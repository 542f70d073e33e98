"""Bayesian logistic regression: seconds and memory to the optimum of the bound, against L-BFGS on the same bound.

Every method on every task has a process of its own, and starts from the same q. With no more weights than observations:
`sweep` in blocks, and L-BFGS on (q_mu, q_sqrt) of the same model with all data in memory. With more: `CVIGP` with the
linear kernel, and L-BFGS on (q_mu, q_sqrt) of GPflow's `VGP`.
"""

from __future__ import annotations

__all__ = ["METHODS", "Trace", "add_arguments", "measure", "run"]

import argparse
import tempfile
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from .clock import clock
from .glm_problems import DEFAULTS, TASKS, Problem, store
from .journal import Journal, setting_of
from .measuring import in_a_process, peak_megabytes
from .report import Figure, Panel, Report, Series, Table, write

METHODS = ("conjugate computation", "L-BFGS")
GOALS = {"1e-3 nats": lambda optimum: 1e-3, "relative 1e-6": lambda optimum: 1e-6 * abs(optimum)}
_BLOCK = 8192
_JITTER = 1e-10
"""Of GPflow's `VGP`, which has it on K; at GPflow's default its optimum would be another."""


class Trace(NamedTuple):
    """One method on one task."""

    task: str
    method: str
    num_data: int
    num_weights: int
    seconds: list[float]
    """after each step whose bound is known; compilation is apart"""
    elbo: list[float]
    compile_seconds: float
    peak_mb: float
    """peak resident memory of the process"""
    data_mb: float
    """peak over what the libraries take"""
    note: str

    def reached(self, goal: float) -> float | None:
        """Seconds until the bound is at least `goal`."""
        return next((seconds for seconds, elbo in zip(self.seconds, self.elbo) if elbo >= goal), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), help="default: three, others where --data is given")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument(
        "--rows", type=int, default=581_012, help="of the generated task; the default is covtype's size"
    )
    parser.add_argument("--columns", type=int, default=54, help="of the generated task")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of L-BFGS")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Trace]:
    """Measure every method on every task in a process of its own, and write the report as they come."""
    setting = setting_of(options, "tasks", "methods")
    found = Journal(folder, "glm", setting, options.resume).collect(
        list(product(options.tasks or DEFAULTS[bool(options.data)], options.methods)),
        lambda task, method: _measured(task, method, options)._asdict(),
        lambda rows: _write([Trace(**row) for row in rows], command, folder),
    )
    return [Trace(**row) for row in found]


def _measured(task: str, method: str, options: argparse.Namespace) -> Trace:
    with tempfile.TemporaryDirectory() as place:
        problem = store(task, Path(place), options.data, options.rows, options.columns, options.seed)
        return in_a_process(measure, problem, method, options.seconds)


def measure(problem: Problem, method: str, limit: float) -> Trace:
    """Run one method to the optimum, or until `limit` seconds."""
    warnings.filterwarnings("ignore", message=".* is constant")  # a category that no row has
    tf.linalg.cholesky(tf.eye(2)).numpy()  # the libraries are loaded
    base = peak_megabytes()
    primal = problem.num_columns + 1 <= problem.num_data
    if method == "L-BFGS":
        seconds, elbo, compiled, note = _l_bfgs(problem, primal, limit)
    else:
        seconds, elbo, compiled, note = (_sweep if primal else _sites)(problem)
    peak = peak_megabytes()
    weights = problem.num_columns + 1
    return Trace(problem.name, method, problem.num_data, weights, seconds, elbo, compiled, peak, peak - base, note)


def _sweep(problem: Problem) -> tuple[list[float], list[float], float, str]:
    from gpflow_decoupled.optimizers import sweep

    spent: list[list[float]] = []  # on each block of each pass

    def source() -> Any:
        spent.append([])
        for block in problem.blocks(_BLOCK):
            start = time.perf_counter()
            yield block
            spent[-1].append(time.perf_counter() - start)

    model = problem.model(first=_BLOCK)
    wall, cpu = time.perf_counter(), clock()
    result = sweep(model, source, tolerance=1e-9)
    share = (clock() - cpu) / (time.perf_counter() - wall)
    # the first block of each shape was traced
    compiled = sum(spent[0][place] - spent[1][place] for place in {0, len(spent[0]) - 1})
    seconds = [float(share * (one - compiled)) for one in result.history["seconds"]]
    note = f"{len(spent)} passes, {result.stop_reason}"
    return seconds, result.history["elbo"].tolist(), share * compiled, note


def _sites(problem: Problem) -> tuple[list[float], list[float], float, str]:
    from gpflow_decoupled.optimizers import ConjugateComputation

    start = clock()
    model, rule = problem.model(), ConjugateComputation()
    probe, seed = rule.compiled_probe(model), tf.zeros([2], tf.int32)
    probe(tf.convert_to_tensor(model.basis.nu), tf.convert_to_tensor(model.basis.tau), seed)
    rule.compiled_probe = lambda _: probe  # type: ignore[method-assign]
    compiled, wall, cpu = clock() - start, time.perf_counter(), clock()
    result = rule.run(model, tolerance=1e-16)
    share = (clock() - cpu) / (time.perf_counter() - wall)
    seconds = [float(share * one) for one in result.history["seconds"]]
    return seconds, result.history["elbo"].tolist(), compiled, f"{result.steps} steps, {result.stop_reason}"


def _l_bfgs(problem: Problem, primal: bool, limit: float) -> tuple[list[float], list[float], float, str]:
    """SciPy's L-BFGS on (q_mu, q_sqrt), whitened, with gradients by TensorFlow; all data in memory."""
    start = clock()
    if primal:
        model = problem.model()
        loss = model.training_loss_closure(problem.rows(0, problem.num_data), compile=False)
        q = model.basis
    else:
        gpflow.config.set_default_jitter(_JITTER)
        q = model = _vgp(problem)
        loss = model.training_loss
    variables = [q.q_mu.unconstrained_variable, q.q_sqrt.unconstrained_variable]
    scipy = gpflow.optimizers.Scipy()
    compiled = scipy.eval_func(loss, variables, tf_fun_args={}, compile=True)
    first = scipy.initial_parameters(variables)
    compiled(first)
    compile_seconds, began = clock() - start, clock()
    seconds: list[float] = []
    values: list[float] = []

    def traced(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = compiled(x)
        if not np.isfinite(value):
            return 1e10, np.zeros_like(x)  # the line search turns back
        if not values or -value > values[-1]:
            seconds.append(clock() - began)
            values.append(-float(value))
        if clock() - began > limit:
            raise TimeoutError
        return value, slope

    settings = {"maxiter": 1_000_000, "maxfun": 1_000_000, "ftol": 1e-15, "gtol": 1e-8}
    try:
        found = minimize(traced, first, jac=True, method="L-BFGS-B", options=settings)
        note = f"{found.nfev} evaluations, {str(found.message).lower()}"
    except TimeoutError:
        note = f"stopped after {limit:g} s"
    return seconds, values, compile_seconds, note


def _vgp(problem: Problem) -> gpflow.models.VGP:
    """GPflow's full GP at the q that ours starts from: the prior times sites of precision 1."""
    ours = problem.model()
    model = gpflow.models.VGP(ours.data, ours.kernel, ours.likelihood)
    chol = np.linalg.cholesky(ours.kernel(ours.data[0]).numpy() + _JITTER * np.eye(problem.num_data))
    root = np.linalg.cholesky(np.linalg.inv(np.eye(problem.num_data) + chol.T @ chol))
    model.q_sqrt.assign(root[None])
    return model


def _write(traces: list[Trace], command: str, folder: Path) -> None:
    tables, panels = [], []
    for name in dict.fromkeys(trace.task for trace in traces):
        mine = [trace for trace in traces if trace.task == name]
        optimum = max(max(trace.elbo) for trace in mine)
        rows = [
            [
                trace.method,
                *(_cell(trace.reached(optimum - gap(optimum))) for gap in GOALS.values()),
                f"{optimum - max(trace.elbo):.1e}",
                f"{trace.seconds[-1]:.2f}",
                f"{trace.compile_seconds:.1f}",
                f"{trace.peak_mb:.0f}",
                f"{trace.data_mb:.0f}",
                trace.note,
            ]
            for trace in mine
        ]
        header = ["method", *(f"s to {goal}" for goal in GOALS), "last gap (nats)", "s in all", "compilation s"]
        header += ["peak MB", "MB over the base", "end"]
        title = f"{name}: {mine[0].num_data:,} observations, {mine[0].num_weights:,} weights"
        tables.append(Table(f"{title}, optimum {optimum:.4f} nats", header, rows))
        panels.append(Panel(title, "seconds", "gap to the optimum (nats)", [_series(t, optimum) for t in mine], "xy"))
    notes = [
        "The bound of Bayesian logistic regression at a fixed Gaussian prior, by 20 nodes of quadrature for all methods.",
        "Optimum: the best bound that any method reached. Compilation is off the clock; with one thread the seconds are "
        "those of the processor. Base: peak memory of the process before it reads data.",
        "Generated: drawn from a logistic model, inputs like those of covtype, on disk; sweep reads them in blocks.",
    ]
    figure = Figure("glm", "Gap to the optimum.", panels, columns=3)
    data = [trace._asdict() for trace in traces]
    write(folder, Report("glm", "Bayesian logistic regression", command, data, tables, [figure], notes))


def _cell(seconds: float | None) -> str:
    return "not reached" if seconds is None else f"{seconds:.3g}"


def _series(trace: Trace, optimum: float) -> Series:
    gaps = [max(optimum - elbo, 1e-7) for elbo in trace.elbo]
    return Series(trace.method, [max(one, 1e-4) for one in trace.seconds], gaps, dashed=trace.method == "L-BFGS")
