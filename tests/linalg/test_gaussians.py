"""Divergences and changes of parametrisation against explicit inverses and TensorFlow
Probability.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg import whitening as ga

L = 2


def _mean_and_root(
    rng: np.random.Generator, size: int, dtype: str = "float64"
) -> tuple[tf.Tensor, tf.Tensor]:
    root = np.tril(rng.normal(size=(L, size, size))) / np.sqrt(size)
    root[:, range(size), range(size)] = rng.uniform(0.5, 1.5, size=(L, size))
    return tf.constant(rng.normal(size=(size, L)), dtype), tf.constant(root, dtype)


def _covariance(root: tf.Tensor) -> np.ndarray:
    return root.numpy() @ np.swapaxes(root.numpy(), -1, -2)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_divergence_is_that_of_tensorflow_probability(size, rng):
    mean, root = _mean_and_root(rng, size)
    q = tfp.distributions.MultivariateNormalTriL(tf.transpose(mean), root)
    p = tfp.distributions.MultivariateNormalTriL(scale_tril=tf.eye(size, dtype=tf.float64))
    expected = tf.reduce_sum(tfp.distributions.kl_divergence(q, p))
    assert_allclose(ga.kl_from_whitened(mean, root), expected, rtol=1e-11, atol=1e-12)
    flipped = root * tf.constant(
        [1.0] * (size - 1) + [-1.0], tf.float64
    )  # the sign of a column is free
    assert_allclose(ga.kl_from_whitened(mean, flipped), expected, rtol=1e-11, atol=1e-12)
    assert_allclose(
        ga.kl_from_whitened(0 * mean, tf.eye(size, batch_shape=[L], dtype=tf.float64)),
        0.0,
        atol=1e-14,
    )


@pytest.mark.parametrize("size", [5, 150])
def test_precision_of_a_root_and_back(size, rng):
    _, root = _mean_and_root(rng, size)
    precision = ga.precision_from_root(root)
    S_inv = np.linalg.inv(_covariance(root))
    assert_allclose(precision, S_inv, rtol=1e-6, atol=1e-6 * np.abs(S_inv).max())
    if size > 5:
        return  # random roots of this size are too ill conditioned for a round trip
    back, ok = ga.root_from_precision(precision)
    assert ok
    assert_allclose(
        back, root, rtol=1e-9, atol=1e-10
    )  # the root with a positive diagonal is unique


@pytest.mark.parametrize("size", [1, 5, 300])
def test_root_of_a_precision_is_lower_with_one_factorisation(size, rng):
    matrix = rng.normal(size=(L, size, size)) / np.sqrt(size)
    precision = tf.constant(matrix @ np.swapaxes(matrix, -1, -2) + np.eye(size))
    graph = (
        tf.function(ga.root_from_precision, autograph=False).get_concrete_function(precision).graph
    )
    assert [operation.type for operation in graph.get_operations()].count("Cholesky") == 1
    root, ok = ga.root_from_precision(precision)
    assert ok
    assert_allclose(root, np.tril(root), atol=0)
    assert np.all(np.diagonal(root, axis1=-2, axis2=-1) > 0)
    assert_allclose(_covariance(root), np.linalg.inv(precision), rtol=1e-9, atol=1e-10)


def test_a_precision_that_is_not_definite_is_reported():
    assert not ga.root_from_precision(tf.constant(-np.eye(3)[None])).ok
    indefinite = tf.constant(np.ones((1, 3, 3)) - 2 * np.eye(3))
    assert not ga.root_from_precision(indefinite).ok


def test_no_jitter_is_added():
    """It would make a step of size one inexact."""
    precision = tf.constant(1e-9 * np.eye(3)[None])
    assert_allclose(
        ga.root_from_precision(precision).chol, np.eye(3)[None] / np.sqrt(1e-9), rtol=1e-14
    )


def test_one_matrix_for_all_latents_or_one_each(rng):
    shared, own = rng.normal(size=(1, 4, 3)), rng.normal(size=(L, 4, 3))
    vectors, back = rng.normal(size=(3, L)), rng.normal(size=(4, L))
    for matrix in (shared, own):
        each = np.broadcast_to(matrix, (L, 4, 3))
        expected = np.stack([each[i] @ vectors[:, i] for i in range(L)], axis=1)
        assert_allclose(
            ga.apply_per_latent(tf.constant(matrix), tf.constant(vectors)), expected, rtol=1e-12
        )
        expected = np.stack([each[i].T @ back[:, i] for i in range(L)], axis=1)
        assert_allclose(
            ga.apply_per_latent(tf.constant(matrix), tf.constant(back), adjoint=True),
            expected,
            rtol=1e-12,
        )


def test_derivatives_of_a_natural_step(rng):
    """Through the flipped factorisation and back, against TensorFlow's own operations."""
    mean, root = _mean_and_root(rng, 4)
    precision = ga.precision_from_root(root)
    theta = ga.apply_per_latent(precision, mean)

    def loss(function) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([theta, precision])
            m, S = function()
            value = tf.reduce_sum(tf.sin(m)) + tf.reduce_sum(tf.sin(S))
        grad_theta, grad_precision = tape.gradient(value, [theta, precision])
        return [grad_theta, grad_precision + tf.linalg.matrix_transpose(grad_precision)]

    def ours() -> tuple:
        root = ga.root_from_precision(precision).chol
        m = ga.apply_per_latent(root, ga.apply_per_latent(root, theta, adjoint=True))
        return m, tf.matmul(root, root, transpose_b=True)

    def theirs() -> tuple:
        S = tf.linalg.inv(precision)
        return tf.transpose(tf.linalg.matvec(S, tf.transpose(theta))), S

    for left, right in zip(loss(ours), loss(theirs)):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
def test_xla_and_float32_give_the_same_numbers(rng):
    _, root = _mean_and_root(rng, 6)
    expected = ga.root_from_precision(ga.precision_from_root(root)).chol
    compiled = tf.function(
        lambda r: ga.root_from_precision(ga.precision_from_root(r)).chol,
        jit_compile=True,
        autograph=False,
    )
    assert_allclose(compiled(root), expected, rtol=1e-9, atol=1e-10)
    single = compiled(tf.cast(root, tf.float32))
    assert single.dtype == tf.float32
    assert_allclose(single, expected, rtol=1e-2, atol=1e-2)
