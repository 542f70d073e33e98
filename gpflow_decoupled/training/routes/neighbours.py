"""Nearest-neighbour GPs: rounds or minibatches."""

from __future__ import annotations

__all__ = ["LatentNeighboursRoute", "NeighboursRoute"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...errors import DataError, UnknownOptionError
from ...inputs import check_whole
from ...models.neighbours import GaussianNNGP
from ...models.neighbours.labels import LatentNNGP
from ..batches import ArrayBatches, Data
from ..options import EVERY, ROWS, Options
from ..stages.mean_on_data import closed, share_of_climbs
from ..stages.neighbour_labels import NeighbourLabels
from ..stages.neighbour_sites import NeighbourSites
from ..stages.neighbours import MOST_CLIMBS, NeighbourClimbs, NeighbourSteps
from ..turns import Bound, Part, Plan
from .minibatches import BY_NAME as LBFGS
from .route import ALL_ROWS, Route, check_on_replicas, check_workers, rates_of, refuse_data

BATCH_SIZE = 250
"""Rows of a minibatch: with more, matrices of 30 neighbours leave the cache."""
OF_STEPS = frozenset({"optimizer", "learning_rate", "batch_size", "anneal"})
"""Fields of `Options` that ask for minibatches."""

_MORE = {"evaluation", "checkpoint", "seed", "strategy"}


class NeighboursRoute(Route):
    """`GaussianNNGP`."""

    name = "neighbours"
    models = ("GaussianNNGP",)
    takes = EVERY | {ROWS[name].name for name in OF_STEPS} | _MORE
    reasons = {
        "natural_gradient": "Given kernel and noise, this posterior is known in closed form.",
        "initialize": "The first climb is on the exact density of random rows, in any case.",
    }
    defaults = {"batch_size": BATCH_SIZE}

    def check(self, model: GaussianNNGP, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        if (strategy := asked.get("strategy")) is None:
            return
        if steps := OF_STEPS & set(asked):
            raise UnknownOptionError(
                f"{', '.join(sorted(steps))} asks for minibatches, which several workers do not"
                " share for an NNGP: leave it out, and they share the rows of the climbs."
            )
        check_on_replicas(model, strategy, asked)

    def options(self, model: GaussianNNGP, asked: Mapping[str, Any]) -> Options:
        """Return the options; an option of steps asks for minibatches, else for a few climbs."""
        if isinstance(asked.get("optimizer"), str) and asked["optimizer"] == LBFGS:
            raise UnknownOptionError(
                "L-BFGS climbs the likelihood of random rows unless other options ask for steps:"
                " leave `optimizer` out."
            )
        options = super().options(model, asked)
        if OF_STEPS & set(asked):
            check_whole(1, batch_size=options.batch_size)
            return options
        steps = options.steps and min(options.steps, MOST_CLIMBS)
        return replace(options, steps=steps, on_all_rows=True)

    def plan(self, model: GaussianNNGP, data: Data, options: Options) -> Plan:
        """Return climbs, of which each is a step, or minibatches; a mean of all rows ends both."""
        refuse_data(model, data, "model.update(data)")
        if not model.trainable_variables:
            raise DataError(
                "No Parameter of the NNGP is trainable, and nothing else is to be found: its"
                " predictions need no training. Set some free by gpflow.set_trainable(model, True)."
            )
        seed, compiled = options.seed, bool(options.compile)
        stage: NeighbourClimbs | NeighbourSteps
        bound: Bound
        if options.on_all_rows:
            stage = climbs = NeighbourClimbs(model, seed, compiled, options.group)
            bound = lambda X, Y: climbs.value.read_value()  # noqa: E731
        else:
            size = int(options.batch_size or BATCH_SIZE)
            stage = NeighbourSteps(model, options.optimizer, size, seed, compiled)
            bound = lambda X, Y: None  # noqa: E731
        # all workers take the first one's, so that they end their climbs at the same turn
        share = options.group.first(share_of_climbs(model, options.limits))
        batches = ArrayBatches(*model.data, None, seed)
        return Plan(
            parts=[Part(stage, share)],
            batches=batches,
            rates=rates_of(options, None),
            bound=bound,
            matrices=dict,
            whole=batches.whole,
            closing=lambda clock: closed(stage.rounds, clock),
            objective="log likelihood of neighbours",
        )


# ---
# Nearest-neighbour GPs of latent values: what their two routes share.


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
