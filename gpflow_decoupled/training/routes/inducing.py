"""One compiled training step: the bound once, the natural gradient of q and the gradient of the rest from it."""

from __future__ import annotations

__all__ = ["StepOutput", "TrainingStep", "ascend"]

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ...compilation import Compiled
from ...models import BasisGP
from ...optimizers import NaturalGradient
from ...optimizers.natural_gradient.evaluation import evaluate


class StepOutput(NamedTuple):
    """What a step reports to the loop; all of shape []."""

    elbo: tf.Tensor
    ok: tf.Tensor
    shortened: tf.Tensor
    clipped: tf.Tensor


class TrainingStep:
    """Natural gradient on the Gaussians of q, one optimizer on the mean coefficients, another on everything else.

    :param natural: None hands the Gaussians of q to `optimizer` too.
    :param optimizer: a Keras optimizer for kernel, likelihood, mean function and inducing inputs.
    :param mean_optimizer: a Keras optimizer for the mean coefficients; None where `natural` moves them.
    :param hold_sites: hold q's sites while kernel and inducing points move, where the basis can; else its Parameters.

    The `trainable` flags of the model are read and left alone. All updates start from the same Parameters.
    """

    stop_reason = ""
    """Why there is nothing left to do, if a step finds that."""

    def __init__(
        self,
        model: BasisGP,
        natural: NaturalGradient | None,
        optimizer: Any,
        mean_optimizer: Any | None,
        compile: bool = True,
        hold_sites: bool = True,
    ) -> None:
        self.model, self.natural = model, natural
        self.optimizer, self.mean_optimizer = optimizer, mean_optimizer
        mean = [] if model.basis.kernel_mean is None else [model.basis.kernel_mean.coefficients.unconstrained_variable]
        gaussians = [p.unconstrained_variable for p in model.basis.gaussian_parameters()]
        trainable = {v.ref() for v in model.trainable_variables}
        self.mean_variables = [v for v in mean if v.ref() in trainable and v.shape[0] > 0]
        taken = {v.ref() for v in mean} | ({v.ref() for v in gaussians} if natural is not None else set())
        self.other_variables = [v for v in model.trainable_variables if v.ref() not in taken]
        movable = gaussians + (mean if natural is not None and natural.mean is not None else [])
        self.moves_naturally = natural is not None and any(v.ref() in trainable for v in movable)
        if natural is not None and self.moves_naturally:
            natural.prepare(model)
        prior = {v.ref() for v in (*model.kernel.trainable_variables, *model.basis.trainable_variables)}
        moves_prior = any(v.ref() in prior for v in self.other_variables)
        self.holds_sites = hold_sites and self.moves_naturally and model.basis.holds_sites and moves_prior
        for rule, variables in ((optimizer, self.other_variables), (mean_optimizer, self.mean_variables)):
            if rule is not None and variables:
                rule.build(variables)
        self.run: Any = Compiled(self._step, reduce_retracing=True) if compile else self._step

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything a step writes: what must be restored after a failure."""
        own = [p.unconstrained_variable for p in self.model.basis.gaussian_parameters()]
        mean = self.model.basis.kernel_mean
        scaling = [] if mean is None or mean.scaling.frozen is None else [mean.scaling.frozen]
        rules = [r for r in (self.optimizer, self.mean_optimizer) if r is not None]
        states = [
            v if isinstance(v, tf.Variable) else v.value for rule in rules for v in rule.variables
        ]  # Keras 3 wraps
        return [*own, *self.mean_variables, *self.other_variables, *scaling, *states]

    def _step(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        rows = self.model.basis.draw_rows(seed)
        evaluation = evaluate(self.model, (X, Y), [*self.mean_variables, *self.other_variables], rows, self.holds_sites)
        count = len(self.mean_variables)
        mean_gradients, other_gradients = evaluation.gradients[:count], evaluation.gradients[count:]
        ok = tf.logical_and(evaluation.state.ok, tf.math.is_finite(evaluation.elbo))
        for gradient in evaluation.gradients:
            if gradient is not None:
                ok = tf.logical_and(ok, tf.reduce_all(tf.math.is_finite(gradient)))
        shortened = clipped = tf.constant(0)
        natural = self.natural if self.moves_naturally else None
        if natural is not None:
            move = natural.propose(self.model, (X, Y), evaluation, mean_gradients)
            ok, shortened, clipped = tf.logical_and(ok, move.ok), move.shortened, move.clipped
            if not self.holds_sites:
                natural.commit(self.model, move)
        if self.mean_optimizer is not None:
            ascend(self.mean_optimizer, self.mean_variables, mean_gradients)
        ascend(self.optimizer, self.other_variables, other_gradients)
        if natural is not None and self.holds_sites:
            natural.commit_after(self.model, move)
        return StepOutput(evaluation.elbo, ok, shortened, clipped)


def ascend(optimizer: Any, variables: Sequence[tf.Variable], gradients: Sequence[tf.Tensor | None]) -> None:
    """Apply the gradients that there are, each of its variable's shape [...], uphill."""
    pairs = [(-gradient, variable) for gradient, variable in zip(gradients, variables) if gradient is not None]
    if pairs:
        optimizer.apply_gradients(pairs)
