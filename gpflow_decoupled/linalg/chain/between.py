"""A smoothed chain between its rows."""

# A new state after row i - 1 and before row i: predicted from row i - 1 it is N(a, P), and the rows
# from i on have the slope rho = A^T r_i and the curvature R = A^T S_i A, A the step to row i:
#
#   E x = a + P rho,   cov x = P - P R P
#
# For two new states j before k, cov(x_j, x_k) = P_j Phi^T (1 - R_k P_k), where Phi carries an error
# of the prediction at j to one at k; a row with a site shrinks it by u^T = 1 - P h h^T tau / F.

from __future__ import annotations

__all__ = ["Between", "Knots", "covariances_between", "marginals_between", "predicted_between"]

from typing import NamedTuple

import tensorflow as tf

from .scan import Tensors, scan


class Knots(NamedTuple):
    """A smoothed chain as predictions need it, with the prior in front and nothing behind it."""

    mean: tf.Tensor
    """m [N + 1, L, d], of the state given the rows so far; zero in the first row."""
    covariance: tf.Tensor
    """V [N + 1, L, d, d]; the prior's in the first row."""
    slope: tf.Tensor
    """r [N + 1, L, d]; zero in the last row."""
    curvature: tf.Tensor
    """S [N + 1, L, d, d]; zero in the last row."""
    shrinkage: tf.Tensor
    """P h tau / F [N, L, d]."""


class Between(NamedTuple):
    """New states, one for each of B inputs."""

    mean: tf.Tensor
    """a [B, L, d]"""
    covariance: tf.Tensor
    """P [B, L, d, d]"""
    slope: tf.Tensor
    """rho [B, L, d]"""
    curvature: tf.Tensor
    """R [B, L, d, d]"""


def predicted_between(
    knots: Knots, row: tf.Tensor, before: tuple[tf.Tensor, tf.Tensor], after: tf.Tensor
) -> Between:
    """The states at B new inputs.

    :param row: the first row behind each input, 0 to N, [B].
    :param before: A and Q [B, L, d, d] of the step from the row in front.
    :param after: A [B, L, d, d] of the step to the row behind.
    """
    A, Q = before
    mean, V, slope, S = (tf.gather(part, row) for part in knots[:4])
    return Between(
        tf.linalg.matvec(A, mean),
        tf.matmul(tf.matmul(A, V), A, transpose_b=True) + Q,
        tf.linalg.matvec(after, slope, transpose_a=True),
        tf.matmul(tf.matmul(after, S, transpose_a=True), after),
    )


def marginals_between(new: Between, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances of f = h . x [B, L], for h [L, d]."""
    Ph = tf.linalg.matvec(new.covariance, h)
    mean = tf.reduce_sum(h * new.mean, axis=-1) + tf.reduce_sum(Ph * new.slope, axis=-1)
    removed = tf.reduce_sum(Ph * tf.linalg.matvec(new.curvature, Ph), axis=-1)
    return mean, tf.maximum(tf.reduce_sum(h * Ph, axis=-1) - removed, 0.0)


def covariances_between(
    new: Between, row: tf.Tensor, knots: Knots, A: tf.Tensor, joints: Tensors, h: tf.Tensor
) -> tf.Tensor:
    """Covariances of f at B sorted inputs, [L, B, B].

    :param new: their states.
    :param row: the first row behind each input [B].
    :param A: the steps to the N rows [N, L, d, d].
    :param joints: steps A [B, L, d, d] from each input to the next input, or the first row between;
        and from the last row between to the next input. The last entry is unused.

    Cost: N L d^3 + B^2 L d^2.
    """
    direct, last = joints
    Ph = tf.linalg.matvec(new.covariance, h)
    right = h - tf.linalg.matvec(new.curvature, Ph)
    following = tf.concat([row[1:], row[-1:]], axis=0)
    spans = following > row
    within = tf.gather(_products(row, knots, A, h), tf.maximum(following - 1, 0))
    across = tf.matmul(last, tf.matmul(within, direct))
    steps = tf.where(spans[:, None, None, None], across, direct)
    steps = tf.concat([tf.zeros_like(steps[:1]), steps[:-1]], axis=0)  # from the input before
    unit = tf.eye(tf.shape(row)[0], dtype=h.dtype)
    start = tf.zeros_like(tf.transpose(Ph, [1, 0, 2]))
    _, columns = scan(_column, (start,), (steps, unit, Ph, right))
    upper = tf.transpose(columns, [1, 2, 0])  # [L, B, B], of earlier and later inputs
    diagonal = tf.linalg.diag(tf.maximum(tf.linalg.diag_part(upper), 0.0))
    strict = tf.linalg.set_diag(upper, tf.zeros_like(upper[:, 0]))
    return strict + tf.linalg.matrix_transpose(strict) + diagonal


def _products(row: tf.Tensor, knots: Knots, A: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    first = tf.scatter_nd(row[:, None], tf.ones_like(row), [tf.shape(A)[0] + 1])[:-1] > 0
    resets = tf.cast(first, A.dtype)[:, None, None, None]
    eye = tf.eye(tf.shape(A)[-1], dtype=A.dtype)
    shrink = eye - knots.shrinkage[..., :, None] * h[:, None, :]
    rest = tf.matmul(shrink, A * (1.0 - resets))
    (products,) = scan(_product, (tf.zeros_like(A[0]),), (rest, shrink * resets))
    return products


def _product(carry: Tensors, row: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
    step, restart = row
    return (tf.matmul(step, carry[0]) + restart,), ()


def _column(carry: Tensors, row: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
    step, unit, Ph, right = row
    rows = tf.matmul(carry[0], step, transpose_b=True) + unit[:, None] * Ph[:, None, :]
    return (rows,), (tf.linalg.matvec(rows, right),)
