"""What the suite `lagrangian` measures."""

from __future__ import annotations

__all__ = ["VARIANTS", "Cost", "End", "HeldOut", "cost", "held_out", "held_out_pieces", "starts"]

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled import fit
from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.likelihoods import Laplace
from gpflow_decoupled.linalg.cholesky import cholesky
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian
from gpflow_decoupled.optimizers.lagrangian.dual import DualProblem
from gpflow_decoupled.optimizers.lagrangian.start import first_marginals
from gpflow_decoupled.optimizers.lagrangian.subproblem import Policy, make_subproblem

from .clock import clock
from .data import Data, load
from .measuring import in_a_process, peak_megabytes

_REPEATS = 7
_LEARNING_STEPS = 20
"""L-BFGS iterations on the hyperparameters in a round; as many steps of `fit` take their place."""
_LEARNING_RATE = 0.1
EMBEDDED = {"diabetes": "Laplace"}
FOLDER = {"coal": "Poisson", "bike_count": "Poisson", "housing": "Laplace", "concrete": "Laplace"}


VARIANTS: dict[str, dict[str, Any]] = {
    "curvature": {"max_outer": 200},
    "the paper's augmented term, Newton inside": {"max_outer": 30, "curvature": False, "augmented": True},
    "neither, Newton inside": {"max_outer": 30, "curvature": False},
    "the paper's augmented term, L-BFGS-B inside": {
        "max_outer": 5, "curvature": False, "augmented": True, "inner": "lbfgs",
    },
    "curvature, subproblems alone": {"max_outer": 200, "accelerate": False},
}  # fmt: skip
"""Settings of the Lagrangian for noise that is not log-concave."""


class Cost(NamedTuple):
    num_data: int
    gradient_ms: float
    cholesky_ms: float
    ratio: float
    peak_mb: float


class End(NamedTuple):
    """One run from random multipliers."""

    variant: str
    start: int
    stop_reason: str
    outer: int
    falls: int
    """outer iterations after which the bound was lower"""
    elbo: float


class HeldOut(NamedTuple):
    task: str
    num_data: int
    method: str
    seconds: float
    elbo: float
    log_density: float
    note: str


def cost(options: Any, num_data: int) -> list[Cost]:
    """One gradient of the dual of Poisson regression, and one factorisation; medians."""
    gradient_ms, cholesky_ms, peak_mb = in_a_process(_cost_at, num_data, options.seed)
    return [Cost(num_data, gradient_ms, cholesky_ms, gradient_ms / cholesky_ms, peak_mb)]


def _cost_at(num_data: int, seed: int) -> tuple[float, float, float]:
    """Milliseconds of a gradient, and of a factorisation; peak MB over what the libraries take."""
    base, rng = peak_megabytes(), np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (num_data, 2))
    Y = rng.poisson(np.exp(np.sin(X[:, :1]))).astype(float)
    model = LCLGP((X, Y), gpflow.kernels.Matern52(2.0), gpflow.likelihoods.Poisson())
    problem = DualProblem(model)
    at, _ = first_marginals(problem, 3, 1e-4)
    sub, _ = make_subproblem(problem, at, Policy(0.1, True, None, float("inf")))
    K = model.kernel(X) + 1e-3 * tf.eye(num_data, dtype=gpflow.default_float())
    factor = tf.function(cholesky)

    def gradient() -> Any:
        now = problem.marginals(at.alpha, at.lam)
        return problem.point(sub, now, at.mean, at.deviation).g_lam.numpy()

    ms = [1e3 * _median(gradient), 1e3 * _median(lambda: factor(K).chol.numpy())]
    return ms[0], ms[1], peak_megabytes() - base


def _median(work: Callable[[], Any]) -> float:
    work()
    times = []
    for _ in range(_REPEATS):
        start = clock()
        work()
        times.append(clock() - start)
    return float(np.median(times))


def starts(options: Any, variant: str) -> list[End]:
    """A robust regression with a tenth of gross errors, from every start."""
    rng = np.random.default_rng(options.seed)
    X = np.sort(rng.uniform(0.0, 10.0, (40, 1)), axis=0)
    Y = np.sin(X) + 0.1 * rng.normal(size=X.shape)
    wrong = rng.permutation(40)[:4]
    Y[wrong] += rng.normal(0.0, 4.0, (4, 1))
    model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT(scale=0.1, df=3.0))
    rule = LinearlyConstrainedLagrangian(**VARIANTS[variant])
    prepared = rule.prepare(model)
    return [_from_a_start(rule, model, prepared, variant, start) for start in range(options.starts)]


def _from_a_start(rule: LinearlyConstrainedLagrangian, model: LCLGP, prepared: Any, variant: str, start: int) -> End:
    loss, rng, shape = model.site_loss(), np.random.default_rng(start), model.data[1].shape
    model.basis.alpha.assign(loss.lower + rng.uniform(0.1, 0.9, shape) * (loss.upper - loss.lower))
    model.basis.lam.assign(rng.exponential(10.0, shape))
    first = float(model.elbo())
    try:
        result = rule.run(model, prepared=prepared)
    except (NumericalError, DataError) as error:
        return End(variant, start, type(error).__name__, 0, 0, first)
    bounds = result.history["elbo"]
    falls = int(np.sum(~(np.diff(bounds) >= -1e-6)))
    return End(variant, start, result.stop_reason, len(bounds) - 1, falls, result.elbo)


def held_out_pieces(options: Any) -> list[tuple]:
    """(task, method)."""
    return list(product(FOLDER if options.data else EMBEDDED, _METHODS))


def held_out(options: Any, task: str, method: str) -> list[HeldOut]:
    """One method on one task; all start from the same hyperparameters."""
    noise = {**FOLDER, **EMBEDDED}[task]
    data = _at_most(load(task, 0, options.data), options.num_data, options.seed)
    began = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a column is constant
        model = _METHODS[method](data, noise, options.rounds)
    seconds = clock() - began
    density = float(tf.reduce_mean(model.predict_log_density((data.X_test, data.Y_test))))
    return [HeldOut(task, len(data.X_train), method, seconds, float(model.elbo()), density, f"{noise} noise")]


def _at_most(data: Data, num: int, seed: int) -> Data:
    rows = np.random.default_rng(seed).permutation(len(data.X_train))[:num]
    return data._replace(X_train=data.X_train[rows], Y_train=data.Y_train[rows])


def _parts(data: Data, noise: str) -> tuple:
    kernel = gpflow.kernels.Matern52(lengthscales=float(np.sqrt(data.X_train.shape[1])))
    likelihood = Laplace(0.5) if noise == "Laplace" else gpflow.likelihoods.Poisson()
    mean = None if noise == "Laplace" else gpflow.functions.Constant(np.log(np.mean(data.Y_train)))
    return (data.X_train, data.Y_train), kernel, likelihood, mean


def _learn(model: Any) -> None:
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": _LEARNING_STEPS}
    )


def _lagrangian(data: Data, noise: str, rounds: int) -> Any:
    *rest, mean = _parts(data, noise)
    model = LCLGP(*rest, mean_function=mean)
    fit(model, steps=_LEARNING_STEPS * rounds, learning_rate=_LEARNING_RATE, progress=False)
    LinearlyConstrainedLagrangian().run(model)
    return model


def _conjugate(data: Data, noise: str, rounds: int) -> Any:
    *rest, mean = _parts(data, noise)
    model = CVIGP(*rest, mean_function=mean)
    for _ in range(rounds):
        ConjugateComputation().run(model)
        _learn(model)
    ConjugateComputation().run(model)
    return model


def _natural_gradient(data: Data, noise: str, rounds: int) -> Any:
    """Natural gradients for q, L-BFGS for the rest at fixed q; compiled once."""
    *rest, mean = _parts(data, noise)
    model = gpflow.models.VGP(*rest, mean_function=mean)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    optimizer, q = gpflow.optimizers.NaturalGradient(0.5), [(model.q_mu, model.q_sqrt)]
    step = tf.function(lambda: optimizer.minimize(model.training_loss, q))
    for turn in range(rounds + 1):
        for _ in range(15):
            step()
        if turn < rounds:
            _learn(model)
    return model


_METHODS = {"LCLGP": _lagrangian, "CVIGP": _conjugate, "GPflow VGP": _natural_gradient}
