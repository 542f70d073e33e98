"""A Gaussian part of q by its natural parameters, on its way from one step to the next."""

from __future__ import annotations

__all__ = ["Natural"]

from typing import NamedTuple

import tensorflow as tf

from ...bases import Gaussian
from ...linalg.gaussians import apply_per_latent, precision_factor, root_from_factor


class Natural(NamedTuple):
    """Whitened: theta = S^-1 m and P = S^-1, with the factorisation that says whether P is positive definite."""

    theta: tf.Tensor | None
    """[M, L]; None where the basis ties only the covariance to this part."""
    precision: tf.Tensor
    """[L, M, M]"""
    factor: tf.Tensor
    """[L, M, M], see `precision_factor`."""
    ok: tf.Tensor
    """[], bool"""

    @classmethod
    def of(cls, theta: tf.Tensor | None, precision: tf.Tensor) -> Natural:
        """With its factorisation; M^3 / 3 a latent."""
        factor, ok = precision_factor(precision)
        return cls(theta, precision, factor, ok if theta is None else ok & tf.reduce_all(tf.math.is_finite(theta)))

    def gaussian(self) -> Gaussian:
        """Mean and root; M^3 / 2 a latent."""
        root = root_from_factor(self.factor)
        if self.theta is None:
            return Gaussian(None, root)
        return Gaussian(apply_per_latent(root, apply_per_latent(root, self.theta, adjoint=True)), root)
