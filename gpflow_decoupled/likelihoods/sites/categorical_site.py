"""Sites of class labels, by the tilted bound (V33)."""

from __future__ import annotations

__all__ = ["CategoricalLoss", "categorical_sites"]

import tensorflow as tf
from gpflow.base import TensorType

from ...errors import DataError
from ...expectations.log_sum_exp import best_tilt, tilted_bound
from ..categorical_logit import CategoricalLogit
from ..support import classes
from .description import SiteDescription
from .site_loss import Expansion, SiteLoss


class CategoricalLoss(SiteLoss):
    """The upper bound (V33) of -E log softmax(f)_y, f_c ~ N(h_c, sigma_c^2) independent.

    :param Y: labels [N, 1], whole numbers from 0 to C - 1.
    """

    # Jointly convex in all h and sigma^2. Columns are classes, whose losses sum to the bound;
    # `expand` differentiates the sum. The Hessian in (h, sigma^2) of one observation is (V35)
    #
    #     Q^T (E - E 1 1^T E / 1^T E 1) Q,   E = diag(s / (1 + s sigma^2)),   Q = (I, diag(1/2 - s))
    #
    # with s the best tilt of (V33).

    couples = True

    def __init__(self, likelihood: CategoricalLogit, Y: TensorType) -> None:
        super().__init__(Y)
        if self.Y.shape[1] != 1:
            raise DataError(
                f"Y has {self.Y.shape[1]} columns; classes are one column of numbers 0, 1, 2, ...:"
                " of columns that are 0 or 1 make it by np.argmax(Y, axis=1)[:, None]."
            )
        labels = tf.cast(self.Y[:, 0], tf.int32)
        self.hot = tf.one_hot(labels, likelihood.num_classes, dtype=self.Y.dtype)

    @property
    def lower(self) -> tf.Tensor:
        return -self.hot

    @property
    def upper(self) -> tf.Tensor:
        return 1.0 - self.hot

    @property
    def curvature(self) -> tf.Tensor:
        return tf.zeros_like(self.hot)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        bound = tilted_bound(h, tf.square(sigma))[:, None]
        return bound / self.hot.shape[1] - self.hot * h  # (V33)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The losses, and derivatives of their sums over a row, [N, C] each."""
        s, E = self.tilt_and_weight(h, sigma)
        bend = E - tf.square(E) / tf.reduce_sum(E, axis=1, keepdims=True)  # (V35)
        slope = s * (1.0 - s)
        across = sigma * (1.0 - 2.0 * s)
        return Expansion(
            self.value(h, sigma),
            s - self.hot,
            sigma * slope,
            bend,
            across * bend,
            tf.square(across) * bend + slope,
        )

    def tilt_and_weight(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The best tilt s of (V33) and the diagonal of E of (V35), [N, C] each."""
        variance = tf.square(sigma)
        s = best_tilt(h, variance)
        return s, s / (1.0 + s * variance)


def categorical_sites(likelihood: CategoricalLogit) -> SiteDescription:
    """The sites of a likelihood with its number of classes."""
    return SiteDescription(loss=CategoricalLoss, support=classes(likelihood.num_classes))
