"""What the linear solves of a mean on all data take and return, whatever solves them."""

from __future__ import annotations

__all__ = [
    "TIME_IS_UP",
    "MeanSolution",
    "Point",
    "Report",
    "Solve",
    "best_of",
    "check_gap",
    "point_of",
]

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ...errors import NumericalError
from .system import MeanSystem

Report = Callable[[int, float, float], None]
"""Called with the number of products so far, the share of the next one that is done, and the gap in
nats, or an estimate.
"""

TIME_IS_UP = "time is up"


@dataclass
class MeanSolution:
    """Coefficients [N, L], and how good they are."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Nats: the bound is at most so far below its maximum over the mean; an estimate where it is
    not `certified`.
    """
    products: int
    """Products with K, those with batches of its rows counted as their share of one."""
    gaps: list[float]
    """The gap at the start, and each time that it was computed; the last entry is `gap`."""
    certified: bool = field(default=True, kw_only=True)
    """Whether the residual is that of a product in full precision, and not the one that a recursion
    carries along.
    """
    reason: str
    """"converged", "time is up", "interrupted", or what was used up: "products done", "epochs
    done".
    """


class Solve(Protocol):
    """Solves the linear system of a mean on all data, better than it is solved at the start."""

    def __call__(
        self,
        system: MeanSystem,
        start: tf.Tensor,
        K_start: tf.Tensor,
        *,
        deadline: float,
        report: Report,
    ) -> MeanSolution:
        """Solve (K + D) a = y~.

        :param system: the system.
        :param start: a [N, L], as found for a similar system, or zeros.
        :param K_start: K a of the start [N, L].
        :param deadline: a value of `time.perf_counter` after which nothing is begun but what
            certifies the result.
        :param report: shows progress.
        :raises NumericalError: if a product with the kernel matrix has overflowed.
        """


class Point(NamedTuple):
    """Coefficients on the way to a solution, whose residual is known."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Nats."""
    bound: float
    """The bound in nats, up to a constant, (D32)."""
    certified: bool
    """Whether the residual is that of a product in full precision."""


def point_of(
    system: MeanSystem, a: tf.Tensor, residual: tf.Tensor, certified: bool = True
) -> Point:
    """Coefficients [N, L] of a system and their residual [N, L], with what they are worth."""
    gap = system.gap(residual)
    dual = -0.5 * float(tf.reduce_sum(a * (system.target + residual)))
    return Point(a, residual, gap, system.group.first(dual) - gap, certified)  # (D32)


def best_of(points: list[Point], tolerance: float) -> Point:
    """The last one if its gap is within the tolerance, else the one with the highest bound: none is
    below the first.
    """
    return points[-1] if points[-1].gap <= tolerance else max(points, key=lambda point: point.bound)


def check_gap(gap: float) -> None:
    """Refuse a gap in nats that is not a finite number; raises `NumericalError`."""
    if not np.isfinite(gap):
        raise NumericalError(
            "A product with the kernel matrix is not finite: standardise X and Y, or pass"
            " float32=False.",
            "K",
        )
