"""Factors of the moments of f, by which predicted classes are as sure as left-out rows bear out."""

from __future__ import annotations

__all__ = ["Factors", "scaled"]

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

Factors = tuple[TensorType, TensorType]
"""a and b: predictions have a times the mean of f, and b times its variance."""


def scaled(factors: Factors | None, mean: tf.Tensor, cov: tf.Tensor) -> MeanAndVariance:
    """A mean [..., N, L], and its variances or covariances, times their factors []."""
    return (mean, cov) if factors is None else (factors[0] * mean, factors[1] * cov)
