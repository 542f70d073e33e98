"""Quantiles of observations whose f is Gaussian."""

from __future__ import annotations

__all__ = [
    "Law", "law_of", "law_of_trials", "moments_of_trials", "observation_moments",
    "observation_quantiles",
]  # fmt: skip

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from scipy import special
from scipy.special import ndtr, ndtri

from ..errors import DataError, NumericalError
from ..expectations.peaked import peaked_mean, peaked_rule
from ..probability import tfd
from .bernoulli import BernoulliLogit, BernoulliProbit
from .counts import (
    BetaBinomial,
    Binomial,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .laplace import AsymmetricLaplace, Laplace
from .ordinal import Ordinal
from .row_likelihood import RowLikelihood
from .survival import CensoredNormal, LogNormal, Weibull
from .tweedie import Tweedie

# ---
# Mean and variance of observations.


def observation_moments(
    likelihood: gl.Likelihood, X: TensorType, mean: TensorType, variance: TensorType
) -> MeanAndVariance:
    """E y and Var y [..., P], as `predict_mean_and_var` without its cancellation.

    GPflow subtracts (E y)^2 from E y^2. With nodes, here Var y = E[Var(y | f) + (E[y | f] - c)^2] -
    (E y - c)^2 with c = E[y | f = E f].

    :param likelihood: any likelihood.
    :param X: inputs [..., D].
    :param mean: of f [..., L].
    :param variance: of f [..., L].

    Example::

        mean, variance = observation_moments(model.likelihood, Xnew, *model.predict_f(Xnew))
    """
    if isinstance(likelihood, RowLikelihood):
        likelihood = likelihood.likelihood
    by_nodes = gl.base.QuadratureLikelihood
    if not isinstance(likelihood, by_nodes) or (
        type(likelihood)._predict_mean_and_var is not by_nodes._predict_mean_and_var
    ):
        return likelihood.predict_mean_and_var(X, mean, variance)

    def deviation(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_mean(X_, F) - c_

    def square(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_variance(X_, F) + tf.square(deviation(F, X_, c_))

    def expected(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_mean(X_, F)

    c = likelihood.conditional_mean(X, mean)
    first, second, plain = likelihood.quadrature(
        [deviation, square, expected], mean, variance, X_=X, c_=c
    )
    # moments of exp(f) may be beyond the range of floats: they are infinite then, and not the
    # difference of two infinities
    finite, infinity = tf.math.is_finite(c) & tf.math.is_finite(first), tf.cast(np.inf, first.dtype)
    variance = tf.where(tf.math.is_finite(second), second - tf.square(first), infinity)
    return tf.where(finite, c + first, plain), variance


def moments_of_trials(
    likelihood: gl.ScalarLikelihood,
    X: TensorType,
    mean: tf.Tensor,
    variance: tf.Tensor,
    trials: tf.Tensor,
) -> MeanAndVariance:
    """E y and Var y [N, P] of y successes in some trials [N, 1]; other arguments as above.

    :param likelihood: of labels, `Binomial` or `BetaBinomial`.
    """
    # Var y = t E[p (1 - p)] (1 + (t - 1) / (c + 1)) + t^2 Var p, p the probability given f
    p, _ = likelihood.predict_mean_and_var(X, mean, variance)
    width = tf.constant(np.pi, mean.dtype)
    spread = peaked_mean(
        lambda f: tf.square(likelihood._conditional_mean(X, f) - p),
        mean, tf.sqrt(variance), tf.zeros_like(mean), width,
    )  # fmt: skip
    alike = 0.0
    if isinstance(likelihood, BetaBinomial):
        alike = (trials - 1.0) / (likelihood.concentration + 1.0)
    own = trials * (p * (1.0 - p) - spread) * (1.0 + alike)
    return trials * p, own + tf.square(trials) * spread


# ---
# Distribution functions of an observation given f.


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


# ---


_Below: TypeAlias = Callable[[np.ndarray], np.ndarray]
_HERMITE = 40
"""Nodes of a narrow Gaussian; others have 128."""
_TOLERANCE = 1e-8
"""Of a probability, relative to the smaller of p and 1 - p."""
_EVALUATIONS, _DOUBLINGS, _HALVING = 200, 600, 8
"""Largest number of evaluations, and how often one of them halves the bracket."""
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
