"""Log densities of centred normal vectors, and their gradients, by LAPACK."""

from __future__ import annotations

__all__ = ["NormalDensity", "normal_density"]

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs


class NormalDensity(NamedTuple):
    """log N(r; 0, K) in nats, summed over columns of r, and gradients; NaN for an unusable K."""

    value: float
    of_covariance: np.ndarray
    """1/2 (a a^T - P K^-1) with a = K^-1 r, [N, N]"""
    of_vector: np.ndarray
    """-a [N], or [N, P]"""


def normal_density(K: np.ndarray, r: np.ndarray) -> NormalDensity:
    """The log density of r [N], or of the P columns of r [N, P], under K [N, N], symmetric."""
    # K^-1 by LAPACK's `potri` takes 2/3 N^3; TensorFlow's gradient through the factor five times as
    # long.
    N, P = len(r), r.size // len(r)
    factorise, solve, invert = get_lapack_funcs(("potrf", "potrs", "potri"), (K,))
    chol, failed = factorise(K, lower=1, clean=1)
    if failed:
        return NormalDensity(math.nan, np.full_like(K, math.nan), np.full_like(r, math.nan))
    a = solve(chol, r, lower=1)[0]
    log_det = 2.0 * np.sum(np.log(np.diag(chol)))
    inverse = np.tril(invert(chol, lower=1, overwrite_c=1)[0])
    inverse += np.tril(inverse, -1).T
    value = -0.5 * float(np.vdot(r, a) + P * (log_det + N * math.log(2.0 * math.pi)))
    columns = a.reshape(N, P)
    return NormalDensity(value, 0.5 * (columns @ columns.T - P * inverse), -a)
