"""Self-normalising networks (Klambauer et al. 2017, arXiv:1706.02515), trained for a given time."""

from __future__ import annotations

__all__ = ["train_network"]

import math
from collections.abc import Sequence

import numpy as np
from gpflow.keras import tf_keras

from ..harness.data import Data
from ..harness.machine import clock

_WIDTH, _DROPOUT, _BATCH, _RATE, _PATIENCE = 256, 0.05, 128, 1e-3, 20
_VALIDATION = 0.1


class _Stop(tf_keras.callbacks.Callback):
    """Ends training when its time is over, or after `_PATIENCE` epochs without gain, and restores
    the best weights.

    The clock starts after the first batch, which compiles.

    :param limit: seconds of training.
    """

    def __init__(self, limit: float) -> None:
        super().__init__()
        self._limit, self._began, self._waited = limit, math.nan, 0
        self._weights: list[np.ndarray] | None = None
        self.seconds, self.steps, self.best = 0.0, 0, math.inf

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.steps += 1
        if math.isnan(self._began):
            self._began = clock()
        self.seconds = clock() - self._began
        self.model.stop_training = self.seconds >= self._limit

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        better = logs["val_loss"] < self.best
        self._waited = 0 if better else self._waited + 1
        if better:
            self.best, self._weights = logs["val_loss"], self.model.get_weights()
        self.seconds = clock() - self._began
        self.model.stop_training = self.model.stop_training or self._waited >= _PATIENCE

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        if self._weights is not None:
            self.model.set_weights(self._weights)


def train_network(
    data: Data, depths: Sequence[int], seconds: float, seed: int
) -> tuple[np.ndarray, float, int, str]:
    """Train a network of each depth on nine tenths of the training rows, stopped early by its loss
    on the other rows.

    :param depths: numbers of hidden layers, each of which is given an equal share of the `seconds`
        that are left.
    :param seconds: of training, all depths together.
    :param seed: of weights, dropout and the validation rows.
    :return: class probabilities [N_test, C] of the network with the least validation loss, seconds
        and steps of all networks, and a note that names that network.
    """
    tf_keras.utils.set_random_seed(seed)
    rows = np.random.default_rng(seed).permutation(len(data.X_train))
    held, kept = np.split(rows, [max(1, round(_VALIDATION * len(rows)))])
    validation = (data.X_train[held], data.Y_train[held])
    spent, steps, tried = 0.0, 0, []
    for index, depth in enumerate(depths):
        stop = _Stop((seconds - spent) / (len(depths) - index))
        network = _network(data.X_train.shape[1], depth, data.num_classes)
        network.fit(
            data.X_train[kept],
            data.Y_train[kept],
            batch_size=_BATCH,
            epochs=10**6,
            validation_data=validation,
            callbacks=[stop],
            verbose=0,
        )
        spent, steps = spent + stop.seconds, steps + stop.steps
        tried.append((stop.best, depth, network))
    _, depth, network = min(tried, key=lambda one: one[0])
    chances = network.predict(data.X_test, batch_size=4096, verbose=0).astype(float)
    return chances / chances.sum(1, keepdims=True), spent, steps, f"{depth} hidden layers"


def _network(num_inputs: int, depth: int, num_classes: int) -> tf_keras.Sequential:
    layers: list[tf_keras.layers.Layer] = [tf_keras.Input([num_inputs])]
    for _ in range(depth):
        layers.append(tf_keras.layers.Dense(_WIDTH, "selu", kernel_initializer="lecun_normal"))
        layers.append(tf_keras.layers.AlphaDropout(_DROPOUT))
    network = tf_keras.Sequential([*layers, tf_keras.layers.Dense(num_classes, "softmax")])
    network.compile(tf_keras.optimizers.Adam(_RATE), "sparse_categorical_crossentropy")
    return network
