"""What holds of every model whatever its data: order of rows, units, the best q and the evidence,
refusals.
"""

from __future__ import annotations

__all__ = ["PART"]

import math
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError

from ..checks import evidence_of
from ..outcome import Case, Outcome, Part
from ..problems import Problem, draw_problem
from ..problems.likelihoods import LIKELIHOODS
from ..problems.models import Data, bound, data_of
from ..refusals import complaint_about

QUICK = {"steps": 4, "progress": False, "compile": False}
Check = Callable[[Case, np.random.Generator], Outcome]


def _order_of_rows(case: Case, rng: np.random.Generator) -> Outcome:
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


def _units(case: Case, rng: np.random.Generator) -> Outcome:
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


def _quadrature(case: Case, rng: np.random.Generator) -> Outcome:
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


def _refused_data(case: Case, rng: np.random.Generator) -> Outcome:
    """After data that are refused every Parameter is what it was, and so is the model's answer."""
    problem = draw_problem(rng, moderate=True, rows=int(rng.integers(3, 20)))
    model, (X, Y) = problem.build(), problem.data
    kind = str(rng.choice(["NaN", "short", "rank", "option", "type"]))
    outcome = Outcome(f"nothing changed after a refusal ({kind}): {problem.title}")
    before = _values(model)
    bad = Y.copy()
    bad[rng.integers(len(Y))] = np.nan
    data: Data = {
        "NaN": (X, bad),
        "short": (X, Y[:-1]),
        "rank": (X[:, 0], Y),
        "type": (X.astype(np.float32), Y),
    }.get(kind, (X, Y))
    options = {"learning_rate": -1.0} if kind == "option" else {}
    try:
        gd.fit(model, data_of(model, data) if kind == "option" else data, **{**QUICK, **options})
        outcome.complaints.append("was not refused")
    except Exception as error:
        complaint = complaint_about(error)
        outcome.complaints += [complaint] if complaint else []
        if not isinstance(error, DataError) and not complaint:
            outcome.complaints.append(f"a {type(error).__name__} where a DataError is due: {error}")
    after = _values(model)
    changed = [name for name, value in before.items() if not np.array_equal(value, after[name])]
    if changed:
        outcome.complaints.append(f"the refusal changed {', '.join(changed)}")
    return outcome


def _factor_graph(case: Case, rng: np.random.Generator) -> Outcome:
    """Of a conjugate graph with one variable the mean field is exact: its bound is the evidence,
    for any counts.
    """
    counts = rng.poisson(rng.uniform(0.0, 20.0), size=int(rng.integers(1, 30))) * int(
        rng.choice([0, 1, 1, 1000])
    )
    a, b = 10.0 ** rng.uniform(-3, 3, 2)
    outcome = Outcome(
        f"factor graph: {len(counts)} counts up to {counts.max()}, prior Gamma({a:.3g}, {b:.3g})"
    )
    gamma = gd.distributions.families.Gamma()
    expected = lambda z, y: tf.reduce_sum(  # noqa: E731
        y * z.expectation[0] - z.expectation[1] - tf.math.lgamma(y + 1.0)
    )
    graph = gd.models.FactorGraph(
        {"rate": gamma.belief(1.0, 1.0)},
        {
            "prior": gd.models.prior_factor("rate", gamma.belief(a, b)),
            "counts": gd.models.Factor("rate", expected, data=counts),
        },
    )
    gd.fit(graph, **{**QUICK, "natural_gradient": 1.0})
    total, n = float(np.sum(counts)), len(counts)
    evidence = (
        a * math.log(b) - math.lgamma(a) + math.lgamma(a + total) - (a + total) * math.log(b + n)
    )
    evidence -= sum(math.lgamma(count + 1.0) for count in counts.tolist())
    reached = float(graph.elbo())
    if not abs(reached - evidence) <= 1e-8 * max(1.0, abs(evidence), total):
        outcome.complaints.append(f"the bound {reached:.12g} is not the evidence {evidence:.12g}")
    return outcome


CHECKS: tuple[Check, ...] = (_order_of_rows, _units, _quadrature, _refused_data, _factor_graph)


def run(case: Case) -> Outcome:
    """One of the checks, by turns."""
    rng = case.generator()
    tf.random.set_seed(case.number)
    check = CHECKS[case.number % len(CHECKS)]
    try:
        return check(case, rng)
    except Exception as error:
        complaint = complaint_about(error)
        title = f"{(check.__doc__ or '').strip()} (case {case.number})"
        return Outcome(title, [complaint] if complaint else [], f"{type(error).__name__}: {error}")


def _built(problem: Problem, data: Data, points: Data) -> GPModel:
    """The problem's model of other data, with the inducing points that it has for `points`."""
    return Problem(**{**vars(problem), "data": data}).build(points[0])


def _values(model: GPModel) -> dict[str, np.ndarray]:
    parameters = gpflow.utilities.parameter_dict(model).items()
    return {name: np.asarray(value) for name, value in parameters}


PART = Part(
    "invariants", "order of rows, units, evidence by quadrature, refusals, factor graphs", 100, run
)
