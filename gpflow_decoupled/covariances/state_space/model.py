"""Matrices of a linear stochastic differential equation."""

from __future__ import annotations

__all__ = ["StateSpace", "added", "multiplied", "resized"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf


class StateSpace(NamedTuple):
    """A stationary process f = h . x whose state x [d] is Markov.

    Over a step: x' = A x + q, q ~ N(0, Q), with Q = P - A P A^T.
    """

    A: tf.Tensor
    """[N, d, d] for N steps."""
    Q: tf.Tensor
    """[N, d, d]."""
    P: tf.Tensor
    """Covariance of x at any input [d, d]."""
    h: np.ndarray
    """[d]."""

    @property
    def size(self) -> int:
        """d, the number of states."""
        return len(self.h)


def added(left: StateSpace, right: StateSpace) -> StateSpace:
    """The sum of two independent processes: their states one after the other."""
    size = left.size + right.size
    first, last = resized(left, size), resized(right, size, before=left.size)
    A, Q, P = (a + b for a, b in zip(first[:3], last[:3]))
    return StateSpace(A, Q, P, first.h + last.h)


def multiplied(left: StateSpace, right: StateSpace) -> StateSpace:
    """A process whose covariance is the product: its states are products of theirs."""
    A, P = _kron(left.A, right.A), _kron(left.P, right.P)
    # P x P' - (P - Q) x (P' - Q'), by sums of matrices that are positive semi-definite
    Q = _kron(left.Q, right.P) + _kron(left.P - left.Q, right.Q)
    return StateSpace(A, Q, P, np.kron(left.h, right.h))


def resized(space: StateSpace, size: int, before: int = 0) -> StateSpace:
    """The process with further states that are zero, `before` of them in front."""
    ends = [before, size - before - space.size]
    A, Q, P = (tf.pad(one, [[0, 0]] * (one.shape.rank - 2) + [ends, ends]) for one in space[:3])
    return StateSpace(A, Q, P, np.pad(space.h, ends))


def _kron(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    size = int(left.shape[-1]) * int(right.shape[-1])
    return tf.reshape(product, tf.concat([tf.shape(product)[:-4], [size, size]], axis=0))
