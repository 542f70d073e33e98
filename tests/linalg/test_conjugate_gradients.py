"""Conjugate gradients against dense solves: several blocks, several latents, and what it says of a
bad system.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.conjugate_gradients import conjugate_gradients
from gpflow_decoupled.linalg.newton_systems import inner_per_latent


def _systems(rng: np.random.Generator, N: int = 8, L: int = 2) -> np.ndarray:
    root = rng.normal(size=(L, N, N))
    return root @ root.transpose(0, 2, 1) + np.eye(N)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_each_latent_is_solved_by_itself(preconditioned, rng):
    matrix, right = _systems(rng), rng.normal(size=(2, 8))
    diagonal = np.diagonal(matrix, axis1=1, axis2=2) if preconditioned else np.ones((2, 8))
    found = conjugate_gradients(
        lambda p: (tf.linalg.matvec(matrix, p[0]),),
        lambda r: (r[0] / diagonal,),
        (tf.constant(right),),
        inner_per_latent,
        1e-12,
        40,
    )
    assert bool(found.ok)
    assert_allclose(
        found.x[0], np.linalg.solve(matrix, right[..., None])[..., 0], rtol=1e-8, atol=1e-10
    )


def test_two_blocks_with_one_step_length(rng):
    """The blocks may be of different sizes where the inner product is a scalar."""
    matrix = _systems(rng, 8, 1)[0]
    right = (tf.constant(rng.normal(size=(3, 1))), tf.constant(rng.normal(size=(5, 1))))

    def dot(left, other):
        return sum(tf.reduce_sum(x * y) for x, y in zip(left, other))

    found = conjugate_gradients(
        lambda p: tuple(tf.split(tf.matmul(matrix, tf.concat(p, axis=0)), [3, 5])),
        lambda r: r,
        right,
        dot,
        1e-12,
        40,
        norm=lambda r: dot(r, r),
    )
    assert bool(found.ok)
    assert_allclose(
        np.concatenate(found.x),
        np.linalg.solve(matrix, np.concatenate(right)),
        rtol=1e-8,
        atol=1e-10,
    )


def test_an_indefinite_matrix_and_too_few_iterations_are_reported(rng):
    matrix, right = _systems(rng), (tf.constant(rng.normal(size=(2, 8))),)

    def solve(matrix: np.ndarray, iterations: int) -> bool:
        found = conjugate_gradients(
            lambda p: (tf.linalg.matvec(matrix, p[0]),),
            lambda r: r,
            right,
            inner_per_latent,
            1e-10,
            iterations,
        )
        return bool(found.ok)

    assert solve(matrix, 40) and not solve(matrix, 2)
    assert not solve(matrix - 3.0 * np.eye(8), 40)
