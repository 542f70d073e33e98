"""The dual basis: q(f) by the multipliers alpha and lambda of the constraints on each marginal, two numbers an observation.

Khan 2014, Theorem 4.1. With u = f - m_0 at the observations and Lambda = diag(lambda), of any sign as long as V exists:

    mean of u = -K alpha,   V = (K^-1 + Lambda)^-1                                                          (V7)
    KL = 1/2 [log|C| - lambda^T v + alpha^T K alpha],   |C| = |I + K Lambda|                                (V10)

alpha is -K^-1 u, the negative of the alpha of `SiteBasis`. The form "function" works with K [N, N], (V9); the form "weight"
is for linear kernels, whose K = A A^T with A [N, p] is never formed, (V8).
"""

from __future__ import annotations

__all__ = ["DualBasis", "DualState"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel

from ..covariances.latents import gram, gram_to_data
from ..errors import check_option
from ..linalg.gaussians import apply_per_latent
from ..linalg.sites import site_posterior
from ..linalg.triangular import solve
from .base import Basis, Features
from .parts.observations import observation_points, per_observation
from .weight_space import prior_root, weight_features, weight_posterior


class DualState(NamedTuple):
    """What predictions need of a `DualBasis`, and after `ok` what the divergence needs."""

    chol: tf.Tensor
    """Function form: L_B [L, N, N], B = I + Lambda^1/2 K Lambda^1/2 of the positive lambda. Weight form: L_C [L, p, p]."""
    scale: tf.Tensor
    """Function form: Lambda^1/2 of the positive lambda [L, N]. Weight form: R [1, p, p] with prior covariance R R^T."""
    negative: tf.Tensor
    """What negative lambda add to standard deviations, [L, m, N]; in the weight form m = 0."""
    coefficients: tf.Tensor
    """Function form: alpha [N, L]. Weight form: A^T alpha [p, L]."""
    ok: tf.Tensor
    """[], bool: whether V exists."""
    mean: Any = None
    """u at the observations [N, L]"""
    variance: Any = None
    """v at the observations [N, L]"""
    log_det: Any = None
    """log|C|, summed over latents"""
    alpha: Any = None
    lam: Any = None
    inverse: Any = None
    """L_B^-1 [L, N, N], where an optimizer asks for the state in the function form"""


class DualBasis(Basis):
    """q(f) with mean -K alpha and covariance (K^-1 + diag lambda)^-1; equations (V7)-(V10).

    :param points: the inputs of the observations X [N, D]; they stay fixed.
    :param num_latent_gps: L; latents are independent under q.
    :param form: "function" for any kernel, or "weight" for a linear one (`gpflow.kernels.Linear`, `LinearWeights`,
        `Constant` and their sums), which pays where there are fewer weights p than observations.
    :param alpha: [N, L]; zeros if not given. :param lam: lambda [N, L], of any sign as long as V exists; zeros if not
        given, and q is the prior where both are zero.

    Raises `DataError` where an array has the wrong shape or is not finite, `UnknownOptionError` for another form.
    Cost a latent: 2/3 N^3 and N^2 memory, or N p^2 + p^3 / 3 and N p memory.
    """

    state_type = DualState

    def __init__(
        self,
        points: Any,
        num_latent_gps: int = 1,
        form: str = "function",
        *,
        alpha: Any | None = None,
        lam: Any | None = None,
    ) -> None:
        super().__init__()
        check_option("form", form, ("function", "weight"))
        self.points = observation_points(points)
        self.num_latent_gps, self.form = num_latent_gps, form
        neutral = "at alpha = lam = 0 q is the prior"
        self.alpha = per_observation("alpha", alpha, self.num_data, num_latent_gps, neutral)
        self.lam = per_observation("lam", lam, self.num_data, num_latent_gps, neutral)

    @property
    def X(self) -> tf.Tensor:
        """The inputs of the observations [N, D]."""
        return tf.convert_to_tensor(self.points.inducing_variable.Z)

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.X.shape[0])

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """I + Lambda^1/2 K Lambda^1/2 of the positive lambda, or of the weights C = I + A^T Lambda A."""
        lam = tf.transpose(tf.convert_to_tensor(self.lam))[:, :, None]
        prior = self.prior(kernel)
        if self.form == "weight":
            C = tf.matmul(prior, lam * prior, transpose_a=True)
            return {"C = I + A^T Lambda A": tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0)}
        scale = tf.sqrt(tf.maximum(lam, 0.0))
        B = scale * prior * tf.linalg.matrix_transpose(scale)
        return {"I + Lambda^1/2 K Lambda^1/2": tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0)}

    def prior(self, kernel: Kernel) -> tf.Tensor:
        """What of the prior the multipliers act on: K [G, N, N], or in the weight form A [1, N, p] with K = A A^T."""
        if self.form == "weight":
            return tf.linalg.matrix_transpose(weight_features(kernel, self.X, prior_root(kernel, self.X)))
        return gram(kernel, self.points)

    def factor(self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True) -> DualState:
        """(V8) or (V9) at the observations."""
        state = self.state_at(self.prior(kernel), self.alpha, self.lam)
        weight = self.form == "weight"
        return state._replace(scale=prior_root(kernel, self.X)) if weight else state._replace(inverse=None)

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state for other alpha, lam [N, L] and a `prior`; of the weight form it serves the observations alone."""
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        if self.form == "weight":
            w = weight_posterior(prior[0], alpha, lam)
            none = tf.zeros_like(w.chol[:, :0])
            return DualState(w.chol, none, none, w.pulled, w.ok, w.mean, w.variance, w.log_det, alpha, lam)
        p = site_posterior(prior, tf.zeros_like(lam), lam)  # (V9)
        mean = self.mean_at(prior, alpha)
        parts = alpha, p.ok, mean, p.variance, p.log_det, alpha, lam, p.inverse
        return DualState(p.chol, p.scale, p.negative, *parts)

    def mean_at(self, prior: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
        """Of u at the observations [N, L], for other alpha [N, L]; N^2 or N p."""
        if self.form == "weight":
            return -tf.matmul(prior[0], tf.matmul(prior[0], alpha, transpose_a=True))  # (V7)
        return -apply_per_latent(prior, alpha)  # (V7)

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state with the precisions lam [N, L] and the mean V b of Gaussian sites b [N, L], centred; (V22)."""
        if self.form == "weight":
            state = self.state_at(prior, tf.zeros_like(b), lam)
            pull = solve(state.chol, tf.linalg.matvec(prior, tf.transpose(b), transpose_a=True)[..., None])
            mean = tf.transpose(tf.linalg.matvec(prior, solve(state.chol, pull, adjoint=True)[..., 0]))
            alpha = lam * mean - b  # (V22)
            return state._replace(alpha=alpha, mean=mean, coefficients=tf.matmul(prior[0], alpha, transpose_a=True))
        p = site_posterior(prior, b, lam)
        return DualState(
            p.chol, p.scale, p.negative, -p.alpha, p.ok, p.mean, p.variance, p.log_det, -p.alpha, lam, p.inverse
        )  # (V22)

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """The state with another alpha [N, L]; N^2 or N p."""
        if self.form == "weight":
            pulled = tf.matmul(prior[0], alpha, transpose_a=True)
            return state._replace(coefficients=pulled, alpha=alpha, mean=-tf.matmul(prior[0], pulled))
        return state._replace(coefficients=alpha, alpha=alpha, mean=self.mean_at(prior, alpha))

    def covariance(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """V at the observations [L, N, N], for any sign of lambda; 1.5 N^3 or N^2 p a latent."""
        if self.form == "weight":
            T = self.root(prior, state)
            return tf.matmul(T, T, transpose_a=True)
        T = solve(state.chol, state.scale[:, :, None] * prior)
        excess = tf.matmul(state.negative, prior)
        V = prior - tf.matmul(T, T, transpose_a=True)
        return V + tf.matmul(excess, excess, transpose_a=True)

    def root(self, prior: tf.Tensor, state: DualState) -> tf.Tensor:
        """Of the weight form T [L, p, N] with V = T^T T at the observations; N p^2 a latent."""
        return solve(state.chol, tf.linalg.matrix_transpose(prior))  # (V8)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(V25) at X [N*, D]; N^2 N* or p^2 N* a latent."""
        if self.form == "weight":
            phi = weight_features(kernel, X, state.scale)
            mean = -tf.matmul(phi[0], state.coefficients, transpose_a=True)
            return Features(mean, (phi,), (solve(state.chol, phi),))
        K_Xx = gram_to_data(kernel, self.points, X)
        mean = -apply_per_latent(K_Xx, state.coefficients, adjoint=True)
        return Features(mean, (solve(state.chol, state.scale[:, :, None] * K_Xx),), (tf.matmul(state.negative, K_Xx),))

    def prior_kl(self, state: DualState) -> tf.Tensor:
        """(V10), in nats."""
        quadratic = tf.reduce_sum(state.alpha * state.mean) + tf.reduce_sum(state.lam * state.variance)
        return 0.5 * (state.log_det - quadratic)  # (V10)
