"""The dual basis in function space."""

#   V = K - K Lambda^1/2 B^-1 Lambda^1/2 K,   B = I + Lambda^1/2 K Lambda^1/2        (V9)
#
# for positive lambda; `linalg.site_posterior` adds negative ones. K may be singular.

from __future__ import annotations

__all__ = ["FunctionSpace"]

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.latents import gram_to_data, positive_gram
from ...errors import NumericalError
from ...linalg.cholesky import cholesky, diagnose
from ...linalg.coupled import coupled_solve
from ...linalg.gaussians import apply_per_latent
from ...linalg.newton_systems import stationary_solve
from ...linalg.site_posterior import SitePosterior, site_posterior
from ...linalg.triangular import lower_root_gram, solve
from ..base import Features
from .geometry import DualState, Geometry, Pair, Triple

_JITTERS = (0.0, 4.5, 45.0, 450.0, 4.5e3, 4.5e4, 4.5e5)
"""Jitters tried, in machine epsilons of K's mean diagonal: up to 1e-10 in float64."""
_TINY = 1e-9
"""Least lambda v at which V from B^-1 still has six digits."""
_NAME, _FIXES = (
    "The kernel matrix K",
    "a positive semi-definite kernel, gpflow.kernels.White(1e-6) added to it",
)


class FunctionSpace(Geometry):
    """Computes with K [G, N, N]: 2/3 N^3 per latent for a state, N^2 memory."""

    form = "function"
    forms_square_matrices = True

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """K [G, N, N] with variances above 0."""
        return positive_gram(kernel, self.points)

    def product(self, prior: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """K x [N, L]; N^2 per latent."""
        return apply_per_latent(prior, vectors)

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        return tf.linalg.diag_part(prior)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(prior), axis=-1)

    def root(self, prior: tf.Tensor) -> tf.Tensor:
        return self.triangular_root(prior)

    def triangular_root(self, prior: tf.Tensor) -> tf.Tensor:
        """Cholesky factor of K [G, N, N], with the least jitter that gives one; N^3 / 3."""
        diagonal = tf.linalg.diag_part(prior)
        unit = np.finfo(diagonal.dtype.as_numpy_dtype).eps * tf.reduce_mean(diagonal)
        for jitter in _JITTERS:
            chol, ok = cholesky(tf.linalg.set_diag(prior, diagonal + jitter * unit))
            if bool(ok):
                return chol
        raise self.diagnosis(prior)

    def coefficients_of(self, root: tf.Tensor, white: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """alpha = -A^-T t, from -K alpha = A t."""
        return (-tf.transpose(solve(root, tf.transpose(white)[..., None], adjoint=True)[..., 0]),)

    def diagnosis(self, prior: tf.Tensor) -> NumericalError:
        return diagnose(_NAME, prior.numpy(), _FIXES)

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V7), (V9); 2/3 N^3 per latent."""
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        p = site_posterior(prior, tf.zeros_like(lam), lam)  # (V9)
        mean = -self.product(prior, alpha)  # (V7)
        return _state(p, alpha, mean, lam)

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V22); 2/3 N^3 per latent."""
        p = site_posterior(prior, b, lam)
        return _state(p, -p.alpha, p.mean, lam)  # (V22)

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """(V7); N^2 per latent."""
        # (V7)
        return state._replace(coefficients=alpha, alpha=alpha, mean=-self.product(prior, alpha))

    def for_predictions(self, state: DualState, kernel: Kernel) -> DualState:
        """The state without L_B^-1, which only Newton steps need."""
        return state._replace(inverse=None)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(V25); N^2 N* per latent."""
        K_Xx = gram_to_data(kernel, self.points, X)
        mean = -apply_per_latent(K_Xx, state.coefficients, adjoint=True)  # (V25)
        minus = solve(state.chol, state.scale[:, :, None] * K_Xx)
        return Features(mean, (minus,), (tf.matmul(state.negative, K_Xx),))

    def matrices(self, prior: tf.Tensor, lam: tf.Tensor) -> dict[str, tf.Tensor]:
        scale = tf.sqrt(tf.maximum(tf.transpose(lam)[:, :, None], 0.0))
        B = scale * prior * tf.linalg.matrix_transpose(scale)
        return {"I + Lambda^1/2 K Lambda^1/2": tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)}

    def covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """(V9) for lambda of any sign; 3/2 N^3 per latent."""
        T = solve(state.chol, state.scale[:, :, None] * prior)
        excess = tf.matmul(state.negative, prior)
        V = prior - tf.matmul(T, T, transpose_a=True)  # (V9)
        return V + tf.matmul(excess, excess, transpose_a=True)

    def squared_covariance_product(
        self, prior: tf.Tensor, state: DualState, vectors: tf.Tensor
    ) -> tf.Tensor:
        """By forming V; 3/2 N^3 per latent."""
        return tf.linalg.matvec(tf.square(self.covariance(prior, state)), vectors)

    def solve_newton(
        self,
        prior: tf.Tensor,
        state: DualState,
        diagonals: Triple,
        right: Pair,
        free: Pair,
        ridge: tf.Tensor | float,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """By block elimination; 2 N^3 per latent."""
        a, b, c = diagonals
        squares = 0.5 * tf.square(self._covariance(prior, state))
        return coupled_solve(prior, a, squares, b, c, *right, free, ridge)  # (V18)

    def solve_stationary(
        self, prior: tf.Tensor, state: DualState, curvatures: Triple, right: Pair
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """By conjugate gradients on V alone; 2/3 N^3 per latent, and 2 N^2 per iteration."""
        V = self._covariance(prior, state)
        return stationary_solve(V, tf.transpose(state.lam), curvatures, *right)  # (V27)

    def _covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """V [L, N, N] to six digits, enough for a Newton step."""
        # Lambda^1/2 V Lambda^1/2 = I - B^-1 costs a quarter of `covariance`, but loses digits for
        # tiny lambda v.

        def from_inverse() -> tf.Tensor:
            scale = 1.0 / state.scale
            V = -scale[:, :, None] * lower_root_gram(state.inverse) * scale[:, None, :]
            return tf.linalg.set_diag(V, tf.transpose(state.variance))

        accurate = tf.reduce_all(state.lam * state.variance > _TINY)
        return tf.cond(accurate, from_inverse, lambda: self.covariance(prior, state))


def _state(p: SitePosterior, alpha: tf.Tensor, mean: tf.Tensor, lam: tf.Tensor) -> DualState:
    shape = (p.chol, p.scale, p.negative)
    return DualState(*shape, alpha, p.ok, mean, p.variance, p.log_det, alpha, lam, p.inverse)
