"""The local bound of Jaakkola & Jordan 2000 for logit likelihoods: what was used before the Gaussian KL bound, a baseline.

For labels of 0 and 1 with s = 2 y - 1, and any xi_n,

    log sigma(s f) >= log sigma(xi) + (s f - xi) / 2 - Lambda(xi) (f^2 - xi^2),   Lambda(xi) = tanh(xi / 2) / (4 xi)

so that each label becomes a Gaussian site nu = y - 1/2, tau = 2 Lambda(xi), q(f) is the prior times these sites, and the best
xi for it is xi_n^2 = E f_n^2; (C39) is the bound that is climbed by turns. It is at most the Gaussian KL bound.
"""

from __future__ import annotations

__all__ = ["JaakkolaJordan"]

from typing import Protocol

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from scipy.special import log_expit

from ...covariances.latents import gram
from ...errors import DataError
from ...likelihoods.sites.affine_sites import is_logit
from ...models import CVIGP, AffineIndependentGP
from ..conjugate.result import ConjugateRecorder, ConjugateResult
from .gaussian_kl import moments_of

_SMALL = 1e-4
"""Below, Lambda is 1/8 to 1e-10."""


class JaakkolaJordan:
    """Finds the Gaussian q of the local bound, for a Bernoulli likelihood with a logistic link.

    :param tolerance: in nats; the run ends when a step gains less. :param max_steps: at most.

    Runs on an `models.AffineIndependentGP` or `AffineIndependentGLM` with a Gaussian prior, which is left with a normal base,
    and on a `models.CVIGP`. Raises `DataError` for settings out of range. Cost of a step: N D^2 + D^3, or 4/3 N^3 for sites.
    """

    def __init__(self, tolerance: float = 1e-8, max_steps: int = 2000) -> None:
        if not tolerance > 0.0 or max_steps < 1:
            raise DataError(f"tolerance={tolerance!r} must be above 0 and max_steps={max_steps!r} at least 1.")
        self.tolerance, self.max_steps = float(tolerance), int(max_steps)

    def run(self, model: AffineIndependentGP | CVIGP) -> ConjugateResult:
        """From xi at the prior, in closed steps that each raise (C39); the model is left at q, and `elbo` is (C39), in nats.

        `model.elbo()`, the Gaussian KL bound of the same q, is the greater. Raises `DataError` for another likelihood, a
        prior that is not Gaussian, a structure of A that cannot hold every covariance, or coregionalised outputs; nothing has
        changed then.
        """
        _check(model)
        q: _Gaussian = _Weights(model) if isinstance(model, AffineIndependentGP) else _Sites(model)
        record, reason = ConjugateRecorder(), "steps done"
        Y = model.data[1].numpy()
        mean, variance, _ = q.moments(0.0 * Y, 0.0 * Y)
        xi, bound = np.sqrt(mean**2 + variance), -np.inf
        for _ in range(self.max_steps):
            tau = 2.0 * _curvature(xi)
            mean, variance, divergence = q.moments(Y - 0.5, tau)
            square = mean**2 + variance
            local = log_expit(xi) - 0.5 * xi + (Y - 0.5) * mean - 0.5 * tau * (square - xi**2)
            previous, bound = bound, float(np.sum(local)) - divergence  # (C39)
            change = float(np.sum((np.sqrt(square) - xi) ** 2))
            record.add(1.0, change, bound)
            if bound - previous < self.tolerance:
                reason = "converged"
                break
            xi = np.sqrt(square)
        q.write()
        return record.result(reason)


class _Gaussian(Protocol):
    """The prior times Gaussian sites exp(nu f - tau f^2 / 2) of f, mean function included."""

    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Means and variances of f [N, L], and the divergence from the prior in nats, for nu and tau [N, L]."""

    def write(self) -> None:
        """Leave the model with the last of these."""


class _Weights:
    """On inducing values or weights, in whitened coordinates, where the prior is N(0, I)."""

    def __init__(self, model: AffineIndependentGP) -> None:
        (group,) = model.site_groups()
        self.basis, self.features, self.offset = model.basis, group.features.numpy(), group.offset.numpy()
        self.noise = 0.0 if group.noise is None else group.noise.numpy()

    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """[N, 1] each, and a scalar."""
        phi, D = self.features, self.features.shape[1]
        precision = np.eye(D) + phi.T @ (tau * phi)
        self.b, self.root = moments_of(phi.T @ (nu[:, 0] - tau[:, 0] * self.offset), precision)
        variance = np.sum((phi @ self.root) ** 2, axis=1) + self.noise
        volume = np.sum(np.log(np.diag(self.root)))
        divergence = 0.5 * (np.sum(self.root**2) + self.b @ self.b - D) - volume
        return (self.offset + phi @ self.b)[:, None], variance[:, None], float(divergence)

    def write(self) -> None:
        """A normal base with this mean and covariance."""
        self.basis.assign_base("normal")
        self.basis.map.assign_matrix(self.root)
        self.basis.b.assign(self.b)


class _Sites:
    """On the data, by the sites of a `SiteBasis`, which are centred on the mean function."""

    def __init__(self, model: CVIGP) -> None:
        self.basis = model.basis
        self.K = gram(model.kernel, self.basis.points)
        shape = model.data[1].shape
        self.offset = tf.broadcast_to(model.mean_function(model.data[0]), shape).numpy()

    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """[N, L] each, and a scalar."""
        self.pair = nu - tau * self.offset, tau
        state = self.basis.state_at(self.K, *self.pair)
        return self.offset + state.mean.numpy(), state.variance.numpy(), float(self.basis.prior_kl(state))

    def write(self) -> None:
        """To the basis."""
        for parameter, site in zip((self.basis.nu, self.basis.tau), self.pair):
            parameter.assign(site)


def _curvature(xi: np.ndarray) -> np.ndarray:
    """Lambda(xi), of the shape of xi, not negative."""
    safe = np.maximum(xi, _SMALL)
    return np.tanh(0.5 * safe) / (4.0 * safe)


def _check(model: AffineIndependentGP | CVIGP) -> None:
    likelihood = model.likelihood
    if not is_logit(likelihood):
        raise DataError(
            f"the local bound is for labels of 0 and 1 with a logistic link, and the likelihood is "
            f"{type(likelihood).__name__}: use BernoulliLogit, or AffineIndependentAscent with base='normal'."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise DataError(
            "the local bound wants a latent function a label, and this kernel mixes them: use one a column."
        )
    if isinstance(model, AffineIndependentGP):
        if model.weight_priors is not None:
            raise DataError(
                "the local bound is for a Gaussian prior: leave out prior, or pass a MultivariateNormalDiag."
            )
        if model.basis.structure == "low_rank":
            raise DataError("structure='low_rank' cannot hold the covariance that the local bound finds: use 'full'.")
