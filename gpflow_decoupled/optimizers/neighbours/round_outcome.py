"""The record of a round of `NeighbourRounds`."""

from __future__ import annotations

__all__ = ["RoundOutcome"]

from typing import NamedTuple

from ...lbfgs import LBFGSRun
from .judgement import Judged


class RoundOutcome(NamedTuple):
    """The end of a round."""

    climbed: LBFGSRun
    """The climb; its values are estimates of the log likelihood of all rows, in nats."""
    judged: Judged
    """At the hyperparameters that the round proposes."""
    kept: bool
    """False if they predicted worse than those before, so that the round was undone."""
