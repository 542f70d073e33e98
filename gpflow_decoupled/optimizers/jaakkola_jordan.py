"""The local bound of Jaakkola & Jordan (2000), a baseline."""

from __future__ import annotations

__all__ = ["JaakkolaJordan"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from scipy.special import log_expit

from ..errors import DataError
from ..inputs import check_rate, check_whole
from ..likelihoods.facts import name_of
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
        require_model("JaakkolaJordan", model, AffineIndependentGP, CVIGP)
        _check(model)
        of_weights = isinstance(model, AffineIndependentGP)
        moments, write = _of_weights(model) if of_weights else _of_sites(model)
        recorder, reason = Recorder("change", "elbo"), "steps done"
        Y = model.data[1].numpy()
        mean, variance, _ = moments(0.0 * Y, 0.0 * Y)
        xi, bound = np.sqrt(mean**2 + variance), -np.inf
        for step in range(1, self.max_steps + 1):
            # 1) q for these xi: the prior times the Gaussian sites
            safe = np.maximum(xi, _SMALL)
            nu, tau = Y - 0.5, np.tanh(0.5 * safe) / (2.0 * safe)
            mean, variance, divergence = moments(nu, tau)
            # 2) the bound
            square = mean**2 + variance
            local = log_expit(xi) - 0.5 * xi + nu * mean - 0.5 * tau * (square - xi**2)
            previous, bound = bound, float(np.sum(local)) - divergence  # (C39)
            recorder.append(step, change=float(np.sum((np.sqrt(square) - xi) ** 2)), elbo=bound)
            if bound - previous < self.tolerance:
                reason = "converged"
                break
            # 3) the best xi for this q
            xi = np.sqrt(square)
        write(nu, tau)
        return recorder.finish(RunResult, bound, reason)


# Of either model, two functions of sites nu and tau [N, 1]: means and variances of f [N, 1] with
# the KL of q from the prior in nats, and one that writes this q to the model.


_Moments = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, float]]
_Write = Callable[[np.ndarray, np.ndarray], None]


def _of_weights(model: AffineIndependentGP) -> tuple[_Moments, _Write]:
    (group,) = model.site_groups()
    phi, offset = group.features.numpy(), group.offset.numpy()
    noise, D = 0.0 if group.noise is None else group.noise.numpy(), phi.shape[1]

    def gaussian(nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = phi.T @ (nu[:, 0] - tau[:, 0] * offset)
        return moments_of(first, np.eye(D) + phi.T @ (tau * phi))

    def moments(nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        b, root = gaussian(nu, tau)
        variance = np.sum((phi @ root) ** 2, axis=1) + noise
        volume = np.sum(np.log(np.diag(root)))
        divergence = 0.5 * (np.sum(root**2) + b @ b - D) - volume
        return (offset + phi @ b)[:, None], variance[:, None], float(divergence)

    def write(nu: np.ndarray, tau: np.ndarray) -> None:
        b, root = gaussian(nu, tau)
        model.basis.assign_base("normal")
        model.basis.map.assign_matrix(root)
        model.basis.b.assign(b)

    return moments, write


def _of_sites(model: CVIGP) -> tuple[_Moments, _Write]:
    basis, shape = model.basis, model.data[1].shape
    K = basis.prior(model.kernel)
    offset = tf.broadcast_to(model.mean_function(model.data[0]), shape).numpy()

    def moments(nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        state = basis.state_at(K, nu - tau * offset, tau)
        divergence = float(basis.prior_kl(state))
        return offset + state.mean.numpy(), state.variance.numpy(), divergence

    def write(nu: np.ndarray, tau: np.ndarray) -> None:
        basis.nu.assign(nu - tau * offset)
        basis.tau.assign(tau)

    return moments, write


def _check(model: AffineIndependentGP | CVIGP) -> None:
    likelihood = model.likelihood
    if not is_logit(likelihood):
        raise DataError(
            "The local bound is for labels of 0 and 1 with a logistic link, and the likelihood is"
            f" {name_of(likelihood)}: use BernoulliLogit, or AffineIndependentAscent with"
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
