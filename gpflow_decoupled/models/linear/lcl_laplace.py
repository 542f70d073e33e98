"""The Lagrangian's model with Laplace priors."""

from __future__ import annotations

__all__ = ["LaplacePriorLCLGP"]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.kernels import Constant, Linear
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...bases import DualBasis
from ...inducing.weights import weight_parts
from ...likelihoods import Laplace, LaplaceLoss
from ...likelihoods.sites.prior_sites import LossWithPriors
from ..lcl import LCLGP
from ..linear_parts import linear_mean

_WIDTH = 10.0
"""tau / b: larger needs fewer outer iterations, and loses digits of the weights' multipliers."""


class LaplacePriorLCLGP(LCLGP):
    """A linear model p(y | x^T w + b) with Laplace priors of the weights, made by `LCLGLM`.

    The kernel has N(mu_d, (10 b_d)^2) and the site the quotient of the priors, with loss (V30). A
    bound costs (N + p) p^2 + p^3 / 3 per latent.

    :param data: X [N, p], Y [N, L].
    :param location: of the priors [p].
    :param scale: of the priors, above 0: [p], or [] if shared.
    :param intercept_variance: of the Gaussian prior of b; None for no intercept.
    """

    def __init__(
        self,
        data: RegressionData,
        likelihood: Likelihood,
        location: np.ndarray,
        scale: np.ndarray,
        *,
        intercept_variance: float | None,
        num_latent_gps: int,
    ) -> None:
        self.location = np.tile(np.asarray(location, default_float())[:, None], num_latent_gps)
        """mu [p, L]."""
        scale = np.asarray(scale, default_float())
        self.weight_prior = Laplace(scale[:, None] if scale.ndim else scale)
        set_trainable(self.weight_prior, False)
        tau = np.broadcast_to(_WIDTH * scale, [len(location)])
        kernel = Linear(variance=np.square(tau))
        if intercept_variance is not None:
            kernel += Constant(intercept_variance)
        set_trainable(kernel, False)
        mean_function = linear_mean(location, num_latent_gps)
        super().__init__(
            data,
            kernel,
            likelihood,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            form="weight",
        )

    def _make_basis(self, form: str) -> DualBasis:
        return DualBasis(
            self.data[0].numpy(), self.num_latent_gps, form, weight_sites=len(self.location)
        )

    def site_loss(self) -> LossWithPriors:
        """Losses of the observations, then of the weights minus the Gaussians': [N + p, L]."""
        priors = LaplaceLoss(self.weight_prior, self.location)
        return LossWithPriors(self.observation_loss(), priors, self._precision)

    def prior_mean(self) -> tf.Tensor:
        return tf.concat(
            [super().prior_mean(), tf.constant(self.location, self.data[0].dtype)], axis=0
        )

    def prior_kl(self) -> tf.Tensor:
        """KL[q(w, b) || p(w, b)] in nats, a scalar, with the Laplace priors."""
        state = self.basis.factor(self.kernel)
        count = self.basis.num_data
        of_weights = self.site_loss().value(
            self.prior_mean() + state.mean, tf.sqrt(state.variance)
        )[count:]
        return self.basis.prior_kl(state) + tf.reduce_sum(of_weights)  # (V30)

    def _precision(self) -> tf.Tensor:
        return 1.0 / tf.convert_to_tensor(weight_parts(self.kernel)[0].variance)
