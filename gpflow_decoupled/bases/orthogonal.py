"""The orthogonally decoupled basis: extra mean points in the orthogonal complement of the inducing points.

Salimbeni, Cheng, Boots & Deisenroth 2018 (arXiv:1809.08820), equations (11)-(13), in the order of operations that never
forms K_b^-1 K_bg or anything M_gamma x M_gamma:

    t = L_b^-1 K_bg a,   w = L_b^-T t
    m(x) = k_xg a + A_x^T (m~ - t),   covariance as in the coupled basis                              (D19), (D20)
    KL = 1/2 a^T C_g a + 1/2 m~^T m~ + 1/2 [tr S~ - M - log|S~|],   C_g = K_g - K_gb K_b^-1 K_bg       (D21), (D25)
"""

from __future__ import annotations

__all__ = ["OrthogonalBasis", "OrthogonalState"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import cross_gram, gram, gram_to_data, gram_to_factor
from ..covariances.residual import residual_diagonal, residual_gram
from ..inducing.variables import as_inducing, check_separate, count_points
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import Whitener, whiten, whitener
from .base import Basis, Features, Gaussian, norm_of
from .parts.inducing_gaussian import assign_whitened, gaussian_parameters, whiten_columns, whitened
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator


class OrthogonalState(NamedTuple):
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


class OrthogonalBasis(Basis):
    """q(f) with mean points gamma orthogonal to the inducing points beta; equations (D13), (D14).

    :param gamma: mean points [M_gamma, D], or a GPflow inducing variable. :param beta: inducing points [M_beta, D].
    :param num_latent_gps: L. :param whiten: parametrise L_b^-1 f(beta) instead of f(beta).
    :param mean_scaling: coordinates of `a_gamma`: "none", "diagonal" or "whitened", see `MeanScaling`.
    :param mean_subsample: number of rows m in the estimate (D25) of the mean's norm; None computes it in full.
    :param q_mu: [M_beta, L]. :param q_sqrt: [L, M_beta, M_beta], lower triangular.

    E_q f(beta) = m whatever `a_gamma` is. Raises `DataError` for points that are not finite and distinct, or a gamma
    that equals beta. Cost of a step on N inputs: N (M_gamma + M_beta^2) + M_beta^3 + m M_gamma, and M_gamma^2 if
    whitened.
    """

    state_type = OrthogonalState
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

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> OrthogonalState:
        """chol(K_beta), t, and the norm (from `rows` of it); M_beta^3 / 3 + M_beta M_gamma + m M_gamma."""
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        a = self.kernel_mean.raw()
        K_bg = cross_gram(kernel, self.beta, self.gamma)
        t = whiten_columns(chol, tangent, apply_per_latent(K_bg, a))  # (D19)
        norm = self._norm(kernel, a, chol, tangent, t, K_bg, rows) if with_kl else None
        return OrthogonalState(chol, mean, root, a, t, ok, tangent, norm)

    def features(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(D19), (D20) at X [N, D]; N (M_gamma + M_beta^2)."""
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = self.kernel_mean.values(kernel, state.a, X) + apply_per_latent(
            A, state.mean - state.t, adjoint=True
        )  # (D19)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: OrthogonalState) -> tf.Tensor:
        """(D21), in nats; unbiased where the norm is sampled."""
        return 0.5 * norm_of(state) + kl_from_whitened(state.mean, state.root)  # (D21)

    def mean_coefficients(self, state: OrthogonalState) -> tf.Tensor:
        """a_gamma [M_gamma, L] of equation (11)."""
        return state.a

    def mean_operator(self, state: OrthogonalState, kernel: Kernel, X: tf.Tensor, features: Features) -> MeanOperator:
        """The maps between mean coefficients and the mean at X [N, D]."""
        projection = whiten(state.chol, None, cross_gram(kernel, self.beta, self.gamma))
        cross = gram_to_data(kernel, self.gamma, X)
        return MeanOperator(gram(kernel, self.gamma), cross, projection, features.minus[0])

    def refresh(self, kernel: Kernel) -> None:
        """Freeze the scaling of `a_gamma` at the current residual kernel; q(f) does not change."""
        self.kernel_mean.refresh(
            lambda: residual_gram(kernel, self.beta, self.gamma),
            lambda: residual_diagonal(kernel, self.beta, self.gamma),
        )

    def gaussians(self, state: OrthogonalState) -> tuple[Gaussian, ...]:
        """q(f(beta)), whitened."""
        return (Gaussian(state.mean, state.root),)

    @property
    def holds_sites(self) -> bool:
        """Where whitened."""
        return self.whiten

    def whiteners(self, state: OrthogonalState) -> tuple[Whitener, ...]:
        """That of K_beta."""
        return (Whitener(state.chol, state.ok, state.tangent),)

    def gaussian_parameters(self) -> tuple:
        """`q_mu` and `q_sqrt`."""
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: OrthogonalState, new: tuple[Gaussian, ...]) -> None:
        """Write q(f(beta))."""
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)

    def _norm(
        self,
        kernel: Kernel,
        a: tf.Tensor,
        chol: tf.Tensor,
        tangent: tf.Tensor,
        t: tf.Tensor,
        K_bg: tf.Tensor,
        rows: tf.Tensor | None,
    ) -> tf.Tensor:
        """a^T C_g a from rows of C_g a = K_g a - K_gb w; the rows are drawn here if the basis samples and none came."""
        if rows is None:
            rows = self.draw_rows()
        w = whiten_columns(chol, tangent, t, adjoint=True)
        block = K_bg if rows is None else tf.gather(K_bg, rows, axis=-1)
        products = self.kernel_mean.products(kernel, a, rows) - apply_per_latent(block, w, adjoint=True)
        return self.kernel_mean.norm(a, products, rows)  # (D25)
