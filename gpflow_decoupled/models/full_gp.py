"""Full GPs that own their data."""

from __future__ import annotations

__all__ = ["CVIGP", "FullGP", "LCLGP", "StateSpaceGP"]

import abc
import copy
from typing import ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood
from gpflow.models import InternalDataTrainingLossMixin

from ..bases import Basis, DualBasis, SiteBasis, StateSpaceBasis
from ..bases.dual import count_weights
from ..covariances.latents import split_latents
from ..covariances.state_space import refuse_kernel, series_error_of
from ..errors import DataError, ModelError, check_option
from ..inputs import as_array, as_pair, as_values, float_type, known, of_known_rank
from ..interrupts import all_or_nothing, one_at_a_time
from ..likelihoods import QuadratureLoss, SiteLoss, site_loss
from ..likelihoods.facts import base_of, is_gaussian, name_of
from ..likelihoods.parameters import noise_variance_at
from ..likelihoods.registry import index_columns
from ..likelihoods.row_likelihood import finer
from ..user_warnings import warn_user
from .basis_gp import BasisPredictions
from .checks import (
    Moments,
    Resolution,
    as_observations,
    check_kernel,
    check_mean_function,
    check_new_sites,
    check_parts,
    check_reach,
    check_shapes_of_data,
    check_values,
    infer_num_latent_gps,
    moments_of_sites,
    refuse_gradient,
    refuse_replicas,
    refuse_variables,
    variational_expectations,
    warn_of_values,
)
from .evidence import Evidence, EvidenceSettings
from .neighbours.evidence import EvidenceOfOwnData, check_evidence, has_evidence, observed_parts


class FullGP(BasisPredictions, EvidenceOfOwnData, InternalDataTrainingLossMixin, abc.ABC):
    """A GP with a basis on all its data, which it owns; subclasses add `basis` and `elbo`.

    :param data: X [N, D], Y [N, P].
    :param kernel: any GPflow kernel.
    :param likelihood: any GPflow likelihood.
    :param mean_function: m_0(x) [N, P]; zero if not given.
    :param num_latent_gps: L; by default the likelihood's or the kernel's, else the columns of Y.

    Example::

        model: FullGP = CVIGP((X, Y), kernel, likelihood)
        mean, variance = model.predict_f(Xnew)
    """

    basis: Basis

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        refuse_replicas(type(self).__name__)
        check_parts(kernel, likelihood)
        refuse_variables(data, type(self))
        X, Y = self._as_arrays(data, float_type(kernel))
        if (
            num_latent_gps is None
            and likelihood.latent_dim is None
            and Y.ndim == 2
            and _plain(kernel)
        ):
            num_latent_gps = Y.shape[1] - index_columns(likelihood)
        latents = infer_num_latent_gps(kernel, likelihood, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, latents)
        X, Y = self._checked(X, Y)
        check_kernel(kernel, X.shape[1])
        warn_of_values(X, Y, likelihood)
        self.data = self._as_tensors(X, Y)
        check_mean_function(mean_function, X.shape[1], self._num_outputs)

    @abc.abstractmethod
    def elbo(self) -> tf.Tensor:
        """The evidence lower bound in nats, a scalar."""

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The bound: see `elbo`."""
        return self.elbo()

    @tf.autograph.experimental.do_not_convert
    def training_loss(self) -> tf.Tensor:
        """Minus the bound and the log prior of the hyperparameters, at fixed q, a scalar.

        :raises ModelError: in its gradient, while the q of a `CVIGP` or `LCLGP` is the prior: the
            minimum would be a kernel that has seen no data.
        """
        loss, basis = super().training_loss(), self.basis
        names = next((names for kind, names in _SITES.items() if isinstance(basis, kind)), ())
        if not names:
            return loss
        run = "LinearlyConstrainedLagrangian().run(model)"
        run = run if "alpha" in names else "ConjugateComputation().run(model)"
        return refuse_gradient(self, loss, lambda: [getattr(basis, name) for name in names], run)

    def variational_expectations(
        self, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
    ) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats; latent moments [N, L] without mean function."""
        return variational_expectations(self, mean, variance, data)

    @property
    def num_dims(self) -> int:
        return int(self.data[0].shape[1])

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Held-out X [N, D] and Y [N, P] as tensors, checked as the model's data."""
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        X, Y = of_known_rank(X, self.num_dims), of_known_rank(Y)
        return self._as_tensors(*self._checked(X, Y))

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        return self.as_tensors(data)

    @property
    def _num_outputs(self) -> int:
        return (
            int(self.kernel.W.shape[0])
            if isinstance(self.kernel, LinearCoregionalization)
            else self.num_latent_gps
        )

    def _as_arrays(self, data: RegressionData, dtype: tf.DType) -> list[np.ndarray]:
        return [as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY")]

    def _checked(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dims = int(self.data[0].shape[1]) if hasattr(self, "data") else None
        check_shapes_of_data(X, Y, self.likelihood, self._num_outputs, dims, self.float_type)
        check_values(X, Y, self.likelihood, self.kernel, self.mean_function)
        return X, Y

    def _as_tensors(self, X: np.ndarray, Y: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        X = tf.convert_to_tensor(X)
        return X, as_observations(Y, self.likelihood, X.dtype)


_SITES: dict[type, tuple[str, ...]] = {
    SiteBasis: ("nu", "tau"),
    StateSpaceBasis: ("nu", "tau"),
    DualBasis: ("alpha", "lam"),
}
"""Parameters that are zero while q is the prior."""


def _plain(kernel: Kernel) -> bool:
    return not hasattr(kernel, "latent_kernels")


# ---
# A full GP of Gaussian sites.


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
        mixed = isinstance(self.kernel, LinearCoregionalization)
        return is_gaussian(base_of(self.likelihood)) and not mixed

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


# ---
# A full GP of multipliers.


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
                f"{name_of(likelihood)} couples the latents of an observation, and"
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


# ---
# A full GP on one input, by Kalman filter and smoother.


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
