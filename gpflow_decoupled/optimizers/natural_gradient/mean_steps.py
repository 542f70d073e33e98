"""Steps of the mean coefficients."""

# With weights w = -2 h >= 0 and W = diag(w), the negative bound has over the coefficients a and the
# whitened mean m~ of q(u) the Hessian (D49)
#
#   [ C_g + C_gx W C_xg    C_gx W A^T  ]
#   [ A W C_xg             I + A W A^T ]

from __future__ import annotations

__all__ = ["NewtonOptions", "newton_direction", "steepest_step"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ... import replicas
from ...bases.parts.mean_operator import MeanOperator
from ...bases.parts.scaling import MeanScaling
from ...linalg.cholesky import cholesky, jitter
from ...linalg.conjugate_gradients import conjugate_gradients
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import symmetric_product
from ...linalg.woodbury import woodbury_factor, woodbury_solve
from ...probability import tfp

Pair = tuple[tf.Tensor, tf.Tensor]
"""A block for the coefficients [M_gamma, L], and one for the whitened mean of q(u) [M_beta, L]."""


def steepest_step(
    operator: MeanOperator, scaling: MeanScaling, gradient: tf.Tensor, h: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Step along the gradient d of the scaled coefficients [M, L]; cost N M + M^2.

    :param operator: between mean coefficients and the mean at the data.
    :param gradient: d [M, L].
    :param h: dE/dvariance [N, L]; positive entries count as zero.
    :return: the change [M, L], and whether it was shortened, [] bool.
    """
    # In whitened coordinates the gradient is the natural gradient (D41), in diagonal ones the rule
    # (D42). A step of size one overshoots (D43), so it is shortened to the maximum of the local
    # quadratic model along the gradient, |d|^2 / d^T H d. Several replicas send one number.
    raw = scaling.raw(gradient)
    weights = tf.maximum(-2.0 * h, 0.0)
    (of_data,) = replicas.total([tf.reduce_sum(weights * tf.square(operator.to_data(raw)))])
    curvature = of_data + tf.reduce_sum(raw * operator.product(raw))
    best = tf.math.divide_no_nan(tf.reduce_sum(tf.square(gradient)), curvature)
    return tf.minimum(step, best) * gradient, best < step


class NewtonOptions(NamedTuple):
    """Settings of the solution of the Newton system."""

    rank: int | None = None
    """Rank of the pivoted Cholesky preconditioner of C_g (D47); None is the basis's scaling."""
    iterations: int = 50
    """Limit of iterations."""
    tolerance: float = 1e-8
    """Relative residual at which the iteration ends."""


def newton_direction(
    operator: MeanOperator,
    scaling: MeanScaling,
    A: tf.Tensor,
    gradient: Pair,
    h: tf.Tensor,
    options: NewtonOptions,
) -> Pair:
    """Newton direction over raw coefficients and the whitened mean of q(u): (D49).

    Cost: N (M_gamma + M_beta) + M_gamma^2 per iteration of conjugate gradients, and M_beta^3 once.

    :param A: L_b^-1 K_bx [G, M_beta, N].
    :param gradient: of the bound, [M_gamma, L] and [M_beta, L].
    :param h: dE/dvariance [N, L]; positive entries count as zero, so the system is positive
        definite.
    """
    weights = tf.maximum(-2.0 * h, 0.0)

    def hessian(z: Pair) -> Pair:
        pull = weights * (operator.to_data(z[0]) + apply_per_latent(A, z[1], adjoint=True))
        # (D49)
        return operator.product(z[0]) + operator.from_data(pull), z[1] + apply_per_latent(A, pull)

    precision = symmetric_product(A, tf.transpose(weights))
    chol = cholesky(
        tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) + 1.0)
    ).chol  # I + A W A^T
    coefficients = _coefficient_preconditioner(operator, scaling, options)

    def precondition(z: Pair) -> Pair:
        inducing = tf.linalg.cholesky_solve(chol, tf.transpose(z[1])[..., None])[..., 0]
        return coefficients(z[0]), tf.transpose(inducing)

    return conjugate_gradients(
        hessian,
        precondition,
        gradient,
        _dot,
        options.tolerance,
        options.iterations,
        norm=lambda r: _dot(r, r),
    ).x


def _coefficient_preconditioner(
    operator: MeanOperator, scaling: MeanScaling, options: NewtonOptions
) -> Callable[[tf.Tensor], tf.Tensor]:
    if options.rank is None:
        return lambda z: scaling.raw(scaling.dual(z))  # T T^T
    C = operator.dense()
    diagonal = tf.linalg.diag_part(C)
    factors = tfp.math.pivoted_cholesky(C, max_rank=min(options.rank, C.shape[-1]))  # [G, M, r]
    rest = tf.maximum(diagonal - tf.reduce_sum(tf.square(factors), axis=-1), 0.0) + jitter(diagonal)
    parts = [woodbury_factor(factors[k], rest[k]) for k in range(C.shape[0])]
    if len(parts) == 1:
        return lambda z: woodbury_solve(parts[0], z)
    return lambda z: tf.stack(
        [woodbury_solve(part, z[:, k]) for k, part in enumerate(parts)], axis=1
    )  # (D47)


def _dot(x: Pair, y: Pair) -> tf.Tensor:
    return tf.reduce_sum(x[0] * y[0]) + tf.reduce_sum(x[1] * y[1])
