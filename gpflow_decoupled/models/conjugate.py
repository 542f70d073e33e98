"""A full GP of Gaussian sites."""

from __future__ import annotations

__all__ = ["CVIGP"]

from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import SiteBasis, StateSpaceBasis
from .expectations import Moments, moments_of_sites
from .full_gp import FullGP


class CVIGP(FullGP):
    """Conjugate-computation VI for a full GP (Khan & Lin 2017): a `SiteBasis` on its data.

    `fit` trains everything; `optimizers.ConjugateComputation` the sites alone. `training_loss` is
    the negative bound at fixed sites; for Gaussian noise at the best sites, minus the log evidence.
    Cost: 4/3 N^3 per latent.

    :param data: X [N, D], Y [N, P].
    :param kernel: any GPflow kernel.
    :param likelihood: any GPflow likelihood.
    :param mean_function: m_0(x) [N, P], the centre of the sites; zero if not given.
    :param num_latent_gps: L; by default the likelihood's or the kernel's, else the columns of Y.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())
        result = ConjugateComputation().run(model)
        mean, variance = model.predict_y(Xnew)
    """

    route: ClassVar[str] = "sites"
    """The name of the route by which `fit` trains it."""

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        super().__init__(
            data, kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )
        self.basis = self._basis_at(self.data[0].numpy())

    def elbo(self) -> tf.Tensor:
        state = self.basis.factor(self.kernel)
        expected = self.expected_of_sites(state.mean, state.variance)
        return expected - self.basis.prior_kl(state)  # (C14)

    @property
    def sites(self) -> tuple[tf.Tensor, tf.Tensor]:
        """nu and tau [N, L] of the sites exp(nu f - tau f^2 / 2), f less the mean function."""
        return tf.convert_to_tensor(self.basis.nu), tf.convert_to_tensor(self.basis.tau)

    def assign_sites(self, nu: np.ndarray, tau: np.ndarray, mean: np.ndarray) -> None:
        """Make q(f) the prior times sites nu and tau [N, L].

        :param mean: [N, L] of that q at the data, less the mean function; not needed here.
        """
        self.basis.nu.assign(nu)
        self.basis.tau.assign(tau)

    @property
    def site_variables(self) -> tuple[tf.Variable, tf.Variable]:
        """The variables that `assign_sites` writes."""
        return self.basis.nu.unconstrained_variable, self.basis.tau.unconstrained_variable

    def expected_of_sites(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """The sum of the sites' expected log densities in nats, a scalar.

        :param mean: of f less the mean function [N, L].
        :param variance: of f [N, L].
        """
        return tf.reduce_sum(self.variational_expectations(mean, variance, self.data))

    def moments(self, data: RegressionData | None = None) -> Moments:
        return moments_of_sites(self) if data is None else super().moments(data)

    def elbo_of_sites(self) -> tf.Tensor:
        """The ELBO in nats, a scalar, from the log evidence of the sites."""
        state = self.basis.factor(self.kernel)
        expected = self.expected_of_sites(state.mean, state.variance)
        sites = state.nu * state.mean - 0.5 * state.tau * (tf.square(state.mean) + state.variance)
        return self.basis.log_partition(state) + expected - tf.reduce_sum(sites)  # (C15)

    def update(self, new_data: RegressionData) -> None:
        """Add observations, whose sites start at zero; old sites stay.

        New data are X [N*, D] and Y [N*, P]. Functions compiled before must be compiled again.
        """
        X, Y = self._checked(*self._as_arrays(new_data, self.float_type))
        L = self.num_latent_gps
        nu, tau = (
            np.concatenate([site.numpy(), np.zeros((len(X), L))])
            for site in (self.basis.nu, self.basis.tau)
        )
        X = np.concatenate([self.data[0].numpy(), X])
        Y = np.concatenate([self.data[1].numpy(), Y])
        self.basis = self._basis_at(X, nu=nu, tau=tau)
        self.data = self._as_tensors(X, Y)

    def _basis_at(self, X: np.ndarray, **sites: np.ndarray) -> SiteBasis | StateSpaceBasis:
        return SiteBasis(X, self.num_latent_gps, **sites)
