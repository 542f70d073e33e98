"""The scales of data and model."""

from __future__ import annotations

__all__ = ["check_digits", "complaints_of_inputs", "warn_of_scales"]

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    Product,
    SeparateIndependent,
    SharedIndependent,
    Static,
    Sum,
)
from gpflow.models import GPModel

from ..covariances.latents import prior_variance
from ..covariances.mixed import code_columns
from ..covariances.stationary import reads_scaled_inputs
from ..errors import DataError
from ..inducing.weights import Weights
from ..likelihoods.facts import has_latent_scale, has_scale, is_gaussian, noise_variance
from ..likelihoods.parameters import single_noise_variance
from ..likelihoods.registry import index_columns
from ..user_warnings import warn_user

# ---
# Lengthscales against spacing and range of X.


_FAR = 6.0
"""Lengthscales between neighbours at which they tell nothing about each other: their correlation is
below 1e-3.
"""
_LONG = 100.0
"""Lengthscale over range of a column at which the kernel does not see the column."""
_QUERIES, _ROWS = 50, 50_000  # rows whose neighbours are sought; most rows to seek among
_COMPOSITES = (Sum, Product, SeparateIndependent, LinearCoregionalization)


def complaints_of_inputs(kernel: Kernel, X: np.ndarray, num_data: int) -> Iterator[str]:
    """Yield a sentence per lengthscale far too short or long for rows X [N, D].

    :param num_data: rows of the whole data set, of which X may be a sample.
    """
    # Only isotropic stationary and constant kernels are judged; of several parts all must be at
    # fault. Cost: distances of at most 50 rows to at most 50,000, and the range of X.
    leaves = [leaf for leaf in _leaves(kernel) if not isinstance(leaf, Static)]
    isotropic = [isinstance(leaf, IsotropicStationary) for leaf in leaves]
    if not leaves or not all(isotropic) or not all(map(reads_scaled_inputs, leaves)):
        return
    parts = [part for part in (_scaled(leaf, X) for leaf in leaves) if len(part[0])]
    if not parts:
        return
    gaps = [_spacing(inputs / lengthscales, num_data) for _, inputs, lengthscales in parts]
    if min(gaps) > _FAR:
        columns, inputs, lengthscales = parts[int(np.argmin(gaps))]
        yield (
            f"a row of X is typically {min(gaps):.3g} lengthscales from the nearest other row"
            f" (lengthscales {_shown(lengthscales)}, standard deviation of X"
            f" {_shown(inputs.std(axis=0))}): to this kernel the observations have nothing to do"
            " with each other"
        )
    ranges = np.ptp(X.astype(np.float64), axis=0)
    for column in np.flatnonzero(ranges > 0):
        seen = [lengths[columns == column][0] for columns, _, lengths in parts if column in columns]
        if seen and min(seen) > _LONG * ranges[column]:
            yield (
                f"X[:, {column}] has a range of {ranges[column]:.3g}, but the lengthscale is"
                f" {min(seen):.3g}: the kernel takes this column as constant"
            )


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if isinstance(kernel, SharedIndependent):
        yield from _leaves(kernel.kernel)
    elif isinstance(kernel, _COMPOSITES):
        for part in kernel.kernels:
            yield from _leaves(part)
    else:
        yield kernel


def _scaled(kernel: Kernel, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = np.arange(X.shape[1])[kernel.active_dims]
    lengthscales = np.broadcast_to(
        np.asarray(kernel.lengthscales).astype(np.float64), columns.shape
    )
    # levels of a category are at one distance, and a row of the same one is often near
    numbers = np.setdiff1d(np.arange(len(columns)), code_columns(kernel))
    return columns[numbers], X[:, columns[numbers]].astype(np.float64), lengthscales[numbers]


def _spacing(scaled: np.ndarray, num_data: int) -> float:
    rng = np.random.default_rng(0)
    if len(scaled) > _ROWS:
        scaled = scaled[rng.choice(len(scaled), _ROWS, replace=False)]
    nearest = []
    for row in rng.choice(len(scaled), min(_QUERIES, len(scaled)), replace=False):
        squares = np.sum(np.square(scaled - scaled[row]), axis=1)
        squares[row] = np.inf
        nearest.append(np.sqrt(squares.min()))
    return float(np.median(nearest)) * (len(scaled) / max(num_data, len(scaled))) ** (
        1.0 / scaled.shape[1]
    )


def _shown(values: np.ndarray) -> str:
    if np.all(values == values[0]):
        return f"{values[0]:.3g}"
    return ", ".join(f"{value:.3g}" for value in values[:3]) + (", ..." if len(values) > 3 else "")


# ---


_FEWEST, _SAMPLE = 10, 10_000
"""Rows below which nothing is typical; rows that Y is judged by."""
_LARGE, _SMALL = 5.0, 0.02
"""Deviations of Y from the prior mean that are far off: above `_LARGE` standard deviations of
kernel and noise together, or below `_SMALL` of the noise. A large kernel variance does no harm.

Adam adds at most some 60 to a variance in 2,000 steps, but divides it by any factor. On a sine with
defaults, 95 % intervals cover 95 % after 1,000 steps at a ratio of 3.5, 82 % at 7 and 52 % at 13;
at a twentieth of the noise 97 %.
"""
_MEDIAN = 0.455
"""Of the square of a standard normal variable."""
_REMEDY = (
    "Training may not find its way from there: standardise the data, as"
    " gpflow_decoupled.Standardized(build, (X, Y)) does, which predicts in their own units; or"
    " start from lengthscales, variances and a mean function of their size."
)


def warn_of_scales(model: GPModel, X: np.ndarray, Y: np.ndarray, num_data: int) -> None:
    """Warn if prior and noise cannot explain the size of Y, or lengthscales do not fit X.

    X is [N, D], Y [N, P], all data or a minibatch. Fewer than 10 rows and constant columns are not
    judged.
    """
    if len(X) < _FEWEST:
        return
    for complaint in _complaints(model, X, Y, num_data):
        warn_user(f"{complaint[0].upper()}{complaint[1:]}. {_REMEDY}")


def check_digits(model: GPModel, X: tf.Tensor) -> None:
    """Refuse a noise variance below the round-off of the prior variance.

    A bound may then exceed the evidence. For a `Gaussian` with one noise variance, at X [n, D].
    """
    variance = single_noise_variance(model.likelihood)
    beta = getattr(getattr(model, "basis", None), "beta", None)
    if variance is None or isinstance(beta, Weights):  # the prior variance of f is in no matrix
        return
    prior = float(tf.reduce_max(prior_variance(model.kernel, X, full_cov=False)))
    noise, limits = float(variance), np.finfo(X.dtype.as_numpy_dtype)
    # a smaller noise still is refused with the observation
    if float(limits.tiny) < noise < prior * float(limits.eps):
        raise DataError(
            f"The prior variance of f is up to {prior:.3g} at X and the noise variance is"
            f" {noise:.3g}, which is less than the round-off of the former in {X.dtype.name}."
            " Standardise X and Y, as gpflow_decoupled.Standardized(build, (X, Y)) does, or start"
            " from a larger noise variance."
        )


def _complaints(model: GPModel, X: np.ndarray, Y: np.ndarray, num_data: int) -> Iterator[str]:
    rows = np.arange(len(X))
    if len(X) > _SAMPLE:
        rows = np.random.default_rng(0).choice(len(X), _SAMPLE, replace=False)
    yield from _complaints_of_outputs(model, X[rows], Y[rows])
    yield from complaints_of_inputs(model.kernel, X, num_data)


def _complaints_of_outputs(model: GPModel, X: np.ndarray, Y: np.ndarray) -> Iterator[str]:
    """Yield a sentence per column of Y [N, P] far larger or smaller than the prior at X [N, D]."""
    # Labels and counts are not judged.
    if has_latent_scale(model.likelihood) or not has_scale(model.likelihood):
        return
    Y = Y[:, : Y.shape[1] - index_columns(model.likelihood)]
    mean = np.asarray(model.mean_function(X)).astype(np.float64)
    kernel = model.kernel
    options = {"full_output_cov": False} if isinstance(kernel, MultioutputKernel) else {}
    prior = np.asarray(kernel(X, full_cov=False, **options)).astype(np.float64).reshape(len(X), -1)
    if mean.shape[1] not in (1, Y.shape[1]) or prior.shape[1] not in (1, Y.shape[1]):
        return
    mean, prior = (np.broadcast_to(part, Y.shape) for part in (mean, prior))
    noise = noise_variance(model.likelihood, X, mean.astype(X.dtype)).astype(np.float64)
    squares = np.square(Y.astype(np.float64) - mean)
    gaussian = is_gaussian(model.likelihood)
    typical = squares.mean(axis=0) if gaussian else np.median(squares, axis=0) / _MEDIAN
    expected = np.mean(prior + noise, axis=0)
    for column in np.flatnonzero(np.ptp(Y, axis=0) > 0):
        large = typical[column] > _LARGE**2 * expected[column]
        if large or squares[:, column].mean() < _SMALL**2 * noise[:, column].mean():
            yield (
                f"Y[:, {column}] has mean {Y[:, column].mean():.3g} and standard deviation"
                f" {Y[:, column].std():.3g}, but before training the model expects"
                f" {mean[:, column].mean():.3g} and {np.sqrt(expected[column]):.3g} (kernel"
                f" variance {prior[:, column].mean():.3g}, noise variance"
                f" {noise[:, column].mean():.3g})"
            )
