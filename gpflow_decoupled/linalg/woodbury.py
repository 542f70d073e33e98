"""Solves by Woodbury's identity."""

#   (R R^T + D)^-1 = D^-1 - D^-1 R (I + R^T D^-1 R)^-1 R^T D^-1
#
# for R [..., N, r] and a positive diagonal D: N r^2 + r^3 / 3 once, N r per solve.

from __future__ import annotations

__all__ = ["LowRank", "woodbury_factor", "woodbury_solve"]

from typing import NamedTuple

import tensorflow as tf

from .cholesky import cholesky
from .triangular import solve


class LowRank(NamedTuple):
    """R R^T + D, ready for solves."""

    scaled: tf.Tensor
    """D^-1 R [..., N, r]"""
    diagonal: tf.Tensor
    """D [..., N]"""
    chol: tf.Tensor
    """The lower Cholesky factor of I + R^T D^-1 R [..., r, r]."""
    ok: tf.Tensor
    """[], bool: D is positive and the factorisation succeeded."""


def woodbury_factor(factor: tf.Tensor, diagonal: tf.Tensor) -> LowRank:
    """Prepare (R R^T + D)^-1; N r^2 + r^3 / 3.

    R is [..., N, r], D [..., N], or [] for a multiple of the identity. A pivoted Cholesky's
    remainder is zero at pivots: add noise or jitter.
    """
    diagonal = tf.broadcast_to(diagonal, tf.shape(factor)[:-1])
    scaled = factor / diagonal[..., None]
    inner = tf.matmul(factor, scaled, transpose_a=True)
    chol, ok = cholesky(tf.linalg.set_diag(inner, tf.linalg.diag_part(inner) + 1.0))
    return LowRank(scaled, diagonal, chol, ok & tf.reduce_all(diagonal > 0.0))


def woodbury_solve(state: LowRank, rhs: tf.Tensor) -> tf.Tensor:
    """Return (R R^T + D)^-1 z.

    z is [..., N], or columns [..., N, P]; (N r + r^2) P.
    """
    one_column = len(rhs.shape) < len(state.scaled.shape)
    z = rhs[..., None] if one_column else rhs
    pulled = solve(state.chol, tf.matmul(state.scaled, z, transpose_a=True))
    back = tf.matmul(state.scaled, solve(state.chol, pulled, adjoint=True))
    value = z / state.diagonal[..., None] - back  # (D47)
    return value[..., 0] if one_column else value
