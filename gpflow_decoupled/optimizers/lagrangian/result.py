"""What a run of an optimizer of the multipliers leaves behind."""

from __future__ import annotations

__all__ = ["LagrangianResult", "Trace"]

import time
from dataclasses import dataclass, field

import numpy as np


@dataclass
class LagrangianResult:
    """The record of a run: of `LinearlyConstrainedLagrangian`, `Opper` or `Cholesky`.

    `history` has arrays [steps], one entry an outer iteration, the start included: "step", "seconds", "elbo" (the true bound
    in nats), "inner_steps" (Newton steps or evaluations since the entry before) and "gap" (the duality gap of the
    subproblem in nats, NaN where there is none).
    """

    history: dict[str, np.ndarray]
    seconds: float
    """Wall-clock time, compilation included."""
    stop_reason: str
    elbo: float
    """The best bound, in nats: that of the model as it was left."""

    @property
    def inner_steps(self) -> int:
        """Newton steps, or evaluations, in all."""
        return int(np.sum(self.history["inner_steps"]))

    @property
    def steps(self) -> int:
        """Outer iterations."""
        return len(self.history["step"]) - 1

    def __str__(self) -> str:
        """One line: steps, time, bound and why it stopped."""
        return (
            f"{self.steps} outer, {self.inner_steps} inner steps in {self.seconds:.2f} s, ELBO {self.elbo:.6g}, stopped: "
            f"{self.stop_reason}"
        )


@dataclass
class Trace:
    """The record while it grows."""

    rows: list[tuple] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def append(self, elbo: float, inner_steps: int = 0, gap: float = float("nan")) -> None:
        """One entry: the bound in nats, and what it took."""
        self.rows.append((len(self.rows), time.perf_counter() - self.began, elbo, inner_steps, gap))

    def result(self, reason: str) -> LagrangianResult:
        """What the run returns."""
        columns = np.array(self.rows, dtype=float).reshape(-1, 5).T
        history = dict(zip(("step", "seconds", "elbo", "inner_steps", "gap"), columns))
        best = float(np.nanmax(history["elbo"])) if len(self.rows) else float("nan")
        return LagrangianResult(history, time.perf_counter() - self.began, reason, best)
