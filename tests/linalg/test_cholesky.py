"""The one factorisation: derivatives, status, jitter, and the message for a matrix that fails."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.linalg import CholeskyFactor, add_jitter, cholesky, diagnose
from gpflow_decoupled.linalg.cholesky import jitter
from gpflow_decoupled.linalg.whitening import whiten, whitener


def _spd(rng: np.random.Generator, *shape: int) -> np.ndarray:
    root = rng.normal(size=shape) / np.sqrt(shape[-1])
    return root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])


def _gradient(factorise, K: tf.Tensor, weights: np.ndarray) -> list[tf.Tensor]:
    """The factor, and the symmetric gradient of a function of it that is not linear."""
    with tf.GradientTape() as tape:
        tape.watch(K)
        chol = factorise(K)
        value = tf.reduce_sum(tf.sin(chol) * np.tril(weights))
    gradient = tape.gradient(value, K)
    return [chol, 0.5 * (gradient + tf.linalg.matrix_transpose(gradient))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(5, 5), (300, 300), (700, 700), (2, 7, 7)], ids=str)
def test_value_and_gradient(shape, rng):
    K, weights = tf.constant(_spd(rng, *shape)), rng.normal(size=shape)
    theirs = _gradient(tf.linalg.cholesky, K, weights)
    ours = _gradient(lambda K: cholesky(K).chol, K, weights)
    for left, right in zip(ours, theirs):
        assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("traced", [False, True])
def test_second_derivative(traced, rng):
    K, weights, direction = (
        tf.constant(_spd(rng, 2, 4, 4)),
        rng.normal(size=(2, 4, 4)),
        _spd(rng, 2, 4, 4),
    )

    def curvature(factorise) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(K)
            slope = tf.reduce_sum(_gradient(factorise, K, weights)[1] * direction)
        second = outer.gradient(slope, K)
        return second + tf.linalg.matrix_transpose(second)

    expected = curvature(tf.linalg.cholesky)
    ours = lambda: curvature(lambda K: cholesky(K).chol)  # noqa: E731
    assert_allclose(
        (tf.function(ours, autograph=False) if traced else ours)(), expected, rtol=1e-9, atol=1e-10
    )


@pytest.mark.exhaustive
def test_xla_gives_the_same_numbers(rng):
    K, weights = tf.constant(_spd(rng, 2, 20, 20)), rng.normal(size=(2, 20, 20))
    run = lambda K: _gradient(lambda K: cholesky(K).chol, K, weights)  # noqa: E731
    for left, right in zip(tf.function(run, jit_compile=True, autograph=False)(K), run(K)):
        assert_allclose(left, right, rtol=1e-10, atol=1e-11)


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [False, True])
def test_status_travels_with_the_factor(compiled, rng):
    """No exception, here or under XLA; one bad matrix of a batch is enough."""
    run = tf.function(cholesky, jit_compile=True, autograph=False) if compiled else cholesky
    good = _spd(rng, 2, 3, 3)
    bad = good.copy()
    bad[1] = -bad[1]
    assert isinstance(run(tf.constant(good)), CholeskyFactor)
    assert run(tf.constant(good)).ok
    assert not run(tf.constant(bad)).ok
    assert not run(tf.constant(np.full((2, 3, 3), np.nan))).ok


def test_jitter_is_gpflows_in_float64_and_follows_the_scale_in_float32(rng):
    K = _spd(rng, 4, 4)
    assert_allclose(
        add_jitter(tf.constant(K)), K + gpflow.config.default_jitter() * np.eye(4), rtol=1e-15
    )
    diagonal = tf.constant([1e4, 3e4], tf.float32)
    assert_allclose(jitter(diagonal), [500 * 2.0**-23 * 2e4], rtol=1e-6)
    singular = tf.constant(1e4 * np.ones((50, 50)), tf.float32)
    assert cholesky(add_jitter(singular)).ok
    assert not cholesky(singular).ok
    batch = tf.constant([[1.0], [1e12]], tf.float64)
    assert_allclose(jitter(batch)[:, 0], [1e-6, 500 * 2.0**-52 * 1e12], rtol=1e-12)


def test_jitter_has_no_gradient():
    diagonal = tf.constant([1e12, 3e12], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(diagonal)
        added = jitter(diagonal)
    assert tape.gradient(added, diagonal) is None


def test_diagnosis_names_matrix_size_diagonal_condition_and_fixes():
    error = diagnose("K_beta", np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert isinstance(error, NumericalError) and error.matrix == "K_beta"
    message = str(error)
    for part in (
        "K_beta (2 x 2) is not positive definite",
        "smallest diagonal 1,",
        "smallest eigenvalue -1,",
        "condition infinite",
        "not positive semi-definite",
    ):
        assert part in message
    by_round_off = str(diagnose("K_beta", np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]])))
    assert "set_default_jitter" in by_round_off and "inducing.select" in by_round_off
    assert "condition 3.0e+00" in str(diagnose("K", np.array([[2.0, 1.0], [1.0, 2.0]])))
    error = diagnose("C_gamma", np.array([[[np.nan, 1.0], [1.0, np.inf]]]))
    assert "C_gamma (2 x 2) has 2 entries that are NaN or infinite" in str(error)
    assert "learning_rate" in str(error)


WHITENINGS = {
    "solve": (
        lambda w, R: whiten(w.chol, w.tangent, R),
        lambda L, R: tf.linalg.triangular_solve(L, R),
    ),
    "adjoint": (
        lambda w, R: whiten(w.chol, w.tangent, R, True),
        lambda L, R: tf.linalg.triangular_solve(L, R, adjoint=True),
    ),
    "both": (
        lambda w, R: whiten(w.chol, w.tangent, whiten(w.chol, w.tangent, R), True),
        lambda L, R: tf.linalg.cholesky_solve(L, R),
    ),
}


@pytest.mark.parametrize("shape", [(5, 5), (300, 300), (2, 5, 5)], ids=str)
@pytest.mark.parametrize("name", WHITENINGS)
def test_whitening_differentiates_through_the_factorisation(name, shape, rng):
    """As a Cholesky factor and a solve do, though the factor itself is a constant."""
    K, R = tf.constant(_spd(rng, *shape)), tf.constant(rng.normal(size=(*shape[:-1], 3)))
    ours, theirs = WHITENINGS[name]

    def gradients(function) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([K, R])
            result = function(K)
            value = tf.reduce_sum(tf.sin(result))
        grad_K, grad_R = tape.gradient(value, [K, R])
        return [result, 0.5 * (grad_K + tf.linalg.matrix_transpose(grad_K)), grad_R]

    expected = gradients(lambda K: theirs(tf.linalg.cholesky(K), R))
    for left, right in zip(gradients(lambda K: ours(whitener(K), R)), expected):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)
