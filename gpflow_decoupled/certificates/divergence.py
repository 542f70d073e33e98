"""The exact KL[Q || P] of a model."""

# Q keeps P's conditional of f given finitely many values, so the KL of the processes is the KL of
# these values, `prior_kl`, with jitter as noise of the inducing values under both.

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
"""Rows of the mean points' Gram matrix computed at a time."""


def divergence(model: GPModel) -> float:
    """Return the exact KL[Q || P] in nats, also for a model that subsamples its mean's norm.

    Cost: `prior_kl`, and M_gamma^2 if the norm is subsampled.
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
    mean = basis.kernel_mean if isinstance(basis, InducingBasis) else None
    if mean is None or mean.subsample is None:
        return float(basis.prior_kl(basis.factor(kernel)))
    blocks = [
        tf.range(start, min(start + _ROWS, mean.size)) for start in range(0, mean.size, _ROWS)
    ]
    estimates = [float(basis.prior_kl(basis.factor(kernel, rows=rows))) for rows in blocks]
    return float(np.average(estimates, weights=[len(rows) for rows in blocks]))
