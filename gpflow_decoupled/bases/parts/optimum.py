"""The best q for Gaussian noise, and its bound."""

# With A = L_b^-1 K_bx, Q_beta = A^T A, W = Q_beta + s2 I, and y the data less the mean function:
#
#   S~ = (I + A A^T / s2)^-1                                                              (D26)
#   a = (C_g + C_gx W^-1 C_xg)^-1 C_gx W^-1 y,  m~ = (s2 I + A A^T)^-1 A (y - C_xg a)     (D30)
#   F = -N/2 log 2 pi - 1/2 log|W| - 1/2 [|y - mean|^2 / s2 + |m~|^2 + a^T C_g a]
#       - tr(K - Q_beta) / (2 s2)                                                  (D31), (D32)
#
# F is a lower bound at any a. A basis fits its mean points, then its Gaussian parts; the optimum is
# differentiable in kernel, points and noise.

from __future__ import annotations

__all__ = [
    "MeanFit", "OptimalParameters", "Regression", "best_means", "best_precision", "best_root",
    "check_optimum", "collapsed_bound", "fit_mean_points", "no_mean_points", "orthogonal_optimum",
    "project", "solve_columns", "with_gaussians",
]  # fmt: skip

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...covariances.latents import cross_gram, gram, gram_to_data, gram_to_factor, prior_variance
from ...errors import NumericalError
from ...linalg.cholesky import cholesky, jitter
from ...linalg.gaussians import apply_per_latent, root_from_precision
from ...linalg.triangular import solve, symmetric_product
from ...summaries import html_table, one_line
from ..base import GaussianPart
from .kernel_mean import KernelMean
from .mean_operator import MeanOperator


class Regression(NamedTuple):
    """Data with Gaussian noise of one variance: y = f(X) + noise.

    Example::

        data = Regression(tf.constant(X), Y - mean_function(X), tf.constant(0.1, tf.float64))
        bound = basis.collapsed_elbo(kernel, data)
    """

    X: tf.Tensor
    """Inputs [N, D]."""
    y: tf.Tensor
    """Observations less the mean function [N, L]."""
    noise: tf.Tensor
    """The noise variance s2, a scalar."""


class OptimalParameters(NamedTuple):
    """The best q at given hyperparameters, and its bound; see `InducingBasis.assign_optimum`.

    Example::

        best = basis.optimal_parameters(kernel, Regression(X, y, noise))
        basis.assign_optimum(kernel, best)
    """

    elbo: tf.Tensor
    """The bound in nats, a scalar."""
    coefficients: tf.Tensor | None
    """Raw coefficients of the mean points [M_gamma, L], or None."""
    gaussians: tuple[GaussianPart, ...]
    """Whitened Gaussian parts: means [M, L], roots [L, M, M]."""
    chol_B: tf.Tensor | None = None
    """For `DecoupledBasis` with covariance="inverse": a root of B [L, M_beta, M_beta]."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


class MeanFit(NamedTuple):
    """The fitted mean points and their residual."""

    coefficients: tf.Tensor | None
    """Raw coefficients of the mean points [M_gamma, L], or None."""
    rest: tf.Tensor
    """The residual of y [N, L]."""
    norm: tf.Tensor
    """Squared norm of the mean so far, a scalar."""


def check_optimum(optimum: OptimalParameters) -> None:
    """Raise `NumericalError`, with the field's name, for entries that are not finite."""
    for name, part in optimum._asdict().items():
        arrays = [array for array in tf.nest.flatten(part) if array is not None]
        if not tf.executing_eagerly():
            for array in arrays:
                tf.debugging.Assert(
                    tf.reduce_all(tf.math.is_finite(array)),
                    [f"{name} of the optimum is not finite."],
                )
        elif not all(np.all(np.isfinite(array)) for array in arrays):
            raise NumericalError(
                f"{name} of the optimum has entries that are not finite: compute it where the bound"
                " is finite.",
                matrix=name,
            )


def project(kernel: Kernel, beta: InducingVariables, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """L_b [G, M, M] and A = L_b^-1 K_bx [G, M, N] for X [N, D]; M^3 / 3 + N M^2."""
    chol = cholesky(gram_to_factor(kernel, beta)).chol
    return chol, solve(chol, gram_to_data(kernel, beta, X))


def no_mean_points(data: Regression) -> MeanFit:
    """The fit of a basis without mean points."""
    return MeanFit(None, data.y, tf.zeros([], data.y.dtype))


def fit_mean_points(operator: MeanOperator, A: tf.Tensor | None, data: Regression) -> MeanFit:
    """The best coefficients of mean points; M_gamma^3 + N M_gamma (M_gamma + M_beta).

    :param A: [G, M_beta, N] if a Gaussian part with a mean is eliminated, (D30); None if the mean
        points are the whole mean, (D28).
    """
    a = _coefficients(operator, A, data.y, data.noise)
    return MeanFit(a, data.y - operator.to_data(a), tf.reduce_sum(a * operator.product(a)))


def with_gaussians(
    kernel: Kernel, data: Regression, parts: Sequence[tf.Tensor], fit: MeanFit
) -> OptimalParameters:
    """Complete the optimum by Gaussian parts with features [G, M, N]: means (D30), covariances
    (D26).
    """
    means = best_means(parts, fit.rest, data.noise)
    for mean, part in zip(means, parts):
        norm = fit.norm + tf.reduce_sum(tf.square(mean))
        fit = fit._replace(rest=fit.rest - apply_per_latent(part, mean, adjoint=True), norm=norm)
    precisions = [best_precision(part, data.noise) for part in parts]
    elbo = collapsed_bound(kernel, data, parts, precisions, fit)
    roots = [best_root(precision, data.y.shape[1]) for precision in precisions]
    return OptimalParameters(
        elbo, fit.coefficients, tuple(GaussianPart(mean, root) for mean, root in zip(means, roots))
    )


def orthogonal_optimum(
    kernel: Kernel, beta: InducingVariables, mean_points: KernelMean, data: Regression
) -> OptimalParameters:
    """The optimum of q(u) with mean points orthogonal to beta; by (D29) also the hybrid basis's."""
    chol, A = project(kernel, beta, data.X)
    if mean_points.size == 0:
        return with_gaussians(kernel, data, [A], no_mean_points(data))
    points = mean_points.points
    K, cross = gram(kernel, points), gram_to_data(kernel, points, data.X)
    operator = MeanOperator(K, cross, solve(chol, cross_gram(kernel, beta, points)), A)
    return with_gaussians(kernel, data, [A], fit_mean_points(operator, A, data))


def best_means(parts: Sequence[tf.Tensor], y: tf.Tensor, noise: tf.Tensor) -> list[tf.Tensor]:
    """Whitened means [M, L] of parts [G, M, N], (s2 I + Phi Phi^T)^-1 Phi y, y [N, L]: (D30)."""
    features = tf.concat(parts, axis=-2) if len(parts) > 1 else parts[0]
    chol = cholesky(best_precision(features, noise)).chol
    means = solve_columns(chol, apply_per_latent(features, y / noise))
    return tf.split(means, [part.shape[-2] for part in parts], axis=0)


def best_precision(A: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """S~^-1 = I + A A^T / s2 [G, M, M] for A [G, M, N]: (D26)."""
    product = symmetric_product(A, tf.broadcast_to(1.0 / noise, tf.shape(A[..., 0, :])))
    return tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)


def best_root(precision: tf.Tensor, latents: int) -> tf.Tensor:
    """A root of S~ [L, M, M] from its inverse [G, M, M]: (D26)."""
    root = root_from_precision(precision).chol
    return tf.broadcast_to(root, [latents, *root.shape[1:]])


def collapsed_bound(
    kernel: Kernel,
    data: Regression,
    parts: Sequence[tf.Tensor],
    precisions: Sequence[tf.Tensor],
    fit: MeanFit,
) -> tf.Tensor:
    """The bound (D31), or (D33) of several parts with features [G, M, N], a scalar in nats."""
    prior, count = (
        prior_variance(kernel, data.X, full_cov=False),
        tf.cast(tf.size(fit.rest), fit.rest.dtype),
    )

    def of_latents(groups: tf.Tensor, summands: tf.Tensor) -> tf.Tensor:
        """Sum over all latents, from one summand per group of kernel or points."""
        return tf.reduce_sum(summands) * (fit.rest.shape[1] / groups.shape[0])

    log_det = sum(
        of_latents(P, 2.0 * tf.math.log(tf.linalg.diag_part(cholesky(P).chol))) for P in precisions
    )
    trace = of_latents(prior, prior) - sum(of_latents(part, tf.square(part)) for part in parts)
    misfit = tf.reduce_sum(tf.square(fit.rest)) / data.noise + fit.norm  # (D32)
    spread = log_det + trace / data.noise
    return -0.5 * (count * tf.math.log(2.0 * math.pi * data.noise) + misfit + spread)  # (D31)


def solve_columns(chol: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """(L L^T)^-1 times one column per latent: chol [G, M, M], columns [M, L] -> [M, L]."""
    grouped = columns[None] if chol.shape[0] == 1 else tf.transpose(columns)[..., None]
    solved = solve(chol, solve(chol, grouped), adjoint=True)
    return solved[0] if chol.shape[0] == 1 else tf.transpose(solved[..., 0])


def _coefficients(
    operator: MeanOperator, A: tf.Tensor | None, y: tf.Tensor, noise: tf.Tensor
) -> tf.Tensor:
    cross = operator.cross
    if operator.projection is not None:
        cross -= tf.matmul(operator.projection, A, transpose_a=True)  # C_gx
    scaled = cross / noise
    inner, weighted = tf.matmul(cross, scaled, transpose_b=True), y / noise
    # both summands are differences, with the round-off of their minuends
    ridge = jitter(tf.linalg.diag_part(operator.gram) + tf.linalg.diag_part(inner))
    if A is not None:  # W^-1 = (I - A^T (s2 I + A A^T)^-1 A) / s2
        half = solve(
            cholesky(best_precision(A, noise)).chol, tf.matmul(A, scaled, transpose_b=True)
        )
        inner -= tf.matmul(half, half, transpose_a=True)
        weighted -= apply_per_latent(A, best_means([A], y, noise)[0], adjoint=True) / noise
    matrix = operator.dense() + inner
    chol = cholesky(tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + ridge)).chol
    return solve_columns(chol, apply_per_latent(cross, weighted))
