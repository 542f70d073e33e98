"""What holds of every model whatever its data: order of rows, units, and the evidence."""

from __future__ import annotations

__all__ = ["PART"]

import math
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_decoupled as gd

from ..checks import evidence_of
from ..ingredients import LIKELIHOODS
from ..outcome import Case, Outcome, Part
from ..problems import Data, Problem, bound, data_of, draw_problem
from ..trial import refused

QUICK = {"steps": 4, "progress": False, "compile": False}
Check = Callable[[np.random.Generator], Outcome]


def _order_of_rows(rng: np.random.Generator) -> Outcome:
    """Training on all data in another order gives the same q."""
    problem = draw_problem(rng, moderate=True, rows=int(rng.integers(2, 30)))
    X, Y = problem.data
    order = rng.permutation(len(X))
    outcome = Outcome(f"order of rows: {problem.title}")
    if problem.likelihood == "Softmax":  # draws of its own, one a row
        problem.likelihood = "MultiClass"
    means = []
    for data in ((X, Y), (X[order], Y[order])):
        model = _built(problem, data, points=(X, Y))
        gd.fit(model, data_of(model, data), **QUICK)
        means.append([np.asarray(part) for part in model.predict_f(X)])
    for name, first, second in zip(("mean", "variance"), *means):
        difference = float(np.max(np.abs(first - second)))
        if not difference <= 1e-4 * max(1.0, float(np.max(np.abs(first)))):
            outcome.complaints.append(
                f"the {name} of q depends on the order of the rows by {difference:.3g}"
            )
    return outcome


def _units(rng: np.random.Generator) -> Outcome:
    """`Standardized` gives the same predictions in other units, which are those of the model inside
    brought back.
    """
    problem = draw_problem(rng, moderate=True, gaussian=True, rows=int(rng.integers(3, 30)))
    X, Y = problem.data
    factor, shift = 10.0 ** rng.integers(-6, 7), float(rng.normal())
    outcome = Outcome(f"units (Y times {factor:g}): {problem.title}")
    found = []
    for units, origin in ((1.0, 0.0), (factor, factor * shift)):
        # the points stay where the standardised rows are, so that both models inside are the same
        model = gd.Standardized(
            lambda X, Y: _built(problem, (X, Y), points=(X, Y)),
            (units * X + origin, units * Y + origin),
        )
        model.fit(**QUICK)
        mean, variance = (np.asarray(part) for part in model.predict_y(units * X + origin))
        found.append(
            (
                float(model.elbo()) + Y.size * math.log(units),
                (mean - origin) / units,
                variance / units**2,
            )
        )
        inside = np.asarray(model.model.predict_y(model.inputs.transform(units * X + origin))[0])
        back = inside * model.outputs.scale.numpy() + model.outputs.mean.numpy()
        if not np.allclose(mean, back, rtol=1e-9):
            outcome.complaints.append(
                "predictions are not those of the model inside, brought back to the units of Y"
            )
    for name, first, second in zip(("bound", "mean", "variance"), *found):
        if not np.allclose(first, second, rtol=1e-4, atol=1e-5):
            difference = float(np.max(np.abs(first - second)))
            outcome.complaints.append(f"the {name} depends on the units by {difference:.3g}")
    return outcome


def _quadrature(rng: np.random.Generator) -> Outcome:
    """Between one and three observations: no model is above the evidence, by quadrature, after its
    q is trained.
    """
    problem = draw_problem(rng, moderate=True, rows=int(rng.integers(1, 4)))
    problem.latents = 1
    if problem.likelihood in ("MultiClass", "Softmax", "CategoricalLogit", "Heteroskedastic"):
        problem.likelihood = "Bernoulli"
        problem.data = problem.data[0], (problem.data[1][:, :1] > 0).astype(float)
    # one observation a row, and the number beside it
    columns = [0, -1] if LIKELIHOODS[problem.likelihood].numbered else [0]
    problem.data = problem.data[0], problem.data[1][:, columns]
    outcome = Outcome(f"evidence by quadrature: {problem.title}")
    model = problem.build()
    for part in (model.kernel, model.likelihood, model.mean_function):
        gpflow.set_trainable(part, False)
    gd.fit(model, data_of(model, problem.data), **{**QUICK, "steps": 30})
    evidence, error = evidence_of(model, problem)
    reached = bound(model, problem.data)
    if math.isnan(evidence):
        outcome.title += " (no evidence)"
    elif reached > evidence + error + 1e-6 * max(1.0, abs(evidence)):
        outcome.complaints.append(f"the bound {reached:.10g} is above the evidence {evidence:.10g}")
    return outcome


CHECKS: tuple[Check, ...] = (_order_of_rows, _units, _quadrature)


def run(case: Case) -> Outcome:
    """One of the checks, by turns."""
    rng = case.generator()
    tf.random.set_seed(case.number)
    check = CHECKS[case.number % len(CHECKS)]
    try:
        return check(rng)
    except Exception as error:
        return refused(f"{(check.__doc__ or '').strip()} (case {case.number})", error)


def _built(problem: Problem, data: Data, points: Data) -> GPModel:
    """The problem's model of other data, with the inducing points that it has for `points`."""
    return Problem(**{**vars(problem), "data": data}).build(points[0])


PART = Part("invariants", "order of rows, units, evidence by quadrature", 100, run)
