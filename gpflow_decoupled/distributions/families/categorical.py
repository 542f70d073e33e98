"""The categorical family."""

from __future__ import annotations

__all__ = ["Categorical"]

import numpy.typing as npt
import tensorflow as tf

from ...errors import DataError
from ...probability import tfp
from .family import Family, Natural, as_float


class Categorical(Family):
    """One of K classes, as a one-hot vector z [..., K]: lambda = (logits [..., K],).

    mu are the class probabilities. A constant added to the logits changes nothing, so messages may
    be unnormalised log weights. Samples are not differentiable.

    Example::

        natural = Categorical().natural(logits=[0.0, 1.0, -1.0])
        (probabilities,) = Categorical().expectation(natural)        # [3]
    """

    statistics = ("z",)
    ranks = (1,)
    reparameterized = False

    def natural(self, logits: npt.ArrayLike) -> Natural:
        """Natural parameters of `logits` [..., K], K >= 2."""
        tensor = as_float("the logits of a Categorical", logits)
        if tensor.shape.rank == 0 or tensor.shape[-1] == 1:
            raise DataError(
                f"the logits of a Categorical have shape {tuple(tensor.shape)} and need [..., K], K"
                " >= 2."
            )
        return (tensor,)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.OneHotCategorical(logits=natural[0], dtype=natural[0].dtype)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_logsumexp(natural[0], axis=-1)

    def expectation(self, natural: Natural) -> Natural:
        """The class probabilities ([..., K],)."""
        return (tf.nn.softmax(natural[0], axis=-1),)

    def sufficient(self, z: tf.Tensor) -> Natural:
        return (z,)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """Solve (diag p - p p^T) x = g [..., K], g of sum 0: x = g / p."""
        return (tf.math.divide_no_nan(gradient[0], tf.nn.softmax(natural[0], axis=-1)),)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(tf.math.is_finite(natural[0]), axis=-1)
