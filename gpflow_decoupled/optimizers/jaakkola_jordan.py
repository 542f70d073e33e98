"""The local bound of Jaakkola & Jordan (2000), a baseline."""

from __future__ import annotations

__all__ = ["JaakkolaJordan"]

from typing import Protocol

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from scipy.special import log_expit

from ..errors import DataError
from ..inputs import check_rate, check_whole
from ..likelihoods.registry import is_logit
from ..models import CVIGP, AffineIndependentGP
from ..models.families import require_model
from ..summaries import settings_line
from .affine_start import moments_of
from .ascent import Recorder, RunResult

# For a label y of 0 or 1, s = 2 y - 1, and any xi (C39)
#
#   log sigma(s f) >= log sigma(xi) + (s f - xi) / 2 - Lambda(xi) (f^2 - xi^2)
#
# with Lambda(xi) = tanh(xi / 2) / (4 xi): a Gaussian site exp(nu f - tau f^2 / 2), nu = y - 1/2,
# tau = 2 Lambda(xi). The best xi_n^2 is E f_n^2.


_SMALL = 1e-4
"""Below this xi, Lambda(xi) differs from 1/8 by less than 1e-10."""


class JaakkolaJordan:
    """Find the Gaussian q of the local bound, for a Bernoulli likelihood with logistic link.

    For a `CVIGP`, or an affine-independent model with a Gaussian prior. Alternates between q and
    xi. Cost per step: N D^2 + D^3 for D weights or inducing points; 4/3 N^3 for a `CVIGP`.

    :param tolerance: in nats; the run ends when a step gains less.
    :param max_steps: the largest number of steps.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = JaakkolaJordan().run(model)
        print(result.elbo, "<=", float(model.elbo()))
    """

    def __init__(self, tolerance: float = 1e-8, max_steps: int = 2000) -> None:
        check_rate(tolerance=tolerance)
        check_whole(1, max_steps=max_steps)
        self.tolerance, self.max_steps = float(tolerance), int(max_steps)

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: AffineIndependentGP | CVIGP) -> RunResult:
        """Climb the local bound from the prior's xi, and leave the model with its q.

        :return: a result whose `elbo` is the local bound in nats, below `model.elbo()`. `history`
            adds "change", the squared change of xi summed over labels.
        """
        # (C39)
        require_model("JaakkolaJordan", model, AffineIndependentGP, CVIGP)
        _check(model)
        q: _Gaussian = _Weights(model) if isinstance(model, AffineIndependentGP) else _Sites(model)
        recorder, reason = Recorder("change", "elbo"), "steps done"
        Y = model.data[1].numpy()
        mean, variance, _ = q.moments(0.0 * Y, 0.0 * Y)
        xi, bound = np.sqrt(mean**2 + variance), -np.inf
        for step in range(1, self.max_steps + 1):
            # 1) q for these xi: the prior times the Gaussian sites
            tau = 2.0 * _curvature(xi)
            mean, variance, divergence = q.moments(Y - 0.5, tau)
            # 2) the bound
            square = mean**2 + variance
            local = log_expit(xi) - 0.5 * xi + (Y - 0.5) * mean - 0.5 * tau * (square - xi**2)
            previous, bound = bound, float(np.sum(local)) - divergence  # (C39)
            recorder.append(step, change=float(np.sum((np.sqrt(square) - xi) ** 2)), elbo=bound)
            if bound - previous < self.tolerance:
                reason = "converged"
                break
            # 3) the best xi for this q
            xi = np.sqrt(square)
        q.write()
        return recorder.finish(RunResult, bound, reason)


class _Gaussian(Protocol):
    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Means and variances of f [N, L], and the prior KL in nats, for nu and tau [N, L]."""

    def write(self) -> None:
        """Write the last q to the model."""


class _Weights:
    def __init__(self, model: AffineIndependentGP) -> None:
        (group,) = model.site_groups()
        self.basis, self.features, self.offset = (
            model.basis,
            group.features.numpy(),
            group.offset.numpy(),
        )
        self.noise = 0.0 if group.noise is None else group.noise.numpy()

    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        phi, D = self.features, self.features.shape[1]
        precision = np.eye(D) + phi.T @ (tau * phi)
        self.b, self.root = moments_of(phi.T @ (nu[:, 0] - tau[:, 0] * self.offset), precision)
        variance = np.sum((phi @ self.root) ** 2, axis=1) + self.noise
        volume = np.sum(np.log(np.diag(self.root)))
        divergence = 0.5 * (np.sum(self.root**2) + self.b @ self.b - D) - volume
        return (self.offset + phi @ self.b)[:, None], variance[:, None], float(divergence)

    def write(self) -> None:
        self.basis.assign_base("normal")
        self.basis.map.assign_matrix(self.root)
        self.basis.b.assign(self.b)


class _Sites:
    """q on the data by the sites of a `SiteBasis`, centred on the mean function."""

    def __init__(self, model: CVIGP) -> None:
        self.basis = model.basis
        self.K = self.basis.prior(model.kernel)
        shape = model.data[1].shape
        self.offset = tf.broadcast_to(model.mean_function(model.data[0]), shape).numpy()

    def moments(self, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        self.pair = nu - tau * self.offset, tau
        state = self.basis.state_at(self.K, *self.pair)
        return (
            self.offset + state.mean.numpy(),
            state.variance.numpy(),
            float(self.basis.prior_kl(state)),
        )

    def write(self) -> None:
        for parameter, site in zip((self.basis.nu, self.basis.tau), self.pair):
            parameter.assign(site)


def _curvature(xi: np.ndarray) -> np.ndarray:
    safe = np.maximum(xi, _SMALL)
    return np.tanh(0.5 * safe) / (4.0 * safe)


def _check(model: AffineIndependentGP | CVIGP) -> None:
    likelihood = model.likelihood
    if not is_logit(likelihood):
        raise DataError(
            "The local bound is for labels of 0 and 1 with a logistic link, and the likelihood is"
            f" {type(likelihood).__name__}: use BernoulliLogit, or AffineIndependentAscent with"
            " base='normal'."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise DataError(
            "The local bound needs one latent function per label, and a LinearCoregionalization"
            " kernel mixes them: use a kernel with one latent function per column of Y."
        )
    if isinstance(model, AffineIndependentGP):
        if model.weight_priors is not None:
            raise DataError(
                "The local bound is for a Gaussian prior: leave out prior, or pass a"
                " MultivariateNormalDiag."
            )
