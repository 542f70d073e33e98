"""Lengthscales that see a signal, before a climb and after one that saw none."""

# A climb from one start may end where all of Y is noise: waves that are shorter than the
# lengthscales have no gradient there. A few hundred rows tell in a tenth of a second at which
# lengthscales there is something to learn.

from __future__ import annotations

__all__ = [
    "lengthscale_factor", "multiply_lengthscales", "other_start", "roughness", "values_of",
    "warn_of_no_signal",
]  # fmt: skip

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import gpflow
import numpy as np
from gpflow.base import TensorType
from gpflow.kernels import IsotropicStationary, Kernel, Matern12, Matern52, Stationary
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..covariances.latents import indices_of
from ..covariances.mixed import kernel_of, spreads
from ..covariances.stationary import reads_scaled_inputs
from ..likelihoods.facts import base_of, has_scale, label_kind, split_rows
from ..likelihoods.parameters import single_noise_variance
from ..user_warnings import warn_user

# ---
# Least squares of any likelihood: values that are f plus noise.


_STEEP = 2.0
"""Of f over labels of -1 and 1."""


def values_of(
    Y: np.ndarray, likelihood: Likelihood, numbers: Mapping[str, np.ndarray] | None = None
) -> tuple[np.ndarray, float]:
    """Values [N, P] of f plus noise for least squares, or a column for each of several classes, and
    the usual slope of f over them.

    :param Y: [N, P], with the numbers of its rows if these belong to the likelihood.
    :param numbers: of the rows by name: offsets are taken off, and rows of no weight, or whose
        known noise is larger than the variance of all, are NaN.
    """
    base = base_of(likelihood)
    if numbers is None or base is not likelihood:
        Y, numbers = split_rows(likelihood, Y)
    values, slope = _plain_values(Y, base)
    values = values - numbers.get("offset", 0.0)
    noisy = numbers.get("noise", 0.0) > np.nanvar(values, axis=0)
    return np.where(noisy | (numbers.get("weight", 1.0) == 0.0), np.nan, values), slope


def _plain_values(Y: np.ndarray, likelihood: Likelihood) -> tuple[np.ndarray, float]:
    kind = label_kind(likelihood)
    if kind == "classes":
        return 1.0 * (Y == np.arange(likelihood.num_classes)), _STEEP
    if kind == "grades":
        return np.asarray(likelihood.middles)[Y.astype(int)], 1.0
    if kind == "binary":
        return 2.0 * Y - 1.0, _STEEP
    if has_scale(likelihood) or np.nanmin(Y) < 0.0:
        return Y, 1.0
    return np.log(Y + 0.5 * np.nanmean(Y, axis=0) + np.finfo(float).tiny), 1.0


# ---
# Lengthscales at which some rows show a signal.


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
Matern 1/2 had test log densities of -1.87 for -1.94, -0.11 for -0.97 and -0.81 for -0.86. On 400
rows of 12 sets one to nine nats would do: 0.8 lost 0.25 nats a row on beijing_pm25, 9.5 gained 0.09
on road3d. On 12 others three nats chose wine_red alone, which gained 0.49."""
_ALL = 0.95
"""Share of the variance of Y that leaves next to nothing but noise."""


def lengthscale_factor(kernel: Kernel, X: TensorType, Y: TensorType, seed: int = 0) -> float:
    """The largest factor of the lengthscales, 1 or a power of 1/2, that tells half of what the best
    one does: of the nats by which some rows have more evidence than as noise alone.

    1 where the best one tells less than 5 nats. Variances are the best ones for each.

    :param kernel: of one output, with the first lengthscales to try. Trainable lengthscales of its
        stationary parts move.
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
    lengths, codes = kernel.lengthscales.numpy(), getattr(kernel, "categories", ())
    rough = kernel_of(Matern12, lengths, codes, kernel.active_dims)
    more = np.max(_gains(rough, X, Y, seed)) - max(0.0, np.max(_gains(kernel, X, Y, seed)))
    return float(more) if more > _ROUGH else 0.0


def other_start(model: GPModel, seed: int = 0) -> float:
    """The `lengthscale_factor` of a model at its hyperparameters, by its own data."""
    X, Y = (np.asarray(part) for part in model.data)
    values, _ = values_of(Y, model.likelihood)
    if has_scale(model.likelihood):
        mean = np.asarray(model.mean_function(X))
        values = values - (mean if mean.shape[1] in (1, values.shape[1]) else 0.0)
    # latents of one kernel each start alike
    kernels = getattr(model.kernel, "latent_kernels", (model.kernel,))
    return lengthscale_factor(kernels[0], X, values, seed)


@contextmanager
def _lengthscales_times(kernel: Kernel, factor: float) -> Iterator[None]:
    """Multiply the trainable lengthscales of a kernel's stationary parts, until the block ends."""
    variables = [part.lengthscales.unconstrained_variable for part in _parts(kernel)]
    before = [variable.numpy() for variable in variables]
    try:
        multiply_lengthscales(kernel, factor)
        yield
    finally:
        for variable, value in zip(variables, before):
            variable.assign(value)


def multiply_lengthscales(kernel: Kernel, factor: float) -> None:
    """Multiply the trainable lengthscales of a kernel's stationary parts, within their bounds."""
    for part in _parts(kernel):
        own = part.lengthscales
        inside = own.transform.inverse(factor * own)
        if np.all(np.isfinite(inside)):
            own.unconstrained_variable.assign(inside)


def _parts(kernel: Kernel) -> list[Stationary]:
    every = dict.fromkeys((kernel, *kernel.submodules))
    return [
        one
        for one in every
        if reads_scaled_inputs(one)
        and isinstance(one.lengthscales, gpflow.Parameter)
        and one.lengthscales.trainable
    ]


def _gains(kernel: Kernel, X: TensorType, Y: TensorType, seed: int) -> np.ndarray:
    """Nats by which some rows have more evidence than as noise alone, for each factor."""
    X, values, none = np.asarray(X), np.asarray(Y, np.float64), np.zeros(len(_FACTORS))
    seen = np.flatnonzero(np.isfinite(values).all(axis=1))
    if len(seen) < _FEWEST or not _parts(kernel):
        return none
    rows = seen[_some(kernel, X[seen], seed)]
    X, values = X[rows], values[rows] - np.mean(values[rows], axis=0)
    values = values[:, np.ptp(values, axis=0) > 0.0]
    if values.shape[1] == 0:
        return none
    noise = -0.5 * len(values) * np.sum(np.log(np.mean(np.square(values), axis=0)))
    found = []
    for factor in _FACTORS:
        with _lengthscales_times(kernel, factor):
            K = np.asarray(kernel(X), np.float64)
        found.append(_evidence(K / np.mean(np.diag(K)), values))
    return np.array(found) - noise


def _some(kernel: Kernel, X: np.ndarray, seed: int) -> np.ndarray:
    """Numbers of the rows that are compared."""
    if len(X) <= _ROWS:
        return np.arange(len(X))
    chosen = np.random.default_rng(seed).choice(len(X), _ROWS // 2, replace=False)
    count = _ROWS // 2 // _PLACES
    near = [
        np.argpartition(-covariance, count)[:count]
        for covariance in np.asarray(kernel(X[chosen[:_PLACES]], X))
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
    codes = sorted({index.column % X.shape[1] for index in indices_of(model.kernel)})
    usual = kernel_of(Matern52, np.ones(X.shape[1]), codes)
    usual.lengthscales.assign(np.sqrt(X.shape[1]) * spreads(usual, np.asarray(X)))
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
