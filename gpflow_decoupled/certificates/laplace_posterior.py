"""The Laplace approximation of Bayesian logistic regression."""

# With t_n = 2 y_n - 1, the log posterior of the weights is strictly concave:
#
#   log p(w | y) = sum_n log sigma(t_n phi_n^T w) - (w - w_0)^T P_0^-1 (w - w_0) / 2 + constant
#
# V^-1 = P_0^-1 + sum_n s_n (1 - s_n) phi_n phi_n^T at the mode, s_n = sigma(phi_n^T m).

from __future__ import annotations

__all__ = ["laplace_weights"]

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData
from scipy.special import expit, log_expit

from ..errors import NumericalError
from ..linalg import cholesky, diagnose
from ..linalg.triangular import inverse, solve
from ..models import WeightsPosterior
from .gaussian_certificate import checked_gaussian, checked_labels

_STEPS = 200
"""Most Newton steps; about 8 suffice for usual labels and features."""
_HALVINGS = 40
"""Most halvings of one step."""
_DECREMENT = 1e-20
"""Newton decrement, in nats, at which the mode is exact to round-off."""


def laplace_weights(data: RegressionData, prior: Sequence[npt.ArrayLike]) -> WeightsPosterior:
    """Return the Laplace approximation of logistic regression with a Gaussian prior.

    Newton in whitened weights; separable classes have a mode.

    :param data: features X [N, p] (a column of ones for an intercept) and labels Y [N, 1], 0 or 1.
    :param prior: mean [p] and covariance [p, p] of the weights.
    :return: mean [p] and covariance [p, p]. Cost: N p^2 + p^3 per step.

    Source: MacKay 1992.

    Example::

        mean, covariance = laplace_weights((X, Y), (np.zeros(3), np.eye(3)))
    """
    X, Y = checked_labels(data)
    centre, spread = checked_gaussian(prior, "prior", X.shape[1])
    chol, ok = cholesky(tf.constant(spread))
    if not ok:
        raise diagnose("the prior's covariance", spread)
    root = chol.numpy()
    A, offset, signs = X @ root, X @ centre, 2.0 * Y[:, 0] - 1.0
    u = _mode(A, offset, signs)
    factor = _hessian_factor(A, offset + A @ u)
    half = root @ inverse(factor).numpy().T  # V = L_0 H^-1 L_0^T, H = L_H L_H^T
    return WeightsPosterior(tf.constant(centre + root @ u), tf.constant(half @ half.T))


def _mode(A: np.ndarray, offset: np.ndarray, signs: np.ndarray) -> np.ndarray:
    def value(u: np.ndarray) -> float:
        return float(np.sum(log_expit(signs * (offset + A @ u))) - 0.5 * u @ u)

    u = np.zeros(A.shape[1])
    for _ in range(_STEPS):
        f = offset + A @ u
        gradient = A.T @ (signs * expit(-signs * f)) - u
        factor = _hessian_factor(A, f)
        step = solve(factor, solve(factor, tf.constant(gradient)[:, None]), adjoint=True).numpy()[
            :, 0
        ]  # (T15)
        decrement, here = 0.5 * float(gradient @ step), value(u)
        if decrement <= _DECREMENT + 1e-16 * abs(here):  # the gain of this step is below round-off
            return u + step
        size = next((s for s in 0.5 ** np.arange(_HALVINGS) if value(u + s * step) >= here), 0.0)
        if size == 0.0:
            return u
        u = u + size * step
    raise NumericalError(
        f"The mode of the logistic regression was not found in {_STEPS} Newton steps; the last gain"
        f" was {decrement:.1e} nats. Scale the features to unit variance.",
        matrix="Hessian",
    )


def _hessian_factor(A: np.ndarray, f: np.ndarray) -> tf.Tensor:
    weighted = A * np.sqrt(expit(f) * expit(-f))[:, None]
    hessian = np.eye(A.shape[1]) + weighted.T @ weighted
    chol, ok = cholesky(tf.constant(hessian))
    if not ok:
        raise diagnose("the Hessian of the logistic regression", hessian)
    return chol
