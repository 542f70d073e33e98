"""Steps for the coefficients of the mean points: steepest ascent in scaled coordinates, and
Newton's by conjugate gradients.

With weights w = -2 h >= 0 and W = diag(w), the Hessian of the negative bound over the coefficients
a of the mean points and the whitened mean m~ of q(u) is

    [ C_g + C_gx W C_xg    C_gx W A^T  ] [ A W C_xg             I + A W A^T ]
    (D49)
"""

from __future__ import annotations

__all__ = ["NewtonOptions", "newton_direction", "steepest_step"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from ... import replicas
from ...bases.parts.mean_operator import MeanOperator
from ...bases.parts.scaling import MeanScaling
from ...linalg.cholesky import cholesky, jitter
from ...linalg.conjugate_gradients import conjugate_gradients
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import symmetric_product
from ...linalg.woodbury import woodbury_factor, woodbury_solve

Pair = tuple[tf.Tensor, tf.Tensor]
"""One block for the coefficients [M_gamma, L], one for the whitened mean of q(u) [M_beta, L]."""


def steepest_step(
    operator: MeanOperator, scaling: MeanScaling, gradient: tf.Tensor, h: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A step of the scaled coefficients along their gradient d; cost N M + M^2.

    In whitened coordinates the gradient is the exact natural gradient (D41), in diagonal ones the
    rule (D42). Its metric is that of the prior, so that a step of size one overshoots, by (D43).
    The step is therefore shortened to the maximum of the local quadratic model along the gradient,
    |d|^2 / d^T H d, which never overshoots.

    On several replicas the data's part of d^T H d is a message of one number.

    :param operator: between mean coefficients and the mean at the data.
    :param scaling: the coordinates of the coefficients.
    :param gradient: d [M, L], in these coordinates.
    :param h: dE/dvariance [N, L]; entries above zero count as zero.
    :param step: the step size that is wanted, [].
    :return: the change of the scaled coefficients [M, L], and [] bool whether it was shortened.
    """
    raw = scaling.raw(gradient)
    weights = tf.maximum(-2.0 * h, 0.0)
    (of_data,) = replicas.total([tf.reduce_sum(weights * tf.square(operator.to_data(raw)))])
    curvature = of_data + tf.reduce_sum(raw * operator.product(raw))
    best = tf.math.divide_no_nan(tf.reduce_sum(tf.square(gradient)), curvature)
    return tf.minimum(step, best) * gradient, best < step


class NewtonOptions(NamedTuple):
    """How the Newton system is solved."""

    rank: int | None = None
    """Rank of the pivoted Cholesky of C_g as preconditioner (D47); None takes the basis's own
    scaling.
    """
    iterations: int = 50
    """At most so many."""
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
    """The Newton direction over the raw coefficients and the whitened mean of q(u): (D49).

    Cost: N (M_gamma + M_beta) + M_gamma^2 per iteration of conjugate gradients, and M_beta^3 once.

    :param operator: between mean coefficients and the mean at the data.
    :param scaling: the coordinates of the coefficients, as a preconditioner.
    :param A: L_b^-1 K_bx [G, M_beta, N].
    :param gradient: of the bound, [M_gamma, L] and [M_beta, L].
    :param h: dE/dvariance [N, L]; entries above zero count as zero, so that the system stays
        positive definite.
    :param options: how the system is solved.
    """
    weights = tf.maximum(-2.0 * h, 0.0)

    def hessian(z: Pair) -> Pair:
        pull = weights * (operator.to_data(z[0]) + apply_per_latent(A, z[1], adjoint=True))
        return operator.product(z[0]) + operator.from_data(pull), z[1] + apply_per_latent(
            A, pull
        )  # (D49)

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
    """An approximation of C_g^-1, as a function of coefficients [M_gamma, L]."""
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
    """The inner product of two pairs of blocks, over all latents."""
    return tf.reduce_sum(x[0] * y[0]) + tf.reduce_sum(x[1] * y[1])
