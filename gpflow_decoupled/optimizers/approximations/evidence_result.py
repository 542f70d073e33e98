"""Result of expectation propagation or Laplace's approximation."""

from __future__ import annotations

__all__ = ["EvidenceRecorder", "EvidenceResult", "attainable"]

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ..results import Recorder, RunResult


@dataclass(kw_only=True, repr=False)
class EvidenceResult(RunResult):
    """Result of `ExpectationPropagation.run` or `LaplaceApproximation.run`.

    `history` has arrays [steps], one entry per kept step: "step", "seconds", "step_size", "change"
    (compared with the tolerance), "evidence_estimate" and "elbo" (nats, after the step).

    Example::

        result = ExpectationPropagation().run(model)
        print(result.evidence_estimate, result.elbo, result.converged)
    """

    evidence_estimate: float
    """The method's estimate of the log evidence in nats, above or below the truth; NaN if an EP
    cavity has no variance.
    """
    shortened_steps: int = 0
    """Number of halved steps."""
    skipped_sites: int = 0
    """Site updates left out because a cavity had no variance, over all steps."""
    clipped_sites: int = 0
    """Sites of the final q(f) with a precision of zero for a negative one."""

    def __str__(self) -> str:
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.skipped_sites} skipped sites" if self.skipped_sites else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return (
            f"{self.steps} steps in {self.seconds:.2f} s, log evidence estimated as"
            f" {self.evidence_estimate:.6g} (no bound), ELBO {self.elbo:.6g}, stopped:"
            f" {self.reason}{extra}"
        )


def attainable(tolerance: float, dtype: tf.DType) -> float:
    """The tolerance, or 64 units of round-off if larger."""
    return max(tolerance, 64.0 * float(np.finfo(dtype.as_numpy_dtype).eps))


class EvidenceRecorder(Recorder):
    """The history of a running optimizer, with the counts of its result."""

    def __init__(self) -> None:
        super().__init__("step_size", "change", "evidence_estimate", "elbo")
        self.shortened = 0
        self.skipped = 0

    def add(self, step_size: float, change: float, evidence: float, elbo: float) -> None:
        """Record a kept step."""
        self.append(
            len(self) + 1, step_size=step_size, change=change, evidence_estimate=evidence, elbo=elbo
        )

    def result(self, reason: str, evidence: float, elbo: float, clipped: int = 0) -> EvidenceResult:
        """Return the result, with the final estimate and bound."""
        return self.finish(
            EvidenceResult,
            elbo,
            reason,
            evidence_estimate=evidence,
            shortened_steps=self.shortened,
            skipped_sites=self.skipped,
            clipped_sites=clipped,
        )
