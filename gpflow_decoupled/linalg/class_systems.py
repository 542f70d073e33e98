"""Newton systems of sites that couple C latents, (I + H G)(x; y) = (r; q)."""

#   G = blockdiag(K_c, 1/2 V_c * V_c) per latent,
#   H = Q^T (E - E 1 1^T E / 1^T E 1) Q,   Q = (I, D) per observation,   E, D diagonal      (V35)
#
# The inner matrix is the limit of (E^-1 + k 1 1^T)^-1 for large k, and Q G Q^T is block diagonal:
# T_c = K_c + D_c (1/2 V_c * V_c) D_c. So the steps differ from (r; q) by Q^T z with
#
#   z = -F (g - y),   F_c = (T_c + E_c^-1)^-1,   (sum_c F_c) y = sum_c F_c g_c,   g = Q G (r; q)
#
# as in the multi-class Laplace approximation (Rasmussen & Williams 2006, section 3.5).

from __future__ import annotations

__all__ = ["class_mode_step", "class_solve"]

from typing import NamedTuple

import tensorflow as tf

from .cholesky import cholesky
from .triangular import lower_root_gram, solve


def class_solve(
    K: tf.Tensor, V: tf.Tensor, E: tf.Tensor, D: tf.Tensor, r: tf.Tensor, q: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above, [C, N] each; 5/3 N^3 per latent, and N^3 / 3.

    :param K: prior covariances [C, N, N], or one for all [1, N, N].
    :param V: posterior covariances [C, N, N].
    :param E: non-negative [C, N], above 0 in some class of each observation; D is [C, N].
    :param r: right sides [C, N] of the means; q of the variances.
    :return: x, y, and whether all factorisations succeeded [].
    """
    U = 0.5 * tf.square(V)
    factors = _factors(K + D[:, :, None] * U * D[:, None, :], E)
    g = tf.linalg.matvec(K, r) + D * tf.linalg.matvec(U, q)
    z = _correction(factors, g)
    return r + z, q + D * z, factors.ok


def class_mode_step(
    K: tf.Tensor, p: tf.Tensor, r: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return x [C, N] of (I + W K) x = r, log|I + K W| and whether there is one; cost as above.

    :param K: prior covariances [C, N, N], or one for all [1, N, N].
    :param p: probabilities [C, N]; r is [C, N].
    """
    # W is the curvature diag(p) - p p^T of each observation's softmax, (C73).
    factors = _factors(K, p)
    return r + _correction(factors, tf.linalg.matvec(K, r)), factors.log_det, factors.ok


class _Factors(NamedTuple):
    F: tf.Tensor
    """[C, N, N]"""
    total: tf.Tensor
    """Cholesky factor of sum_c F_c [N, N]."""
    log_det: tf.Tensor
    """sum_c log|I + E_c^1/2 T_c E_c^1/2| + log|sum_c F_c|, a scalar."""
    ok: tf.Tensor
    """[]"""


def _factors(T: tf.Tensor, E: tf.Tensor) -> _Factors:
    root = tf.sqrt(E)
    B = root[:, :, None] * T * root[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))
    eye = tf.eye(tf.shape(B)[-1], batch_shape=[tf.shape(B)[0]], dtype=B.dtype)
    F = root[:, :, None] * lower_root_gram(solve(chol, eye)) * root[:, None, :]
    total, sum_ok = cholesky(tf.reduce_sum(F, axis=0))
    logs = tf.math.log(tf.linalg.diag_part(chol)), tf.math.log(tf.linalg.diag_part(total))
    log_det = 2.0 * sum(tf.reduce_sum(part) for part in logs)
    return _Factors(F, total, log_det, tf.reduce_all(ok) & sum_ok)


def _correction(factors: _Factors, g: tf.Tensor) -> tf.Tensor:
    right = tf.reduce_sum(tf.linalg.matvec(factors.F, g), axis=0)
    shared = tf.linalg.cholesky_solve(factors.total, right[:, None])[:, 0]
    return -tf.linalg.matvec(factors.F, g - shared)  # (V35)
