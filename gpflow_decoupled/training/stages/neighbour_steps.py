"""Steps on minibatches of the likelihood of neighbours."""

from __future__ import annotations

__all__ = ["NeighbourSteps"]

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...models.neighbours import GaussianNNGP
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.neighbours import NeighbourRounds
from ..batches import Trackable
from ..keras import KerasAscent, Optimizer
from .stage import Budget, Report, Stage, StepOutput, all_finite

_PASSES = 4
"""Passes over a pool. A search costs as much as a few steps; after many, neighbours are old."""


class NeighbourSteps(Stage):
    """An optimizer on (N2) of random minibatches, for kernels with many parameters.

        log p(y) ~ sum_{i in batch} w_i (P / B) l_i

    Rows come from a pool of P = 6,000, replaced after four passes; weights w_i make it unbiased.
    L-BFGS is faster for some dozens of parameters.

    :param batch_size: B.

    Cost of a step: B (m^3 / 3 + m^2 D), whatever N is.
    """

    def __init__(
        self,
        model: GaussianNNGP,
        optimizer: Optimizer,
        batch_size: int,
        seed: int,
        compile: bool = True,
    ) -> None:
        self.model, self.seed = model, seed
        self.rounds = NeighbourRounds(model, seed=seed, compile=compile)
        self.ascent = KerasAscent(optimizer, model.trainable_variables)
        rows, weights = self.rounds.samples.sample(self.rounds.rows, 0)
        near = model.neighbours_of(rows)
        self.batch_size = min(batch_size, len(rows))
        self.rows = tf.Variable(rows.astype(np.int32), trainable=False)
        """[P]"""
        self.near = tf.Variable(near, trainable=False)
        """[G, P, m]"""
        self.weights = tf.Variable(weights.astype(model.data[1].dtype.as_numpy_dtype))
        """w [P]"""
        self.number = tf.Variable(0, trainable=False)
        """Of the pool."""
        self._step = Compiled(self._climb) if compile else self._climb

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.ascent.variables, *self._pool.values()]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"optimizer": self.ascent.optimizer, **self._pool}

    @property
    def settings(self) -> dict[str, object]:
        sizes = {"batch_size": self.batch_size, "num_neighbours": self.model.num_neighbours}
        return {**sizes, "optimizer": self.ascent.name}

    @property
    def _pool(self) -> dict[str, tf.Variable]:
        return {
            "pool_rows": self.rows,
            "pool_neighbours": self.near,
            "pool_weights": self.weights,
            "pool_number": self.number,
        }

    def run(self, budget: Budget) -> Report:
        count = int(self.rows.shape[0])
        number = budget.first // max(1, _PASSES * count // self.batch_size)
        if number != int(self.number.numpy()):
            self._draw(number)
        self.ascent.set_rate(budget.sizes[0].learning_rate)
        rng = np.random.default_rng([self.seed, 2, budget.first])
        chosen = rng.choice(count, self.batch_size, replace=False)
        over = budget.until < 1.0 and budget.clock.share >= budget.until
        return Report(self._step(tf.constant(chosen, tf.int32)), TIME_IS_UP if over else "")

    def _draw(self, number: int) -> None:
        rows, weights = self.rounds.samples.sample(self.rounds.rows, number)
        self.rows.assign(rows)
        self.near.assign(self.model.neighbours_of(rows))
        self.weights.assign(weights)
        self.number.assign(number)

    def _climb(self, chosen: tf.Tensor) -> StepOutput:
        rows, near = tf.gather(self.rows, chosen), tf.gather(self.near, chosen, axis=1)
        weights = tf.gather(self.weights, chosen) * (self.rows.shape[0] / self.batch_size)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.ascent.moved)
            value = tf.reduce_sum(weights * self.model.log_likelihood(rows, near))
            value += self.model.log_prior_density()
        gradients = tape.gradient(value, self.ascent.moved)
        self.ascent.ascend(gradients)
        return StepOutput.sound(value, all_finite([value, *gradients]))
