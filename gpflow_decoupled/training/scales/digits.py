"""Whether the numbers of a model have digits enough for its noise."""

from __future__ import annotations

__all__ = ["check_digits"]

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ...covariances.latents import prior_variance
from ...errors import DataError
from ...inducing.weights import Weights
from ...likelihoods.parameters import single_noise_variance
from ...models import BasisGP, FactorGraph
from ..batches import ArrayBatches, Batches, DiskBatches

_ROWS = 10_000
"""Of which the prior variance is computed at most."""


def check_digits(model: GPModel | FactorGraph, batches: Batches) -> None:
    """Refuse a noise variance that the prior variance swallows: sums of the two would be the larger
    one to the last digit.

    Bounds and variances would then be round-off, and a bound may lie above the evidence.

    :param model: before training; only a single noise variance of a `Gaussian` likelihood is looked
        at.
    :param batches: its data; of a stream nothing is looked at.
    :raises DataError: where the ratio of the two is beyond the digits of the model's type, 4.5e15
        for float64.

    Example::

        check_digits(model, ArrayBatches(X, Y, None, 0))
    """
    if isinstance(model, FactorGraph) or not isinstance(batches, (ArrayBatches, DiskBatches)):
        return
    variance = single_noise_variance(model.likelihood)
    if variance is None:
        return
    of_weights = isinstance(model, BasisGP) and isinstance(model.basis.beta, Weights)
    if (
        of_weights
    ):  # their matrices are of the size of the weights, and the prior variance of f is not in them
        return
    X = tf.constant(batches.sample[0]) if isinstance(batches, DiskBatches) else batches.X[:_ROWS]
    prior = float(tf.reduce_max(prior_variance(model.kernel, X, full_cov=False)))
    noise, limits = float(variance), np.finfo(X.dtype.as_numpy_dtype)
    if (
        float(limits.tiny) < noise < prior * float(limits.eps)
    ):  # what is smaller still is refused with the observation
        raise DataError(
            f"The prior variance of f is up to {prior:.3g} at X and the noise variance is"
            f" {noise:.3g}, which is less than the round-off of the former in {X.dtype.name}."
            " Standardise X and Y, as gpflow_decoupled.Standardized(build, (X, Y)) does, or start"
            " from a larger noise variance."
        )
