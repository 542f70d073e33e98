"""The hybrid basis: mean points not orthogonal to beta."""

# Cheng & Boots 2017 (arXiv:1711.10127), appendix. With t = L_b^-1 K_bg a and the coupled part of
# the mean a_b = K_b^-1 m_h, (D10), (D11):
#
#   m(x) = k_xg a + A_x^T m~_h,   covariance as in the coupled basis
#   KL = 1/2 [a^T K_g a + 2 t^T m~_h + m~_h^T m~_h] + 1/2 [tr S~ - M - log|S~|]
#
# Equation 14 of Cheng & Boots lacks the factor 1/2 of the log determinant. By (D15),
# `OrthogonalBasis` has the same q(f).

from __future__ import annotations

__all__ = ["HybridBasis", "HybridState"]

from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram, gram_diagonal, gram_to_data, gram_to_factor
from ..inducing.variables import check_separate
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import whiten, whitener
from .base import Features, GaussianPart
from .inducing_basis import norm_of
from .one_gaussian import OneGaussianBasis
from .parts.inducing_gaussian import whiten_columns, whitened
from .parts.kernel_mean import KernelMean
from .parts.optimum import OptimalParameters, Regression, orthogonal_optimum


class HybridState(NamedTuple):
    """State of a `HybridBasis`."""

    chol: tf.Tensor
    """chol(K_beta) [G, M_beta, M_beta]."""
    mean: tf.Tensor
    """m~_h [M_beta, L]."""
    root: tf.Tensor
    """A root of S~ [L, M_beta, M_beta]."""
    a: tf.Tensor
    """Raw coefficients [M_gamma, L]."""
    t: tf.Tensor
    """t = L_b^-1 K_bg a [M_beta, L]."""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None
    """a^T K_g a, a scalar, if the divergence is wanted."""


class HybridBasis(OneGaussianBasis):
    """q(f) with mean points gamma beside the inducing points beta (Cheng & Boots 2017).

    As `OrthogonalBasis`, which has the same q(f) in better coordinates, except that E_q f(beta) =
    m_h + K_bg a_gamma for `q_mu` = m_h. Parameters and errors as there.

    Example::

        basis = HybridBasis(X[:500], X[500:550])
        model = BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), basis)
    """

    state_type = HybridState
    acts_on_rows = ("tangent", "mean", "root")
    kernel_mean: KernelMean

    def __init__(
        self,
        gamma: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__(beta, num_latent_gps, whiten, q_mu, q_sqrt)
        self.kernel_mean = KernelMean(gamma, "gamma", num_latent_gps, mean_scaling, mean_subsample)
        check_separate(self.gamma, self.beta)

    @property
    def gamma(self) -> InducingVariables:
        """The mean points."""
        return self.kernel_mean.points

    @property
    def a_gamma(self) -> Parameter:
        """Coefficients [M_gamma, L] in the coordinates of `mean_scaling`."""
        return self.kernel_mean.coefficients

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> HybridState:
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.kernel_mean.raw()
        t = whiten_columns(
            chol, tangent, apply_per_latent(cross_gram(kernel, self.beta, self.gamma), a)
        )
        norm = None
        if with_kl:
            rows = self.draw_rows() if rows is None else rows
            # (D25) with C = K_g
            norm = self.kernel_mean.norm(kernel, a, rows)
        return HybridState(chol, mean, root, a, t, ok, tangent, norm)

    def features(self, state: HybridState, kernel: Kernel, X: tf.Tensor) -> Features:
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        of_beta = apply_per_latent(A, state.mean, adjoint=True)
        mean = self.kernel_mean.values(kernel, state.a, X) + tf.cast(of_beta, X.dtype)  # (D10)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: HybridState) -> tf.Tensor:
        cross = tf.reduce_sum(state.t * state.mean)
        return 0.5 * norm_of(state) + cross + kl_from_whitened(state.mean, state.root)  # (D11)

    def mean_coefficients(self, state: HybridState) -> tf.Tensor:
        return state.a

    # At fixed `q_mu` a step of the coefficients moves q(f(beta)) too.

    @property
    def steps_mean(self) -> bool:
        return False  # not (D41)

    @property
    def holds_sites(self) -> bool:
        return False

    @property
    def ties_sites(self) -> bool:
        return False

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        self.kernel_mean.refresh(
            lambda: gram(kernel, self.gamma), lambda: gram_diagonal(kernel, self.gamma)
        )

    def gaussians(self, state: HybridState) -> tuple[GaussianPart, ...]:
        """Whitened q(f(beta)), mean m_h + K_bg a (appendix C.2 of the paper)."""
        return (GaussianPart(state.mean + state.t, state.root),)

    def with_gaussians(self, state: HybridState, new: tuple[GaussianPart, ...]) -> HybridState:
        return state._replace(mean=new[0].mean - tf.stop_gradient(state.t), root=new[0].root)

    def assign_gaussians(self, state: HybridState, new: tuple[GaussianPart, ...]) -> None:
        super().assign_gaussians(state, (GaussianPart(new[0].mean - state.t, new[0].root),))

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        return (self.beta, self.gamma)

    def moved_to(self, *points: InducingVariables) -> HybridBasis:
        beta, gamma = points
        L, mean = self.num_latent_gps, self.kernel_mean
        scaling, subsample = mean.scaling.kind, mean.subsample
        return HybridBasis(
            gamma, beta, L, whiten=self.whiten, mean_scaling=scaling, mean_subsample=subsample
        )

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        return orthogonal_optimum(kernel, self.beta, self.kernel_mean, data)  # (D29)
