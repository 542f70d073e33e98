"""The smoother of a chain, without an inverse."""

# The sites from row n on, as a function of the state N(a, P) that the earlier ones predict, have
# the gradient r_n of their log evidence by a, and minus its second derivative S_n (de Jong 1989;
# Durbin & Koopman 2012, section 4.4). With u = 1 - h (P h)^T tau / F, e = (nu - tau phi) / F,
# rho = A_{n+1}^T r_{n+1} and R = A_{n+1}^T S_{n+1} A_{n+1}:
#
#   r = h e + u rho,   S = h h^T tau / F + u R u^T
#   E f = phi + c e + (P h / F) . rho,   var f = c / F - (P h / F) . R (P h / F)

from __future__ import annotations

__all__ = ["Smoothed", "smoothed"]

from typing import NamedTuple

import tensorflow as tf

from .filtering import Filtered
from .scan import Tensors, scan


class Smoothed(NamedTuple):
    """Each row given all sites."""

    slope: tf.Tensor
    """r [N, L, d]"""
    curvature: tf.Tensor
    """S [N, L, d, d]"""
    mean: tf.Tensor
    """E f [N, L]"""
    variance: tf.Tensor
    """var f [N, L]"""


def smoothed(
    A: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor, forward: Filtered
) -> Smoothed:
    """Smooth what `filtered` found for a chain A [N, L, d, d] and sites [N, L]; N L d^3."""
    following = tf.concat([A[1:], tf.zeros_like(A[:1])], axis=0)
    start = tf.zeros_like(A[0, :, 0]), tf.zeros_like(A[0])
    rows = (following, nu, tau, forward.gain, forward.latent_mean, forward.latent_variance)
    return Smoothed(*scan(_step, start, rows, (h,), reverse=True))


def _step(carry: Tensors, row: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    (slope, curvature), (A, nu, tau, gain, phi, c), (h,) = carry, row, constants
    rho = tf.linalg.matvec(A, slope, transpose_a=True)
    R = tf.matmul(tf.matmul(A, curvature, transpose_a=True), A)
    F = 1.0 + tau * c
    e, g = (nu - tau * phi) / F, tau / F
    along = tf.linalg.matvec(R, gain)
    across = tf.reduce_sum(gain * rho, axis=-1), tf.reduce_sum(gain * along, axis=-1)
    slope = rho + h * (e - g * across[0])[:, None]
    mixed = h[:, :, None] * (g[:, None] * along)[:, None, :]
    own = (g + tf.square(g) * across[1])[:, None, None]
    curvature = R - mixed - tf.linalg.matrix_transpose(mixed) + own * h[:, :, None] * h[:, None, :]
    mean, variance = phi + c * e + across[0] / F, c / F - across[1] / tf.square(F)
    return (slope, curvature), (mean, variance)
