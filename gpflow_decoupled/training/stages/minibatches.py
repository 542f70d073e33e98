"""Minibatch steps of a model on inducing points."""

# A step is compiled as one function:
#
# 1. The bound and its derivatives in mean and variance at the data give the step of q(u).
# 2. The same rows under the new q(u) give all other gradients, see `natural_gradient.in_turn`; or
#    under the old one if q(u) is not whitened or moves with mean coefficients.
# 3. Mean coefficients, then kernel, likelihood, mean function and inducing points move.
# 4. q(u) is written: its sites under the new kernel (C28), or its whitened mean and root.

from __future__ import annotations

__all__ = ["Minibatches", "bound_of", "probe_of", "steps_in_a_loop"]

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from ... import replicas
from ...compilation import Compiled
from ...errors import NumericalError
from ...likelihoods.facts import draws_expectations
from ...models import BasisGP
from ...optimizers import NaturalGradient
from ...optimizers.natural_gradient import can_move_first, evaluate_in_turn
from ...optimizers.natural_steps import evaluate
from ...replicas import Group
from ...user_warnings import warn_user
from ..batches import Trackable
from ..keras import KerasAscent, Optimizer
from ..schedules import StepSizes
from .stage import Budget, Report, Stage, StepOutput, all_finite

_FLOOR = 0.01
"""For mean coefficients that are trained by Adam, see `OrthogonalBasis.refresh`."""
_MOST = 20
"""Small steps in one call, which takes half a millisecond: as long as a step with 30 inducing
points and 64 rows."""


class Minibatches(Stage):
    """Natural gradients on the Gaussians of q, optimizers on mean coefficients and the rest.

    :param natural: the rule for q; None leaves the Gaussians to `optimizer`.
    :param mean_optimizer: for the mean coefficients; None where `natural` moves them.
    :param hold_sites: fix q's sites, where the basis can, while kernel and points move; else its
        Parameters.
    :param low: precision of products with rows of data, see `evaluate`.
    :param group: replicas that step on their own rows; None is this process.
    :param shards: shapes and types of X [None, D], Y [None, P] if workers have their batches.
    :param together: take several steps on arrays in one call, with plain Adam.
    """

    def __init__(
        self,
        model: BasisGP,
        natural: NaturalGradient | None,
        optimizer: Optimizer,
        mean_optimizer: Optimizer | None,
        compile: bool | str = True,
        hold_sites: bool = True,
        low: tf.DType | None = None,
        group: Group | None = None,
        shards: list[tf.TensorSpec] | None = None,
        together: bool = False,
    ) -> None:
        self.model, self.natural, self.low = model, natural, low
        mean = (
            []
            if model.basis.kernel_mean is None
            else [model.basis.kernel_mean.coefficients.unconstrained_variable]
        )
        gaussians = [p.unconstrained_variable for p in model.basis.gaussian_parameters()]
        trainable = {v.ref() for v in model.trainable_variables}
        self.mean_variables = [v for v in mean if v.ref() in trainable and v.shape[0] > 0]
        taken = {v.ref() for v in mean} | (
            {v.ref() for v in gaussians} if natural is not None else set()
        )
        others = [v for v in model.trainable_variables if v.ref() not in taken]
        movable = gaussians + (mean if natural is not None and natural.mean is not None else [])
        self.moves_naturally = natural is not None and any(v.ref() in trainable for v in movable)
        if natural is not None and self.moves_naturally:
            natural.prepare(model)
        prior = {
            v.ref() for v in (*model.kernel.trainable_variables, *model.basis.trainable_variables)
        }
        moves_prior = any(v.ref() in prior for v in others)
        self.takes_turns = (
            natural is not None and self.moves_naturally and can_move_first(model.basis, natural)
        )
        self.holds_sites = (
            hold_sites and self.moves_naturally and model.basis.holds_sites and moves_prior
        )
        self.others = KerasAscent(optimizer, others)
        self.mean = (
            None if mean_optimizer is None else KerasAscent(mean_optimizer, self.mean_variables)
        )
        self.group = group or Group()
        on_rows = self.group.on_rows(self._step, of_worker=shards is not None)
        options = {"jit_compile": compile == "xla", **_ways_to_trace(shards)}
        self._compiled: Compiled | None = Compiled(on_rows, **options) if compile else None
        self.step = on_rows if self._compiled is None else self._compiled
        """One step on X [B, D], Y [B, P] and a seed [2], whose output it returns."""
        ascents = [ascent for ascent in (self.others, self.mean) if ascent is not None]
        if together and all(ascent.fits_into_loops for ascent in ascents):
            self.most = _MOST
        self._loop: tf.types.experimental.ConcreteFunction | None = None

    @property
    def variables(self) -> list[tf.Variable]:
        own = [p.unconstrained_variable for p in self.model.basis.gaussian_parameters()]
        mean = self.model.basis.kernel_mean
        scaling = [] if mean is None or mean.scaling.frozen is None else [mean.scaling.frozen]
        by_mean = [] if self.mean is None else self.mean.variables
        return [*own, *self.mean_variables, *self.others.variables, *by_mean, *scaling]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        found = {"optimizer": self.others.optimizer, "natural": self.natural}
        found["mean_optimizer"] = None if self.mean is None else self.mean.optimizer
        return {name: part for name, part in found.items() if part is not None}

    @property
    def settings(self) -> dict[str, object]:
        natural = self.natural
        return {
            "mean_solver": None if natural is None else natural.mean,
            "negative_precision": None if natural is None else natural.negative_precision,
            "optimizer": self.others.name,
            "holds_sites": self.holds_sites,
            "precision": "full" if self.low is None else "mixed",
            "num_samples": None
            if self.model.expectations is None
            else self.model.expectations.num_samples,
        }

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self.most > 1:  # for any number K of batches
            kinds = [(X.shape, X.dtype), (Y.shape, Y.dtype), ([2], tf.int32)]
            kinds.append(([len(StepSizes._fields)], tf.float64))
            signature = [tf.TensorSpec([None, *shape], dtype) for shape, dtype in kinds]
            loop = Compiled(partial(steps_in_a_loop, self._step, self.set_step_sizes))
            self._loop = loop.get_concrete_function(*signature)
        elif self._compiled is not None:
            alone = self.group.strategy is None
            (self._compiled.bind if alone else self._compiled.get_concrete_function)(X, Y, seed)

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take the step sizes of the next step; numbers or scalars of a graph."""
        if self.natural is not None and sizes.natural_gradient is not None:
            self.natural.gamma.assign(sizes.natural_gradient)
            self.natural.mean_step.assign(sizes.mean_learning_rate)
        self.others.set_rate(sizes.learning_rate)
        if self.mean is not None:
            self.mean.set_rate(sizes.mean_learning_rate)

    def refresh(self) -> bool:
        if self.model.basis.kernel_mean is None:
            return False
        try:
            self.model.basis.refresh(self.model.kernel, 0.0 if self.mean is None else _FLOOR)
        except NumericalError as error:  # it is only a preconditioner: the old one will do
            warn_user(f"The scaling of the mean coefficients was not refreshed. {error}")
            return False
        return True

    def run(self, budget: Budget) -> Report:
        if self._loop is None:
            self.set_step_sizes(budget.sizes[0])
            return Report(self.step(*budget.batch, budget.step_seed))
        seeds = [(budget.seed, budget.first + k) for k in range(len(budget.sizes))]
        sizes = np.array([[np.nan if one is None else one for one in k] for k in budget.sizes])
        numbers = tf.constant(seeds, tf.int32), tf.constant(sizes, tf.float64)
        return Report(self._loop(*budget.batch, *numbers))

    def _step(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        # 1. the bound, where q goes, and all other gradients
        rows = self.model.basis.draw_rows(seed)
        moved = [*self.mean_variables, *self.others.moved]
        natural = self.natural if self.moves_naturally else None
        if natural is not None and self.takes_turns:
            evaluation, move = evaluate_in_turn(
                self.model, (X, Y), natural, moved, rows, self.holds_sites, self.low
            )
        else:
            with_target = natural is not None and natural.starts_at(self.model)
            evaluation = evaluate(
                self.model, (X, Y), moved, rows, self.holds_sites, with_target, self.low
            )
        count = len(self.mean_variables)
        mean_gradients, other_gradients = evaluation.gradients[:count], evaluation.gradients[count:]
        ok = tf.logical_and(
            evaluation.state.ok, all_finite([evaluation.elbo, *evaluation.gradients])
        )
        # 2. whether all replicas are well; at fixed Parameters q may be written at once
        shortened = clipped = tf.constant(0)
        if natural is not None:
            if not self.takes_turns:
                move = natural.propose(self.model, (X, Y), evaluation, mean_gradients)
            ok, shortened, clipped = tf.logical_and(ok, move.ok), move.shortened, move.clipped
        ok, clipped = replicas.agreed(ok, clipped)
        if natural is not None:
            move = move._replace(ok=ok)
            if not self.holds_sites:
                natural.commit(self.model, move)
        # 3. everything else
        if self.mean is not None:
            self.mean.ascend(mean_gradients)
        self.others.ascend(other_gradients)
        # 4. q at its sites, under the new kernel
        if natural is not None and self.holds_sites:
            natural.commit_after(self.model, move)
        return StepOutput(evaluation.elbo, ok, shortened, clipped)


def steps_in_a_loop(
    step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], StepOutput],
    set_step_sizes: Callable[[StepSizes], None],
    X: tf.Tensor,
    Y: tf.Tensor,
    seeds: tf.Tensor,
    sizes: tf.Tensor,
) -> StepOutput:
    """Take K steps; one that is not `ok` ends them.

    :param step: takes X [B, D], Y [B, P] and a seed [2]; its `StepOutput` has scalars.
    :param set_step_sizes: writes the sizes of a step to their variables.
    :param X: batches of inputs [K, B, D]; of observations Y [K, B, P].
    :param seeds: the run's seed and the step's number [K, 2]; `sizes` [K, 3] as in `StepSizes`.
    :return: arrays [K]; zeros and False after the end.
    """
    count = tf.shape(X)[0]
    kinds = StepOutput(X.dtype, tf.bool, tf.int32, tf.int32)
    arrays = StepOutput(*(tf.TensorArray(kind, count, element_shape=[]) for kind in kinds))

    def body(
        k: tf.Tensor, _: tf.Tensor, done: StepOutput
    ) -> tuple[tf.Tensor, tf.Tensor, StepOutput]:
        set_step_sizes(StepSizes(*tf.unstack(sizes[k])))
        output = step(X[k], Y[k], seeds[k])
        written = (array.write(k, value) for array, value in zip(done, output))
        return k + 1, output.ok, StepOutput(*written)

    def goes_on(k: tf.Tensor, ok: tf.Tensor, _: StepOutput) -> tf.Tensor:
        return tf.logical_and(k < count, ok)

    # one at a time: TensorFlow would start a step that reads variables before the step before it
    # has written them
    start = tf.constant(0), tf.constant(True), arrays
    *_, done = tf.while_loop(goes_on, body, start, parallel_iterations=1)
    return StepOutput(*(array.stack() for array in done))


def bound_of(model: BasisGP, group: Group) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor | None]:
    """Return a function of X [N, D], Y [N, P] with the bound of a model in nats.

    None if draws or a subsample of mean points estimate the bound. Replicas share rows; two
    messages.
    """
    mean = model.basis.kernel_mean

    def of_rows(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return evaluate(model, (X, Y)).elbo

    def bound(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        if model.expectations is not None or (mean is not None and mean.subsample is not None):
            return None
        if group.replicas == 1:
            return model.elbo((X, Y))
        return Compiled(group.on_rows(of_rows))(X, Y, tf.zeros([2], tf.int32))

    return bound


def probe_of(model: BasisGP) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function of X [B, D], Y [B, P] and a seed [2] with the bound of these rows."""
    # A sampled bound is replaced by the sum of moments, to use up no random numbers.
    samples = model.expectations is not None or draws_expectations(model.likelihood)

    def probe(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        basis, (X, Y) = model.basis, model.as_tensors((X, Y))
        state = basis.factor(model.kernel, rows=basis.draw_rows(seed))
        features = basis.features(state, model.kernel, X)
        mean, variance = features.mean, basis.variance(features, model.kernel, X)
        left = model.left_variances(features, X)
        expected = (
            mean + variance
            if samples
            else model.variational_expectations(mean, variance, (X, Y), left)
        )
        return model.scale(X) * tf.reduce_sum(expected) - basis.prior_kl(state)

    return probe


def _ways_to_trace(shards: list[tf.TensorSpec] | None) -> dict[str, object]:
    # A worker that traced again for a longer batch would not send the messages others wait for.
    if shards is None:
        return {"reduce_retracing": True}
    return {"input_signature": [*shards, tf.TensorSpec([2], tf.int32)]}
