"""From mean coefficients to the mean at data, and back."""

from __future__ import annotations

__all__ = ["MeanOperator"]

from typing import NamedTuple

import tensorflow as tf

from ...linalg.gaussians import apply_per_latent


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
