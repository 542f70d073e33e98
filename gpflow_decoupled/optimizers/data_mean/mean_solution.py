"""Arguments and results of linear solves."""

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
from ...lbfgs import TIME_IS_UP
from .system import MeanSystem

Report = Callable[[int, float, float], None]
"""Called with the products so far, the share done of the next, and the gap or estimate in nats."""


@dataclass
class MeanSolution:
    """Coefficients a [N, L] and their accuracy."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Bound of the distance from the maximum, in nats; an estimate if not `certified`."""
    products: int
    """Products with K; batches of rows count as their share."""
    gaps: list[float]
    """All gaps computed, from the start's to `gap`."""
    certified: bool = field(default=True, kw_only=True)
    """True if the residual comes from a product in full precision rather than a recursion."""
    reason: str
    """"converged", "time is up", "interrupted", "products done" or "epochs done"."""


class Solve(Protocol):
    """Solves the linear system of a mean on all data, from a start."""

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

        :param start: a [N, L], from a similar system, or zeros; `K_start` is K a of it [N, L].
        :param deadline: a value of `time.perf_counter` after which only the certificate is
            computed.
        """


class Point(NamedTuple):
    """Coefficients of an iteration, with their residual."""

    a: tf.Tensor
    """[N, L]"""
    residual: tf.Tensor
    """y~ - (K + D) a [N, L]."""
    gap: float
    """Nats."""
    bound: float
    """The bound in nats, up to a constant, at least; for several draws less their largest gap."""
    certified: bool
    """True if the residual comes from a product in full precision."""


def point_of(
    system: MeanSystem, a: tf.Tensor, residual: tf.Tensor, certified: bool = True
) -> Point:
    """Coefficients a [N, L] and their residual [N, L], with gap and bound."""
    gap = system.gap(residual)
    if system.draws > 1:  # the gap is the largest of a draw, which no sum over draws goes with
        return Point(a, residual, gap, -gap, certified)
    dual = -0.5 * float(tf.reduce_sum(a * (system.target + residual)))
    return Point(a, residual, gap, system.group.first(dual) - gap, certified)  # (D32)


def best_of(points: list[Point], tolerance: float) -> Point:
    """Return the highest bound."""
    last, best = points[-1], max(points, key=lambda point: point.bound)
    if best is last or last.gap > tolerance or not (last.certified and best.certified):
        return best
    # The maximum is at most last.bound + last.gap: the gap of a start with a higher bound is small
    # too, however loose its own certificate is.
    return best._replace(gap=max(last.gap - (best.bound - last.bound), 0.0))


def check_gap(gap: float) -> None:
    """Raise `NumericalError` for a gap that is not finite."""
    if not np.isfinite(gap):
        raise NumericalError(
            "A product with the kernel matrix is not finite: standardise X and Y, or pass"
            " float32=False.",
            "K",
        )
