"""The kernel of a linear function whose weights have a Gaussian prior with any covariance."""

from __future__ import annotations

__all__ = ["LinearWeights"]

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import triangular

from ..errors import DataError
from ..linalg.cholesky import cholesky


class LinearWeights(Kernel):
    """k(x, x') = x^T S x', the covariance of f(x) = x^T w for weights w with prior covariance S.

    :param covariance: S [p, p]. :param active_dims: the p columns of X that the weights belong to; all if not given.

    `gpflow.kernels.Linear` is the same with a diagonal S. The prior is taken as given: its factor is not trainable unless
    `gpflow.utilities.set_trainable` says so. Raises `DataError` unless S is finite, symmetric and positive definite.
    Cost of a Gram matrix of N inputs: N p^2 + N^2 p.
    """

    def __init__(self, covariance: Any, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.scale_tril = Parameter(_factor(covariance), transform=triangular(), trainable=False)
        self._validate_ard_active_dims(self.scale_tril)

    @property
    def num_weights(self) -> int:
        """The number of weights p."""
        return int(self.scale_tril.shape[0])

    @property
    def covariance(self) -> tf.Tensor:
        """S [p, p]."""
        return tf.matmul(self.scale_tril, self.scale_tril, transpose_b=True)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """x^T S x' between the rows of X [..., N, p], or of X and X2 [..., N2, p]."""
        left = self._whitened(X)
        if X2 is None:
            return tf.matmul(left, left, transpose_b=True)
        return tf.tensordot(left, self._whitened(X2), [[-1], [-1]])

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        """x^T S x of each row of X [..., N, p]."""
        return tf.reduce_sum(tf.square(self._whitened(X)), axis=-1)

    def _whitened(self, X: TensorType) -> tf.Tensor:
        """x^T R of each row, S = R R^T: the kernel is their inner product."""
        return tf.tensordot(X, tf.convert_to_tensor(self.scale_tril), [[-1], [0]])


def _factor(covariance: Any) -> np.ndarray:
    """The lower Cholesky factor [p, p]; raises `DataError` where there is none."""
    S = np.asarray(covariance, dtype=default_float())
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not len(S):
        raise DataError(
            f"covariance has shape {list(S.shape)}; it must be [p, p], p weights. For independent weights with prior "
            "variances [p] use gpflow.kernels.Linear(variance=variances)."
        )
    if not np.all(np.isfinite(S)):
        raise DataError(f"covariance has {int(np.sum(~np.isfinite(S)))} entries that are NaN or infinite: repair them.")
    gap = np.abs(S - S.T)
    if np.max(gap) > np.sqrt(np.finfo(S.dtype).eps) * np.max(np.abs(S)):
        row, column = np.unravel_index(np.argmax(gap), gap.shape)
        raise DataError(
            f"covariance is not symmetric: [{row}, {column}] is {S[row, column]:g} and [{column}, {row}] is "
            f"{S[column, row]:g}; use 0.5 * (S + S.T) if that is rounding."
        )
    chol, ok = cholesky(tf.constant(0.5 * (S + S.T)))
    if not bool(ok):
        raise DataError(
            f"covariance ({len(S)} x {len(S)}) is not positive definite: its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(S)[0]:.3g}. It must be the covariance of a proper Gaussian prior (not its precision or "
            "its factor); if it is only nearly singular, add a small multiple of numpy.eye(p)."
        )
    return chol.numpy()
