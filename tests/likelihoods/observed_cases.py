"""Likelihoods of counts, and of censored and other observations, with their slow log densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as own
from tests.reference import observed as ref

COUNTS = np.array([[0.0], [1.0], [3.0], [40.0], [0.0], [2.0]])
SUCCESSES = np.array([[0.0, 9.0], [1.0, 1.0], [3.0, 7.0], [40.0, 41.0], [0.0, 1.0], [25.0, 300.0]])
CENSORED = np.array([[0.3, 0.0], [1.2, 1.0], [0.7, -1.0], [3.0, 0.0], [0.2, 1.0], [5.0, -1.0]])
REAL = np.array([[-1.2], [0.1], [0.7], [3.0], [-0.4], [0.0]])
AMOUNTS = np.array([[0.0], [1.0], [0.03], [40.0], [0.0], [2.0]])
LOGS = np.linspace(-30.0, 6.0, 721)
TIMES = np.exp(LOGS), np.exp(LOGS) * (LOGS[1] - LOGS[0])
LINE = np.linspace(-60.0, 60.0, 24_001), np.full(24_001, 0.005)
WHOLE = np.arange(4000.0), np.ones(4000)


class Case(NamedTuple):
    """A likelihood, observations, and how to check them."""

    name: str
    """In `build`."""
    make: Callable[[], gl.ScalarLikelihood]
    Y: np.ndarray
    """[6, 1], or [6, 2] with numbers"""
    density: Callable[..., ref.LogDensity]
    """the columns of a row -> f -> log p(y | f)"""
    values: tuple[np.ndarray, np.ndarray]
    """points of y and their weights, by which sums over y are integrals"""
    neutral: tuple[float, ...] = ()
    """the number of a row whose moments are predicted"""
    concave: bool = False
    of_arrays: bool = False
    """whether `density` takes an array of y"""
    bad: tuple[tuple[tuple[float, ...], str], ...] = ()
    """rows that are refused, and words of the message"""


TRIALS = (((3.0, 2.0), "build(..., trials=t)"), ((1.5, 2.0), "Y[0, 0] = 1.5"),
          ((0.0, 0.0), "Y[0, 1] = 0"))  # fmt: skip
CODES = (((1.0, 2.0), "Y[0, 1] = 2"), ((1.0, 0.5), "np.where(observed, 0, 1)"))
COUNT = (((-1.0,), "counts 0, 1, 2"), ((0.5,), "counts 0, 1, 2"))
CASES = {
    "binomial": Case(
        "binomial", own.Binomial, SUCCESSES, ref.binomial, (np.arange(2.0), np.ones(2)), (1.0,),
        True, bad=TRIALS,
    ),
    "beta-binomial": Case(
        "beta_binomial", lambda: own.BetaBinomial(3.0), SUCCESSES,
        lambda y, t: ref.beta_binomial(y, t, 3.0), (np.arange(2.0), np.ones(2)), (1.0,),
        bad=TRIALS,
    ),
    "zero-inflated Poisson": Case(
        "zero_inflated_poisson", lambda: own.ZeroInflatedPoisson(0.3), COUNTS,
        lambda y: ref.zero_inflated(y, 0.3, None), WHOLE, bad=COUNT,
    ),
    "zero-inflated negative binomial": Case(
        "zero_inflated_negative_binomial",
        lambda: own.ZeroInflatedNegativeBinomial(0.2, 2.5), COUNTS,
        lambda y: ref.zero_inflated(y, 0.2, 2.5), WHOLE, bad=COUNT,
    ),
    "hurdle Poisson": Case(
        "hurdle_poisson", lambda: own.HurdlePoisson(0.3), COUNTS,
        lambda y: ref.hurdle(y, 0.3, None), WHOLE, concave=True, bad=COUNT,
    ),
    "hurdle negative binomial": Case(
        "hurdle_negative_binomial", lambda: own.HurdleNegativeBinomial(0.6, 0.7), COUNTS,
        lambda y: ref.hurdle(y, 0.6, 0.7), WHOLE, bad=COUNT,
    ),
    "censored normal": Case(
        "tobit", lambda: own.CensoredNormal(0.6), CENSORED,
        lambda y, code: ref.censored_normal(y, code, 0.6), LINE,
        (0.0,), True, True, CODES,
    ),
    "log-normal": Case(
        "log_normal", lambda: own.LogNormal(0.6), CENSORED,
        lambda y, code: ref.log_normal(y, code, 0.6),
        TIMES, (0.0,), True, True, (*CODES, ((0.0, 0.0), "numbers above 0")),
    ),
    "Weibull": Case(
        "weibull", lambda: own.Weibull(1.7), CENSORED,
        lambda y, code: ref.weibull(y, code, 1.7),
        TIMES, (0.0,), True, True, (*CODES, ((-1.0, 1.0), "numbers above 0")),
    ),
    "quantile": Case(
        "quantile", lambda: own.AsymmetricLaplace(0.8, 0.4), REAL,
        lambda y: ref.asymmetric_laplace(y, 0.8, 0.4), LINE, concave=True, of_arrays=True,
    ),
    "Tweedie": Case(
        "tweedie", lambda: own.Tweedie(0.7, 1.4), AMOUNTS,
        lambda y: ref.tweedie(y, 0.7, 1.4),
        (np.append(0.0, TIMES[0]), np.append(1.0, TIMES[1])), concave=True,
        bad=(((-0.1,), "numbers of at least 0"),),
    ),
}  # fmt: skip
