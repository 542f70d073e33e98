"""Predictions of a basis."""

from __future__ import annotations

__all__ = ["BasisPredictions"]

import abc

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance
from gpflow.posteriors import PrecomputeCacheType

from ..bases import Basis
from ..errors import not_a_number
from ..posteriors import BasisPosterior
from .checks import CheckedPredictions


class BasisPredictions(CheckedPredictions, abc.ABC):
    """A model with a `basis`, which predicts by a `BasisPosterior`."""

    basis: Basis
    """The parametrisation of q(f)."""

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Moments of f at Xnew [..., N, D] in GPflow's shapes: mean and variances [..., N, P]."""
        with self.enough_memory(Xnew, full_cov):
            posterior = self.posterior(PrecomputeCacheType.NOCACHE)
            moments = posterior.fused_predict_f(Xnew, full_cov, full_output_cov)
        if tf.executing_eagerly() and any(np.any(np.isnan(part)) for part in moments):
            raise not_a_number(self, "posterior of f at Xnew")
        return moments

    def posterior(
        self, precompute_cache: None | str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> BasisPosterior:
        """A posterior for fast predictions, with the present Parameters' factorisations.

        :param precompute_cache: "tensor", "variable" (can be exported, and updated in place by
            `update_cache()`), or "nocache".
        """
        return BasisPosterior(
            self.kernel,
            self.basis,
            self.mean_function,
            precompute_cache=precompute_cache,
            num_dims=self.num_dims,
        )
