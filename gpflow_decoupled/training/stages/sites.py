"""Exact GPs by L-BFGS on the log evidence."""

from __future__ import annotations

__all__ = ["EvidenceClimb", "SitesClimb", "has_best_sites", "has_evidence"]

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization, MultioutputKernel

from ...bases.dual import FunctionSpace
from ...compilation import Compiled
from ...covariances.latents import positive_gram
from ...covariances.stationary import array_gram
from ...diagnostics.failure import unusable_observation
from ...errors import NumericalError
from ...lbfgs import CONVERGED, LBFGSRun, Objective
from ...likelihoods.facts import draws_expectations, is_gaussian
from ...likelihoods.parameters import noise_variance_at
from ...linalg.cholesky import unsound
from ...models import CVIGP, LCLGP, StateSpaceGP
from ...models.neighbours.evidence import log_evidence_of
from ...optimizers.array_evidence import array_evidence
from ...optimizers.best_sites import BestSites, Posterior, SiteMoments, best_sites, dense_posterior
from ...optimizers.log_climb import (
    FAR,
    LogCoordinates,
    LogObjective,
    climb_logarithms,
    coordinates_of,
)
from ..keras import hyperparameters_of
from .stage import Budget, Climb, Report

# ---
# The prior of a full GP's sites: matrix or chain.


_LEAST = 1e-20
"""Prior variance, relative to the largest, of a row where the kernel has none."""


PriorAt: TypeAlias = "tuple[Posterior, Callable[[BestSites], np.ndarray]]"
"""The posterior of sites under the prior at one vector of hyperparameters, and the gradient [n] of
the bound by the kernel at fixed moments; zeros where a prior's `term` has it."""


class _DensePrior:
    """K [G, N, N], by arrays for usual kernels: half the seconds of a climb. The gradient is
    1/2 (alpha alpha^T - (K + W^-1)^-1) by K.
    """

    def __init__(
        self, model: CVIGP | LCLGP, coordinates: LogCoordinates, use: Callable[[Any], Any]
    ) -> None:
        self.model, self.coordinates = model, coordinates
        single = not isinstance(model.kernel, MultioutputKernel) and coordinates.is_closed
        self.gram = array_gram(model.kernel, model.data[0].numpy()) if single else None
        self.is_closed = self.gram is not None
        self.values_at = coordinates.reader(model.kernel.parameters if single else ())
        self._covary = use(self._prior)

    def at(self, x: np.ndarray) -> PriorAt:
        """By LAPACK; 2/3 N^3 per latent and call of the posterior."""
        if self.gram is None:
            K = np.asarray(self._covary(), np.float64)
            return dense_posterior(K), lambda _: np.zeros_like(x)
        K, back = self.gram(self.values_at(x))
        diagonal = np.diag(K)
        K[np.diag_indices_from(K)] = np.maximum(diagonal, _LEAST * np.max(diagonal))

        def gradient(found: BestSites) -> np.ndarray:
            (of_K,) = self.weights(found)
            return self.coordinates.gradient_by_parameters(x, back(np.sum(of_K, axis=0)))

        return dense_posterior(np.asarray(K, np.float64)[None]), gradient

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """The gradient by K [L, N, N]."""
        assert found.at.latents is not None
        return (np.stack([one.of_covariance() for one in found.at.latents]),)

    def term(self, of_K: tf.Tensor) -> tf.Tensor:
        """The sum of K times its gradient."""
        K = self._prior()
        of_K = of_K if K.shape[0] == of_K.shape[0] else tf.reduce_sum(of_K, 0, True)
        return tf.reduce_sum(K * of_K)

    def _prior(self) -> tf.Tensor:
        return positive_gram(self.model.kernel, self.model.basis.points)


class _ChainPrior:
    """The chain of a `StateSpaceGP`: filter and smoother in place of factorisations.

    At fixed sites log Z has the gradient of the bound, since the sites are the best.
    """

    is_closed = False

    def __init__(self, model: StateSpaceGP, use: Callable[[Any], Any]) -> None:
        self.model = model
        self._chain, self._moments = use(self._prior), use(self._at)

    def at(self, x: np.ndarray) -> PriorAt:
        """By filter and smoother; 6 N L d^3 a call of the posterior. Its gradient is in `term`."""
        prior = self._chain()

        def posterior(nu: np.ndarray, tau: np.ndarray) -> SiteMoments | None:
            sites = (tf.constant(part, prior.dtype) for part in (nu, tau))
            mean, variance, divergence, ok = self._moments(prior, *sites)
            if not ok or np.any(variance.numpy() <= 0.0):
                return None
            u, v = (np.asarray(part, np.float64) for part in (mean, variance))
            return SiteMoments(u, v, float(divergence))

        return posterior, lambda _: np.zeros_like(x)

    def weights(self, found: BestSites) -> tuple[np.ndarray, ...]:
        """The sites."""
        return found.nu, found.tau

    def term(self, nu: tf.Tensor, tau: tf.Tensor) -> tf.Tensor:
        """log Z of the sites."""
        basis = self.model.basis
        return basis.log_partition(basis.state_at(self._prior(), nu, tau))

    def _prior(self) -> Any:
        return self.model.basis.prior(self.model.kernel)

    def _at(self, prior: Any, nu: tf.Tensor, tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
        basis = self.model.basis
        state = basis.state_at(prior, nu, tau)
        return state.mean, state.variance, basis.prior_kl(state), state.ok


# ---
# Full GPs by L-BFGS on the bound at the best sites.


_SETTLED, _WINDOW = 1e-6, 3
"""The climb ends if this number of iterations gained less than this many nats per row."""
_SITES, _LAST_SITES = 1e-7, 1e-11
"""Gain in nats per row below which the sites have converged, in the climb and after it. What is
left is smaller still, and the gradient by hyperparameters is in error by its root."""


def has_best_sites(model: object) -> bool:
    """True for a full GP of sites or multipliers whose expected log densities are not sampled."""
    if isinstance(model, LCLGP):
        return isinstance(model.basis.geometry, FunctionSpace)
    sampled = draws_expectations(getattr(model, "likelihood", None))
    return isinstance(model, CVIGP) and not sampled


class _HyperparameterClimb(Climb):
    model: CVIGP | LCLGP
    coordinates: LogCoordinates
    evaluations: int

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.coordinates.variables, *self.model.site_variables]

    def _climbed(
        self, objective: Objective, budget: Budget, deadline: float, **more: Any
    ) -> LBFGSRun:
        return climb_logarithms(
            objective,
            self.coordinates,
            self.model.basis.num_data,
            evaluations=self.evaluations,
            deadline=deadline,
            show=budget.clock.show,
            tolerance=_SETTLED,
            window=_WINDOW,
            shift=budget.clock.shift,
            **more,
        )


class SitesClimb(_HyperparameterClimb):
    """L-BFGS on max_q ELBO(q, theta), with the sites of the best q found at each theta.

    Each evaluation finds the sites, from the last ones, in some 3 steps of 2/3 N^3 per latent, or
    of two loops for a `StateSpaceGP`. One turn and one step.
    """

    def __init__(self, model: CVIGP | LCLGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        moved = {variable.ref() for variable in hyperparameters_of(model)}
        self.coordinates = LogCoordinates(
            p for p in model.trainable_parameters if p.unconstrained_variable.ref() in moved
        )
        use: Callable[[Any], Any] = Compiled if compile else lambda function: function
        self.prior = (
            _ChainPrior(model, use)
            if isinstance(model, StateSpaceGP)
            else _DensePrior(model, self.coordinates, use)
        )
        own = {variable.ref() for variable in model.kernel.trainable_variables}
        priors = any(p.prior is not None for p in model.trainable_parameters)
        self.kernel_alone = self.prior.is_closed and moved <= own and not priors
        self._expect, self._back = map(use, (self._sums, self._pulled))
        self._start, self._best = self._zeros, -np.inf

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        self._expected(self._start[0], np.ones_like(self._start[1]))

    def climb(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        reason, before, rise = CONVERGED, tuple[float, ...](), 0.0
        first = self._first()
        if first is None:
            raise unusable_observation(self.model, None) or NumericalError(
                "The bound is not finite at the start: standardise X and Y, or start from a kernel"
                " with a smaller variance."
            )
        self._start = first.nu, first.tau
        try:
            if self.coordinates.variables:
                name, matrix = "L-BFGS on the bound at the best sites", "k(X, X)"
                climbed = self._climbed(self._bound, budget, deadline, name=name, matrix=matrix)
                reason, before, rise = climbed.reason, (climbed.start,), climbed.rise
        finally:
            # after an interrupt too: sites and hyperparameters must belong together
            self._write(self._found(self.prior.at(self.coordinates.pack()), _LAST_SITES))
        return Report.of_climb(self.model.elbo(), reason, deadline, before, rise)

    def _first(self) -> BestSites | None:
        """The better optimum of the sites, started from zeros and from the model's sites."""
        # a likelihood that is narrow by now may have no slope at the prior mean, where zeros are
        prior, found = self.prior.at(self.coordinates.pack()), list[BestSites | None]()
        self._start, self._best = self._zeros, -np.inf
        found.append(self._found(prior, _SITES))
        nu, tau = (site.numpy().astype(np.float64) for site in self.model.sites)
        if np.any(nu):
            self._start = nu, tau
            found.append(self._found(prior, _SITES))
        sound = [one for one in found if one is not None]
        return max(sound, key=lambda one: one.elbo, default=None)

    @property
    def _zeros(self) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.model.basis.num_data, self.model.num_latent_gps)
        return np.zeros(shape), np.zeros(shape)

    def _bound(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.coordinates.assign(x)
        prior = self.prior.at(x)
        found = self._found(prior, _SITES)
        if found is None:
            return np.nan, np.zeros_like(x)
        gradient, log_prior = prior[1](found), 0.0
        if not self.kernel_alone:
            weights = tuple(map(self._tensor, self.prior.weights(found)))
            moments = map(self._tensor, (found.at.mean, found.at.variance))
            log_prior, rest = self._back(weights, *moments)
            gradient += self.coordinates.gradient(rest)
        value = found.elbo + float(log_prior)
        if value > self._best:
            # sites of a trial that a line search refuses may be far off, and lead to no better ones
            self._best, self._start = value, (found.nu, found.tau)
        return value, gradient

    def _found(self, prior: PriorAt, tolerance: float) -> BestSites | None:
        rows = self.model.basis.num_data
        return best_sites(prior[0], self._expected, self._start, tolerance * rows)

    def _expected(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        value, g, h = self._expect(self._tensor(mean), self._tensor(variance))
        return float(value), np.asarray(g, np.float64), np.asarray(h, np.float64)

    def _tensor(self, array: np.ndarray) -> tf.Tensor:
        return tf.constant(array, self.model.data[0].dtype)

    def _sums(self, mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            value = self.model.expected_of_sites(mean, variance)
        return value, *tape.gradient(value, [mean, variance])

    def _pulled(
        self, weights: tuple[tf.Tensor, ...], mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.coordinates.variables)
            values = [self.model.expected_of_sites(mean, variance), self.model.log_prior_density()]
            log_prior = values[1]
            if not self.prior.is_closed:
                values.append(self.prior.term(*weights))
            total = tf.add_n([tf.cast(value, mean.dtype) for value in values])
        gradients = tape.gradient(
            total,
            self.coordinates.variables,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return log_prior, gradients

    def _write(self, found: BestSites | None) -> None:
        if found is not None:
            self.model.assign_sites(found.nu, found.tau, found.at.mean)


# ---


def has_evidence(model: object) -> bool:
    """True for a full GP whose best sites are known in closed form: Gaussian noise, f not mixed."""
    mixed = isinstance(getattr(model, "kernel", None), LinearCoregionalization)
    return isinstance(model, CVIGP) and is_gaussian(model.likelihood) and not mixed


class EvidenceClimb(_HyperparameterClimb):
    """L-BFGS on log N(y; m, K + s^2 I), and the sites of the exact posterior.

    One turn and one step. An evaluation costs N^3 per latent, of a `StateSpaceGP` two loops over
    the rows. Usual kernels and means are evaluated as arrays, others as a graph. Noise may be a
    function of the inputs.
    """

    def __init__(self, model: CVIGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        self.coordinates = coordinates_of(model, hyperparameters_of(model))
        chain = isinstance(model, StateSpaceGP)
        self.on_arrays = None if chain else array_evidence(model, self.coordinates)
        self.in_graph: LogObjective | None = None
        if self.on_arrays is None:
            density = model.log_evidence if chain else log_evidence_of(model, model.data)
            moved = self.coordinates.variables
            self.in_graph = LogObjective.of_model(model, moved, density, compile)

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self.in_graph is not None and self.coordinates.variables:
            list(self.in_graph.terms())

    def climb(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        reason, before, bound, rise = CONVERGED, tuple[float, ...](), None, 0.0
        try:
            objective = self.on_arrays or self.in_graph
            if objective is not None and self.coordinates.variables:
                arrays = self.on_arrays
                found = self._climbed(
                    objective,
                    budget,
                    deadline,
                    name="L-BFGS on the evidence",
                    rise=np.inf if arrays is None else arrays.rise(),
                    fall=FAR if arrays is None else arrays.fall,
                    matrix="k(X, X) + noise",
                )
                reason, before, rise = found.reason, (found.start,), found.rise
                # without priors, the evidence is the bound at the sites that follow
                bound = None if self.on_arrays is None else found.value
        except NumericalError as error:
            if (cause := unsound(self.model.basis.matrices(self.model.kernel))) is not None:
                raise cause from error
            raise
        finally:
            self._set_sites()
        bound = self.model.elbo() if bound is None else bound
        return Report.of_climb(bound, reason, deadline, before, rise)

    def _set_sites(self) -> None:
        X, Y = self.model.data
        residual = Y - self.model.mean_function(X)
        noise = tf.zeros_like(residual) + noise_variance_at(self.model.likelihood, X)
        self.model.basis.nu.assign(residual / noise)
        self.model.basis.tau.assign(1.0 / noise)
