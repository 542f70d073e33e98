"""What a run of conjugate computation leaves behind."""

from __future__ import annotations

__all__ = ["ConjugateResult", "Record"]

from dataclasses import dataclass, field

import numpy as np


@dataclass
class ConjugateResult:
    """The record of `ConjugateComputation.run` and of `MeanFieldCVI.run`, whose messages are sites too.

    `history` has arrays [steps], one entry an accepted step: "step", "seconds", "rho", "change" (squared change of the
    sites over the step size, sum over sites) and "elbo" (nats); on minibatches the bound is there at the ends of epochs,
    else NaN.
    """

    history: dict[str, np.ndarray]
    steps: int
    seconds: float
    """Wall-clock time, compilation included."""
    stop_reason: str
    shortened_steps: int = 0
    """How often a step was halved, to stay feasible or because the bound fell."""
    clipped_sites: int = 0
    """Negative site precisions that were clipped, summed over steps."""

    @property
    def elbo(self) -> float:
        """The last bound that was computed, in nats."""
        known = self.history["elbo"][np.isfinite(self.history["elbo"])]
        return float(known[-1]) if len(known) else float("nan")

    def __str__(self) -> str:
        """One line: steps, time, bound and why it stopped."""
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return f"{self.steps} steps in {self.seconds:.2f} s, ELBO {self.elbo:.6g}, stopped: {self.stop_reason}{extra}"


@dataclass
class Record:
    """The record while it grows."""

    rows: list[tuple] = field(default_factory=list)
    shortened: int = 0
    clipped: int = 0

    def append(self, seconds: float, rho: float, change: float, elbo: float, clipped: int) -> None:
        """One accepted step."""
        self.rows.append((len(self.rows) + 1, seconds, rho, change, elbo))
        self.clipped += clipped

    def result(self, seconds: float, reason: str) -> ConjugateResult:
        """What the run returns."""
        columns = np.array(self.rows).reshape(-1, 5).T
        history = dict(zip(("step", "seconds", "rho", "change", "elbo"), columns))
        return ConjugateResult(history, len(self.rows), seconds, reason, self.shortened, self.clipped)
