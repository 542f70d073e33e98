"""What a run leaves behind."""

from __future__ import annotations

__all__ = ["FitResult", "History"]

from collections import defaultdict
from dataclasses import dataclass

import numpy as np


class History:
    """Traces of a run: one list a quantity, each with the steps at which it was recorded."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)

    def append(self, **values: float) -> None:
        """Record quantities of one step."""
        for name, value in values.items():
            self._values[name].append(float(value))

    def arrays(self) -> dict[str, np.ndarray]:
        """The traces as arrays."""
        return {name: np.asarray(values) for name, values in self._values.items()}

    def tail(self, name: str, count: int) -> list[float]:
        """The last `count` values of a quantity, or as many as there are."""
        return self._values[name][-count:] if name in self._values else []

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from saved traces."""
        self._values.clear()
        for name, values in arrays.items():
            self._values[name] = [float(value) for value in values]


@dataclass
class FitResult:
    """The record of a run of `fit`.

    `history["step"]`, `["seconds"]`, `["elbo"]` have one entry a step, the bound in nats of the whole data set,
    estimated from the step's minibatch; `["evaluation_step"]`, `["rmse"]`, `["log_density"]` one an evaluation, the log
    density in nats per observation.
    """

    history: dict[str, np.ndarray]
    steps: int
    seconds: float
    """Wall-clock time of the training steps; compilation and evaluations are not in it."""
    compile_seconds: float
    stop_reason: str
    shortened_steps: int = 0
    """Natural-gradient steps that were shortened to stay feasible."""
    clipped_sites: int = 0
    """Observations whose negative precision was clipped, summed over steps."""
    refreshes: int = 0
    """How often the frozen scaling of the mean coefficients was brought up to date."""

    def __str__(self) -> str:
        """One line: steps, time, reason, and the mean bound of the last steps."""
        bound = float(np.mean(self.history["elbo"][-20:])) if self.steps else float("nan")
        pace = 1e3 * self.seconds / max(1, self.steps)
        line = f"{self.steps} steps in {self.seconds:.1f} s ({pace:.1f} ms a step), ELBO about {bound:.4g}, stopped: "
        extra = f", {self.shortened_steps} shortened steps" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return line + self.stop_reason + extra
