"""Likelihoods whose observations are f plus noise, so that both may be shifted and scaled
together.
"""

from __future__ import annotations

__all__ = ["has_scale", "noise_variance"]

import numpy as np
from gpflow.likelihoods import Gaussian, Likelihood, StudentT

from ...likelihoods import Laplace

_KINDS = (Gaussian, StudentT, Laplace)


def has_scale(likelihood: Likelihood) -> bool:
    """Whether Y may be shifted and scaled: True for `Gaussian`, `StudentT` and `Laplace`, False for
    counts and labels.

    Example::

        has_scale(gpflow.likelihoods.Poisson())  # False
    """
    return isinstance(likelihood, _KINDS)


def noise_variance(likelihood: Likelihood, X: np.ndarray, F: np.ndarray) -> np.ndarray:
    """The variance of the noise [N, P], or its squared scale where it has no variance (`StudentT`
    with df up to 2).

    :param likelihood: one that `has_scale`.
    :param X: inputs [N, D].
    :param F: values of f [N, P].

    Example::

        # an array of 0.1, as often as Y has entries
        noise_variance(gpflow.likelihoods.Gaussian(0.1), X, np.zeros_like(Y))
    """
    if isinstance(likelihood, StudentT) and float(likelihood.df) <= 2.0:
        return np.broadcast_to(np.square(np.asarray(likelihood.scale)), F.shape)
    return np.broadcast_to(np.asarray(likelihood.conditional_variance(X, F)), F.shape)
