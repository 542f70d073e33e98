"""The Laplace approximation of Bayesian logistic regression."""

from __future__ import annotations

__all__ = [
    "certify_gaussian", "checked_gaussian", "checked_labels", "gaussian_divergence",
    "laplace_weights",
]  # fmt: skip

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData
from scipy.special import expit, log_expit

from ..errors import DataError, NumericalError
from ..inputs import as_pair, as_values, check_finite_entries, check_type
from ..likelihoods import BernoulliLogit
from ..linalg import cholesky, diagnose
from ..linalg.triangular import inverse, solve
from ..linalg.whitening import kl_from_whitened
from ..models import WeightsPosterior
from ..models.checks import check_shapes_of_data, check_values
from .certificate import (
    PacBayesCertificate,
    certificate_of,
    check_level,
    errors_of_marginals,
    stated_origin,
)

# ---
# Certificates of Gaussian weights, say of a last layer.


_ASYMMETRY = 1e-8
"""Asymmetry of a covariance, relative to its largest entry, that counts as round-off."""
_PAIR = 2  # mean and covariance


def certify_gaussian(
    data: RegressionData,
    posterior: Sequence[npt.ArrayLike],
    prior: Sequence[npt.ArrayLike],
    delta: float = 0.05,
    *,
    hyperparameters: str,
    settings: int = 1,
) -> PacBayesCertificate:
    """Bound the error rate of a linear classifier with Gaussian weights on new data; N p^2 + p^3.

    :param data: features X [N, p] and labels Y [N, 1], 0 or 1, independent draws.
    :param posterior: mean [p] and covariance [p, p] of Q, which may depend on the sample.
    :param prior: mean [p] and covariance [p, p] of P, which must not.
    :param delta: see `pac_bayes_certificate`.
    :param hyperparameters: see `pac_bayes_certificate`.
    :param settings: J, if the prior is the best of J priors fixed beforehand.

    Example::

        prior = np.zeros(3), np.eye(3)
        posterior = laplace_weights((X, Y), prior)
        print(certify_gaussian((X, Y), posterior, prior, hyperparameters="fixed"))
    """
    check_level(delta, settings)
    X, Y = checked_labels(data)
    mean, cov = checked_gaussian(posterior, "posterior", X.shape[1])
    centre, spread = checked_gaussian(prior, "prior", X.shape[1])
    kl = gaussian_divergence((mean, cov), (centre, spread))
    variance = np.einsum("np,pq,nq->n", X, cov, X, optimize=True)
    errors = errors_of_marginals(X @ mean, np.sqrt(np.maximum(variance, 0.0)), Y)
    return certificate_of(errors, kl, len(X), delta, settings, stated_origin(hyperparameters))


def gaussian_divergence(
    posterior: tuple[np.ndarray, np.ndarray], prior: tuple[np.ndarray, np.ndarray]
) -> float:
    """KL[N(m, V) || N(w_0, P_0)] in nats; cost p^3.

    m and w_0 are [p], V and P_0 [p, p]; raises `NumericalError` unless these are positive definite.
    """
    (mean, cov), (centre, spread) = posterior, prior
    roots = []
    for name, matrix in (("the posterior's covariance", cov), ("the prior's covariance", spread)):
        chol, ok = cholesky(tf.constant(matrix))
        if not ok:
            raise diagnose(name, matrix)
        roots.append(chol)
    root = solve(roots[1], roots[0])  # L_0^-1 L_V, lower triangular
    whitened = solve(roots[1], tf.constant(mean - centre)[:, None])
    return max(float(kl_from_whitened(whitened, root[None])), 0.0)  # (T14)


def checked_labels(data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    """Features X [N, p] and labels Y [N, 1], 0 or 1, as float64; `DataError` for anything else."""
    X, Y = (as_values(array, name, np.float64) for array, name in zip(as_pair(data), "XY"))
    likelihood = BernoulliLogit()
    check_shapes_of_data(X, Y, likelihood, 1, None, tf.float64)
    check_values(X, Y, likelihood)
    return X, Y.astype(np.float64)


def checked_gaussian(
    pair: Sequence[npt.ArrayLike], name: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [p] and covariance [p, p] of p = `size` weights, as float64."""
    if not isinstance(pair, (tuple, list)) or len(pair) != _PAIR:
        raise DataError(f"{name} is a {type(pair).__name__}; pass (mean [p], covariance [p, p]).")
    shapes = {"mean": (size,), "covariance": (size, size)}
    found = []
    for value, (part, shape) in zip(pair, shapes.items()):
        label = f"{name}'s {part}"
        array = as_values(value, label, np.float64)
        check_type(array, label, np.float64)
        if array.shape != shape:
            raise DataError(
                f"{label} has shape {array.shape} and X has {size} columns; pass {list(shape)}."
            )
        check_finite_entries(array, label)
        found.append(array)
    mean, cov = found
    if np.max(np.abs(cov - cov.T)) > _ASYMMETRY * np.max(np.abs(cov)):
        raise DataError(
            f"{name}'s covariance is not symmetric; pass 0.5 * (V + V.T) if that is what was meant."
        )
    return mean, cov


# ---


# With t_n = 2 y_n - 1, the log posterior of the weights is strictly concave:
#
#   log p(w | y) = sum_n log sigma(t_n phi_n^T w) - (w - w_0)^T P_0^-1 (w - w_0) / 2 + constant
#
# V^-1 = P_0^-1 + sum_n s_n (1 - s_n) phi_n phi_n^T at the mode, s_n = sigma(phi_n^T m).


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
