"""Whitening by a Cholesky factor, with the derivative carried in whitened coordinates.

Through dL = L phi(X), X = L^-1 dK L^-T, phi = lower triangle with half the diagonal, every solve with L depends on K by
X alone:

    A = L^-1 R:    dA = -phi(X) A + L^-1 dR            B = L^-T R:    dB = -L^-T phi(X)^T R + L^-T dR

So a factorisation hands out a formal zero, the tangent, that stands for X. Each solve sends its share of the gradient
to it, the shares add up, and K's gradient 1/2 L^-T (share, mirrored from its lower triangle) L^-1 is formed once. Going
through dL instead would cost another product of two triangles for each factorisation. Differentiate through `whiten`, not
through the factor.
"""

from __future__ import annotations

__all__ = ["Whitener", "whiten", "whitener"]

from typing import NamedTuple

import tensorflow as tf

from .cholesky import cholesky
from .triangular import lower_outer, mirror, solve, solve_frozen, sum_to


class Whitener(NamedTuple):
    """The factor of a matrix [..., M, M] and what its derivative goes through."""

    chol: tf.Tensor
    """[..., M, M], lower triangular; solves with it go through `whiten`."""
    ok: tf.Tensor
    """[], bool: whether the factorisation succeeded."""
    tangent: tf.Tensor
    """[..., M, M], zero."""


def whitener(matrix: tf.Tensor) -> Whitener:
    """Factorise a positive definite matrix [..., M, M]; M^3 / 3, and M^3 for the gradient."""
    chol, ok = cholesky(matrix)  # first derivatives go through the tangent, second ones through this as well

    @tf.custom_gradient
    def tangent_of(matrix: tf.Tensor) -> tuple:
        def grad(upstream: tf.Tensor) -> tf.Tensor:
            half = solve(chol, 0.5 * mirror(upstream), adjoint=True)
            return solve(chol, tf.linalg.matrix_transpose(half), adjoint=True)

        return tf.zeros_like(matrix), grad

    return Whitener(chol, ok, tangent_of(matrix))


def whiten(chol: tf.Tensor, tangent: tf.Tensor | None, rhs: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    """L^-1 rhs, or L^-T rhs if `adjoint`: chol [..., M, M], rhs [..., M, N] -> [..., M, N]; M^2 N.

    Without a tangent the factor is a constant in every respect.
    """
    if tangent is None:
        return solve_frozen(chol, rhs, adjoint)

    @tf.custom_gradient
    def run(tangent: tf.Tensor, rhs: tf.Tensor) -> tuple:
        value = solve(chol, rhs, adjoint)

        def grad(upstream: tf.Tensor) -> tuple:
            back = solve(chol, upstream, not adjoint)
            share = lower_outer(rhs, back) if adjoint else lower_outer(upstream, value)
            return sum_to(-share, tangent), sum_to(back, rhs)

        return value, grad

    return run(tangent, rhs)
