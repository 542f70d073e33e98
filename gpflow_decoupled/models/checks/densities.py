"""Signs of a user's log densities."""

from __future__ import annotations

__all__ = ["check_densities"]

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood, ScalarLikelihood

from ...errors import DataError

_UNBOUNDED = 100.0
"""Nats that no log density gains so far from its label."""
_NODES = 20
"""Of the quadrature of a user's log density, as in GPflow."""
_BROKEN = (NotImplementedError, TypeError, ValueError, tf.errors.OpError)


def check_densities(X: np.ndarray, Y: np.ndarray, likelihood: Likelihood) -> None:
    """Refuse a user's likelihood whose log density, or its expectation, has a wrong sign.

    The first three rows of X [N, D] and Y [N, P] are tried.
    """
    own = not _comes_with_gpflow(type(likelihood)) and isinstance(likelihood, ScalarLikelihood)
    if not own or not tf.executing_eagerly() or len(X) == 0:
        return
    X, Y = X[:3], Y[:3].astype(X.dtype)
    _check_density(X, Y, likelihood)
    _check_expectations(X, Y, likelihood)


def _check_density(X: np.ndarray, Y: np.ndarray, likelihood: ScalarLikelihood) -> None:
    """Refuse a log density that grows without bound, as with a wrong sign."""
    # f is as far from zero as the labels, 100 and 10,000 times as far
    for side in (-1.0, 1.0):
        f = [(side * far * np.maximum(np.abs(Y), 1.0)).astype(X.dtype) for far in (1.0, 1e2, 1e4)]
        try:
            found = np.stack([likelihood.log_prob(X, at, Y) for at in f])
        except _BROKEN:
            return  # without a density there is nothing to look at; a broken one says so in use
        grows = (found[1:] > _UNBOUNDED) & (found[1:] > found[:-1] + _UNBOUNDED)
        if np.any(grows):
            at, row = np.argwhere(grows)[0]
            raise DataError(
                f"log p(y | f) of {type(likelihood).__name__} grows without bound: at Y ="
                f" {Y[row, 0]:.4g} it is {found[at, row]:.3g} nats at f = {f[at][row, 0]:.3g} and"
                f" {found[at + 1, row]:.3g} at f = {f[at + 1][row, 0]:.3g}. Turn the sign of what"
                " its _scalar_log_prob returns."
            )


def _check_expectations(X: np.ndarray, Y: np.ndarray, likelihood: ScalarLikelihood) -> None:
    """Refuse expected log densities above those that quadrature of the log density gives."""
    if _comes_with_gpflow(_owner(likelihood, "_variational_expectations")):
        return  # by quadrature of the log density, which was tried
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    ones, size = np.ones_like(Y), np.maximum(np.abs(Y), 1.0)
    for mean, variance in ((0.0 * Y, ones), (0.0 * Y, 1e4 * ones), (1e2 * size, ones)):
        f = mean + np.sqrt(variance) * nodes.astype(Y.dtype)[:, None, None]
        try:
            density = np.stack([likelihood.log_prob(X, at, Y) for at in f])
            found = np.asarray(likelihood.variational_expectations(X, mean, variance, Y))
        except _BROKEN:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            expected = weights @ density / np.sum(weights)
        # a looser bound, and few samples or nodes, are the user's choice
        above = np.isfinite(expected) & (found > expected + 1.0 + 0.5 * np.abs(expected))
        if np.any(above):
            row = int(np.flatnonzero(above)[0])
            raise DataError(
                f"The expected log density of {type(likelihood).__name__} is too large: at Y ="
                f" {Y[row, 0]:.4g} and f of mean {mean[row, 0]:.3g} and variance"
                f" {variance[row, 0]:.3g} it is {found[row]:.3g} nats, and {expected[row]:.3g} by"
                " quadrature of its log density. Check the signs in its _variational_expectations,"
                " or leave that method out."
            )


def _owner(likelihood: Likelihood, method: str) -> type:
    """The class whose definition of a method is used."""
    return next(kind for kind in type(likelihood).__mro__ if method in vars(kind))


def _comes_with_gpflow(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("gpflow", __package__.partition(".")[0])
