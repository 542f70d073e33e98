"""The neighbours of predictions: halved where fewer predict as well, doubled where more gain."""

from __future__ import annotations

import time

import gpflow
import numpy as np
import pytest

from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers.neighbours import choose_prediction_neighbours
from gpflow_decoupled.optimizers.neighbours import prediction_neighbours as choice

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(600, 1))
Y = X + 0.1 * RNG.normal(size=(600, 1))
ROWS = np.arange(500)
NOISE = RNG.normal(size=500)
NOISE = (NOISE - NOISE.mean()) / NOISE.std()
"""Halved it has a standard error of 0.022."""


def model(start: int | str = 256, **options: int) -> NNGP:
    return NNGP(
        (X, Y), gpflow.kernels.Matern32(), num_neighbours=30, prediction_neighbours=start, **options
    )


@pytest.fixture
def told(monkeypatch):
    """Scores by the number of neighbours; returns the numbers that were asked for."""

    def tell(scores: dict[int, float], seconds: float = 0.0, noise: float = 0.0) -> list[int]:
        asked: list[int] = []

        def found(model, rows, count, group):
            asked.append(count)
            return scores[count] + noise * NOISE * (count < 512), seconds

        monkeypatch.setattr(choice, "_scores", found)
        return asked

    return tell


@pytest.mark.parametrize(
    "scores, noise, expected",
    [
        ({512: 1.0, 256: 0.999, 128: 0.99}, 0.0, 256),  # 0.01 nats behind, beyond chance
        ({512: 1.0, 256: 0.99}, 0.0, 512),
        ({512: 1.0, 256: 0.99, 128: 0.97}, 0.5, 256),  # a standard error is 0.022
        ({512: 1.0, 256: 1.0, 128: 1.0}, 0.0, 128),  # and no fewer
        ({512: 1.0, 256: 0.9985, 128: 0.997}, 0.0, 256),  # small losses add up
    ],
)
def test_the_smallest_number_that_does_not_fall_short_is_taken(told, scores, noise, expected):
    told(scores, noise=noise)
    one = model(512)
    assert choose_prediction_neighbours(one, ROWS) == expected == one.prediction_neighbours


def test_a_local_spread_keeps_its_neighbours(told):
    asked = told({256: 1.0, 128: 1.0})
    assert choose_prediction_neighbours(model(spread_neighbours=150), ROWS) == 256
    assert asked == []


def test_without_time_for_the_comparison_the_number_stays(told):
    asked = told({128: 1.0}, seconds=1.0)
    assert choose_prediction_neighbours(model(), ROWS, deadline=0.0) == 256
    assert asked == [128]


def test_a_small_number_is_doubled_while_that_gains(told):
    told({30: 0.0, 60: 0.1, 120: 0.11, 240: 0.111})
    assert choose_prediction_neighbours(model("auto"), ROWS) == 120


def test_a_doubling_that_gains_nothing_by_chance_is_not_the_end(told):
    asked = told({30: 0.0, 60: 0.001, 120: 0.01, 240: 0.011})
    assert choose_prediction_neighbours(model("auto"), ROWS) == 120
    asked.clear()
    told({30: 0.0, 60: 0.001, 120: 0.001, 240: 1.0})
    assert choose_prediction_neighbours(model("auto"), ROWS) == 30


def test_rows_are_many_where_time_allows(monkeypatch):
    counts = []

    def found(model, rows, count, group):
        counts.append(len(rows))
        return np.zeros(len(rows)), 1.0

    monkeypatch.setattr(choice, "_scores", found)
    choose_prediction_neighbours(model("auto"), np.arange(100), deadline=time.perf_counter() + 99.0)
    assert counts[0] == 100 and set(counts) == {100}
    counts.clear()
    choose_prediction_neighbours(model("auto"), np.arange(100))
    assert counts[0] == 100 and set(counts[1:]) == {600}


@pytest.mark.exhaustive
def test_left_out_rows_of_a_line_need_few_neighbours_and_of_noise_many():
    line = model(spread_neighbours=8)
    line.likelihood.variance.assign(0.01)
    assert choose_prediction_neighbours(line, ROWS) == 128
    even = NNGP(
        (X, Y - X), gpflow.kernels.Matern32(lengthscales=9.0), num_neighbours=4,
        prediction_neighbours="auto",
    )  # fmt: skip
    even.likelihood.variance.assign(0.01)
    assert choose_prediction_neighbours(even, ROWS) > 16
