"""Products and solves with a Fisher matrix without formula."""

# I(lambda) = grad^2 A(lambda) = Cov phi(z), multiplied by a vector u without forming it:
#
# | product | needs | error |
# |---|---|---|
# | `hessian_product`: grad <grad A, u>, (C61) | second derivatives of A | round-off |
# | `covariance_product`: mean of c_s <c_s, u>, c = phi - phi_bar, (C62) | S draws | 1 / sqrt(S) |

from __future__ import annotations

__all__ = ["covariance_product", "hessian_product", "scales", "solve"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...linalg.conjugate_gradients import conjugate_gradients
from .family import Natural

Product = Callable[[Natural], Natural]
"""The Fisher matrix times a vector of the shapes of lambda."""

_UNSOLVED = 1e-3
"""A solution whose residual exceeds this share of the gradient becomes NaN."""


def hessian_product(log_partition: Callable[[Natural], tf.Tensor], natural: Natural) -> Product:
    """Return u -> I(lambda) u by second derivatives of A along u, (C61); four evaluations of A
    each.

    A(lambda) [...] is in nats; lambda has one tensor per statistic.
    """

    def product(u: Natural) -> Natural:
        with tf.GradientTape() as outer:
            outer.watch(natural)
            with tf.GradientTape() as inner:
                inner.watch(natural)
                value = tf.reduce_sum(log_partition(natural))
            mu = inner.gradient(value, natural, unconnected_gradients="zero")
            along = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(mu, u)])
        return tuple(outer.gradient(along, natural, unconnected_gradients="zero"))  # (C61)

    return product


def covariance_product(statistics: Natural, ranks: tuple[int, ...]) -> Product:
    """Return u -> Cov(phi) u with the covariance of draws, (C62); S D for D statistics.

    `statistics` are phi(z_s), one tensor [S, ...] each (Salimans & Knowles 2013).
    """
    centred = tuple(part - tf.reduce_mean(part, axis=0) for part in statistics)

    def product(u: Natural) -> Natural:
        terms = [
            tf.reduce_sum(c * part, list(range(-rank, 0)))
            for c, part, rank in zip(centred, u, ranks)
        ]
        weights = tf.add_n(terms)  # [S, ...]
        return tuple(
            tf.reduce_mean(
                tf.reshape(weights, tf.concat([tf.shape(weights), [1] * rank], 0)) * c, axis=0
            )
            for c, rank in zip(centred, ranks)
        )

    return product


def scales(statistics: Natural) -> Natural:
    """Variances over draws of statistics [S, ...]; 1 if zero or not finite."""
    variances = [tf.math.reduce_variance(part, axis=0) for part in statistics]
    return tuple(tf.where(tf.math.is_finite(v) & (v > 0.0), v, tf.ones_like(v)) for v in variances)


def solve(
    product: Product,
    diagonal: Natural,
    gradient: Natural,
    ranks: tuple[int, ...],
    tolerance: float,
    iterations: int,
) -> Natural:
    """Solve I(lambda) x = g by conjugate gradients, with step lengths per member of the batch.

    :param diagonal: a positive estimate of the diagonal, the preconditioner.
    :param iterations: limit; members left with over a thousandth become NaN.
    """
    shapes = [tf.shape(part) for part in gradient]
    rows = tf.reduce_prod(shapes[0][: len(gradient[0].shape) - ranks[0]])
    widths = [
        tf.reduce_prod(shape[len(part.shape) - rank :])
        for shape, part, rank in zip(shapes, gradient, ranks)
    ]

    def flat(parts: Natural) -> tf.Tensor:
        return tf.concat(
            [tf.reshape(part, [rows, width]) for part, width in zip(parts, widths)], axis=1
        )

    def parts_of(vectors: tf.Tensor) -> Natural:
        return tuple(
            tf.reshape(part, shape)
            for part, shape in zip(tf.split(vectors, widths, axis=1), shapes)
        )

    def inner(left: tuple, right: tuple) -> tf.Tensor:
        return tf.reduce_sum(left[0] * right[0], axis=1, keepdims=True)

    def apply(blocks: tuple) -> tuple:
        return (flat(product(parts_of(blocks[0]))),)

    weights, right = flat(diagonal), flat(gradient)
    found = conjugate_gradients(
        apply, lambda r: (r[0] / weights,), (right,), inner, tolerance, iterations
    ).x[0]
    # the recursion's residual drifts, so that solved members are told by a new one
    residual = right - apply((found,))[0]
    left, whole = (
        tf.reduce_sum(part**2 / weights, axis=1, keepdims=True) for part in (residual, right)
    )
    solved = left <= _UNSOLVED**2 * whole
    return parts_of(tf.where(solved, found, tf.constant(np.nan, found.dtype)))
