"""The categorical family."""

from __future__ import annotations

__all__ = ["Categorical"]

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from ...errors import DataError
from .base import Family, Natural, as_float


class Categorical(Family):
    """One of K classes, as a row z [..., K] of zeros and a one: lambda = (logits [..., K],), mu = (probabilities,).

    Overcomplete, so that messages are log weights as they come: lambda is known up to a constant, which changes neither
    mu nor the entropy. Samples are not differentiable.
    """

    statistics = ("z",)
    ranks = (1,)
    reparameterized = False

    def natural(self, logits: Any) -> Natural:
        """Lambda from `logits` [..., K], K at least 2."""
        tensor = as_float("the logits of a Categorical", logits)
        if tensor.shape.rank == 0 or tensor.shape[-1] == 1:
            raise DataError(f"the logits of a Categorical have shape {tuple(tensor.shape)} and need [..., K], K >= 2.")
        return (tensor,)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        """`tfd.OneHotCategorical` with the batch of lambda."""
        return tfp.distributions.OneHotCategorical(logits=natural[0], dtype=natural[0].dtype)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        """[...]."""
        return tf.reduce_logsumexp(natural[0], axis=-1)

    def expectation(self, natural: Natural) -> Natural:
        """(Probabilities [..., K],)."""
        return (tf.nn.softmax(natural[0], axis=-1),)

    def natural_from_expectation(self, expectation: Natural) -> Natural:
        """From (probabilities [..., K],), above 0."""
        return (tf.math.log(expectation[0]),)

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(z,), z [..., K] with a one at the class."""
        return (z,)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """A solution of (diag p - p p^T) x = g, g [..., K] of sum 0: g / p; the others differ from it by a constant."""
        return (tf.math.divide_no_nan(gradient[0], tf.nn.softmax(natural[0], axis=-1)),)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        """[...]: finite."""
        return tf.reduce_all(tf.math.is_finite(natural[0]), axis=-1)
