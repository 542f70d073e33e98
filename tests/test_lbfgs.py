"""The L-BFGS driver: bounds, refused points, the best point, when it ends, and what it records."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import rosen, rosen_der

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.lbfgs import lbfgs_ascent, settled

CENTRE = np.array([1.0, -2.0, 0.5])
SCALES = np.array([1.0, 3.0, 10.0])


def parabola(x: np.ndarray) -> tuple[float, np.ndarray]:
    """Largest at the centre, where it is 0."""
    return -0.5 * float(np.sum(SCALES * (x - CENTRE) ** 2)), -SCALES * (x - CENTRE)


def test_it_finds_the_maximum_and_records_every_evaluation():
    rows, calls = [], []
    found = lbfgs_ascent(
        lambda x: (calls.append(1), parabola(x))[1], np.zeros(3), settled(1e-12), 100,
        record=lambda value, evaluations: rows.append((value, evaluations)),
    )  # fmt: skip
    assert found.converged and found.reason == "converged"
    assert_allclose(found.x, CENTRE, atol=1e-5)
    assert sum(evaluations for _, evaluations in rows) == len(calls) == found.evaluations
    assert rows[0] == (parabola(np.zeros(3))[0], 1) and np.all(
        np.diff([value for value, _ in rows]) >= 0.0
    )


@pytest.mark.parametrize("limit", [1, 4, 8, 60])
def test_the_pace_at_the_end(limit: int):
    """Ten iterations; of fewer than ten the last half, times what is missing."""
    values = [0.0]

    def valley(x: np.ndarray) -> tuple[float, np.ndarray]:
        return -rosen(x), -rosen_der(x)

    def stop(found: list[float]) -> bool:
        values[:] = found
        return False

    found = lbfgs_ascent(valley, np.zeros(20), stop, limit)
    assert found.reason == "evaluations done"
    count = len(values) - 1
    last = 10 if count >= 10 else -(-count // 2)
    assert found.rise == pytest.approx(10.0 * (values[-1] - values[-1 - last]) / last)
    assert found.rise > 0.0


def test_bounds_on_both_sides():
    low, high = np.array([-np.inf, -1.0, -np.inf]), np.array([0.3, np.inf, np.inf])
    found = lbfgs_ascent(parabola, np.zeros(3), settled(1e-12), 100, low=low, high=high)
    assert_allclose(found.x, [0.3, -1.0, 0.5], atol=1e-5)


def test_the_first_trial_within_bounds_is_no_longer_than_without():
    """SciPy went a whole gradient, so to the bounds, where a climb of hyperparameters stayed."""
    tried = []

    def steep(x: np.ndarray) -> tuple[float, np.ndarray]:
        tried.append(x.copy())
        value, gradient = parabola(50.0 * x)
        return value, 50.0 * gradient

    lbfgs_ascent(
        steep, np.zeros(3), settled(1e-12), 100,
        low=np.full(3, -12.0), high=np.full(3, 12.0),
    )  # fmt: skip
    assert np.linalg.norm(tried[1]) == pytest.approx(1.0)
    assert_allclose(tried[-1], CENTRE / 50.0, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize("broken", ["value", "gradient"])
def test_points_that_are_not_finite_are_refused(bad, broken):
    """Beyond a wall next to the maximum, in the value or in the gradient."""

    def walled(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = parabola(x)
        if x[0] < 1.2:
            return value, gradient
        return (bad, gradient) if broken == "value" else (value, gradient * bad)

    found = lbfgs_ascent(walled, np.array([-5.0, 4.0, 3.0]), settled(1e-12, 3), 200)
    assert np.isfinite(found.value) and found.x[0] < 1.2
    assert_allclose(found.x, CENTRE, atol=1e-3)


@pytest.mark.parametrize("beyond", [np.nan, -1e36])
def test_a_trial_far_behind_a_wall_is_no_end(beyond):
    """Its loss made the next trial a step of round-off, at which the run ended; the maximum of
    x - exp(9 (x - 2)) is at 2 - log(9) / 9.
    """

    def cliff(x: np.ndarray) -> tuple[float, np.ndarray]:
        fall = np.exp(9.0 * (x[0] - 2.0))
        if x[0] > 3.0:
            return beyond, np.zeros(2)
        value = x[0] - fall - 0.05 * x[1] ** 2
        return value, np.array([1.0 - 9.0 * fall, -0.1 * x[1]])

    start = np.array([-1.0, 0.5])
    found = lbfgs_ascent(cliff, start, settled(1e-9, 3), 200, low=start - 12.0, high=start + 12.0)
    assert found.converged
    assert_allclose(found.x, [2.0 - np.log(9.0) / 9.0, 0.0], atol=1e-3)


def test_a_start_that_is_not_finite_is_an_error():
    with pytest.raises(
        NumericalError, match="The bound at the start is not finite: scale the inputs"
    ) as info:
        lbfgs_ascent(
            lambda x: (np.nan, x),
            np.zeros(3),
            settled(1.0),
            5,
            advice="scale the inputs.",
            matrix="K",
        )
    assert info.value.matrix == "K"


def test_too_few_evaluations_are_said():
    found = lbfgs_ascent(parabola, np.zeros(3), settled(1e-12), 3)
    assert not found.converged and found.reason == "evaluations done"
    assert found.value > parabola(np.zeros(3))[0]


def test_a_line_search_that_fails_far_from_a_maximum_has_not_converged():
    """With a gradient of the wrong sign no step is better; beyond a wall the values are not
    numbers.
    """
    found = lbfgs_ascent(lambda x: (-float(x @ x), 2.0 * x), np.ones(3), settled(1e-8), 500)
    assert (found.converged, found.reason, found.value) == (False, "the line search failed", -3.0)

    def walled(x: np.ndarray) -> tuple[float, np.ndarray]:
        value = -float(np.sum((x - 1.0) ** 2))
        return (value if x[0] <= 0.0 else np.nan), -2.0 * (x - 1.0)

    found = lbfgs_ascent(walled, np.full(2, -3.0), settled(1e-8), 500)
    assert not found.converged and found.reason == "the line search failed"


def test_a_line_search_that_fails_at_the_maximum_has_converged():
    """There round-off hides every gain, and no rule has ended the run."""
    found = lbfgs_ascent(parabola, np.zeros(3), lambda values: False, 500)
    assert found.converged and found.reason == "converged"
    assert_allclose(found.x, CENTRE, atol=1e-6)
    high = np.array([0.3, np.inf, np.inf])
    assert lbfgs_ascent(parabola, np.zeros(3), lambda values: False, 500, high=high).converged


def test_a_window_of_iterations_has_to_gain_less():
    rule = settled(0.1, 2)
    assert (
        not rule([0.0])
        and not rule([0.0, 0.05])
        and rule([0.0, 0.05, 0.06])
        and not rule([0.0, 0.05, 0.16])
    )


def test_a_line_search_within_round_off_has_converged() -> None:
    """Where trials promise less than `flat`, five of them end it, and not twenty."""

    def coarse(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = parabola(x)
        return float(np.float32(1e3 + value)), gradient

    start = CENTRE + [1e-3, -2e-3, 1e-3]
    long, short = (
        lbfgs_ascent(coarse, start, lambda _: False, 200, flat=flat) for flat in (0.0, 1e-3)
    )
    assert short.converged and short.value == long.value
    assert short.evaluations + 10 < long.evaluations
