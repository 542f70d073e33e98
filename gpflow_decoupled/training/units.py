"""Parts of a model of standardised data, its cached posterior, and records of its training, in the
units of the data.
"""

from __future__ import annotations

__all__ = ["StandardizedPosterior", "kernel_in_units", "likelihood_in_units", "result_in_units"]

from typing import Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
    Product,
    SeparateIndependent,
    Static,
    Stationary,
    Sum,
)
from gpflow.likelihoods import Gaussian, Likelihood, StudentT
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from ..errors import ModelError
from ..likelihoods import Laplace
from .normal_scores import NormalScores
from .result import FitResult
from .standardization import Standardization

_INSIDE = "; read `model.model`, whose kernel and likelihood are those of standardised data."


class _Units(Protocol):
    """What a posterior asks of its `Standardized` model."""

    def encoded(self, Xnew: object) -> tf.Tensor:
        """Inputs [..., N, D] as the model inside sees them."""

    def in_units(
        self, moments: MeanAndVariance, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments [..., N, P] in the units of Y."""


class StandardizedPosterior(tf.Module):
    """Predictions of f from factorisations that were computed once, in the units of the data.

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
        """Moments of f at Xnew [..., N, D], as those of `Standardized.predict_f`."""
        X = self.model.encoded(Xnew)
        moments = self.inside.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        return self.model.in_units(moments, full_cov, full_output_cov)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute the factorisations again from the present Parameters."""
        self.inside.update_cache(precompute_cache)


def kernel_in_units(
    kernel: Kernel, inputs: Standardization | NormalScores, outputs: Standardization | None
) -> Kernel:
    """Return a copy whose lengthscales are in units of X and whose variance is in units of Y.

    Stationary and static kernels, their sums and products, and any kernel of columns that are not
    scaled; a `SeparateIndependent` for several outputs of different scale.

    :param kernel: of standardised data.
    :param inputs: of X [N, D].
    :param outputs: of Y [N, P]; None where Y has no scale.
    :raises ModelError: for another kernel of scaled columns, and for ranks of X.
    """
    if isinstance(inputs, NormalScores):
        raise ModelError(f"A kernel of the ranks of X has no form in units{_INSIDE}")
    scales = np.ones(1) if outputs is None else outputs.scale.numpy()
    if isinstance(kernel, MultioutputKernel):
        raise ModelError(f"A {type(kernel).__name__} has a kernel for each latent{_INSIDE}")
    if np.ptp(scales) == 0.0:
        return _converted(kernel, inputs, float(scales[0]) ** 2)
    return SeparateIndependent([_converted(kernel, inputs, float(s) ** 2) for s in scales])


def _converted(kernel: Kernel, inputs: Standardization, variance: float) -> Kernel:
    """One kernel, times the square of the scale of Y."""
    if isinstance(kernel, Sum):
        return Sum([_converted(part, inputs, variance) for part in kernel.kernels])
    if isinstance(kernel, Product):
        first, *rest = kernel.kernels
        return Product(
            [_converted(first, inputs, variance), *(_converted(part, inputs, 1.0) for part in rest)]
        )
    copy = gpflow.utilities.deepcopy(kernel)
    scale, mean = (np.asarray(part)[_columns(kernel)] for part in (inputs.scale, inputs.mean))
    if isinstance(kernel, (Stationary, Static)):
        copy.variance.assign(kernel.variance * variance)
        if isinstance(kernel, Stationary):
            _set_lengthscales(copy, kernel.lengthscales.numpy() * _shared(scale))
        return copy
    if np.any(scale != 1.0) or np.any(mean != 0.0):
        raise ModelError(f"A {type(kernel).__name__} of scaled X has no form in units{_INSIDE}")
    constant = gpflow.kernels.Constant(variance)
    gpflow.set_trainable(constant, False)
    return copy if variance == 1.0 else Product([constant, copy])


def _columns(kernel: Kernel) -> slice | np.ndarray:
    dims = kernel.active_dims
    return dims if isinstance(dims, slice) else np.asarray(dims)


def _shared(scale: np.ndarray) -> np.ndarray:
    """A single number where all columns [d] have one scale."""
    return scale[0] if np.ptp(scale) == 0.0 else scale


def _set_lengthscales(kernel: Stationary, values: np.ndarray) -> None:
    """Set lengthscales, of another shape than before where one stood for columns of many scales."""
    old = kernel.lengthscales
    kernel.lengthscales = gpflow.Parameter(
        values, transform=old.transform, trainable=old.trainable, dtype=old.dtype
    )


def likelihood_in_units(likelihood: Likelihood, outputs: Standardization | None) -> Likelihood:
    """Return a copy whose noise is in units of Y; without a scale of Y the likelihood itself.

    :param likelihood: of standardised Y.
    :param outputs: of Y [N, P].
    :raises ModelError: for noise that depends on the inputs, or on the output in other forms.
    """
    if outputs is None:
        return likelihood
    scale = _shared(outputs.scale.numpy())
    copy = gpflow.utilities.deepcopy(likelihood)
    name = "scale"
    if type(likelihood) is Gaussian and likelihood.variance is not None:
        name, scale = "variance", np.square(scale)
    elif not isinstance(likelihood, (Gaussian, StudentT, Laplace)):
        raise ModelError(f"A {type(likelihood).__name__} is not known in other units{_INSIDE}")
    old = getattr(likelihood, name)
    if not isinstance(old, gpflow.Parameter):
        raise ModelError(f"Noise that depends on the inputs has no form in units{_INSIDE}")
    if isinstance(likelihood, Gaussian):  # whose least variance is that of standardised Y
        copy = Gaussian(**{name: old.numpy() * scale}, variance_lower_bound=0.0)
        gpflow.set_trainable(copy, bool(old.trainable))
        return copy
    parameter = gpflow.Parameter(old.numpy() * scale, transform=gpflow.utilities.positive())
    gpflow.set_trainable(parameter, bool(old.trainable))
    setattr(copy, name, parameter)
    return copy


def result_in_units(result: FitResult, shift: float) -> FitResult:
    """Subtract `shift` nats, the log determinant of dY/dz of all rows, from the bounds of a run.

    Scores of held-out rows are in units already, see `Evaluation.units`.
    """
    result.elbo -= shift
    if "elbo" in result.history:
        result.history["elbo"] = result.history["elbo"] - shift
    return result
