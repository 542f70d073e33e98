"""Columns by their ranks."""

from __future__ import annotations

__all__ = ["NormalScores"]

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from scipy.special import ndtri

from ..summaries import one_line
from .standardization import as_matrix, checked_columns

_KNOTS = 500
"""Most distinct values of a column that are mapped exactly; between them the map is linear."""


class NormalScores(tf.Module):
    """Columns by their ranks: rank r among N becomes the normal quantile of (r - 1/2) / N.

    For columns with heavy tails or clusters. Each map is increasing and piecewise linear, also
    beyond the data.

    :param array: the training data [N, D], at least two rows.
    :param name: of the array, for messages.
    :param fixed: [D], true for columns to leave unchanged.
    :param weights: how much each row counts, [N, 1].

    Cost: D N log N; `transform` takes D log 500 a row. The maps are saved with a
    `tf.train.Checkpoint`. Example::

        inputs = NormalScores(X, "X")
        inputs.transform(X_new)
    """

    def __init__(
        self,
        array: npt.ArrayLike,
        name: str = "X",
        fixed: npt.ArrayLike = False,
        *,
        weights: npt.ArrayLike = 1.0,
    ) -> None:
        super().__init__()
        self._of = name
        values = checked_columns(array, name)
        fixed = np.broadcast_to(np.asarray(fixed, bool), values.shape[1:])
        rows = np.broadcast_to(np.asarray(weights, np.float64), (len(values), 1))[:, 0]
        pairs = [_identity() if stays else _knots(x, rows) for x, stays in zip(values.T, fixed)]
        longest = max(len(x) for x, _ in pairs)
        x, z = (np.stack([_padded(one, longest) for one in part]) for part in zip(*pairs))
        self.values = tf.Variable(x, trainable=False, dtype=tf.float64)
        """Increasing values of each column, [D, Q]."""
        self.scores = tf.Variable(z, trainable=False, dtype=tf.float64)
        """Normal scores of the knots, [D, Q]."""

    def __repr__(self) -> str:
        return one_line(self, self._of, columns=int(self.values.shape[0]))

    def transform(self, array: TensorType) -> tf.Tensor:
        """The normal scores of an array [..., D], of GPflow's default float type."""
        return _mapped(self.values, self.scores, as_matrix(array, self._of, self.values.shape[0]))

    def inverse_transform(self, array: TensorType) -> tf.Tensor:
        """An array [..., D] in the units of the data, from its normal scores."""
        return _mapped(self.scores, self.values, as_matrix(array, self._of, self.values.shape[0]))


def _knots(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, place = np.unique(column, return_inverse=True)
    counts = np.bincount(place, weights)
    if len(x) == 1:  # nothing to spread
        return np.array([x[0], x[0] + 1.0]), np.array([0.0, 1.0])
    share = (np.cumsum(counts) - 0.5 * counts) / np.sum(counts)
    if len(x) > _KNOTS:
        kept = np.unique(np.searchsorted(share, np.linspace(share[0], share[-1], _KNOTS)))
        x, share = x[kept], share[kept]
    z = ndtri(share)
    ends = [np.array([one[0] - np.ptp(one), one[-1] + np.ptp(one)]) for one in (x, z)]
    x, z = (np.concatenate([e[:1], one, e[1:]]) for e, one in zip(ends, (x, z)))
    return x, z


def _identity() -> tuple[np.ndarray, np.ndarray]:
    return np.array([0.0, 1.0]), np.array([0.0, 1.0])


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    steps = np.arange(1, length - len(values) + 1)
    return np.concatenate([values, values[-1] + steps * (values[-1] - values[-2])])


def _mapped(knots: tf.Tensor, targets: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    knots, targets = tf.convert_to_tensor(knots), tf.convert_to_tensor(targets)
    columns = int(knots.shape[0])
    flat = tf.transpose(tf.reshape(values, [-1, columns]))
    above = tf.clip_by_value(tf.searchsorted(knots, flat), 1, int(knots.shape[1]) - 1)
    (x0, x1), (z0, z1) = (
        [tf.gather(part, at, batch_dims=1) for at in (above - 1, above)]
        for part in (knots, targets)
    )
    found = z0 + (flat - x0) * (z1 - z0) / (x1 - x0)
    return tf.cast(tf.reshape(tf.transpose(found), tf.shape(values)), default_float())
