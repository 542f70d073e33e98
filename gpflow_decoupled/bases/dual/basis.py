"""The dual basis: q(f) by multipliers alpha and lambda, one of each per observation and latent
function.

The multipliers belong to the constraints that tie the means and variances at the observations to
q(f); Khan 2014, Theorem 4.1. With u = f - m_0 at the observations, K its prior covariance, Lambda =
diag(lambda), and v the diagonal of V:

    mean of u = -K alpha,   V = (K^-1 + Lambda)^-1
    (V7) KL = 1/2 [log|C| - lambda^T v + alpha^T K alpha],   |C| = |I + K Lambda|
    (V10)

lambda may have any sign as long as V exists. alpha is -K^-1 times the mean of u, the negative of
the alpha of `SiteBasis`.
"""

from __future__ import annotations

__all__ = ["DualBasis"]

import numpy.typing as npt
import tensorflow as tf
from gpflow.kernels import Kernel

from ...errors import DataError, check_option
from ..base import Basis, Features
from ..parts.observations import observation_points, per_observation
from .function_space import FunctionSpace
from .geometry import DualState, Geometry
from .weight_space import WeightSpace


class DualBasis(Basis):
    """q(f) with mean -K alpha and covariance (K^-1 + diag lambda)^-1 at the observations; equations
    (V7)-(V10).

    :param points: the inputs of the observations X [N, D]; they stay fixed.
    :param num_latent_gps: the number of latent functions L, which are independent under q.
    :param form: "function" computes with K [N, N] and serves any kernel. "weight" computes with
        matrices of p x p and N x p, and serves linear kernels of p weights:
        `gpflow.kernels.Linear`, `LinearWeights`, `gpflow.kernels.Constant` and their sums.
        `models.LCLGP` also knows "auto".
    :param weight_sites: how many of the first weights have a site of their own, because their prior
        is not Gaussian (V30); for the form "weight". Their multipliers follow those of the
        observations, so that there are N + `weight_sites`.
    :param alpha: [N, L]; zeros if not given.
    :param lam: lambda [N, L], of any sign as long as V exists; zeros if not given. Where both are
        zero, q is the prior.
    :raises DataError: where an array has the wrong shape or entries that are not finite.
    :raises UnknownOptionError: for another form.

    Cost per latent: 2/3 N^3 and N^2 memory, or in the form "weight" N p^2 + p^3 / 3 and N p memory.
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
        """The form of the geometry, "function" or "weight"."""
        return self.geometry.form

    @property
    def X(self) -> tf.Tensor:
        """The inputs of the observations [N, D]."""
        return self.geometry.X

    @property
    def sizes(self) -> dict[str, int | str]:
        """N, the number of observations."""
        return {"N": self.num_data}

    @property
    def num_data(self) -> int:
        """The number of observations N."""
        return int(self.X.shape[0])

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """I + Lambda^1/2 K Lambda^1/2 of the positive lambda, or of the weights C = I + A^T Lambda
        A.
        """
        return self.geometry.matrices(self.geometry.prior(kernel), tf.convert_to_tensor(self.lam))

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> DualState:
        """(V8) or (V9); `rows` and `with_kl` change nothing here."""
        state = self.geometry.state_at(self.geometry.prior(kernel), self.alpha, self.lam)
        return self.geometry.for_predictions(state, kernel)

    def features(self, state: DualState, kernel: Kernel, X: tf.Tensor) -> Features:
        """(V25) at X [N*, D]; N^2 N* or p^2 N* per latent."""
        return self.geometry.features(state, kernel, X)

    def prior_kl(self, state: DualState) -> tf.Tensor:
        """KL[q(f) || p(f)] in nats, a scalar: (V10)."""
        quadratic = tf.reduce_sum(state.alpha * state.mean) + tf.reduce_sum(
            state.lam * state.variance
        )
        return 0.5 * (state.log_det - quadratic)  # (V10)
