"""Kernel, noise and mean function of an exact GP by L-BFGS on the log evidence."""

from __future__ import annotations

__all__ = ["EvidenceClimb", "has_evidence"]

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian
from gpflow.optimizers import Scipy

from ...compilation import Compiled
from ...errors import NumericalError
from ...lbfgs import CONVERGED, LBFGSRun, lbfgs_ascent, settled
from ...likelihoods.parameters import noise_variance_at
from ...linalg.cholesky import cholesky, unsound
from ...linalg.triangular import solve
from ...models import CVIGP
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ..keras import hyperparameters_of
from .stage import Budget, Report, Stage, StepOutput

_SETTLED, _WINDOW = 1e-7, 10
"""The climb ends if this number of iterations gained less than this many nats per observation."""


def has_evidence(model: object) -> bool:
    """True for a full GP whose best sites are known in closed form: Gaussian noise, f not mixed."""
    mixed = isinstance(getattr(model, "kernel", None), LinearCoregionalization)
    return isinstance(model, CVIGP) and type(model.likelihood) is Gaussian and not mixed


class EvidenceClimb(Stage):
    """L-BFGS on log N(y; m, K + s^2 I), and the sites of the exact posterior.

    One turn and one step, however many evaluations it takes. Each costs a factorisation and its
    gradient, some 4/3 N^3 per latent. Noise may be a function of the inputs.

    :param compile: False evaluates the evidence eagerly.
    """

    def __init__(self, model: CVIGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        self.moved: Sequence[tf.Variable] = hyperparameters_of(model)
        self.gradients: Callable[[], tuple[tf.Tensor, list[tf.Tensor]]] = self._gradients
        if compile:
            self.gradients = Compiled(self._gradients, input_signature=())

    @property
    def variables(self) -> list[tf.Variable]:
        """Hyperparameters and sites."""
        sites = self.model.basis.nu, self.model.basis.tau
        return [*self.moved, *(site.unconstrained_variable for site in sites)]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Trace the evidence and its gradient; no variable changes."""
        if isinstance(self.gradients, Compiled):
            self.gradients.bind()

    def run(self, budget: Budget) -> Report:
        """Climb until evaluations, time or gains end; an interrupt keeps the best values.

        :raises NumericalError: if the evidence is not finite at the start.
        """
        deadline = budget.clock.deadline(budget.until)
        reason = CONVERGED
        before: tuple[float, ...] = ()
        try:
            if self.moved:
                found = self._climbed(deadline, budget.clock.show)
                reason, before = found.reason, (found.start,)
        except NumericalError as error:
            if (cause := unsound(self.model.basis.matrices(self.model.kernel))) is not None:
                raise cause from error
            raise
        finally:
            self._set_sites()
        if reason == CONVERGED and time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        output = StepOutput.sound(self.model.elbo())
        return Report(output, reason, reason == CONVERGED, is_long=True, before=before)

    def _climbed(self, deadline: float, show: Callable[[str], object]) -> LBFGSRun:
        """Move the hyperparameters to the best that L-BFGS finds."""
        rule, moved, lines = settled(_SETTLED * self.model.basis.num_data, _WINDOW), self.moved, []

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            Scipy.assign_tensors(moved, Scipy.unpack_tensors(moved, x))
            value, gradients = self.gradients()
            return float(value), Scipy.pack_tensors(gradients).numpy()

        def record(value: float, evaluations: int) -> None:
            lines.append(evaluations)
            show(f"L-BFGS on the evidence, {sum(lines)} evaluations, {value:.6g} nats")

        run = lbfgs_ascent(
            objective,
            Scipy.pack_tensors(moved).numpy(),
            lambda values: rule(values) or time.perf_counter() >= deadline,
            self.evaluations,
            record=record,
            keep=True,
            advice="standardise X and Y, or start from a larger noise variance.",
        )
        Scipy.assign_tensors(moved, Scipy.unpack_tensors(moved, run.x))
        return run

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

    def _gradients(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The log evidence and log prior in nats, a scalar, and their gradients."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.moved)
            value = self._evidence() + self.model.log_prior_density()
        none = tf.UnconnectedGradients.ZERO
        return value, tape.gradient(value, self.moved, unconnected_gradients=none)

    def _evidence(self) -> tf.Tensor:
        """log N(y; m, K + S) in nats, a scalar; NaN, from which L-BFGS turns back, if it fails."""
        noise, residual = self._noise()
        K = self.model.basis.prior(self.model.kernel)  # [G, N, N]
        chol, ok = cholesky(K + tf.linalg.diag(tf.transpose(noise)))  # [L, N, N]
        half = solve(chol, tf.transpose(residual)[:, :, None])
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        size = tf.cast(tf.size(residual), K.dtype) * np.log(2.0 * np.pi)
        value = -0.5 * (tf.reduce_sum(tf.square(half)) + log_det + size)
        return tf.where(ok, value, tf.constant(np.nan, K.dtype))
