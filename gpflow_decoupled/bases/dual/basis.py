"""The dual basis: q(f) by multipliers."""

# Khan 2014, Theorem 4.1. With u = f - m_0 at the observations, Lambda = diag(lambda), and v the
# diagonal of V, (V7), (V10):
#
#   E u = -K alpha,   V = (K^-1 + Lambda)^-1
#   KL = 1/2 [log|I + K Lambda| - lambda^T v + alpha^T K alpha]
#
# lambda may have any sign while V exists. alpha is the negative of `SiteBasis`'s.

from __future__ import annotations

__all__ = ["DualBasis"]

import numpy.typing as npt
import tensorflow as tf
from gpflow.kernels import Kernel

from ...errors import DataError, check_option
from ..base import Basis, Features
from ..parts.observations import OnObservations, observation_points, per_observation
from .function_space import FunctionSpace
from .geometry import DualState, Geometry
from .weight_space import WeightSpace


class DualBasis(OnObservations, Basis):
    """q(f) with mean -K alpha, covariance (K^-1 + diag lambda)^-1 at the data (Khan 2014).

    Cost per latent: 2/3 N^3 and N^2 memory, or with "weight" N p^2 + p^3 / 3 and N p memory.

    :param points: the inputs X [N, D], which stay fixed.
    :param num_latent_gps: L, independent under q.
    :param form: "function" computes with K [N, N], for any kernel; "weight" with p x p and N x p
        matrices, for linear kernels of p weights.
    :param weight_sites: first weights whose prior is a site, for "weight"; their multipliers follow
        the observations'.
    :param alpha: [N, L]; by default zeros.
    :param lam: lambda [N, L]; by default zeros. If both are zero, q is the prior.

    Example::

        basis = DualBasis(X, alpha=alpha, lam=lam)
        state = basis.factor(kernel)
        mean, variance = basis.mean_and_cov(state, kernel, Xnew)
    """

    state_type = DualState

    def __init__(
        self,
        points: npt.ArrayLike,
        num_latent_gps: int = 1,
        form: str = "function",
        *,
        weight_sites: int = 0,
        alpha: npt.ArrayLike | None = None,
        lam: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__()
        check_option("form", form, ("function", "weight"))
        self.points = observation_points(points)
        self.num_latent_gps = num_latent_gps
        self.geometry: Geometry
        if form == "weight":
            self.geometry = WeightSpace(self.points, weight_sites)
        elif weight_sites:
            raise DataError(
                'Weights have sites of their own in the form "weight" alone; pass form="weight".'
            )
        else:
            self.geometry = FunctionSpace(self.points)
        rows = self.num_data + weight_sites
        neutral = "at alpha = lam = 0 q is the prior"
        self.alpha = per_observation("alpha", alpha, rows, num_latent_gps, neutral)
        self.lam = per_observation("lam", lam, rows, num_latent_gps, neutral)

    @property
    def form(self) -> str:
        """The form, "function" or "weight"."""
        return self.geometry.form

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """I + Lambda^1/2 K Lambda^1/2 of the positive lambda, or C = I + A^T Lambda A."""
        return self.geometry.matrices(self.geometry.prior(kernel), tf.convert_to_tensor(self.lam))

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> DualState:
        """The state at the multipliers; `rows` and `with_kl` are ignored."""
        state = self.geometry.state_at(self.geometry.prior(kernel), self.alpha, self.lam)
        return self.geometry.for_predictions(state, kernel)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        return self.geometry.features(state, kernel, X)

    def prior_kl(self, state: DualState) -> tf.Tensor:
        quadratic = tf.reduce_sum(state.alpha * state.mean) + tf.reduce_sum(
            state.lam * state.variance
        )
        return 0.5 * (state.log_det - quadratic)  # (V10)
