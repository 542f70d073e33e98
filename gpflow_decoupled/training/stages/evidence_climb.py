"""Kernel, noise and mean function of an exact GP by L-BFGS on the log evidence."""

from __future__ import annotations

__all__ = ["EvidenceClimb", "has_evidence"]

import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian

from ...compilation import Compiled
from ...errors import NumericalError
from ...lbfgs import CONVERGED
from ...likelihoods.parameters import noise_variance_at
from ...linalg.cholesky import unsound
from ...linalg.normal_density import normal_density
from ...models import CVIGP
from ...optimizers.array_evidence import array_evidence
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.log_climb import climb_logarithms
from ...optimizers.log_coordinates import LogCoordinates
from ..keras import hyperparameters_of
from .stage import Budget, Report, Stage, StepOutput

Moments: TypeAlias = Callable[[], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
Back: TypeAlias = Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]]

_SETTLED, _WINDOW = 1e-6, 3
"""The climb ends if this number of iterations gained less than this many nats per row."""


def has_evidence(model: object) -> bool:
    """True for a full GP whose best sites are known in closed form: Gaussian noise, f not mixed."""
    mixed = isinstance(getattr(model, "kernel", None), LinearCoregionalization)
    return isinstance(model, CVIGP) and type(model.likelihood) is Gaussian and not mixed


class EvidenceClimb(Stage):
    """L-BFGS on log N(y; m, K + s^2 I), and the sites of the exact posterior.

    One turn and one step, however many evaluations it takes. Each costs N^3 per latent, for a
    factorisation and an inverse. Usual kernels and means are evaluated as arrays, others as a
    graph. Noise may be a function of the inputs.

    :param compile: False evaluates kernel and mean function eagerly.
    """

    def __init__(self, model: CVIGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        moved = {variable.ref() for variable in hyperparameters_of(model)}
        self.coordinates = LogCoordinates(
            p for p in model.trainable_parameters if p.unconstrained_variable.ref() in moved
        )
        self.on_arrays = array_evidence(model, self.coordinates)
        compile = compile and self.on_arrays is None
        self._moments: Moments = (
            Compiled(self._prior, input_signature=()) if compile else self._prior
        )
        self._back: Back = Compiled(self._pulled_back) if compile else self._pulled_back

    @property
    def variables(self) -> list[tf.Variable]:
        """Hyperparameters and sites."""
        sites = self.model.basis.nu, self.model.basis.tau
        return [*self.coordinates.variables, *(site.unconstrained_variable for site in sites)]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Trace the covariance; no variable changes."""
        if isinstance(self._moments, Compiled):
            self._moments.bind()

    def run(self, budget: Budget) -> Report:
        """Climb until evaluations, time or gains end; an interrupt keeps the best values.

        :raises NumericalError: if the evidence is not finite at the start.
        """
        deadline = budget.clock.deadline(budget.until)
        reason = CONVERGED
        before: tuple[float, ...] = ()
        bound: float | None = None
        try:
            if self.coordinates.variables:
                found = climb_logarithms(
                    self.on_arrays or self._evidence,
                    self.coordinates,
                    self.model.basis.num_data,
                    evaluations=self.evaluations,
                    deadline=deadline,
                    show=budget.clock.show,
                    name="L-BFGS on the evidence",
                    tolerance=_SETTLED,
                    window=_WINDOW,
                    matrix="k(X, X) + noise",
                    shift=budget.clock.shift,
                )
                reason, before = found.reason, (found.start,)
                # without priors, the evidence is the bound at the sites that follow
                bound = None if self.on_arrays is None else found.value
        except NumericalError as error:
            if (cause := unsound(self.model.basis.matrices(self.model.kernel))) is not None:
                raise cause from error
            raise
        finally:
            self._set_sites()
        if reason == CONVERGED and time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        output = StepOutput.sound(self.model.elbo() if bound is None else bound)
        return Report(output, reason, reason == CONVERGED, is_long=True, before=before)

    def _evidence(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Log evidence and log prior density of the Parameters in nats, and their gradient [n]."""
        self.coordinates.assign(x)
        covariance, residual, log_prior = (part.numpy() for part in self._moments())
        found = [normal_density(K, r) for K, r in zip(covariance, residual)]
        upstream = [
            tf.constant(np.stack(parts), covariance.dtype)
            for parts in zip(*((one.of_covariance, one.of_vector) for one in found))
        ]
        gradients = self._back(*upstream)
        value = sum(one.value for one in found) + float(log_prior)
        return value, self.coordinates.gradient(gradients)

    def _noise(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The noise variance and y - m at the rows, [N, L] each."""
        X, Y = self.model.data
        residual = Y - self.model.mean_function(X)
        return tf.zeros_like(residual) + noise_variance_at(self.model.likelihood, X), residual

    def _set_sites(self) -> None:
        """Set the sites to p(y | f), as a function of f less its prior mean."""
        noise, residual = self._noise()
        self.model.basis.nu.assign(residual / noise)
        self.model.basis.tau.assign(1.0 / noise)

    def _prior(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """K + S [L, N, N] of the observations, y - m [L, N], and the log prior density []."""
        noise, residual = self._noise()
        K = self.model.basis.prior(self.model.kernel)  # [G, N, N]
        log_prior = tf.cast(self.model.log_prior_density(), K.dtype)
        return K + tf.linalg.diag(tf.transpose(noise)), tf.transpose(residual), log_prior

    def _pulled_back(self, of_covariance: tf.Tensor, of_residual: tf.Tensor) -> list[tf.Tensor]:
        """Gradients of the variables, from those of K + S [L, N, N] and y - m [L, N]."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.coordinates.variables)
            covariance, residual, log_prior = self._prior()
        return tape.gradient(
            [covariance, residual, log_prior],
            self.coordinates.variables,
            output_gradients=[of_covariance, of_residual, tf.ones_like(log_prior)],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
