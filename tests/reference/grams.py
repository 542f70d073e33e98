"""Gram matrices of one model and the point sets derived from them.

Every reference function takes a `Grams`, so any kernel can be tested: `build_grams(kernel, ...)`
makes it, or fill the fields by hand. One latent function and zero prior mean; subtract a mean
function from `y`.

Jitter policy. `K_b` is the covariance of u = f(beta) + sqrt(jitter) xi, and `K_gb`, `K_xb` are
unchanged as xi is independent of f. So jitter on the diagonal of `K_b`, wherever `K_b` occurs,
makes another inducing variable and no approximation: the KL divergence is exactly that of the joint
(u, f). The same holds for `K_g` with f(gamma) + sqrt(jitter_gamma) xi, which only SOLVE needs (it
factorises C_g); leave it at zero for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Grams(NamedTuple):
    """Kernel matrices between beta (M_b points), gamma or alpha (M_g points) and x (N points)."""

    K_b: Array  # [M_b, M_b], jitter included
    K_g: Array  # [M_g, M_g]; the decoupled families (2) and (3) keep their alpha here
    K_gb: Array  # [M_g, M_b]
    K_xb: Array  # [N, M_b]
    K_xg: Array  # [N, M_g]
    K_x: Array  # [N, N]

    @property
    def projection(self) -> Array:
        """P = K_b^-1 K_bx, [M_b, N]."""
        return np.linalg.inv(self.K_b) @ self.K_xb.T

    @property
    def chol(self) -> Array:
        """L_b, lower triangular with L_b L_b^T = K_b, [M_b, M_b]."""
        return np.linalg.cholesky(self.K_b)

    @property
    def features(self) -> Array:
        """A = L_b^-1 K_bx, [M_b, N]."""
        return np.linalg.inv(self.chol) @ self.K_xb.T

    @property
    def Q_x(self) -> Array:
        """Nystrom matrix K_xb K_b^-1 K_bx of beta, [N, N]."""
        return self.K_xb @ np.linalg.inv(self.K_b) @ self.K_xb.T

    @property
    def C_g(self) -> Array:
        """Residual kernel at gamma, [M_g, M_g]."""
        return self.K_g - self.K_gb @ np.linalg.inv(self.K_b) @ self.K_gb.T  # (D14)

    @property
    def C_xg(self) -> Array:
        """Residual kernel between x and gamma, [N, M_g]."""
        return self.K_xg - self.K_xb @ np.linalg.inv(self.K_b) @ self.K_gb.T  # (D13)

    @property
    def C_x(self) -> Array:
        """Residual kernel at x, [N, N]."""
        return self.K_x - self.Q_x


def matern32(X: Array, X2: Array, variance: float = 1.0, lengthscale: float = 1.0) -> Array:
    """Matern-3/2 kernel between X [N, D] and X2 [N2, D], [N, N2]; well conditioned on scattered
    points.
    """
    r = np.sqrt(3.0) * np.linalg.norm(X[:, None, :] - X2[None, :, :], axis=-1) / lengthscale
    return variance * (1.0 + r) * np.exp(-r)


def squared_exponential(
    X: Array, X2: Array, variance: float = 1.0, lengthscale: float = 1.0
) -> Array:
    """Squared-exponential kernel between X [N, D] and X2 [N2, D], [N, N2]."""
    r2 = np.sum(((X[:, None, :] - X2[None, :, :]) / lengthscale) ** 2, axis=-1)
    return variance * np.exp(-0.5 * r2)


def build_grams(
    kernel: Callable[[Array, Array], Array],
    X: Array,
    beta: Array,
    gamma: Array,
    jitter: float = 0.0,
    jitter_gamma: float = 0.0,
) -> Grams:
    """`Grams` of X [N, D], beta [M_b, D], gamma [M_g, D], M_g >= 0; `kernel(X, X2)` returns
    [N, N2].
    """
    K_b = kernel(beta, beta) + jitter * np.eye(len(beta))
    K_g = kernel(gamma, gamma) + jitter_gamma * np.eye(len(gamma))
    return Grams(K_b, K_g, kernel(gamma, beta), kernel(X, beta), kernel(X, gamma), kernel(X, X))


def joint_prior(K_b_jittered: Array, K_bf: Array, K_ff: Array) -> Array:
    """Prior covariance of (u, f), u = f(beta) + sqrt(jitter) xi, from [M_b, M_b], [M_b, F] and
    [F, F].

    The jitter is in the u block only. The grid f must contain gamma (or alpha) for the KL of the
    joint to be the KL of the processes."""
    return np.block([[K_b_jittered, K_bf], [K_bf.T, K_ff]])


def joint(k: Grams) -> Grams:
    """The same model with x replaced by (u, f(gamma), f(x)), M_b + M_g + N variables.

    A family evaluated at `joint(k)` gives the mean and covariance of the joint posterior;
    `joint(k).K_x` is the joint prior. All points must differ, else the prior is singular (jitter
    lets beta meet the others)."""
    K_bf = np.hstack([k.K_gb.T, k.K_xb.T])
    K_ff = np.block([[k.K_g, k.K_xg.T], [k.K_xg, k.K_x]])
    prior = joint_prior(k.K_b, K_bf, K_ff)
    M_b, M_g = len(k.K_b), len(k.K_g)
    return k._replace(K_xb=prior[:, :M_b], K_xg=prior[:, M_b : M_b + M_g], K_x=prior)


def mean_union(k: Grams) -> Grams:
    """alpha = (gamma, beta), in this order, in the place of gamma: the mean basis of families (4)
    and (5).
    """
    K_a = np.block([[k.K_g, k.K_gb], [k.K_gb.T, k.K_b]])
    return k._replace(K_g=K_a, K_gb=np.vstack([k.K_gb, k.K_b]), K_xg=np.hstack([k.K_xg, k.K_xb]))


def coupled_union(k: Grams) -> Grams:
    """(gamma, beta) in the place of beta and no gamma: the coupled model with all the points."""
    K_a = mean_union(k)
    N, M = K_a.K_xg.shape
    return Grams(K_a.K_g, np.zeros((0, 0)), np.zeros((0, M)), K_a.K_xg, np.zeros((N, 0)), k.K_x)


def residual(k: Grams) -> Grams:
    """The orthogonal process f_perp alone: gamma in the place of beta under the residual kernel, no
    gamma.
    """
    N, M = k.K_xg.shape
    return Grams(k.C_g, np.zeros((0, 0)), np.zeros((0, M)), k.C_xg, np.zeros((N, 0)), k.C_x)
