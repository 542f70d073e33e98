"""Predictions in the units of the data."""

from __future__ import annotations

__all__ = ["PredictionsInUnits", "StandardizedPosterior"]

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from ...errors import ModelError
from ...models import NNGP, LeaveOneOut
from ...pathwise import pathwise_samples
from .data import DataInUnits
from .model_parts import has_log_scale


class PredictionsInUnits(DataInUnits):
    """The predictions of a `model` of standardised data."""

    def posterior(
        self, precompute_cache: str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> StandardizedPosterior:
        """Predictions of f with the present factorisations; "variable" ones can be exported."""
        return StandardizedPosterior(self, self.model.posterior(precompute_cache))

    def pathwise_samples(
        self, num_samples: int, **options: Any
    ) -> Callable[[TensorType], tf.Tensor]:
        """Draw functions of the posterior: X [N, D] -> [S, N, P] in the units of the data.

        :param num_samples: S.
        :param options: of `pathwise.pathwise_samples`.
        """
        draws = pathwise_samples(self.model, num_samples, **options)

        def function(X: TensorType) -> tf.Tensor:
            values = draws(self.encoded(X))
            return self.in_units((values, tf.ones_like(values)), False, False)[0]

        return function

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f at Xnew [..., N, D] in the units of Y, in GPflow's shapes."""
        moments = self.model.predict_f(
            self.encoded(Xnew), full_cov=full_cov, full_output_cov=full_output_cov
        )
        return self.in_units(moments, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of new observations at Xnew [..., N, D] in the units of Y, as `predict_f`."""
        moments = self.model.predict_y(
            self.encoded(Xnew), full_cov=full_cov, full_output_cov=full_output_cov
        )
        return self.in_units(moments, full_cov, full_output_cov)

    def predict_log_density(
        self, data: Sequence[TensorType], full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log densities [..., N] in nats per unit of Y, at X [..., N, D], Y [..., N, P].

        Of a censored row it is the log probability beyond its limit.
        """
        inside = self._standardised(data)
        density = self.model.predict_log_density(
            inside, full_cov=full_cov, full_output_cov=full_output_cov
        )
        seen = self._measured(tf.cast(inside[1], density.dtype))
        return density - self._log_scale(density.dtype, seen)

    def predict_f_samples(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Samples [..., S, N, P] (without S [..., N, P]) of f at Xnew [..., N, D] in units of Y."""
        inside = self.encoded(Xnew)
        samples = self.model.predict_f_samples(
            inside, num_samples, full_cov=full_cov, full_output_cov=full_output_cov
        )
        return self.in_units((samples, tf.ones_like(samples)), False, False)[0]

    def leave_one_out(self, rows: np.ndarray | None = None, **options: Any) -> LeaveOneOut:
        """Predict observed rows, each from its nearest other rows, in the units of Y.

        :param rows: row numbers [B]; all rows if not given.
        :param options: of `leave_one_out` of the `NNGP` inside.
        :raises ModelError: for other models.
        """
        if not isinstance(self.model, NNGP):
            raise ModelError(
                f"{type(self.model).__name__} has no leave_one_out: compare models by rows that"
                " were set aside, wrappers.compare(first, second, data)."
            )
        found = self.model.leave_one_out(rows, **options)
        mean, variance = self.in_units((found.mean, found.variance), False, False)
        Y = self.model.data[1].numpy().astype(np.float64)
        seen = self._measured(Y if rows is None else Y[rows])
        density = found.log_density - self._log_scale(tf.float64, seen).numpy()
        return LeaveOneOut(np.asarray(mean), np.asarray(variance), density, found.spread)

    def in_units(
        self, moments: MeanAndVariance, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f or y, mean [..., N, P] and (co)variances, in the units of Y."""
        mean, cov = moments
        if self.outputs is None:
            return mean, cov
        # latents beyond the outputs have no units, but for the logarithm of a scale
        count = int(mean.shape[-1]) - int(self.outputs.scale.shape[0])
        own = tf.pad(self.outputs.scale, [[0, count]], constant_values=1.0)
        beyond = tf.math.log(self.outputs.scale[:count]) * has_log_scale(self.model.likelihood)
        shift = tf.concat([self.outputs.mean, beyond], axis=0)
        level = tf.cast(mean, tf.float64) * own + shift
        scale = tf.cast(own, cov.dtype)
        if full_output_cov:  # [..., N, P, P], or [..., N, P, N, P]
            factor = scale[:, None, None] * scale if full_cov else scale[:, None] * scale
        else:  # [..., P, N, N], or [..., N, P]
            factor = tf.square(scale)[:, None, None] if full_cov else tf.square(scale)
        return tf.cast(level, default_float()), cov * factor

    def _measured(self, Y: TensorType) -> tf.Tensor:
        """[..., P], 1 where an entry of Y [..., P + k] inside was measured, else 0."""
        width = None if self.numbers is None else self.numbers.outputs
        seen = ~tf.math.is_nan(Y[..., :width])
        if self.numbers is not None:
            seen = tf.logical_and(seen, self.numbers.measured(Y))
        return tf.cast(seen, Y.dtype)

    def _log_scale(self, dtype: tf.DType, seen: TensorType) -> tf.Tensor:
        """The log determinant of dY/dz of observations whose entries are seen or not, [...]."""
        # `seen` [..., P] is 1 or 0, or the share of rows.
        if self.outputs is None:
            return tf.zeros([], dtype)
        return tf.reduce_sum(tf.cast(tf.math.log(self.outputs.scale), dtype) * seen, axis=-1)


class StandardizedPosterior(tf.Module):
    """Predictions of f from cached factorisations, in the units of the data.

    `inside` is the posterior of standardised data. Example::

        posterior = model.posterior()
        mean, variance = posterior.predict_f(Xnew)
    """

    def __init__(self, model: PredictionsInUnits, inside: AbstractPosterior) -> None:
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
