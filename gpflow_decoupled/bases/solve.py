"""The SOLVE-GP basis."""

# Shi, Titsias & Mnih 2020 (arXiv:1910.10596): f = f_par + f_perp, f_perp ~ GP(0, C), v =
# f_perp(gamma); (D16), (D17), (D18):
#
#   A_x = L_b^-1 k_bx,   U = L_b^-1 K_bg,   L_c L_c^T = C_g = K_g - U^T U
#   A'_x = L_c^-1 (k_gx - U^T A_x),   m(x) = A_x^T m~ + A'_x^T m~_v
#   s(x, x') = k(x, x') - A_x^T (I - S~) A_x' - A'_x^T (I - S~_v) A'_x'
#   KL = KL[N(m~, S~) || N(0, I)] + KL[N(m~_v, S~_v) || N(0, I)]

from __future__ import annotations

__all__ = ["SolveBasis", "SolveState"]

from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import (
    cross_gram,
    gram,
    gram_to_data,
    gram_to_factor,
    residual_gram_to_factor,
)
from ..inducing.variables import as_inducing, check_separate, count_points
from ..linalg.cholesky import add_jitter
from ..linalg.triangular import transposed_product
from ..linalg.whitening import Whitener, apply_per_latent, kl_from_whitened, whiten, whitener
from .base import Features, GaussianPart
from .inducing import InducingBasis, assign_whitened, gaussian_parameters, whitened
from .optimum import OptimalParameters, Regression, no_mean_points, project, with_gaussians


class SolveState(NamedTuple):
    """Two factorisations, and two whitened Gaussians."""

    chol: tf.Tensor
    """chol(K_beta) [G, M_beta, M_beta]."""
    chol_gamma: tf.Tensor
    """chol(C_gamma) [G, M_gamma, M_gamma]."""
    projection: tf.Tensor
    """U = L_b^-1 K_bg [G, M_beta, M_gamma]."""
    mean: tf.Tensor
    """m~ [M_beta, L]."""
    root: tf.Tensor
    """A root of S~ [L, M_beta, M_beta]."""
    v_mean: tf.Tensor
    """m~_v [M_gamma, L]."""
    v_root: tf.Tensor
    """A root of S~_v [L, M_gamma, M_gamma]."""
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    tangent_gamma: tf.Tensor | None = None


class SolveBasis(InducingBasis):
    """q(f) with Gaussians on f(beta) and on the orthogonal part at gamma (Shi et al. 2020).

    Cost per step on N inputs: (N + M_beta + M_gamma) (M_beta^2 + M_gamma^2). Other arguments as
    `CoupledBasis`, for both Gaussians.

    :param gamma: points of the orthogonal part [M_gamma, D], or a GPflow inducing variable.
    :param v_mu: mean of q(v) [M_gamma, L]; by default zeros.
    :param v_sqrt: root of its covariance [L, M_gamma, M_gamma]; by default identities.

    Example::

        basis = SolveBasis(X[:50], X[50:100])
        model = BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), basis)
    """

    state_type = SolveState
    keeps_conditional = True

    def __init__(
        self,
        gamma: InducingVariables | TensorType,
        beta: InducingVariables | TensorType,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
        v_mu: TensorType | None = None,
        v_sqrt: TensorType | None = None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.gamma = as_inducing(gamma, "gamma")
        check_separate(self.gamma, self.beta)
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(
            count_points(self.beta), num_latent_gps, q_mu, q_sqrt
        )
        names = "v_mu", "v_sqrt"
        self.v_mu, self.v_sqrt = gaussian_parameters(
            count_points(self.gamma), num_latent_gps, v_mu, v_sqrt, names
        )

    @property
    def sizes(self) -> dict[str, int | str]:
        return {"beta": count_points(self.beta), "gamma": count_points(self.gamma)}

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        residual = residual_gram_to_factor(kernel, self.beta, self.gamma)
        return {"K_beta": gram_to_factor(kernel, self.beta), "C_gamma": residual}

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> SolveState:
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        projection = whiten(chol, tangent, cross_gram(kernel, self.beta, self.gamma))
        K_g = gram(kernel, self.gamma)
        C_g = add_jitter(K_g - tf.matmul(projection, projection, transpose_a=True), minuend=K_g)
        chol_gamma, ok_gamma, tangent_gamma = whitener(C_g)
        u = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        v = whitened(chol_gamma, tangent_gamma, self.v_mu, self.v_sqrt, self.whiten)
        ok = tf.logical_and(ok, ok_gamma)
        return SolveState(
            chol, chol_gamma, projection, u.mean, u.root, v.mean, v.root, ok, tangent, tangent_gamma
        )

    def features(self, state: SolveState, kernel: Kernel, X: tf.Tensor) -> Features:
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        C_gx = gram_to_data(kernel, self.gamma, X) - tf.matmul(
            state.projection, A, transpose_a=True
        )
        A_v = whiten(state.chol_gamma, state.tangent_gamma, C_gx)
        mean = apply_per_latent(A, state.mean, adjoint=True) + apply_per_latent(
            A_v, state.v_mean, adjoint=True
        )  # (D16)
        return Features(
            mean,
            (A, A_v),
            (transposed_product(state.root, A), transposed_product(state.v_root, A_v)),
        )

    def whitened_rows(
        self, kernel: Kernel, X: tf.Tensor, features: Features | None = None
    ) -> tuple[tf.Tensor, ...]:
        found = features
        if found is None:
            found = self.features(self.factor(kernel, with_kl=False), kernel, X)
        return found.minus

    def prior_kl(self, state: SolveState) -> tf.Tensor:
        return kl_from_whitened(state.mean, state.root) + kl_from_whitened(
            state.v_mean, state.v_root
        )  # (D18)

    def gaussians(self, state: SolveState) -> tuple[GaussianPart, ...]:
        """q(u) and q(v), whitened."""
        return (GaussianPart(state.mean, state.root), GaussianPart(state.v_mean, state.v_root))

    @property
    def holds_sites(self) -> bool:
        return self.whiten

    def whiteners(self, state: SolveState) -> tuple[Whitener, ...]:
        return (
            Whitener(state.chol, state.ok, state.tangent),
            Whitener(state.chol_gamma, state.ok, state.tangent_gamma),
        )

    def with_gaussians(self, state: SolveState, new: tuple[GaussianPart, ...]) -> SolveState:
        u, v = new
        return state._replace(mean=u.mean, root=u.root, v_mean=v.mean, v_root=v.root)

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        return (self.q_mu, self.q_sqrt, self.v_mu, self.v_sqrt)

    def assign_gaussians(self, state: SolveState, new: tuple[GaussianPart, ...]) -> None:
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)
        assign_whitened(state.chol_gamma, new[1], self.v_mu, self.v_sqrt, self.whiten)

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        return (self.beta, self.gamma)

    def moved_to(self, *points: InducingVariables) -> SolveBasis:
        beta, gamma = points
        return SolveBasis(gamma, beta, self.num_latent_gps, whiten=self.whiten)

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(u) q(v), Gaussian noise; N (M_beta^2 + M_gamma^2) + M_beta^3 + M_gamma^3."""
        # (D26), (D30), (D33)
        _, A = project(kernel, self.beta, data.X)
        A_v = self.features(self.factor(kernel, with_kl=False), kernel, data.X).minus[1]
        return with_gaussians(kernel, data, [A, A_v], no_mean_points(data))
