"""Whitening by a Cholesky factor K = L L^T, with a gradient that is cheaper than the one through
the factor.

A change dK of the matrix changes its factor by dL = L phi(X), where X = L^-1 dK L^-T, and phi(X) is
the lower triangle of X with half of its diagonal. A solve with L therefore depends on K through X
alone:

    A = L^-1 R:    dA = -phi(X) A + L^-1 dR            B = L^-T R:    dB = -L^-T phi(X)^T R + L^-T
    dR

The gradient is computed in three steps:

1) `whitener` returns, beside the factor, a matrix of zeros that takes the place of X: the tangent.
2) Each `whiten` adds its contribution to the gradient of the tangent. 3) The sum G of these
contributions gives the gradient of K, 1/2 L^-T (G, mirrored from its lower triangle) L^-1, once.

Where the tangent has a lower precision than the factor, L^-1 R is computed in full, rounded once,
and differentiated in the lower precision: the solve itself would lose as many digits as the
condition number of L has, and its gradient may.

The gradient through dL would need one more product of two triangular matrices per factorisation.
For step 2 to happen, solves must be done by `whiten` and not with the factor itself.
"""

from __future__ import annotations

__all__ = ["Whitener", "whiten", "whitener"]

from typing import NamedTuple

import tensorflow as tf

from .cholesky import cholesky
from .triangular import lower_outer, mirror, solve, solve_frozen, sum_to


class Whitener(NamedTuple):
    """The factor of a matrix [..., M, M], and the tangent through which its derivative is
    computed.
    """

    chol: tf.Tensor
    """[..., M, M], lower triangular; use `whiten` to solve with it."""
    ok: tf.Tensor
    """[], bool: whether the factorisation succeeded."""
    tangent: tf.Tensor
    """[..., M, M], zeros; see the module's docstring."""


def whitener(matrix: tf.Tensor) -> Whitener:
    """Factorise a positive definite matrix [..., M, M]; the cost is M^3 / 3, and M^3 for the
    gradient.
    """
    chol, ok = cholesky(
        matrix
    )  # first derivatives use the tangent only, second derivatives also this factor

    @tf.custom_gradient
    def tangent_of(matrix: tf.Tensor) -> tuple:
        def grad(upstream: tf.Tensor) -> tf.Tensor:
            half = solve(chol, 0.5 * mirror(upstream), adjoint=True)
            return solve(chol, tf.linalg.matrix_transpose(half), adjoint=True)

        return tf.zeros_like(matrix), grad

    return Whitener(chol, ok, tangent_of(matrix))


def whiten(
    chol: tf.Tensor, tangent: tf.Tensor | None, rhs: tf.Tensor, adjoint: bool = False
) -> tf.Tensor:
    """The product L^-1 R, or L^-T R if `adjoint`; cost M^2 N.

    :param chol: L [..., M, M], from a `Whitener`.
    :param tangent: the `Whitener`'s tangent [..., M, M], which may be cast to a lower precision,
        that of result and gradient; with None the factor is a constant, and has no gradient.
    :param rhs: R [..., M, N].
    :param adjoint: solve with the transposed factor.
    :return: [..., M, N].
    """
    if tangent is None:
        return solve_frozen(chol, rhs, adjoint)

    @tf.custom_gradient
    def run(tangent: tf.Tensor, rhs: tf.Tensor) -> tuple:
        value = tf.cast(solve(chol, rhs, adjoint), tangent.dtype)

        def grad(upstream: tf.Tensor) -> tuple:
            # the adjoints of dA and dB above; the tangent takes only the lower triangle of its
            # contribution
            back = solve(tf.cast(chol, tangent.dtype), upstream, not adjoint)
            share = (
                lower_outer(tf.cast(rhs, tangent.dtype), back)
                if adjoint
                else lower_outer(upstream, value)
            )
            return sum_to(-share, tangent), tf.cast(sum_to(back, rhs), rhs.dtype)

        return value, grad

    return run(tangent, rhs)
