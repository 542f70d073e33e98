"""The loop of every optimizer that takes steps and watches the bound: halve a step that fails, let
later ones grow back.
"""

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

from .steps import MAX_HALVINGS

CONVERGED = "converged"
INTERRUPTED = "interrupted"
STUCK = "the bound does not rise any more"
_ROUND_OFF = 1e-10

Point = TypeVar("Point")
"""What an optimizer knows of one q: its parameters, its bound, and what the next step needs."""


class Climber(Protocol[Point]):
    """What `ascend` asks of an optimizer."""

    def propose(self, now: Point, step: int, share: float) -> Point:
        """The point after a step from `now`: of `share` times the step size of step 0, 1 and so
        on.
        """

    def accept(self, now: Point, then: Point) -> bool:
        """Whether the proposal `then` replaces `now`, because its bound is not lower, say.

        If it does, it is written to the model and recorded. If not, the model is left at `now`.
        """

    def converged(self, now: Point) -> bool:
        """Whether `now`, the start or a proposal that was accepted, is good enough to end the
        run.
        """


@dataclass(frozen=True)
class Ascent(Generic[Point]):
    """Where a run of `ascend` has ended."""

    now: Point
    """The last point that was accepted, or the start."""
    share: float
    """The share of its step size that the next step would take."""
    refused: Point | None
    """The last proposal, if it was refused."""
    reason: str
    """Why it ended, in words."""


def ascend(
    climber: Climber[Point],
    start: Point,
    steps: Iterable[int],
    *,
    max_halvings: int = MAX_HALVINGS,
    spent: str = "steps done",
) -> Ascent[Point]:
    """Take steps until the climber has converged, the steps are used up, or no step is accepted
    however short it is.

    1. Propose a point: a step of `share` times the step size, where the share is 1 at first.
    2. If the climber accepts it, go on from there, and double the share up to 1.
    3. If not, stay, and halve the share. Give up once it is below 2^-max_halvings.

    :param climber: proposes and judges points, writes accepted ones to the model and records them.
    :param start: the first point.
    :param steps: numbers of the steps, a progress bar for example. A step that is refused counts
        too.
    :param max_halvings: how many halvings more than doublings there may be.
    :param spent: the reason that is returned if the steps are used up.
    :return: the last point and why the run ended: `CONVERGED`, `STUCK` or `spent`.
    """
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
    """The share of a bound that a step may lose by round-off: a thousand machine epsilons, and at
    least 1e-10.
    """
    return max(_ROUND_OFF, 1e3 * float(np.finfo(dtype.as_numpy_dtype).eps))


def has_fallen(
    before: float, after: float, *, relative: float = _ROUND_OFF, absolute: float = 0.0
) -> bool:
    """Whether a bound is lower than before by more than round-off, or not a number.

    :param before: the bound before the step, in nats.
    :param after: the bound after it, in nats.
    :param relative: the loss that does not count, as a share of the bound.
    :param absolute: and in nats; the two add up.
    """
    return not after >= before - (relative * abs(before) + absolute)
