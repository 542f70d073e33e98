"""The correction from prior draws to draws of f given the nearest observations of each input."""

# With the weights w(x) = k(x, n) (K_nn + D)^-1 of the neighbours n of x, a prior draw g and noise
# eps ~ N(0, D),
#
#   f(x) = m(x) + sqrt(s(x)) (g(x) - w(x) (g_n + eps_n))
#
# has the mean m and the variance s (k(x, x) - w(x) k(n, x)) of a prediction from neighbours, (N7);
# s is its spread. Inputs share g and eps, and so a draw is one function (Matheron's rule).

from __future__ import annotations

__all__ = ["NeighbourCorrection", "neighbour_correction"]

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.utilities import deepcopy

from ..covariances.neighbours import RowIndex, row_index
from ..linalg.blocks import map_rows
from ..models import NNGP
from ..models.neighbours import NeighboursPosterior
from ..models.neighbours.conditionals import Observations, new_given_neighbours
from ..models.neighbours.copies import of_inputs
from ..models.neighbours.factors import scaled
from ..models.neighbours.groups import Group, jitter_variances, noise_of_group, noise_variances
from .prior import PriorDraws

_ENTRIES = 4_000_000
"""Most numbers in the covariances, or in the values, of neighbours of a block of inputs: 32 MB."""


class _Drawn(NamedTuple):
    """Observed rows of outputs with one covariance matrix, and what was drawn there."""

    group: Group
    row_index: RowIndex
    rows: Observations
    """Of inputs: X [U, D], noise [U, 1], and minus prior values and noise of S draws, [U, Q S]."""


@dataclass
class NeighbourCorrection:
    """The mean of neighbours, plus what they explain of S prior draws and their noise.

    :param posterior: of a copy of the model.
    """

    model: NNGP
    posterior: NeighboursPosterior
    prior: PriorDraws
    drawn: list[_Drawn]
    gap: float = 0.0
    """No iterative solve."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """The numbers of rows and of neighbours."""
        return self.model.sizes

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, n, L] at X [n, D], or with `own` at X [S n, D].

        n m^3 / 3 for each output or group of them, and n m S L; S times that with `own`.
        """
        S = self.prior.num_samples
        # 1) deviations from the mean, [S, n, L]
        draw = tf.repeat(tf.range(S), tf.shape(X)[0] // S) if own else None
        explained = [self._explained(one, X, draw) for one in self.drawn]
        columns = [column for one in self.drawn for column in one.group.columns]
        deviation = tf.gather(tf.concat(explained, axis=-1), np.argsort(columns), axis=-1)
        values = tf.linalg.matrix_transpose(self.prior(X, own))
        deviation += values
        # 2) with the mean and the spread of predictions
        mean, spread = self._mean_and_spread(X)
        shape = [S if own else 1, -1, int(mean.shape[1])]
        mean -= self.model.mean_function(X)
        return tf.reshape(mean, shape) + tf.reshape(tf.sqrt(spread), shape) * deviation - values

    def _mean_and_spread(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean of f and factor of its variance at X [n, D], [n, L] each."""
        if self.model.of_gaussian_noise:
            mean, _, spread = self.posterior.fused_with_spread(X)
            return mean, spread
        mean, _ = self.posterior.predict_f(X)
        _, spread = scaled(self.model.factors, mean, tf.ones_like(mean))
        return mean, spread

    def _explained(self, drawn: _Drawn, X: tf.Tensor, draw: tf.Tensor | None) -> tf.Tensor:
        """w(x) (-g_n - eps_n) at X [n, D], [S, n, Q]; or at X [S n, D] with the draw of each."""
        S, Q = self.prior.num_samples, len(drawn.group.columns)
        count = min(self.model.prediction_neighbours, int(drawn.rows.X.shape[0]))
        near = drawn.row_index.nearest(X, count)
        own = draw is not None
        draws = draw if own else tf.zeros(tf.shape(X)[:1], tf.int32)

        def of_block(inputs: tf.Tensor, near: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            rows = drawn.rows.at(near)
            if own:
                each = tf.reshape(rows.residuals, [-1, count, Q, S])
                mine = tf.gather(tf.transpose(each, [0, 3, 1, 2]), draws, axis=1, batch_dims=1)
                rows = rows._replace(residuals=mine)
            return new_given_neighbours(drawn.group.kernel, inputs, rows, near >= 0).mean

        size = max(1, _ENTRIES // max((count + 1) ** 2, count * Q * S))
        found = map_rows(of_block, (X, near, draws), size, X.dtype)
        if own:
            return tf.reshape(found, [S, -1, Q])
        return tf.transpose(tf.reshape(found, [-1, Q, S]), [2, 0, 1])


def neighbour_correction(
    model: NNGP, prior: PriorDraws, rng: np.random.Generator
) -> NeighbourCorrection:
    """Draw values and noise at all rows: S N (F + L), kept as S N L numbers.

    :param model: copied, so that further training does not change the draws.
    """
    frozen = deepcopy(model)
    observed = frozen.of_rows
    X = tf.convert_to_tensor(observed.data[0])
    noise = noise_variances(observed.likelihood, X, tf.range(tf.shape(X)[0]))
    least = jitter_variances(observed.groups, X)
    drawn_values = prior(X)  # [S, L, N]
    normal = tf.constant(rng.standard_normal(tuple(drawn_values.shape)), X.dtype)
    values, normal = (tf.transpose(part, [2, 1, 0]) for part in (drawn_values, normal))
    drawn = []
    for group in observed.matrices:
        own = noise_of_group(noise, group)
        jitter = tf.gather(least, group.columns, axis=1)
        # the jitter of every observation is noise to predictions, too
        eps = tf.gather(normal, group.columns, axis=1) * tf.sqrt(own + jitter)[..., None]
        minus = -tf.gather(values, group.columns, axis=1) - eps
        rows = Observations(X, tf.reshape(minus, [X.shape[0], -1]), own)
        rows = of_inputs(group, rows)
        drawn.append(_Drawn(group, row_index(group.kernel, rows.X), rows))
    return NeighbourCorrection(frozen, frozen.posterior(), prior, drawn)
