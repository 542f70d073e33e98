"""Records in the units of the data."""

from __future__ import annotations

__all__ = ["result_in_units"]

from ..result import FitResult


def result_in_units(result: FitResult, shift: float) -> FitResult:
    """Subtract `shift` nats, the log determinant of dY/dz of all rows, from the bounds of a run.

    Scores of held-out rows are in units already, see `Evaluation.units`.
    """
    result.elbo -= shift
    if "elbo" in result.history:
        result.history["elbo"] = result.history["elbo"] - shift
    if result.evidence is not None:
        result.evidence = result.evidence.shifted(-shift)
    return result
