"""Affine-independent models: q by `AffineIndependentAscent`, then steps of an optimizer on the rest
at that q, in turns.

Between two ascents q is held in whitened coordinates: A, b and the shapes of its base stay, and the
bound is raised over kernel, likelihood, mean function and inducing points. An ascent costs many
evaluations of the bound, a step one.
"""

from __future__ import annotations

__all__ = ["AffineIndependentRoute", "AscentStep"]

import warnings
from collections.abc import Callable

import tensorflow as tf

from ...compilation import Compiled
from ...errors import DataError
from ...models import AffineIndependentGP
from ...optimizers import AffineIndependentAscent, AffineResult
from ..batches import ArrayBatches
from ..steps import Step, StepOutput, StepSizes, all_finite
from .keras import KerasAscent, Optimizer
from .route import EVERY_ROUTE, OF_OPTIMIZER, OWN_DATA, Choices, Data, Route, refuse_data


class AffineIndependentRoute(Route):
    """`AffineIndependentGP`, also as what `AffineIndependentGLM` returns."""

    models = (AffineIndependentGP,)
    options = EVERY_ROUTE | OF_OPTIMIZER | {"Schedule.refresh_every", "evaluation"}
    only = OWN_DATA
    reasons = {
        "batch_size": "Every step takes all data.",
        "natural_gradient": "This q is not Gaussian and has no natural gradients.",
        "hold": (
            "This q is not Gaussian and has no sites: its whitened A and b stay while the kernel"
            " moves."
        ),
        "checkpoint": (
            "An ascent may change the base and the grid of the integrals, which no checkpoint of"
            " TensorFlow saves."
        ),
        "seed": "Nothing in a step is random.",
    }
    defaults = {"Schedule.refresh_every": 20}

    def parts(
        self, model: AffineIndependentGP, data: Data, choices: Choices
    ) -> tuple[Step, ArrayBatches]:
        """An `AscentStep` on all data."""
        refuse_data(model, data, "build another model")
        basis = model.basis
        if not basis.b.trainable or not basis.map.trainable_variables:
            raise DataError(
                "A and b of q are what fit finds, and are not trainable: use"
                " gpflow.utilities.set_trainable(model.basis.map, True) and (model.basis.b, True)."
            )
        return AscentStep(model, choices.optimizer, choices.compile), ArrayBatches(
            *model.data, None, choices.seed
        )


class AscentStep(Step):
    """A gradient step of everything but q; `refresh` finds q, at the first step and then every so
    many.

    Where nothing but q is trainable, the only step is one ascent. Else there is another one after
    the last step.

    :param model: whose `trainable` flags are read.
    :param optimizer: for kernel, likelihood, mean function and inducing points.
    :param compile: False runs the gradient steps eagerly; the ascent is always compiled.
    """

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
        """Everything that a step writes."""
        return [*self._q, *self.others.variables]

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take that of the optimizer."""
        self.others.set_rate(sizes.learning_rate)

    def refresh(self) -> bool:
        """Find the best q at the hyperparameters as they are; only the last q may take a normal
        base in place of its own.
        """
        self._ascend(keep_better=not self.others.moved)
        return True

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """One step on the model's own data; where nothing but q is trainable, the report of the
        ascent.
        """
        if self.others.moved:
            return StepOutput.sound(*self._climb())
        result = self._found
        if result is None:
            raise RuntimeError("An AscentStep is refreshed before its first run.")
        self.finished, self.converged = result.reason, result.converged
        return StepOutput.sound(tf.constant(result.elbo, X.dtype))

    def finish(self) -> bool:
        """Find q at the last hyperparameters, where any of them moved."""
        if self.others.moved:
            self._ascend(keep_better=True)
        return bool(self.others.moved)

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """The bound on all data."""
        return self.model.elbo()

    def matrices(self) -> dict[str, tf.Tensor]:
        """That of the prior."""
        return self.model.basis.matrices(self.model.kernel)

    def _ascend(self, keep_better: bool) -> None:
        basis, integration = self.model.basis, self.model.integration
        base, theta = basis.base, basis.theta
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", "The bound of .* is not accurate"
                )  # the loop says so, once
                self._found = AffineIndependentAscent(keep_better=keep_better).run(self.model)
        except (
            BaseException
        ):  # the ascent tries a normal base: what it breaks off at is not what it began with
            basis.base, basis.theta = base, theta
            raise
        if self.model.integration != integration:  # which is part of what was compiled
            self._climb = self._compiled()

    def _compiled(self) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
        return Compiled(self._step) if self.compile else self._step

    def _step(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The bound before the step, and whether all is finite."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.others.moved)
            elbo = self.model.elbo()
            objective = elbo + self.model.log_prior_density()
        gradients = tape.gradient(objective, self.others.moved)
        self.others.ascend(gradients)
        return elbo, all_finite([elbo, *gradients])
