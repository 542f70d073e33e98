"""The linear system, its preconditioner and certificates."""

# The bound's maximum over the mean solves (K + D) a = y~ (D34). At any a, with residual r and Q =
# A^T A = K_xb K_b^-1 K_bx,
#
#   -2 (bound - constant) = r^T (Q + D)^-1 r + 2 a^T y~ - a^T (K + D) a   (D32)
#
# The gap, half of the first term, bounds the distance from the maximum: as Q <= K, the last two
# terms never exceed y~^T (K + D)^-1 y~.

from __future__ import annotations

__all__ = ["MeanSystem"]

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...bases.parts.data_mean import DataMean, data_points
from ...covariances.products import follows_dtype, gram_product
from ...errors import NumericalError
from ...linalg.cholesky import cholesky
from ...replicas import Group
from .neighbour_factors import Factor
from .row_features import RowFeatures

Progress = Callable[[float], None]

_POWER_STEPS = 30
_ROUNDED_ROWS, _ROUNDING_STEPS = 2048, 3
"""Rows for measuring the errors of a product: above the thousand always in full precision."""


@dataclass
class MeanSystem:
    """(K + D) a = y~ for each latent.

    :param projections: A at beta and at the points of the preconditioner.
    :param weights: w [N, L], above zero; then w of each column of the target [N, L S].
    :param target: y~ [N, L S].
    :param draws: S, right-hand sides per latent in neighbouring columns, with one factorisation.
    """

    kernel: Kernel
    mean: DataMean
    projections: RowFeatures
    weights: tf.Tensor
    target: tf.Tensor
    group: Group = field(default_factory=Group)
    """Whose replicas share the products; each worker does all else."""
    draws: int = 1
    factors: tuple[Factor, ...] = ()
    """The preconditioner of neighbours, one for all latents or one each; empty for points."""
    chol: tf.Tensor = field(init=False)
    """Cholesky factor of I + A W A^T [L, R, R]; its leading block [L, M, M] is beta's."""

    def __post_init__(self) -> None:
        self.chol, ok = cholesky(self.projections.precision(self.weights))
        if not bool(ok):
            raise NumericalError(
                "I + A W A^T could not be factorised: the kernel or the noise variance is not"
                " finite, or far too small.",
                "I + A W A^T",
            )
        if self.draws > 1:
            self.weights = tf.repeat(self.weights, self.draws, axis=1)

    @property
    def size(self) -> int:
        """M, the points of beta."""
        return self.projections.size

    def product(
        self, a: tf.Tensor, dtype: tf.DType | None, progress: Progress | None = None
    ) -> tf.Tensor:
        """(K + D) a [N, L S], K in `dtype` and sums in the dtype of a; N^2 (D + L S)."""
        points, group = self.mean.points, self.group
        return (
            gram_product(self.kernel, points, None, a, dtype=dtype, progress=progress, group=group)
            + a / self.weights
        )

    def precondition(self, residual: tf.Tensor) -> tf.Tensor:
        """(Q_R + D)^-1 r [N, L S], N R L S; or by `factors`, N m L S and, with points, N R L S."""
        if self.factors:
            columns = tf.split(residual, len(self.factors), axis=1)
            return tf.concat([one.solve(r) for one, r in zip(self.factors, columns)], axis=1)
        scaled, half = self._halfway(residual)
        back = tf.linalg.triangular_solve(self.chol, half, adjoint=True)
        return scaled - self.weights * self.projections.transposed(_columns(back))

    def inner(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Inner products [1, L S] of the columns, each of a system by itself."""
        return tf.reduce_sum(left * right, axis=0, keepdims=True)

    def gap(self, residual: tf.Tensor) -> float:
        """Return 1/2 r^T (Q + D)^-1 r in nats, summed over latents, by the first worker; N R L S.

        The largest of several draws: the minimum over t of |W^1/2 (r - A^T t)|^2 + |t|^2, an upper
        bound at any t; a difference would be round-off for little noise.
        """
        size = self.projections.size
        half = self._halfway(residual)[1][:, :size]
        t = tf.linalg.triangular_solve(self.chol[:, :size, :size], half, adjoint=True)  # [L, M, S]
        rest = residual - self.projections.transposed(_columns(t))
        squares = tf.reduce_sum(tf.square(t), axis=1)  # [L, S]
        twice = squares + tf.reshape(
            tf.reduce_sum(self.weights * tf.square(rest), axis=0), squares.shape
        )
        # np.max keeps what is not a number
        return self.group.first(0.5 * float(np.max(tf.reduce_sum(twice, axis=0))))

    def inducing_mean(self, a: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        """Best whitened mean of q(u) [M, L] given a; N M L."""
        size = self.projections.size
        half = self._halfway(residual)[1][:, :size]
        chol = self.chol[:, :size, :size]
        return self.projections.times(a, size) + _columns(
            tf.linalg.triangular_solve(chol, half, adjoint=True)
        )

    def inducing_precision(self) -> tf.Tensor:
        """S~^-1 = I + A W A^T of beta [L, M, M]: (D26), and (D46) with a full step."""
        size = self.projections.size
        chol = self.chol[:, :size, :size]
        return tf.matmul(chol, chol, transpose_b=True)

    def largest(self) -> tf.Tensor:
        """Estimate the largest eigenvalue [L] of I + W^1/2 Q_R W^1/2 by power steps; R^2 L each."""
        seed = tf.zeros([2], tf.int32)
        vector = tf.random.stateless_normal(self.chol.shape[:2], seed, dtype=self.chol.dtype)[
            ..., None
        ]
        for _ in range(_POWER_STEPS):
            vector /= tf.norm(vector, axis=1, keepdims=True)
            vector = tf.matmul(self.chol, tf.matmul(self.chol, vector, transpose_a=True))
        return tf.norm(vector, axis=1)[:, 0]

    def rounding(self, dtype: tf.DType) -> float:
        """Estimate the spectral norm of W^1/2 (K' - K) W^1/2 for K' computed in `dtype`."""
        # K' can replace K where this is well below 1. Power steps on some rows; the norm grows with
        # the root of the number of rows.
        if not follows_dtype(self.kernel, self.mean.points):
            return 0.0
        count = len(self.target)
        rows = np.linspace(0, count - 1, min(count, _ROUNDED_ROWS)).astype(int)
        points = data_points(tf.gather(self.mean.inputs, rows), self.mean.shared)
        root = tf.sqrt(tf.gather(self._latent_weights(), rows))
        vector = tf.random.stateless_normal(root.shape, tf.zeros([2], tf.int32), dtype=root.dtype)
        for _ in range(_ROUNDING_STEPS):
            scaled = root * tf.math.divide_no_nan(vector, tf.norm(vector, axis=0))
            low, full = (
                gram_product(self.kernel, points, None, scaled, dtype=kind)
                for kind in (dtype, None)
            )
            vector = root * (low - full)
        size = float(tf.reduce_max(tf.norm(vector, axis=0)))
        return self.group.first(size * np.sqrt(count / len(rows)))

    def _latent_weights(self) -> tf.Tensor:
        return self.weights[:, :: self.draws]

    def _halfway(self, residual: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scaled = self.weights * residual
        pulled = self.projections.times(scaled)
        per_latent = tf.transpose(
            tf.reshape(pulled, [-1, self.chol.shape[0], self.draws]), [1, 0, 2]
        )
        return scaled, tf.linalg.triangular_solve(self.chol, per_latent)


def _columns(per_latent: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.transpose(per_latent, [1, 0, 2]), [per_latent.shape[1], -1])
