"""Other parameters of a basis's q(f); they change nothing unless written back."""

# **Natural and expectation parameters** of the orthogonal and hybrid bases: equations (12), (13)
# and (18) of Salimbeni et al. 2018 (arXiv:1809.08820), with a the coefficients of gamma, m and S
# mean and covariance of q(f(beta)):
#
# | | orthogonal, W = 0 | hybrid, W = K_b^-1 K_bg |
# |---|---|---|
# | natural | (a, S^-1 m, S^-1 / 2), (D36) | (a, S^-1 m - W a, S^-1 / 2), (D38) |
# | expectation | (C_g a, m, -(S + m m^T)), (D37) | (C_g a + W^T m, m, -(S + m m^T)), (D39) |
#
# The log partition function is A = (j_g^T C_g j_g + b^T (2 Theta)^-1 b - log|2 Theta|) / 2 with b =
# j_b + W j_g (D60). C_g has jitter throughout, so the maps are mutually inverse up to round-off.
#
# **The two covariances of a `DecoupledBasis`**: inverse (Cheng & Boots 2017) and coupled, S =
# (K_b^-1 + B)^-1 and B = C C^T = S^-1 - K_b^-1 (D8). The inverse form has S <= K_b only; at S =
# K_b, C = 0, the gradient in C vanishes.

from __future__ import annotations

__all__ = [
    "ExpectationParameters", "LegendrePair", "MomentParameters", "NaturalParameters",
    "assign_moments", "legendre_pair", "moment_parameters", "with_covariance",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram_to_factor, residual_gram_to_factor
from ..errors import DataError, ModelError, check_option
from ..linalg.cholesky import cholesky, diagnose
from ..linalg.triangular import lower_gram, lower_product, solve
from ..linalg.whitening import apply_per_latent, precision_from_root, root_from_precision
from .base import GaussianPart
from .decoupled import DecoupledBasis
from .inducing import InducingBasis, assign_whitened, inverse_root, whiten_columns, whitened
from .orthogonal import HybridBasis, OrthogonalBasis


def __dir__() -> list[str]:
    return sorted(__all__)


class MomentParameters(NamedTuple):
    """Moments of q(f) in any basis; in a decoupled one a_b = K_b^-1 (m - K_bg a).

    Example::

        moments = moment_parameters(model.basis, model.kernel)
        assign_moments(model.basis, model.kernel, moments._replace(mean=0.0 * moments.mean))
    """

    a: tf.Tensor
    """Raw coefficients of gamma [M_gamma, L]."""
    mean: tf.Tensor
    """m = E f(beta) [M_beta, L], not whitened."""
    covariance: tf.Tensor
    """S [L, M_beta, M_beta]."""


class NaturalParameters(NamedTuple):
    """The natural parameters (j_g, j_b, Theta) of q(f), see `LegendrePair`.

    Example::

        pair = legendre_pair(basis, kernel)
        theta = pair.natural(moment_parameters(basis, kernel)).theta  # S^-1 / 2
    """

    gamma: tf.Tensor
    """j_g [M_gamma, L]"""
    beta: tf.Tensor
    """j_b [M_beta, L]"""
    theta: tf.Tensor
    """Theta = S^-1 / 2 [L, M_beta, M_beta]."""


class ExpectationParameters(NamedTuple):
    """The expectation parameters (m_g, m_b, Lambda) of q(f), see `LegendrePair`.

    Example::

        pair = legendre_pair(basis, kernel)
        second = pair.expectation(moment_parameters(basis, kernel)).second  # -(S + m m^T)
    """

    gamma: tf.Tensor
    """m_g [M_gamma, L]"""
    beta: tf.Tensor
    """m_b [M_beta, L]"""
    second: tf.Tensor
    """Lambda = -(S + m m^T) [L, M_beta, M_beta]."""


class LegendrePair(NamedTuple):
    """Maps between parameters of q(f) at one kernel, differentiable; L (M_beta^3 + M_gamma^2) each.

    Example::

        pair = legendre_pair(basis, kernel)
        natural = pair.natural(moment_parameters(basis, kernel))
        assign_moments(basis, kernel, pair.moments_of_natural(natural))  # the same q(f)
    """

    chol: tf.Tensor
    """Factor of C_g with jitter [G, M_gamma, M_gamma]."""
    coupling: tf.Tensor | None
    """W [G, M_beta, M_gamma]; None for zero."""

    def natural(self, moments: MomentParameters) -> NaturalParameters:
        """The natural parameters of moments."""
        precision = precision_from_root(cholesky(moments.covariance).chol)
        beta = apply_per_latent(precision, moments.mean) - self._shift(moments.a)  # (D38)
        return NaturalParameters(moments.a, beta, 0.5 * precision)

    def expectation(self, moments: MomentParameters) -> ExpectationParameters:
        """The expectation parameters of moments."""
        inner = apply_per_latent(self.chol, moments.a, adjoint=True)
        gamma = apply_per_latent(self.chol, inner) + self._back(moments.mean)  # (D39)
        return ExpectationParameters(
            gamma, moments.mean, -(moments.covariance + _outer(moments.mean))
        )

    def moments_of_natural(self, natural: NaturalParameters) -> MomentParameters:
        """Moments of natural parameters; NaN where Theta is not positive definite."""
        root = root_from_precision(2.0 * natural.theta).chol
        inner = apply_per_latent(root, natural.beta + self._shift(natural.gamma), adjoint=True)
        return MomentParameters(natural.gamma, apply_per_latent(root, inner), lower_gram(root))

    def moments_of_expectation(self, means: ExpectationParameters) -> MomentParameters:
        """Moments of expectation parameters."""
        rest = whiten_columns(self.chol, None, means.gamma - self._back(means.beta))
        a = whiten_columns(self.chol, None, rest, adjoint=True)
        return MomentParameters(a, means.beta, -means.second - _outer(means.beta))

    def log_partition(self, natural: NaturalParameters) -> tf.Tensor:
        """A [] in nats, summed over latents; its gradient is `expectation`."""
        root = root_from_precision(2.0 * natural.theta).chol
        shifted = apply_per_latent(root, natural.beta + self._shift(natural.gamma), adjoint=True)
        inner = apply_per_latent(self.chol, natural.gamma, adjoint=True)
        squares = tf.reduce_sum(tf.square(inner)) + tf.reduce_sum(tf.square(shifted))
        return 0.5 * squares + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))  # (D60)

    def _shift(self, a: tf.Tensor) -> tf.Tensor | float:
        return 0.0 if self.coupling is None else apply_per_latent(self.coupling, a)

    def _back(self, mean: tf.Tensor) -> tf.Tensor | float:
        return 0.0 if self.coupling is None else apply_per_latent(self.coupling, mean, adjoint=True)


def legendre_pair(basis: InducingBasis, kernel: Kernel) -> LegendrePair:
    """Maps between moments, natural and expectation parameters of a basis at a kernel.

    :param basis: an `OrthogonalBasis` or a `HybridBasis`.
    :return: the maps. Cost: G (M_beta^3 + M_beta^2 M_gamma + M_gamma^3 / 3).

    Example::

        pair = legendre_pair(model.basis, model.kernel)
        j_gamma, j_beta, theta = pair.natural(moment_parameters(model.basis, model.kernel))
    """
    basis = _checked(basis)
    chol = _factor("C_gamma", residual_gram_to_factor(kernel, basis.beta, basis.gamma))
    if not isinstance(basis, HybridBasis):
        return LegendrePair(chol, None)
    chol_b = _factor("K_beta", gram_to_factor(kernel, basis.beta))
    columns = solve(chol_b, cross_gram(kernel, basis.beta, basis.gamma))
    return LegendrePair(chol, solve(chol_b, columns, adjoint=True))


def moment_parameters(basis: InducingBasis, kernel: Kernel) -> MomentParameters:
    """The moments (a, m, S) of a basis's q(f).

    Arguments and errors as in `legendre_pair`. Example::

        a, mean, covariance = moment_parameters(model.basis, model.kernel)
    """
    chol = _factor("K_beta", gram_to_factor(kernel, _checked(basis).beta))
    state = basis.factor(kernel, with_kl=False)
    (part,) = basis.gaussians(state)
    mean = apply_per_latent(chol, part.mean)
    return MomentParameters(
        basis.mean_coefficients(state), mean, lower_gram(lower_product(chol, part.root))
    )


def assign_moments(basis: InducingBasis, kernel: Kernel, moments: MomentParameters) -> None:
    """Write moments a [M_gamma, L], m [M_beta, L], S [L, M_beta, M_beta] to the Parameters.

    :raises NumericalError: for a covariance that is not positive definite; nothing changes.

    Example::

        assign_moments(model.basis, model.kernel, pair.moments_of_natural(natural))
    """
    kernel_mean = _checked(basis).kernel_mean
    now = moment_parameters(basis, kernel)
    for name, value, like in zip(MomentParameters._fields, moments, now):
        if tuple(value.shape) != tuple(like.shape):
            raise DataError(
                f"{name} has shape {tuple(value.shape)}; it must be {list(like.shape)}."
            )
        if name != "covariance" and not np.all(np.isfinite(value)):
            raise DataError(f"{name} has entries that are not finite; take a smaller step.")
    root = _factor("the covariance S", tf.convert_to_tensor(moments.covariance))
    chol = _factor("K_beta", gram_to_factor(kernel, basis.beta))
    kernel_mean.coefficients.assign(kernel_mean.scaling.scaled(tf.convert_to_tensor(moments.a)))
    # at the new coefficients, by which the hybrid's q_mu is shifted
    state = basis.factor(kernel, with_kl=False)
    mean = whiten_columns(chol, None, tf.convert_to_tensor(moments.mean))
    basis.assign_gaussians(state, (GaussianPart(mean, solve(chol, root)),))


def with_covariance(basis: InducingBasis, kernel: Kernel, covariance: str) -> DecoupledBasis:
    """A new `DecoupledBasis` of the same q(f), with the other parameters of its covariance.

    Cost: L M_beta^3.

    :param basis: shares its points; coefficients are copied.
    :param covariance: "inverse" or "coupled".
    :raises DataError: for "inverse", unless S <= K_beta up to round-off.

    Example::

        model.basis = with_covariance(model.basis, model.kernel, "coupled")
    """
    # (D8)
    check_option("covariance", covariance, ("inverse", "coupled"))
    if not isinstance(basis, DecoupledBasis):
        raise ModelError(
            "Only a DecoupledBasis has two forms of its covariance, and got"
            f" {type(basis).__name__}."
        )
    chol = _factor("K_beta", gram_to_factor(kernel, basis.beta))
    if basis.covariance == "coupled":
        root = whitened(chol, None, None, basis.q_sqrt, basis.whiten).root
        precision = precision_from_root(root)
    else:
        C = tf.linalg.band_part(tf.convert_to_tensor(basis.chol_B), -1, 0)
        U = tf.matmul(chol, C, transpose_a=True)
        precision = tf.matmul(U, U, transpose_b=True)
        precision += tf.eye(tf.shape(U)[-1], dtype=U.dtype)  # (D8)
    mean = basis.kernel_mean
    new = DecoupledBasis(
        basis.alpha,
        basis.beta,
        basis.num_latent_gps,
        covariance=covariance,
        whiten=basis.whiten,
        mean_scaling=mean.scaling.kind,
        mean_subsample=mean.subsample,
    )
    if covariance == "coupled":
        part = GaussianPart(None, root_from_precision(precision).chol)
        assign_whitened(chol, part, None, new.q_sqrt, new.whiten)
    else:
        new.chol_B.assign(inverse_root(chol, _checked_excess(precision)))
    new.refresh(kernel)
    new.a.assign(new.kernel_mean.scaling.scaled(mean.raw()))
    return new


def _outer(mean: tf.Tensor) -> tf.Tensor:
    rows = tf.transpose(mean)
    return rows[:, :, None] * rows[:, None, :]


def _factor(name: str, matrix: tf.Tensor) -> tf.Tensor:
    chol, ok = cholesky(matrix)
    if not ok:
        raise diagnose(name, matrix.numpy())
    return chol


def _checked(basis: InducingBasis) -> OrthogonalBasis:
    if isinstance(basis, OrthogonalBasis):  # the hybrid is one
        return basis
    raise ModelError(
        "Natural parameters of mean and covariance are known for OrthogonalBasis and HybridBasis"
        f", and got {type(basis).__name__}. Mean points that do not contain beta"
        " have none, and a CoupledBasis has S^-1 m and S^-1 / 2."
    )


def _checked_excess(precision: tf.Tensor) -> tf.Tensor:
    excess = precision - tf.eye(tf.shape(precision)[-1], dtype=precision.dtype)
    values, eps = np.linalg.eigvalsh(excess), np.finfo(precision.dtype.as_numpy_dtype).eps
    least = float(np.min(values))
    if not least >= -(np.sqrt(eps) + values.shape[-1] * eps * np.max(values)):
        raise DataError(
            'The covariance S is not below K_beta, as covariance="inverse" needs it: the least'
            f' eigenvalue of S^-1 - K_beta^-1, whitened, is {least:.2g}. Keep covariance="coupled",'
            " or train it first."
        )
    return excess
