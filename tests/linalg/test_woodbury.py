"""Woodbury's identity against a dense solve."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.linalg.conjugate_gradients import woodbury_factor, woodbury_solve


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(50,), (50, 3)])
@pytest.mark.parametrize("scalar", [False, True])
def test_woodbury(rng: np.random.Generator, compiled: bool, shape: tuple, scalar: bool) -> None:
    R, rhs = rng.standard_normal((50, 8)), rng.standard_normal(shape)
    delta = np.array(0.3) if scalar else rng.uniform(0.1, 2.0, 50)

    def solve(R: tf.Tensor, delta: tf.Tensor, rhs: tf.Tensor) -> tf.Tensor:
        return woodbury_solve(woodbury_factor(R, delta), rhs)

    solution = (tf.function(solve, autograph=False) if compiled else solve)(
        *map(tf.constant, (R, delta, rhs))
    )
    assert solution.shape == shape
    np.testing.assert_allclose(
        solution, np.linalg.solve(R @ R.T + delta * np.eye(50), rhs), atol=1e-11
    )


def test_woodbury_reports_failure() -> None:
    bad = tf.fill([5, 2], tf.constant(np.nan, tf.float64))
    assert not bool(woodbury_factor(bad, tf.ones(5, tf.float64)).ok)
    assert bool(woodbury_factor(tf.ones([5, 2], tf.float64), tf.ones(5, tf.float64)).ok)
    assert not bool(woodbury_factor(tf.ones([5, 2], tf.float64), -tf.ones(5, tf.float64)).ok)


@pytest.mark.parametrize("columns", [(), (4,)])
def test_a_batch_is_solved_each_by_itself(rng: np.random.Generator, columns: tuple) -> None:
    R, delta, rhs = (
        rng.standard_normal((2, 9, 3)),
        rng.uniform(0.1, 2.0, (2, 9)),
        rng.standard_normal((2, 9, *columns)),
    )
    found = woodbury_solve(woodbury_factor(tf.constant(R), tf.constant(delta)), tf.constant(rhs))
    for one in range(2):
        expected = np.linalg.solve(R[one] @ R[one].T + np.diag(delta[one]), rhs[one])
        np.testing.assert_allclose(found[one], expected, atol=1e-11)
