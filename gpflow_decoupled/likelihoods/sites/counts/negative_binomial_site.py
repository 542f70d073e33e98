"""Sites of negative binomial counts, by quadrature."""

from __future__ import annotations

__all__ = ["NEGATIVE_BINOMIAL"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...counts.negative_binomial import NegativeBinomial
from ...parameters import constant_parameter
from ...support import COUNTS
from ..description import SiteDescription
from ..quadrature_loss import QuadratureLoss
from ..site_loss import site_labels


def _negative_binomial_loss(likelihood: NegativeBinomial, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss of counts with mean exp(eta) and variance mean + mean^2 / size."""
    y = site_labels(Y)
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)

    def size() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.size)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = eta - tf.math.log(size())
        p = tf.sigmoid(x)
        return (y + size()) * p - y, (y + size()) * p * tf.sigmoid(-x)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        tiny = 1e-12
        up, down = tf.maximum(y + alpha, tiny), tf.maximum(size() - alpha, tiny)
        return tf.math.log(size()) + tf.math.log(up) - tf.math.log(down)

    def centre() -> tf.Tensor:
        return tf.math.log(size())  # with pi i it is where 1 + exp(eta) / size is zero

    return QuadratureLoss(
        likelihood, y, -y, size, slopes=slopes, start=start, width=np.pi, centre=centre
    )


NEGATIVE_BINOMIAL = SiteDescription(loss=_negative_binomial_loss, support=COUNTS)
