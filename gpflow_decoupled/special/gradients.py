"""Values with derivatives that are given by hand."""

from __future__ import annotations

__all__ = ["with_slopes"]

import tensorflow as tf


def with_slopes(value: tf.Tensor, *arguments: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The `value` as a function of some x with first derivatives s, for functions whose own
    gradient is missing or wrong.

    Not `tf.custom_gradient`, in which each function would have to sum its derivatives over the axes
    that broadcast.

    :param value: [...]; what else it depends on is not touched.
    :param arguments: pairs (x, s), both of shapes that broadcast to that of `value`; x must be
        finite.
    :return: the same numbers as `value`, whose gradient in each x is s; second derivatives are not
    offered.
    """
    for x, slope in arguments:
        value += tf.stop_gradient(slope) * (x - tf.stop_gradient(x))
    return value
