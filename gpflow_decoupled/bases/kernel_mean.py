"""From mean coefficients to the mean at data, and back."""

from __future__ import annotations

__all__ = ["KernelMean", "MeanOperator", "MeanScaling", "SCALINGS"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..compilation import traced_for_xla
from ..covariances.products import gram_norm, gram_product
from ..errors import DataError, ModelError, check_option
from ..inducing.variables import as_inducing, count_points
from ..inputs import check_whole, is_whole
from ..linalg.cholesky import cholesky, diagnose, jitter
from ..linalg.triangular import solve_frozen
from ..linalg.whitening import apply_per_latent
from ..summaries import short_repr

# ---
# Coordinates of mean coefficients.


# m(x) = sum_i k(x, gamma_i) a_i is badly conditioned in a. The Parameter is a~ with a = T a~; the
# preconditioner T is frozen between calls of `refresh`, and has no gradient.
#
# | scaling | T | a plain gradient step in a~ is |
# |---|---|---|
# | none | I | a plain gradient step in a |
# | diagonal | diag(d + eps)^-1/2, (D22) | the diagonal rule (16) = (D42) |
# | whitened | L_c^-T with L_c L_c^T = C + eps I, (D23) | the natural gradient (15a) = (D41) |


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


# ---
# A mean sum_i k(x, z_i) a_i.


# An unbiased estimate of the squared norm a^T C a from m of M rows is (M / m) sum_i a_i (C a)_i
# (D25). With coefficients whitened by a frozen C_0, a^T C_0 a = |a~|^2 is exact and only the rest
# is estimated: without variance just after a refresh.


class KernelMean(Module):
    """The mean sum_i k(x, z_i) a_i, a [M, L]; its Parameter is a~, a = T a~, see `MeanScaling`.

    :param points: z [M, D], or a GPflow inducing variable.
    :param scaling: the map T: "none", "diagonal" or "whitened".
    :param subsample: rows m of the estimate (D25); None for all.
    """

    def __init__(
        self,
        points: InducingVariables | TensorType,
        name: str,
        num_latent_gps: int,
        scaling: str,
        subsample: int | None,
    ) -> None:
        super().__init__()
        check_whole(1, num_latent_gps=num_latent_gps)
        self.points = as_inducing(points, name)
        self.size = count_points(self.points)
        self.coefficients = Parameter(np.zeros((self.size, num_latent_gps)), dtype=default_float())
        self.scaling = MeanScaling(scaling, self.size)
        if subsample is not None and not is_whole(subsample, 1):
            raise DataError(
                f"mean_subsample={short_repr(subsample)}; use a whole number of rows of at least 1,"
                " or None for all."
            )
        self.subsample = subsample if subsample is not None and subsample < self.size else None

    def raw(self) -> tf.Tensor:
        """The raw coefficients a [M, L]."""
        return self.scaling.raw(self.coefficients)

    def values(self, kernel: Kernel, a: tf.Tensor, X: tf.Tensor | InducingVariables) -> tf.Tensor:
        """The mean K_xz a [N, L] at inputs X [N, D] or inducing variables; N M."""
        return gram_product(kernel, self.points, X, a, whole=True)

    def draw_rows(self, seed: tf.Tensor | None = None) -> tf.Tensor | None:
        """Distinct row indices [m] by `seed` [2] or TensorFlow's global one; None for all rows."""
        if self.subsample is None:
            return None
        if seed is None:
            seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
        if traced_for_xla():  # which has no shuffle
            return tf.argsort(tf.random.stateless_uniform([self.size], seed))[: self.subsample]
        return tf.random.experimental.stateless_shuffle(tf.range(self.size), seed=seed)[
            : self.subsample
        ]

    def products(self, kernel: Kernel, a: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Rows [m] of K_z a, [m, L]; m M."""
        return gram_product(kernel, self.points, None, a, rows=rows, whole=True)

    def norm(self, kernel: Kernel, a: tf.Tensor, rows: tf.Tensor | None) -> tf.Tensor:
        """The squared norm sum_l a_l^T K_z a_l, or its estimate from `rows` [m]; M^2 or m M."""
        if rows is None:
            return gram_norm(kernel, self.points, a)
        return self.estimate(a, self.products(kernel, a, rows), rows)

    def estimate(self, a: tf.Tensor, products: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Unbiased estimate of sum_l a_l^T C a_l from `rows` [m] of C a, [m, L]."""
        share = tf.cast(self.size, a.dtype) / tf.cast(tf.shape(rows)[0], a.dtype)
        sampled = tf.gather(a, rows)
        if self.scaling.kind != "whitened" or self.scaling.frozen is None:
            return share * tf.reduce_sum(sampled * products)  # (D25)
        scaled = tf.convert_to_tensor(self.coefficients)
        change = products - self.scaling.frozen_product(scaled, rows)
        # (D25) on C - C_0
        return tf.reduce_sum(tf.square(scaled)) + share * tf.reduce_sum(sampled * change)

    def refresh(
        self,
        matrix: Callable[[], tf.Tensor],
        diagonal: Callable[[], tf.Tensor],
        minuend: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        """Recompute the frozen scaling at the current C, see `MeanScaling.refresh`; same mean."""
        if self.size > 0:
            self.scaling.refresh(self.coefficients, matrix, diagonal, minuend)


# ---


class MeanOperator(NamedTuple):
    """Products with C_g and C_gx; C is the residual kernel given beta if orthogonal, else K.

    C is applied, not formed. One matrix per group of latents: G = 1 if all share kernel and points.
    """

    gram: tf.Tensor
    """K_g [G, M, M]."""
    cross: tf.Tensor
    """K_gx [G, M, N]."""
    projection: tf.Tensor | None = None
    """U = L_b^-1 K_bg [G, M_beta, M], or None."""
    data_projection: tf.Tensor | None = None
    """A = L_b^-1 K_bx [G, M_beta, N], or None."""

    def to_data(self, z: tf.Tensor) -> tf.Tensor:
        """C_xg z: [M, L] -> [N, L]; N M + M_beta (M + N)."""
        value = apply_per_latent(self.cross, z, adjoint=True)
        if self.projection is None:
            return value
        return value - apply_per_latent(
            self.data_projection, apply_per_latent(self.projection, z), adjoint=True
        )

    def from_data(self, y: tf.Tensor) -> tf.Tensor:
        """C_gx y: [N, L] -> [M, L]; N M + M_beta (M + N)."""
        value = apply_per_latent(self.cross, y)
        if self.projection is None:
            return value
        return value - apply_per_latent(
            self.projection, apply_per_latent(self.data_projection, y), adjoint=True
        )

    def product(self, z: tf.Tensor) -> tf.Tensor:
        """C_g z: [M, L] -> [M, L]; M^2 + M_beta M."""
        value = apply_per_latent(self.gram, z)
        if self.projection is None:
            return value
        return value - apply_per_latent(
            self.projection, apply_per_latent(self.projection, z), adjoint=True
        )

    def dense(self) -> tf.Tensor:
        """C_g [G, M, M]; M^2 M_beta."""
        if self.projection is None:
            return self.gram
        return self.gram - tf.matmul(self.projection, self.projection, transpose_a=True)
