"""Hyperparameters of nearest-neighbour GPs, by L-BFGS on the likelihood of random rows.

Read `neighbour_rounds`, the method, first. `row_densities` has the functions that it climbs,
`contradictions` finds rows that each sample needs, `judgement` scores hyperparameters by
leave-one-out predictions, and `calibration` corrects variances by them.
"""

from .calibration import Calibration
from .contradictions import contradictions
from .judgement import Judged
from .neighbour_rounds import NeighbourRounds, RoundOutcome

__all__ = ["Calibration", "Judged", "NeighbourRounds", "RoundOutcome", "contradictions"]
