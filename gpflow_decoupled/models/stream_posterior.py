"""The best q for a Gaussian factor, and its bound."""

from __future__ import annotations

__all__ = [
    "Quadratic", "StreamBelief", "StreamMemory", "best", "divergence", "expectation", "moments",
    "read", "write",
]  # fmt: skip

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import set_trainable

from ..bases import GaussianPart, InducingBasis, OptimalParameters
from ..bases.inducing import whiten_columns
from ..bases.optimum import Frame
from ..covariances.latents import cross_gram, prior_variance
from ..errors import ModelError
from ..inducing.variables import point_values
from ..linalg.triangular import mirror, solve, transposed_product
from ..linalg.whitening import apply_per_latent, kl_from_whitened, root_from_precision
from ..summaries import one_line

# ---
# The likelihood factor of earlier data.


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


# ---


# In a frame's coordinates the prior is N(0, I); q has mean mu and a covariance S_k for points k
# that the basis gives one. For a factor (theta, Lambda) the best q is
#
#   S_k^-1 = I + Lambda_kk,   (Pi + Lambda) mu = theta        (C45)
#
# with Pi = I, or, for mean points without a covariance, C_g of (D21). The bound is
#
#   F = sum_n E_n + E_q log l - 1/2 mu^T Pi mu - 1/2 sum_k [tr S_k - M_k - log|S_k|]        (C43)


class StreamBelief(NamedTuple):
    """q in the coordinates of a frame."""

    mean: tf.Tensor
    """mu [M, L]"""
    roots: tuple[tf.Tensor, ...]
    """A root of each S_k [L, M_k, M_k]."""
    ok: tf.Tensor
    """[], bool: all precisions are positive definite."""


def best(frame: Frame, said: Quadratic) -> StreamBelief:
    """The best q (C45) for a factor; one or two factorisations of M^3 / 3 per latent."""
    whole, ok = root_from_precision(_with_norm(frame, said.precision))
    mean = apply_per_latent(whole, apply_per_latent(whole, said.theta, adjoint=True))  # (C45)
    if frame.free == len(frame.sizes) == 1:
        return StreamBelief(mean, (whole,), ok)
    # (C45)
    parts = [root_from_precision(_plus_identity(block)) for block in _blocks(frame, said.precision)]
    return StreamBelief(
        mean,
        tuple(part.chol for part in parts),
        tf.reduce_all(tf.stack([ok, *(part.ok for part in parts)])),
    )


def expectation(frame: Frame, belief: StreamBelief, said: Quadratic) -> tf.Tensor:
    """E_q log l in nats, a scalar, in the coordinates of the frame."""
    mean = belief.mean
    value = tf.reduce_sum(mean * (said.theta - 0.5 * apply_per_latent(said.precision, mean)))
    for root, block in zip(belief.roots, _blocks(frame, said.precision)):
        value -= 0.5 * tf.reduce_sum(root * tf.matmul(block, root))
    fixed = tf.linalg.diag_part(said.precision)[:, sum(frame.sizes[: frame.free]) :]
    return said.constant + value - 0.5 * tf.reduce_sum(fixed)


def divergence(frame: Frame, belief: StreamBelief) -> tf.Tensor:
    """The basis's KL[q || p] in nats, a scalar."""
    product = belief.mean if frame.norm is None else apply_per_latent(frame.norm, belief.mean)
    value = 0.5 * tf.reduce_sum(belief.mean * product)
    for root in belief.roots:
        value += kl_from_whitened(tf.zeros([], root.dtype), root)
    return value


def moments(
    frame: Frame, belief: StreamBelief, kernel: Kernel, X: tf.Tensor, Phi: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variances of q(f) [N, L] at X [N, D], from features Phi [G, M, N]."""
    mean = apply_per_latent(Phi, belief.mean, adjoint=True)
    variance = prior_variance(kernel, X, full_cov=False)
    start = 0
    for size, root in zip(frame.sizes, belief.roots):
        A = Phi[:, start : start + size]
        variance += tf.reduce_sum(tf.square(transposed_product(root, A)), axis=-2)
        variance -= tf.reduce_sum(tf.square(A), axis=-2)
        start += size
    return mean, tf.broadcast_to(tf.transpose(variance), tf.shape(mean))


def read(basis: InducingBasis, kernel: Kernel, frame: Frame) -> StreamBelief:
    """Return a basis's q in the coordinates of a frame of its points."""
    state = basis.factor(kernel, with_kl=False)
    parts = basis.gaussians(state)
    means = [part.mean for part in parts]
    if len(frame.sizes) > frame.free:
        means.append(apply_per_latent(_last(frame), basis.mean_coefficients(state), adjoint=True))
    return StreamBelief(tf.concat(means, axis=0), tuple(part.root for part in parts), state.ok)


def write(basis: InducingBasis, kernel: Kernel, frame: Frame, belief: StreamBelief) -> None:
    """Write a q in the coordinates of a frame to a basis."""
    means = tf.split(belief.mean, frame.sizes, axis=0)
    gaussians = tuple(GaussianPart(mean, root) for mean, root in zip(means, belief.roots))
    coefficients = None
    if len(frame.sizes) > frame.free:
        basis.refresh(kernel)
        coefficients = whiten_columns(_last(frame), None, means[-1], adjoint=True)
    basis.assign_optimum(
        kernel, OptimalParameters(tf.zeros([], belief.mean.dtype), coefficients, gaussians)
    )


def _last(frame: Frame) -> tf.Tensor:
    return frame.chol[:, frame.sizes[0] :, frame.sizes[0] :]


def _blocks(frame: Frame, matrix: tf.Tensor) -> list[tf.Tensor]:
    edges = np.cumsum((0, *frame.sizes))[: frame.free + 1]
    return [matrix[..., i:j, i:j] for i, j in zip(edges, edges[1:])]


def _plus_identity(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + 1.0)


def _with_norm(frame: Frame, precision: tf.Tensor) -> tf.Tensor:
    if frame.norm is None:
        return _plus_identity(precision)
    total = precision + frame.norm
    floor = np.zeros(total.shape[-1])
    floor[frame.sizes[0] :] = np.sqrt(np.finfo(total.dtype.as_numpy_dtype).eps)
    return tf.linalg.set_diag(total, tf.linalg.diag_part(total) + tf.constant(floor, total.dtype))
