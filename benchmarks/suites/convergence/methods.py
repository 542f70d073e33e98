"""The methods of the convergence suite: each updates the mean coefficients and the rest of q in its
own way.
"""

from __future__ import annotations

__all__ = ["METHODS", "OPTIMUM", "Curve", "Method", "measure"]

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import NaturalGradient

from .problems import Problem, collapsed_elbo, make_problem

_DATA = tuple[tf.Tensor, tf.Tensor]


class Method(NamedTuple):
    """How the mean coefficients, and q(f(beta)), are updated."""

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
OPTIMUM = "optimum"
"""The piece of work that is no method, and the label of its row."""
_LEARNING_RATE = 0.03
"""Step size of Adam."""


class Curve(NamedTuple):
    """The trace of a method on a problem, or the optimum of the problem as a trace of one point."""

    problem: str
    gaussian: bool
    """whether the noise is Gaussian, so that the optimum is known"""
    label: str
    iterations: list[int]
    seconds: list[float]
    elbo: list[float]

    def gaps(self, optimum: float) -> list[float]:
        """Distances to the optimum in nats, at least 1e-9 for a logarithmic axis."""
        return [max(optimum - value, 1e-9) for value in self.elbo]


def measure(options: argparse.Namespace, kind: str, name: str) -> list[Curve]:
    """The optimum of a problem, or a method's curve."""
    problem = make_problem(kind, options)
    if name != OPTIMUM:
        return [_trace(METHODS[name], problem, options.iterations)]
    optimum = collapsed_elbo(problem) if problem.gaussian else _polished(problem)
    return [Curve(problem.name, problem.gaussian, OPTIMUM, [0], [0.0], [optimum])]


def _trace(method: Method, problem: Problem, iterations: int, points: int = 40) -> Curve:
    """The ELBO after about `points` numbers of iterations, spread geometrically, until it no longer
    changes.

    Evaluation of the ELBO does not count as training.
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
            break  # the curve is flat from here
    return Curve(
        problem.name, problem.gaussian, method.label, [0, *checks][: len(values)], seconds, values
    )


def _tensors(problem: Problem) -> _DATA:
    return tf.constant(problem.X), tf.constant(problem.Y)


def _model(problem: Problem, scaling: str) -> ODVGP:
    kernel, likelihood = problem.kernel, problem.likelihood
    num_data = len(problem.X)
    model = ODVGP(
        kernel, likelihood, problem.gamma, problem.beta, num_data=num_data, mean_scaling=scaling
    )
    model.basis.refresh(kernel)
    return model


def _step(method: Method, model: ODVGP, data: _DATA) -> Callable[[], None]:
    """One iteration: q(f(beta)) by a natural gradient or Adam, the coefficients as `method`
    says.
    """
    basis = model.basis
    gaussian = isinstance(model.likelihood, gpflow.likelihoods.Gaussian)
    natural = NaturalGradient(
        1.0 if gaussian else 0.5, mean=None if method.mean == "adam" else method.mean
    )
    adam = tf_keras.optimizers.Adam(_LEARNING_RATE)
    trained = [basis.a_gamma] if method.natural else [basis.a_gamma, basis.q_mu, basis.q_sqrt]
    variables = [parameter.unconstrained_variable for parameter in trained]

    def step() -> None:
        if method.natural:
            natural.minimize(model, data)
        if method.mean == "adam":
            adam.minimize(lambda: model.training_loss(data), variables)

    return step


def _polished(problem: Problem) -> float:
    """The ELBO that L-BFGS reaches in whitened coordinates."""
    model, data = _model(problem, "whitened"), _tensors(problem)
    parameters = (model.basis.a_gamma, model.basis.q_mu, model.basis.q_sqrt)
    variables = [parameter.unconstrained_variable for parameter in parameters]
    closure = model.training_loss_closure(data)
    gpflow.optimizers.Scipy().minimize(closure, variables, options={"maxiter": 2000})
    return float(model.elbo(data))
