"""Nearest-neighbour GPs: one stage, rounds of L-BFGS on random rows."""

from __future__ import annotations

__all__ = ["NeighboursRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import DataError
from ...models import NNGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, Options
from ..plan import Part, Plan
from ..stages.neighbours import MOST_CLIMBS, NeighbourClimbs
from .route import ALL_ROWS, Route, rates_of, refuse_data


class NeighboursRoute(Route):
    """`NNGP`."""

    name = "neighbours"
    models = ("NNGP",)
    takes = EVERY | {"evaluation", "checkpoint", "seed"}
    only = ALL_ROWS
    reasons = {
        "batch_size": "The rounds draw 6,000 and 12,000 rows.",
        "natural_gradient": "Given kernel and noise, this posterior is known in closed form.",
        "optimizer": "L-BFGS climbs the likelihood of random rows.",
        "learning_rate": "L-BFGS has none.",
        "initialize": "The first climb is on the exact density of 500 rows, in any case.",
    }

    def options(self, model: NNGP, asked: Mapping[str, Any]) -> Options:
        """Return the options, with no more steps than climbs."""
        options = super().options(model, asked)
        steps = options.steps and min(options.steps, MOST_CLIMBS)
        return replace(options, steps=steps)

    def plan(self, model: NNGP, data: Data, options: Options) -> Plan:
        refuse_data(model, data, "model.update(data)")
        if not model.trainable_variables:
            raise DataError(
                "No Parameter of the NNGP is trainable, and nothing else is to be found: its"
                " predictions need no training. Set some free by gpflow.set_trainable(model, True)."
            )
        stage = NeighbourClimbs(model, options.seed, bool(options.compile))
        batches = ArrayBatches(*model.data, None, options.seed)
        return Plan(
            parts=[Part(stage)],
            batches=batches,
            rates=rates_of(options, None),
            bound=lambda X, Y: stage.value.read_value(),
            matrices=dict,
            whole=batches.whole,
            closing=stage.closing,
            objective="log likelihood of neighbours",
        )
