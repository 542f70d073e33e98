"""Several small training steps in one call."""

from __future__ import annotations

__all__ = ["SeveralSteps"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ..schedules import StepSizes
from .stage import StepOutput


class SeveralSteps:
    """A loop of TensorFlow around a training step, compiled as one function.

    :param set_step_sizes: writes the sizes of a step to their variables.
    :param step: takes X [B, D], Y [B, P] and a seed [2]; its `StepOutput` has scalars.
    """

    # A call takes half a millisecond, as long as a step with 30 inducing points and 64 rows. A step
    # that is not `ok` ends the loop.

    most = 20
    """Steps in one call."""

    def __init__(
        self,
        set_step_sizes: Callable[[StepSizes], None],
        step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], StepOutput],
    ) -> None:
        self._set_step_sizes, self._step = set_step_sizes, step
        self._graph: tf.types.experimental.ConcreteFunction | None = None

    def trace(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        """Compile the loop for any number K of batches X [K, B, D], Y [K, B, P]."""
        tensors = [
            X,
            Y,
            tf.zeros([1, 2], tf.int32),
            tf.zeros([1, len(StepSizes._fields)], tf.float64),
        ]
        signature = [tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) for tensor in tensors]
        self._graph = Compiled(self._loop).get_concrete_function(*signature)

    def run(
        self,
        X: tf.Tensor,
        Y: tf.Tensor,
        seeds: Sequence[tuple[int, int]],
        sizes: Sequence[StepSizes],
    ) -> StepOutput:
        """Take K steps.

        :param X: inputs [K, B, D].
        :param Y: observations [K, B, P].
        :param seeds: (seed of the run, number of the step) [K, 2].
        :return: arrays [K]; zeros and False after a step that is not `ok`.
        """
        assert self._graph is not None
        numbers = np.array([[np.nan if size is None else size for size in one] for one in sizes])
        return self._graph(X, Y, tf.constant(seeds, tf.int32), tf.constant(numbers, tf.float64))

    def _loop(self, X: tf.Tensor, Y: tf.Tensor, seeds: tf.Tensor, sizes: tf.Tensor) -> StepOutput:
        count = tf.shape(X)[0]
        kinds = StepOutput(X.dtype, tf.bool, tf.int32, tf.int32)
        arrays = StepOutput(*(tf.TensorArray(kind, count, element_shape=[]) for kind in kinds))

        def body(
            k: tf.Tensor, _: tf.Tensor, done: StepOutput
        ) -> tuple[tf.Tensor, tf.Tensor, StepOutput]:
            self._set_step_sizes(StepSizes(*tf.unstack(sizes[k])))
            output = self._step(X[k], Y[k], seeds[k])
            written = (array.write(k, value) for array, value in zip(done, output))
            return k + 1, output.ok, StepOutput(*written)

        def goes_on(k: tf.Tensor, ok: tf.Tensor, _: StepOutput) -> tf.Tensor:
            return tf.logical_and(k < count, ok)

        # one at a time: TensorFlow would start a step that reads variables before the step before
        # it has written them
        start = tf.constant(0), tf.constant(True), arrays
        return StepOutput(
            *(
                array.stack()
                for array in tf.while_loop(goes_on, body, start, parallel_iterations=1)[2]
            )
        )
