"""Nearest-neighbour GPs of classes: rounds of L-BFGS."""

from __future__ import annotations

__all__ = ["NeighbourLabelsRoute"]

from collections.abc import Mapping
from typing import Any

from ...errors import DataError
from ...models.neighbours import LabelNNGP
from ..stages.neighbour_labels import MOST_CLIMBS, NeighbourLabels
from .latent_neighbours import LatentNeighboursRoute


class NeighbourLabelsRoute(LatentNeighboursRoute):
    """`LabelNNGP`."""

    name = "neighbour_labels"
    models = ("LabelNNGP",)
    stage, most = NeighbourLabels, MOST_CLIMBS
    reasons = {
        "batch_size": "Climbs draw a few thousand rows each.",
        "natural_gradient": "Given kernel and noise, least squares is known in closed form.",
        "optimizer": "L-BFGS climbs the log densities of left-out labels of random rows.",
        "learning_rate": "L-BFGS has none.",
        "initialize": "The first climb is of least squares on random rows, in any case.",
    }

    def check(self, model: LabelNNGP, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        if not model.trainable_variables:
            raise DataError(
                "No Parameter of the NNGP is trainable, and nothing else is to be found: its"
                " predictions need no training. Set some free by gpflow.set_trainable(model, True)."
            )
