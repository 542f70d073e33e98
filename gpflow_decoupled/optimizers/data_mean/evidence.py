"""Lower bounds of the evidence at given mean coefficients."""

from __future__ import annotations

__all__ = [
    "BOUNDS", "Posterior", "bound_at_sites", "evidence_at", "evidence_bound",
    "hyperparameters_of", "posterior_of", "sites_of",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...bases import GaussianPart
from ...bases.optimum import DataMean
from ...covariances.latents import gram_to_data, gram_to_factor, prior_variance, split_latents
from ...covariances.neighbourhoods import Conditioning, conditional_variances
from ...covariances.products import gram_product
from ...inducing.variables import point_values
from ...likelihoods.parameters import single_noise_variance
from ...linalg.cholesky import cholesky
from ...linalg.triangular import solve
from ...linalg.whitening import apply_per_latent, kl_from_whitened
from ...models import BasisGP
from ...replicas import Group
from .system import ROWS, RowFeatures, project_rows

# ---
# Moments of q(f) at all rows.


_LEAST_WEIGHT = 1e-8
"""Smallest precision of a site in the linear system, relative to the largest curvature.

It changes the steps of the mean and not their limit; the covariance uses the curvatures themselves.
"""


class Posterior(NamedTuple):
    """q(f) at fixed hyperparameters, with moments and derivatives for a step."""

    a: tf.Tensor
    """Coefficients [N, L]."""
    K_a: tf.Tensor
    """K a [N, L]."""
    inducing: GaussianPart
    """q(u), whitened."""
    mean: tf.Tensor
    """Mean of f at the rows [N, L], without the mean function."""
    variance: tf.Tensor
    """Variance of f at the rows [N, L]."""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""
    elbo: float
    """Nats."""


def posterior_of(
    model: BasisGP,
    data: RegressionData,
    projections: RowFeatures,
    a: tf.Tensor,
    K_a: tf.Tensor,
    inducing: GaussianPart,
) -> Posterior:
    """Moments (D19), (D20), bound (D21) and derivatives of q(f); N M^2 L.

    X is [N, D], Y [N, P], a and K_a [N, L], `inducing` the whitened q(u).
    """
    t = projections.times(a, projections.size)
    mean = K_a + projections.transposed(inducing.mean - t)  # (D19)
    variance = projections.variances(inducing.root)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = tf.reduce_sum(model.variational_expectations(mean, variance, data))
    g, h = tape.gradient(expected, [mean, variance])
    norm = tf.reduce_sum(a * K_a) - tf.reduce_sum(tf.square(t))
    kl = 0.5 * norm + kl_from_whitened(inducing.mean, inducing.root)  # (D21)
    return Posterior(a, K_a, inducing, mean, variance, g, h, float(expected - kl))


def sites_of(now: Posterior) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Fit sites (C13) to the moments, each [N, L].

    :return: natural means g + w m; precisions w above zero, for the mean; precisions -2 h of any
        sign, for the covariance.
    """
    precisions = -2.0 * now.h
    weights = tf.maximum(precisions, _LEAST_WEIGHT * tf.reduce_max(tf.abs(precisions)))
    return now.g + weights * now.mean, weights, precisions


# ---


# With noise precisions W = D^-1, A = L_b^-1 K_bx, Q = A^T A and r = y - (K + D) a for any a, (D31),
# (D32)
#
#   F = -1/2 [N log(2 pi) + T + r^T (Q + D)^-1 r + 2 a^T y - a^T (K + D) a]
#
# is a lower bound of log N(y | 0, K + D) for every upper bound T of log|K + D|, (N5), (N3):
#
# | bound | T |
# |---|---|
# | "elbo": q(f)'s, with the best q(u) | log|Q + D| + sum_n w_n d_n, d = diag(K - Q) |
# | "diagonal" | log|Q + D| + sum_n log(1 + w_n d_n) |
# | "neighbours" | sum_n log tau_n, variances of observations given some earlier ones |


BOUNDS = ("elbo", "diagonal", "neighbours")
"""From the lowest to the usually highest."""


def evidence_bound(
    kernel: Kernel,
    beta: InducingVariables,
    mean: DataMean,
    y: tf.Tensor,
    weights: tf.Tensor,
    a: tf.Tensor,
    *,
    bound: str = "diagonal",
    given: Conditioning | None = None,
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> tf.Tensor:
    """Return one of the bounds in nats, a scalar; N^2 + N M^2, memory M^2 and a block.

    :param y: observations less the mean function [N, L].
    :param weights: w [N, L], or [N, 1] for all latents, above zero; with negative ones no bound,
        but its gradients.
    :param a: coefficients [N, L]. In single precision, far from the solution, round-off can lift
        the result above the evidence.
    :param bound: one of `BOUNDS`; negative weights are for "elbo" alone.
    :param given: for "neighbours", neighbours of all rows, or of B random ones, whose sum times N /
        B is unbiased; costs B (m^3 / 3 + m^2 D) more.
    :param dtype: tf.float32 for products several times faster, exact to about 1e-4: enough to
        climb, not to quote.
    :param group: its replicas share the product with K and its gradient.
    """
    K_a = gram_product(kernel, mean.points, None, a, dtype=dtype, group=group)
    r = y - K_a - a / weights
    product, pulled, known = _sums_over_rows(
        kernel, beta, mean.inputs, weights, weights * r, y.dtype if dtype is None else dtype
    )
    root = cholesky(
        tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)
    ).chol  # of I + A W A^T
    half = tf.linalg.triangular_solve(root, _per_latent(pulled, root))
    # r^T (Q + D)^-1 r
    misfit = tf.reduce_sum(weights * tf.square(r)) - tf.reduce_sum(tf.square(half))
    misfit += tf.reduce_sum(a * (2.0 * y - K_a - a / weights))  # (D32)
    if bound == "neighbours":
        assert given is not None, "neighbours are needed"
        log_det = _log_det_of_neighbours(kernel, mean.inputs, weights, int(y.shape[1]), given)
    else:
        rest = prior_variance(kernel, mean.inputs, full_cov=False) - known  # d [G, N]
        log_det = _log_det_of_points(root, tf.transpose(weights), rest, bound)
        # how many latents each matrix stands for
        log_det *= tf.cast(y.shape[1] / product.shape[0], y.dtype)
        log_det -= tf.reduce_sum(tf.math.log(tf.abs(weights)) + tf.zeros_like(y))
    constant = math.log(2.0 * math.pi) * tf.cast(tf.size(y), y.dtype)
    return -0.5 * (constant + log_det + misfit)  # (D31)


def _log_det_of_points(
    root: tf.Tensor, weights: tf.Tensor, rest: tf.Tensor, bound: str
) -> tf.Tensor:
    """Bound log|W^1/2 (K + D) W^1/2| from above, summed over the matrices, (N5)."""
    # root: of I + A W A^T [G or L, M, M].
    # weights: w [1 or L, N].
    # rest: d, the prior variances that beta leaves unexplained [G, N].
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
    if bound == "elbo":
        return log_det + tf.reduce_sum(weights * rest)
    # d is below zero by round-off alone
    return log_det + tf.reduce_sum(tf.math.log1p(weights * tf.maximum(rest, 0.0)))


def _log_det_of_neighbours(
    kernel: Kernel, X: tf.Tensor, weights: tf.Tensor, latents: int, given: Conditioning
) -> tf.Tensor:
    """Bound log|K + D| from above by (N3), or estimate it from B rows."""
    kernels = [one for (one,) in split_latents(kernel)]
    count = max(len(kernels), int(weights.shape[1]))  # matrices that differ
    total = tf.zeros([], weights.dtype)
    for one in range(count):
        noise = 1.0 / weights[:, one % weights.shape[1]]
        near = given.neighbours[one % given.neighbours.shape[0]]
        tau = conditional_variances(kernels[one % len(kernels)], X, noise, given.rows, near)
        total += tf.reduce_mean(tf.math.log(tau))
    return total * tf.cast(X.shape[0] * latents / count, total.dtype)


def _sums_over_rows(
    kernel: Kernel,
    beta: InducingVariables,
    X: tf.Tensor,
    weights: tf.Tensor,
    scaled: tf.Tensor,
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return A W A^T [G or L, M, M], A W r [M, L] and diag(Q) [G, N], of w and W r."""
    # Gradients recompute blocks of A.
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
            tf.reduce_sum(tf.square(A), axis=-2),
        )
        return [tf.cast(one, X.dtype) for one in sums]

    arrays = X, tf.cast(weights, dtype), tf.cast(scaled, dtype)
    starts = range(0, X.shape[0], ROWS)
    product, pulled, known = zip(
        *(block(inverse, *(array[start : start + ROWS] for array in arrays)) for start in starts)
    )
    return tf.add_n(product), tf.add_n(pulled), tf.concat(known, axis=1)


def _per_latent(columns: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """Columns [M, L] as right-hand sides of [G, M, M]: [1, M, L], or [L, M, 1] for G = L > 1."""
    return columns[None] if root.shape[0] == 1 else tf.transpose(columns)[..., None]


# ---
# Objectives of hyperparameters at a fixed mean.


Data = tuple[tf.Tensor, tf.Tensor]

_ROUNDING = 1.0
"""Largest trace of W^1/2 K W^1/2 times the machine epsilon at which products have low precision."""


def hyperparameters_of(model: BasisGP, mean: DataMean) -> list[tf.Variable]:
    """Trainable variables outside q(f) and the mean points, which are the training inputs."""
    parts = [parameter.unconstrained_variable for parameter in model.basis.gaussian_parameters()]
    of_q = {variable.ref() for variable in (*parts, *mean.variables)}
    return [variable for variable in model.trainable_variables if variable.ref() not in of_q]


def evidence_at(
    model: BasisGP,
    mean: DataMean,
    data: Data,
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> Callable[[], tf.Tensor]:
    """Return `evidence_bound` at the mean's coefficients a [N, P], as a function of
    hyperparameters.

    :param model: a model with Gaussian noise of one variance.
    :param mean: its mean on all data.
    :param data: X [N, D], the mean points, and Y [N, P].
    :param dtype: tf.float32 for faster products with K, if the noise is well above rounding errors.
    :param group: whose replicas share these products.
    """
    X, Y = data
    a = tf.convert_to_tensor(mean.coefficients)

    def precisions() -> tf.Tensor:
        return tf.fill(
            [X.shape[0], 1], 1.0 / cast(tf.Tensor, single_noise_variance(model.likelihood))
        )

    dtype = _useful(dtype, model, precisions(), X)

    def objective() -> tf.Tensor:
        weights = precisions()
        y = Y - model.mean_function(X)
        parts = model.kernel, model.basis.beta, mean, y, weights, a
        return evidence_bound(*parts, dtype=dtype, group=group)

    return objective


def bound_at_sites(
    model: BasisGP,
    mean: DataMean,
    data: Data,
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> Callable[[], tf.Tensor]:
    """Return a function of hyperparameters with the bound's gradient where q(f) is the best now."""
    # With sites t_n(f) of precision w and mean y~ fitted to the moments of q(f), the bound is
    #
    #     F(kernel, points) + sum_n E_q log p(y_n | f_n) - sum_n E_q log t_n(f_n),
    #
    # F the bound "elbo" of `evidence_bound` for y~. The function is the first two terms: a change
    # of q changes others at second order. Parameters as in `evidence_at`.
    now = _posterior(model, mean, data, group)
    _, least, precisions = sites_of(now)
    # negative precisions belong to q: with others the gradient would be of another q
    weights = tf.where(precisions < 0.0, precisions, least)
    parts = model.kernel, model.basis.beta, mean, now.mean + now.g / weights, weights, now.a
    dtype = _useful(dtype, model, tf.abs(weights), data[0])

    def objective() -> tf.Tensor:
        fit = tf.reduce_sum(model.variational_expectations(now.mean, now.variance, data))
        return fit + evidence_bound(*parts, bound="elbo", dtype=dtype, group=group)

    return objective


def _useful(
    dtype: tf.DType | None, model: BasisGP, weights: tf.Tensor, X: tf.Tensor
) -> tf.DType | None:
    # The trace decides, an upper bound of all eigenvalues.
    if dtype is None:
        return None
    prior = prior_variance(model.kernel, X, full_cov=False)  # [L, N]
    trace = tf.reduce_max(tf.reduce_sum(tf.transpose(weights) * prior, axis=1))
    return dtype if float(trace) * np.finfo(dtype.as_numpy_dtype).eps <= _ROUNDING else None


def _posterior(model: BasisGP, mean: DataMean, data: Data, group: Group | None) -> Posterior:
    size = int(point_values(model.basis.beta)[0].shape[0])
    projections = project_rows(model.kernel, model.basis.beta, data[0], size)
    state = model.basis.factor(model.kernel, with_kl=False)
    K_a = gram_product(model.kernel, mean.points, None, state.a, group=group)
    return posterior_of(
        model, data, projections, state.a, K_a, GaussianPart(state.mean, state.root)
    )
