"""The collapsed bound, with a closed gradient."""

from __future__ import annotations

__all__ = [
    "DataMean", "Frame", "MeanFit", "OptimalParameters", "Regression", "best_means",
    "best_precision", "best_root", "check_optimum", "collapsed_bound", "coupled_bound",
    "coupled_bound_and_left", "data_points", "features_in", "fit_mean_points", "frame_of",
    "no_mean_points", "project", "refuse_streams", "refuse_white",
    "solve_columns", "with_gaussians",
]  # fmt: skip

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, White

from ..covariances.latents import cross_gram, gram, gram_to_data, gram_to_factor, prior_variance
from ..covariances.products import gram_product
from ..errors import DataError, ModelError, NumericalError
from ..inducing.variables import fixed_points
from ..inputs import check_whole
from ..linalg.cholesky import add_jitter, cholesky, jitter
from ..linalg.triangular import inverse, lower_root_gram, solve, symmetric_product
from ..linalg.whitening import apply_per_latent, root_from_precision
from ..summaries import html_table, one_line
from .base import GaussianPart
from .kernel_mean import MeanOperator

# ---
# A mean whose points are all training inputs.


class DataMean(Module):
    """The mean sum_n k(x, x_n) a_n on all training inputs, zero until `set_data`.

    Solvers set the coefficients, which are not trainable.

    :param shared: the latents of a multi-output kernel share the inputs.
    """

    points: InducingVariables
    size: int
    coefficients: Parameter

    def __init__(self, num_dims: int, num_latent_gps: int, shared: bool) -> None:
        super().__init__()
        check_whole(1, num_latent_gps=num_latent_gps)
        self.shared = shared
        self._take(np.zeros((0, num_dims)), num_latent_gps)

    def set_data(self, X: np.ndarray) -> None:
        """Make X [N, D] the mean points, with zero coefficients; the same X keeps its own."""
        if not self.has_data(X):
            self._take(X, int(self.coefficients.shape[1]))

    def has_data(self, X: np.ndarray) -> bool:
        """True if the rows of X [N, D] are the mean points."""
        return self.size == len(X) and np.array_equal(self.inputs.numpy(), X)

    @property
    def inputs(self) -> tf.Tensor:
        """The mean points [N, D]; N = 0 before `set_data`."""
        part = self.points.inducing_variables[0] if self.shared else self.points
        return tf.convert_to_tensor(part.Z)

    def raw(self) -> tf.Tensor:
        """The coefficients a [N, L]."""
        return tf.convert_to_tensor(self.coefficients)

    def values(
        self, kernel: Kernel, a: tf.Tensor, X: tf.Tensor | InducingVariables | None
    ) -> tf.Tensor:
        """The mean [n, L] at inputs X [n, D], inducing variables, or the mean points; n N."""
        return gram_product(kernel, self.points, X, a)

    def _take(self, X: np.ndarray, latents: int) -> None:
        self.points = data_points(X, self.shared)
        self.size = len(X)
        empty = self.size == 0 and tf.distribute.has_strategy()
        # workers tell each other the value of a new variable, and TensorFlow crashes where that has
        # no entries
        values = np.zeros((1 if empty else self.size, latents))
        shape = (None, latents) if empty else None
        self.coefficients = Parameter(values, dtype=default_float(), trainable=False, shape=shape)
        if empty:
            self.coefficients.assign(values[:0])


def data_points(X: TensorType, shared: bool) -> InducingVariables:
    """Inputs X [N, D] as mean points, shared by the latents of a multi-output kernel or not."""
    points = fixed_points(X)
    return SharedIndependentInducingVariables(points) if shared else points


def refuse_streams(data: object) -> None:
    """Raise `DataError` for data in batches: a `tf.data.Dataset` or a function."""
    if isinstance(data, tf.data.Dataset) or callable(data):
        kind = "function" if callable(data) else "tf.data.Dataset"
        raise DataError(
            f'gamma="data" needs all data in memory, and a {kind} is a stream: pass arrays (X, Y),'
            " or choose mean points by inducing.select(X, M, kernel, given=beta)."
        )


def refuse_white(kernel: Kernel) -> None:
    """Raise `ModelError` for a kernel with a `White` part."""
    # K a would contain its variance at training rows, k(x, X) a nowhere else.
    if any(isinstance(part, White) for part in (kernel, *kernel.submodules)):
        raise ModelError(
            'gamma="data" takes no White kernel, which the mean would have at the training rows and'
            " not where the model is evaluated, so that another model would have this bound:"
            " leave White out, and add its variance to the noise variance of a Gaussian likelihood,"
            " or choose gamma by inducing.select(X, M, kernel, given=beta)."
        )


# ---
# Joint whitened coordinates of all points.


# With points z = (beta, gamma), or beta alone, jitter n, and u = f(z),
#
#   L_z = [[L_b, 0], [U^T, L_c]],   U = L_b^-1 K_bg,   L_c L_c^T = C_g + n_g,   u = L_z u~
#
# and u~ ~ N(0, I). A mean sum_i k(x, z_i) c_i has E_q u~ = L_z^T c, as if the jitter were part of
# u, so E_q f(x) = Phi_x^T E_q u~ with Phi_x = L_z^-1 k_zx exactly.


class Frame(NamedTuple):
    """The factor of the prior covariance at all points of a basis, at one kernel."""

    points: tuple[InducingVariables, ...]
    """beta, or beta and gamma."""
    sizes: tuple[int, ...]
    """Numbers of points; M is their sum."""
    free: int
    """How many of them, from the first, have a covariance in q; the others keep the prior's."""
    chol: tf.Tensor
    """L_z [G, M, M]."""
    noise: tf.Tensor
    """Jitter n of each point [G, M]."""
    norm: tf.Tensor | None
    """Pi [G, M, M] in the divergence's 1/2 mu^T Pi mu for E_q u~ = mu; None is the identity."""
    ok: tf.Tensor
    """[], bool: the factorisations succeeded."""


def frame_of(kernel: Kernel, points: Sequence[InducingVariables], free: int) -> Frame:
    """Factorise the prior covariance at all points; M^3 / 3, differentiable in the kernel.

    :param free: how many of these have a covariance in q.
    """
    beta, *rest = points
    K_b, with_jitter = gram(kernel, beta), gram_to_factor(kernel, beta)
    chol, ok = cholesky(with_jitter)
    noise = tf.linalg.diag_part(with_jitter) - tf.linalg.diag_part(K_b)
    sizes = (int(chol.shape[-1]),)
    if not rest:
        return Frame((beta,), sizes, free, chol, noise, None, ok)
    U = solve(chol, cross_gram(kernel, beta, rest[0]))
    K_g = gram(kernel, rest[0])
    C_g = K_g - tf.matmul(U, U, transpose_a=True)
    jittered = add_jitter(C_g, minuend=K_g)
    chol_g, ok_g = cholesky(jittered)
    noise = tf.concat([noise, tf.linalg.diag_part(jittered) - tf.linalg.diag_part(C_g)], axis=-1)
    above = tf.concat([chol, tf.zeros_like(U)], axis=-1)
    joint = tf.concat([above, tf.concat([tf.linalg.matrix_transpose(U), chol_g], axis=-1)], axis=-2)
    norm = _norm(chol, chol_g, C_g) if free == 1 else None
    return Frame(
        (beta, rest[0]), (*sizes, int(chol_g.shape[-1])), free, joint, noise, norm, ok & ok_g
    )


def features_in(frame: Frame, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Phi = L_z^-1 k(z, X) [G, M, N] for X [N, D]; N M^2."""
    return solve(frame.chol, tf.concat([gram_to_data(kernel, z, X) for z in frame.points], axis=-2))


def _norm(chol: tf.Tensor, chol_g: tf.Tensor, C_g: tf.Tensor) -> tf.Tensor:
    """diag(I, L_c^-1 C_g L_c^-T) [G, M, M]: the norm (D21) has C_g without jitter."""
    half = solve(chol_g, C_g)
    inner = solve(chol_g, tf.linalg.matrix_transpose(half))
    eye = tf.eye(int(chol.shape[-1]), batch_shape=tf.shape(chol)[:-2], dtype=chol.dtype)
    parts = [tf.linalg.LinearOperatorFullMatrix(part) for part in (eye, inner)]
    return tf.linalg.LinearOperatorBlockDiag(parts).to_dense()


# ---
# The best q for Gaussian noise, and its bound.


# With A = L_b^-1 K_bx, Q_beta = A^T A, W = Q_beta + s2 I, and y the data less the mean function:
#
#   S~ = (I + A A^T / s2)^-1                                                              (D26)
#   a = (C_g + C_gx W^-1 C_xg)^-1 C_gx W^-1 y,  m~ = (s2 I + A A^T)^-1 A (y - C_xg a)     (D30)
#   F = -N/2 log 2 pi - 1/2 log|W| - 1/2 [|y - mean|^2 / s2 + |m~|^2 + a^T C_g a]
#       - tr(K - Q_beta) / (2 s2)                                                  (D31), (D32)
#
# F is a lower bound at any a. A basis fits its mean points, then its Gaussian parts; the optimum is
# differentiable in kernel, points and noise.


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


# ---


# Automatic differentiation of `optimum`'s takes 2.6 times as long. With K = K_bb = L L^T, A = L^-1
# K_bx, B = I + A A^T / s2, mean m = B^-1 A y / s2 and residual r = y - A^T m, for one latent,
# (D31):
#
#   F = -1/2 [N log(2 pi s2) + log|B| + |r|^2 / s2 + |m|^2 + (tr K_xx - |A|^2) / s2]
#   dF/dK_bx = L^-T ((I - B^-1) A + m r^T) / s2
#   dF/dK = -1/2 L^-T (B - 2 I + B^-1 + m m^T) L^-1
#   dF/dy = -r / s2,   dF/d(tr K_xx) = -1 / (2 s2)
#   dF/d(s2) = 1/2 [|r|^2 + tr K_xx - |A|^2] / s2^2 - 1/2 [N - M + tr B^-1] / s2
#
# m is optimal, so its change does not count. A function of the explained variances e_n = |A_n|^2
# with slopes c_n adds, with P = L^-T A diag(c),
#
#   2 P to dF/dK_bx,   -P A^T L^-1 to dF/dK


class _Pieces(NamedTuple):
    chol: tf.Tensor
    """L [G, M, M]."""
    A: tf.Tensor
    """[G, M, N]."""
    B: tf.Tensor
    """[G, M, M]."""
    chol_B: tf.Tensor
    """The lower factor of B [G, M, M]."""
    mean: tf.Tensor
    """m [M, L]."""
    rest: tf.Tensor
    """r [N, L]."""


def coupled_bound(kernel: Kernel, beta: InducingVariables, data: Regression) -> tf.Tensor:
    """The bound (D31) at the best q(u), in nats, over all latents; 2 N M^2 + M^3, gradient 2 N
    M^2.
    """
    prior = prior_variance(kernel, data.X, full_cov=False)  # [G, N]
    return _bound(*_matrices(kernel, beta, data, prior))


def coupled_bound_and_left(
    kernel: Kernel, beta: InducingVariables, data: Regression
) -> tuple[tf.Tensor, tf.Tensor]:
    """`coupled_bound`, and the prior variances [N, G] that the points leave, not below zero.

    The gradient of the variances costs 2 N M^2 more.
    """
    prior = prior_variance(kernel, data.X, full_cov=False)
    bound, explained = _bound_and_explained(*_matrices(kernel, beta, data, prior))
    return bound, tf.transpose(tf.maximum(prior - explained, 0.0))


def _matrices(
    kernel: Kernel, beta: InducingVariables, data: Regression, prior: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    # prior variances are per kernel, where K is per kernel and points
    trace = tf.reduce_sum(prior) * (data.y.shape[1] / prior.shape[0])
    K, cross = gram_to_factor(kernel, beta), gram_to_data(kernel, beta, data.X)
    return K, cross, trace, data.y, data.noise


@tf.custom_gradient
def _bound(*matrices: tf.Tensor) -> tuple:
    value, _, grad = _forward(*matrices)
    return value, grad


@tf.custom_gradient
def _bound_and_explained(*matrices: tf.Tensor) -> tuple:
    value, pieces, grad = _forward(*matrices)

    def both(upstream: tf.Tensor, slopes: tf.Tensor) -> tuple:
        to_K, to_cross, *others = grad(upstream)
        sloped = solve(pieces.chol, pieces.A * slopes[:, None, :], adjoint=True)  # P
        inner = symmetric_product(pieces.A, slopes)
        half = solve(pieces.chol, inner, adjoint=True)
        to_K -= solve(pieces.chol, tf.linalg.matrix_transpose(half), adjoint=True)
        return to_K, to_cross + 2.0 * sloped, *others

    return (value, tf.reduce_sum(tf.square(pieces.A), axis=1)), both


def _forward(
    K: tf.Tensor, cross: tf.Tensor, trace: tf.Tensor, y: tf.Tensor, noise: tf.Tensor
) -> tuple:
    pieces = _pieces(K, cross, y, noise)
    shared = y.shape[1] / K.shape[0]  # how many latents each group stands for
    count, log_det = tf.cast(tf.size(y), y.dtype), tf.math.log(tf.linalg.diag_part(pieces.chol_B))
    unexplained = (
        tf.reduce_sum(tf.square(pieces.rest)) + trace - shared * tf.reduce_sum(tf.square(pieces.A))
    )
    quadratic = unexplained / noise + tf.reduce_sum(tf.square(pieces.mean))
    value = -0.5 * (
        count * tf.math.log(2.0 * math.pi * noise)
        + 2.0 * shared * tf.reduce_sum(log_det)
        + quadratic
    )

    def grad(upstream: tf.Tensor) -> tuple:
        B_inv = lower_root_gram(inverse(pieces.chol_B))
        to_K, to_cross = _to_gram(pieces, B_inv, shared), _to_cross(pieces, B_inv, shared, noise)
        free = count - shared * tf.reduce_sum(
            1.0 - tf.linalg.diag_part(B_inv)
        )  # N - M + tr B^-1, of all latents
        to_noise = 0.5 * (unexplained / noise - free) / noise
        gradients = to_K, to_cross, -0.5 / noise, -pieces.rest / noise, to_noise
        return tuple(upstream * gradient for gradient in gradients)

    return value, pieces, grad


def _pieces(K: tf.Tensor, cross: tf.Tensor, y: tf.Tensor, noise: tf.Tensor) -> _Pieces:
    chol = cholesky(K).chol
    A = solve(chol, cross)
    B = best_precision(A, noise)  # (D26)
    chol_B = cholesky(B).chol
    mean = solve_columns(chol_B, apply_per_latent(A, y / noise))  # (D30)
    return _Pieces(chol, A, B, chol_B, mean, y - apply_per_latent(A, mean, adjoint=True))


def _to_cross(pieces: _Pieces, B_inv: tf.Tensor, shared: float, noise: tf.Tensor) -> tf.Tensor:
    mean, rest = (_per_group(vectors, B_inv) for vectors in (pieces.mean, pieces.rest))
    of_A = tf.linalg.set_diag(-shared * B_inv, shared * (1.0 - tf.linalg.diag_part(B_inv)))
    # L^-T times the [M, M] factor, so that the solve does not grow with N
    left, right = (solve(pieces.chol, factor / noise, adjoint=True) for factor in (of_A, mean))
    return tf.matmul(left, pieces.A) + tf.matmul(right, rest, transpose_b=True)


def _to_gram(pieces: _Pieces, B_inv: tf.Tensor, shared: float) -> tf.Tensor:
    mean = _per_group(pieces.mean, B_inv)
    inner = shared * (pieces.B + B_inv) + tf.matmul(mean, mean, transpose_b=True)
    inner = tf.linalg.set_diag(inner, tf.linalg.diag_part(inner) - 2.0 * shared)
    half = solve(pieces.chol, -0.5 * inner, adjoint=True)
    return solve(pieces.chol, tf.linalg.matrix_transpose(half), adjoint=True)


def _per_group(vectors: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Columns per latent [M, L] as columns per group [G, M, L / G], one each in `matrices`."""
    return vectors[None] if matrices.shape[0] == 1 else tf.transpose(vectors)[..., None]
