"""Factor graphs: all messages."""

from __future__ import annotations

__all__ = ["Messages"]

import tensorflow as tf
from gpflow.config import default_float

from ...compilation import Compiled
from ...models import FactorGraph
from ...models import factor_graph as graphs
from ...optimizers import MeanFieldCVI
from ...optimizers.ascent import CONVERGED, STUCK, has_fallen
from ...optimizers.mean_field.messages import Moved, diagnose_messages, move_groups
from ...optimizers.steps import MAX_HALVINGS
from ..batches import Trackable
from .stage import Budget, Report, Stage, StepOutput

_SMALLEST = 0.5**MAX_HALVINGS  # share of a step at which a run is stuck
_TOLERANCE = 1e-10
"""A run has converged when the squared change of the messages is below this share of their squared
length.
"""


class Messages(Stage):
    """One sweep over all variables towards the factors' gradients (C32).

    :param step_size: in (0, 1], before annealing.
    """

    def __init__(self, graph: FactorGraph, step_size: float, compile: bool = True) -> None:
        self.graph, self.step_size = graph, step_size
        self.groups = MeanFieldCVI(step_size).groups(list(graph.families))
        self.sampled = any(factor.samples is not None for factor in graph.factors.values())
        self.share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        """The length of the next step, as a share of the step size."""
        self._elbo: tf.Tensor | None = None
        self._compiled = Compiled(self._move) if compile else None

    @property
    def variables(self) -> list[tf.Variable]:
        return [*tf.nest.flatten(self.graph.messages), self.share]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"share": self.share}

    @property
    def settings(self) -> dict[str, object]:
        families = {f"variable {name}": family.name for name, family in self.graph.families.items()}
        return families | {
            f"factor {key}": list(factor.neighbours) for key, factor in self.graph.factors.items()
        }

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self._compiled is not None:
            self._compiled.get_concrete_function(
                self.graph.current(), self._length(self.step_size), seed
            )

    def run(self, budget: Budget) -> Report:
        messages, seed = self.graph.current(), budget.step_seed
        size = budget.sizes[0].natural_gradient
        size = self.step_size if size is None else size
        if self._elbo is None:
            self._elbo = self.graph.bound(self.graph.naturals(messages), self.graph.data, seed)
            if not tf.math.is_finite(self._elbo):
                raise diagnose_messages(self.graph, messages, self.graph.data, seed)
        move = self._move if self._compiled is None else self._compiled
        then, reached = move(messages, self._length(size), seed)
        # 1. a step that is not sound, or lowers the bound, is undone, and the next one is shorter
        sound = bool(then.ok) and bool(tf.math.is_finite(reached))
        rises = self.sampled or not has_fallen(float(self._elbo), float(reached))
        if not (sound and rises):
            stuck = float(self.share) < _SMALLEST
            if stuck and not sound:
                raise diagnose_messages(self.graph, messages, self.graph.data, seed)
            self.share.assign(0.5 * self.share)
            return Report(StepOutput.sound(self._elbo, shortened=1), STUCK if stuck else "")
        # 2. else it stands
        self.graph.assign(then.messages)
        self.share.assign(tf.minimum(2.0 * self.share, 1.0))
        self._elbo = reached
        settled = float(then.change) <= _TOLERANCE * (1.0 + _squared(then.messages))
        output = StepOutput.sound(reached, shortened=then.shortened)
        return Report(output, CONVERGED if settled else "", converged=settled)

    def _length(self, step_size: float) -> tf.Tensor:
        return tf.cast(step_size * self.share, default_float())

    def _move(
        self, messages: graphs.Messages, step_size: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Moved, tf.Tensor]:
        graph = self.graph
        then = move_groups(graph, Moved.at(messages), self.groups, step_size, graph.data, seed)
        draws = tf.random.fold_in(seed, len(self.groups))
        return then, graph.bound(graph.naturals(then.messages), graph.data, draws)


def _squared(messages: graphs.Messages) -> float:
    return float(sum(tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(messages)))
