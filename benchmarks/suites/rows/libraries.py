"""The libraries of the suite: arrays in, a function of predictions out."""

from __future__ import annotations

__all__ = ["LIBRARIES", "Fitted"]

from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import gpflow_decoupled as gd


class Fitted(NamedTuple):
    """A trained model."""

    predict: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """X [N, D] -> mean and variance of y, [N, 1] each"""
    evidence: float | None
    """log evidence in units of Y, nats; None where it is not exact"""


def _build(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """What a user writes: no option is given."""
    model = gd.build(X, Y)
    gd.fit(model, progress=False)
    exact = isinstance(model.model, gd.models.CVIGP)

    def predict(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = model.predict_y(new)
        return np.asarray(mean), np.asarray(variance)

    return Fitted(predict, float(model.elbo()) if exact else None)


def _gpflow(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """`GPR` on standardised data by `Scipy`, whose limit is a thousand iterations."""
    shift, scale = Y.mean(), Y.std()
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(X.shape[1]))
    model = gpflow.models.GPR(((X - X.mean(0)) / X.std(0), (Y - shift) / scale), kernel)
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)

    def predict(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = model.predict_y((new - X.mean(0)) / X.std(0))
        return shift + scale * np.asarray(mean), scale**2 * np.asarray(variance)

    return Fitted(predict, float(model.log_marginal_likelihood()) - len(Y) * np.log(scale))


def _scikit_learn(X: np.ndarray, Y: np.ndarray) -> Fitted:
    """The regressor with the same kernel; L-BFGS from one start, its default."""
    shift, scale = Y.mean(), Y.std()
    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=2.5) + WhiteKernel()
    model = GaussianProcessRegressor(kernel)
    model.fit((X - X.mean(0)) / X.std(0), (Y[:, 0] - shift) / scale)

    def predict(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = model.predict((new - X.mean(0)) / X.std(0), return_std=True)
        return shift + scale * mean[:, None], (scale * deviation[:, None]) ** 2

    evidence = model.log_marginal_likelihood_value_ - len(Y) * np.log(scale)
    return Fitted(predict, float(evidence))


LIBRARIES = {"build": _build, "GPflow GPR": _gpflow, "scikit-learn": _scikit_learn}
