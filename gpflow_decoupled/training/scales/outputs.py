"""Y against what prior mean, kernel and noise can explain."""

from __future__ import annotations

__all__ = ["complaints_of_outputs"]

from collections.abc import Iterator

import numpy as np
from gpflow.kernels import MultioutputKernel
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from .likelihoods import has_scale, noise_variance

_LARGE, _SMALL = 5.0, 0.02
"""Deviations of Y from the prior mean that are far off: above the one in standard deviations of
kernel and noise together, below the other in those of the noise. A kernel variance that is too
large is a vague prior, and does no harm.

Adam adds at most some 60 to a variance in 2,000 steps, but divides it by any factor. On a sine with
defaults, intervals of 95 % cover 95 % after 1,000 steps at a ratio of 3.5, 82 % at 7 and 52 % at
13; at a twentieth of the noise they cover 97 %. """
_MEDIAN = 0.455
"""Of the square of a standard normal variable."""


def complaints_of_outputs(model: GPModel, X: np.ndarray, Y: np.ndarray) -> Iterator[str]:
    """One sentence for each column of Y [N, P] whose size is far from that of the prior; none where
    Y has no scale.

    Heavy-tailed likelihoods allow for outliers, so that the typical deviation is then taken by the
    median.

    :param model: whose kernel, likelihood and mean function are read.
    :param X: inputs [N, D].
    """
    if not has_scale(model.likelihood):
        return
    mean = np.asarray(model.mean_function(X)).astype(np.float64)
    kernel = model.kernel
    options = {"full_output_cov": False} if isinstance(kernel, MultioutputKernel) else {}
    prior = np.asarray(kernel(X, full_cov=False, **options)).astype(np.float64).reshape(len(X), -1)
    if mean.shape[1] not in (1, Y.shape[1]) or prior.shape[1] not in (1, Y.shape[1]):
        return
    mean, prior = (np.broadcast_to(part, Y.shape) for part in (mean, prior))
    noise = noise_variance(model.likelihood, X, mean.astype(X.dtype)).astype(np.float64)
    squares = np.square(Y.astype(np.float64) - mean)
    is_gaussian = isinstance(model.likelihood, Gaussian)
    typical = squares.mean(axis=0) if is_gaussian else np.median(squares, axis=0) / _MEDIAN
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
