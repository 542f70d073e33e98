"""Coordinates of mean coefficients."""

# m(x) = sum_i k(x, gamma_i) a_i is badly conditioned in a. The Parameter is a~ with a = T a~; the
# preconditioner T is frozen between calls of `refresh`, and has no gradient.
#
# | scaling | T | a plain gradient step in a~ is |
# |---|---|---|
# | none | I | a plain gradient step in a |
# | diagonal | diag(d + eps)^-1/2, (D22) | the diagonal rule (16) = (D42) |
# | whitened | L_c^-T with L_c L_c^T = C + eps I, (D23) | the natural gradient (15a) = (D41) |

from __future__ import annotations

__all__ = ["MeanScaling", "SCALINGS"]

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import Module

from ...errors import DataError, ModelError, check_option
from ...linalg.cholesky import cholesky, diagnose, jitter
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import solve_frozen

SCALINGS = ("none", "diagonal", "whitened")
LARGEST_WHITENED = 20_000
"""Mean points that can be whitened; the factor of more would need over 3 GB."""


class MeanScaling(Module):
    """The frozen map a = T a~ of one set of mean coefficients [M, L]."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        check_option("mean_scaling", kind, SCALINGS)
        if kind == "whitened" and size > LARGEST_WHITENED:
            raise DataError(
                f'mean_scaling="whitened" would store {size} x {size} numbers; use'
                f' mean_scaling="diagonal" for more than {LARGEST_WHITENED} mean points.'
            )
        self.kind = kind
        self.frozen: tf.Variable | None = None
        """chol(C + eps I) [G, M, M] if whitened, sqrt(d + eps) [G, M] if diagonal; None is I."""

    def raw(self, scaled: tf.Tensor) -> tf.Tensor:
        """a = T a~ for a~ [M, L]; M^2 L if whitened."""
        if self.frozen is None:
            return tf.convert_to_tensor(scaled)
        if self.kind == "diagonal":
            return scaled / tf.transpose(self.frozen)  # (D22)
        return self._solve(tf.convert_to_tensor(scaled), adjoint=True)  # (D23)

    def dual(self, gradient: tf.Tensor) -> tf.Tensor:
        """T^T applied to a gradient [M, L] in a: the gradient in a~."""
        if self.frozen is None:
            return gradient
        return (
            gradient / tf.transpose(self.frozen)
            if self.kind == "diagonal"
            else self._solve(gradient, adjoint=False)
        )

    def scaled(self, raw: tf.Tensor) -> tf.Tensor:
        """a~ = T^-1 a for a [M, L]."""
        if self.frozen is None:
            return raw
        if self.kind == "diagonal":
            return raw * tf.transpose(self.frozen)
        return apply_per_latent(self.frozen, raw, adjoint=True)

    def frozen_product(self, scaled: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Rows [m, L] of (C + eps I) a = L_c a~ at the frozen C, whitened coordinates only."""
        return apply_per_latent(tf.gather(self.frozen, rows, axis=-2), scaled)

    def refresh(
        self,
        scaled: tf.Variable,
        matrix: Callable[[], tf.Tensor],
        diagonal: Callable[[], tf.Tensor],
        minuend: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        """Recompute T at the current C and freeze it; a does not change. M^3 / 3 if whitened.

        :param scaled: the Parameter a~ [M, L], which is rewritten.
        :param matrix: returns C [G, M, M]; `diagonal` its diagonal [G, M].
        :param minuend: if C is a difference A - B, returns the diagonal [G, M] of A, for the
            jitter.
        """
        if self.kind == "none":
            return
        if not tf.executing_eagerly():
            raise ModelError(
                f'mean_scaling="{self.kind}" is factorised where its result can be checked: build'
                " the model, and call refresh, outside of a tf.function."
            )

        def jittered(variances: tf.Tensor) -> tf.Tensor:
            return variances + jitter(variances if minuend is None else minuend())

        if self.kind == "diagonal":
            values = tf.sqrt(jittered(tf.maximum(diagonal(), 0.0)))
        else:
            matrix_value = matrix()
            matrix_value = tf.linalg.set_diag(
                matrix_value, jittered(tf.linalg.diag_part(matrix_value))
            )
            values, ok = cholesky(matrix_value)
            if not ok:
                raise diagnose("The residual kernel at gamma", matrix_value.numpy())
        raw = self.raw(scaled)
        if self.frozen is None:
            self.frozen = tf.Variable(values, trainable=False)
        else:
            self.frozen.assign(values)
        scaled.assign(self.scaled(raw))

    def _solve(self, vectors: tf.Tensor, adjoint: bool) -> tf.Tensor:
        chol = tf.convert_to_tensor(self.frozen)
        if chol.shape[0] == 1:
            return solve_frozen(chol[0], vectors, adjoint)
        return tf.transpose(solve_frozen(chol, tf.transpose(vectors)[..., None], adjoint)[..., 0])
