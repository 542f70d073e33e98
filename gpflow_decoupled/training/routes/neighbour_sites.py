"""Nearest-neighbour GPs of any likelihood: rounds of passes over the sites and climbs."""

from __future__ import annotations

__all__ = ["NeighbourLabelsRoute", "NeighbourSitesRoute"]

from collections.abc import Mapping
from typing import Any

from ...errors import DataError
from ...models.neighbours import LabelNNGP
from ..stages.neighbour_labels import MOST_CLIMBS, NeighbourLabels
from ..stages.neighbour_sites import MOST_ROUNDS, NeighbourSites
from .neighbours import LatentNeighboursRoute

# ---
# Nearest-neighbour GPs of classes: rounds of L-BFGS.


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


# ---


class NeighbourSitesRoute(LatentNeighboursRoute):
    """`SiteNNGP`."""

    name = "neighbour_sites"
    models = ("SiteNNGP",)
    stage, most = NeighbourSites, MOST_ROUNDS
    reasons = {
        "batch_size": "Climbs draw 3,000 rows, and sites move by batches of 1,000.",
        "natural_gradient": "Passes over the sites are natural-gradient steps of size one.",
        "negative_precision": (
            'Negative precisions become zero, the policy "clip": sites are noisy observations.'
        ),
        "optimizer": "L-BFGS climbs the log partition function of the sites of random rows.",
        "learning_rate": "L-BFGS has none.",
        "initialize": "The first turn passes over the sites, in any case.",
    }
