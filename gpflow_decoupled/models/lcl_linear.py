"""Linear models for the Lagrangian."""

from __future__ import annotations

__all__ = ["LCLGLM", "LaplacePriorLCLGP"]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.config import default_float
from gpflow.kernels import Constant, Linear
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ..bases import DualBasis
from ..errors import DataError, check_option
from ..inducing.weights import weight_parts
from ..likelihoods import Laplace, LaplaceLoss
from ..likelihoods.prior_sites import LossWithPriors
from ..probability import tfp
from .checks import check_likelihood, check_shapes_of_data, check_values, infer_num_latent_gps
from .full_gp import LCLGP
from .linear_parts import (
    as_arrays,
    check_rows,
    check_variance,
    linear_mean,
    linear_prior,
    location_and_scale,
    normal_prior,
    scalar_prior,
)

# ---
# The Lagrangian's model with Laplace priors.


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


# ---


def LCLGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    num_latent_gps: int | None = None,
    form: str = "auto",
) -> LCLGP:
    """Return a Bayesian generalised linear model p(y | x^T w + b) as an `LCLGP`.

    The posterior is Gaussian under a Laplace prior too, whose `model.weight_prior.scale` is trained
    only after `gpflow.set_trainable`. Arguments and errors as `CVIGLM`. An evaluation costs N p^2 +
    p^3 / 3, with Laplace priors (N + p) p^2 + p^3 / 3, or 2/3 N^3.

    :param likelihood: one with a site loss, see `likelihoods.site_loss`.
    :param prior: also a `Laplace` or `Normal` of batch shape [] or [p], for each latent.
    :param form: Laplace priors need "weight".

    Example::

        model = LCLGLM(
            (X, Y), gpflow.likelihoods.Poisson(), prior=tfp.distributions.Laplace(0.0, 0.5)
        )
        LinearlyConstrainedLagrangian().run(model)
        mean, covariance = weights_posterior(model)
    """
    check_likelihood(likelihood)
    X, Y = as_arrays(data)
    if num_latent_gps is None and likelihood.latent_dim is None and Y.ndim == 2:
        num_latent_gps = Y.shape[1]
    latents = infer_num_latent_gps(Linear(), likelihood, num_latent_gps)
    check_shapes_of_data(X, Y, likelihood, latents, None)
    check_values(X, Y, likelihood)
    if not intercept:
        check_rows(X)
    variance = check_variance(intercept_variance) if intercept else None
    scalar = scalar_prior(prior, X.shape[1])
    if isinstance(scalar, tfp.distributions.Laplace):
        return _with_laplace_prior((X, Y), likelihood, scalar, variance, latents, form)
    if scalar is not None:
        prior = _as_normal(scalar, X.shape[1])
    mean, kernel = linear_prior(prior, X.shape[1])
    if variance is not None:
        kernel += Constant(variance)
    set_trainable(kernel, False)
    mean_function = linear_mean(mean, latents)
    return LCLGP(
        (X, Y), kernel, likelihood, mean_function=mean_function, num_latent_gps=latents, form=form
    )


def _with_laplace_prior(
    data: RegressionData,
    likelihood: Likelihood,
    prior: tfp.distributions.Laplace,
    intercept_variance: float | None,
    latents: int,
    form: str,
) -> LaplacePriorLCLGP:
    check_option("form", form, ("auto", "weight", "function"))
    if form == "function":
        raise DataError(
            'Laplace priors need form="weight", or "auto": each weight is one more site, and the'
            ' form "function" would need matrices with N + p rows, more than the p weights.'
        )
    columns = data[0].shape[1]
    location, scale = location_and_scale(prior)
    return LaplacePriorLCLGP(
        data,
        likelihood,
        np.broadcast_to(location, [columns]),
        np.broadcast_to(scale, [columns]) if scale.size > 1 else scale.reshape([]),
        intercept_variance=intercept_variance,
        num_latent_gps=latents,
    )


def _as_normal(
    prior: tfp.distributions.Distribution, columns: int
) -> tfp.distributions.MultivariateNormalDiag:
    if not isinstance(prior, tfp.distributions.Normal):
        raise DataError(
            f"prior is a {type(prior).__name__}; LCLGLM takes a Laplace, a Normal or a multivariate"
            " normal of tensorflow_probability.distributions. AffineIndependentGLM takes other"
            " scalar distributions too."
        )
    return normal_prior(prior, columns)
