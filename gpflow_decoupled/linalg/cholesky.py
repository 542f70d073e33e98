"""Cholesky factorisation, jitter and diagnosis."""

# TensorFlow returns NaN for an indefinite matrix, so every factor comes with a boolean.

from __future__ import annotations

__all__ = ["CholeskyFactor", "add_jitter", "cholesky", "diagnose", "jitter", "unsound"]

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_jitter

from ..errors import NumericalError
from .triangular import lower_transposed_product, mirror, solve

_ULPS = 500.0
"""Least jitter in machine epsilons of the mean diagonal: 1e-13 in float64, 6e-5 in float32."""
_FIXES = (
    "a larger jitter (gpflow.config.set_default_jitter(1e-5)), fewer or better separated inducing"
    " points (gpflow_decoupled.inducing.select)"
)


_INDEFINITE = 1e-3
"""A negative eigenvalue above this share of the largest one is no round-off, even in float32."""


class CholeskyFactor(NamedTuple):
    """A Cholesky factor and whether the factorisation succeeded."""

    chol: tf.Tensor
    """[..., M, M], lower triangular."""
    ok: tf.Tensor
    """[], bool: false if any matrix of the batch was not positive definite."""


def jitter(diagonal: tf.Tensor) -> tf.Tensor:
    """Return the jitter [..., 1] for matrices with diagonals [..., M].

    The larger of GPflow's default jitter and 500 machine epsilons of the mean diagonal.
    """
    # a constant of the derivative, as GPflow's jitter is
    scale = tf.reduce_mean(tf.stop_gradient(diagonal), axis=-1, keepdims=True)
    floor = tf.constant(_ULPS * np.finfo(diagonal.dtype.as_numpy_dtype).eps, diagonal.dtype) * scale
    return tf.maximum(floor, tf.constant(default_jitter(), diagonal.dtype))


def add_jitter(matrix: tf.Tensor, minuend: tf.Tensor | None = None) -> tf.Tensor:
    """Add `jitter` to the diagonal of a matrix.

    :param matrix: [..., M, M].
    :param minuend: A [..., M, M] if `matrix` is a difference A - B: round-off scales with its
        diagonal.
    """
    diagonal = tf.linalg.diag_part(matrix)
    size = diagonal if minuend is None else tf.linalg.diag_part(minuend)
    return tf.linalg.set_diag(matrix, diagonal + jitter(size))


def cholesky(matrix: tf.Tensor) -> CholeskyFactor:
    """Factorise a symmetric matrix, and report whether it was positive definite.

    Only the lower triangle of the matrix [..., M, M] is read; M^3 / 3 each.
    """
    # The gradient takes two triangular solves; TensorFlow's forms an inverse.
    chol = _cholesky(matrix)
    return CholeskyFactor(
        chol, tf.reduce_all(tf.math.is_finite(tf.linalg.diag_part(tf.stop_gradient(chol))))
    )


@tf.custom_gradient
def _cholesky(matrix: tf.Tensor) -> tuple:
    chol = tf.linalg.cholesky(matrix)

    def grad(upstream: tf.Tensor) -> tf.Tensor:
        # For a change dK of the matrix, dL = L phi(L^-1 dK L^-T), where phi keeps the lower
        # triangle and halves its diagonal. 1) the adjoint of phi and of the product with L
        share = mirror(lower_transposed_product(chol, tf.linalg.band_part(upstream, -1, 0)))
        # 2) the adjoint of the two solves: L^-T (share / 2) L^-1
        half = solve(chol, 0.5 * share, adjoint=True)
        return solve(chol, tf.linalg.matrix_transpose(half), adjoint=True)

    return chol, grad


def diagnose(name: str, matrix: np.ndarray, fixes: str = _FIXES) -> NumericalError:
    """Build the error for a failed factorisation: size, least diagonal, condition, likely fixes.

    Computes the eigenvalues of the matrix [..., M, M].
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    size = matrix.shape[-1]
    if not np.all(np.isfinite(matrix)):
        count = int(np.sum(~np.isfinite(matrix)))
        return NumericalError(
            f"{name} ({size} x {size}) has {count} entries that are NaN or infinite. Likely fixes:"
            " a smaller learning_rate, inputs scaled to unit variance, bounds or priors on the"
            " kernel's parameters, a formula of the kernel whose matrices are positive definite.",
            matrix=name,
        )
    eigenvalues = np.linalg.eigvalsh(matrix)
    low, high = float(np.min(eigenvalues)), float(np.max(eigenvalues))
    if low < -_INDEFINITE * max(high, 0.0):
        fixes = (
            "another formula of the kernel, which is not positive semi-definite: no jitter makes up"
            " for that"
        )
    condition = f"{high / low:.1e}" if low > 0 else "infinite"
    return NumericalError(
        f"{name} ({size} x {size}) is not positive definite: smallest diagonal"
        f" {np.min(np.diagonal(matrix, axis1=-2, axis2=-1)):.3g}, smallest eigenvalue {low:.3g},"
        f" condition {condition}. Likely fixes: {fixes}, inputs scaled to unit variance.",
        matrix=name,
    )


def unsound(matrices: Mapping[str, tf.Tensor]) -> NumericalError | None:
    """The error for the first named matrix [..., M, M] without a Cholesky factor, or None."""
    for name, matrix in matrices.items():
        values = matrix.numpy()
        if not bool(cholesky(matrix).ok) or np.min(np.linalg.eigvalsh(values)) <= 0:
            return diagnose(name, values)
    return None
