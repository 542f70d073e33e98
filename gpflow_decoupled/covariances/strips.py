"""Products with the matrix of any kernel, by strips of its rows."""

from __future__ import annotations

__all__ = ["strip_product"]

from collections.abc import Callable, Sequence

import tensorflow as tf
from gpflow.kernels import Kernel


def strip_product(
    kernel: Kernel,
    X: tf.Tensor,
    Z: tf.Tensor | None,
    V: tf.Tensor,
    entries: int,
    progress: Callable[[float], None] | None = None,
) -> tf.Tensor:
    """K(X, Z) V [N, R], without storing more than `entries` of K (or one row) and what its kernel needs besides.

    It can be differentiated once; the gradient computes every strip again. Gradients with respect to what the kernel depends
    on go to variables alone, of which GPflow's parameters are made.

    :param X: [N, D].
    :param Z: [M, D], or None for X; then the diagonal is that of `kernel(X, full_cov=False)`, which rounding cannot change.
    :param V: [M, R].
    :param progress: called with the share that is done, where it is executed eagerly.

    Example::

        strip_product(gpflow.kernels.Matern12(), X, None, V, entries=1_000_000)
    """

    @tf.custom_gradient
    def run(X: tf.Tensor, V: tf.Tensor, *others: tf.Tensor) -> tuple:
        N, R = tf.maximum(tf.shape(X)[0], 1), V.shape[1]  # one strip, without rows, where there are none
        rows = tf.maximum(entries // tf.maximum(tf.shape(V)[0], 1), 1)

        # `recompute_grad` keeps what is computed within a strip out of the tape of the caller
        unrecorded = tf.recompute_grad(lambda first, X, V, *others: _strip(kernel, first, rows, X, V, others))

        def forward(first: tf.Tensor, done: tf.TensorArray) -> tuple:
            strip = unrecorded(first, X, V, *others)
            _report(progress, first + rows, N)
            return first + rows, done.write(first // rows, strip)

        pieces = tf.TensorArray(V.dtype, -(-N // rows), element_shape=[None, R], infer_shape=False)
        _, pieces = tf.while_loop(lambda first, _: first < N, forward, (0, pieces), parallel_iterations=1)

        def grad(upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> tuple:
            wanted = [X, V, *others, *(variables or ())]

            def backward(first: tf.Tensor, *sums: tf.Tensor) -> tuple:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(wanted)
                    strip = _strip(kernel, first, rows, X, V, others)
                found = tape.gradient(
                    strip, wanted, upstream[first : first + rows], unconnected_gradients=tf.UnconnectedGradients.ZERO
                )
                _report(progress, first + rows, N)
                return first + rows, *(total + part for total, part in zip(sums, found))

            state = (0, *(tf.zeros_like(one) for one in wanted))
            _, *sums = tf.while_loop(lambda first, *_: first < N, backward, state, parallel_iterations=1)
            inputs = 2 + len(others)
            return sums[:inputs] if variables is None else (sums[:inputs], sums[inputs:])

        result = pieces.concat()
        result.set_shape([X.shape[0], R])
        return result, grad

    return run(X, V, *(() if Z is None else (Z,)))


def _strip(
    kernel: Kernel, first: tf.Tensor, rows: tf.Tensor, X: tf.Tensor, V: tf.Tensor, others: tuple[tf.Tensor, ...]
) -> tf.Tensor:
    """`rows` rows of K V from the row `first` on."""
    part = X[first : first + rows]
    if others:
        return tf.matmul(tf.cast(kernel(part, others[0]), V.dtype), V)
    strip = kernel(part, X)
    at = tf.range(tf.shape(part)[0])
    # noise kernels count here alone, and rough kernels would depend on how the distance of a point to itself is rounded
    excess = kernel(part, full_cov=False) - tf.gather_nd(strip, tf.stack([at, first + at], axis=1))
    return tf.matmul(tf.cast(strip, V.dtype), V) + tf.cast(excess, V.dtype)[:, None] * V[first : first + rows]


def _report(progress: Callable[[float], None] | None, done: tf.Tensor, whole: tf.Tensor) -> None:
    if progress is not None and tf.executing_eagerly():
        progress(min(1.0, int(done) / int(whole)))
