"""Draws from q(f) as functions: prior draws, corrected at the points of the basis."""

from __future__ import annotations

__all__ = ["PathwiseSamples", "pathwise_samples"]

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.utilities import deepcopy

from ..bases import Basis
from ..covariances.latents import split_latents
from ..errors import DataError
from ..inducing.variables import point_values
from ..models import BasisGP, FullGP
from .arrays import project
from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates


class PathwiseSamples:
    """S functions drawn from q(f); call them at inputs X [N, D]. Made by `pathwise_samples`.

    :param prior: S draws of the prior. :param minus: eta of each `Features.minus`, [S, L, M]. :param plus: standard normal
        numbers for each `Features.plus`, [S, L, M]. :param state: of the basis.

    They stay the same functions when the model is trained on, can be differentiated in X, and run inside `tf.function`.
    """

    def __init__(
        self,
        kernel: Kernel,
        basis: Basis,
        mean_function: MeanFunction,
        prior: PriorDraws,
        minus: tuple[tf.Tensor, ...],
        plus: tuple[tf.Tensor, ...],
        state: Any,
    ) -> None:
        self._kernel, self._basis, self._mean_function = kernel, basis, mean_function
        self._prior, self._minus, self._plus, self._state = prior, minus, plus, state

    @property
    def num_samples(self) -> int:
        """S."""
        return int(self._prior.weights[0].shape[0])

    def __call__(self, X: InputData) -> tf.Tensor:
        """The values [S, N, P] at X [N, D], or at X [S, N, D], N inputs of its own for each draw.

        Cost: N (F + M^2) + S N (F + M) each latent, with S N inputs in place of N in the first term where they are its own.
        """
        X = tf.convert_to_tensor(X)
        own = X.shape.rank == 3
        if own and X.shape[0] != self.num_samples:
            raise DataError(
                f"X has shape {tuple(X.shape)} and there are {self.num_samples} draws: pass X [N, D] for all "
                "of them, or [S, N, D], N inputs for each."
            )
        inputs = tf.reshape(X, [-1, X.shape[-1]]) if own else X
        features = self._basis.features(self._state, self._kernel, inputs)
        values = self._prior(inputs, own)
        for feature, coordinates in zip(features.minus, self._minus):
            values -= project(feature, coordinates, own)
        for feature, noise in zip(features.plus, self._plus):
            values += project(feature, noise, own)
        values = tf.linalg.matrix_transpose(values)
        values += tf.reshape(features.mean, tf.shape(values)) if own else features.mean
        if isinstance(self._kernel, LinearCoregionalization):
            values = tf.einsum("snl,pl->snp", values, tf.convert_to_tensor(self._kernel.W))
        return values + self._mean_function(X)


def pathwise_samples(
    model: BasisGP | FullGP, num_samples: int, *, num_frequencies: int = 1000, seed: int | np.random.Generator = 0
) -> PathwiseSamples:
    """Draw S = `num_samples` functions from the posterior of a model.

    Mean and corrections are exact; the prior is as good as its F = `num_frequencies` random frequencies, an error of the
    covariance of about variance / sqrt(F) away from the data. `predict_f_samples` is exact and costs N^3.

    :param model: any with a Gaussian posterior in function form. :param seed: of frequencies and draws.

    Raises `DataError` for numbers below 1, and for kernels, bases and inducing variables that this is not known for. Cost:
    that of `basis.factor`, and S (M F + M^2). Example::

        draw = pathwise_samples(model, 1)
        best = X[np.argmax(draw(X)[0, :, 0])]  # Thompson sampling
    """
    for name, number in (("num_samples", num_samples), ("num_frequencies", num_frequencies)):
        if number < 1:
            raise DataError(f"{name}={number!r} must be at least 1.")
    if not isinstance(model, (BasisGP, FullGP)):
        raise DataError(f"{type(model).__name__} has no basis; pass a model of gpflow_decoupled.models.")
    rng = np.random.default_rng(seed)
    kernel, basis = deepcopy(model.kernel), deepcopy(model.basis)
    state = basis.factor(kernel, with_kl=False)
    kernels = [k for (k,) in split_latents(kernel)]
    latents = basis.num_latent_gps
    X = _some_input(model)
    prior = draw_prior(kernels * (latents // len(kernels)), int(X.shape[1]), num_samples, num_frequencies, rng)
    minus = prior_coordinates(basis, state, kernel, prior, rng)
    shapes = [(num_samples, latents, int(part.shape[1])) for part in basis.features(state, kernel, X).plus]
    plus = tuple(tf.constant(rng.standard_normal(shape), X.dtype) for shape in shapes)
    return PathwiseSamples(kernel, basis, deepcopy(model.mean_function), prior, minus, plus, state)


def _some_input(model: BasisGP | FullGP) -> tf.Tensor:
    """One row [1, D]."""
    if isinstance(model, FullGP):
        return model.data[0][:1]
    inputs = point_values(model.basis.beta)
    if not inputs:
        raise DataError(f"Pathwise samples need inducing points, not {type(model.basis.beta).__name__}.")
    return tf.convert_to_tensor(inputs[0])[:1]
