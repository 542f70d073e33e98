"""Random regressions by L-BFGS on all rows, which must end at the best q(u) of a bound that has not
fallen.
"""

from __future__ import annotations

__all__ = ["PART"]

import math

import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.optimizers.natural_steps import as_basis_model

from ..checks import check_bound, check_trained
from ..outcome import Case, Outcome, Part
from ..problems import FULL, LINEAR, MODELS, Problem, bound, draw_problem
from ..trial import trial

SPARSE = [name for name in MODELS if name not in (*FULL, *LINEAR)]


def run(case: Case) -> Outcome:
    """Climb the bound of one random regression."""
    return trial(case, _drawn, _tried)


def _drawn(rng: np.random.Generator) -> Problem:
    """A problem with Gaussian noise, of any number of latents."""
    while True:
        problem = draw_problem(rng, model=str(rng.choice(SPARSE)))
        if problem.likelihood == "Gaussian":
            return problem


def _tried(problem: Problem, rng: np.random.Generator) -> list[str]:
    """The climb from the start, or after steps on minibatches; its bound, the evidence above it,
    and the predictions.
    """
    model, data = problem.build(), problem.data
    steps = int(rng.choice([1, 8]))
    start = (
        bound(model, data) if steps == 1 else -math.inf
    )  # steps on minibatches may lower the bound
    result = gd.fit(model, data, steps=steps, optimizer="lbfgs", progress=False, compile=False)
    after = bound(model, data)
    complaints = check_bound(start, after, problem)
    view = as_basis_model(model)  # GPflow's own bound of an `SVGP` has less jitter in float32
    here, best = float(view.elbo(data)), float(gd.optimizers.collapsed_elbo(model, data))
    near = (1e-6 + 1e3 * float(np.finfo(problem.dtype).eps)) * max(1.0, abs(here))
    for name, value in (("the result", result.elbo), ("the best q(u)", best)):
        if not abs(value - here) <= near:
            complaints.append(f"the bound is {here:.10g}, of {name} {value:.10g}")
    return complaints + check_trained(model, after, problem, rng)


PART = Part("climbs", "random regressions by L-BFGS on all rows", 200, run)
