"""Factors of the moments of f, by which predicted labels are as sure as left-out rows bear out."""

from __future__ import annotations

__all__ = ["Factors", "factors_of", "scaled"]

import gpflow
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Bernoulli, Likelihood
from gpflow.utilities import positive

from ...likelihoods import BernoulliLogit, CategoricalLogit

Factors = tuple[TensorType, TensorType]
"""a and b: predictions have a times the mean of f, and b times its variance."""
_LABELS = Bernoulli, BernoulliLogit, CategoricalLogit


def factors_of(likelihood: Likelihood) -> tuple[gpflow.Parameter | None, gpflow.Parameter | None]:
    """Two Parameters at one for labels and classes; None for likelihoods whose f has a scale."""
    if not isinstance(likelihood, _LABELS):
        return None, None
    return tuple(gpflow.Parameter(1.0, transform=positive(), trainable=False) for _ in range(2))


def scaled(factors: Factors | None, mean: tf.Tensor, cov: tf.Tensor) -> MeanAndVariance:
    """A mean [..., N, L], and its variances or covariances, times their factors []."""
    return (mean, cov) if factors is None else (factors[0] * mean, factors[1] * cov)
