"""The exact KL[Q || P] of a model of this package with a Gaussian posterior, or of GPflow's `VGP`
and `SVGP`.

P is the GP with the model's kernel and mean function, or the distribution of f under the Laplace
priors of a linear model, and Q the posterior. Q is P with another distribution of finitely many
values of f, and the same conditional distribution of f given them. The divergence of the processes
is therefore that of these values, which is `prior_kl`. Inducing inputs are parameters of Q and do
not occur in P. Jitter adds small noise to the inducing values. They are then still random variables
with a joint distribution with f under P, and the divergence and the predictions use the same one.
"""

from __future__ import annotations

__all__ = ["divergence"]

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.models import SVGP, VGP, GPModel

from ..bases import Basis, InducingBasis
from ..errors import ModelError, NumericalError
from ..models import BasisGP, FullGP
from ..models.linear.lcl_laplace import LaplacePriorLCLGP
from .classifiers import CERTIFIED

_ROWS = 2048
"""Number of rows of the mean points' Gram matrix that are computed at a time."""


def divergence(model: GPModel) -> float:
    """KL[Q || P] in nats; it is exact also for a model that estimates the norm of its mean from a
    subsample.

    The cost is that of `prior_kl`, and M_gamma^2 where the norm is subsampled.

    :raises ModelError: for a model of another family.
    :raises NumericalError: if it is not finite.
    """
    if isinstance(model, LaplacePriorLCLGP):
        kl = float(model.prior_kl())
    elif isinstance(model, (BasisGP, FullGP)):
        kl = _of_basis(model.basis, model.kernel)
    elif isinstance(model, VGP):
        kl = float(gauss_kl(model.q_mu, model.q_sqrt))
    elif isinstance(model, SVGP):
        kl = float(model.prior_kl())
    else:
        raise ModelError(
            f"KL[Q || P] of a {type(model).__name__} is not known: a certificate takes {CERTIFIED}."
            " With the same data, kernel and likelihood use CVIGP or LCLGP, or with inducing"
            " points SparseCVIGP."
        )
    if not np.isfinite(kl):
        raise NumericalError(
            f"KL[Q || P] is {kl}, because a factorisation failed: train the model again.",
            matrix="KL",
        )
    return max(kl, 0.0)


def _of_basis(basis: Basis, kernel: Kernel) -> float:
    """The divergence of a basis, in blocks of rows where the basis subsamples.

    The estimate (D25) is an average over rows. Its average over all blocks of rows, weighted by
    their sizes, is therefore the exact value.
    """
    mean = basis.kernel_mean if isinstance(basis, InducingBasis) else None
    if mean is None or mean.subsample is None:
        return float(basis.prior_kl(basis.factor(kernel)))
    blocks = [
        tf.range(start, min(start + _ROWS, mean.size)) for start in range(0, mean.size, _ROWS)
    ]
    estimates = [float(basis.prior_kl(basis.factor(kernel, rows=rows))) for rows in blocks]
    return float(np.average(estimates, weights=[len(rows) for rows in blocks]))
