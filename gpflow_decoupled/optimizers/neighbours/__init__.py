"""Hyperparameters of nearest-neighbour GPs, by L-BFGS on the likelihood of random rows.

Read `neighbour_rounds` first, whose record is a `round_outcome`. `row_densities` has the functions
that it climbs, `row_samples` draws rows, `contradictions` finds those that each sample needs,
`judgement` scores by leave-one-out predictions, `calibration` corrects variances by them,
`long_lengthscales` bounds steps, `pace` keeps limits of time, for sites `site_pace`.
`prediction_neighbours` finds how many neighbours predict best. `label_rounds` are for classes,
`site_rounds` and `site_sweeps` for other observations without Gaussian noise.
"""

from .calibration import Calibration
from .contradictions import contradictions
from .judgement import Judged
from .label_rounds import LabelRound, LabelRounds
from .neighbour_rounds import NeighbourRounds
from .prediction_neighbours import choose_prediction_neighbours
from .round_outcome import RoundOutcome
from .site_rounds import SiteRound, SiteRounds
from .site_sweeps import SiteSweeps, SweepReport

__all__ = [
    "Calibration", "Judged", "LabelRound", "LabelRounds", "NeighbourRounds", "RoundOutcome",
    "SiteRound", "SiteRounds", "SiteSweeps", "SweepReport", "choose_prediction_neighbours",
    "contradictions",
]  # fmt: skip
