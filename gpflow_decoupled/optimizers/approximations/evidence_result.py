"""What a run of expectation propagation or of Laplace's approximation returns."""

from __future__ import annotations

__all__ = ["EvidenceRecorder", "EvidenceResult", "attainable"]

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ..results import Recorder, RunResult


@dataclass(kw_only=True, repr=False)
class EvidenceResult(RunResult):
    """The record of `ExpectationPropagation.run` or `LaplaceApproximation.run`.

    `history` has arrays [steps] with one entry per step that was kept: "step", "seconds",
    "step_size", "change" (what the
    tolerance is compared with), "evidence_estimate" and "elbo" (nats, at the sites after the step).
    Example::

        result = ExpectationPropagation().run(model)
        print(result.evidence_estimate, result.elbo, result.converged)
    """

    evidence_estimate: float
    """The log evidence in nats as the method estimates it. This is not a bound: it may be above the
    truth or below. NaN where a cavity of expectation propagation has no variance."""
    shortened_steps: int = 0
    """How often a step was halved."""
    skipped_sites: int = 0
    """How many updates of a site were left out because its cavity had no variance, summed over the
    steps.
    """
    clipped_sites: int = 0
    """How many sites of the final q(f) have a precision of zero in the place of a negative one."""

    def __str__(self) -> str:
        """One line: steps, time, estimate, bound, why the run ended, and how many sites were
        changed.
        """
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.skipped_sites} skipped sites" if self.skipped_sites else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return (
            f"{self.steps} steps in {self.seconds:.2f} s, log evidence estimated as"
            f" {self.evidence_estimate:.6g} (no bound), ELBO {self.elbo:.6g}, stopped:"
            f" {self.reason}{extra}"
        )


def attainable(tolerance: float, dtype: tf.DType) -> float:
    """The tolerance, or 64 units of round-off if that is more."""
    return max(tolerance, 64.0 * float(np.finfo(dtype.as_numpy_dtype).eps))


class EvidenceRecorder(Recorder):
    """The history of a run while it grows, with the counts of an `EvidenceResult`."""

    def __init__(self) -> None:
        super().__init__("step_size", "change", "evidence_estimate", "elbo")
        self.shortened = 0
        self.skipped = 0

    def add(self, step_size: float, change: float, evidence: float, elbo: float) -> None:
        """Record a step that was kept."""
        self.append(
            len(self) + 1, step_size=step_size, change=change, evidence_estimate=evidence, elbo=elbo
        )

    def result(self, reason: str, evidence: float, elbo: float, clipped: int = 0) -> EvidenceResult:
        """What the run returns, with estimate and bound at its end."""
        return self.finish(
            EvidenceResult,
            elbo,
            reason,
            evidence_estimate=evidence,
            shortened_steps=self.shortened,
            skipped_sites=self.skipped,
            clipped_sites=clipped,
        )
