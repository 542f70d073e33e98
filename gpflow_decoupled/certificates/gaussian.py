"""Certificates of Gaussian weights, and the Laplace approximation of logistic regression."""

from __future__ import annotations

__all__ = ["certify_gaussian", "gaussian_divergence", "laplace_weights"]

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData
from scipy import linalg
from scipy.special import expit, log_expit

from ..errors import DataError, NumericalError
from ..inputs import as_pair, as_values, check_finite_entries, check_type
from ..likelihoods import BernoulliLogit
from ..linalg import cholesky, diagnose
from ..models import WeightsPosterior
from ..models.checks import check_shapes_of_data, check_values
from .certificate import (
    PacBayesCertificate,
    certificate_of,
    check_level,
    errors_of_marginals,
    stated_origin,
)


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
    X, Y = _checked_labels(data)
    mean, cov = _checked_gaussian(posterior, "posterior", X.shape[1])
    centre, spread = _checked_gaussian(prior, "prior", X.shape[1])
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
    of_cov = _root("the posterior's covariance", cov)
    of_spread = _root("the prior's covariance", spread)
    root = linalg.solve_triangular(of_spread, of_cov, lower=True)
    whitened = linalg.solve_triangular(of_spread, mean - centre, lower=True)
    log_ratio = 2.0 * np.sum(np.log(np.diag(root)))
    kl = 0.5 * (np.sum(root**2) + whitened @ whitened - len(mean) - log_ratio)  # (T14)
    return max(float(kl), 0.0)


def _root(name: str, matrix: np.ndarray) -> np.ndarray:
    chol, ok = cholesky(tf.constant(matrix))
    if not ok:
        raise diagnose(name, matrix)
    return chol.numpy()


def _checked_labels(data: RegressionData) -> tuple[np.ndarray, np.ndarray]:
    X, Y = (as_values(array, name, np.float64) for array, name in zip(as_pair(data), "XY"))
    likelihood = BernoulliLogit()
    check_shapes_of_data(X, Y, likelihood, 1, None, tf.float64)
    check_values(X, Y, likelihood)
    return X, Y.astype(np.float64)


def _checked_gaussian(
    pair: Sequence[npt.ArrayLike], name: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [p] and covariance [p, p] of p = `size` weights, as float64."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise DataError(f"{name} is a {type(pair).__name__}; pass (mean [p], covariance [p, p]).")
    found = []
    for value, part, shape in zip(pair, ("mean", "covariance"), ((size,), (size, size))):
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
    if np.max(np.abs(cov - cov.T)) > 1e-8 * np.max(np.abs(cov)):  # less is round-off
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
    X, Y = _checked_labels(data)
    centre, spread = _checked_gaussian(prior, "prior", X.shape[1])
    root = _root("the prior's covariance", spread)
    A, offset, signs = X @ root, X @ centre, 2.0 * Y[:, 0] - 1.0

    def value(u: np.ndarray) -> float:
        return float(np.sum(log_expit(signs * (offset + A @ u))) - 0.5 * u @ u)

    def hessian_root(u: np.ndarray) -> np.ndarray:
        f = offset + A @ u
        weighted = A * np.sqrt(expit(f) * expit(-f))[:, None]
        hessian = np.eye(A.shape[1]) + weighted.T @ weighted
        return _root("the Hessian of the logistic regression", hessian)

    u = np.zeros(A.shape[1])
    for _ in range(_STEPS):
        gradient = A.T @ (signs * expit(-signs * (offset + A @ u))) - u
        step = linalg.cho_solve((hessian_root(u), True), gradient)  # (T15)
        gain, here = 0.5 * float(gradient @ step), value(u)
        if gain <= 1e-20 + 1e-16 * abs(here):  # below round-off
            u = u + step
            break
        size = next((s for s in 0.5 ** np.arange(40) if value(u + s * step) >= here), 0.0)
        if size == 0.0:
            break
        u = u + size * step
    else:
        raise NumericalError(
            f"The mode of the logistic regression was not found in {_STEPS} Newton steps; the last"
            f" gain was {gain:.1e} nats. Scale the features to unit variance.",
            matrix="Hessian",
        )
    half = linalg.solve_triangular(hessian_root(u), root.T, lower=True)  # V = L_0 H^-1 L_0^T
    return WeightsPosterior(tf.constant(centre + root @ u), tf.constant(half.T @ half))
