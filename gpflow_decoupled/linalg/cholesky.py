"""The only place that factorises a matrix or adds jitter.

TensorFlow returns NaN silently when a matrix is not positive definite, in eager, graph and XLA mode. So every
factorisation here travels with a status, which the training loop reads on the host.
"""

from __future__ import annotations

__all__ = ["Factor", "add_jitter", "cholesky", "diagnose", "jitter"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter

from ..errors import NumericalError
from .triangular import lower_transposed_product, mirror, solve

_ULPS = 500.0
"""Least jitter, in units in the last place of the mean diagonal: 1e-13 in float64, 6e-5 in float32."""


class Factor(NamedTuple):
    """A Cholesky factor and whether the factorisation succeeded."""

    chol: tf.Tensor
    """[..., M, M], lower triangular."""
    ok: tf.Tensor
    """[], bool: false if any matrix of the batch was not positive definite."""


def jitter(diagonal: tf.Tensor) -> tf.Tensor:
    """What to add to a diagonal [..., M] before factorising: [..., 1].

    GPflow's default jitter, or 500 ulp of the mean diagonal if that is more. In float64 this is GPflow's own jitter, so
    that results equal GPflow's to round-off; in float32, where that is below round-off, it follows the matrix's scale.
    """
    scale = tf.reduce_mean(tf.stop_gradient(diagonal), axis=-1, keepdims=True)
    floor = tf.constant(_ULPS * np.finfo(diagonal.dtype.as_numpy_dtype).eps, diagonal.dtype) * scale
    return tf.maximum(floor, tf.constant(default_jitter(), diagonal.dtype))


def add_jitter(matrix: tf.Tensor) -> tf.Tensor:
    """The matrix [..., M, M] with `jitter` added to its diagonal."""
    diagonal = tf.linalg.diag_part(matrix)
    return tf.linalg.set_diag(matrix, diagonal + jitter(diagonal))


def cholesky(matrix: tf.Tensor) -> Factor:
    """Lower Cholesky factor of a symmetric matrix [..., M, M], with its status and a fast gradient; M^3 / 3.

    The gradient is written out: two triangular solves with M right-hand sides, where TensorFlow's own forms an inverse.
    """
    chol = _cholesky(matrix)
    return Factor(chol, tf.reduce_all(tf.math.is_finite(tf.linalg.diag_part(tf.stop_gradient(chol)))))


@tf.custom_gradient
def _cholesky(matrix: tf.Tensor) -> tuple:
    chol = tf.linalg.cholesky(matrix)

    def grad(upstream: tf.Tensor) -> tf.Tensor:
        # dL = L phi(L^-1 dK L^-T), phi: lower triangle with half the diagonal
        share = mirror(lower_transposed_product(chol, tf.linalg.band_part(upstream, -1, 0)))
        half = solve(chol, 0.5 * share, adjoint=True)
        return solve(chol, tf.linalg.matrix_transpose(half), adjoint=True)

    return chol, grad


def diagnose(name: str, matrix: np.ndarray) -> NumericalError:
    """The error for a matrix [..., M, M] whose factorisation failed: name, size, diagonal, condition and fixes."""
    matrix = np.asarray(matrix, dtype=np.float64)
    size = matrix.shape[-1]
    if not np.all(np.isfinite(matrix)):
        count = int(np.sum(~np.isfinite(matrix)))
        return NumericalError(
            f"{name} ({size} x {size}) has {count} entries that are NaN or infinite. Likely fixes: a smaller "
            "learning_rate, inputs scaled to unit variance, bounds or priors on the kernel's parameters.",
            matrix=name,
        )
    eigenvalues = np.linalg.eigvalsh(matrix)
    low, high = float(np.min(eigenvalues)), float(np.max(eigenvalues))
    condition = f"{high / low:.1e}" if low > 0 else "infinite"
    return NumericalError(
        f"{name} ({size} x {size}) is not positive definite: smallest diagonal "
        f"{np.min(np.diagonal(matrix, axis1=-2, axis2=-1)):.3g}, smallest eigenvalue {low:.3g}, condition {condition}. "
        "Likely fixes: a larger jitter (gpflow.config.set_default_jitter(1e-5)), fewer or better separated inducing "
        "points (gpflow_decoupled.inducing.select), inputs scaled to unit variance.",
        matrix=name,
    )
