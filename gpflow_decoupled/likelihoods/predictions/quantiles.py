"""Quantiles of observations whose f is Gaussian."""

from __future__ import annotations

__all__ = ["observation_quantiles"]

from collections.abc import Callable
from typing import TypeAlias

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from scipy.special import ndtr, ndtri

from ...errors import DataError, NumericalError
from ...expectations.peaked import peaked_rule
from ...probability import tfd
from .laws import Law, law_of, law_of_trials

_Below: TypeAlias = Callable[[np.ndarray], np.ndarray]
_HERMITE = 40
"""Nodes of a narrow Gaussian; others have 128."""
_TOLERANCE = 1e-8
"""Of a probability, relative to the smaller of p and 1 - p."""
_EVALUATIONS, _DOUBLINGS, _HALVING = 200, 600, 8
"""At most; and of so many evaluations one halves the bracket."""
_LARGEST, _MOST = 1e300, 2.0**52
"""Of real numbers, and of counts, which beyond are not told from their neighbours."""


def observation_quantiles(
    likelihood: gl.Likelihood,
    X: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    level: float,
    trials: np.ndarray | None = None,
) -> np.ndarray:
    """The quantile of each y [N, P], f ~ N(mean, variance): of counts the smallest whose
    probability of at most it reaches the level.

    The distribution function is integrated over f to 1e-6. Cost: some 15 evaluations of it at 128
    nodes an entry.

    :param likelihood: of one latent function for each observation, or with another for the
        logarithm of a normal scale.
    :param X: inputs [N, D].
    :param mean: of f, [N, L].
    :param variance: of f, [N, L].
    :param level: p, above 0 and below 1.
    :param trials: [N, 1], of labels or `Binomial` and `BetaBinomial` counts; one if not given.
    :raises NumericalError: where a quantile is out of the range of floats.

    Example::

        mean, variance = map(np.asarray, model.predict_f(Xnew))
        ninth = observation_quantiles(model.likelihood, Xnew, mean, variance, 0.9)
    """
    if isinstance(likelihood, gl.HeteroskedasticTFPConditional):
        return _with_latent_scale(likelihood, mean, variance, level)
    law = law_of(likelihood, X) if trials is None else law_of_trials(likelihood, X, trials)
    deviation = np.sqrt(np.maximum(variance, 0.0))

    def below(t: np.ndarray) -> np.ndarray:
        centre, width = (np.broadcast_to(part, t.shape) for part in law.bend(t))
        m, s, c, w = (tf.constant(part) for part in (mean, deviation, centre, width))
        z, weights = (part.numpy() for part in peaked_rule(m, s, c, w, _HERMITE))
        found = np.sum(weights * law.below(t, mean + deviation * z), axis=0)
        _check(np.all(np.isfinite(found)))
        return found

    return _solved(below, law, mean, level)


def _solved(below: _Below, law: Law, mean: np.ndarray, level: float) -> np.ndarray:
    if law.support == "label":
        return (below(np.zeros(mean.shape)) < level).astype(np.float64)
    if law.support == "count":
        return _count(below, mean.shape, level)
    if law.support in ("positive", "amount"):
        zero = np.full(mean.shape, False)
        if law.support == "amount":
            zero = below(np.zeros(mean.shape)) >= level

        def in_logs(s: np.ndarray) -> np.ndarray:
            return np.where(zero, ndtr(s - mean), below(np.exp(s)))

        with np.errstate(over="ignore"):
            found = np.exp(_root(in_logs, mean, np.ones(mean.shape), level))
        if law.support == "amount":
            return np.where(zero, 0.0, found)
        _check(np.all((found > 1.0 / _LARGEST) & (found < _LARGEST)))
        return found
    if law.support == "share":
        half = np.full(mean.shape, 0.5)
        return ndtr(_root(lambda s: below(ndtr(s)), 0.0 * half, half, level))
    width = law.bend(mean)[1] + np.zeros(mean.shape)
    return _root(below, mean, width, level)


def _count(below: _Below, shape: tuple[int, ...], level: float) -> np.ndarray:
    low, high = np.full(shape, -1.0), np.zeros(shape)
    while np.any(short := below(high) < level):
        low, high = np.where(short, high, low), np.where(short, 2.0 * high + 1.0, high)
        _check(np.all(high < _MOST))
    while np.any(high - low > 1.0):
        middle = np.floor(0.5 * (low + high))
        short = below(np.maximum(middle, 0.0)) < level
        short |= middle < 0.0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _root(below: _Below, centre: np.ndarray, width: np.ndarray, level: float) -> np.ndarray:
    """Where an increasing function is `level`: a bracket, then false position (Illinois)."""
    low, high = centre - width, centre + width
    for _ in range(_DOUBLINGS):
        f_low, f_high = below(low) - level, below(high) - level
        outside = (f_low > 0.0) | (f_high < 0.0)
        if not np.any(outside):
            break
        width = np.where(outside, 2.0 * width, width)
        low, high = (
            np.where(f_low > 0.0, low - width, low),
            np.where(f_high < 0.0, high + width, high),
        )
        _check(np.all(np.isfinite(width)))
    enough = _TOLERANCE * min(level, 1.0 - level)
    side, found = np.zeros(low.shape), np.full(low.shape, np.nan)
    for number in range(_EVALUATIONS):
        span = np.where(f_high > f_low, f_high - f_low, 1.0)
        middle = (f_high <= f_low) | (number % _HALVING == _HALVING - 1)
        t = np.where(middle, 0.5 * (low + high), (low * f_high - high * f_low) / span)
        t = np.clip(t, low, high)
        f = below(t) - level
        done = (np.abs(f) <= enough) | (high - low <= 1e-13 * np.abs(t))
        # the first that is near enough, so that no row depends on the others
        found = np.where(np.isnan(found) & done, t, found)
        if not np.any(np.isnan(found)):
            return found
        left = f < 0.0
        # an end that stays twice is drawn to zero, so that it moves next
        drawn = np.where(side == np.where(left, 1.0, -1.0), 0.5, 1.0)
        side = np.where(left, 1.0, -1.0)
        f_low, f_high = np.where(left, f, drawn * f_low), np.where(left, drawn * f_high, f)
        low, high = np.where(left, t, low), np.where(left, high, t)
    return np.where(np.isnan(found), t, found)


def _with_latent_scale(
    likelihood: gl.HeteroskedasticTFPConditional,
    mean: np.ndarray,
    variance: np.ndarray,
    level: float,
) -> np.ndarray:
    kind = type(likelihood.conditional_distribution(tf.zeros([1, 2], mean.dtype)))
    if kind is not tfd.Normal:
        raise DataError(
            f"quantiles of y are not known for a {kind.__name__} of two latent functions; use"
            " predict_y, its mean and variance."
        )
    nodes, weights = np.polynomial.hermite_e.hermegauss(_HERMITE)
    weights = weights / weights.sum()
    logs = mean[:, 1:] + np.sqrt(variance[:, 1:]) * nodes  # [N, Q]
    noise = np.asarray(likelihood.scale_transform(tf.constant(logs)))
    total = np.sqrt(variance[:, :1] + np.square(noise))

    def below(t: np.ndarray) -> np.ndarray:
        return np.sum(weights * ndtr((t - mean[:, :1]) / total), axis=1, keepdims=True)

    start = mean[:, :1] + np.median(total, axis=1, keepdims=True) * ndtri(level)
    return _root(below, start, np.mean(total, axis=1, keepdims=True), level)


def _check(found: np.bool_) -> None:
    if not found:
        raise NumericalError(
            "a quantile of y is out of the range of floats: ask for another level."
        )
