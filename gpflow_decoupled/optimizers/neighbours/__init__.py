"""Hyperparameters of nearest-neighbour GPs, by L-BFGS on the likelihood of random rows.

Read `neighbour_rounds` first. `judgement` scores by leave-one-out predictions and corrects
variances by them. `label_rounds` are for classes, `site_rounds` for other observations without
Gaussian noise.
"""

from .judgement import Calibration, Judged, contradictions
from .label_rounds import LabelRound, LabelRounds
from .neighbour_rounds import NeighbourRounds, RoundOutcome
from .prediction_neighbours import choose_prediction_neighbours
from .site_rounds import SiteRound, SiteRounds, SiteSweeps, SweepReport

__all__ = [
    "Calibration", "Judged", "LabelRound", "LabelRounds", "NeighbourRounds", "RoundOutcome",
    "SiteRound", "SiteRounds", "SiteSweeps", "SweepReport", "choose_prediction_neighbours",
    "contradictions",
]  # fmt: skip
