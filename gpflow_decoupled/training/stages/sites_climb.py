"""Full GPs by L-BFGS on the bound at the best sites."""

from __future__ import annotations

__all__ = ["SitesClimb", "has_best_sites"]

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import MonteCarloLikelihood

from ...bases.dual.function_space import FunctionSpace
from ...compilation import Compiled
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import NumericalError
from ...lbfgs import CONVERGED
from ...models import CVIGP, LCLGP
from ...optimizers.best_sites import BestSites, best_sites
from ...optimizers.log_climb import climb_logarithms
from ...optimizers.log_coordinates import LogCoordinates
from ..keras import hyperparameters_of
from .site_priors import PriorAt, prior_of_sites
from .stage import Budget, Report, Stage

_SETTLED, _WINDOW = 1e-6, 3
"""The climb ends if this number of iterations gained less than this many nats per row."""
_SITES, _LAST_SITES = 1e-7, 1e-11
"""Gain in nats per row below which the sites have converged, in the climb and after it. What is
left is smaller still, and the gradient by hyperparameters is in error by its root."""


def has_best_sites(model: object) -> bool:
    """True for a full GP of sites or multipliers whose expected log densities are not sampled."""
    if isinstance(model, LCLGP):
        return isinstance(model.basis.geometry, FunctionSpace)
    sampled = isinstance(getattr(model, "likelihood", None), MonteCarloLikelihood)
    return isinstance(model, CVIGP) and not sampled


class SitesClimb(Stage):
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
        self.prior = prior_of_sites(model, self.coordinates, compile)
        own = {variable.ref() for variable in model.kernel.trainable_variables}
        priors = any(p.prior is not None for p in model.trainable_parameters)
        self.kernel_alone = self.prior.is_closed and moved <= own and not priors
        use: Callable[[Any], Any] = Compiled if compile else _eager
        self._expect, self._back = map(use, (self._sums, self._pulled))
        shape = (model.basis.num_data, model.num_latent_gps)
        self._start, self._best = (np.zeros(shape), np.zeros(shape)), -np.inf

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.coordinates.variables, *self.model.site_variables]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        self._expected(self._start[0], np.ones_like(self._start[1]))

    def run(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        reason, before, rise = self.climb(budget)
        return Report.of_climb(self.model.elbo(), reason, deadline, before, rise)

    def climb(self, budget: Budget) -> tuple[str, tuple[float, ...], float]:
        """Why the climb ended, its first bound if there was a climb, and the rise at its end."""
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
                climbed = climb_logarithms(
                    self._bound,
                    self.coordinates,
                    self.model.basis.num_data,
                    evaluations=self.evaluations,
                    deadline=deadline,
                    show=budget.clock.show,
                    name="L-BFGS on the bound at the best sites",
                    tolerance=_SETTLED,
                    window=_WINDOW,
                    matrix="k(X, X)",
                    shift=budget.clock.shift,
                )
                reason, before, rise = climbed.reason, (climbed.start,), climbed.rise
        finally:
            # after an interrupt too: sites and hyperparameters must belong together
            self._write(self._found(self.prior.at(self.coordinates.pack()), _LAST_SITES))
        return reason, before, rise

    def _first(self) -> BestSites | None:
        """The better optimum of the sites, started from zeros and from the model's sites."""
        # a likelihood that is narrow by now may have no slope at the prior mean, where zeros are
        prior, found = self.prior.at(self.coordinates.pack()), list[BestSites | None]()
        found.append(self._found(prior, _SITES))
        nu, tau = (site.numpy().astype(np.float64) for site in self.model.sites)
        if np.any(nu):
            self._start = nu, tau
            found.append(self._found(prior, _SITES))
        sound = [one for one in found if one is not None]
        return max(sound, key=lambda one: one.elbo, default=None)

    def _bound(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.coordinates.assign(x)
        prior = self.prior.at(x)
        found = self._found(prior, _SITES)
        if found is None:
            return np.nan, np.zeros_like(x)
        gradient, log_prior = prior.gradient(found), 0.0
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
        return best_sites(prior.posterior, self._expected, self._start, tolerance * rows)

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


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
