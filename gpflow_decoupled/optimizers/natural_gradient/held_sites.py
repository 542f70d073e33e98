"""Sites that stay while the kernel moves: the M-step of conjugate-computation VI, for any whitened Gaussian part.

Adam, Chang, Khan & Solin 2021 (arXiv:2111.03412). q(u) = p(u) x sites, whitened P = S~^-1 = I + Lambda~ and theta = P m~.
With T = L_old^-1 L_new, the same sites under the new kernel are

    theta <- T^T theta,   P <- I + T^T (P - I) T                                                            (C28)

A q(u) held by its sites loses far less of the bound when the kernel moves than one held by (m~, S~), and the gradient
of the kernel is that of the bound at fixed sites: in dT = phi(X), X = L^-1 dK L^-T, with P* = I - 2 A diag(h) A^T, the
gradient g_m = A g - m~ and u = S~ g_m,

    dF = < (I - S~) (S~ P* - I)^T + m~ u^T + (u - g_m) m~^T,  phi(X) >

beside what (m~, S~) fixed gives; it vanishes where q is optimal.
"""

from __future__ import annotations

__all__ = ["carry_over", "share_of_sites", "site_precision"]

import tensorflow as tf

from ...bases import Gaussian
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import (
    lower_gram,
    lower_outer,
    lower_transposed_product,
    mirror,
    solve_lower,
    symmetric_product,
)
from .natural import Natural


def site_precision(A: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """P* = I - 2 A diag(h) A^T for A [G, M, N] and h [N, L] -> [L, M, M]; M^2 N."""
    sites = symmetric_product(A, -2.0 * tf.transpose(h))
    return tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0)


def share_of_sites(part: Gaussian, A: tf.Tensor, g: tf.Tensor, h: tf.Tensor, tangent: tf.Tensor) -> tf.Tensor:
    """What fixed sites add to the gradient with respect to a tangent [G, M, M]; 2 M^3 + M^2 N a latent.

    :param A: [G, M, N]. :param g: [N, L]. :param h: [N, L].
    """
    covariance = lower_gram(part.root)
    identity = tf.eye(tf.shape(covariance)[-1], dtype=h.dtype)
    excess = tf.matmul(covariance, site_precision(A, h)) - identity
    share = lower_outer(identity - covariance, excess)
    if part.mean is not None:
        gradient = apply_per_latent(A, g) - part.mean
        u = apply_per_latent(covariance, gradient)
        share += _columns_outer(part.mean, u) + _columns_outer(u - gradient, part.mean)
    return tf.reduce_sum(share, axis=0, keepdims=True) if tangent.shape[0] == 1 else share


def carry_over(natural: Natural, old: tf.Tensor, new: tf.Tensor) -> Natural:
    """(C28): the same sites under another factor of the kernel, L_old and L_new [G, M, M]; 2 M^3 a latent."""
    T = solve_lower(old, new)
    sites = tf.linalg.set_diag(natural.precision, tf.linalg.diag_part(natural.precision) - 1.0)
    sites = mirror(lower_transposed_product(T, tf.matmul(sites, T)))
    precision = tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0)  # (C28)
    theta = None if natural.theta is None else apply_per_latent(T, natural.theta, adjoint=True)  # (C28)
    return Natural.of(theta, precision)


def _columns_outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Outer products of each latent: [M, L] and [M, L] -> [L, M, M]."""
    return tf.transpose(left)[:, :, None] * tf.transpose(right)[:, None, :]
