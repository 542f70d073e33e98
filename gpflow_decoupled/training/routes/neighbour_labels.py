"""Nearest-neighbour GPs of classes: one stage, rounds of L-BFGS."""

from __future__ import annotations

__all__ = ["NeighbourLabelsRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import DataError
from ...models.neighbours import LabelNNGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, Options
from ..plan import Part, Plan
from ..stages.mean_of_rows import share_of_climbs
from ..stages.neighbour_labels import MOST_CLIMBS, NeighbourLabels
from .replicas import check_workers
from .route import ALL_ROWS, Route, rates_of, refuse_data


class NeighbourLabelsRoute(Route):
    """`LabelNNGP`."""

    name = "neighbour_labels"
    models = ("LabelNNGP",)
    takes = EVERY | {"evaluation", "checkpoint", "seed", "strategy"}
    only = ALL_ROWS
    reasons = {
        "batch_size": "Climbs draw a few thousand rows each.",
        "natural_gradient": "Given kernel and noise, least squares is known in closed form.",
        "optimizer": "L-BFGS climbs the log densities of left-out labels of random rows.",
        "learning_rate": "L-BFGS has none.",
        "initialize": "The first climb is of least squares on random rows, in any case.",
    }

    def check(self, model: LabelNNGP, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        if (strategy := asked.get("strategy")) is not None:
            check_workers(model, strategy, asked)

    def options(self, model: LabelNNGP, asked: Mapping[str, Any]) -> Options:
        options = super().options(model, asked)
        return replace(options, steps=options.steps and min(options.steps, MOST_CLIMBS))

    def plan(self, model: LabelNNGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        if not model.trainable_variables:
            raise DataError(
                "No Parameter of the NNGP is trainable, and nothing else is to be found: its"
                " predictions need no training. Set some free by gpflow.set_trainable(model, True)."
            )
        stage = NeighbourLabels(model, options.seed, bool(options.compile), options.group)
        batches = ArrayBatches(*model.data, None, options.seed)
        return Plan(
            parts=[Part(stage, share_of_climbs(model, options.limits))],
            batches=batches,
            rates=rates_of(options, None),
            bound=lambda X, Y: stage.value.read_value(),
            matrices=dict,
            whole=batches.whole,
            closing=stage.closing,
            objective="leave-one-out log density",
        )
