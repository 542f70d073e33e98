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


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(1.0, 1.0)


def exact(problem: Problem, iterations: int) -> Fit:
    """The full GP, which is the truth here."""
    model = GPR((problem.X, problem.Y), _kernel(), noise_variance=0.1)
    return _maximise(model, lambda: model.training_loss(), model.trainable_variables, iterations)


def sparse(method: str, problem: Problem, num: int, seed: int, iterations: int) -> Fit:
    """Train one of `METHODS`.

    :param num: inducing inputs; they start at random rows, hyperparameters at variance 1,
        lengthscale 1 and noise 0.1.
    :param iterations: of L-BFGS.
    """
    Z = select(problem.X, num, method="random", seed=seed)
    return METHODS[method][1](problem, Z, iterations)


def _collapsed(model_type: type[SGPR] | type[GPRFITC] | type[DTC]) -> Callable[..., Fit]:
    def run(problem: Problem, Z: np.ndarray, iterations: int) -> Fit:
        model = model_type((problem.X, problem.Y), _kernel(), Z, noise_variance=0.1)
        return _maximise(
            model, lambda: model.training_loss(), model.trainable_variables, iterations
        )

    return run


def _orthogonal(problem: Problem, Z: np.ndarray, iterations: int) -> Fit:
    """The collapsed orthogonal bound; 50 of the inputs are mean points, which are not trained."""
    rows = np.linspace(0, len(problem.X) - 1, min(_MEAN_POINTS, len(problem.X))).astype(int)
    gamma = np.setdiff1d(problem.X[np.argsort(problem.X[:, 0])[rows]], Z)[:, None]
    model = ODVGP(_kernel(), gpflow.likelihoods.Gaussian(0.1), gamma, Z, mean_scaling="none")
    trained = (model.kernel, model.likelihood, model.basis.beta)
    variables = [variable for part in trained for variable in part.trainable_variables]
    data = (tf.constant(problem.X), tf.constant(problem.Y))
    fit = _maximise(model, lambda: -collapsed_elbo(model, data), variables, iterations)
    gd.optimizers.optimal_parameters(model, data).assign(model)
    return fit


def _uncollapsed(problem: Problem, Z: np.ndarray, iterations: int) -> Fit:
    """GPflow's `SVGP` by `fit`, on minibatches of 50; an iteration is a step."""
    model = SVGP(_kernel(), gpflow.likelihoods.Gaussian(0.1), Z, num_data=len(problem.X))
    data, steps = (problem.X, problem.Y), 2 * iterations
    begin = time.process_time()
    batch = min(50, len(problem.X))
    gd.fit(model, data, steps=steps, batch_size=batch, seed=0, progress=False)
    seconds = time.process_time() - begin
    return Fit(model, float(model.elbo(data)), steps, seconds)


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
    """L-BFGS on a compiled loss, until it stops, or for a number of iterations."""
    begin = time.process_time()
    options = {"maxiter": iterations, "maxfun": 5 * iterations}
    found = gpflow.optimizers.Scipy().minimize(loss, variables, options=options)
    return Fit(model, -float(found.fun), int(found.nit), time.process_time() - begin)


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
