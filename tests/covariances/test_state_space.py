"""State spaces of kernels: their covariances are the kernel's, and short steps keep their noise."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from numpy.testing import assert_allclose

from gpflow_decoupled.covariances.state_space import (
    refuse_kernel,
    series_error_of,
    state_space,
)
from gpflow_decoupled.errors import DataError
from tests.reference import state_space as ref

T = np.sort(np.random.default_rng(0).uniform(0.0, 5.0, 12))
T[4] = T[3]


def _periodic(lengthscale: float) -> k.Kernel:
    return k.Periodic(k.SquaredExponential(0.7, lengthscale), period=1.7)


M12, M32, M52 = (ref.matern(p, T, T, 1.3, 0.8) for p in (0, 1, 2))
CASES = {
    "Matern12": (lambda: k.Matern12(1.3, 0.8), M12, 1),
    "Exponential": (lambda: k.Exponential(1.3, 0.4), M12, 1),
    "Matern32": (lambda: k.Matern32(1.3, [0.8]), M32, 2),
    "Matern52": (lambda: k.Matern52(1.3, 0.8), M52, 3),
    "Constant": (lambda: k.Constant(0.4), np.full_like(M12, 0.4), 1),
    "Cosine": (lambda: k.Cosine(0.5, 2.0), 0.5 * np.cos(np.pi * (T[:, None] - T)), 2),
    "Periodic": (lambda: _periodic(1.1), ref.periodic(T, T, 0.7, 1.1, 1.7), 19),
    "sum": (lambda: k.Matern12(1.3, 0.8) + k.Matern52(1.3, 0.8), M12 + M52, 4),
    "quasi-periodic": (
        lambda: k.Matern32(1.3, 0.8) * _periodic(1.1) + k.Matern12(1.3, 0.8) * k.Constant(0.4),
        M32 * ref.periodic(T, T, 0.7, 1.1, 1.7) + 0.4 * M12,
        39,
    ),
}


def _steps() -> tf.Tensor:
    return tf.constant(np.diff(T, prepend=T[0]))


@pytest.mark.parametrize("name", CASES)
def test_the_covariance_is_the_kernels(name):
    make, K, size = CASES[name]
    space = state_space(make(), _steps(), 9)
    assert space.size == size
    A, Q, P = (part.numpy() for part in space[:3])
    assert_allclose(Q, P - A @ P @ np.swapaxes(A, 1, 2), atol=1e-13)
    assert np.min(np.linalg.eigvalsh(Q)) > -1e-14
    for first in range(len(T)):
        product = np.eye(size)
        for last in range(first, len(T)):
            product = A[last] @ product if last > first else product
            assert space.h @ product @ P @ space.h == pytest.approx(K[first, last], abs=1e-12)


@pytest.mark.parametrize("p", [0, 1, 2])
def test_noise_of_short_steps_keeps_its_digits(p):
    """P - A P A^T would be round-off: the first entry is of order s^(2 p + 1)."""
    kernel = (k.Matern12, k.Matern32, k.Matern52)[p]()
    s = 1e-4
    Q = state_space(kernel, tf.constant([s], tf.float64), 1).Q[0, 0, 0]
    rate = np.sqrt(2 * p + 1) * s
    leading = (2.0 * rate, 4.0 / 3.0 * rate**3, 4.0 / 15.0 * rate**5)[p]
    assert float(Q) == pytest.approx(leading, rel=1e-3)


def test_gradients_exist_at_duplicates():
    kernel = k.Matern52() + k.Matern32() * _periodic(1.0) + k.Matern12()
    with tf.GradientTape() as tape:
        space = state_space(kernel, _steps(), 3)
        total = tf.reduce_sum(space.A) + tf.reduce_sum(space.Q)
    for gradient in tape.gradient(total, kernel.trainable_variables):
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))


def test_error_of_the_series():
    """It is the largest difference of the covariances, here at lag zero."""
    kernel = k.Constant() + k.Matern32() * _periodic(0.3)
    assert series_error_of(k.Matern32() + k.Constant(), 5) == 0.0
    for harmonics in (3, 6):
        error = series_error_of(kernel, harmonics)
        space = state_space(_periodic(0.3), _steps(), harmonics)
        assert 1.0 - float(space.h @ space.P.numpy() @ space.h) / 0.7 == pytest.approx(error)
        assert error > 1e-5


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (gpflow.kernels.SquaredExponential, "SquaredExponential"),
        (lambda: k.Matern32() * k.Linear(), "Linear"),
        (lambda: k.Periodic(k.Matern12()), r"Periodic\(Matern12\)"),
        (lambda: k.Matern12() + k.White(), "White"),
    ],
)
def test_other_kernels_are_refused(make, names):
    with pytest.raises(DataError, match=names + " has no state space.*CVIGP.*NNGP"):
        refuse_kernel(make())
