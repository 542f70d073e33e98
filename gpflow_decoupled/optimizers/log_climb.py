"""L-BFGS over hyperparameters, by default over their logarithms."""

from __future__ import annotations

__all__ = ["FAR", "SETTLED", "climb_logarithms"]

import itertools
import time
from collections.abc import Callable

import numpy as np

from ..lbfgs import CONVERGED, TIME_IS_UP, LBFGSRun, Objective, lbfgs_ascent, settled
from ..replicas import Group
from .log_coordinates import LogCoordinates

FAR = 12.0
"""Most that a logarithm moves in a climb: what is irrelevant goes far, and not to overflow."""
SETTLED = 1e-5
"""Nats per row of data that are worth three more iterations where rows are sampled."""


def climb_logarithms(
    objective: Objective,
    coordinates: LogCoordinates,
    num_data: int,
    *,
    evaluations: int,
    rise: np.ndarray | float = np.inf,
    fall: np.ndarray | float = FAR,
    deadline: float = float("inf"),
    show: Callable[[str], object] | None = None,
    name: str = "L-BFGS",
    tolerance: float = SETTLED,
    window: int = 3,
    keep: bool = True,
    group: Group | None = None,
    matrix: str = "K_cc",
    shift: float = 0.0,
) -> LBFGSRun:
    """Climb from the present Parameters, and leave them at the best point.

    :param objective: nats and their gradient at a vector [n], see `LogObjective`.
    :param coordinates: of the vector.
    :param num_data: N: L-BFGS sees nats per row.
    :param evaluations: approximate limit.
    :param rise: most that entries of the vector rise, one number or [n].
    :param fall: most that logarithms fall, one number or [n].
    :param deadline: a value of `time.perf_counter`: no iteration begins that would end later.
    :param show: shows a line after each iteration, with `name`.
    :param tolerance: ends the climb where `window` iterations gained less, in nats per row of data.
    :param keep: an interrupt ends the climb with its best point instead of raising.
    :param group: the workers; the first one's clock counts.
    :param matrix: the one that an error names.
    :param shift: nats by which shown values are less, for data in other units.
    :return: the run, in nats; its reason may be "time is up".
    :raises NumericalError: if the objective is not finite at the start.
    """
    workers = group or Group()
    start, reach = coordinates.pack(), np.where(coordinates.is_log, FAR, np.inf)
    has_settled, total = settled(tolerance, window), itertools.count()

    last, is_late = [0.0], False  # seconds of the last evaluation

    def per_row(x: np.ndarray) -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        value, gradient = objective(x)
        last[0] = time.perf_counter() - began
        return value / num_data, gradient / num_data

    def is_over(values: list[float]) -> bool:
        nonlocal is_late
        if has_settled(values):
            return True
        is_late = workers.is_over(deadline - last[0])
        return is_late

    def report(value: float, _: int) -> None:
        if show is not None:
            show(f"{name}, iteration {next(total)}, {value * num_data - shift:.6g} nats")

    run = lbfgs_ascent(
        per_row,
        start,
        is_over,
        evaluations,
        low=start - np.where(coordinates.is_log, fall, np.inf),
        high=start + np.minimum(reach, rise),
        record=report,
        keep=keep,
        advice="standardise X and Y, or start from a larger noise variance.",
        matrix=matrix,
        flat=tolerance,
    )
    coordinates.assign(run.x)
    if is_late and run.reason == CONVERGED:  # to L-BFGS both are an end that was asked for
        run = run._replace(converged=False, reason=TIME_IS_UP)
    nats = {name: getattr(run, name) * num_data for name in ("value", "start", "rise")}
    return run._replace(**nats)
