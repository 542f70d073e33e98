"""The Adam of Keras 2 by one operation a variable, beside Keras' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_decoupled.optimizers.adam import slots_of
from gpflow_decoupled.training.keras import KerasAscent

Adam = tf_keras.optimizers.Adam


def variables_of(rng: np.random.Generator, dtype: tf.DType = tf.float64) -> list[tf.Variable]:
    return [tf.Variable(rng.normal(size=shape), dtype=dtype) for shape in ([4, 3], [], [2])]


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32], ids=["float64", "float32"])
def test_steps_are_those_of_keras(dtype: tf.DType, rng: np.random.Generator) -> None:
    moved = variables_of(rng, dtype)
    same = [tf.Variable(variable) for variable in moved]
    options = {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}
    ours, keras = KerasAscent(Adam(0.1, **options), moved), Adam(0.1, **options)
    keras.build(same)
    ascend = tf.function(ours.ascend, autograph=False)
    for step in range(5):
        gradients = [tf.constant(rng.normal(size=variable.shape), dtype) for variable in moved]
        rate = 0.1 / (1 + step // 2)
        ours.set_rate(rate)
        keras.learning_rate.assign(rate)
        ascend(gradients)
        keras.apply_gradients(
            [(-gradient, variable) for gradient, variable in zip(gradients, same)]
        )
    assert slots_of(ours.optimizer, moved) is not None
    tolerance = 1e-13 if dtype == tf.float64 else 1e-5
    for one, other in zip(ours.variables, [*same, *keras.variables]):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(amsgrad=True),
        Adam(weight_decay=0.1),
        Adam(clipnorm=1.0),
        Adam(clipvalue=1.0),
        Adam(global_clipnorm=1.0),
        Adam(use_ema=True),
        Adam(adaptive_epsilon=True),
        tf_keras.optimizers.AdamW(),
        tf_keras.optimizers.SGD(),
    ],
    ids=lambda one: type(one).__name__,
)
def test_any_other_optimizer_is_left_to_keras(optimizer: Any, rng: np.random.Generator) -> None:
    moved = variables_of(rng)
    optimizer.build(moved)
    assert slots_of(optimizer, moved) is None


def test_a_variable_without_gradient_stays(rng: np.random.Generator) -> None:
    moved = variables_of(rng)
    before = [variable.numpy() for variable in moved]
    KerasAscent(Adam(0.1), moved).ascend(
        [tf.ones([4, 3], tf.float64), None, tf.ones([2], tf.float64)]
    )
    np.testing.assert_array_equal(moved[1].numpy(), before[1])
    np.testing.assert_allclose(moved[0].numpy(), before[0] + 0.1, rtol=1e-3)


def test_rows_that_were_gathered_have_sparse_gradients(rng: np.random.Generator) -> None:
    table = tf.Variable(rng.normal(size=[5, 2]))
    before, ascent = table.numpy(), KerasAscent(Adam(0.1), [table])
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.gather(table, [3, 1, 3]))
    ascent.ascend([tape.gradient(value, table)])
    np.testing.assert_allclose(table.numpy()[[1, 3]], before[[1, 3]] + 0.1, rtol=1e-3)
    np.testing.assert_array_equal(table.numpy()[[0, 2, 4]], before[[0, 2, 4]])
