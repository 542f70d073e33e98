"""The exact log density of observations."""

from __future__ import annotations

__all__ = ["Observed"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.centring import covariance
from ...linalg.normal_density import normal_log_density


class Observed(NamedTuple):
    """Observations with one covariance matrix K + D; R columns are independent.

    Example::

        Observed(gpflow.kernels.Matern52(), X, y, tf.fill([len(X)], 0.1)).log_density()
    """

    kernel: Kernel
    X: tf.Tensor
    """[N, D]."""
    y: tf.Tensor
    """[N, R]: less the mean function."""
    noise: tf.Tensor
    """[N]: variances, above zero."""

    def log_density(self, dtype: tf.DType | None = None) -> tf.Tensor:
        """log N(y; 0, K + D) in nats, a scalar; NaN where K + D cannot be factorised.

        Differentiable. Cost: N^3 / 3, and twice that for the gradient.

        :param dtype: of the factorisation; the kernel's if not given.
        """
        K = covariance(self.kernel, self.X)
        K, y, noise = (tf.cast(part, dtype or K.dtype) for part in (K, self.y, self.noise))
        return normal_log_density(tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise), y)
