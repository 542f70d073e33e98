"""Values with hand-written derivatives."""

from __future__ import annotations

__all__ = ["with_slopes"]

import tensorflow as tf


def with_slopes(value: tf.Tensor, *arguments: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Return `value` [...] with the first derivative s in each argument x, replacing a poor
    gradient.

    There are no second derivatives in x.

    :param value: [...]; its gradient in other variables is kept.
    :param arguments: pairs (x, s) that broadcast to the shape of `value`; x must be finite.
    """
    # with `tf.custom_gradient`, each caller would have to sum over broadcast axes
    for x, slope in arguments:
        value += tf.stop_gradient(slope) * (x - tf.stop_gradient(x))
    return value
