"""The loop of optimizers that watch the bound."""

from __future__ import annotations

__all__ = [
    "CONVERGED",
    "INTERRUPTED",
    "STUCK",
    "Ascent",
    "Climber",
    "ascend",
    "has_fallen",
    "round_off",
]

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from ..lbfgs import CONVERGED, INTERRUPTED
from .steps import MAX_HALVINGS

STUCK = "the bound does not rise any more"
_ROUND_OFF = 1e-10

Point = TypeVar("Point")
"""A q: its parameters, its bound, and anything that the next step needs."""


class Climber(Protocol[Point]):
    """The interface of an optimizer for `ascend`."""

    def propose(self, now: Point, step: int, share: float) -> Point:
        """Return the point after `share` of step number `step` from `now`."""

    def accept(self, now: Point, then: Point) -> bool:
        """Decide whether `then` replaces `now`; if so, write it to the model and record it."""

    def converged(self, now: Point) -> bool:
        """True if `now`, the start or an accepted proposal, can end the run."""


@dataclass(frozen=True)
class Ascent(Generic[Point]):
    """The end of a run of `ascend`."""

    now: Point
    """The last accepted point, or the start."""
    share: float
    """The share of its step size that the next step would take."""
    refused: Point | None
    """The last proposal, if refused."""
    reason: str
    """The reason, in words."""


def ascend(
    climber: Climber[Point],
    start: Point,
    steps: Iterable[int],
    *,
    max_halvings: int = MAX_HALVINGS,
    spent: str = "steps done",
) -> Ascent[Point]:
    """Step until the climber has converged, steps are used up, or none is accepted.

    :param steps: numbers, a progress bar for example; refused steps count too.

    :return: the last point and the reason: `CONVERGED`, `STUCK` or `spent`.
    """
    # 1. Propose a step of `share` times the step size, initially 1.
    # 2. If accepted, go on from there, and double the share up to 1.
    # 3. If not, halve the share. Give up below 2^-max_halvings.
    now, share, refused = start, 1.0, None
    if climber.converged(now):
        return Ascent(now, share, refused, CONVERGED)
    for step in steps:
        then = climber.propose(now, step, share)
        if climber.accept(now, then):
            now, share, refused = then, min(1.0, 2.0 * share), None
            if climber.converged(now):
                return Ascent(now, share, refused, CONVERGED)
        else:
            share, refused = 0.5 * share, then
            if share < 0.5**max_halvings:
                return Ascent(now, share, refused, STUCK)
    return Ascent(now, share, refused, spent)


def round_off(dtype: tf.DType) -> float:
    """Relative decrease of a bound that is round-off: 1000 machine epsilons, at least 1e-10."""
    return max(_ROUND_OFF, 1e3 * float(np.finfo(dtype.as_numpy_dtype).eps))


def has_fallen(
    before: float, after: float, *, relative: float = _ROUND_OFF, absolute: float = 0.0
) -> bool:
    """True if a bound in nats has fallen by more than `relative` of itself plus `absolute`, or is
    NaN.
    """
    return not after >= before - (relative * abs(before) + absolute)
