"""Gap to the optimum at fixed hyperparameters, full batch, against iterations and seconds.

After Figure 2 of Salimbeni et al. 2018: one orthogonal basis and one optimum for all methods, which differ in
the coordinates of the mean coefficients, in what moves them, and in whether natural gradients move the rest.
"""

from __future__ import annotations

__all__ = ["METHODS", "Curve", "Method", "add_arguments", "run", "trace"]

import argparse
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from .journal import Journal, setting_of
from .problems import Problem, collapsed_elbo, make_problem
from .report import Figure, Panel, Report, Series, Table, write

_DATA = tuple[tf.Tensor, tf.Tensor]


class Method(NamedTuple):
    """How the mean coefficients, and q(f(beta)), are moved."""

    label: str
    scaling: str
    """coordinates of the coefficients"""
    mean: str
    """"adam" in these coordinates; "natural" or "newton" as in `NaturalGradient`"""
    natural: bool = True
    """natural gradients for q(f(beta)); otherwise Adam"""


METHODS = {
    "adam-raw": Method("Adam for all, raw", "none", "adam", natural=False),
    "adam-whitened": Method("Adam for all, whitened", "whitened", "adam", natural=False),
    "mixed-raw": Method("natural + Adam, raw", "none", "adam"),
    "mixed-diagonal": Method("natural + Adam, diagonal", "diagonal", "adam"),
    "mixed-whitened": Method("natural + Adam, whitened", "whitened", "adam"),
    "natural-diagonal": Method("natural, diagonal rule (16)", "diagonal", "natural"),
    "natural-whitened": Method("natural, exact (15a)", "whitened", "natural"),
    "newton": Method("natural + Newton-CG", "whitened", "newton"),
}
_OPTIMUM = "optimum"
"""The piece that is no method."""
_LEARNING_RATE = 0.03
"""of Adam"""


class Curve(NamedTuple):
    """The trace of a method on a problem."""

    problem: str
    label: str
    iterations: list[int]
    seconds: list[float]
    elbo: list[float]

    def gaps(self, optimum: float) -> list[float]:
        """Distances to the optimum, in nats; at least 1e-9, for a logarithmic axis."""
        return [max(optimum - value, 1e-9) for value in self.elbo]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gaussian", default="synthetic", help="task of the Gaussian panels")
    parser.add_argument("--bernoulli", default="synthetic", help="task of the Bernoulli panels; labels are Y > 0")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--num-data", type=int, default=2000)
    parser.add_argument("--num-beta", type=int, default=50)
    parser.add_argument("--num-gamma", type=int, default=400)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--lengthscale", type=float, default=0.5)


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Trace every method on both problems and write the report."""
    return Journal(folder, "convergence", setting_of(options, "methods"), options.resume).collect(
        list(product(("gaussian", "bernoulli"), [_OPTIMUM, *options.methods])),
        lambda kind, name: _piece(make_problem(kind, options), name, options.iterations),
        lambda found: _write(found, command, folder),
    )


def _piece(problem: Problem, name: str, iterations: int) -> dict[str, Any]:
    """The optimum of a problem, or a method's curve."""
    if name == _OPTIMUM:
        optimum = collapsed_elbo(problem) if problem.gaussian else _polished(problem)
        return {"problem": problem.name, "gaussian": problem.gaussian, _OPTIMUM: optimum}
    return trace(METHODS[name], problem, iterations)._asdict()


def trace(method: Method, problem: Problem, iterations: int, points: int = 40) -> Curve:
    """The ELBO after about `points` numbers of iterations, spread geometrically, until it stands still.

    Its evaluation is off the clock.
    """
    model, data = _model(problem, method.scaling), _tensors(problem)
    step = tf.function(_step(method, model, data), autograph=False)
    elbo = tf.function(lambda: model.elbo(data), autograph=False)
    state = [(variable, variable.numpy()) for variable in model.variables]
    step()  # traces
    for variable, value in state:
        variable.assign(value)
    checks = sorted({int(n) for n in np.geomspace(1, iterations, points)})
    seconds, values, done = [0.0], [float(elbo())], 0
    for check in checks:
        start = time.perf_counter()
        for _ in range(check - done):
            step()
        seconds.append(seconds[-1] + time.perf_counter() - start)
        values.append(float(elbo()))
        done = check
        if len(values) > 10 and abs(values[-1] - values[-2]) < 1e-9 * abs(values[-1]):
            break  # there is nothing left to show
    return Curve(problem.name, method.label, [0, *checks][: len(values)], seconds, values)


def _tensors(problem: Problem) -> _DATA:
    return tf.constant(problem.X), tf.constant(problem.Y)


def _model(problem: Problem, scaling: str) -> gpflow.models.GPModel:
    from gpflow_decoupled.models import ODVGP

    kernel, likelihood = problem.kernel, problem.likelihood
    num_data = len(problem.X)
    model = ODVGP(kernel, likelihood, problem.gamma, problem.beta, num_data=num_data, mean_scaling=scaling)
    model.basis.refresh(kernel)
    return model


def _step(method: Method, model: Any, data: _DATA) -> Callable[[], None]:
    """One iteration: q(f(beta)) by a natural gradient or Adam, the coefficients as `method` says."""
    from gpflow_decoupled.optimizers import NaturalGradient

    basis = model.basis
    gaussian = isinstance(model.likelihood, gpflow.likelihoods.Gaussian)
    natural = NaturalGradient(1.0 if gaussian else 0.5, mean=None if method.mean == "adam" else method.mean)
    adam = tf_keras.optimizers.Adam(_LEARNING_RATE)
    moved = [basis.a_gamma] if method.natural else [basis.a_gamma, basis.q_mu, basis.q_sqrt]
    variables = [parameter.unconstrained_variable for parameter in moved]

    def step() -> None:
        if method.natural:
            natural.minimize(model, data)
        if method.mean == "adam":
            adam.minimize(lambda: model.training_loss(data), variables)

    return step


def _polished(problem: Problem) -> float:
    """The ELBO that L-BFGS reaches in whitened coordinates."""
    model, data = _model(problem, "whitened"), _tensors(problem)
    moved = (model.basis.a_gamma, model.basis.q_mu, model.basis.q_sqrt)
    variables = [parameter.unconstrained_variable for parameter in moved]
    closure = model.training_loss_closure(data)
    gpflow.optimizers.Scipy().minimize(closure, variables, options={"maxiter": 2000})
    return float(model.elbo(data))


def _write(found: list[dict[str, Any]], command: str, folder: Path) -> None:
    curves = [Curve(**one) for one in found if _OPTIMUM not in one]
    optima = {one["problem"]: _best(one, curves) for one in found if _OPTIMUM in one}
    tables, panels = [], []
    goals = (10.0, 1.0, 0.1)
    for name, optimum in optima.items():
        mine = [curve for curve in curves if curve.problem == name]
        rows = [
            [curve.label, *(_reach(curve, optimum, goal) for goal in goals), f"{curve.gaps(optimum)[-1]:.2e}"]
            for curve in mine
        ]
        header = ["method", *(f"to within {goal:g} nats" for goal in goals), "last gap (nats)"]
        tables.append(Table(f"{name}: optimum {optimum:.4f} nats", header, rows))
        for field in ("iterations", "seconds"):
            series = [_series(curve, field, optimum) for curve in mine]
            panels.append(Panel(name, field, "gap to the optimum (nats)", series, log="xy"))
    notes = [
        "Full batch, kernel and likelihood fixed, the same start; compilation and evaluation off the clock.",
        "Optimum: equation (D31) for Gaussian noise; else the best of L-BFGS (whitened) and of all curves.",
    ]
    figure = Figure("convergence", "Gap to the optimum at fixed hyperparameters.", panels, columns=2)
    data = {"optima": optima, "curves": [curve._asdict() for curve in curves]}
    title = "Convergence at fixed hyperparameters"
    write(folder, Report("convergence", title, command, data, tables, [figure], notes))


def _best(one: dict[str, Any], curves: list[Curve]) -> float:
    """The optimum where it is known, else the best ELBO of all."""
    ends = [] if one["gaussian"] else [max(curve.elbo) for curve in curves if curve.problem == one["problem"]]
    return max([one[_OPTIMUM], *ends])


def _series(curve: Curve, field: str, optimum: float) -> Series:
    x, y = getattr(curve, field)[1:], curve.gaps(optimum)[1:]
    return Series(curve.label, x, y, dashed=curve.label.startswith("Adam"))


def _reach(curve: Curve, optimum: float, goal: float) -> str:
    for iteration, seconds, gap in zip(curve.iterations, curve.seconds, curve.gaps(optimum)):
        if gap <= goal:
            return f"{iteration} its, {seconds:.2f} s"
    return "not reached"
