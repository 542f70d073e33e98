"""What a run of affine-independent inference leaves behind."""

from __future__ import annotations

__all__ = ["AffineResult", "AffineTrace"]

import time
from dataclasses import dataclass, field

import numpy as np


@dataclass
class AffineResult:
    """The record of a run of `AffineIndependentAscent`.

    `history` has arrays [steps], one entry an iteration, starts included: "step", "seconds", "elbo" (the best bound so far of
    its stage, in nats), "evaluations" (since the entry before) and "stage" (0 for the Gaussian q, 1 for the other).
    """

    history: dict[str, np.ndarray]
    seconds: float
    """Wall-clock time, compilation included."""
    tracing_seconds: float
    """Of these, until compiled functions had run once."""
    gaussian_seconds: float
    """Of these, for the Gaussian stage, its compilation left out."""
    stop_reason: str
    gaussian_elbo: float
    """The bound of the best Gaussian q found, in nats."""
    affine_elbo: float
    """The bound of the affine-independent q as it was found, in nats; it may be less where the base has no normal in it."""
    elbo: float
    """The bound of the model as it was left, in nats."""
    kept: str
    """"affine", or "gaussian" where that had the greater bound: then the model has a normal base."""
    predicted_gain: float
    """(A19) and its like, in nats: what the start expected of the base beside the Gaussian; NaN where no rule is known."""
    resolution: float
    """By how much the bound moves with twice the frequencies or points, in nats."""

    @property
    def gain(self) -> float:
        """How much the bound of the model is above that of the Gaussian, in nats; never negative."""
        return self.elbo - self.gaussian_elbo

    @property
    def evaluations(self) -> int:
        """Of the bound and its gradient, both stages."""
        return int(np.sum(self.history["evaluations"]))

    def __str__(self) -> str:
        """One line: bounds, evaluations, time and why it stopped."""
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; affine {self.affine_elbo:.6g}, Gaussian {self.gaussian_elbo:.6g}), "
            f"{self.evaluations} evaluations in {self.seconds:.2f} s, stopped: {self.stop_reason}"
        )


@dataclass
class AffineTrace:
    """The record while it grows."""

    stage: int = 0
    rows: list[tuple] = field(default_factory=list)
    began: float = field(default_factory=lambda: time.perf_counter())
    tracing: float = 0.0

    def append(self, elbo: float, evaluations: int = 0) -> None:
        """One entry: the bound in nats, and the evaluations that it took."""
        self.rows.append((len(self.rows), time.perf_counter() - self.began, elbo, evaluations, self.stage))

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.began

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Arrays [steps]."""
        columns = np.array(self.rows, dtype=float).reshape(-1, 5).T
        return dict(zip(("step", "seconds", "elbo", "evaluations", "stage"), columns))
