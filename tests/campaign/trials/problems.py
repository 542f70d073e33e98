"""Random problems: built, trained for a few steps, and asked for predictions."""

from __future__ import annotations

__all__ = ["PART"]

import math
import warnings

import gpflow
import numpy as np
from gpflow.models import GPModel

import gpflow_decoupled as gd

from ..checks import check_bound, check_trained
from ..outcome import Case, Outcome, Part
from ..problems import LINEAR, SLOW, Data, Problem, bound, data_of, draw_problem
from ..trial import trial

OPTIONS = {"steps": 6, "progress": False, "compile": False}
SLACK = 0.2
"""Nats per observation that the bound may fall without a warning where scales are far from one."""


def run(case: Case) -> Outcome:
    """Build, train and ask one random problem."""
    return trial(case, draw_problem, _tried)


def _tried(problem: Problem, rng: np.random.Generator) -> list[str]:
    """Train q alone, then everything; the bound, its evidence and the predictions after that."""
    model, data = problem.build(), problem.data
    complaints: list[str] = []
    draws = problem.likelihood == "Softmax"  # its bound is an estimate
    start = bound(model, data)
    if problem.model not in (*SLOW, "DVGP"):  # whose covariance has no natural gradient
        _train(model, False)
        said = _fitted(model, data)
        said = (
            said and problem.model != "CVIGP"
        )  # the others' fixed step may be too long without log-concavity
        if not draws and not said:
            complaints += [
                f"q alone: {words}" for words in check_bound(start, bound(model, data), problem)
            ]
        if problem.model not in LINEAR:  # whose prior is fixed
            _train(model, True)
    said = _fitted(model, data)
    after = bound(model, data)
    # Adam moves each parameter by its rate, whatever the units: only at scales of one must the
    # bound rise with the first steps. Elsewhere it may fall by a little, and by more where `fit`
    # says so.
    lowest = start if problem.is_moderate else -math.inf if said else start - SLACK * len(data[0])
    lowest = -math.inf if draws else lowest
    complaints += check_bound(lowest, after, problem)
    return complaints + check_trained(model, after, problem, rng)


def _fitted(model: GPModel, data: Data) -> bool:
    """Train for some steps; whether `fit` has said that the bound fell."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gd.fit(model, data_of(model, data), **OPTIONS)
    return any("The bound fell from" in str(one.message) for one in caught)


def _train(model: GPModel, flag: bool) -> None:
    """Whether all but what natural gradients move is trained.

    The mean coefficients of decoupled bases are not among that: they move by Adam or in the metric
    of the prior, with steps that are too long for some ratio of signal to noise."""
    for part in (model.kernel, model.likelihood, model.mean_function):
        gpflow.set_trainable(part, flag)
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        if name.endswith((".Z", ".coefficients")):
            gpflow.set_trainable(parameter, flag)


PART = Part("problems", "random problems, trained for a few steps", 500, run)
