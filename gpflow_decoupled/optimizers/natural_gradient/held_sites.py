"""Sites fixed while the kernel moves."""

# The M-step of conjugate-computation VI (Adam, Chang, Khan & Solin 2021, arXiv:2111.03412), for any
# whitened Gaussian part. When the Cholesky factor of p(u) changes from L_old to L_new, T = L_old^-1
# L_new, the same site under the new kernel is (C28)
#
#   theta <- T^T theta,   P <- I + T^T (P - I) T
#
# For a small change dX = L^-1 dK L^-T of the kernel, with P* = I - 2 A diag(h) A^T, g_m = A g - m~
# and u = S~ g_m, the bound changes by (C69)
#
#   dF = < -(I - S~) P* (I - S~) - w (A g)^T + m~ u^T + (u - g_m) m~^T,  phi(X) >
#
# phi(X) the lower triangle with half of the diagonal, w the factor of A in the mean of q(f). This
# includes the change of A = L^-1 K_ux and needs no product as wide as the batch.

from __future__ import annotations

__all__ = ["SiteSums", "carry_over", "gradient_at_sites", "site_sums"]

from typing import NamedTuple

import tensorflow as tf

from ... import replicas
from ...bases import GaussianPart
from ...compilation import rarely
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import (
    lower_congruence,
    lower_gram,
    lower_outer,
    solve_lower,
    symmetric_product,
)
from .natural_parameters import Natural


class SiteSums(NamedTuple):
    """Sums over a batch for one Gaussian part; with replicas, one replica's share."""

    precision: tf.Tensor
    """P* = I - 2 A diag(h) A^T [L, M, M]"""
    pull: tf.Tensor
    """A g [M, L]"""
    theta: tf.Tensor
    """A (g - 2 h A^T m~) [M, L]; zero for a part without a mean."""


def site_sums(
    part: GaussianPart,
    A: tf.Tensor,
    g: tf.Tensor,
    h: tf.Tensor,
    low: tf.DType | None = None,
    before: tuple | None = None,
) -> SiteSums:
    """Sum over a batch what all steps of a Gaussian part use; cost M^2 N per latent.

    A is L^-1 K_ux [G, M, N]; g and h [N, L] are taken at the whole mean.

    :param low: precision of the product of cost M^2 N; None is A's.
    :param before: an h and its P* with the same A, reused while h is equal, as for Gaussian noise.
    """

    def target() -> tf.Tensor:
        weights, dtype = -2.0 * tf.transpose(h), A.dtype if low is None else low
        sites = tf.cast(symmetric_product(tf.cast(A, dtype), tf.cast(weights, dtype)), h.dtype)
        return tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0 / replicas.count())

    if before is None:
        precision = target()
    else:
        precision = tf.cond(
            tf.reduce_all(tf.equal(h, before[0])), lambda: before[1], rarely(target)
        )
    if part.mean is None:
        none = tf.zeros([tf.shape(part.root)[1], tf.shape(part.root)[0]], g.dtype)
        return SiteSums(precision, none, none)
    own_mean = apply_per_latent(A, part.mean, adjoint=True)
    # (D46)
    return SiteSums(precision, apply_per_latent(A, g), apply_per_latent(A, g - 2.0 * h * own_mean))


def gradient_at_sites(
    part: GaussianPart,
    sums: SiteSums,
    tangent: tf.Tensor,
    weights: tf.Tensor | None = None,
    low: tf.DType | None = None,
) -> tf.Tensor:
    """Gradient in X, the tangent of L, at fixed sites: [G, M, M], lower triangle; cost 2 M^3 per
    latent.

    :param sums: of the batch; the result is linear in them, so replicas add up.
    :param weights: w [M, L] of (C69), to include the part through A.
    :param low: precision of the matrix products; None is the tangent's.
    """
    dtype = tangent.dtype if low is None else low
    covariance, precision = lower_gram(tf.cast(part.root, dtype)), tf.cast(sums.precision, dtype)
    identity = tf.eye(tf.shape(covariance)[-1], dtype=dtype)
    excess = tf.matmul(covariance, precision) - (
        replicas.share(identity) if weights is None else precision
    )
    share = tf.cast(lower_outer(identity - covariance, excess), tangent.dtype)  # (C69)
    if part.mean is not None:
        gradient = sums.pull - replicas.share(part.mean)
        root = part.root
        u = apply_per_latent(root, apply_per_latent(root, gradient, adjoint=True))
        share += _columns_outer(part.mean, u) + _columns_outer(u - gradient, part.mean)  # (C69)
    if weights is not None:
        share -= _columns_outer(weights, sums.pull)  # (C69)
    return tf.reduce_sum(share, axis=0, keepdims=True) if tangent.shape[0] == 1 else share


def carry_over(natural: Natural, old: tf.Tensor, new: tf.Tensor) -> Natural:
    """Natural parameters of the same sites under another kernel: (C28).

    `old` and `new` are the factors L_old and L_new [G, M, M]; cost M^3 per latent.
    """
    T = solve_lower(old, new)
    sites = tf.linalg.set_diag(natural.precision, tf.linalg.diag_part(natural.precision) - 1.0)
    sites = lower_congruence(T, sites)
    precision = tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0)  # (C28)
    # (C28)
    theta = None if natural.theta is None else apply_per_latent(T, natural.theta, adjoint=True)
    return Natural.of(theta, precision)


def _columns_outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.transpose(left)[:, :, None] * tf.transpose(right)[:, None, :]
