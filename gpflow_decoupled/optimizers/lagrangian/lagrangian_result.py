"""Result and record of a run over multipliers."""

from __future__ import annotations

__all__ = ["LagrangianRecord", "LagrangianResult", "warn_of_gap"]

from dataclasses import dataclass

import numpy as np

from ...user_warnings import warn_user
from ..ascent import STUCK
from ..results import Recorder, RunResult


@dataclass(kw_only=True, repr=False)
class LagrangianResult(RunResult):
    """Result of the optimizers of an `LCLGP`.

    `history` has arrays [steps + 1] that begin with the start: "step", "seconds", "elbo" (nats),
    "inner_steps" (Newton steps or evaluations) and "gap" (duality gap in nats, or NaN).

    Example::

        result = LinearlyConstrainedLagrangian().run(model)
        print(result.elbo, result.converged, result.history["elbo"])
    """

    @property
    def inner_steps(self) -> int:
        """Total Newton steps, or evaluations of the bound."""
        return int(np.sum(self.history["inner_steps"]))

    def __str__(self) -> str:
        return (
            f"{self.steps} outer, {self.inner_steps} inner steps in {self.seconds:.2f} s, ELBO"
            f" {self.elbo:.6g}, stopped: {self.reason}"
        )


class LagrangianRecord(Recorder):
    """The history of a running optimizer of multipliers."""

    def __init__(self) -> None:
        super().__init__("elbo", "inner_steps", "gap")

    def add(self, elbo: float, inner_steps: int = 0, gap: float = float("nan")) -> None:
        """Record the bound in nats, and the cost since the entry before."""
        self.append(len(self), elbo=elbo, inner_steps=inner_steps, gap=gap)

    def result(self, converged: bool, reason: str, elbo: float | None = None) -> LagrangianResult:
        """Return the result; `elbo` is by default the best of the history."""
        history = self.history
        best = elbo
        if best is None:
            best = float(np.nanmax(history["elbo"])) if len(self) else float("nan")
        return LagrangianResult(
            elbo=best,
            steps=len(self) - 1,
            seconds=self.seconds,
            history=history,
            converged=converged,
            reason=reason,
        )


def warn_of_gap(result: LagrangianResult, tolerance: float) -> None:
    """Warn if the run got stuck at a duality gap above `tolerance` nats."""
    gaps = result.history["gap"]
    last = float(np.append(0.0, gaps[~np.isnan(gaps)])[-1])
    if result.reason != STUCK or abs(last) <= tolerance:
        return
    warn_user(
        f"The run ended at a bound of {result.elbo:.6g} nats, which is not the best one: no step"
        f" raised it any more, but a duality gap of {last:.3g} nats says that the last subproblem"
        " was not solved. Go on from here with CholeskyKL, which maximises the bound itself, or"
        ' with LinearlyConstrainedLagrangian(inner="lbfgs").',
    )
