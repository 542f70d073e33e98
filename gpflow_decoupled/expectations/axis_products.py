"""Products with gradients that never divide, and sums over sites in blocks."""

from __future__ import annotations

__all__ = ["map_blocks", "other_factors", "product"]

from collections.abc import Callable, Sequence

import tensorflow as tf


def product(factors: tf.Tensor) -> tf.Tensor:
    """Product over axis 1 of [N, D, T], real or complex: [N, T]."""
    # The gradient (A16) is right at zeros, unlike `tf.math.cumprod`'s.

    @tf.custom_gradient
    def multiplied(factors: tf.Tensor) -> tuple:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream[:, None] * tf.math.conj(other_factors(factors))

        return tf.reduce_prod(factors, axis=1), gradient

    return multiplied(factors)


def other_factors(factors: tf.Tensor) -> tf.Tensor:
    """For each factor, the product of all others along axis 1, [N, D, T]."""
    before = tf.math.cumprod(factors, axis=1, exclusive=True)
    return before * tf.math.cumprod(factors, axis=1, exclusive=True, reverse=True)


def map_blocks(
    function: Callable[..., tf.Tensor],
    per_site: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    rows: int,
) -> tf.Tensor:
    """Return function(*per_site, *shared) [N], computed in blocks of rows.

    The gradient recomputes each block, and reaches only the tensors passed here. XLA compiles one
    block only.
    """
    per_site, shared = list(per_site), list(shared)
    N = per_site[0].shape[0]
    if N is not None and N <= rows:
        return function(*per_site, *shared)
    count = len(per_site)

    @tf.custom_gradient
    def mapped(*arguments: tf.Tensor) -> tuple:
        sites, common = arguments[:count], arguments[count:]
        total = tf.shape(sites[0])[0]
        blocks = (total + rows - 1) // rows

        def value(start: tf.Tensor) -> tf.Tensor:
            return function(*(part[start : start + rows] for part in sites), *common)

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _block_gradients(function, sites, common, upstream, rows)

        pieces = tf.TensorArray(sites[0].dtype, blocks, infer_shape=False, element_shape=[None])
        loop = tf.while_loop(
            lambda i, _: i < blocks,
            lambda i, pieces: (i + 1, pieces.write(i, value(i * rows))),
            (0, pieces),
            parallel_iterations=1,
        )
        return tf.ensure_shape(loop[1].concat(), [N]), gradient

    return mapped(*per_site, *shared)


def _block_gradients(
    function: Callable[..., tf.Tensor],
    sites: Sequence[tf.Tensor],
    common: Sequence[tf.Tensor],
    upstream: tf.Tensor,
    rows: int,
) -> list[tf.Tensor]:
    total = tf.shape(sites[0])[0]
    blocks = (total + rows - 1) // rows

    def step(i: tf.Tensor, arrays: tuple, sums: tuple) -> tuple:
        parts = [part[i * rows : (i + 1) * rows] for part in sites]
        with tf.GradientTape() as tape:
            tape.watch([*parts, *common])
            value = tf.reduce_sum(function(*parts, *common) * upstream[i * rows : (i + 1) * rows])
        gradients = tape.gradient(
            value, [*parts, *common], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        written = tuple(array.write(i, part) for array, part in zip(arrays, gradients))
        return i + 1, written, tuple(old + new for old, new in zip(sums, gradients[len(sites) :]))

    arrays = tuple(
        tf.TensorArray(part.dtype, blocks, infer_shape=False, element_shape=[None, *part.shape[1:]])
        for part in sites
    )
    sums = tuple(tf.zeros_like(part) for part in common)
    _, arrays, sums = tf.while_loop(
        lambda i, *_: i < blocks, step, (0, arrays, sums), parallel_iterations=1
    )
    return [
        *(tf.ensure_shape(array.concat(), part.shape) for array, part in zip(arrays, sites)),
        *sums,
    ]
