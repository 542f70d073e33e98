"""Log densities of centred normal vectors, by LAPACK: K^-1 by `potri` takes a fifth of a gradient
through the factor.
"""

from __future__ import annotations

__all__ = ["NormalDensity", "normal_density", "normal_log_density"]

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.linalg import get_lapack_funcs


class NormalDensity(NamedTuple):
    """log N(r; 0, K) in nats, summed over columns of r, and gradients; NaN for an unusable K."""

    value: float
    of_covariance: np.ndarray
    """1/2 (A A^T - P K^-1) with A = K^-1 r, [N, N]"""
    of_columns: np.ndarray
    """-A [N, P]"""


def normal_density(K: np.ndarray, r: np.ndarray) -> NormalDensity:
    """The log density of the P columns of r [N, P] under a covariance K [N, N], on arrays."""
    value, chol, A = _factorised(K, r)
    return NormalDensity(float(value), _of_covariance(chol, A), -A)


def normal_log_density(K: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
    """The same log density in nats, a scalar, in a graph too; differentiable once.

    NaN where K is not positive definite. XLA refuses it.
    """
    return _density(tf.convert_to_tensor(K), tf.convert_to_tensor(r))


@tf.custom_gradient
def _density(
    K: tf.Tensor, r: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    value, chol, A = tf.numpy_function(_factorised, [K, r], [K.dtype] * 3, stateful=False)
    value.set_shape([])
    chol.set_shape(K.shape)
    A.set_shape(r.shape)

    def pulled_back(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_K = tf.numpy_function(_of_covariance, [chol, A], K.dtype, stateful=False)
        of_K.set_shape(K.shape)
        return upstream * of_K, -upstream * A

    return value, pulled_back


@np.errstate(all="ignore")  # overflow is a density that is not finite, and no warning
def _factorised(K: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    factorise, solve = get_lapack_funcs(("potrf", "potrs"), (K,))
    chol, failed = factorise(K, lower=1, clean=1)
    if failed:
        return np.asarray(math.nan, K.dtype), np.full_like(K, math.nan), np.full_like(r, math.nan)
    A = np.ascontiguousarray(solve(chol, r, lower=1)[0])
    N, P = r.shape
    log_det = 2.0 * np.sum(np.log(np.diag(chol)))
    value = -0.5 * (np.sum(r * A) + P * (log_det + N * math.log(2.0 * math.pi)))
    return np.asarray(value, K.dtype), np.ascontiguousarray(chol), A


@np.errstate(all="ignore")
def _of_covariance(chol: np.ndarray, A: np.ndarray) -> np.ndarray:
    (invert,) = get_lapack_funcs(("potri",), (chol,))
    inverse = np.tril(invert(chol, lower=1)[0])
    inverse += np.tril(inverse, -1).T
    return 0.5 * (A @ A.T - A.dtype.type(A.shape[1]) * inverse)
