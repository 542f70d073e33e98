"""Random problems: built, trained for a few steps, and asked for predictions."""

from __future__ import annotations

__all__ = ["PART"]

import math
import warnings

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_decoupled as gd

from ..checks import check_bound, check_far_away, check_predictions, evidence_of
from ..outcome import Case, Outcome, Part
from ..problems import Problem, draw_problem
from ..problems.models import LINEAR, Data, bound, data_of
from ..problems.problem import SLOW
from ..refusals import complaint_about

OPTIONS = {"steps": 6, "progress": False, "compile": False}
SLACK = 0.2
"""Nats per observation that the bound may fall without a warning where scales are far from one."""


def run(case: Case) -> Outcome:
    """Build, train and ask one random problem."""
    rng = case.generator()
    problem = draw_problem(rng)
    outcome = Outcome(problem.title)
    tf.random.set_seed(case.number)
    with problem.config():
        try:
            outcome.complaints += _tried(problem, rng)
        except Exception as error:
            complaint = complaint_about(error)
            outcome.complaints += [complaint] if complaint else []
            outcome.refusal = f"{type(error).__name__}: {error}"
    return outcome


def _tried(problem: Problem, rng: np.random.Generator) -> list[str]:
    """Train q alone, then everything; the bound, its evidence and the predictions after that."""
    model, data = problem.build(), problem.data
    complaints: list[str] = []
    draws = problem.likelihood == "Softmax"  # its bound is an estimate
    start = bound(model, data)
    if problem.model not in (*SLOW, "DVGP"):  # whose covariance has no natural gradient
        _train(model, False)
        said = _fitted(model, data)
        said = said and problem.model != "CVIGP"  # the others' fixed step may be too long without log-concavity
        if not draws and not said:
            complaints += [f"q alone: {words}" for words in check_bound(start, bound(model, data), problem)]
        if problem.model not in LINEAR:  # whose prior is fixed
            _train(model, True)
    said = _fitted(model, data)
    after = bound(model, data)
    # Adam moves each parameter by its rate, whatever the units: only at scales of one must the bound rise with the first
    # steps. Elsewhere it may fall by a little, and by more where `fit` says so.
    lowest = start if problem.is_moderate else -math.inf if said else start - SLACK * len(data[0])
    lowest = -math.inf if draws else lowest
    complaints += check_bound(lowest, after, problem)
    evidence, error = evidence_of(model, problem)
    # the sum of N terms and a divergence, each with the round-off of its largest part
    slack = error + 1e-6 * max(1.0, abs(evidence)) + 1e3 * float(np.finfo(problem.dtype).eps) * max(1.0, abs(after))
    if math.isfinite(evidence) and after > evidence + slack:
        complaints.append(f"the bound {after:.10g} is above the evidence {evidence:.10g}")
    complaints += check_predictions(model, problem, rng)
    if problem.is_stationary:
        complaints += check_far_away(model, problem)
    return complaints


def _fitted(model: GPModel, data: Data) -> bool:
    """Train for some steps; whether `fit` has said that the bound fell."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gd.fit(model, data_of(model, data), **OPTIONS)
    return any("The bound fell from" in str(one.message) for one in caught)


def _train(model: GPModel, flag: bool) -> None:
    """Whether all but what natural gradients move is trained.

    The mean coefficients of decoupled bases are not among that: they move by Adam or in the metric of the prior, with steps
    that are too long for some ratio of signal to noise.
    """
    for part in (model.kernel, model.likelihood, model.mean_function):
        gpflow.set_trainable(part, flag)
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        if name.endswith((".Z", ".coefficients")):
            gpflow.set_trainable(parameter, flag)


PART = Part("problems", "random problems, trained for a few steps", 500, run)
