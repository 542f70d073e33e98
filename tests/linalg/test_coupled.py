"""Block elimination against a dense solve."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.coupled import coupled_solve


@pytest.mark.parametrize("held", [False, True])
def test_solution_is_that_of_the_whole_system(held, rng):
    N, L = 7, 2
    roots = rng.normal(size=(2, L, N, N))
    P, Q = (root @ root.transpose(0, 2, 1) for root in roots)
    a, b = rng.uniform(0.1, 2.0, size=(2, L, N))
    c = 0.3 * rng.normal(size=(L, N))
    r, s = rng.normal(size=(2, L, N))
    free = rng.uniform(size=(2, L, N)) < 0.7 if held else np.ones((2, L, N), bool)
    x, y, ok = coupled_solve(*(tf.constant(v) for v in (P, a, Q, b, c, r, s)), tuple(tf.constant(free)), 1e-13)
    assert bool(ok)
    for latent in range(L):
        cross = np.diag(c[latent])
        H = np.block([[P[latent] + np.diag(a[latent]), cross], [cross, Q[latent] + np.diag(b[latent])]])
        mask = np.concatenate(free[:, latent])
        expected = np.zeros(2 * N)
        expected[mask] = np.linalg.solve(H[np.ix_(mask, mask)], np.concatenate([r[latent], s[latent]])[mask])
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
