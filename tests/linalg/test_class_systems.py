"""The Newton system of sites that couple the latents of a row, beside its dense form."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.newton_systems import class_solve

N, C = 5, 3


@pytest.mark.parametrize("shared", [False, True])
def test_the_steps_solve_the_dense_system(shared: bool, rng: np.random.Generator) -> None:
    def covariances(count: int) -> np.ndarray:
        roots = rng.normal(size=(count, N, N))
        return roots @ np.swapaxes(roots, 1, 2)

    K, V = covariances(1 if shared else C), covariances(C)
    E, D = rng.uniform(0.01, 1.0, (C, N)), rng.uniform(-1.0, 1.0, (C, N))
    E[0, 0] = 1e-300  # a class that is out of the question
    r, q = rng.normal(size=(2, C, N))
    x, y, ok = class_solve(*(tf.constant(part) for part in (K, V, E, D, r, q)))
    assert bool(ok)
    # all 2 C N numbers, means first, classes before observations
    H = np.zeros((2, C, N, 2, C, N))
    for n in range(N):
        e = E[:, n]
        inner = np.diag(e) - np.outer(e, e) / np.sum(e)
        Q = np.stack([np.eye(C), np.diag(D[:, n])])
        H[:, :, n, :, :, n] = np.einsum("iac,ab,jbd->icjd", Q, inner, Q)
    G = np.zeros_like(H)
    for c in range(C):
        G[0, c, :, 0, c, :] = K[0 if shared else c]
        G[1, c, :, 1, c, :] = 0.5 * V[c] ** 2
    size = 2 * C * N
    system = np.eye(size) + H.reshape(size, size) @ G.reshape(size, size)
    expected = np.linalg.solve(system, np.concatenate([r.ravel(), q.ravel()]))
    assert_allclose(np.concatenate([np.ravel(x), np.ravel(y)]), expected, rtol=1e-8, atol=1e-10)
