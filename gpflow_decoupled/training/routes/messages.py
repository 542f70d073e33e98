"""Factor graphs: one stage."""

from __future__ import annotations

__all__ = ["GraphData", "MessagesRoute"]

import tensorflow as tf

from ...errors import DataError
from ...models import FactorGraph
from ..batches import Batch, Batches, Data, checksum
from ..options import EVERY, Options
from ..plan import Part, Plan
from ..stages.messages import Messages
from .route import ALL_ROWS, Route, rates_of, refuse_data


class MessagesRoute(Route):
    """`FactorGraph`, of which nothing but the messages is trained."""

    name = "messages"
    models = ("FactorGraph",)
    takes = EVERY | {"natural_gradient", "Schedule.anneal", "seed", "checkpoint"}
    only = ALL_ROWS
    reasons = {
        "batch_size": (
            "Every step takes all data; for minibatches use"
            " optimizers.MeanFieldCVI(step_size).run(graph, batch_size=...)."
        ),
        "evaluation": (
            "A FactorGraph predicts nothing by itself; Evaluation(patience=...) looks at the bound."
        ),
        "optimizer": "Messages are all that there is to train.",
    }
    defaults = {"natural_gradient": 1.0, "anneal": 0.0}

    def plan(self, model: FactorGraph, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "build another graph")
        rho = options.natural_gradient
        if rho is None:
            raise DataError(
                "natural_gradient=None leaves the messages where they are, and a FactorGraph has"
                " nothing else."
            )
        stage, batches = Messages(model, float(rho), bool(options.compile)), GraphData(model)
        return Plan(
            parts=[Part(stage)],
            batches=batches,
            rates=rates_of(options, rho),
            bound=lambda X, Y: None if stage.sampled else model.elbo(),
            matrices=dict,
            whole=batches.whole,
        )


class GraphData(Batches):
    """The data of a graph, owned by its factors: batches are empty."""

    def __init__(self, graph: FactorGraph) -> None:
        self.arrays = [array for arrays in graph.data.values() for array in arrays]
        self.num_data = graph.num_data or 0

    @property
    def whole(self) -> Batch:
        return tf.zeros([0, 1]), tf.zeros([0, 1])

    @property
    def settings(self) -> dict[str, object]:
        return {"num_data": self.num_data, "checksum of the data": checksum(self.arrays)}

    def __call__(self, step: int) -> Batch:
        return self.whole
