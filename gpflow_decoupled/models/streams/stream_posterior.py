"""The best q for a Gaussian factor, and its bound."""

# In a frame's coordinates the prior is N(0, I); q has mean mu and a covariance S_k for points k
# that the basis gives one. For a factor (theta, Lambda) the best q is
#
#   S_k^-1 = I + Lambda_kk,   (Pi + Lambda) mu = theta        (C45)
#
# with Pi = I, or, for mean points without a covariance, C_g of (D21). The bound is
#
#   F = sum_n E_n + E_q log l - 1/2 mu^T Pi mu - 1/2 sum_k [tr S_k - M_k - log|S_k|]        (C43)

from __future__ import annotations

__all__ = ["StreamBelief", "best", "divergence", "expectation", "moments", "read", "write"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...bases import GaussianPart, InducingBasis, OptimalParameters
from ...bases.parts.frame import Frame
from ...bases.parts.inducing_gaussian import whiten_columns
from ...covariances.latents import prior_variance
from ...linalg.gaussians import apply_per_latent, kl_from_whitened, root_from_precision
from ...linalg.triangular import transposed_product
from .stream_memory import Quadratic


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
