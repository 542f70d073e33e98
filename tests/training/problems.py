"""Small data sets and one model of each kind, for the tests of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.models import GPModel

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from gpflow_decoupled.training import Callbacks, Checkpoints, Evaluation, MeanSolver, Schedule
from gpflow_decoupled.training.schedules import Limits, StepSizes
from gpflow_decoupled.training.stages.stage import Budget, Clock, Report, Stage

Data = tuple[np.ndarray, np.ndarray]

BETA = np.linspace(0.05, 0.95, 5)[:, None]
GAMMA = np.linspace(0.0, 1.0, 8)[:, None]


def sine(rows: int = 60, seed: int = 0) -> Data:
    """A noisy sine: X [N, 1] in [0, 1], Y [N, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 1))
    return X, np.sin(6.0 * X) + 0.1 * rng.normal(size=(rows, 1))


def parts() -> tuple[gpflow.kernels.Kernel, gpflow.likelihoods.Likelihood]:
    """A kernel and a likelihood to start from."""
    return gpflow.kernels.SquaredExponential(lengthscales=0.3), gpflow.likelihoods.Gaussian(0.1)


def orthogonal(**options: Any) -> ODVGP:
    """The model that most tests use."""
    return ODVGP(*parts(), GAMMA, BETA, **options)


MODELS: dict[str, Callable[..., Any]] = {
    "ODVGP": orthogonal,
    "HDVGP": lambda **options: HDVGP(*parts(), GAMMA, BETA, **options),
    "DVGP inverse": lambda **options: DVGP(*parts(), GAMMA, BETA, **options),
    "DVGP coupled": lambda **options: DVGP(*parts(), GAMMA, BETA, covariance="coupled", **options),
    "SOLVEGP": lambda **options: SOLVEGP(*parts(), GAMMA, BETA, **options),
    "BasisGP": lambda **options: BasisGP(*parts(), CoupledBasis(BETA), **options),
    "SVGP": lambda **options: gpflow.models.SVGP(*parts(), BETA, **options),
    "SVGP not whitened": lambda **options: gpflow.models.SVGP(
        *parts(), BETA, whiten=False, **options
    ),
}


_OBJECTS: dict[str, tuple[type, dict[str, str]]] = {
    "schedule": (Schedule, {name: name for name in ("ramp_steps", "anneal", "refresh_every")}),
    "evaluation": (
        Evaluation,
        {
            "evaluation": "data",
            "evaluate_every": "every",
            "patience": "patience",
            "restore_best": "restore_best",
        },
    ),
    "checkpoint": (Checkpoints, {"checkpoint": "folder", "checkpoint_every": "every"}),
    "callbacks": (Callbacks, {"callbacks": "functions", "report_every": "every"}),
    "mean_solver": (MeanSolver, {"mean_solver": "method", "mean_learning_rate": "learning_rate"}),
}
"""By argument of `fit`: its class, and the fields by the names that `grouped` takes."""


def grouped(**flat: Any) -> dict[str, Any]:
    """Options of `fit` from one flat list, so that tests may change one field of an object and
    leave the others.
    """
    options = dict(flat)
    for name, (kind, fields) in _OBJECTS.items():
        found = {
            field: options.pop(flat_name)
            for flat_name, field in fields.items()
            if flat_name in options
        }
        if found:
            options[name] = kind(**found)
    return options


def values(model: Any) -> dict[str, np.ndarray]:
    """Every Parameter of a model, by name."""
    parameters = gpflow.utilities.parameter_dict(model).items()
    return {name: p.numpy() for name, p in parameters if isinstance(p, gpflow.Parameter)}


def unchanged(before: dict[str, np.ndarray], model: Any) -> bool:
    """Whether every Parameter has, bit by bit, the value it had."""
    after = values(model)
    return before.keys() == after.keys() and all(
        np.array_equal(before[name], after[name]) for name in before
    )


def slope(model: GPModel, bound: Callable[[], float], direction: list[np.ndarray]) -> float:
    """The derivative of a bound along `direction`, one array a trainable variable, by central
    differences.
    """
    start, found = [v.numpy() for v in model.trainable_variables], []
    for step in (1e-5, -1e-5):
        for v, s, d in zip(model.trainable_variables, start, direction):
            v.assign(s + step * d)
        found.append(bound())
    for v, s in zip(model.trainable_variables, start):
        v.assign(s)
    return (found[0] - found[1]) / 2e-5


def turn(stage: Stage, batch: Any, rate: float = 1.0) -> Report:
    """One turn of a stage at this learning rate, the first of a run of two steps."""
    clock = Clock(0.0, Limits(2, None), lambda line: None)
    return stage.run(Budget(clock, 0, 0, [StepSizes(None, rate, rate)], batch))
