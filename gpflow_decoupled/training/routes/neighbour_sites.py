"""Nearest-neighbour GPs of any likelihood: one stage."""

from __future__ import annotations

__all__ = ["NeighbourSitesRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...models.neighbours import SiteNNGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, Options
from ..plan import Part, Plan
from ..stages.mean_of_rows import share_of_climbs
from ..stages.neighbour_sites import MOST_ROUNDS, NeighbourSites
from .replicas import check_workers
from .route import ALL_ROWS, Route, rates_of, refuse_data


class NeighbourSitesRoute(Route):
    """`SiteNNGP`."""

    name = "neighbour_sites"
    models = ("SiteNNGP",)
    takes = EVERY | {"evaluation", "checkpoint", "seed", "strategy"}
    only = ALL_ROWS
    reasons = {
        "batch_size": "Climbs draw 3,000 rows, and sites move by batches of 1,000.",
        "natural_gradient": "Passes over the sites are natural-gradient steps of size one.",
        "optimizer": "L-BFGS climbs the log partition function of the sites of random rows.",
        "learning_rate": "L-BFGS has none.",
        "initialize": "The first turn passes over the sites, in any case.",
    }

    def check(self, model: SiteNNGP, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        if (strategy := asked.get("strategy")) is not None:
            check_workers(model, strategy, asked)

    def options(self, model: SiteNNGP, asked: Mapping[str, Any]) -> Options:
        options = super().options(model, asked)
        return replace(options, steps=options.steps and min(options.steps, MOST_ROUNDS))

    def plan(self, model: SiteNNGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        stage = NeighbourSites(model, options.seed, bool(options.compile), options.group)
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
