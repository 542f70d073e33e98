"""The site basis: the prior times one Gaussian site an observation, the form of q(f) at every optimum of the bound.

Khan & Lin 2017 (arXiv:1703.04265); Opper & Archambeau 2009. Sites are centred: with f = m_0 + u, site n is
exp(nu_n u_n - tau_n u_n^2 / 2), and q(u) = N(K alpha, (K^-1 + W)^-1), W = diag(tau):

    m(x) = k_xX alpha,   s(x, x') = k(x, x') - k_xX (K + W^-1)^-1 k_Xx'                              (C10), (C11)
    KL = 1/2 [log det(I + K W) - sum tau v + alpha^T u]                                                    (C14)
"""

from __future__ import annotations

__all__ = ["SiteBasis", "SiteState"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ..covariances.latents import gram, gram_to_data
from ..linalg.gaussians import apply_per_latent
from ..linalg.sites import site_posterior
from ..linalg.triangular import solve
from .base import Basis, Features
from .parts.observations import observation_points, per_observation


class SiteState(NamedTuple):
    """What predictions need of a `SiteBasis`, and after `ok` what the divergence needs; see `SitePosterior`."""

    chol: tf.Tensor
    scale: tf.Tensor
    negative: tf.Tensor
    alpha: tf.Tensor
    ok: tf.Tensor
    mean: Any = None
    """u at the observations [N, L]"""
    variance: Any = None
    """v at the observations [N, L]"""
    log_det: Any = None
    nu: Any = None
    tau: Any = None


class SiteBasis(Basis):
    """q(f) as the prior times a Gaussian site for each observation and latent; equations (C10)-(C14).

    :param points: the inputs of the observations X [N, D]; they stay fixed.
    :param num_latent_gps: L; latents are independent under q, as in `gpflow.models.VGP`.
    :param nu: first site parameters [N, L]; zeros if not given, at which q is the prior.
    :param tau: site precisions [N, L], of any sign as long as K^-1 + W is positive definite; zeros if not given.

    Raises `DataError` where an array has the wrong shape or is not finite. Cost: 4/3 N^3 a latent, N^2 L memory.
    """

    state_type = SiteState

    def __init__(self, points: Any, num_latent_gps: int = 1, *, nu: Any | None = None, tau: Any | None = None) -> None:
        super().__init__()
        self.points = observation_points(points)
        self.num_latent_gps = num_latent_gps
        neutral = "a site without information is nu = tau = 0"
        self.nu = per_observation("nu", nu, self.num_data, num_latent_gps, neutral)
        self.tau = per_observation("tau", tau, self.num_data, num_latent_gps, neutral)

    @property
    def X(self) -> tf.Tensor:
        """The inputs of the observations [N, D]."""
        return tf.convert_to_tensor(self.points.inducing_variable.Z)

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.X.shape[0])

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """I + W^1/2 K W^1/2 of the positive sites."""
        scale = tf.sqrt(tf.maximum(tf.transpose(tf.convert_to_tensor(self.tau)), 0.0))
        B = scale[:, :, None] * gram(kernel, self.points) * scale[:, None, :]
        return {"I + W^1/2 K W^1/2": tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)}

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> SiteState:
        """(C10)-(C12) at the observations; 4/3 N^3 a latent."""
        return self.state_at(gram(kernel, self.points), self.nu, self.tau)

    def state_at(self, K: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> SiteState:
        """The state for other sites nu, tau [N, L] and K [G, N, N]."""
        nu, tau = tf.convert_to_tensor(nu), tf.convert_to_tensor(tau)
        p = site_posterior(K, nu, tau)
        return SiteState(p.chol, p.scale, p.negative, p.alpha, p.ok, p.mean, p.variance, p.log_det, nu, tau)

    def features(self, state: SiteState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(C10), (C11) at X [N*, D]; N^2 N* a latent."""
        K_Xx = gram_to_data(kernel, self.points, X)
        mean = apply_per_latent(K_Xx, state.alpha, adjoint=True)
        minus = solve(state.chol, state.scale[:, :, None] * K_Xx)
        return Features(mean, (minus,), (tf.matmul(state.negative, K_Xx),))

    def prior_kl(self, state: SiteState) -> tf.Tensor:
        """(C14), in nats."""
        quadratic = tf.reduce_sum(state.alpha * state.mean) - tf.reduce_sum(state.tau * state.variance)
        return 0.5 * (state.log_det + quadratic)  # (C14)

    def log_partition(self, state: SiteState) -> tf.Tensor:
        """The log evidence of the sites under the prior, log integral of N(u; 0, K) prod_n t_n(u_n), in nats."""
        return 0.5 * (tf.reduce_sum(state.nu * state.mean) - state.log_det)  # (C16)
