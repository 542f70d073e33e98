"""The likelihood factor of earlier data."""

# | symbol | code | shape |
# |---|---|---|
# | a: the points; M of them | `StreamMemory.points` | beta, or beta and gamma |
# | L_a, of K_a with jitter, at the old kernel | `StreamMemory.chol` | [G, M, M] |
# | theta, Lambda | `StreamMemory.theta`, `StreamMemory.precision` | [M, L], [L, M, M] |
# | c | `StreamMemory.constant` | [] nats |
#
#   log l(u) = c + theta^T w - 1/2 w^T Lambda w,   w = L_a^-1 u,   u = f(a) with jitter     (C42)
#
# At the points z of a frame and today's kernel, with D_ij = 1 where a_i is z_j, the expectation of
# log l given f(z) has (C44)
#
#   B = L_a^-1 (K_az + D n_z) L_z^-T,   theta <- B^T theta,   Lambda <- B^T Lambda B
#   c <- c - 1/2 tr Lambda (L_a^-1 (K_a + n_a) L_a^-T - B B^T)
#
# Nothing is lost if z includes a.

from __future__ import annotations

__all__ = ["StreamMemory", "Quadratic"]

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import set_trainable

from ...bases.parts.frame import Frame
from ...covariances.latents import cross_gram
from ...errors import ModelError
from ...inducing.variables import point_values
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import mirror, solve
from ...summaries import one_line


class Quadratic(NamedTuple):
    """log l = c + theta^T w - 1/2 w^T Lambda w in whitened w, summed over the latents."""

    theta: tf.Tensor
    """[M, L]"""
    precision: tf.Tensor
    """Lambda [L, M, M], symmetric."""
    constant: tf.Tensor
    """c, a scalar in nats."""

    def times(self, power: float) -> Quadratic:
        """The factor to a power, with shapes [M, L], [L, M, M] and []."""
        # (C42)
        return Quadratic(power * self.theta, power * self.precision, power * self.constant)

    def plus(self, other: Quadratic) -> Quadratic:
        """The product of two factors, with shapes [M, L], [L, M, M] and []."""
        return Quadratic(*(left + right for left, right in zip(self, other)))


class StreamMemory(Module):
    """The likelihood factor of all data that a model has taken in; memory L M^2.

    Saved with the model, not trainable: theta [M, L], Lambda [L, M, M] and c, in a frame's
    coordinates.

    Example::

        model.update((X, Y))
        said = model.memory.precision  # [L, M, M]
    """

    def __init__(self, frame: Frame, said: Quadratic) -> None:
        super().__init__()
        self.points = [copy.deepcopy(points) for points in frame.points]
        for points in self.points:
            set_trainable(points, False)
        self.chol, self.noise = _fixed(frame.chol), _fixed(frame.noise)
        self.theta, self.precision, self.constant = (_fixed(part) for part in said)

    def __repr__(self) -> str:
        return one_line(self, points=int(self.theta.shape[0]), latents=int(self.theta.shape[1]))

    def links(self, frame: Frame) -> np.ndarray:
        """D [G, M_a, M_z], ones where a point of the factor is in the frame.

        :raises ModelError: if inducing variables that are not points were exchanged.
        """
        old, new = _values(self.points), _values(frame.points)
        if old is None or new is None:
            if self.theta.shape[0] != sum(frame.sizes):
                raise ModelError(
                    "Inducing variables that are not points of the input space cannot be exchanged"
                    " in a stream: build a new model with them, and update it with all data."
                )
            return np.eye(int(self.theta.shape[0]))[None]
        equal = [np.all(a[:, None] == z[None], axis=-1) for a, z in zip(*_paired(old, new))]
        first = [match & (np.cumsum(match, axis=1) == 1) for match in equal]
        return np.stack(first).astype(self.theta.dtype.as_numpy_dtype)

    def said(self) -> Quadratic:
        """The factor in its coordinates: theta [M, L], Lambda [L, M, M] and c."""
        return Quadratic(
            *(tf.convert_to_tensor(part) for part in (self.theta, self.precision, self.constant))
        )

    def fits(self, frame: Frame, links: np.ndarray) -> bool:
        """True if a frame has these coordinates (points and kernel unmoved), D [G, M, M]."""
        same = self.chol.shape == frame.chol.shape and bool(
            np.all(links == np.eye(links.shape[1], links.shape[2]))
        )
        return same and np.array_equal(self.chol.numpy(), frame.chol.numpy())

    def projected(self, frame: Frame, kernel: Kernel, links: np.ndarray) -> Quadratic:
        """The factor in the coordinates of a frame; M^3 and differentiable in the kernel.

        :param links: D [G, M_a, M_z].
        :raises ModelError: for inducing variables that are not points, once the kernel has moved.
        """
        # (C44)
        link = tf.constant(links, frame.chol.dtype)
        try:
            K_az, K_a = (
                _joint(kernel, self.points, frame.points),
                _joint(kernel, self.points, self.points),
            )
        except NotImplementedError as error:
            raise ModelError(
                "What the old data said cannot follow a kernel that moves, for these inducing"
                f" variables: {error} Leave learn=0, or use inducing points."
            ) from error
        kept = tf.linalg.matvec(link, frame.noise)
        n_a = tf.where(tf.reduce_sum(link, axis=-1) > 0.0, kept, self.noise)
        half = solve(self.chol, K_az + link * frame.noise[:, None, :])
        B = tf.linalg.matrix_transpose(solve(frame.chol, tf.linalg.matrix_transpose(half)))
        half = solve(self.chol, tf.linalg.set_diag(K_a, tf.linalg.diag_part(K_a) + n_a))
        own = solve(self.chol, tf.linalg.matrix_transpose(half))
        lost = tf.reduce_sum(self.precision * (own - tf.matmul(B, B, transpose_b=True)))
        precision = mirror(tf.matmul(B, tf.matmul(self.precision, B), transpose_a=True))
        return Quadratic(
            apply_per_latent(B, self.theta, adjoint=True), precision, self.constant - 0.5 * lost
        )  # (C44)


def _fixed(value: tf.Tensor) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _joint(
    kernel: Kernel, left: Sequence[InducingVariables], right: Sequence[InducingVariables]
) -> tf.Tensor:
    return tf.concat(
        [tf.concat([cross_gram(kernel, a, z) for z in right], axis=-1) for a in left], axis=-2
    )


def _values(points: Sequence[InducingVariables]) -> list[np.ndarray] | None:
    each = [[np.asarray(values) for values in point_values(part)] for part in points]
    if not all(each):
        return None
    count = max(map(len, each))
    return [
        np.concatenate([values[min(k, len(values) - 1)] for values in each]) for k in range(count)
    ]


def _paired(
    old: list[np.ndarray], new: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    count = max(len(old), len(new))
    return old * (count // len(old)), new * (count // len(new))
