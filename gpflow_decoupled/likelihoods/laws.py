"""Distribution functions of an observation given f."""

from __future__ import annotations

__all__ = ["Law", "law_of"]

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from scipy import special

from ..errors import DataError
from .asymmetric_laplace import AsymmetricLaplace
from .bernoulli_logit import BernoulliLogit
from .bernoulli_probit import BernoulliProbit
from .counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .laplace import Laplace
from .survival import CensoredNormal, LogNormal, Weibull

Numbers: TypeAlias = "np.ndarray | float"
_LOWEST = -600.0
"""Of logarithms of rates, whose exponential is above 0."""
_HIGHEST = 600.0


class Law(NamedTuple):
    """P(y <= t | f), of one trial and uncensored, in NumPy."""

    below: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """t [...] and f [Q, ...] to probabilities [Q, ...]"""
    bend: Callable[[np.ndarray], tuple[Numbers, Numbers]]
    """t to the f about which `below` falls from 1 to 0, and the width of that"""
    support: str
    """"real", "positive", "share" (0 to 1), "count" or "label" (0 and 1)"""


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


def _exp(f: np.ndarray) -> np.ndarray:
    return np.exp(np.clip(f, _LOWEST, _HIGHEST))


def _log(t: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(t, np.finfo(np.float64).tiny))


def _value(parameter: Any) -> np.ndarray:
    return np.asarray(parameter, np.float64)


def _number(parameter: Any) -> float:
    return float(np.asarray(parameter))


def _inverse_link(likelihood: Any) -> Callable[[np.ndarray], np.ndarray]:
    if likelihood.invlink is tf.exp:
        return _exp
    return lambda f: np.asarray(likelihood.invlink(tf.constant(f)))


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
    return Law(
        lambda t, f: special.gammainc(shape, t / scale(f)),
        lambda t: (_log(t / shape), 1.0 / np.sqrt(shape)),
        "positive",
    )


def _beta(likelihood: Any, X: np.ndarray) -> Law:
    total, mean = _value(likelihood._scale(X)), _inverse_link(likelihood)
    least = 1e-12

    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        share = np.clip(mean(f), least, 1.0 - least)
        return special.betainc(total * share, total * (1.0 - share), t)

    return Law(below, lambda t: (0.0, 1.0 / np.sqrt(1.0 + total)), "share")


def _counts(
    above: Callable[[np.ndarray, np.ndarray], np.ndarray], excess: float, share: float, hurdle: bool
) -> Law:
    # `above` is P(y > t | f) without the extra zeros, of which there is a share
    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        left = above(t, f)
        left = left / above(np.zeros_like(t), f) if hurdle else left
        return 1.0 - (1.0 - share) * left

    return Law(below, lambda t: (_log(t + 1.0), np.sqrt(1.0 / (t + 1.0) + excess)), "count")


def _poisson(likelihood: Any, X: np.ndarray) -> Law:
    rate = _inverse_link(likelihood)
    return _counts(
        lambda t, f: special.pdtrc(t, rate(f) * likelihood.binsize), 0.0, 0.0, hurdle=False
    )


def _negative_binomial(likelihood: Any, X: np.ndarray) -> Law:
    share = _number(likelihood.zero_share) if hasattr(likelihood, "zero_share") else 0.0
    hurdle, size = isinstance(likelihood, HurdlePoisson), _number(likelihood.size)
    return _counts(
        lambda t, f: special.betainc(t + 1.0, size, special.expit(f - np.log(size))),
        1.0 / size, share, hurdle,
    )  # fmt: skip


def _poisson_of_zeros(likelihood: Any, X: np.ndarray) -> Law:
    share, hurdle = _number(likelihood.zero_share), isinstance(likelihood, HurdlePoisson)
    return _counts(lambda t, f: special.pdtrc(t, _exp(f)), 0.0, share, hurdle)


def _labels(likelihood: Any, X: np.ndarray) -> Law:
    def below(t: np.ndarray, f: np.ndarray) -> np.ndarray:
        ones = np.asarray(likelihood._conditional_mean(X, tf.constant(f)))
        return np.where(t < 1.0, 1.0 - ones, 1.0)

    return Law(below, lambda t: (0.0, 1.0), "label")


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
    ((gl.Poisson,), _poisson),
    ((ZeroInflatedPoisson, HurdlePoisson), _poisson_of_zeros),
    (
        (NegativeBinomial, ZeroInflatedNegativeBinomial, HurdleNegativeBinomial),
        _negative_binomial,
    ),
    ((gl.Bernoulli, BernoulliLogit, BernoulliProbit, Binomial, BetaBinomial), _labels),
)
