"""A full GP on one input, by Kalman filter and smoother."""

from __future__ import annotations

__all__ = ["StateSpaceGP"]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import StateSpaceBasis
from ..covariances.latents import split_latents
from ..covariances.state_space import refuse_kernel, series_error_of
from ..errors import ModelError
from ..likelihoods.parameters import noise_variance_at
from ..user_warnings import warn_user
from .checks import check_parts
from .conjugate import CVIGP
from .evidence import Evidence, EvidenceSettings
from .neighbours.evidence import check_evidence, has_evidence, observed_parts

_POOR = 1e-3
"""Error of the covariance of a truncated periodic kernel, as a share, that is worth a warning."""


class StateSpaceGP(CVIGP):
    """A `CVIGP` on one input, say time, at linear cost: any likelihood that has sites.

    Filter and smoother compute bound, marginals and forecasts exactly (Hartikainen & Sarkka 2010;
    Chang et al. 2020). Inputs come in any order, with duplicates and gaps; leave missing
    observations out. Other arguments as `CVIGP`. Cost of a pass for d states (1 to 3 for a Matern
    kernel): 6 N L d^3; memory 8 N L d^2.

    :param data: X [N, 1], Y [N, P].
    :param kernel: Matern12, Matern32, Matern52, Exponential, Cosine, Constant, Periodic (of a
        SquaredExponential), sums and products of them; or `SeparateIndependent` of such.
    :param harmonics: J of the cosine series of each periodic kernel (Solin & Sarkka 2014), which
        then has 2 J + 1 states. `series_error` is its error, with a warning if large.

    Example::

        kernel = gpflow.kernels.Matern32(lengthscales=3.0)
        model = StateSpaceGP((time, counts), kernel, gpflow.likelihoods.Poisson())
        gpflow_decoupled.fit(model)
        mean, variance = model.predict_y(later)
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        harmonics: int = 7,
    ) -> None:
        check_parts(kernel, likelihood)
        for (latent,) in split_latents(kernel):
            refuse_kernel(latent)
        self._harmonics = harmonics
        super().__init__(
            data, kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        if tf.executing_eagerly():
            _warn_of_series(self)

    @property
    def series_error(self) -> float:
        """The largest error of a covariance of f by the cosine series, at the present kernel.

        As a share of the variance of the periodic kernel; more `harmonics` make it smaller.
        """
        latents = [latent for (latent,) in split_latents(self.kernel)]
        return max(float(series_error_of(latent, self.basis.harmonics)) for latent in latents)

    def log_evidence(self) -> tf.Tensor:
        """The exact log evidence for Gaussian noise, in nats, a scalar; 6 N L d^3.

        :raises ModelError: for another likelihood, and for mixed outputs.
        """
        if not has_evidence(self):
            raise ModelError(
                "The log evidence is known for Gaussian noise and outputs that are not mixed:"
                " compare models by model.elbo, a lower bound, or by held-out log densities."
            )
        return self._evidence_and_quadratic()[0]

    def _evidence_and_quadratic(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The log evidence, and y^T (K + D)^-1 y summed over columns, scalars."""
        X, Y = self.data
        residual = Y - self.mean_function(X)
        noise = tf.zeros_like(residual) + noise_variance_at(self.likelihood, X)
        prior = self.basis.prior(self.kernel)
        state = self.basis.state_at(prior, residual / noise, 1.0 / noise)
        # p(y | f) is a site times this factor
        factor = tf.math.log(2.0 * np.pi * noise) + tf.square(residual) / noise
        value = self.basis.log_partition(state) - 0.5 * tf.reduce_sum(factor)
        return value, tf.reduce_sum(residual * (residual - state.mean) / noise)

    def evidence(
        self,
        *,
        num_neighbours: int = 100,
        tolerance: float = 0.1,
        probes: int = 0,
        seed: int = 0,
    ) -> Evidence:
        EvidenceSettings(num_neighbours, tolerance, probes, seed)
        groups = check_evidence(self, self.data)
        nats, quadratic = (float(part) for part in self._evidence_and_quadratic())
        states = int(self.basis.prior(self.kernel).h.shape[-1])
        parts = observed_parts(self, self.data, groups)
        lost = sum(part.round_off(quadratic, states) for part in parts)
        return Evidence(nats - lost, nats + lost, "exact", "exact", int(self.data[0].shape[0]), 0)

    def _basis_at(self, X: np.ndarray, **sites: np.ndarray) -> StateSpaceBasis:
        return StateSpaceBasis(X, self.num_latent_gps, harmonics=self._harmonics, **sites)


def _warn_of_series(model: StateSpaceGP) -> None:
    error = model.series_error
    if error > _POOR:
        warn_user(
            f"The cosine series of the periodic kernel with harmonics={model.basis.harmonics}"
            f" misses {error:.2g} of its variance: pass harmonics={2 * model.basis.harmonics} to"
            " StateSpaceGP, or start from a larger lengthscale.",
        )
