"""The coupled basis: one set of points for the mean and the covariance, as in `gpflow.models.SVGP`.

Titsias 2009; Hensman, Fusi & Lawrence 2013; equations (6)-(7) of Salimbeni et al. 2018 (arXiv:1809.08820).

    m(x) = A_x^T m~,   s(x, x') = k(x, x') - A_x^T A_x' + A_x^T S~ A_x',   A_x = L_b^-1 k_bx       (D3)
    KL = 1/2 m~^T m~ + 1/2 [tr S~ - M - log|S~|]                                                     (D4)
"""

from __future__ import annotations

__all__ = ["CoupledBasis", "CoupledState"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_data, gram_to_factor
from ..inducing.variables import as_inducing, count_points
from ..linalg.gaussians import apply_per_latent, kl_from_whitened
from ..linalg.triangular import transposed_product
from ..linalg.whitening import Whitener, whiten, whitener
from .base import Basis, Features, Gaussian
from .parts.inducing_gaussian import assign_whitened, gaussian_parameters, whitened


class CoupledState(NamedTuple):
    """chol(K_beta) [G, M, M] and the whitened q(u), mean [M, L] and root [L, M, M], of a `CoupledBasis`."""

    chol: tf.Tensor
    mean: tf.Tensor
    root: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None


class CoupledBasis(Basis):
    """q(f) through q(f(beta)) = N(m, S), the basis of `gpflow.models.SVGP`; equations (D3), (D4).

    :param beta: inducing points [M, D], or any GPflow inducing variable.
    :param num_latent_gps: L.
    :param whiten: parametrise L_b^-1 f(beta) instead of f(beta).
    :param q_mu: [M, L]; zeros if not given.
    :param q_sqrt: [L, M, M], lower triangular; identities if not given.

    Raises `DataError` where an array has the wrong shape, or the points are not finite and distinct.
    Cost of a step on N inputs: M^3 + N M^2.
    """

    state_type = CoupledState

    def __init__(
        self,
        beta: Any,
        num_latent_gps: int = 1,
        *,
        whiten: bool = True,
        q_mu: Any | None = None,
        q_sqrt: Any | None = None,
    ) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.num_latent_gps = num_latent_gps
        self.whiten = whiten
        self.q_mu, self.q_sqrt = gaussian_parameters(count_points(self.beta), num_latent_gps, q_mu, q_sqrt)

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """K_beta with its jitter."""
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> CoupledState:
        """chol(K_beta) and q(u), whitened; M^3 / 3."""
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        mean, root = whitened(chol, tangent, self.q_mu, self.q_sqrt, self.whiten)
        return CoupledState(chol, mean, root, ok, tangent)

    def features(self, state: CoupledState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(D3) at X [N, D]; N M^2."""
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = apply_per_latent(A, state.mean, adjoint=True)  # (D3)
        return Features(mean, (A,), (transposed_product(state.root, A),))

    def prior_kl(self, state: CoupledState) -> tf.Tensor:
        """(D4), in nats."""
        return kl_from_whitened(state.mean, state.root)

    def gaussians(self, state: CoupledState) -> tuple[Gaussian, ...]:
        """q(u), whitened."""
        return (Gaussian(state.mean, state.root),)

    @property
    def holds_sites(self) -> bool:
        """Where whitened."""
        return self.whiten

    def whiteners(self, state: CoupledState) -> tuple[Whitener, ...]:
        """That of K_beta."""
        return (Whitener(state.chol, state.ok, state.tangent),)

    def gaussian_parameters(self) -> tuple:
        """`q_mu` and `q_sqrt`."""
        return (self.q_mu, self.q_sqrt)

    def assign_gaussians(self, state: CoupledState, new: tuple[Gaussian, ...]) -> None:
        """Write q(u)."""
        assign_whitened(state.chol, new[0], self.q_mu, self.q_sqrt, self.whiten)
