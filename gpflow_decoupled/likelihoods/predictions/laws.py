"""Distribution functions of an observation given f."""

from __future__ import annotations

__all__ = ["Law", "law_of", "law_of_trials"]

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from scipy import special

from ...errors import DataError
from ..asymmetric_laplace import AsymmetricLaplace
from ..bernoulli_logit import BernoulliLogit
from ..bernoulli_probit import BernoulliProbit
from ..counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from ..laplace import Laplace
from ..ordinal import Ordinal
from ..survival import CensoredNormal, LogNormal, Weibull
from ..tweedie import Tweedie

Numbers: TypeAlias = "np.ndarray | float"
_Link: TypeAlias = Callable[[np.ndarray], np.ndarray]
_LOWEST = -600.0
"""Of logarithms of rates, whose exponential is above 0."""
_HIGHEST = 600.0
_FARTHEST, _TABLE, _WIDEST = 40.0, 20_001, 1e12
"""Of arsinh f where inverse links are tabulated, numbers of a table, and largest width."""


_NUMBERS, _DEVIATIONS = 96, 9.0
"""Terms of a sum over Poisson numbers, and the deviations that they reach."""


class Law(NamedTuple):
    """P(y <= t | f), of one trial and uncensored, in NumPy."""

    below: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """t [...] and f [Q, ...] to probabilities [Q, ...]"""
    bend: Callable[[np.ndarray], tuple[Numbers, Numbers]]
    """t to the f about which `below` falls from 1 to 0, and the width of that"""
    support: str
    """"real", "positive", "share" (0 to 1), "count", "label" (0 and 1), "amount" (mass at 0)"""


def law_of(likelihood: gl.Likelihood, X: np.ndarray) -> Law:
    """The distribution function of a likelihood of one latent function for each observation.

    :param likelihood: not a `RowLikelihood`.
    :param X: inputs [N, D], for parameters that are functions of them.
    """
    for kinds, make in _LAWS:
        if type(likelihood) in kinds:
            return make(likelihood, X)
    raise DataError(
        f"quantiles of y are not known for a {type(likelihood).__name__}; use predict_y, its mean"
        " and variance."
    )


def law_of_trials(likelihood: gl.ScalarLikelihood, X: np.ndarray, trials: np.ndarray) -> Law:
    """The distribution function of y successes in some trials [N, 1], of labels' likelihoods.

    Cost for a `BetaBinomial`: as many evaluations of its mass as trials.
    """

    def mean(f: np.ndarray) -> np.ndarray:
        return np.asarray(likelihood._conditional_mean(X, tf.constant(f)))

    c = _number(likelihood.concentration) if isinstance(likelihood, BetaBinomial) else np.inf
    place = _bend_of_mean(mean)

    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        p, n = mean(f), np.broadcast_to(trials, t.shape)
        if np.isinf(c):
            return np.where(t < n, special.bdtr(np.minimum(t, n), n, p), 1.0)
        p = np.clip(p, 1e-12, 1.0 - 1e-12)
        a, b, total = c * p, c * (1.0 - p), np.zeros(p.shape)
        for k in range(int(np.max(np.minimum(t, n))) + 1):
            there = k <= np.minimum(t, n)
            rest = np.where(there, n - k, 0.0)
            log_mass = special.betaln(a + k, b + rest) - special.betaln(a, b)
            log_mass -= np.log1p(n) + special.betaln(k + 1.0, rest + 1.0)
            total += np.where(there, np.exp(log_mass), 0.0)
        return np.where(t < n, total, 1.0)

    def bend(t: np.ndarray) -> tuple[Numbers, Numbers]:
        share = np.minimum((t + 0.5) / (trials + 1.0), 1.0 - 0.5 / (trials + 1.0))
        more = 1.0 if np.isinf(c) else (c + trials) / (c + 1.0)
        return place(share, np.sqrt((1.0 - share) * more / (share * (trials + 1.0))))

    return Law(below, bend, "count")


def _exp(f: np.ndarray) -> np.ndarray:
    return np.exp(np.clip(f, _LOWEST, _HIGHEST))


def _log(t: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(t, np.finfo(np.float64).tiny))


def _value(parameter: Any) -> np.ndarray:
    return np.asarray(parameter, np.float64)


def _number(parameter: Any) -> float:
    return float(np.asarray(parameter))


def _inverse_link(likelihood: Any) -> _Link:
    if likelihood.invlink is tf.exp:
        return _exp
    return lambda f: np.asarray(likelihood.invlink(tf.constant(f)))


def _bend_of_mean(link: _Link) -> Callable[[np.ndarray, Numbers], tuple[Numbers, Numbers]]:
    """Return (y, r) -> the f whose mean is y, and the width in f of a spread r y of y."""
    if link is _exp:
        return lambda y, relative: (_log(y), relative)
    f = np.sinh(np.linspace(-_FARTHEST, _FARTHEST, _TABLE))
    means = link(f)
    f, means = f[np.isfinite(means)], means[np.isfinite(means)]
    slopes = np.maximum(np.gradient(means, f), np.finfo(np.float64).tiny)

    def bend(y: np.ndarray, relative: Numbers) -> tuple[Numbers, Numbers]:
        y = np.maximum(y, 2.0 * means[0])  # least means have no place
        centre = np.interp(y, means, f)
        width = relative * y / np.interp(centre, f, slopes)
        return centre, np.clip(width, 1.0 / _WIDEST, _WIDEST)

    return bend


def _plus_noise(scale: np.ndarray, standard: Callable[[np.ndarray], np.ndarray]) -> Law:
    return Law(lambda t, f: standard((t - f) / scale), lambda t: (t, scale), "real")


def _gaussian(likelihood: Any, X: np.ndarray) -> Law:
    return _plus_noise(np.sqrt(_value(likelihood._variance(X))), special.ndtr)


def _student_t(likelihood: Any, X: np.ndarray) -> Law:
    df = _number(likelihood.df)
    return _plus_noise(_value(likelihood._scale(X)), lambda z: special.stdtr(df, z))


def _censored_normal(likelihood: Any, X: np.ndarray) -> Law:
    return _plus_noise(_value(likelihood.scale), special.ndtr)


def _laplace(likelihood: Any, X: np.ndarray) -> Law:
    return _plus_noise(_value(likelihood.scale), lambda z: _two_sided(2.0 * z, 0.5))


def _quantile(likelihood: Any, X: np.ndarray) -> Law:
    q = likelihood.quantile
    return _plus_noise(_value(likelihood.scale), lambda z: _two_sided(z, q))


def _two_sided(z: np.ndarray, q: float) -> np.ndarray:
    low = q * np.exp((1.0 - q) * np.minimum(z, 0.0))
    return np.where(z < 0.0, low, 1.0 - (1.0 - q) * np.exp(-q * np.maximum(z, 0.0)))


def _log_normal(likelihood: Any, X: np.ndarray) -> Law:
    scale = _value(likelihood.scale)
    return Law(
        lambda t, f: special.ndtr((_log(t) - f) / scale), lambda t: (_log(t), scale), "positive"
    )


def _weibull(likelihood: Any, X: np.ndarray) -> Law:
    shape = _value(likelihood.shape)
    return Law(
        lambda t, f: -np.expm1(-_exp(shape * (_log(t) - f))),
        lambda t: (_log(t), 1.0 / shape),
        "positive",
    )


def _gamma(likelihood: Any, X: np.ndarray) -> Law:
    shape = 1.0 if isinstance(likelihood, gl.Exponential) else _value(likelihood._shape(X))
    scale = _inverse_link(likelihood)
    bend = _bend_of_mean(scale)
    return Law(
        lambda t, f: special.gammainc(shape, t / scale(f)),
        lambda t: bend(t / shape, 1.0 / np.sqrt(shape)),
        "positive",
    )


def _beta(likelihood: Any, X: np.ndarray) -> Law:
    total, mean = _value(likelihood._scale(X)), _inverse_link(likelihood)
    least, place = 1e-12, _bend_of_mean(mean)
    # nearer to 0 or 1 than one of `total` nothing is sharp
    low = 1.0 / (2.0 + total)
    high = np.minimum(1.0 - low, 2.0 * mean(np.array(1e9)) - 1.0)

    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        share = np.clip(mean(f), least, 1.0 - least)
        return special.betainc(total * share, total * (1.0 - share), t)

    def bend(t: np.ndarray) -> tuple[Numbers, Numbers]:
        t = np.clip(t, low, high)
        f, width = place(t, np.sqrt((1.0 - t) / (t * (1.0 + total))))
        return f, np.minimum(width, 1.0 / np.sqrt(1.0 + total))

    return Law(below, bend, "share")


def _tweedie(likelihood: Any, X: np.ndarray) -> Law:
    phi, p = _number(likelihood.dispersion), _number(likelihood.power)
    shape = (2.0 - p) / (p - 1.0)

    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        # a Poisson number j of gamma amounts; where many numbers have mass, every h-th counts h
        # times
        rate = _exp((2.0 - p) * f) / (phi * (2.0 - p))
        total = np.exp(-rate) * np.ones_like(t)
        spread = _DEVIATIONS * np.sqrt(rate)
        first = np.maximum(1.0, np.floor(rate - spread))
        step = np.maximum(1.0, 2.0 * (spread + _DEVIATIONS) / _NUMBERS)
        share = t / (phi * (p - 1.0) * _exp((p - 1.0) * f))
        for k in range(_NUMBERS):
            j = first + k * step
            mass = np.exp(special.xlogy(j, rate) - rate - special.gammaln(j + 1.0))
            total += step * mass * special.gammainc(j * shape, share)
        return np.minimum(total, 1.0)

    return Law(
        below, lambda t: (_log(t), np.sqrt(phi) * np.maximum(t, 1e-8) ** (0.5 * p - 1.0)), "amount"
    )


def _counts(
    above: Callable[[np.ndarray, np.ndarray], np.ndarray],
    share: float,
    hurdle: bool,
    bend: Callable[[np.ndarray], tuple[Numbers, Numbers]],
) -> Law:
    # `above` is P(y > t | f) without the extra zeros, of which there is a share
    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        left = above(t, f)
        left = left / above(np.zeros_like(t), f) if hurdle else left
        return 1.0 - (1.0 - share) * left

    return Law(below, bend, "count")


def _poisson_of(rate: _Link, size: float, share: float, hurdle: bool) -> Law:
    bend = _bend_of_mean(rate)
    return _counts(
        lambda t, f: special.pdtrc(t, rate(f) * size),
        share,
        hurdle,
        lambda t: bend((t + 1.0) / size, 1.0 / np.sqrt(t + 1.0)),
    )


def _poisson(likelihood: Any, X: np.ndarray) -> Law:
    return _poisson_of(_inverse_link(likelihood), _number(likelihood.binsize), 0.0, False)


def _negative_binomial(likelihood: Any, X: np.ndarray) -> Law:
    share = _number(likelihood.zero_share) if hasattr(likelihood, "zero_share") else 0.0
    hurdle, size = isinstance(likelihood, HurdlePoisson), _number(likelihood.size)
    return _counts(
        lambda t, f: special.betainc(t + 1.0, size, special.expit(f - np.log(size))),
        share,
        hurdle,
        lambda t: (_log(t + 1.0), np.sqrt(1.0 / (t + 1.0) + 1.0 / size)),
    )


def _poisson_of_zeros(likelihood: Any, X: np.ndarray) -> Law:
    hurdle = isinstance(likelihood, HurdlePoisson)
    return _poisson_of(_exp, 1.0, _number(likelihood.zero_share), hurdle)


def _labels(likelihood: Any, X: np.ndarray) -> Law:
    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        ones = np.asarray(likelihood._conditional_mean(X, tf.constant(f)))
        return np.where(t < 1.0, 1.0 - ones, 1.0)

    return Law(below, lambda t: (0.0, 1.0), "label")


def _grades(likelihood: Any, X: np.ndarray) -> Law:
    edges, sigma = _value(likelihood.bin_edges), _value(likelihood.sigma)

    def edge(t: np.ndarray) -> np.ndarray:
        return edges[np.clip(t, 0, len(edges) - 1).astype(int)]

    return Law(
        lambda t, f: np.where(t < len(edges), special.ndtr((edge(t) - f) / sigma), 1.0),
        lambda t: (edge(t), sigma),
        "count",
    )


_LAWS: tuple[tuple[tuple[type, ...], Callable[[Any, np.ndarray], Law]], ...] = (
    ((gl.Gaussian,), _gaussian),
    ((gl.StudentT,), _student_t),
    ((CensoredNormal,), _censored_normal),
    ((Laplace,), _laplace),
    ((AsymmetricLaplace,), _quantile),
    ((LogNormal,), _log_normal),
    ((Weibull,), _weibull),
    ((gl.Gamma, gl.Exponential), _gamma),
    ((gl.Beta,), _beta),
    ((Tweedie,), _tweedie),
    ((gl.Poisson,), _poisson),
    ((ZeroInflatedPoisson, HurdlePoisson), _poisson_of_zeros),
    (
        (NegativeBinomial, ZeroInflatedNegativeBinomial, HurdleNegativeBinomial),
        _negative_binomial,
    ),
    ((Ordinal,), _grades),
    ((gl.Bernoulli, BernoulliLogit, BernoulliProbit, Binomial, BetaBinomial), _labels),
)
