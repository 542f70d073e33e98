"""Kernel, likelihood and mean function of a full GP by L-BFGS on the bound at its best sites."""

from __future__ import annotations

__all__ = ["SitesClimb", "has_best_sites"]

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import MultioutputKernel
from gpflow.likelihoods import MonteCarloLikelihood

from ...bases import SiteBasis
from ...bases.dual.function_space import FunctionSpace
from ...compilation import Compiled
from ...covariances.array_grams import array_gram
from ...covariances.latents import positive_gram
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import NumericalError
from ...lbfgs import CONVERGED
from ...models import CVIGP, LCLGP
from ...optimizers.best_sites import BestSites, best_sites
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.log_climb import climb_logarithms
from ...optimizers.log_coordinates import LogCoordinates
from ..keras import hyperparameters_of
from .stage import Budget, Report, Stage, StepOutput

_SETTLED, _WINDOW = 1e-6, 3
"""The climb ends if this number of iterations gained less than this many nats per row."""
_SITES, _LAST_SITES = 1e-8, 1e-11
"""Gain in nats per row below which the sites have converged, in the climb and after it. What is
left is smaller still, and the gradient by hyperparameters is in error by its root."""
_LEAST = 1e-20
"""Prior variance, relative to the largest, of a row where the kernel has none."""


def has_best_sites(model: object) -> bool:
    """True for a full GP of sites or multipliers whose expected log densities are not sampled."""
    if isinstance(model, LCLGP):
        return isinstance(model.basis.geometry, FunctionSpace)
    sampled = isinstance(getattr(model, "likelihood", None), MonteCarloLikelihood)
    return isinstance(model, CVIGP) and not sampled


class SitesClimb(Stage):
    """L-BFGS on max_q ELBO(q, theta), with the sites of the best q found at each theta.

    Each evaluation finds the sites, from the last ones: some 3 steps, 2/3 N^3 per latent each.
    Their optimum makes the gradient simple, 1/2 (alpha alpha^T - (K + W^-1)^-1) by K. One turn and
    one step.

    :param compile: False evaluates expectations and kernel eagerly.
    """

    def __init__(self, model: CVIGP | LCLGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        moved = {variable.ref() for variable in hyperparameters_of(model)}
        self.coordinates = LogCoordinates(
            p for p in model.trainable_parameters if p.unconstrained_variable.ref() in moved
        )
        single = not isinstance(model.kernel, MultioutputKernel) and self.coordinates.is_closed
        self.gram = array_gram(model.kernel, model.data[0].numpy()) if single else None
        own = {variable.ref() for variable in model.kernel.trainable_variables}
        priors = any(p.prior is not None for p in model.trainable_parameters)
        self.kernel_alone = self.gram is not None and moved <= own and not priors
        use: Callable[[Any], Any] = Compiled if compile else _eager
        self._expect, self._covary, self._back = map(use, (self._sums, self._prior, self._pulled))
        shape = (model.basis.num_data, model.num_latent_gps)
        self._start = np.zeros(shape), np.zeros(shape)

    @property
    def variables(self) -> list[tf.Variable]:
        """Hyperparameters and sites."""
        basis = self.model.basis
        own = (basis.nu, basis.tau) if isinstance(basis, SiteBasis) else (basis.alpha, basis.lam)
        return [*self.coordinates.variables, *(one.unconstrained_variable for one in own)]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Trace the expectations; no variable changes."""
        self._expected(self._start[0], np.ones_like(self._start[1]))

    def run(self, budget: Budget) -> Report:
        """Climb until evaluations, time or gains end; an interrupt keeps the best values.

        :raises NumericalError: if the bound is not finite at the start.
        """
        deadline = budget.clock.deadline(budget.until)
        reason, before = CONVERGED, tuple[float, ...]()
        if self._found(_SITES) is None:
            raise unusable_observation(self.model, None) or NumericalError(
                "The bound is not finite at the start: standardise X and Y, or start from a kernel"
                " with a smaller variance."
            )
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
                reason, before = climbed.reason, (climbed.start,)
        finally:
            self._write(self._found(_LAST_SITES))
        if reason == CONVERGED and time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        output = StepOutput.sound(self.model.elbo())
        return Report(output, reason, reason == CONVERGED, is_long=True, before=before)

    def _bound(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The bound at the best sites and the log prior density, in nats, and the gradient [n]."""
        self.coordinates.assign(x)
        found = self._found(_SITES)
        if found is None:
            return np.nan, np.zeros_like(x)
        of_K = np.stack([one.of_covariance() for one in found.latents])
        gradient, log_prior = np.zeros_like(x), 0.0
        if self.gram is not None:
            by_variable = {id(v): np.zeros(v.shape) for v in self.coordinates.variables}
            for parameter, part in self.gram(self._value)[1](np.sum(of_K, axis=0)):
                if (key := id(parameter.unconstrained_variable)) in by_variable:
                    by_variable[key] = by_variable[key] + part
            gradient += self.coordinates.gradient_by_values(x, list(by_variable.values()))
        if not self.kernel_alone:
            log_prior, rest = self._back(*map(self._tensor, (of_K, found.mean, found.variance)))
            gradient += self.coordinates.gradient(rest)
        return found.elbo + float(log_prior), gradient

    def _found(self, tolerance: float) -> BestSites | None:
        """The best sites at the present hyperparameters, from those found last."""
        rows = self.model.basis.num_data
        found = best_sites(self._K(), self._expected, self._start, tolerance * rows)
        self._start = self._start if found is None else (found.nu, found.tau)
        return found

    def _K(self) -> np.ndarray:
        """The prior covariance [G, N, N]."""
        if self.gram is None:
            return np.asarray(self._covary(), np.float64)
        K, _ = self.gram(self._value)
        diagonal = np.diag(K)
        K[np.diag_indices_from(K)] = np.maximum(diagonal, _LEAST * np.max(diagonal))
        return np.asarray(K, np.float64)[None]

    @staticmethod
    def _value(parameter: tf.Module) -> np.ndarray:
        return parameter.numpy()

    def _expected(
        self, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """sum_n E_n in nats and its derivatives [N, L], at moments [N, L]."""
        value, g, h = self._expect(self._tensor(mean), self._tensor(variance))
        return float(value), np.asarray(g, np.float64), np.asarray(h, np.float64)

    def _tensor(self, array: np.ndarray) -> tf.Tensor:
        return tf.constant(array, self.model.data[0].dtype)

    def _log_density(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """sum_n E_n [], as the bound of the model has it."""
        model = self.model
        if isinstance(model, LCLGP):
            return -tf.reduce_sum(model.site_loss().value(model.prior_mean() + mean, variance**0.5))
        return tf.reduce_sum(model.variational_expectations(mean, variance, model.data))

    def _sums(self, mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            value = self._log_density(mean, variance)
        return value, *tape.gradient(value, [mean, variance])

    def _prior(self) -> tf.Tensor:
        return positive_gram(self.model.kernel, self.model.basis.points)

    def _pulled(
        self, of_K: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The log prior density, and gradients of the variables; of K too where it is a graph."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.coordinates.variables)
            values = [self._log_density(mean, variance), self.model.log_prior_density()]
            log_prior = values[1]
            if self.gram is None:
                K = self._prior()
                of_K = of_K if K.shape[0] == of_K.shape[0] else tf.reduce_sum(of_K, 0, True)
                values.append(tf.reduce_sum(K * of_K))
            total = tf.add_n([tf.cast(value, mean.dtype) for value in values])
        gradients = tape.gradient(
            total,
            self.coordinates.variables,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return log_prior, gradients

    def _write(self, found: BestSites | None) -> None:
        """Give the sites to the model."""
        if found is None:
            return
        basis = self.model.basis
        if isinstance(basis, SiteBasis):
            basis.nu.assign(found.nu)
            basis.tau.assign(found.tau)
        else:
            basis.alpha.assign(-np.stack([one.alpha for one in found.latents], axis=1))
            basis.lam.assign(found.tau)


def _eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, uncompiled."""
    return function
