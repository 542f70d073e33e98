"""KL[Q || P] of any binary classifier in this package, or of GPflow's `VGP` and `SVGP`, exactly.

P is the GP of kernel and mean function, Q the posterior. The two differ only in finitely many values, so that the
divergence of the processes is that of these values: `prior_kl`. Inducing inputs parametrise Q and are not in P. Jitter is a
small noise on the inducing values, which are then still variables of P's joint law with f; the divergence and the predictions
have the same.
"""

from __future__ import annotations

__all__ = ["divergence"]

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kullback_leiblers import gauss_kl
from gpflow.models import SVGP, VGP

from ..bases import Basis, InducingBasis
from ..errors import NumericalError
from ..models import BasisGP, FullGP

_ROWS = 2048
"""Rows of the Gram matrix of the mean points that are there at once."""


def divergence(model: Any) -> float:
    """KL[Q || P] in nats, in full also where the model subsamples the norm of its mean.

    Raises `TypeError` for other models, and `NumericalError` where it is not finite. Cost: that of `prior_kl`, and M_gamma^2.
    """
    if isinstance(model, (BasisGP, FullGP)):
        kl = _of_basis(model.basis, model.kernel)
    elif isinstance(model, VGP):
        kl = float(gauss_kl(model.q_mu, model.q_sqrt))
    elif isinstance(model, SVGP):
        kl = float(model.prior_kl())
    else:
        raise TypeError(
            f"KL[Q || P] of a {type(model).__name__} is not known; use a model of gpflow_decoupled.models, or "
            "gpflow.models.VGP or SVGP."
        )
    if not np.isfinite(kl):
        raise NumericalError(f"KL[Q || P] is {kl}: a factorisation failed; train the model again.", matrix="KL")
    return max(kl, 0.0)


def _of_basis(basis: Basis, kernel: Any) -> float:
    """The divergence is linear in the rows of (D25), so that the estimates of all blocks of rows average to its value."""
    mean = basis.kernel_mean if isinstance(basis, InducingBasis) else None
    if mean is None or mean.subsample is None:
        return float(basis.prior_kl(basis.factor(kernel)))
    blocks = [tf.range(start, min(start + _ROWS, mean.size)) for start in range(0, mean.size, _ROWS)]
    estimates = [float(basis.prior_kl(basis.factor(kernel, rows=rows))) for rows in blocks]
    return float(np.average(estimates, weights=[len(rows) for rows in blocks]))
