"""A full GP of multipliers."""

from __future__ import annotations

__all__ = ["LCLGP"]

from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood

from ..bases import DualBasis
from ..bases.dual.weight_space import count_weights
from ..errors import DataError, check_option
from ..inputs import known
from ..likelihoods import QuadratureLoss, SiteLoss, site_loss
from ..likelihoods.nodes import finer
from .expectations import Moments, Resolution, moments_of_sites
from .full_gp import FullGP


class LCLGP(FullGP):
    """A full GP for the linearly constrained Lagrangian (LCL) of Khan 2014: a `DualBasis`.

    q(f) is the best Gaussian, with 2 N parameters per latent. `training_loss` is the negative bound
    at fixed multipliers. A bound costs 2/3 N^3 per latent, or N p^2 + p^3 / 3. Other arguments as
    `CVIGP`.

    :param kernel: any GPflow kernel but linear coregionalisation.
    :param likelihood: one with a site loss, see `likelihoods.site_loss`: one latent per
        observation, or `CategoricalLogit` with one per class and Y [N, 1].
    :param form: "function" computes with K [N, N]; "weight" with the p weights of a linear kernel;
        "auto" with the smaller. Classes need "function".

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = LinearlyConstrainedLagrangian().run(model)
        mean, variance = model.predict_f(Xnew)
    """

    basis: DualBasis
    starts_at_prior = True

    route: ClassVar[str] = "multipliers"
    """The name of the route by which `fit` trains it."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        form: str = "function",
    ) -> None:
        if isinstance(kernel, LinearCoregionalization):
            raise DataError(
                "LinearCoregionalization mixes latents into outputs, and each site of this model"
                " depends on one latent alone; use a SeparateIndependent or SharedIndependent"
                " kernel, or CVIGP."
            )
        check_option("form", form, ("auto", "weight", "function"))
        super().__init__(
            data, kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        couples = self.observation_loss().couples
        if form == "auto":
            form = "function" if couples else _smaller_form(kernel, self.data[0])
        if couples and form == "weight":
            raise DataError(
                f"{type(likelihood).__name__} couples the latents of an observation, and"
                ' form="weight" computes each by itself: use form="function", or CVIGLM.'
            )
        self.basis = self._make_basis(form)
        self.site_loss()

    def observation_loss(self) -> SiteLoss:
        """Site losses f_n of the data [N, L]; each call reads the likelihood's Parameters."""
        return site_loss(self.likelihood, self.data[1])

    def moments(self, data: RegressionData | None = None) -> Moments:
        return moments_of_sites(self) if data is None else super().moments(data)

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        loss = site_loss(finer(self.likelihood, doublings), self._observations(data)[1])
        return -tf.reduce_sum(loss.value(moments.mean, tf.sqrt(moments.variance)), axis=1)

    @property
    def resolution(self) -> Resolution | None:
        by_nodes = isinstance(self.observation_loss(), QuadratureLoss)
        return super().resolution if by_nodes else None

    def site_loss(self) -> SiteLoss:
        """Losses of all sites: of data [N, L], and of non-Gaussian priors of weights."""
        return self.observation_loss()

    @property
    def sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """nu and tau [N, L] of the Gaussian sites of q: tau = lambda, nu = lambda u - alpha with
        u = -K alpha.
        """
        geometry, (alpha, lam) = self.basis.geometry, (self.basis.alpha, self.basis.lam)
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        return -lam * geometry.product(geometry.prior(self.kernel), alpha) - alpha, lam  # (V22)

    def assign_sites(self, nu: np.ndarray, tau: np.ndarray, mean: np.ndarray) -> None:
        """Make q(f) the prior times sites nu and tau [N, L].

        :param mean: u [N, L] of that q, less the mean function.
        """
        self.basis.alpha.assign(tau * mean - nu)  # (V22)
        self.basis.lam.assign(tau)

    @property
    def site_variables(self) -> tuple[tf.Variable, tf.Variable]:
        """The variables that `assign_sites` writes."""
        return self.basis.alpha.unconstrained_variable, self.basis.lam.unconstrained_variable

    def expected_of_sites(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """The sum of the sites' expected log densities in nats, a scalar.

        :param mean: of f less the mean function [N, L].
        :param variance: of f [N, L].
        """
        return -tf.reduce_sum(self.site_loss().value(self.prior_mean() + mean, tf.sqrt(variance)))

    def _make_basis(self, form: str) -> DualBasis:
        return DualBasis(np.asarray(known(self.data[0])), self.num_latent_gps, form)

    def prior_mean(self) -> tf.Tensor:
        """m_0 at the data [N, L]."""
        mean = self.mean_function(self.data[0])
        return tf.broadcast_to(
            tf.cast(mean, self.data[0].dtype), [self.basis.num_data, self.num_latent_gps]
        )

    def elbo(self) -> tf.Tensor:
        state = self.basis.factor(self.kernel)
        expected = self.expected_of_sites(state.mean, state.variance)
        return expected - self.basis.prior_kl(state)  # (V10), (V24)


def _smaller_form(kernel: Kernel, X: tf.Tensor) -> str:
    try:
        weights = count_weights(kernel, X)
    except NotImplementedError:  # no linear kernel
        return "function"
    return "weight" if weights <= X.shape[0] else "function"
