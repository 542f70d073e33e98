"""Log densities of labels."""

from __future__ import annotations

__all__ = ["Densities", "DensityExpansion"]

from typing import NamedTuple

import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import LinearCoregionalization

from ...errors import DataError
from ...likelihoods import CategoricalLogit, QuadratureLoss, RowLikelihood
from ...likelihoods.sites.registry import site_description
from ...models import CVIGP


class DensityExpansion(NamedTuple):
    """Log densities l and derivatives at one u [N, L]."""

    value: tf.Tensor
    """[N, L], nats."""
    first: tf.Tensor
    """[N, L]"""
    second: tf.Tensor
    """[N, L]"""


class Densities:
    """The log densities of a model's labels, in centred latents u = f - m_0.

    An entry of Y has one latent, or with `CategoricalLogit` one per class (`couples`).
    """

    def __init__(self, model: CVIGP, method: str) -> None:
        _check_latents(model, method)
        self.X, self.Y = model.data
        self.likelihood = model.likelihood
        self.couples = isinstance(model.likelihood, CategoricalLogit)
        # Y may have a column more, of trials or codes of censoring
        self.offset = tf.broadcast_to(
            tf.cast(model.mean_function(self.X), self.X.dtype),
            [tf.shape(self.Y)[0], model.num_latent_gps],
        )

    def in_whole_labels(self, good: tf.Tensor) -> tf.Tensor:
        """True [N, L] where `good` is for all latents of the label."""
        if not self.couples:
            return good
        return tf.reduce_all(good, axis=1, keepdims=True) & tf.ones_like(good)

    def bend(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Centre and width of the log densities' bends, [N, L] each; None if not declared."""
        build = site_description(self.likelihood).loss
        if build is None:
            return None
        try:
            loss = build(self.likelihood, self.Y)
        except DataError:  # parameters that are functions of the inputs
            return None
        if not isinstance(loss, QuadratureLoss) or loss.width is None:
            return None
        return loss.centre - self.offset, loss.width

    def log_prob(self, u: tf.Tensor) -> tf.Tensor:
        """The log densities [..., N, L] in nats at u [..., N, L]; of classes, [N] at u [N, C]."""
        if self.couples:
            return self.likelihood.log_prob(self.X, self.offset + u, self.Y)
        if isinstance(self.likelihood, RowLikelihood):
            return self.likelihood.entry_log_prob(self.X, self.offset + u, self.Y)
        return self.likelihood._scalar_log_prob(self.X, self.offset + u, self.Y)

    def expand(self, u: tf.Tensor) -> DensityExpansion:
        """The log densities and their derivatives at u [N, L]."""
        zero = tf.UnconnectedGradients.ZERO
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(u)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(u)
                value = self.log_prob(u)
            first = inner.gradient(value, u, unconnected_gradients=zero)
        return DensityExpansion(value, first, outer.gradient(first, u, unconnected_gradients=zero))


def _check_latents(model: CVIGP, method: str) -> None:
    likelihood, instead = (
        model.likelihood,
        "use ConjugateComputation, which needs expected log densities alone.",
    )
    of_one = isinstance(likelihood, gl.ScalarLikelihood) and not isinstance(
        likelihood, gl.SwitchedLikelihood
    )
    of_one |= isinstance(likelihood, RowLikelihood) and likelihood.by_entry
    if not (of_one or isinstance(likelihood, CategoricalLogit)):
        raise DataError(
            f"{method} needs one latent function and one density per label, or CategoricalLogit,"
            f" and the density of {type(likelihood).__name__} is not of this form: {instead}"
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise DataError(
            f"{method} needs one latent function per label, and the kernel LinearCoregionalization"
            f" mixes them: {instead}"
        )
