"""The coupled basis: one set of points."""

from __future__ import annotations

__all__ = ["CoupledBasis", "CoupledState"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_data, gram_to_factor
from ..linalg.triangular import transposed_product
from ..linalg.whitening import apply_per_latent, kl_from_whitened, whiten, whitener
from .base import Features
from .inducing import OneGaussianBasis, whitened
from .optimum import (
    OptimalParameters,
    Regression,
    coupled_bound,
    coupled_bound_and_left,
    no_mean_points,
    project,
    with_gaussians,
)

# Titsias 2009; Hensman, Fusi & Lawrence 2013. With K_beta = L_b L_b^T, q(f(beta)) = N(L_b m~, L_b
# S~ L_b^T) and A_x = L_b^-1 k_bx, (D3), (D4):
#
#   m(x) = A_x^T m~,   s(x, x') = k(x, x') - A_x^T A_x' + A_x^T S~ A_x'
#   KL = 1/2 m~^T m~ + 1/2 [tr S~ - M - log|S~|]


class CoupledState(NamedTuple):
    """chol(K_beta) [G, M, M], and whitened q(u): mean [M, L], root [L, M, M]."""

    chol: tf.Tensor
    mean: tf.Tensor
    root: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None


class CoupledBasis(OneGaussianBasis):
    """q(f) through q(f(beta)) = N(m, S), the basis of `gpflow.models.SVGP`.

    Cost per step on N inputs: M^3 + N M^2.

    :param beta: inducing points [M, D], or a GPflow inducing variable.
    :param num_latent_gps: L.
    :param whiten: parametrise L_b^-1 f(beta) instead of f(beta).
    :param q_mu: mean [M, L]; by default zeros. A `gpflow.Parameter` is shared.
    :param q_sqrt: lower triangular root of the covariance [L, M, M]; by default identities.

    Example::

        basis = CoupledBasis(X[:50], num_latent_gps=2)
        model = BasisGP(
            gpflow.kernels.Matern52(), gpflow.likelihoods.HeteroskedasticTFPConditional(), basis
        )
    """

    state_type = CoupledState
    acts_on_rows = ("tangent", "mean", "root")

    def __init__(
        self,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__(beta, num_latent_gps, whiten, q_mu, q_sqrt)

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> CoupledState:
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        return CoupledState(chol, mean, root, ok, tangent)

    def features(self, state: CoupledState, kernel: Kernel, X: tf.Tensor) -> Features:
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = apply_per_latent(A, state.mean, adjoint=True)  # (D3)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: CoupledState) -> tf.Tensor:
        return kl_from_whitened(state.mean, state.root)  # (D4)

    def weights_of_rows(self, state: CoupledState) -> tf.Tensor:
        return state.mean  # (D3)

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        return (self.beta,)

    def moved_to(self, *points: InducingVariables) -> CoupledBasis:
        (beta,) = points
        return CoupledBasis(beta, self.num_latent_gps, whiten=self.whiten)

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(u) for Gaussian noise, as in `gpflow.models.SGPR`; N M^2 + M^3."""
        # (D26), (D30), (D31)
        _, A = project(kernel, self.beta, data.X)
        return with_gaussians(kernel, data, [A], no_mean_points(data))

    def collapsed_elbo(self, kernel: Kernel, data: Regression) -> tf.Tensor:
        """The collapsed bound, closed gradient; 2 N M^2 + M^3, and 2 N M^2 for the gradient."""
        return coupled_bound(kernel, self.beta, data)  # (D31)

    def collapsed_elbo_and_left(
        self, kernel: Kernel, data: Regression
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        return coupled_bound_and_left(kernel, self.beta, data)
