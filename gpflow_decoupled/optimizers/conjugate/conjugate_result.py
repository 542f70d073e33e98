"""Result of conjugate computation, and its recorder."""

from __future__ import annotations

__all__ = ["ConjugateRecorder", "ConjugateResult", "warn_of_steps"]

from dataclasses import dataclass

import numpy as np

from ...user_warnings import warn_user
from ..ascent import INTERRUPTED
from ..results import Recorder, RunResult

_RISE = 1e-3
"""Nats by which the last step of a run has to raise the bound for a warning."""


@dataclass(kw_only=True, repr=False)
class ConjugateResult(RunResult):
    """Result of `ConjugateComputation.run`, `sweep` or `MeanFieldCVI.run`.

    `history` has one entry per kept step: "step", "seconds", "step_size", "change" (squared
    distance of the sites, or messages, from a full step) and "elbo" (nats; on minibatches at the
    end of each epoch, else NaN).

    Example::

        result = ConjugateComputation().run(model)
        print(result)
        plt.plot(result.history["seconds"], result.history["elbo"])
    """

    shortened_steps: int = 0
    """Number of halvings, for a posterior to exist or because the bound had fallen."""
    clipped_sites: int = 0
    """Negative precisions replaced by zero, over all steps."""

    def __str__(self) -> str:
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return super().__str__() + extra


class ConjugateRecorder(Recorder):
    """The history of a running optimizer, with the counts of a `ConjugateResult`."""

    def __init__(self) -> None:
        super().__init__("step_size", "change", "elbo")
        self.shortened = 0
        self.clipped = 0

    def add(self, step_size: float, change: float, elbo: float, clipped: int = 0) -> None:
        """Record a kept step; `elbo` is NaN if not computed."""
        self.append(len(self) + 1, step_size=step_size, change=change, elbo=elbo)
        self.clipped += clipped

    def result(self, reason: str, elbo: float | None = None) -> ConjugateResult:
        """Return the result; `elbo` is by default the last bound recorded."""
        if elbo is None:
            bounds = self.history["elbo"]
            known = bounds[np.isfinite(bounds)]
            elbo = float(known[-1]) if len(known) else float("nan")
        return self.finish(
            ConjugateResult,
            elbo,
            reason,
            shortened_steps=self.shortened,
            clipped_sites=self.clipped,
        )


def warn_of_steps(result: ConjugateResult) -> None:
    """Warn if a run has used up its steps while the bound was still rising."""
    bounds = result.history["elbo"]
    if result.converged or result.reason == INTERRUPTED or len(bounds) < 2:
        return
    rise = float(bounds[-1] - bounds[-2])
    if rise > _RISE:
        warn_user(
            f"The sites have not converged: the last of {result.steps} steps raised the bound by"
            f" {rise:.2g} nats, to {result.elbo:.6g}, and {result.shortened_steps} were halved. Run"
            " the optimizer again, which goes on from here, or give it more steps."
        )
