"""The optimum of q in closed form for Gaussian noise, and the bound there.

With noise variance s2, A = L_b^-1 K_bx, W = Q_beta + s2 I and y the data less the mean function (section 6, OD appendix
D):

    S~ = (I + A A^T / s2)^-1                                                                             (D26)
    a = (C_g + C_gx W^-1 C_xg)^-1 C_gx W^-1 y,   m~ = (s2 I + A A^T)^-1 A (y - C_xg a)                     (D30)
    F = -N/2 log 2 pi - 1/2 log|W| - 1/2 [|y - mean|^2 / s2 + |m~|^2 + a^T C_g a] - tr(K - Q_beta) / (2 s2)  (D31),
    (D32)

The bracket holds at any a, not only at the best one, so F is a lower bound of the log evidence whatever a is: with
gamma = X it is the bound of Artemev, Burt & van der Wilk 2021 (arXiv:2102.08314), known as CGLB.
"""

from __future__ import annotations

__all__ = ["Optimum", "collapsed_elbo", "optimal_parameters"]

import math
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian as GaussianNoise

from ..bases import Basis, DecoupledBasis, Gaussian, HybridBasis, OrthogonalBasis, SolveBasis
from ..bases.parts.mean_operator import MeanOperator
from ..covariances.latents import cross_gram, gram, gram_to_data, gram_to_factor, prior_variance
from ..linalg.cholesky import add_jitter, cholesky
from ..linalg.gaussians import apply_per_latent, root_from_precision
from ..linalg.triangular import solve, symmetric_product
from ..models import BasisGP
from .natural_gradient.evaluation import as_basis_model


class Optimum(NamedTuple):
    """The best q for given hyperparameters, and the bound there."""

    elbo: tf.Tensor
    """[], nats."""
    coefficients: tf.Tensor | None
    """Raw coefficients of the mean points [M_gamma, L], or None."""
    gaussians: tuple[Gaussian, ...]
    """Whitened Gaussian parts: means [M, L], roots [L, M, M]."""
    chol_B: tf.Tensor | None = None
    """For `DecoupledBasis` with covariance="inverse": a root of B [L, M_beta, M_beta], (D27)."""

    def assign(self, model: Any) -> None:
        """Write the optimum into the Parameters of `model`, whose hyperparameters must be those it was computed for."""
        basis = as_basis_model(model).basis
        if self.coefficients is not None and basis.kernel_mean is not None:
            basis.kernel_mean.coefficients.assign(basis.kernel_mean.scaling.scaled(self.coefficients))
        if self.gaussians:
            state = basis.factor(model.kernel, with_kl=False)
            basis.assign_gaussians(state, self.gaussians)
        if self.chol_B is not None:
            basis.chol_B.assign(self.chol_B)


def optimal_parameters(model: Any, data: RegressionData) -> Optimum:
    """The best q(f) of a model with Gaussian noise, for its hyperparameters as they are; `Optimum.assign` writes it.

    :param data: the whole data set, X [N, D] and Y [N, L].

    Raises `TypeError` unless the likelihood is Gaussian with one noise variance and the latents are not mixed. Cost
    N (M_beta^2 + M_gamma^2) + M_beta^3 + M_gamma^3, memory N (M_beta + M_gamma).
    """
    model = as_basis_model(model)
    X, y, noise = _regression(model, data)
    basis, kernel, latents = model.basis, model.kernel, model.num_latent_gps
    chol = cholesky(gram_to_factor(kernel, basis.beta)).chol
    A = solve(chol, gram_to_data(kernel, basis.beta, X))
    parts = [A]
    if isinstance(basis, SolveBasis):
        parts.append(basis.features(basis.factor(kernel, with_kl=False), kernel, X).minus[1])
    operator = _operator(basis, kernel, X, chol, A)
    own_mean = isinstance(basis, DecoupledBasis)
    a, rest, norm = None, y, tf.zeros([], y.dtype)
    if operator is not None:
        a = _coefficients(operator, None if own_mean else A, y, noise)
        rest, norm = y - operator.to_data(a), tf.reduce_sum(a * operator.product(a))
    means = [None] if own_mean else _means(parts, rest, noise)
    for mean, part in zip(means, parts):
        if mean is not None:
            norm += tf.reduce_sum(tf.square(mean))
            rest -= apply_per_latent(part, mean, adjoint=True)
    precisions = [_precision(part, noise) for part in parts]
    elbo = _bound(rest, norm, precisions, prior_variance(kernel, X, full_cov=False), parts, noise)
    if own_mean and basis.covariance == "inverse":
        B = solve(chol, precisions[0] - tf.eye(tf.shape(A)[-2], dtype=A.dtype), adjoint=True)
        B = solve(chol, tf.linalg.matrix_transpose(B), adjoint=True)  # (D27)
        return Optimum(elbo, a, (), _tile(cholesky(add_jitter(B)).chol, latents))
    roots = [_tile(root_from_precision(precision).chol, latents) for precision in precisions]  # (D26)
    return Optimum(elbo, a, tuple(Gaussian(mean, root) for mean, root in zip(means, roots)))


def collapsed_elbo(model: Any, data: RegressionData) -> tf.Tensor:
    """The bound in nats at the best q(f) for Gaussian noise, (D31) or (D33); differentiable in the hyperparameters.

    Arguments (X [N, D], Y [N, L]), errors and cost as `optimal_parameters`. With gamma = X its data-fit term is
    that of the exact GP.
    """
    return optimal_parameters(model, data).elbo


def _regression(model: BasisGP, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """X, the data less the mean function, and the noise variance."""
    if not isinstance(model.likelihood, GaussianNoise) or model.likelihood.variance is None:
        raise TypeError("The optimum is in closed form only for a Gaussian likelihood with one noise variance.")
    if isinstance(model.kernel, LinearCoregionalization):
        raise TypeError("The optimum is in closed form only for latents that are not mixed; train with fit.")
    X, Y = model.as_tensors(data)
    return X, Y - model.mean_function(X), tf.convert_to_tensor(model.likelihood.variance)


def _operator(basis: Basis, kernel: Any, X: tf.Tensor, chol: tf.Tensor, A: tf.Tensor) -> MeanOperator | None:
    """The mean points' maps, orthogonal to beta also for the hybrid basis, whose optimum is the same function (D29)."""
    if basis.kernel_mean is None or basis.kernel_mean.size == 0:
        return None
    points = basis.kernel_mean.points
    K, cross = gram(kernel, points), gram_to_data(kernel, points, X)
    if isinstance(basis, (OrthogonalBasis, HybridBasis)):
        return MeanOperator(K, cross, solve(chol, cross_gram(kernel, basis.beta, points)), A)
    return MeanOperator(K, cross)


def _coefficients(operator: MeanOperator, A: tf.Tensor | None, y: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """(D30), or (D28) without A: the coefficients a [M_gamma, L]."""
    cross = operator.cross
    if operator.projection is not None:
        cross -= tf.matmul(operator.projection, A, transpose_a=True)  # C_gx
    scaled = cross / noise
    if A is not None:  # W^-1 = (I - A^T (s2 I + A A^T)^-1 A) / s2
        half = solve(cholesky(_precision(A, noise)).chol, tf.matmul(A, scaled, transpose_b=True))
        inner = tf.matmul(cross, scaled, transpose_b=True) - tf.matmul(half, half, transpose_a=True)
        weighted = (y - apply_per_latent(A, _means([A], y, noise)[0], adjoint=True)) / noise
    else:
        inner, weighted = tf.matmul(cross, scaled, transpose_b=True), y / noise
    chol = cholesky(add_jitter(operator.dense() + inner)).chol
    return _solve_columns(chol, apply_per_latent(cross, weighted))


def _means(parts: list[tf.Tensor], y: tf.Tensor, noise: tf.Tensor) -> list[tf.Tensor]:
    """(D30): the whitened means [M, L] of all parts jointly, (s2 I + Phi Phi^T)^-1 Phi y."""
    features = tf.concat(parts, axis=-2) if len(parts) > 1 else parts[0]
    chol = cholesky(_precision(features, noise)).chol
    means = _solve_columns(chol, apply_per_latent(features, y / noise))
    return tf.split(means, [part.shape[-2] for part in parts], axis=0)


def _solve_columns(chol: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """(L L^T)^-1 times a column a latent: chol [G, M, M], columns [M, L] -> [M, L]."""
    grouped = columns[None] if chol.shape[0] == 1 else tf.transpose(columns)[..., None]
    solved = solve(chol, solve(chol, grouped), adjoint=True)
    return solved[0] if chol.shape[0] == 1 else tf.transpose(solved[..., 0])


def _precision(A: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """I + A A^T / s2 [G, M, M]: (D26)."""
    product = symmetric_product(A, tf.broadcast_to(1.0 / noise, tf.shape(A[..., 0, :])))
    return tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)


def _bound(
    rest: tf.Tensor,
    norm: tf.Tensor,
    precisions: list[tf.Tensor],
    prior: tf.Tensor,
    parts: list[tf.Tensor],
    noise: tf.Tensor,
) -> tf.Tensor:
    """(D31) and (D33) from what the mean leaves over [N, L] and the mean's norm."""
    latents = rest.shape[1]
    shared = tf.cast(latents / prior.shape[0], rest.dtype)  # how many latents each group stands for
    count = tf.cast(tf.size(rest), rest.dtype)
    log_det = sum(2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(cholesky(P).chol))) for P in precisions)
    trace = tf.reduce_sum(prior) - sum(tf.reduce_sum(tf.square(part)) for part in parts)
    fit = tf.reduce_sum(tf.square(rest)) / noise + norm  # (D32)
    return -0.5 * (count * tf.math.log(2.0 * math.pi * noise) + fit + shared * (log_det + trace / noise))  # (D31)


def _tile(matrix: tf.Tensor, latents: int) -> tf.Tensor:
    return tf.broadcast_to(matrix, [latents, *matrix.shape[1:]])
