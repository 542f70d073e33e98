"""The exact posterior of a chain with sites."""

from __future__ import annotations

__all__ = ["ChainPosterior", "chain_posterior"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from .filtering import Filtered, filtered
from .smoothing import Smoothed, smoothed


class ChainPosterior(NamedTuple):
    """A chain given all its sites."""

    forward: Filtered
    backward: Smoothed
    log_partition: tf.Tensor
    """log of the integral of the prior times all sites, summed over latents, nats, a scalar."""
    ok: tf.Tensor
    """[], bool: the posterior exists."""


def chain_posterior(
    A: tf.Tensor, Q: tf.Tensor, h: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor
) -> ChainPosterior:
    """The posterior of x_n = A_n x_{n-1} + q_n, q_n ~ N(0, Q_n), with sites on f_n = h . x_n.

    All fields are differentiable in A, Q, nu and tau; the smoother gives the log evidence's
    gradient without another pass.

    :param A: [N, L, d, d], zero in the first row.
    :param Q: [N, L, d, d], in the first row the covariance of x_0.
    :param h: [L, d], without gradient.
    :param nu: site precisions times site means [N, L].
    :param tau: site precisions [N, L]; zero for a row without a site.

    Cost: some 6 N L d^3 multiply-adds, and memory for 8 arrays [N, L, d, d]. Example::

        posterior = chain_posterior(A, Q, h, y / noise, tf.ones_like(y) / noise)
    """
    forward = filtered(A, Q, h, nu, tau)
    backward = smoothed(A, h, nu, tau, forward)
    F = 1.0 + tau * forward.latent_variance
    ok = tf.reduce_all(F > 0.0) & tf.reduce_all(tf.math.is_finite(backward.mean))
    return ChainPosterior(forward, backward, _log_partition(A, Q, nu, tau, forward, backward), ok)


def _log_partition(
    A: tf.Tensor,
    Q: tf.Tensor,
    nu: tf.Tensor,
    tau: tf.Tensor,
    forward: Filtered,
    backward: Smoothed,
) -> tf.Tensor:
    forward = Filtered(*map(tf.stop_gradient, forward))
    backward = Smoothed(*map(tf.stop_gradient, backward))

    @tf.custom_gradient
    def value(
        A: tf.Tensor, Q: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        phi, c = forward.latent_mean, forward.latent_variance
        F = 1.0 + tau * c
        terms = (2.0 * nu * phi - tau * tf.square(phi) + c * tf.square(nu)) / F - tf.math.log(F)

        def pull(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            r, S = backward.slope, backward.curvature
            # by the predicted covariance: the log evidence solves the heat equation
            of_Q = 0.5 * (r[..., :, None] * r[..., None, :] - S)
            m, V = (
                tf.concat([tf.zeros_like(one[:1]), one[:-1]], axis=0)
                for one in (forward.mean, forward.covariance)
            )
            of_A = r[..., :, None] * m[..., None, :] + 2.0 * tf.matmul(of_Q, tf.matmul(A, V))
            second = tf.square(backward.mean) + backward.variance
            return tuple(upstream * one for one in (of_A, of_Q, backward.mean, -0.5 * second))

        return 0.5 * tf.reduce_sum(terms), pull

    return value(A, Q, nu, tau)
