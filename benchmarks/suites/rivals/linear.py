"""Logistic regression: bound against seconds and passes of the methods of `stochastic`, on the
weights.

All start at the q of `CVIGLM`. Steps on all rows have exact expectations; those on minibatches have
draws, the same number for all methods: pairs of opposite signs for conjugate computation, as
`MonteCarlo` makes them, independent ones for the others. Each method is run with several step
sizes, and the one with the best end is shown."""

from __future__ import annotations

__all__ = ["METHODS", "PART", "Weighted", "weighted"]

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.covariances import Kuu

from gpflow_decoupled.models import BasisGP, MonteCarlo
from gpflow_decoupled.optimizers import NaturalGradient

from ...harness.report import Section
from ...harness.runner import Part
from ..glm.problems import Problem, store
from .gradients import VGPGradient, started_by_adam
from .runs import Method, Run, Started, pieces, random_batches, section, trace
from .weights import WeightsProximal

_TEST_SHARE, _MOST_TESTED = 0.1, 10_000
"""The share of the rows that is held out, and how many at most."""
_PACE = 1.3
"""The bound of all rows takes longer than hundreds of steps, and is computed when the seconds have
grown by this factor.
"""


class Weighted(NamedTuple):
    """Rows in memory, and the functions f = R v of weights v that are N(0, I) a priori."""

    problem: Problem
    """on disk; makes the model"""
    data: RegressionData
    """X [N, p - 1], Y [N, 1]"""
    root: tf.Tensor
    """R [N, p]: X and a column of ones, times the Cholesky factor of the prior covariance"""


Start = Callable[[Weighted, float, int | None, int], Started]


def weighted(problem: Problem, X: np.ndarray, Y: np.ndarray) -> Weighted:
    """The rows X [N, p - 1], Y [N, 1] of a problem, which makes models of as many."""
    problem = problem._replace(num_data=len(X))
    model = problem.model(first=1)
    chol = tf.linalg.cholesky(Kuu(model.inducing_variable, model.kernel))
    return Weighted(
        problem, (tf.constant(X), tf.constant(Y)), tf.matmul(np.hstack([X, np.ones_like(Y)]), chol)
    )


def _conjugate(weighted: Weighted, size: float, samples: int | None, seed: int) -> Started:
    model = weighted.problem.model()
    draws = None if samples is None else MonteCarlo(samples, seed)
    parts = {"mean_function": model.mean_function, "num_data": model.num_data}
    estimated = BasisGP(model.kernel, model.likelihood, model.basis, **parts, expectations=draws)
    rule = NaturalGradient(size)

    def step(rows: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        return rule.minimize(estimated, tuple(tf.gather(array, rows) for array in weighted.data)).ok

    state = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    return Started(
        model,
        step,
        [*state, *([] if draws is None else [draws.calls])],
        lambda: model.elbo(weighted.data),
    )


def _proximal(weighted: Weighted, size: float, samples: int | None, seed: int) -> Started:
    model = weighted.problem.model()
    rule = WeightsProximal(model, weighted.data, weighted.root, size, samples=samples, seed=seed)
    state = [model.q_mu.unconstrained_variable, model.q_sqrt.unconstrained_variable]
    return Started(model, rule.minimize, state, lambda: model.elbo(weighted.data))


def _gradient(estimator: str | None) -> Start:
    def start(weighted: Weighted, size: float, samples: int | None, seed: int) -> Started:
        model, parts = weighted.problem.model(), {"data": weighted.data, "root": weighted.root}
        rule = VGPGradient(model, estimator, **parts, samples=samples or 1, rate=size, seed=seed)
        return started_by_adam(rule, lambda: model.elbo(weighted.data))

    return start


METHODS = {
    "cvi": Method("CVI, all rows", False, False, _conjugate),
    "pg-svi": Method("PG-SVI, all rows", False, False, _proximal),
    "adam": Method("Adam, exact gradient, all rows", False, True, _gradient(None)),
    "cvi-batches": Method("CVI (C29)", True, False, _conjugate),
    "pg-svi-batches": Method("PG-SVI (C64)", True, False, _proximal),
    "reparameterised": Method("Adam, reparameterised", True, True, _gradient("reparameterised")),
    "score-function": Method("Adam, score function", True, True, _gradient("score function")),
}
"""Name -> method, in the order of the report."""


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return pieces(METHODS, options)


def _measure(options: argparse.Namespace, name: str, size: float) -> list[Run]:
    method = METHODS[name]
    with tempfile.TemporaryDirectory() as place:
        whole = store(
            options.linear_task,
            Path(place),
            options.data,
            options.rows,
            options.columns,
            options.seed,
        )
        X, Y = whole.rows(0, whole.num_data)
        order = np.random.default_rng(options.seed).permutation(whole.num_data)
        held = min(_MOST_TESTED, int(_TEST_SHARE * whole.num_data))
        tested, training = order[:held], order[held:]
        rows = len(training)
        batch, samples = (
            (min(options.batch_size, rows), options.samples) if method.batches else (rows, None)
        )
        started = method.start(
            weighted(whole, X[training], Y[training]), size, samples, options.seed
        )
    batches = random_batches(rows, batch, options.seed)
    found = trace(started, batches, rows, options.stochastic_seconds, (X[tested], Y[tested]), _PACE)
    return [Run(whole.name, rows, name, size, batch, samples, **found)]


def _section(runs: list[Run], options: argparse.Namespace) -> Section:
    return section("rivals_linear", "the q of `CVIGLM`, the prior narrowed", METHODS, runs, options)


PART = Part(Run, _pieces, _measure, _section)
