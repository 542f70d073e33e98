"""The result of a run of affine-independent inference."""

from __future__ import annotations

__all__ = ["AffineResult", "StageRecord", "StagedResult", "stage_record"]

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..results import Recorder, RunResult

StageRecord = Callable[[float, int], None]
"""Records one step: the best bound so far in nats, and the evaluations since the step before."""


@dataclass(kw_only=True, repr=False)
class StagedResult(RunResult):
    """A run that begins with the best Gaussian q; `history` has an array "evaluations" [steps]
    beside those of all runs.
    """

    gaussian_elbo: float
    """The bound of the best Gaussian q, in nats."""

    @property
    def gain(self) -> float:
        """How far `elbo` is above the bound of the best Gaussian q, in nats."""
        return self.elbo - self.gaussian_elbo

    @property
    def evaluations(self) -> int:
        """Evaluations of the bound and its gradient, in all stages."""
        return int(np.sum(self.history["evaluations"]))


@dataclass(kw_only=True, repr=False)
class AffineResult(StagedResult):
    """The result of `AffineIndependentAscent.run`.

    `history` has arrays [steps], one entry per iteration, the starting points included: "step",
    "seconds", "elbo" (the best bound so far in this stage, in nats), "evaluations" (of the bound
    and its gradient, since the entry before) and "stage" (0 while q is Gaussian, 1 for the
    affine-independent q). `gain` is never negative unless the run was told to keep a worse q
    (`keep_better=False`).

    Example::

        result = AffineIndependentAscent().run(model)
        print(result)                        # bounds, evaluations, seconds, why it stopped
        print(result.gain, "nats above the best Gaussian")
    """

    tracing_seconds: float
    """The part of `seconds` that went by until the compiled functions had run once."""
    gaussian_seconds: float
    """The part of `seconds` that the Gaussian stage took, without its compilation."""
    affine_elbo: float
    """The bound of the best affine-independent q, in nats. It can be below `gaussian_elbo` where
    the family of the base distribution does not contain the normal distribution, or where the
    shapes are fixed."""
    kept: str
    """Which q the model was left with: "affine", or "gaussian" where that one has the greater
    bound.
    """
    predicted_gain: float
    """The gain over the Gaussian bound that the starting point predicts by (A19), in nats; NaN
    where no rule is known for the base distribution."""
    resolution: float
    """By how much the bound changes with twice the frequencies or grid points, in nats."""
    turns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The bound after each turn of an ascent in turns, in nats, with the frequencies or grid points
    of the last climb; empty where A, b and the shapes were climbed together."""

    def __str__(self) -> str:
        """One line: bounds, evaluations, time and why the run ended."""
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; affine {self.affine_elbo:.6g}, Gaussian"
            f" {self.gaussian_elbo:.6g}), {self.evaluations} evaluations in {self.seconds:.2f} s,"
            f" stopped: {self.reason}"
        )


def stage_record(recorder: Recorder, stage: int) -> StageRecord:
    """What one stage writes its steps with, into a record with the columns "elbo", "evaluations"
    and "stage".
    """

    def record(elbo: float, evaluations: int) -> None:
        recorder.append(len(recorder), elbo=elbo, evaluations=evaluations, stage=stage)

    return record
