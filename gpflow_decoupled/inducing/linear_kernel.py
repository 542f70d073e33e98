"""The kernel of a linear function of Gaussian weights."""

from __future__ import annotations

__all__ = ["LinearWeights"]

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import triangular
from numpy.typing import ArrayLike

from ..errors import DataError
from ..linalg.cholesky import cholesky


class LinearWeights(Kernel):
    """The covariance x^T S x' of f(x) = x^T w, for weights w with prior covariance S [p, p].

    :param covariance: S, symmetric and positive definite.
    :param active_dims: columns of X that the kernel reads, as in GPflow.

    Example::

        kernel = LinearWeights(np.diag([1.0, 0.1]))
        model = CVIGP((X, Y), kernel, gpflow.likelihoods.Gaussian())
    """

    def __init__(self, covariance: ArrayLike, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.scale_tril = Parameter(_factor(covariance), transform=triangular(), trainable=False)
        self._validate_ard_active_dims(self.scale_tril)

    @property
    def num_weights(self) -> int:
        """The number of weights p."""
        return int(self.scale_tril.shape[0])

    @property
    def covariance(self) -> tf.Tensor:
        """The prior covariance S [p, p] of the weights."""
        return tf.matmul(self.scale_tril, self.scale_tril, transpose_b=True)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """x^T S x' for rows of X [..., N, p], and of X2 [..., N2, p] if given."""
        left = self._whitened(X)
        if X2 is None:
            return tf.matmul(left, left, transpose_b=True)
        return tf.tensordot(left, self._whitened(X2), [[-1], [-1]])

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        """x^T S x for each row of X [..., N, p]."""
        return tf.reduce_sum(tf.square(self._whitened(X)), axis=-1)

    def _whitened(self, X: TensorType) -> tf.Tensor:
        return tf.tensordot(X, tf.convert_to_tensor(self.scale_tril), [[-1], [0]])


def _factor(covariance: ArrayLike) -> np.ndarray:
    S = np.asarray(covariance, dtype=default_float())
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not len(S):
        raise DataError(
            f"covariance has shape {list(S.shape)}; it must be [p, p], for p weights. For"
            " independent weights with prior variances [p] use"
            " gpflow.kernels.Linear(variance=variances)."
        )
    if not np.all(np.isfinite(S)):
        raise DataError(
            f"covariance has {int(np.sum(~np.isfinite(S)))} entries that are NaN or infinite:"
            " repair them."
        )
    gap = np.abs(S - S.T)
    if np.max(gap) > np.sqrt(np.finfo(S.dtype).eps) * np.max(np.abs(S)):
        row, column = np.unravel_index(np.argmax(gap), gap.shape)
        raise DataError(
            f"covariance is not symmetric: [{row}, {column}] is {S[row, column]:g} and [{column},"
            f" {row}] is {S[column, row]:g}; pass 0.5 * (S + S.T) if the difference is due to"
            " rounding."
        )
    chol, ok = cholesky(tf.constant(0.5 * (S + S.T)))
    if not bool(ok):
        raise DataError(
            f"covariance ({len(S)} x {len(S)}) is not positive definite: its smallest eigenvalue is"
            f" {np.linalg.eigvalsh(S)[0]:.3g}. It must be the covariance of a proper Gaussian prior"
            " (not its precision or its factor); if it is only nearly singular, add a small"
            " multiple of numpy.eye(p)."
        )
    return chol.numpy()
