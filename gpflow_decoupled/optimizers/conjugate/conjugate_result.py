"""What a run of conjugate computation returns, and the record from which it is made."""

from __future__ import annotations

__all__ = ["ConjugateRecorder", "ConjugateResult"]

from dataclasses import dataclass

import numpy as np

from ..results import Recorder, RunResult


@dataclass(kw_only=True, repr=False)
class ConjugateResult(RunResult):
    """The record of `ConjugateComputation.run`, `sweep` or `MeanFieldCVI.run`, whose messages are
    sites too.

    The arrays of `history` have one entry per step that was kept: "step", "seconds", "step_size",
    "change" (the squared distance of the sites from where a full step leads, summed over all sites)
    and "elbo" (nats). On minibatches the bound is computed at the end of each epoch, and is NaN
    elsewhere; `elbo` is the last one that was computed.

    Example::

        result = ConjugateComputation().run(model)
        print(result)
        plt.plot(result.history["seconds"], result.history["elbo"])
    """

    shortened_steps: int = 0
    """How often a step was halved: to end at a distribution, or because the bound had fallen."""
    clipped_sites: int = 0
    """How many negative precisions were replaced by zero, summed over the steps."""

    def __str__(self) -> str:
        """One line: steps, time, bound, why the run ended, and how many steps and sites were
        changed.
        """
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return super().__str__() + extra


class ConjugateRecorder(Recorder):
    """The history of a run while it grows, with the two counts of a `ConjugateResult`."""

    def __init__(self) -> None:
        super().__init__("step_size", "change", "elbo")
        self.shortened = 0
        self.clipped = 0

    def add(self, step_size: float, change: float, elbo: float, clipped: int = 0) -> None:
        """Record a step that was kept; `elbo` is NaN where the bound was not computed."""
        self.append(len(self) + 1, step_size=step_size, change=change, elbo=elbo)
        self.clipped += clipped

    def result(self, reason: str, elbo: float | None = None) -> ConjugateResult:
        """What the run returns; `elbo` is the bound at its end, by default the last one that was
        recorded.
        """
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
