"""Factor graphs: all messages by mean-field conjugate computation, with a look at the bound after
every step.

A step moves every message by the step size towards the gradient of its factor's expectation, (C32),
one variable after the other. If the bound then is lower, or not finite, the step is undone and the
next one is half as long; each success doubles the length, up to the step size again. Where factors
are sampled the bound is an estimate, and only steps that are not finite are undone.
"""

from __future__ import annotations

__all__ = ["GraphData", "MeanFieldRoute", "MessageStep"]

import tensorflow as tf
from gpflow.config import default_float

from ...compilation import Compiled
from ...errors import DataError
from ...models import FactorGraph
from ...models.factor_graph import Messages
from ...optimizers import MeanFieldCVI
from ...optimizers.ascent import CONVERGED, STUCK, has_fallen
from ...optimizers.mean_field.messages import Moved, diagnose_messages, move_groups
from ...optimizers.steps import MAX_HALVINGS
from ..batches import Batch, Batches, checksum
from ..steps import Step, StepOutput, StepSizes, Trackable
from .route import EVERY_ROUTE, Choices, Data, Route, refuse_data

_ALL_DATA = (
    "Every step takes all data; for minibatches use optimizers.MeanFieldCVI(step_size).run(graph,"
    " batch_size=...)."
)
_SMALLEST = 0.5**MAX_HALVINGS
_TOLERANCE = 1e-10
"""A run has converged when the squared change of the messages is below this share of their squared
length.
"""


class MeanFieldRoute(Route):
    """`FactorGraph`, of which nothing but the messages is trained."""

    models = (FactorGraph,)
    options = EVERY_ROUTE | {"natural_gradient", "Schedule.anneal", "seed", "checkpoint"}
    only = {"batch_size": None}
    reasons = {
        "batch_size": _ALL_DATA,
        "evaluation": (
            "A FactorGraph predicts nothing by itself; Evaluation(patience=...) looks at the bound."
        ),
        "optimizer": "Messages are all that there is to train.",
    }
    defaults = {"natural_gradient": 1.0, "Schedule.anneal": 0.0}

    def parts(self, model: FactorGraph, data: Data, choices: Choices) -> tuple[Step, Batches]:
        """A `MessageStep` on all data."""
        refuse_data(model, data, "build another graph")
        if choices.natural_gradient is None:
            raise DataError(
                "natural_gradient=None leaves the messages where they are, and a FactorGraph has"
                " nothing else."
            )
        return MessageStep(model, float(choices.natural_gradient), choices.compile), GraphData(
            model
        )


class GraphData:
    """The data of a graph, which its factors have: the same in every step, so that batches are
    empty.
    """

    def __init__(self, graph: FactorGraph) -> None:
        self.arrays = [array for arrays in graph.data.values() for array in arrays]
        self.num_data = graph.num_data or 0

    @property
    def batch_size(self) -> None:
        """None: batches are empty."""
        return None

    @property
    def whole(self) -> Batch:
        """An empty X and Y: all data are in the graph."""
        return tf.zeros([0, 1]), tf.zeros([0, 1])

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Nothing: there is no place in the data."""
        return {}

    @property
    def settings(self) -> dict[str, object]:
        """Number and checksum of the data."""
        return {"num_data": self.num_data, "checksum of the data": checksum(self.arrays)}

    def __call__(self, step: int) -> Batch:
        """An empty batch."""
        return self.whole

    def close(self) -> None:
        """Nothing is open."""


class MessageStep(Step):
    """One sweep over all variables, undone where the bound falls.

    :param graph: whose messages move.
    :param step_size: in (0, 1], before annealing.
    :param compile: False runs eagerly.
    """

    def __init__(self, graph: FactorGraph, step_size: float, compile: bool = True) -> None:
        self.graph, self.step_size = graph, step_size
        self.groups = MeanFieldCVI(step_size).groups(list(graph.families))
        self.sampled = any(factor.samples is not None for factor in graph.factors.values())
        self.share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        """The length of the next step, as a share of the step size."""
        self._elbo: tf.Tensor | None = None
        self._moved: Compiled | None = Compiled(self._move) if compile else None

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything that a step writes."""
        return [*tf.nest.flatten(self.graph.messages), self.share]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """The length of the next step; the messages are the model's."""
        return {"share": self.share}

    @property
    def settings(self) -> dict[str, object]:
        """The families of the variables and the neighbours of the factors."""
        families = {f"variable {name}": family.name for name, family in self.graph.families.items()}
        return families | {
            f"factor {key}": list(factor.neighbours) for key, factor in self.graph.factors.items()
        }

    def trace(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the step."""
        if self._moved is not None:
            self._moved.get_concrete_function(self.graph.current(), self._length(), seed)

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take that of the messages."""
        if sizes.natural_gradient is not None:
            self.step_size = sizes.natural_gradient

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """The bound, unless sampled factors estimate it."""
        return None if self.sampled else self.graph.elbo()

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """One step; the report has the bound after it, or the old one if the step is undone."""
        messages = self.graph.current()
        if self._elbo is None:
            self._elbo = self.graph.bound(self.graph.naturals(messages), self.graph.data, seed)
            if not tf.math.is_finite(self._elbo):
                raise diagnose_messages(self.graph, messages, self.graph.data, seed)
        then, reached = (self._move if self._moved is None else self._moved)(
            messages, self._length(), seed
        )
        # 1. a step that is not sound, or lowers the bound, is undone, and the next one is shorter
        sound = bool(then.ok) and bool(tf.math.is_finite(reached))
        rises = self.sampled or not has_fallen(float(self._elbo), float(reached))
        if not (sound and rises):
            if float(self.share) < _SMALLEST:
                if not sound:
                    raise diagnose_messages(self.graph, messages, self.graph.data, seed)
                self.finished = STUCK
            self.share.assign(0.5 * self.share)
            return StepOutput.sound(self._elbo, shortened=1)
        # 2. else it stands
        self.graph.assign(then.messages)
        self.share.assign(tf.minimum(2.0 * self.share, 1.0))
        self._elbo = reached
        if float(then.change) <= _TOLERANCE * (1.0 + _squared(then.messages)):
            self.finished, self.converged = CONVERGED, True
        return StepOutput.sound(reached, shortened=then.shortened)

    def _length(self) -> tf.Tensor:
        return tf.cast(self.step_size * self.share, default_float())

    def _move(
        self, messages: Messages, step_size: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Moved, tf.Tensor]:
        """The messages after one step of all variables, and the bound there; seed [2]."""
        graph = self.graph
        then = move_groups(graph, Moved.at(messages), self.groups, step_size, graph.data, seed)
        draws = tf.random.fold_in(seed, len(self.groups))
        return then, graph.bound(graph.naturals(then.messages), graph.data, draws)


def _squared(messages: Messages) -> float:
    return float(sum(tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(messages)))
