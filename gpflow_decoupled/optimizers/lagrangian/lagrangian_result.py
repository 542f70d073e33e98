"""What a run of an optimizer of the multipliers returns, and the record from which it is made."""

from __future__ import annotations

__all__ = ["LagrangianRecord", "LagrangianResult", "warn_of_gap"]

from dataclasses import dataclass

import numpy as np

from ...user_warnings import warn_user
from ..ascent import STUCK
from ..results import Recorder, RunResult


@dataclass(kw_only=True, repr=False)
class LagrangianResult(RunResult):
    """The record of a run of `LinearlyConstrainedLagrangian`, `CholeskyKL`, `OpperArchambeau` or
    `ConstraintSubset`.

    `steps` counts outer iterations, or iterations of L-BFGS. `history` has arrays [steps + 1],
    whose first entry is the start: "step", "seconds", "elbo" (the bound in nats), "inner_steps"
    (Newton steps, or evaluations of the bound, since the entry before) and "gap" (the duality gap
    of the subproblem in nats, NaN where there is none). `elbo` is the bound at
    which the model was left, the best one that the run found. Example::

        result = LinearlyConstrainedLagrangian().run(model)
        print(result.elbo, result.converged, result.history["elbo"])
    """

    @property
    def inner_steps(self) -> int:
        """Newton steps, or evaluations of the bound, in all."""
        return int(np.sum(self.history["inner_steps"]))

    def __str__(self) -> str:
        """One line: steps, time, bound and why the run ended."""
        return (
            f"{self.steps} outer, {self.inner_steps} inner steps in {self.seconds:.2f} s, ELBO"
            f" {self.elbo:.6g}, stopped: {self.reason}"
        )


class LagrangianRecord(Recorder):
    """The history of a run over multipliers while it grows."""

    def __init__(self) -> None:
        super().__init__("elbo", "inner_steps", "gap")

    def add(self, elbo: float, inner_steps: int = 0, gap: float = float("nan")) -> None:
        """Record the bound in nats, and what it took since the entry before."""
        self.append(len(self), elbo=elbo, inner_steps=inner_steps, gap=gap)

    def result(self, converged: bool, reason: str, elbo: float | None = None) -> LagrangianResult:
        """What the run returns; `elbo` is the bound of the model, where it is not the best one of
        the history.
        """
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
    """Warn where no step raised the bound any more although the last subproblem has not been
    solved.

    :param tolerance: of the run; a duality gap up to it needs no warning, in nats.
    """
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
