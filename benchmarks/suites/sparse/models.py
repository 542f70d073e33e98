"""Sparse regressions on one problem: VFE, FITC, DTC and the orthogonal bound by L-BFGS, SVGP by
natural gradients.
"""

from __future__ import annotations

__all__ = [
    "METHODS",
    "Fit",
    "Problem",
    "clumped",
    "exact",
    "make_problem",
    "recovered",
    "sparse",
    "start",
]

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import GPR, GPRFITC, SGPR, SVGP

import gpflow_decoupled as gd
from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import DTC, ODVGP
from gpflow_decoupled.optimizers import collapsed_elbo

from ...harness.data import raw

_GRID = 200
_MEAN_POINTS = 50
CLUMP = 0.05
"""Inducing inputs closer than this many lengthscales to their neighbour count as clumped."""


class Problem(NamedTuple):
    """One input, one output."""

    name: str
    X: np.ndarray
    """[N, 1]"""
    Y: np.ndarray
    """[N, 1]"""

    @property
    def grid(self) -> np.ndarray:
        """Where predictions are compared, [G, 1]: the range of the data and a sixth of it more on
        either side.
        """
        margin = np.ptp(self.X) / 6.0
        return np.linspace(self.X.min() - margin, self.X.max() + margin, _GRID)[:, None]


class Fit(NamedTuple):
    """A model that was trained, and how."""

    model: gpflow.models.GPModel
    objective: float
    """what was maximised, nats"""
    iterations: int
    seconds: float
    """of the processor"""

    @property
    def noise(self) -> float:
        """The noise variance."""
        return float(np.squeeze(self.model.likelihood.variance.numpy()))

    @property
    def points(self) -> np.ndarray:
        """The inducing inputs, sorted [M]."""
        holder = self.model if hasattr(self.model, "inducing_variable") else self.model.basis
        variable = holder.inducing_variable if holder is self.model else holder.beta
        return np.sort(variable.Z.numpy()[:, 0])


def make_problem(name: str, folder: str | None, seed: int, num_data: int | None) -> Problem:
    """The Snelson data, from the folder; or "generated", a draw from a GP of the same kind with 200
    observations.
    """
    if name == "snelson":
        X, Y = raw(name, folder)
    else:
        rng = np.random.default_rng(seed)
        X = rng.uniform(0.0, 6.0, (200, 1))
        covariance = gpflow.kernels.SquaredExponential(0.8, 0.6)(X).numpy() + 1e-8 * np.eye(len(X))
        f = np.linalg.cholesky(covariance) @ rng.standard_normal((len(X), 1))
        Y = f + np.sqrt(0.08) * rng.standard_normal(f.shape)
    return Problem(name, X[:num_data], Y[:num_data])


def start(problem: Problem, num: int, how: str, seed: int) -> np.ndarray:
    """Inducing inputs at the start, [M, 1]: "random" rows, or "kmeans"."""
    return select(problem.X, num, method=how, seed=seed)


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(1.0, 1.0)


def exact(problem: Problem, iterations: int) -> Fit:
    """The full GP, which is the truth here."""
    model = GPR((problem.X, problem.Y), _kernel(), noise_variance=0.1)
    return _maximise(model, lambda: model.training_loss(), model.trainable_variables, iterations)


def sparse(
    method: str,
    problem: Problem,
    Z: np.ndarray,
    iterations: int,
    like: gpflow.models.GPModel | None = None,
    fixed: bool = False,
) -> Fit:
    """Train one of `METHODS`.

    :param Z: inducing inputs at the start, [M, 1].
    :param iterations: of L-BFGS; with 0 the model stays as it starts.
    :param like: a model whose hyperparameters are those of the start; default: variance 1,
        lengthscale 1, noise 0.1.
    :param fixed: whether the hyperparameters stay as they are.
    """
    return METHODS[method][1](problem, Z, iterations, like, fixed)


def _collapsed(model_type: type[SGPR] | type[GPRFITC] | type[DTC]) -> Callable[..., Fit]:
    def run(
        problem: Problem,
        Z: np.ndarray,
        iterations: int,
        like: gpflow.models.GPModel | None,
        fixed: bool,
    ) -> Fit:
        model = model_type((problem.X, problem.Y), _kernel(), Z.copy(), noise_variance=0.1)
        variables = _adopt(model, like, fixed) or model.trainable_variables
        return _maximise(model, lambda: model.training_loss(), variables, iterations)

    return run


def _orthogonal(
    problem: Problem,
    Z: np.ndarray,
    iterations: int,
    like: gpflow.models.GPModel | None,
    fixed: bool,
) -> Fit:
    """The collapsed orthogonal bound; 50 of the inputs are mean points, which are not trained."""
    rows = np.linspace(0, len(problem.X) - 1, min(_MEAN_POINTS, len(problem.X))).astype(int)
    gamma = np.setdiff1d(problem.X[np.argsort(problem.X[:, 0])[rows]], Z)[:, None]
    model = ODVGP(_kernel(), gpflow.likelihoods.Gaussian(0.1), gamma, Z.copy(), mean_scaling="none")
    variables = [
        *model.kernel.trainable_variables,
        *model.likelihood.trainable_variables,
        *model.basis.beta.trainable_variables,
    ]
    variables = _adopt(model, like, fixed) or variables
    data = (tf.constant(problem.X), tf.constant(problem.Y))
    fit = _maximise(model, lambda: -collapsed_elbo(model, data), variables, iterations)
    gd.optimizers.optimal_parameters(model, data).assign(model)
    return fit


def _uncollapsed(
    problem: Problem,
    Z: np.ndarray,
    iterations: int,
    like: gpflow.models.GPModel | None,
    fixed: bool,
) -> Fit:
    """GPflow's `SVGP` by `fit`: natural gradients, Adam and minibatches of 50; an iteration is a
    step.
    """
    model = SVGP(_kernel(), gpflow.likelihoods.Gaussian(0.1), Z.copy(), num_data=len(problem.X))
    _adopt(model, like, fixed)
    begin = time.process_time()
    data = (problem.X, problem.Y)
    gd.fit(
        model,
        data,
        steps=2 * iterations,
        batch_size=min(50, len(problem.X)),
        seed=0,
        progress=False,
    )
    seconds = time.process_time() - begin
    return Fit(
        model,
        float(model.elbo((tf.constant(problem.X), tf.constant(problem.Y)))),
        2 * iterations,
        seconds,
    )


METHODS: dict[str, tuple[str, Callable[..., Fit]]] = {
    "vfe": ("VFE", _collapsed(SGPR)),
    "fitc": ("FITC", _collapsed(GPRFITC)),
    "dtc": ("DTC", _collapsed(DTC)),
    "orthogonal": (f"orthogonal + {_MEAN_POINTS}", _orthogonal),
    "svgp": ("SVGP, minibatches", _uncollapsed),
}
"""Name -> label, and function that trains it."""


def _maximise(
    model: gpflow.models.GPModel,
    loss: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    iterations: int,
) -> Fit:
    """L-BFGS on a compiled loss, until it stops or for so many iterations."""
    begin = time.process_time()
    if iterations == 0 or not len(variables):
        return Fit(model, -float(loss()), 0, time.process_time() - begin)
    options = {"maxiter": iterations, "maxfun": 5 * iterations}
    found = gpflow.optimizers.Scipy().minimize(loss, variables, options=options)
    return Fit(model, -float(found.fun), int(found.nit), time.process_time() - begin)


def _adopt(
    model: gpflow.models.GPModel, like: gpflow.models.GPModel | None, fixed: bool
) -> list[tf.Variable] | None:
    """Copy kernel and noise of `like`; if `fixed`, return the variables of the inducing inputs,
    which alone are trained.
    """
    if like is not None:
        gpflow.utilities.multiple_assign(model.kernel, gpflow.utilities.read_values(like.kernel))
        model.likelihood.variance.assign(like.likelihood.variance)
    if not fixed:
        return None
    points = model.inducing_variable if hasattr(model, "inducing_variable") else model.basis.beta
    return list(points.trainable_variables)


def clumped(fit: Fit) -> int:
    """How many of the inducing inputs lie within `CLUMP` lengthscales of the next one."""
    return int(np.sum(np.diff(fit.points) < CLUMP * float(fit.model.kernel.lengthscales.numpy())))


def recovered(fit: Fit, full: Fit, problem: Problem) -> float:
    """The mean KL in nats from the full GP's predictions of y on the grid to those of the fit; 0 is
    the same posterior.
    """
    (m, v), (m_full, v_full) = (
        [part.numpy()[:, 0] for part in one.model.predict_y(problem.grid)] for one in (fit, full)
    )
    return float(np.mean(0.5 * (np.log(v / v_full) + (v_full + (m - m_full) ** 2) / v - 1.0)))
