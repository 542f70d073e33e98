"""Posterior and records in the units of the data."""

from __future__ import annotations

__all__ = ["StandardizedPosterior", "result_in_units"]

from typing import Protocol

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from ..result import FitResult


class _Units(Protocol):
    """The interface of a `Standardized` model for its posterior."""

    def encoded(self, Xnew: object) -> tf.Tensor:
        """Inputs [..., N, D] as the model inside sees them."""

    def in_units(
        self, moments: MeanAndVariance, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments [..., N, P] in the units of Y."""


class StandardizedPosterior(tf.Module):
    """Predictions of f from cached factorisations, in the units of the data.

    `inside` is the posterior of standardised data. Example::

        posterior = model.posterior()
        mean, variance = posterior.predict_f(Xnew)
    """

    def __init__(self, model: _Units, inside: AbstractPosterior) -> None:
        super().__init__()
        self.model, self.inside = model, inside

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f at Xnew [..., N, D], as `Standardized.predict_f`."""
        X = self.model.encoded(Xnew)
        moments = self.inside.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        return self.model.in_units(moments, full_cov, full_output_cov)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute the factorisations again from the present Parameters."""
        self.inside.update_cache(precompute_cache)


def result_in_units(result: FitResult, shift: float) -> FitResult:
    """Subtract `shift` nats, the log determinant of dY/dz of all rows, from the bounds of a run.

    Scores of held-out rows are in units already, see `Evaluation.units`.
    """
    result.elbo -= shift
    if "elbo" in result.history:
        result.history["elbo"] = result.history["elbo"] - shift
    if result.evidence is not None:
        result.evidence = result.evidence.shifted(-shift)
    return result
