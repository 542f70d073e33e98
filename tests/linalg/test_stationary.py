"""Newton systems of Gaussian sites against dense solves."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.newton_systems import stationary_solve


def _system(rng: np.random.Generator, N: int = 9, L: int = 2) -> tuple:
    """K, V [L, N, N], and lam, a, b, c, r, s [L, N], some of b negative."""
    roots = rng.normal(size=(L, N, N))
    K = roots @ roots.transpose(0, 2, 1)
    lam = rng.uniform(0.1, 2.0, size=(L, N))
    V = np.linalg.inv(np.linalg.inv(K) + lam[:, None, :] * np.eye(N))
    a = lam * rng.uniform(0.5, 1.5, size=(L, N))
    b = rng.uniform(-0.3, 1.0, size=(L, N)) * lam / np.diagonal(V, axis1=1, axis2=2)
    c, r, s = rng.normal(size=(3, L, N))
    return K, V, lam, (a, b, 0.2 * lam * c), r, s


def test_solution_is_that_of_the_whole_system(rng):
    """With a K that the solver never sees."""
    K, V, lam, (a, b, c), r, s = _system(rng)
    x, y, ok = stationary_solve(V, lam, (a, b, c), tf.constant(r), tf.constant(s), 1e-12)
    assert bool(ok)
    for latent in range(2):
        G = V[latent] ** 2 / 2
        rows = [
            np.hstack([np.eye(9) + a[latent, :, None] * K[latent], c[latent, :, None] * G]),
            np.hstack([c[latent, :, None] * K[latent], np.eye(9) + b[latent, :, None] * G]),
        ]
        expected = np.linalg.solve(np.vstack(rows), np.concatenate([r[latent], s[latent]]))
        assert_allclose(np.concatenate([x[latent], y[latent]]), expected, rtol=1e-7, atol=1e-9)


def test_an_indefinite_system_is_noticed(rng):
    _, V, lam, (a, b, c), r, s = _system(rng)
    assert not bool(
        stationary_solve(V, lam, (a - 50.0, b - 50.0, c), tf.constant(r), tf.constant(s))[2]
    )
    x, y, ok = stationary_solve(V, lam, (a, b, c), tf.zeros_like(r), tf.zeros_like(s))
    assert bool(ok) and not np.any(x) and not np.any(y)


def test_a_root_of_few_rows_gives_what_its_gram_matrix_does(rng):
    T = rng.normal(size=(2, 3, 9))
    V = T.transpose(0, 2, 1) @ T
    lam, r, s = (
        tf.constant(part)
        for part in (rng.uniform(0.0, 0.02, size=(2, 9)), *rng.normal(size=(2, 2, 9)))
    )
    H = 1.2 * lam, 0.5 * lam, 0.1 * lam
    dense, thin = (
        stationary_solve(tf.constant(given), lam, H, r, s, 1e-12, root=given is T)
        for given in (V, T)
    )
    assert bool(dense[2]) and bool(thin[2])
    assert_allclose(thin[0], dense[0], rtol=1e-8)
    assert_allclose(thin[1], dense[1], rtol=1e-8)


def test_a_tolerance_that_is_not_reached_is_noticed(rng):
    """Where V is far from what the curvature makes of it, 60 iterations do not do."""
    K, _, _, (a, b, c), r, s = _system(rng, 150)
    lam = np.full_like(a, 1e-3)
    V = np.linalg.inv(np.linalg.inv(K) + lam[:, None, :] * np.eye(150))
    x, y, ok = stationary_solve(
        V, lam, (1e3 * a, 0.0 * b, 0.0 * c), tf.constant(r), tf.constant(s), 1e-10
    )
    assert np.all(np.isfinite(x)) and not bool(ok)
