"""The hybrid basis: extra mean points beside the inducing points, not orthogonal to them.

Cheng & Boots 2017 (arXiv:1711.10127), appendix; equation (10) of Salimbeni et al. 2018 (arXiv:1809.08820). With
t = L_b^-1 K_bg a and the coupled part of the mean written a_b = K_b^-1 m_h:

    m(x) = k_xg a + A_x^T m~_h,   covariance as in the coupled basis                                         (D10)
    KL = 1/2 [a^T K_g a + 2 t^T m~_h + m~_h^T m~_h] + 1/2 [tr S~ - M - log|S~|]                               (D11)

The printed divergence (equation 14 of Cheng & Boots) lacks the factor 1/2 of the log determinant.
"""

from __future__ import annotations

__all__ = ["HybridBasis", "HybridState"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram, gram_diagonal, gram_to_data, gram_to_factor
from ..inducing.variables import as_inducing, check_separate, count_points
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import whiten, whitener
from .base import Basis, Features, Gaussian, norm_of
from .parts.inducing_gaussian import assign_whitened, gaussian_parameters, whiten_columns, whitened
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator


class HybridState(NamedTuple):
    """chol(K_beta) [G, M_beta, M_beta], whitened mean [M_beta, L] and root [L, M_beta, M_beta], and the mean part.

    a [M_gamma, L] is raw; t is [M_beta, L]; `norm` [] is the squared norm of the mean part, where the divergence is wanted.
    """

    chol: tf.Tensor
    mean: tf.Tensor
    root: tf.Tensor
    a: tf.Tensor
    t: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None
    norm: tf.Tensor | None = None


class HybridBasis(Basis):
    """q(f) with mean points gamma beside the inducing points beta; equations (D10), (D11).

    Parameters, errors and cost as `OrthogonalBasis`. `q_mu` is m_h: here E_q f(beta) = m_h + K_bg a_gamma.
    """

    state_type = HybridState
    kernel_mean: KernelMean

    def __init__(
        self,
        gamma: Any,
        beta: Any,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        mean_scaling: str = "whitened",
        mean_subsample: int | None = None,
        q_mu: Any | None = None,
        q_sqrt: Any | None = None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.kernel_mean = KernelMean(gamma, "gamma", num_latent_gps, mean_scaling, mean_subsample)
        check_separate(self.gamma, self.beta)
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(count_points(self.beta), num_latent_gps, q_mu, q_sqrt)

    @property
    def gamma(self) -> InducingVariables:
        """The mean points."""
        return self.kernel_mean.points

    @property
    def a_gamma(self) -> Parameter:
        """The mean coefficients [M_gamma, L] in the coordinates of `mean_scaling`; raw: `mean_coefficients(state)`."""
        return self.kernel_mean.coefficients

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """K_beta with its jitter."""
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> HybridState:
        """chol(K_beta), t, and the norm (from `rows` of it); M_beta^3 / 3 + M_beta M_gamma + m M_gamma."""
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.kernel_mean.raw()
        t = whiten_columns(chol, tangent, apply_per_latent(cross_gram(kernel, self.beta, self.gamma), a))
        norm = None
        if with_kl:
            rows = self.draw_rows() if rows is None else rows
            norm = self.kernel_mean.norm(a, self.kernel_mean.products(kernel, a, rows), rows)  # (D25) with C = K_g
        return HybridState(chol, mean, root, a, t, ok, tangent, norm)

    def features(self, state: HybridState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(D10) at X [N, D]; N (M_gamma + M_beta^2)."""
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = self.kernel_mean.values(kernel, state.a, X) + apply_per_latent(A, state.mean, adjoint=True)  # (D10)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: HybridState) -> tf.Tensor:
        """(D11), in nats; unbiased where the norm is sampled."""
        cross = tf.reduce_sum(state.t * state.mean)
        return 0.5 * norm_of(state) + cross + kl_from_whitened(state.mean, state.root)  # (D11)

    def mean_coefficients(self, state: HybridState) -> tf.Tensor:
        """a_gamma [M_gamma, L] of equation (10)."""
        return state.a

    def mean_operator(self, state: HybridState, kernel: Kernel, X: tf.Tensor, features: Features) -> MeanOperator:
        """The maps between mean coefficients and the mean at X [N, D]."""
        return MeanOperator(gram(kernel, self.gamma), gram_to_data(kernel, self.gamma, X))

    def moved(self, state: HybridState, kernel: Kernel, change: tf.Tensor) -> HybridState:
        """T follows a: at fixed `q_mu` the mean of q(f(beta)) moves with the coefficients."""
        shift = apply_per_latent(cross_gram(kernel, self.beta, self.gamma), change)
        return state._replace(a=state.a + change, t=state.t + whiten_columns(state.chol, None, shift))

    def refresh(self, kernel: Kernel) -> None:
        """Freeze the scaling of `a_gamma` at the current K_gamma; q(f) does not change."""
        self.kernel_mean.refresh(lambda: gram(kernel, self.gamma), lambda: gram_diagonal(kernel, self.gamma))

    def gaussians(self, state: HybridState) -> tuple[Gaussian, ...]:
        """q(f(beta)), whitened: its mean is m_h + K_bg a, a constant shift of `q_mu` (appendix C.2 of the paper)."""
        return (Gaussian(state.mean + state.t, state.root),)

    def gaussian_parameters(self) -> tuple:
        """`q_mu` and `q_sqrt`."""
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: HybridState, new: tuple[Gaussian, ...]) -> None:
        """Write (m_h, S) at fixed a_gamma."""
        shifted = Gaussian(new[0].mean - state.t, new[0].root)
        assign_whitened(state.chol, shifted, self.q_mu, self.q_sqrt, self.whiten)
