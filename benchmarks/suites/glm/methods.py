"""The methods of the linear suite, each with the trace of its bound: conjugate computation and
L-BFGS.
"""

from __future__ import annotations

__all__ = ["METHODS", "Trace", "solve"]

import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from gpflow_decoupled.optimizers import ConjugateComputation, sweep

from ...harness.machine import clock
from ...harness.measuring import peak_megabytes
from .problems import Problem

METHODS = ("conjugate computation", "L-BFGS")
_BLOCK = 8192
_JITTER = 1e-10
"""Jitter on K of GPflow's `VGP`; at GPflow's default its optimum would be a different one."""


class Trace(NamedTuple):
    """One method on one task."""

    task: str
    method: str
    num_data: int
    num_weights: int
    seconds: list[float]
    """after each step whose bound is known, without compilation"""
    elbo: list[float]
    compile_seconds: float
    peak_mb: float
    """peak resident memory of the process"""
    data_mb: float
    """peak less what the libraries take"""
    note: str

    def reached(self, goal: float) -> float | None:
        """Seconds until the bound is at least `goal`; None if it never is."""
        return next(
            (seconds for seconds, elbo in zip(self.seconds, self.elbo) if elbo >= goal), None
        )


def solve(problem: Problem, method: str, limit: float) -> Trace:
    """Run one method to the optimum, or until `limit` seconds."""
    warnings.filterwarnings("ignore", message=".* is constant")  # of a category that no row has
    tf.linalg.cholesky(tf.eye(2)).numpy()  # the libraries are loaded
    base = peak_megabytes()
    primal = problem.num_columns + 1 <= problem.num_data
    if method == "L-BFGS":
        seconds, elbo, compiled, note = _l_bfgs(problem, primal, limit)
    else:
        seconds, elbo, compiled, note = (_sweep if primal else _sites)(problem)
    peak = peak_megabytes()
    weights = problem.num_columns + 1
    return Trace(
        problem.name,
        method,
        problem.num_data,
        weights,
        seconds,
        elbo,
        compiled,
        peak,
        peak - base,
        note,
    )


def _sweep(problem: Problem) -> tuple[list[float], list[float], float, str]:
    """Conjugate computation on the weights, in blocks of rows from the disk."""
    spent: list[list[float]] = []  # on each block of each pass

    def source() -> Iterator[tuple[np.ndarray, np.ndarray]]:
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
    note = f"{len(spent)} passes, {result.reason}"
    return seconds, result.history["elbo"].tolist(), share * compiled, note


def _sites(problem: Problem) -> tuple[list[float], list[float], float, str]:
    """Conjugate computation on the observations."""
    start = clock()
    model, rule = problem.model(), ConjugateComputation()
    probe, seed = rule.compiled_probe(model), tf.zeros([2], tf.int32)
    probe(tf.convert_to_tensor(model.basis.nu), tf.convert_to_tensor(model.basis.tau), seed)
    rule.compiled_probe = lambda _: probe  # type: ignore[method-assign]
    compiled, wall, cpu = clock() - start, time.perf_counter(), clock()
    result = rule.run(model, tolerance=1e-16)
    share = (clock() - cpu) / (time.perf_counter() - wall)
    seconds = [float(share * one) for one in result.history["seconds"]]
    return (
        seconds,
        result.history["elbo"].tolist(),
        compiled,
        f"{result.steps} steps, {result.reason}",
    )


def _l_bfgs(
    problem: Problem, primal: bool, limit: float
) -> tuple[list[float], list[float], float, str]:
    """SciPy's L-BFGS on the whitened (q_mu, q_sqrt) with gradients by TensorFlow; all data are in
    memory.
    """
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
            return 1e10, np.zeros_like(x)  # makes the line search take a shorter step
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
    chol = np.linalg.cholesky(
        ours.kernel(ours.data[0]).numpy() + _JITTER * np.eye(problem.num_data)
    )
    root = np.linalg.cholesky(np.linalg.inv(np.eye(problem.num_data) + chol.T @ chol))
    model.q_sqrt.assign(root[None])
    return model
