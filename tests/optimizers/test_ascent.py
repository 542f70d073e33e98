"""The loop that halves steps, on a parabola whose steps are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from gpflow_decoupled.optimizers.ascent import CONVERGED, STUCK, ascend, has_fallen


class Point(NamedTuple):
    x: float
    size: float


@dataclass
class Parabola:
    """Steps of `length` times the gradient of -x^2 / 2, which overshoot where that is above 2."""

    length: float
    tolerance: float = 0.0
    kept: list[float] = field(default_factory=list)
    asked: list[tuple[int, float]] = field(default_factory=list)

    def propose(self, now: Point, step: int, share: float) -> Point:
        self.asked.append((step, share))
        return Point(now.x - share * self.length * now.x, share)

    def accept(self, now: Point, then: Point) -> bool:
        if has_fallen(-(now.x**2), -(then.x**2)):
            return False
        self.kept.append(then.x)
        return True

    def converged(self, now: Point) -> bool:
        return abs(now.x) <= self.tolerance


def test_a_refused_step_is_halved_and_grows_back() -> None:
    climber = Parabola(length=5.0)
    end = ascend(climber, Point(1.0, 0.0), range(6))
    shares = [1.0, 0.5, 0.25, 0.5, 0.25, 0.5]  # only a quarter of the step does not overshoot
    assert climber.asked == list(enumerate(shares))
    assert climber.kept == [-0.25, 0.0625]
    assert (end.now.x, end.share, end.reason) == (0.0625, 0.25, "steps done")
    assert end.refused is not None and end.refused.size == 0.5


@pytest.mark.parametrize("start, steps", [(0.05, 0), (1.0, 2)], ids=["at the start", "later"])
def test_it_ends_when_converged(start: float, steps: int) -> None:
    climber = Parabola(length=0.75, tolerance=0.1)
    end = ascend(climber, Point(start, 0.0), range(2))
    assert end.reason == CONVERGED and end.refused is None  # with the last step too
    assert len(climber.asked) == steps


def test_it_gives_up_where_no_step_is_short_enough() -> None:
    climber = Parabola(length=-1.0)
    end = ascend(climber, Point(1.0, 0.0), range(100), max_halvings=4)
    assert end.reason == STUCK and end.now.x == 1.0 and not climber.kept
    assert [share for _, share in climber.asked] == [1.0, 0.5, 0.25, 0.125, 0.0625]


def test_no_steps_at_all() -> None:
    end = ascend(Parabola(1.0), Point(1.0, 0.0), range(0), spent="passes done")
    assert (end.now, end.share, end.refused, end.reason) == (
        Point(1.0, 0.0),
        1.0,
        None,
        "passes done",
    )


@pytest.mark.parametrize("before, after, options, fallen", [
    (-100.0, -100.0, {}, False),
    (-100.0, -100.0 - 1e-9, {}, False),
    (-100.0, -100.0 - 1e-7, {}, True),
    (-100.0, float("nan"), {}, True),
    (0.0, -1e-12, {}, True),
    (0.0, -1e-12, {"absolute": 1e-11}, False),
    (-100.0, -101.0, {"relative": 0.02}, False),
])  # fmt: skip
def test_round_off_is_no_fall(before: float, after: float, options: dict, fallen: bool) -> None:
    assert has_fallen(before, after, **options) == fallen
