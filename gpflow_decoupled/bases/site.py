"""The site basis: the prior times one Gaussian site an observation, the form of q(f) at every optimum of the bound.

Khan & Lin 2017 (arXiv:1703.04265); Opper & Archambeau 2009. Sites are centred: with f = m_0 + u, site n is
exp(nu_n u_n - tau_n u_n^2 / 2), and q(u) = N(K alpha, (K^-1 + W)^-1), W = diag(tau):

    m(x) = k_xX alpha,   s(x, x') = k(x, x') - k_xX (K + W^-1)^-1 k_Xx'                              (C10), (C11)
    KL = 1/2 [log det(I + K W) - sum tau v + alpha^T u]                                                    (C14)
"""

from __future__ import annotations

__all__ = ["SiteBasis", "SiteState"]

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import set_trainable

from ..errors import DataError
from ..inducing.checks import check_finite
from ..linalg.gaussians import apply_per_latent
from ..linalg.sites import site_posterior
from ..linalg.triangular import solve
from .base import Basis, Features
from .latents import gram, gram_to_data


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
        points = np.asarray(points)
        if points.ndim != 2:
            raise DataError(f"points has shape {points.shape}; it must be [N, D], the inputs of the observations.")
        check_finite(points, "points")
        self.points = SharedIndependentInducingVariables(InducingPoints(points))  # serves kernels of every kind
        set_trainable(self.points, False)
        self.num_latent_gps = num_latent_gps
        self.nu, self.tau = self._sites("nu", nu), self._sites("tau", tau)

    def _sites(self, name: str, value: Any | None) -> Parameter:
        shape = (self.num_data, self.num_latent_gps)
        value = np.zeros(shape) if value is None else np.asarray(value)
        if value.shape != shape:
            raise DataError(
                f"{name} has shape {value.shape}; it must be [N, L] = {list(shape)}, one site an observation."
            )
        if not np.all(np.isfinite(value)):
            raise DataError(f"{name} has entries that are not finite; a site without information is nu = tau = 0.")
        return Parameter(value, dtype=default_float(), trainable=False)

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
