"""Affine-independent models by gradient steps."""

from __future__ import annotations

__all__ = ["AffineAscent"]

import warnings
from collections.abc import Callable

import tensorflow as tf

from ...compilation import Compiled
from ...models import AffineIndependentGP
from ...optimizers import AffineIndependentAscent, AffineResult
from ..keras import KerasAscent, Optimizer
from .stage import Budget, Clock, Report, Stage, StepOutput, all_finite


class AffineAscent(Stage):
    """Gradient steps of everything but q; `refresh` finds q at the first step and periodically.

    :param compile: False runs the gradient steps eagerly; ascents are compiled.
    """

    # Between ascents, which cost many evaluations, q stays in whitened coordinates. If only q is
    # trainable, the only step is an ascent; else one follows the last step.

    def __init__(
        self, model: AffineIndependentGP, optimizer: Optimizer, compile: bool = True
    ) -> None:
        self.model, self.compile = model, compile
        of_q = {v.ref() for v in self._q}
        self.others = KerasAscent(
            optimizer, [v for v in model.trainable_variables if v.ref() not in of_q]
        )
        self._found: AffineResult | None = None
        self._climb = self._compiled()

    @property
    def _q(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [*basis.map.variables, *basis.b.variables, *basis.theta.variables]

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self._q, *self.others.variables]

    def refresh(self) -> bool:
        self._ascend(keep_better=not self.others.moved)
        return True

    def run(self, budget: Budget) -> Report:
        """Take one step; where nothing but q is trainable, report on the ascent."""
        if self.others.moved:
            self.others.set_rate(budget.sizes[0].learning_rate)
            return Report(StepOutput.sound(*self._climb()))
        result = self._found
        if result is None:
            raise RuntimeError("An AffineAscent is refreshed before its first run.")
        output = StepOutput.sound(tf.constant(result.elbo, budget.batch[0].dtype))
        return Report(output, result.reason, converged=result.converged)

    def closing(self, clock: Clock) -> Report | None:
        """Find q at the last hyperparameters, where any of them moved."""
        if not self.others.moved:
            return None
        result = self._ascend(keep_better=True)
        return Report(StepOutput.sound(tf.constant(result.elbo, self.model.data[0].dtype)))

    def _ascend(self, keep_better: bool) -> AffineResult:
        basis, integration = self.model.basis, self.model.integration
        base, theta = basis.base, basis.theta
        try:
            with warnings.catch_warnings():
                # the loop says so, once
                warnings.filterwarnings("ignore", "The bound of .* is not accurate")
                found = AffineIndependentAscent(keep_better=keep_better).run(self.model)
        except BaseException:  # the ascent tries a normal base, and may break off at it
            basis.base, basis.theta = base, theta
            raise
        if self.model.integration != integration:  # which is part of what was compiled
            self._climb = self._compiled()
        self._found = found
        return found

    def _compiled(self) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
        return Compiled(self._step) if self.compile else self._step

    def _step(self) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.others.moved)
            elbo = self.model.elbo()
            objective = elbo + self.model.log_prior_density()
        gradients = tape.gradient(objective, self.others.moved)
        self.others.ascend(gradients)
        return elbo, all_finite([elbo, *gradients])
