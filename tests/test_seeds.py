"""TensorFlow's seed is set whenever that changes anything."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.seeds import seed_tensorflow


def _draw() -> np.ndarray:
    return tf.random.uniform([3]).numpy()


def test_draws_start_again_after_draws_and_after_another_seed() -> None:
    seed_tensorflow(0)
    first = _draw()
    for between in (lambda: None, _draw, lambda: tf.random.set_seed(1)):
        between()
        seed_tensorflow(0)
        assert np.array_equal(_draw(), first)
    seed_tensorflow(1)
    assert not np.array_equal(_draw(), first)


def test_a_seed_that_nothing_has_used_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seed_tensorflow(0)
    set_again: list[int] = []
    monkeypatch.setattr(tf.random, "set_seed", set_again.append)
    seed_tensorflow(0)
    assert set_again == []
    _draw()
    seed_tensorflow(0)
    assert set_again == [0]
