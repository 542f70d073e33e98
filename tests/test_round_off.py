"""The plugin that moves inputs by round-off moves each number by one unit in the last place, and
always alike.
"""

from __future__ import annotations

import numpy as np

from tests.round_off import moved


def test_each_number_goes_to_a_neighbour() -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    steps = (moved(values, 1) - values) / np.spacing(np.abs(values))
    assert set(np.unique(steps)) == {-1.0, 1.0}
    assert 20 < np.sum(steps > 0) < 100


def test_equal_numbers_move_alike_and_variants_differ() -> None:
    values = np.random.default_rng(0).normal(size=50)
    np.testing.assert_array_equal(moved(values[::-1], 1), moved(values, 1)[::-1])
    assert np.any(moved(values, 1) != moved(values, 2))
    assert moved(float(values[0]), 1) == moved(values, 1)[0]


def test_integers_stay() -> None:
    values = np.arange(3)
    assert moved(values, 1) is values
