"""Records in the units of the data."""

from __future__ import annotations

__all__ = ["result_in_units"]

from ..result import FitResult


def result_in_units(result: FitResult, shift: float, rows: int) -> FitResult:
    """Subtract `shift` nats, the log determinant of dY/dz of all rows, from the bounds of a run,
    and a row's share from scores of left-out rows.

    Scores of held-out rows are in units already, see `Evaluation.units`.
    """
    result.elbo -= shift
    if "elbo" in result.history:
        result.history["elbo"] = result.history["elbo"] - shift
    if "leave_one_out" in result.history:
        result.history["leave_one_out"] = result.history["leave_one_out"] - shift / rows
    if result.evidence is not None:
        result.evidence = result.evidence.shifted(-shift)
    return result
