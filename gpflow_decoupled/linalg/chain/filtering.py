"""The Kalman filter of a chain."""

# At row n, with the state x_n = A_n x_{n-1} + q_n, q_n ~ N(0, Q_n), f_n = h . x_n, and the site
# exp(nu f - tau f^2 / 2):
#
#   a = A m,  P = A V A^T + Q;   phi = h . a,  c = h . P h;   F = 1 + tau c
#   m = a + P h (nu - tau phi) / F,   V = P - P h h^T P tau / F
#
# Nothing is divided by Q or c, so duplicated inputs and rows without a site are ordinary rows.

from __future__ import annotations

__all__ = ["Filtered", "filtered"]

from typing import NamedTuple

import tensorflow as tf

from .scan import Tensors, scan


class Filtered(NamedTuple):
    """Each row given the sites up to it."""

    mean: tf.Tensor
    """m [N, L, d]"""
    covariance: tf.Tensor
    """V [N, L, d, d]"""
    gain: tf.Tensor
    """P h [N, L, d], of the state before the row's site."""
    latent_mean: tf.Tensor
    """phi [N, L], before the row's site."""
    latent_variance: tf.Tensor
    """c [N, L], before the row's site."""


def filtered(A: tf.Tensor, Q: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> Filtered:
    """Filter the sites nu, tau [N, L] of a chain A, Q [N, L, d, d] read by h [L, d]; N L d^3."""
    start = tf.zeros_like(Q[0, :, 0]), tf.zeros_like(Q[0])
    return Filtered(*scan(_step, start, (A, Q, nu, tau), (h,)))


def _step(carry: Tensors, row: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    (mean, covariance), (A, Q, nu, tau), (h,) = carry, row, constants
    mean = tf.linalg.matvec(A, mean)
    covariance = tf.matmul(tf.matmul(A, covariance), A, transpose_b=True) + Q
    gain = tf.linalg.matvec(covariance, h)
    phi, c = tf.reduce_sum(h * mean, axis=-1), tf.reduce_sum(h * gain, axis=-1)
    F = 1.0 + tau * c
    mean += gain * ((nu - tau * phi) / F)[:, None]
    covariance -= gain[:, :, None] * gain[:, None, :] * (tau / F)[:, None, None]
    return (mean, covariance), (gain, phi, c)
