"""Nearest-neighbour GPs of any likelihood: rounds of passes over the sites and climbs."""

from __future__ import annotations

__all__ = ["NeighbourSitesRoute"]

from ..stages.neighbour_sites import MOST_ROUNDS, NeighbourSites
from .latent_neighbours import LatentNeighboursRoute


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
