"""Nearest-neighbour GPs of latent values: what their two routes share."""

from __future__ import annotations

__all__ = ["LatentNeighboursRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...models.neighbours.latent import LatentNNGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, Options
from ..plan import Part, Plan
from ..stages.mean_of_rows import share_of_climbs
from ..stages.neighbour_labels import NeighbourLabels
from ..stages.neighbour_sites import NeighbourSites
from .replicas import check_workers
from .route import ALL_ROWS, Route, rates_of, refuse_data


class LatentNeighboursRoute(Route):
    """One stage of rounds, each of which is a step."""

    takes = EVERY | {"evaluation", "checkpoint", "seed", "strategy"}
    only = ALL_ROWS
    stage: ClassVar[type[NeighbourLabels] | type[NeighbourSites]]
    most: ClassVar[int]
    """Of the rounds."""

    def check(self, model: LatentNNGP, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        if (strategy := asked.get("strategy")) is not None:
            check_workers(model, strategy, asked)

    def options(self, model: LatentNNGP, asked: Mapping[str, Any]) -> Options:
        options = super().options(model, asked)
        return replace(options, steps=options.steps and min(options.steps, self.most))

    def plan(self, model: Any, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        stage = self.stage(model, options.seed, bool(options.compile), options.group)
        X, Y = model.data
        batches = ArrayBatches(X, Y, None, options.seed)
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
