"""Lower bounds of the log evidence for Gaussian noise, at given coefficients of a mean on all data.

With A = L_b^-1 K_bx, Q = A^T A, noise variance s2, and r = y - (K + s2 I) a for any coefficients a,

    F = -1/2 [N log 2 pi s2 + log|I + A A^T / s2| + T
              + r^T (Q + s2 I)^-1 r + 2 a^T y - a^T (K + s2 I) a]                                    (D31), (D32)

is a lower bound of log p(y) for two choices of T:

| bound | T |
|---|---|
| "elbo": that of q(f) with the best q(u), (D31) | tr(K - Q) / s2 |
| "evidence": Artemev, Burt & van der Wilk 2021 (arXiv:2102.08314), not an ELBO of q(f) | N log(1 + tr(K - Q) / (N s2)) |

The second one is never lower, and far higher where beta leaves much of the prior variance: it is what lets the noise variance
fall. Both can be differentiated, also for points, and both hold for every a: so a may stay while kernel and noise move.
"""

from __future__ import annotations

__all__ = ["BOUNDS", "evidence_bound"]

import math

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...bases.parts.data_mean import DataMean
from ...covariances.latents import gram_to_data, gram_to_factor, prior_variance
from ...covariances.products import gram_product
from ...linalg.cholesky import cholesky
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import solve
from .projections import ROWS

BOUNDS = ("evidence", "elbo")


def evidence_bound(
    kernel: Kernel,
    beta: InducingVariables,
    mean: DataMean,
    y: tf.Tensor,
    noise: tf.Tensor,
    a: tf.Tensor,
    *,
    bound: str = "evidence",
    dtype: tf.DType | None = None,
) -> tf.Tensor:
    """One of the two bounds above in nats, a scalar; N^2 + N M^2, memory M^2 and a block of rows.

    :param kernel: the prior covariance.
    :param beta: inducing points, of which Q is made.
    :param mean: whose points are the N inputs.
    :param y: observations less the mean function [N, L].
    :param noise: s2, a scalar.
    :param a: coefficients [N, L].
    :param bound: "evidence" or "elbo".
    :param dtype: tf.float32 for products with K and with A in single precision, several times faster. The bound is then
        exact to some 1e-4 of its parts, which is enough to climb it, but not to quote it.
    """
    K_a = gram_product(kernel, mean.points, None, a, dtype=dtype)
    r = y - K_a - noise * a
    chol = cholesky(gram_to_factor(kernel, beta)).chol
    gram_sum, pulled, squares = _sums_over_rows(kernel, beta, chol, mean.inputs, r, y.dtype if dtype is None else dtype)
    precision = gram_sum / noise
    precision = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) + 1.0)  # I + A A^T / s2
    root = cholesky(precision).chol
    half = tf.linalg.triangular_solve(root, _per_latent(pulled / noise, root))
    prior = tf.reduce_sum(prior_variance(kernel, mean.inputs, full_cov=False), axis=1)  # [G]
    size = tf.cast(tf.shape(y)[0], y.dtype)
    shared = tf.cast(y.shape[1] / prior.shape[0], y.dtype)  # how many latents each group stands for
    trace = (prior - squares) / noise
    trace = tf.reduce_sum(size * tf.math.log1p(trace / size) if bound == "evidence" else trace)
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
    misfit = tf.reduce_sum(tf.square(r)) / noise - tf.reduce_sum(tf.square(half))  # r^T (Q + s2 I)^-1 r
    misfit += tf.reduce_sum(a * (2.0 * y - K_a - noise * a))  # (D32)
    count = tf.cast(tf.size(y), y.dtype)
    return -0.5 * (count * tf.math.log(2.0 * math.pi * noise) + shared * (log_det + trace) + misfit)  # (D31)


def _sums_over_rows(
    kernel: Kernel, beta: InducingVariables, chol: tf.Tensor, X: tf.Tensor, r: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A A^T [G, M, M], A r [M, L] and |A|^2 [G]; the gradient computes each block of A again, so that none is kept."""
    size = chol.shape[-1]
    inverse = tf.cast(solve(chol, tf.eye(size, batch_shape=[chol.shape[0]], dtype=chol.dtype)), dtype)

    @tf.recompute_grad
    def block(inverse: tf.Tensor, rows: tf.Tensor, part: tf.Tensor) -> list[tf.Tensor]:
        A = tf.matmul(inverse, tf.cast(gram_to_data(kernel, beta, rows), dtype))
        sums = tf.matmul(A, A, transpose_b=True), apply_per_latent(A, part), tf.reduce_sum(tf.square(A), axis=[1, 2])
        return [tf.cast(one, X.dtype) for one in sums]

    part = tf.cast(r, dtype)
    starts = range(0, X.shape[0], ROWS)
    blocks = [block(inverse, X[start : start + ROWS], part[start : start + ROWS]) for start in starts]
    return tuple(tf.add_n(column) for column in zip(*blocks))


def _per_latent(columns: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """Columns [M, L] as right-hand sides of factors [G, M, M]: [1, M, L], or [L, M, 1] for G = L > 1."""
    return columns[None] if root.shape[0] == 1 else tf.transpose(columns)[..., None]
