"""Keras's Adam by TensorFlow's fused operation: one per variable instead of 22."""

from __future__ import annotations

__all__ = ["Slots", "adam_step", "slots_of"]

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import tensorflow as tf
from gpflow.keras import tf_keras

_THAT_CHANGE_A_STEP = (
    "amsgrad",
    "adaptive_epsilon",
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
)


class Slots(NamedTuple):
    """State and settings of a Keras Adam."""

    iterations: tf.Variable
    """Steps done, []."""
    learning_rate: tf.Variable
    """[]"""
    betas: tuple[float, float]
    """Decay rates of the two running means."""
    epsilon: float
    """Added to the root of the second one."""
    first: list[tf.Variable]
    """Running mean of the gradient, per variable."""
    second: list[tf.Variable]
    """Running mean of its square."""


class _Adam(Protocol):
    iterations: tf.Variable
    learning_rate: tf.Variable
    variables: Sequence[tf.Variable]
    beta_1: float
    beta_2: float
    epsilon: float


def slots_of(optimizer: object, moved: Sequence[tf.Variable]) -> Slots | None:
    """Return the state of a plain Keras Adam built for the variables `moved` [...], else None."""
    # Others are optimizers with clipping, weight decay, averaging, `amsgrad` or `adaptive_epsilon`.
    if type(optimizer) is not tf_keras.optimizers.Adam or not moved:
        return None
    adam = cast(_Adam, optimizer)
    changed = any(getattr(adam, name, None) for name in _THAT_CHANGE_A_STEP)
    special = any(
        isinstance(one, tf.distribute.DistributedValues) or one.constraint is not None
        for one in moved
    )
    own = adam.iterations, adam.learning_rate
    slots = [
        variable for variable in adam.variables if variable is not own[0] and variable is not own[1]
    ]
    first, second = slots[::2], slots[1::2]
    shapes = [variable.shape for variable in moved]
    if (
        changed
        or special
        or any([one.shape for one in found] != shapes for found in (first, second))
    ):
        return None
    return Slots(*own, (adam.beta_1, adam.beta_2), adam.epsilon, first, second)


def adam_step(slots: Slots, pairs: Sequence[tuple[tf.Tensor, tf.Variable]]) -> None:
    """Apply gradients as Keras does (Kingma & Ba 2015, arXiv:1412.6980, end of section 2).

    :param pairs: (gradient [...], variable) for each variable of the slots, in order.
    """
    powers = dict[tf.DType, list[tf.Tensor]]()
    for (gradient, variable), first, second in zip(pairs, slots.first, slots.second):
        dtype = variable.dtype
        if dtype not in powers:
            step = tf.cast(slots.iterations + 1, dtype)
            # of float32 numbers, as in Keras
            powers[dtype] = [tf.cast(beta, dtype) ** step for beta in slots.betas]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=powers[dtype][0],
            beta2_power=powers[dtype][1],
            lr=tf.cast(slots.learning_rate, dtype),
            beta1=tf.constant(slots.betas[0], dtype),
            beta2=tf.constant(slots.betas[1], dtype),
            epsilon=tf.constant(slots.epsilon, dtype),
            grad=tf.convert_to_tensor(gradient),  # gradients of gathered rows are sparse
        )
    slots.iterations.assign_add(1)
