"""The plain model of many workers: its numbers by hand, and what it says of its own
measurements.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.suites.replicas.neighbours import PartCost, round_of
from benchmarks.suites.replicas.prediction import (
    Cost,
    Network,
    efficiency,
    fitted,
    least_rows,
    step_seconds,
)

COST = Cost(fixed=0.1, per_row=1e-4, size=1e6, messages=3)
SLOW = Network(10.0, latency=1e-3)


def test_seconds_by_hand() -> None:
    assert step_seconds(COST, 1000, 1, SLOW) == pytest.approx(0.2)
    # four in a ring: six hops for each of three messages, and 6 / 4 of 8 megabits at 10,000
    # megabits a second
    assert step_seconds(COST, 1000, 4, SLOW) == pytest.approx(0.2 + 18e-3 + 1.5 * 8.0 / 10_000.0)
    assert efficiency(COST, 1000, 1, SLOW) == pytest.approx(1.0)
    assert efficiency(COST, 1000, 4, SLOW) == pytest.approx((0.1 + 0.4) / (4 * (0.2192)))


@pytest.mark.parametrize("workers", [2, 8, 256])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_least_rows_reach_that_share(workers: int, share: float) -> None:
    rows = least_rows(COST, workers, SLOW, share)
    assert rows > 0.0 and efficiency(COST, rows, workers, SLOW) == pytest.approx(share)
    assert efficiency(COST, rows + 100.0, workers, SLOW) > share


def test_where_any_rows_will_do() -> None:
    """Two workers without a network reach half of the speed with no rows at all."""
    assert least_rows(COST._replace(size=0.0, messages=0), 2, SLOW) == 0.0


def test_more_rows_and_faster_networks_never_hurt() -> None:
    shares = [
        [efficiency(COST, n, 64, Network(g)) for n in (100, 1000, 10_000)]
        for g in (1.0, 10.0, 100.0)
    ]
    assert np.all(np.diff(shares, axis=0) > 0.0) and np.all(np.diff(shares, axis=1) > 0.0)
    assert np.max(shares) < 1.0


def test_fit_of_exact_measurements_and_of_none_that_is_fixed() -> None:
    rows = [100, 1000, 8000]
    found = fitted(rows, [0.1 + 1e-4 * n for n in rows], 1e6, 3)
    assert found == pytest.approx(COST)
    through_zero = fitted([100, 1000], [0.005, 0.2], 1e6, 3)
    assert through_zero.fixed == 0.0 and through_zero.per_row > 0.0


def test_a_round_of_neighbours_by_hand() -> None:
    lines = {"search": (2.0, 1e-3), "evaluation": (0.0, 1e-5), "judgement": (1.0, 2e-3)}
    costs = [
        PartCost(10**6, what, n, a + b * n) for what, (a, b) in lines.items() for n in (100, 1000)
    ]
    found = round_of(costs)
    assert found == pytest.approx((2.0 + 2.0, 1e-3 + 25e-5, 4.0))
    one, four = 4.0 + 1.25e-3 * 400 + 4.0, 4.0 + 1.25e-3 * 100 + 1.0 + 6 * 75 * 50e-6
    assert found.seconds(100, 4) == pytest.approx(four)
    assert found.efficiency(100, 4) == pytest.approx(one / (4 * four))
    assert found.efficiency(100, 1) == 1.0
