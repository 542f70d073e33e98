"""Lower bounds of the log evidence with normal noise, at given mean coefficients.

D = W^-1, W = diag(w): w_n = 1 / s2 for Gaussian noise, else the precisions of sites whose means are
the observations. With A = L_b^-1 K_bx, Q = A^T A and r = y - (K + D) a for any a, (D31), (D32)

    F = -1/2 [sum_n log(2 pi / w_n) + log|I + A W A^T| + T
              + r^T (Q + D)^-1 r + 2 a^T y - a^T (K + D) a]

is a lower bound of log N(y | 0, K + D) for two choices of T:

| bound | T |
|---|---|
| "elbo": q(f)'s, with the best q(u) | tr(W (K - Q)) |
| "evidence": Artemev, Burt & van der Wilk 2021 | N log(1 + tr(W (K - Q)) / N) |

The second (arXiv:2102.08314), no ELBO of q(f), is never lower, and far higher where beta leaves
much prior variance. Both are differentiable, in points too, and hold for every a.
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
from ...replicas import Group
from .row_features import ROWS

BOUNDS = ("evidence", "elbo")


def evidence_bound(
    kernel: Kernel,
    beta: InducingVariables,
    mean: DataMean,
    y: tf.Tensor,
    weights: tf.Tensor,
    a: tf.Tensor,
    *,
    bound: str = "evidence",
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> tf.Tensor:
    """Return one of the two bounds in nats, a scalar; N^2 + N M^2, memory M^2 and a block.

    :param kernel: the prior covariance.
    :param beta: inducing points, which make Q.
    :param mean: its points are the N inputs.
    :param y: observations less the mean function [N, L].
    :param weights: w [N, L], or [N, 1] for all latents, above zero. With negative ones, of sites,
        the number bounds no density, but depends on kernel and points as the bound at these sites.
    :param a: coefficients [N, L].
    :param bound: "evidence" or "elbo".
    :param dtype: tf.float32 for products in single precision, several times faster, exact to about
        1e-4 of its parts: enough to climb, not to quote.
    :param group: its replicas share the product with K and its gradient; each worker does the part
        N M^2.
    """
    K_a = gram_product(kernel, mean.points, None, a, dtype=dtype, group=group)
    r = y - K_a - a / weights
    product, pulled = _sums_over_rows(
        kernel, beta, mean.inputs, weights, weights * r, y.dtype if dtype is None else dtype
    )
    root = cholesky(
        tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)
    ).chol  # of I + A W A^T
    half = tf.linalg.triangular_solve(root, _per_latent(pulled, root))
    prior = tf.transpose(weights) * prior_variance(kernel, mean.inputs, full_cov=False)
    trace = tf.reduce_sum(prior, axis=1) - tf.linalg.trace(
        product
    )  # of W (K - Q), one for each matrix
    size = tf.cast(tf.shape(y)[0], y.dtype)
    trace = tf.reduce_sum(size * tf.math.log1p(trace / size) if bound == "evidence" else trace)
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
    shared = tf.cast(
        y.shape[1] / product.shape[0], y.dtype
    )  # how many latents each matrix stands for
    misfit = tf.reduce_sum(weights * tf.square(r)) - tf.reduce_sum(
        tf.square(half)
    )  # r^T (Q + D)^-1 r
    misfit += tf.reduce_sum(a * (2.0 * y - K_a - a / weights))  # (D32)
    log_noise = tf.reduce_sum(tf.math.log(2.0 * math.pi / tf.abs(weights)) + tf.zeros_like(y))
    return -0.5 * (log_noise + shared * (log_det + trace) + misfit)  # (D31)


def _sums_over_rows(
    kernel: Kernel,
    beta: InducingVariables,
    X: tf.Tensor,
    weights: tf.Tensor,
    scaled: tf.Tensor,
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """A W A^T [G or L, M, M] and A W r [M, L], of w and W r; gradients recompute blocks of A."""
    chol = cholesky(gram_to_factor(kernel, beta)).chol
    inverse = tf.cast(
        solve(chol, tf.eye(chol.shape[-1], batch_shape=[chol.shape[0]], dtype=chol.dtype)), dtype
    )

    @tf.recompute_grad
    def block(
        inverse: tf.Tensor, rows: tf.Tensor, w: tf.Tensor, part: tf.Tensor
    ) -> list[tf.Tensor]:
        A = tf.matmul(inverse, tf.cast(gram_to_data(kernel, beta, rows), dtype))
        sums = (
            tf.matmul(A * tf.transpose(w)[:, None], A, transpose_b=True),
            apply_per_latent(A, part),
        )
        return [tf.cast(one, X.dtype) for one in sums]

    arrays = X, tf.cast(weights, dtype), tf.cast(scaled, dtype)
    starts = range(0, X.shape[0], ROWS)
    product, pulled = zip(
        *(block(inverse, *(array[start : start + ROWS] for array in arrays)) for start in starts)
    )
    return tf.add_n(product), tf.add_n(pulled)


def _per_latent(columns: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """Columns [M, L] as right-hand sides of [G, M, M]: [1, M, L], or [L, M, 1] for G = L > 1."""
    return columns[None] if root.shape[0] == 1 else tf.transpose(columns)[..., None]
