"""A model for plain arrays: which basis, how many points, and where they start."""

from __future__ import annotations

__all__ = ["model_for"]

import warnings

import gpflow
import numpy as np
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..bases import CoupledBasis
from ..inducing import select
from ..models import ODVGP, BasisGP


def model_for(
    X: np.ndarray,
    likelihood: Likelihood,
    kernel: Kernel | None = None,
    *,
    num_latent_gps: int = 1,
    num_inducing: int = 300,
    num_mean_points: int = 1000,
    seed: int = 0,
) -> BasisGP:
    """An untrained `ODVGP`, or a `BasisGP` with a `CoupledBasis` where no rows are left for mean points.

    The points are rows of X of greatest conditional variance.

    :param X: standardised inputs [N, D].
    :param likelihood: any GPflow likelihood.
    :param kernel: is copied; Matern 5/2 with one lengthscale of sqrt(D) per column if not given.
    :param num_latent_gps: L.
    :param num_inducing: M_beta, at most the number of distinct rows of X.
    :param num_mean_points: M_gamma, at most the number of distinct rows that then remain.
    :param seed: of the choice of points.

    Cost: N (M_beta + M_gamma)^2, once.
    """
    kernel = gpflow.utilities.deepcopy(kernel) if kernel is not None else _default_kernel(X.shape[1])
    distinct = len(np.unique(X, axis=0))
    M_beta = min(num_inducing, distinct)
    M_gamma = min(num_mean_points, distinct - M_beta)
    with warnings.catch_warnings():
        # `select` warns that it looks at a sample of many rows, or takes random ones where no variance is left: both will do
        warnings.simplefilter("ignore", UserWarning)
        beta = select(X, M_beta, kernel, seed=seed)
        gamma = select(X, M_gamma, kernel, given=beta, seed=seed) if M_gamma else None
    if gamma is None:
        return BasisGP(kernel, likelihood, CoupledBasis(beta, num_latent_gps))
    return ODVGP(kernel, likelihood, gamma, beta, num_latent_gps=num_latent_gps)


def _default_kernel(num_dims: int) -> Kernel:
    return gpflow.kernels.Matern52(lengthscales=np.full(num_dims, np.sqrt(num_dims)))
