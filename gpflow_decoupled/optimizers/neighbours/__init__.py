"""Hyperparameters of nearest-neighbour GPs, by L-BFGS on the likelihood of random rows.

`neighbour_rounds.py` is the method, read it first. `row_densities.py` has the functions that it
climbs, by `log_climb.py` of the folder above. `contradictions.py`
finds rows that each sample needs, `judgement.py` scores hyperparameters by leave-one-out
predictions, and `calibration.py` corrects variances by them. `site_rounds.py` and `site_sweeps.py`
are for likelihoods other than Gaussian noise.
"""

from .calibration import Calibration
from .contradictions import contradictions
from .judgement import Judged
from .neighbour_rounds import NeighbourRounds, RoundOutcome
from .site_rounds import SiteRound, SiteRounds
from .site_sweeps import SiteSweeps, SweepReport

__all__ = [
    "Calibration", "Judged", "NeighbourRounds", "RoundOutcome", "SiteRound", "SiteRounds",
    "SiteSweeps", "SweepReport", "contradictions",
]  # fmt: skip
