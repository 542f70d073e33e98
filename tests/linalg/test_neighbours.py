"""Conditionals of many small problems, and their gradient, against explicit solves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.stats import norm

from gpflow_decoupled.linalg.conjugate_gradients import map_rows
from gpflow_decoupled.linalg.neighbours import conditional, log_densities, vacuous_noise
from tests.reference import neighbours as ref


def _problems(
    rng: np.random.Generator, dtype: str = "float64", size: int = 6
) -> tuple[tf.Tensor, tf.Tensor]:
    root = rng.normal(size=(4, size, size))
    joint = root @ np.swapaxes(root, 1, 2) + 0.5 * np.eye(size)
    return tf.constant(joint, dtype), tf.constant(rng.normal(size=(4, size - 1, 2)), dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("float32", 2e-4)])
@pytest.mark.parametrize("compiled", [False, True])
def test_moments_are_those_of_an_explicit_solve(dtype, rtol, compiled, rng):
    joint, values = _problems(rng, dtype)
    options = {"jit_compile": True, "autograph": False, "reduce_retracing": True}
    run = tf.function(conditional, **options) if compiled else conditional
    mean, variance, ok, squares = run(joint, values, 3)
    assert bool(ok) and mean.dtype == variance.dtype == joint.dtype
    for k in range(4):
        for q in range(2):
            y = np.append(values[k, :, q], 0.0)
            expected = ref.conditional(joint[k].numpy().astype(float), y, 5, range(5))
            assert_allclose((mean[k, q], variance[k]), expected, rtol=rtol, atol=rtol)
            three = y[:3] @ np.linalg.solve(joint[k, :3, :3].numpy().astype(float), y[:3])
            assert_allclose(squares[k, q], three, rtol=rtol)


def test_gradient_is_that_of_an_explicit_solve(rng):
    joint, values = _problems(rng)

    def explicit(joint: tf.Tensor, values: tf.Tensor, first: int) -> tuple[tf.Tensor, ...]:
        b = tf.linalg.solve(joint[:, :-1, :-1], joint[:, :-1, -1:])
        tau = joint[:, -1, -1] - tf.reduce_sum(joint[:, :-1, -1] * b[..., 0], axis=-1)
        y = values[:, :first]
        squares = tf.reduce_sum(y * tf.linalg.solve(joint[:, :first, :first], y), axis=1)
        return tf.reduce_sum(b * values, axis=1), tau, squares

    gradients = []
    for function in (conditional, explicit):
        with tf.GradientTape() as tape:
            tape.watch((joint, values))
            symmetric = 0.5 * (joint + tf.linalg.matrix_transpose(joint))
            found = function(symmetric, values, 2)
            loss = tf.reduce_sum(tf.sin(found[0])) + tf.reduce_sum(tf.math.log(found[1]))
            loss += tf.reduce_sum(tf.cos(found[-1]))
        gradients.append(tape.gradient(loss, (joint, values)))
    for ours, theirs in zip(*gradients):
        assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_failure_is_told(rng):
    joint, values = _problems(rng)
    assert not bool(conditional(joint - 100.0 * tf.eye(6, dtype=tf.float64), values).ok)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_vacuous_noise_removes_an_observation(dtype, rng):
    joint, values = _problems(rng, dtype)
    noise = np.zeros(6)
    noise[:2] = vacuous_noise(joint.dtype)
    joint_less = tf.linalg.set_diag(joint, tf.linalg.diag_part(joint) + noise.astype(dtype))
    ours, without = conditional(joint_less, values), conditional(joint[:, 2:, 2:], values[:, 2:])
    rtol = 1e-12 if dtype == "float64" else 1e-4
    assert_allclose(ours.mean, without.mean, rtol=rtol, atol=rtol)
    assert_allclose(ours.variance, without.variance, rtol=rtol)


def test_log_densities_are_those_of_scipy(rng):
    y, mean, variance = rng.normal(size=5), rng.normal(size=5), rng.uniform(0.1, 2.0, 5)
    expected = norm.logpdf(y, mean, np.sqrt(variance))
    ours = log_densities(*(tf.constant(part) for part in (y, mean, variance)))
    assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size, fill", [(1, False), (3, False), (3, True), (7, False), (20, True)])
@pytest.mark.parametrize("compiled", [False, True])
def test_blocks_of_rows_give_the_function(size, fill, compiled, rng):
    x = tf.constant(rng.normal(size=(7, 2)))
    seen: list[int | None] = []

    def function(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seen.append(rows.shape[0])
        return tf.square(rows), tf.reduce_sum(rows, axis=1)

    def run(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return map_rows(function, (x,), size, (tf.float64, tf.float64), fill)

    if compiled:
        run = tf.function(
            run, input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False
        )
    squares, sums = run(x)
    assert_allclose(squares, x**2)
    assert_allclose(sums, tf.reduce_sum(x, axis=1))
    if not compiled:
        assert seen[0] == (size if fill else {1: 1, 3: 3, 7: 7}[size]) and len(set(seen)) == 1
