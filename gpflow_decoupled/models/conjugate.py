"""A full GP of Gaussian sites."""

from __future__ import annotations

__all__ = ["CVIGP"]

import copy
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Gaussian, Likelihood

from ..bases import SiteBasis, StateSpaceBasis
from ..bases.parts.atomic import all_or_nothing, one_at_a_time
from ..inputs import known
from ..likelihoods import RowLikelihood
from .checks import check_new_sites, check_reach
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
        self.basis = self._basis_at(np.asarray(known(self.data[0])))

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

    @one_at_a_time
    def update(self, new_data: RegressionData) -> None:
        """Add observations X [N*, D] and Y [N*, P].

        For Gaussian noise q becomes the exact posterior at the present Parameters. For others the
        new sites start at zero, and `fit` or `optimizers.ConjugateComputation` moves them.

        Functions compiled before must be compiled again.
        """
        X, Y = self._checked(*self._as_arrays(new_data, self.float_type))
        check_reach(self.kernel, X, self.data[0])
        N, zeros = len(self.data[0]), np.zeros((len(X), self.num_latent_gps))
        sites = [np.concatenate([site.numpy(), zeros]) for site in self.sites]
        joined = [np.concatenate([old.numpy(), new]) for old, new in zip(self.data, (X, Y))]
        # a copy, which nobody sees and which tracks nothing, so that the model changes in one step
        twin = copy.copy(self)
        twin.__dict__.update(data=self._as_tensors(*joined))
        if self._is_of_gaussian_noise:
            sites = twin._sites_of_gaussian_noise()
            check_new_sites(Y, *(site[N:] for site in sites))
        basis = self._basis_at(joined[0], nu=sites[0], tau=sites[1])
        with all_or_nothing([], [self]):
            self.basis, self.data = basis, twin.data

    @property
    def _is_of_gaussian_noise(self) -> bool:
        likelihood = self.likelihood
        base = likelihood.likelihood if isinstance(likelihood, RowLikelihood) else likelihood
        mixed = isinstance(self.kernel, LinearCoregionalization)
        return isinstance(base, Gaussian) and not mixed

    def _sites_of_gaussian_noise(self) -> list[np.ndarray]:
        """The sites nu, tau [N, L] that are the likelihood's factors."""
        # E is linear in mean squared and variance, so that a step from anywhere finds them
        L, X = self.num_latent_gps, self.data[0]
        mean, variance = tf.zeros([len(X), L], X.dtype), tf.ones([len(X), L], X.dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            expected = self.expected_of_sites(mean, variance)
        g, h = tape.gradient(expected, [mean, variance])
        return [g.numpy(), -2.0 * h.numpy()]  # (C13)

    def _basis_at(self, X: np.ndarray, **sites: np.ndarray) -> SiteBasis | StateSpaceBasis:
        return SiteBasis(X, self.num_latent_gps, **sites)
