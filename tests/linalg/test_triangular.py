"""Blocked triangular solves and products against TensorFlow's own: values, both derivatives,
broadcasting, XLA.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg import triangular as tri

SIZES = [5, 300]
"""Below and above the size at which products are split; `WIDE` right-hand sides split a solve."""
WIDE = 530


def _lower(rng: np.random.Generator, *shape: int, dtype: str = "float64") -> tf.Tensor:
    """A well conditioned lower triangular matrix [..., M, M]."""
    size = shape[-1]
    return tf.constant(np.tril(rng.normal(size=shape)) / size + np.eye(size), dtype)


def _full(rng: np.random.Generator, *shape: int, dtype: str = "float64") -> tf.Tensor:
    return tf.constant(rng.normal(size=shape), dtype)


def _tril(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.band_part(matrix, -1, 0)


def _symmetric(R: tf.Tensor) -> tf.Tensor:
    """R R^T / 100, of any R [..., M, N]."""
    return 0.01 * tf.matmul(R, R, transpose_b=True)


OPERATIONS: dict[
    str, tuple[Callable, Callable]
] = {  # ours, TensorFlow's; both of a lower triangle and a full matrix
    "solve": (tri.solve, lambda L, R: tf.linalg.triangular_solve(*_same_batch(L, R))),
    "solve-adjoint": (
        lambda L, R: tri.solve(L, R, adjoint=True),
        lambda L, R: tf.linalg.triangular_solve(*_same_batch(L, R), adjoint=True),
    ),
    "lower_product": (tri.lower_product, lambda L, R: tf.matmul(_tril(L), R)),
    "transposed_product": (
        tri.transposed_product,
        lambda L, R: tf.matmul(_tril(L), R, transpose_a=True),
    ),
    "inverse": (
        lambda L, R: tf.matmul(tri.inverse(L), R),
        lambda L, R: tf.matmul(tf.linalg.inv(_tril(L)), R),
    ),
    "solve_lower": (
        lambda L, R: tf.matmul(tri.solve_lower(L, 2.0 * L + tf.linalg.diag(R[..., :, 0])), R),
        lambda L, R: tf.matmul(
            tf.linalg.inv(_tril(L)) @ _tril(2.0 * L + tf.linalg.diag(R[..., :, 0])), R
        ),
    ),
    "lower_gram": (
        lambda L, R: tf.matmul(tri.lower_gram(L), R),
        lambda L, R: tf.matmul(tf.matmul(_tril(L), _tril(L), transpose_b=True), R),
    ),
    "lower_root_gram": (
        lambda L, R: tf.matmul(tri.lower_root_gram(L), R),
        lambda L, R: tf.matmul(tf.matmul(_tril(L), _tril(L), transpose_a=True), R),
    ),
    "symmetric_product": (
        lambda L, R: tri.symmetric_product(R, R[..., 0, :]) + 0.0 * L,
        lambda L, R: tf.matmul(R * R[..., :1, :], R, transpose_b=True) + 0.0 * L,
    ),
    "lower_congruence": (
        lambda L, R: tf.matmul(tri.lower_congruence(L, _symmetric(R)), R),
        lambda L, R: tf.matmul(tf.matmul(_tril(L), _symmetric(R) @ _tril(L), transpose_a=True), R),
    ),
    "lower_outer": (
        lambda L, R: (
            _tril(tri.lower_outer(R, 2.0 * R)) + 0.0 * L
        ),  # it is right in the lower triangle only
        lambda L, R: _tril(tf.matmul(R, 2.0 * R, transpose_b=True)) + 0.0 * L,
    ),
    "lower_transposed_product": (
        lambda L, R: tf.matmul(_tril(tri.lower_transposed_product(L, 2.0 * L)), R),
        lambda L, R: tf.matmul(_tril(tf.matmul(_tril(L), 2.0 * _tril(L), transpose_a=True)), R),
    ),
}
operations = pytest.mark.parametrize("name", OPERATIONS)


def _same_batch(L: tf.Tensor, R: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """TensorFlow's solve does not broadcast its gradient."""
    batch = tf.broadcast_static_shape(L.shape[:-2], R.shape[:-2])
    return tf.broadcast_to(_tril(L), [*batch, *L.shape[-2:]]), tf.broadcast_to(
        R, [*batch, *R.shape[-2:]]
    )


def _value_and_gradients(function: Callable, L: tf.Tensor, R: tf.Tensor) -> list[tf.Tensor]:
    """A scalar that is not linear in the result, the result, and the gradient in the lower triangle
    and in R.
    """
    with tf.GradientTape() as tape:
        tape.watch([L, R])
        result = function(_tril(L), R)
        value = tf.reduce_sum(tf.sin(result))
    grad_L, grad_R = tape.gradient(value, [L, R])
    return [result, value, _tril(grad_L), grad_R]


@pytest.mark.costly(keep=8)
@pytest.mark.parametrize("size", SIZES)
@operations
def test_value_and_gradient(name, size, rng):
    L, R = _lower(rng, size, size), _full(rng, size, 3 if size == 5 else WIDE)
    ours, theirs = (_value_and_gradients(function, L, R) for function in OPERATIONS[name])
    for left, right in zip(ours, theirs):
        assert_allclose(left, right, rtol=1e-9, atol=1e-9 * np.abs(right).max())


@pytest.mark.costly(keep=9)
@pytest.mark.parametrize(
    "shapes", [((1, 4, 4), (3, 4, 2)), ((3, 4, 4), (1, 4, 2)), ((4, 4), (3, 4, 2))], ids=str
)
@operations
def test_batches_broadcast(name, shapes, rng):
    """One factor for all latents, or one set of right-hand sides."""
    L, R = _lower(rng, *shapes[0]), _full(rng, *shapes[1])
    ours, theirs = (_value_and_gradients(function, L, R) for function in OPERATIONS[name])
    assert ours[2].shape == L.shape and ours[3].shape == R.shape
    for left, right in zip(ours, theirs):
        assert_allclose(left, right, rtol=1e-10, atol=1e-11)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("traced", [False, True])
@operations
def test_second_derivative(name, traced, rng):
    """Along a direction, of the gradient along the same direction."""
    L, R, D, E = (
        _lower(rng, 2, 4, 4),
        _full(rng, 2, 4, 3),
        _lower(rng, 2, 4, 4),
        _full(rng, 2, 4, 3),
    )

    def curvature(function: Callable) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch([L, R])
            _, _, grad_L, grad_R = _value_and_gradients(function, L, R)
            slope = tf.reduce_sum(grad_L * D) + tf.reduce_sum(grad_R * E)
        second = outer.gradient(slope, [L, R])
        return tf.concat([tf.reshape(_tril(second[0]), [-1]), tf.reshape(second[1], [-1])], axis=0)

    ours, theirs = OPERATIONS[name]
    expected = curvature(theirs)
    assert np.abs(expected).max() > 0.1
    found = tf.function(lambda: curvature(ours), autograph=False)() if traced else curvature(ours)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
@operations
def test_xla_gives_the_same_numbers(name, rng):
    L, R = _lower(rng, 1, 20, 20), _full(rng, 2, 20, 6)
    ours = OPERATIONS[name][0]
    compiled = tf.function(
        lambda L, R: _value_and_gradients(ours, L, R), jit_compile=True, autograph=False
    )
    for left, right in zip(compiled(L, R), _value_and_gradients(ours, L, R)):
        assert_allclose(left, right, rtol=1e-10, atol=1e-11)


@operations
def test_float32(name, rng):
    L, R = _lower(rng, 300, 300, dtype="float32"), _full(rng, 300, 4, dtype="float32")
    ours, theirs = OPERATIONS[name]
    expected = theirs(tf.cast(L, tf.float64), tf.cast(R, tf.float64))
    result = ours(L, R)
    assert result.dtype == tf.float32
    assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.costly(keep=4)
@operations
def test_sizes_that_are_not_known_when_tracing(name, rng):
    L, R = _lower(rng, 1, 6, 6), _full(rng, 2, 6, 3)
    ours = OPERATIONS[name][0]
    spec = [tf.TensorSpec([1, None, None], tf.float64), tf.TensorSpec([2, None, None], tf.float64)]
    traced = tf.function(
        lambda L, R: _value_and_gradients(ours, L, R), input_signature=spec, autograph=False
    )
    for left, right in zip(traced(L, R), _value_and_gradients(ours, L, R)):
        assert_allclose(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("adjoint", [False, True])
def test_frozen_solve_forms_no_gradient_of_the_factor(adjoint, rng):
    L, R = _lower(rng, 4, 4), _full(rng, 4, 3)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([L, R])
        frozen = tf.reduce_sum(tf.sin(tri.solve_frozen(L, R, adjoint)))
        free = tf.reduce_sum(tf.sin(tri.solve(L, R, adjoint)))
    assert_allclose(frozen, free, rtol=1e-14)
    assert_allclose(tape.gradient(frozen, R), tape.gradient(free, R), rtol=1e-12)
    assert tape.gradient(frozen, L) is None
    assert np.abs(tape.gradient(free, L)).max() > 0.01


def test_mirror_reads_the_lower_triangle(rng):
    matrix = rng.normal(size=(2, 4, 4))
    lower = np.tril(matrix)
    assert_allclose(
        tri.mirror(matrix), lower + np.swapaxes(np.tril(matrix, -1), -1, -2), rtol=1e-15
    )
