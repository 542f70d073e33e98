"""The exact log density of observations."""

from __future__ import annotations

__all__ = ["Observed"]

import copy
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.centring import covariance
from ...linalg.cholesky import CholeskyFactor, cholesky
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
        K = self._covariance(dtype)
        return normal_log_density(K, tf.cast(self.y, K.dtype))

    def factor(self) -> CholeskyFactor:
        """The Cholesky factor of K + D in double precision; N^3 / 3."""
        return cholesky(self._covariance(tf.float64))

    def in_double(self) -> Observed:
        """The same observations in double precision; unchanged if the kernel has no such form."""
        if self.X.dtype == tf.float64:
            return self
        twins = {
            id(part): gpflow.Parameter(tf.cast(part, tf.float64), dtype=tf.float64)
            for part in self.kernel.parameters
        }
        kernel = copy.deepcopy(self.kernel, twins)
        X, y, noise = (tf.cast(part, tf.float64) for part in self[1:])
        try:
            kernel(X[:1]), kernel(X[:1], full_cov=False)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            return self  # a kernel of the user's, with constants in single precision
        return Observed(kernel, X, y, noise)

    def round_off(self, quadratic: float, width: int) -> float:
        """Nats by which round-off may have changed the log density, to first order.

        :param quadratic: y^T (K + D)^-1 y, summed over columns.
        :param width: rows w of the largest matrix that was factorised.
        """
        # A Cholesky factor of w rows belongs to a matrix that differs by E, where |E_ij| is at most
        # some sqrt(w) epsilons of sqrt(A_ii A_jj), A = K + D (Higham & Mary 2019). Half of
        # tr(A^-1 E) and of a^T E a, a = A^-1 y, are the changes, and A^-1 is at most 1 / min D.
        N, R = (int(size) for size in self.y.shape)
        size = float(tf.reduce_max(self.kernel(self.X, full_cov=False) + self.noise))
        worst = size / float(tf.reduce_min(self.noise)) * np.finfo(self.X.dtype.as_numpy_dtype).eps
        return worst * (width**1.5 * quadratic + width * N * R)

    def _covariance(self, dtype: tf.DType | None) -> tf.Tensor:
        K = covariance(self.kernel, self.X)
        K, noise = (tf.cast(part, dtype or K.dtype) for part in (K, self.noise))
        return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise)
