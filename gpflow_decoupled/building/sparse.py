"""A model on inducing points for plain arrays."""

from __future__ import annotations

__all__ = ["ON_DATA", "default_kernel", "sparse_model"]

import warnings

import gpflow
import numpy as np
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..bases import CoupledBasis
from ..inducing import select
from ..models import ODVGP, BasisGP
from ..models.checks import infer_num_latent_gps

ON_DATA = "data"
"""A number of mean points that stands for a mean on all rows."""


def sparse_model(
    X: np.ndarray,
    likelihood: Likelihood,
    kernel: Kernel | None = None,
    *,
    num_latent_gps: int | None = 1,
    num_inducing: int = 300,
    num_mean_points: int | str = 1000,
    mean_function: MeanFunction | None = None,
    seed: int = 0,
) -> BasisGP:
    """An untrained `ODVGP`, or `BasisGP` with a `CoupledBasis` if no rows are left for the mean.

    Points are rows of greatest conditional variance. Cost: N (M_beta + M_gamma)^2, once.

    :param X: standardised inputs [N, D].
    :param kernel: copied; by default Matern 5/2 with a lengthscale of sqrt(D) per column.
    :param num_latent_gps: L; None takes the likelihood's or the kernel's, else 1.
    :param num_inducing: M_beta, at most the number of distinct rows of X.
    :param num_mean_points: M_gamma, at most the remaining distinct rows; or "data".
    """
    kernel = gpflow.utilities.deepcopy(kernel) if kernel is not None else default_kernel(X.shape[1])
    distinct = len(np.unique(X, axis=0))
    M_beta = min(num_inducing, distinct)
    M_gamma = 0 if num_mean_points == ON_DATA else min(int(num_mean_points), distinct - M_beta)
    with warnings.catch_warnings():
        # `select` warns that it looks at a sample of many rows, or takes random ones where no
        # variance is left: both will do
        warnings.simplefilter("ignore", UserWarning)
        seen = kernel.latent_kernels[0] if isinstance(kernel, MultioutputKernel) else kernel
        beta = select(X, M_beta, seen, seed=seed)
        gamma = select(X, M_gamma, seen, given=beta, seed=seed) if M_gamma else None
    if num_mean_points == ON_DATA:
        return ODVGP(
            kernel,
            likelihood,
            ON_DATA,
            beta,
            num_latent_gps=num_latent_gps,
            mean_function=mean_function,
        )
    if gamma is None:
        if isinstance(kernel, MultioutputKernel):  # all latents share the points
            beta = SharedIndependentInducingVariables(InducingPoints(beta))
        basis = CoupledBasis(beta, infer_num_latent_gps(kernel, likelihood, num_latent_gps))
        return BasisGP(kernel, likelihood, basis, mean_function=mean_function)
    return ODVGP(
        kernel, likelihood, gamma, beta, num_latent_gps=num_latent_gps, mean_function=mean_function
    )


def default_kernel(num_dims: int, measured: int | None = None) -> Kernel:
    """Matern 5/2 with D lengthscales, all at about the distance of two standardised rows.

    :param num_dims: D.
    :param measured: variables behind the columns, several columns of 0 and 1 for one; the distance
        is its root. By default D.
    """
    distance = np.sqrt(num_dims if measured is None else measured)
    return gpflow.kernels.Matern52(lengthscales=np.full(num_dims, distance))
