"""A mean sum_i k(x, z_i) a_i."""

# An unbiased estimate of the squared norm a^T C a from m of M rows is (M / m) sum_i a_i (C a)_i
# (D25). With coefficients whitened by a frozen C_0, a^T C_0 a = |a~|^2 is exact and only the rest
# is estimated: without variance just after a refresh.

from __future__ import annotations

__all__ = ["KernelMean"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...compilation import traced_for_xla
from ...covariances.products import gram_norm, gram_product
from ...errors import DataError
from ...inducing.variables import as_inducing, count_points
from ...inputs import check_whole, is_whole
from ...summaries import short_repr
from .scaling import MeanScaling


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
