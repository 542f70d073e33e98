"""Lengthscales that see a signal, before a climb and after one that saw none."""

# A climb from one start may end where all of Y is noise: waves that are shorter than the
# lengthscales have no gradient there. A few hundred rows tell in a tenth of a second at which
# lengthscales there is something to learn.

from __future__ import annotations

__all__ = ["lengthscale_factor", "roughness", "warn_of_no_signal"]

import numpy as np
from gpflow.base import TensorType
from gpflow.kernels import IsotropicStationary, Matern12, Matern52
from gpflow.models import GPModel
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..likelihoods.parameters import single_noise_variance
from ..user_warnings import warn_user

_FACTORS = tuple(0.5**power for power in range(8))
_RATIOS = (0.01, 0.1, 1.0, 10.0)
"""Ratios of noise to kernel variance; each factor is judged at its best ratio."""
_ROWS, _PLACES, _FEWEST = 300, 3, 10
_CLEAR, _HALF = 5.0, 0.5
"""Nats that are no chance, and share of the best ones to start from. On most of twenty
regressions sqrt(D) deviations have it. Labels are steps, and the best ones are too short for them.
"""
_ROUGH = 3.0
"""Nats for Matern 1/2. Below 2 for 15 draws of smooth functions of one to eight columns, some
irrelevant, and on 24 of 27 regressions. On the others, airfoil, wine_red and protein, 700 rows of
Matern 1/2 had test log densities of -1.87 for -1.94, -0.11 for -0.97 and -0.81 for -0.86."""
_ALL = 0.95
"""Share of the variance of Y that leaves next to nothing but noise."""


def lengthscale_factor(
    kernel: IsotropicStationary, X: TensorType, Y: TensorType, seed: int = 0
) -> float:
    """The largest factor of the lengthscales, 1 or a power of 1/2, that tells half of what the best
    one does: of the nats by which some rows have more evidence than as noise alone.

    1 where the best one tells less than 5 nats. Variances are the best ones for each.

    :param kernel: a stationary kernel at the lengthscales to start from.
    :param X: inputs [N, D].
    :param Y: values [N, P] of f plus noise, NaN where missing.
    :param seed: of the rows, half at random and half nearest to three of them.
    """
    gains = _gains(kernel, X, Y, seed)
    best = np.max(gains)
    return 1.0 if best < _CLEAR else _FACTORS[int(np.argmax(gains > _HALF * best))]


def roughness(kernel: IsotropicStationary, X: TensorType, Y: TensorType, seed: int = 0) -> float:
    """Nats by which some rows have more evidence for Matern 1/2 than for a kernel, each with its
    best factor of the lengthscales; 0 where that is less than 3 nats.

    X is [N, D], Y [N, P]; arguments as in `lengthscale_factor`.
    """
    rough = Matern12(lengthscales=kernel.lengthscales.numpy(), active_dims=kernel.active_dims)
    more = np.max(_gains(rough, X, Y, seed)) - max(0.0, np.max(_gains(kernel, X, Y, seed)))
    return float(more) if more > _ROUGH else 0.0


def _gains(kernel: IsotropicStationary, X: TensorType, Y: TensorType, seed: int) -> np.ndarray:
    """Nats by which some rows have more evidence than as noise alone, for each factor."""
    Z = np.asarray(kernel.scale(kernel.slice(X)[0]), np.float64)
    values = np.asarray(Y, np.float64)
    seen = np.flatnonzero(np.isfinite(values).all(axis=1))
    if len(seen) < _FEWEST:
        return np.zeros(len(_FACTORS))
    rows = seen[_some(Z[seen], seed)]
    Z, values = Z[rows], values[rows] - np.mean(values[rows], axis=0)
    values = values[:, np.ptp(values, axis=0) > 0.0]
    if values.shape[1] == 0:
        return np.zeros(len(_FACTORS))
    norms = np.sum(np.square(Z), axis=1)
    squares = np.maximum(norms[:, None] + norms - 2.0 * Z @ Z.T, 0.0)
    variance = float(kernel.variance.numpy())
    noise = -0.5 * len(values) * np.sum(np.log(np.mean(np.square(values), axis=0)))
    found = np.array(
        [
            _evidence(np.asarray(kernel.K_r2(squares / one**2)) / variance, values)
            for one in _FACTORS
        ]
    )
    return found - noise


def _some(Z: np.ndarray, seed: int) -> np.ndarray:
    """Numbers of the rows that are compared."""
    if len(Z) <= _ROWS:
        return np.arange(len(Z))
    chosen = np.random.default_rng(seed).choice(len(Z), _ROWS // 2, replace=False)
    count = _ROWS // 2 // _PLACES
    near = [
        np.argpartition(np.sum(np.square(Z - Z[row]), axis=1), count)[:count]
        for row in chosen[:_PLACES]
    ]
    return np.unique(np.concatenate([chosen, *near]))


def _evidence(correlations: np.ndarray, Y: np.ndarray) -> float:
    """The largest log density of Y [n, P] over variances of kernel and noise, up to a constant."""
    (n, P), found = Y.shape, -np.inf
    for ratio in _RATIOS:
        try:
            root = cholesky(correlations + ratio * np.eye(n), lower=True, check_finite=False)
        except LinAlgError:
            continue
        whitened = solve_triangular(root, Y, lower=True, check_finite=False)
        sizes = np.log(np.mean(np.square(whitened), axis=0))
        found = max(found, -P * np.sum(np.log(np.diag(root))) - 0.5 * n * np.sum(sizes))
    return float(found)


def warn_of_no_signal(model: GPModel, X: TensorType, Y: TensorType) -> None:
    """Warn if Gaussian noise has learned all of the variance of Y [N, P], and say what to try."""
    noise = single_noise_variance(model.likelihood)
    if noise is None or len(X) < _FEWEST:
        return
    left = np.asarray(Y, np.float64) - np.asarray(model.mean_function(X))
    variance = float(np.nanmean(np.nanvar(left, axis=0)))
    if not float(noise) >= _ALL * variance > 0.0:
        return
    spread = np.std(X, axis=0)
    lengths = np.sqrt(X.shape[1]) * np.where(spread > 0.0, spread, 1.0)
    usual = Matern52(lengthscales=lengths)
    seen = lengthscale_factor(usual, X, left) < 1.0
    warn_user(
        f"The learned noise variance, {float(noise):.3g}, is that of Y, {variance:.3g}: predictions"
        " are nearly constant. "
        + (
            "But rows that are near each other are alike, at shorter lengthscales: call"
            " gpflow_decoupled.training.initialize(model.kernel, model.likelihood, (X, Y)), which"
            " starts from them, and then fit again."
            if seen
            else "Shorter lengthscales find nothing either: X may say nothing of Y, or only by"
            ' another kernel, see build(kernel="auto"), or other columns.'
        )
    )
