"""The q(f) of two bases with a mean orthogonal to beta."""

# Salimbeni et al. 2018 (arXiv:1809.08820), equations (11)-(13). Points gamma add sum_i C(x,
# gamma_i) a_i to the mean, C the residual prior covariance given beta. K_b^-1 K_bg is never formed:
#
#   t = L_b^-1 K_bg a,   w = L_b^-T t
#   m(x) = k_xg a + A_x^T (m~ - t),   covariance as in the coupled basis         (D19), (D20)
#   KL = 1/2 a^T C_g a + 1/2 m~^T m~ + 1/2 [tr S~ - M - log|S~|]                         (D21)
#   C_g = K_g - K_gb K_b^-1 K_bg

from __future__ import annotations

__all__ = ["OrthogonalMeanBasis", "OrthogonalState"]

import abc
from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_data, gram_to_factor
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import whiten, whitener
from .base import Features
from .coupled import CoupledBasis
from .inducing_basis import norm_of
from .one_gaussian import OneGaussianBasis
from .parts.data_mean import DataMean
from .parts.inducing_gaussian import whiten_columns, whitened
from .parts.kernel_mean import KernelMean


class OrthogonalState(NamedTuple):
    """State of a basis with a mean orthogonal to beta."""

    chol: tf.Tensor
    """chol(K_beta) [G, M_beta, M_beta]"""
    mean: tf.Tensor
    """m~ [M_beta, L]"""
    root: tf.Tensor
    """A root of S~ [L, M_beta, M_beta]."""
    a: tf.Tensor
    """Raw coefficients [M_gamma, L]."""
    t: tf.Tensor
    """t = L_b^-1 K_bg a [M_beta, L]"""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None
    """a^T C_g a, a scalar; None in a state for predictions."""


class OrthogonalMeanBasis(OneGaussianBasis):
    """Base class of bases with a mean orthogonal to beta.

    Subclasses define the sum of kernels (`mean_sum`) and its norm (`_norm`). Parameters as in
    `MeanOnDataBasis`, beta [M_beta, D].
    """

    state_type = OrthogonalState
    acts_on_rows = ("tangent", "mean", "root", "t")

    @property
    @abc.abstractmethod
    def mean_sum(self) -> KernelMean | DataMean:
        """The sum of kernels in the mean."""

    @abc.abstractmethod
    def _norm(self, kernel: Kernel, state: OrthogonalState, rows: tf.Tensor | None) -> tf.Tensor:
        """Return a^T C_g a, a scalar, from a state without it."""

    @property
    def gamma(self) -> InducingVariables:
        """The mean points."""
        return self.mean_sum.points

    @property
    def a_gamma(self) -> Parameter:
        """The Parameter of the coefficients [M_gamma, L]; `mean_coefficients` has the raw ones."""
        return self.mean_sum.coefficients

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> OrthogonalState:
        """Factorise K_beta, with t and the norm; M_beta^3 / 3 + M_beta M_gamma.

        The norm costs M_gamma^2 more, or m M_gamma from m rows.
        """
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.mean_sum.raw()
        t = whiten_columns(chol, tangent, self.mean_sum.values(kernel, a, self.beta))  # (D19)
        state = OrthogonalState(chol, mean, root, a, t, ok, tangent)
        return state._replace(norm=self._norm(kernel, state, rows)) if with_kl else state

    def features(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor) -> Features:
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        of_beta = apply_per_latent(A, state.mean - state.t, adjoint=True)
        mean = self.mean_sum.values(kernel, state.a, X) + tf.cast(of_beta, X.dtype)  # (D19)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: OrthogonalState) -> tf.Tensor:
        return 0.5 * norm_of(state) + kl_from_whitened(state.mean, state.root)  # (D21)

    def mean_coefficients(self, state: OrthogonalState) -> tf.Tensor:
        return state.a

    def without_mean_points(self) -> CoupledBasis:
        return CoupledBasis(
            self.beta, self.num_latent_gps, whiten=self.whiten, q_mu=self.q_mu, q_sqrt=self.q_sqrt
        )

    def weights_of_rows(self, state: OrthogonalState) -> tf.Tensor:
        return state.mean - state.t
