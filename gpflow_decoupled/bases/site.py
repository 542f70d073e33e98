"""The site basis."""

from __future__ import annotations

__all__ = ["OnObservations", "SiteBasis", "SiteState", "observation_points", "per_observation"]

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.inducing_variables import SharedIndependentInducingVariables
from gpflow.kernels import Kernel

from ..covariances.latents import gram_to_data, positive_gram, prior_variance
from ..errors import DataError
from ..inducing.variables import check_finite, fixed_points
from ..inputs import check_whole
from ..linalg.site_posterior import site_posterior
from ..linalg.triangular import solve
from ..linalg.whitening import apply_per_latent
from .base import Basis, Features

# ---
# Fixed inputs, and a number per observation.


class OnObservations:
    """Members of a basis whose points are the inputs of the observations, a mixin."""

    points: SharedIndependentInducingVariables

    @property
    def X(self) -> tf.Tensor:
        """The inputs [N, D]."""
        return tf.convert_to_tensor(self.points.inducing_variable.Z)

    @property
    def sizes(self) -> dict[str, int | str]:
        """The number of observations N."""
        return {"N": self.num_data}

    @property
    def num_data(self) -> int:
        """The number of observations N."""
        return int(self.X.shape[0])


def observation_points(points: npt.ArrayLike) -> SharedIndependentInducingVariables:
    """Inputs X [N, D] as untrained inducing points; `DataError` unless finite and of rank 2."""
    points = np.asarray(points)
    if points.ndim != 2:
        raise DataError(
            f"points has shape {points.shape}; it must be [N, D], the inputs of the observations."
        )
    check_finite(points, "points")
    return SharedIndependentInducingVariables(fixed_points(points))


def per_observation(
    name: str, value: npt.ArrayLike | None, num_data: int, latents: int, neutral: str
) -> Parameter:
    """A Parameter [N, L] without gradient training, by default zero."""
    check_whole(1, num_latent_gps=latents)
    shape = (num_data, latents)
    value = np.zeros(shape) if value is None else np.asarray(value)
    if value.shape != shape:
        raise DataError(
            f"{name} has shape {value.shape}; it must be [N, L] = {list(shape)}, one row per"
            " observation."
        )
    if not np.all(np.isfinite(value)):
        raise DataError(f"{name} has entries that are not finite; {neutral}.")
    return Parameter(value, dtype=default_float(), trainable=False)


# ---


# Khan & Lin 2017 (arXiv:1703.04265); Opper & Archambeau 2009. With f = m_0 + u, site n is exp(nu_n
# u_n - tau_n u_n^2 / 2), q(u) = N(K alpha, (K^-1 + W)^-1) and W = diag(tau), (C10), (C11), (C14):
#
#   m(x) = k_xX alpha,   s(x, x') = k(x, x') - k_xX (K + W^-1)^-1 k_Xx'
#   KL = 1/2 [log det(I + K W) - sum tau v + alpha^T u]


class SiteState(NamedTuple):
    """The state of a `SiteBasis`; fields after `ok` serve the divergence. See `SitePosterior`."""

    chol: tf.Tensor
    """L_B [L, N, N], B = I + W^1/2 K W^1/2 of the positive tau."""
    scale: tf.Tensor
    """W^1/2 of the positive tau [L, N]."""
    negative: tf.Tensor
    """Contribution of negative tau to standard deviations [L, m, N]."""
    alpha: tf.Tensor
    """K^-1 u [N, L]."""
    ok: tf.Tensor
    mean: tf.Tensor | None = None
    """u at the observations [N, L]."""
    variance: tf.Tensor | None = None
    """v at the observations [N, L]."""
    log_det: tf.Tensor | None = None
    """log det(I + K W), summed over latents, a scalar."""
    nu: tf.Tensor | None = None
    tau: tf.Tensor | None = None


class SiteBasis(OnObservations, Basis):
    """q(f) as the prior times a site per observation and latent (Khan & Lin 2017); for `CVIGP`.

    Cost: 4/3 N^3 per latent, memory N^2 L.

    :param points: the inputs X [N, D], which stay fixed.
    :param num_latent_gps: L; latents are independent under q, as in `gpflow.models.VGP`.
    :param nu: site precisions times site means [N, L]; by default zeros.
    :param tau: site precisions [N, L], of any sign while K^-1 + W is positive definite; by default
        zeros. If both are zero, q is the prior.

    Example, the exact posterior for Gaussian noise of variance s2::

        basis = SiteBasis(X, nu=Y / s2, tau=np.full(Y.shape, 1.0 / s2))
        mean, variance = basis.mean_and_cov(basis.factor(kernel), kernel, Xnew)
    """

    state_type = SiteState

    def __init__(
        self,
        points: npt.ArrayLike,
        num_latent_gps: int = 1,
        *,
        nu: npt.ArrayLike | None = None,
        tau: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__()
        self.points = observation_points(points)
        self.num_latent_gps = num_latent_gps
        neutral = "a site without information is nu = tau = 0"
        self.nu = per_observation("nu", nu, self.num_data, num_latent_gps, neutral)
        self.tau = per_observation("tau", tau, self.num_data, num_latent_gps, neutral)

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """K [G, N, N] at the observations, with variances above 0."""
        return positive_gram(kernel, self.points)

    def prior_of(self, kernel: Kernel, rows: tf.Tensor) -> tf.Tensor:
        """K [G, n, n] at some of the observations, rows [n]."""
        return prior_variance(kernel, tf.gather(self.X, rows), full_cov=True)

    def prior_variances(self, prior: tf.Tensor) -> tf.Tensor:
        """Variances of f at the observations under the prior K [G, N, N], [N, L]."""
        variance = tf.transpose(tf.linalg.diag_part(prior))
        return tf.broadcast_to(variance, [tf.shape(variance)[0], self.num_latent_gps])

    def exists(self, prior: tf.Tensor, tau: tf.Tensor) -> tf.Tensor:
        """True if K^-1 + diag(tau) is positive definite for K [G, n, n], tau [n, L]; [] bool."""
        return site_posterior(prior, tf.zeros_like(tau), tau).ok

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        scale = tf.sqrt(tf.maximum(tf.transpose(tf.convert_to_tensor(self.tau)), 0.0))
        B = scale[:, :, None] * self.prior(kernel) * scale[:, None, :]
        return {"I + W^1/2 K W^1/2": tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)}

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> SiteState:
        return self.state_at(self.prior(kernel), self.nu, self.tau)

    def state_at(self, K: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> SiteState:
        """The state for other sites nu, tau [N, L] and K [G, N, N]."""
        nu, tau = tf.convert_to_tensor(nu), tf.convert_to_tensor(tau)
        p = site_posterior(K, nu, tau)
        return SiteState(
            p.chol, p.scale, p.negative, p.alpha, p.ok, p.mean, p.variance, p.log_det, nu, tau
        )

    def features(self, state: SiteState, kernel: Kernel, X: tf.Tensor) -> Features:
        K_Xx = gram_to_data(kernel, self.points, X)
        mean = apply_per_latent(K_Xx, state.alpha, adjoint=True)  # (C10)
        minus = solve(state.chol, state.scale[:, :, None] * K_Xx)  # (C11)
        return Features(mean, (minus,), (tf.matmul(state.negative, K_Xx),))

    def prior_kl(self, state: SiteState) -> tf.Tensor:
        _, tau, mean, variance, log_det = _at_observations(state)
        quadratic = tf.reduce_sum(state.alpha * mean) - tf.reduce_sum(tau * variance)
        return 0.5 * (log_det + quadratic)  # (C14)

    def log_partition(self, state: SiteState) -> tf.Tensor:
        """Log evidence of the sites, log integral of N(u; 0, K) prod_n t_n(u_n), in nats."""
        nu, _, mean, _, log_det = _at_observations(state)
        return 0.5 * (tf.reduce_sum(nu * mean) - log_det)  # (C16)


def _at_observations(state: SiteState) -> tuple[tf.Tensor, ...]:
    if state.nu is None:
        raise ValueError(
            "This state was made for predictions; call factor(kernel) for the divergence."
        )
    return state.nu, state.tau, state.mean, state.variance, state.log_det
