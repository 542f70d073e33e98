"""Factors of the moments of f, by which predicted classes are as sure as left-out rows bear out."""

from __future__ import annotations

__all__ = ["Factors", "factors_of", "scaled"]

import gpflow
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.utilities import positive

from ...likelihoods import CategoricalLogit

Factors = tuple[TensorType, TensorType]
"""a and b: predictions have a times the mean of f, and b times its variance."""


def factors_of(likelihood: Likelihood) -> tuple[gpflow.Parameter | None, gpflow.Parameter | None]:
    """Two Parameters at one for classes of a softmax, else None: two classes by one function are
    sure enough, on four sets.
    """
    if not isinstance(likelihood, CategoricalLogit):
        return None, None
    return tuple(gpflow.Parameter(1.0, transform=positive(), trainable=False) for _ in range(2))


def scaled(factors: Factors | None, mean: tf.Tensor, cov: tf.Tensor) -> MeanAndVariance:
    """A mean [..., N, L], and its variances or covariances, times their factors []."""
    return (mean, cov) if factors is None else (factors[0] * mean, factors[1] * cov)
