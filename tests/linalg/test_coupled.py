"""Block elimination against a dense solve."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.newton_systems import (
    coupled_solve,
    coupled_solve_of_roots,
    squared_gram_product,
)


@pytest.mark.parametrize("held", [False, True])
def test_solution_is_that_of_the_whole_system(held, rng):
    N, L = 7, 2
    roots = rng.normal(size=(2, L, N, N))
    P, Q = (root @ root.transpose(0, 2, 1) for root in roots)
    a, b = rng.uniform(0.1, 2.0, size=(2, L, N))
    c = 0.3 * rng.normal(size=(L, N))
    r, s = rng.normal(size=(2, L, N))
    free = rng.uniform(size=(2, L, N)) < 0.7 if held else np.ones((2, L, N), bool)
    x, y, ok = coupled_solve(
        *(tf.constant(v) for v in (P, a, Q, b, c, r, s)), tuple(tf.constant(free)), tolerance=1e-13
    )
    assert bool(ok)
    for latent in range(L):
        cross = np.diag(c[latent])
        H = np.block(
            [[P[latent] + np.diag(a[latent]), cross], [cross, Q[latent] + np.diag(b[latent])]]
        )
        mask = np.concatenate(free[:, latent])
        expected = np.zeros(2 * N)
        expected[mask] = np.linalg.solve(
            H[np.ix_(mask, mask)], np.concatenate([r[latent], s[latent]])[mask]
        )
        assert_allclose(np.concatenate([x[latent], y[latent]]), expected, rtol=1e-7, atol=1e-9)


def test_a_shared_first_block_and_an_indefinite_one():
    eye = tf.eye(3, dtype=tf.float64)
    one, zero = tf.ones([2, 3], tf.float64), tf.zeros([2, 3], tf.float64)
    free = (one > 0.0, one > 0.0)
    x, y, ok = coupled_solve(eye[None], one, tf.stack([eye, eye]), one, zero, one, one, free)
    assert bool(ok)
    assert_allclose(x, 0.5 * one, rtol=1e-9)
    assert_allclose(y, 0.5 * one, rtol=1e-9)
    bad = tf.constant([[[1.0, 3.0], [3.0, 1.0]]], tf.float64)
    two = tf.zeros([1, 2], tf.float64)
    assert not bool(coupled_solve(bad, two, bad, two, two, two, two, (two == 0.0, two == 0.0))[2])


def test_a_larger_ridge_serves_blocks_that_are_singular_to_round_off():
    """A smooth kernel matrix rounded to single precision, which is not positive semi-definite: the
    step still descends.
    """
    X = np.linspace(0.0, 1.0, 30)
    smooth = np.exp(-0.5 * np.square(X[:, None] - X)).astype(np.float32).astype(float)
    assert np.linalg.eigvalsh(smooth)[0] < -1e-9
    one = tf.ones([1, 30], tf.float64)
    pull = tf.constant(np.sin(9.0 * X)[None])
    system = (
        tf.constant(smooth[None]),
        one,
        tf.constant(smooth[None]),
        0.0 * one,
        0.0 * one,
        one,
        pull,
    )
    free = one > 0.0, one > 0.0
    assert not bool(coupled_solve(*system, free)[2])
    x, y, ok = coupled_solve(*system, free, 1e-6 / np.finfo(float).eps)
    assert bool(ok)
    assert_allclose(x, np.linalg.solve(smooth + np.eye(30), np.ones(30))[None], atol=1e-6)
    assert np.all(np.isfinite(y)) and float(tf.reduce_sum(y * pull)) > 0.0


@pytest.mark.parametrize("seed", range(3))
def test_roots_serve_as_well_as_the_matrices(seed):
    """Against numpy on the free rows; and the product with V * V."""
    rng = np.random.default_rng(seed)
    A, T = rng.normal(size=(1, 9, 3)), rng.normal(size=(2, 3, 9))
    a, b = rng.uniform(0.1, 2.0, (2, 2, 9))
    c = np.sqrt(a * b) * rng.uniform(-0.9, 0.9, (2, 9))
    r, s, free = rng.normal(size=(2, 9)), rng.normal(size=(2, 9)), rng.uniform(size=(2, 2, 9)) < 0.8
    args = [tf.constant(value) for value in (A, a, T, b, c, r, s)]
    x, y, ok = coupled_solve_of_roots(*args, tuple(tf.constant(free)), tolerance=1e-13)
    assert ok
    V = np.swapaxes(T, 1, 2) @ T
    product = squared_gram_product(args[2], args[6])
    assert_allclose(product, np.einsum("lij,lj->li", V**2, s), rtol=1e-10)
    for latent in range(2):
        P, Q = A[0] @ A[0].T + np.diag(a[latent]), 0.5 * V[latent] ** 2 + np.diag(b[latent])
        whole = np.block([[P, np.diag(c[latent])], [np.diag(c[latent]), Q]])
        rows = np.flatnonzero(np.concatenate(free[:, latent]))
        expected = np.zeros(18)
        expected[rows] = np.linalg.solve(
            whole[np.ix_(rows, rows)], np.concatenate([r[latent], s[latent]])[rows]
        )
        assert_allclose(np.concatenate([x[latent], y[latent]]), expected, rtol=1e-8, atol=1e-10)
