"""Result of a run of affine-independent inference."""

from __future__ import annotations

__all__ = ["AffineResult", "StageRecord", "StagedResult", "stage_record"]

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..results import Recorder, RunResult

StageRecord = Callable[[float, int], None]
"""Records a step: the best bound so far in nats, and the evaluations since the last step."""


@dataclass(kw_only=True, repr=False)
class StagedResult(RunResult):
    """A run that begins with the best Gaussian q; `history` adds "evaluations" [steps]."""

    gaussian_elbo: float
    """The bound of the best Gaussian q, in nats."""

    @property
    def gain(self) -> float:
        """`elbo` minus the bound of the best Gaussian q, in nats."""
        return self.elbo - self.gaussian_elbo

    @property
    def evaluations(self) -> int:
        """Evaluations of the bound and its gradient, in all stages."""
        return int(np.sum(self.history["evaluations"]))


@dataclass(kw_only=True, repr=False)
class AffineResult(StagedResult):
    """Result of `AffineIndependentAscent.run`.

    `history` has arrays [steps]: "step", "seconds", "elbo" (the stage's best bound so far, in
    nats), "evaluations" and "stage" (0 Gaussian, 1 affine-independent).

    Example::

        result = AffineIndependentAscent().run(model)
        print(result)                        # bounds, evaluations, seconds, why it stopped
        print(result.gain, "nats above the best Gaussian")
    """

    tracing_seconds: float
    """Part of `seconds` until the compiled functions had run once."""
    gaussian_seconds: float
    """Part of `seconds` of the Gaussian stage, without compilation."""
    affine_elbo: float
    """Bound of the best affine-independent q, in nats; below `gaussian_elbo` at most for a family
    without the normal distribution, or fixed shapes.
    """
    kept: str
    """The q left in the model: "affine", or "gaussian" if its bound is greater."""
    predicted_gain: float
    """Predicted gain over the Gaussian bound, in nats; NaN without a rule for the base."""
    resolution: float
    """Change of the bound with doubled frequencies or grid points, in nats."""
    turns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The bound after each turn, in nats; empty unless in turns."""

    def __str__(self) -> str:
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; affine {self.affine_elbo:.6g}, Gaussian"
            f" {self.gaussian_elbo:.6g}), {self.evaluations} evaluations in {self.seconds:.2f} s,"
            f" stopped: {self.reason}"
        )


def stage_record(recorder: Recorder, stage: int) -> StageRecord:
    """Return a stage's record function, for the columns "elbo", "evaluations" and "stage"."""

    def record(elbo: float, evaluations: int) -> None:
        recorder.append(len(recorder), elbo=elbo, evaluations=evaluations, stage=stage)

    return record
