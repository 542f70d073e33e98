"""Likelihoods with observations that they accept."""

from __future__ import annotations

__all__ = ["LIKELIHOODS", "Choice", "draw_likelihood"]

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as ours

Observe = Callable[[np.random.Generator, np.ndarray, float], np.ndarray]
"""Of latent functions [N, L] and the scale of the noise."""


EDGES = np.array([-1.0, 0.0, 1.0])
"""Between four grades."""


@dataclass(frozen=True)
class Choice:
    """A likelihood: how it is made from the scale of its noise, what it observes, how many latents
    it needs, and whether the last column of Y is a number beside the observations.
    """

    make: Callable[[float], gl.Likelihood]
    observe: Observe
    latents: int | None = None
    has_scale: bool = False
    numbered: bool = False


def _noisy(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return f + noise * rng.normal(size=f.shape)


def _labels(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return (f + 0.3 * rng.normal(size=f.shape) > 0).astype(float)


def _counts(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return rng.poisson(np.exp(np.clip(f, -5.0, 4.0))).astype(float)


def _positive(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return rng.gamma(2.0, size=f.shape) * np.exp(np.clip(f, -3.0, 3.0)) + 1e-6


def _proportions(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return rng.uniform(0.02, 0.98, size=f.shape)


def _classes(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return np.argmax(f + 0.3 * rng.normal(size=f.shape), axis=1)[:, None].astype(float)


def _grades(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return np.searchsorted(EDGES, f + rng.normal(size=f.shape)).astype(float)


def _some_zeros(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return np.where(rng.uniform(size=f.shape) < 0.3, 0.0, _counts(rng, f, noise))


def _amounts(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return np.where(rng.uniform(size=f.shape) < 0.3, 0.0, _positive(rng, f, noise))


def _successes(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    trials = rng.integers(1, 30, size=(len(f), 1))
    chance = 1.0 / (1.0 + np.exp(-np.clip(f, -20.0, 20.0)))
    return np.hstack([rng.binomial(trials, chance), trials]).astype(float)


def _with_codes(observe: Observe) -> Observe:
    """Observations with a column of codes: 0 observed, 1 and -1 censored."""

    def of(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
        codes = rng.choice([0.0, 0.0, 1.0, -1.0], size=(len(f), 1))
        return np.hstack([observe(rng, f, noise), codes])

    return of


def _one_of_two(rng: np.random.Generator, f: np.ndarray, noise: float) -> np.ndarray:
    return f[:, :1] + 0.1 * rng.normal(size=(len(f), 1))


LIKELIHOODS: dict[str, Choice] = {
    "Gaussian": Choice(
        lambda s: gl.Gaussian(s**2, variance_lower_bound=0.0), _noisy, has_scale=True
    ),
    "StudentT": Choice(
        lambda s: gl.StudentT(s, df=4.0, scale_lower_bound=0.0), _noisy, has_scale=True
    ),
    "Laplace": Choice(lambda s: ours.Laplace(s), _noisy, has_scale=True),
    "Bernoulli": Choice(lambda _: gl.Bernoulli(), _labels),
    "BernoulliLogit": Choice(lambda _: ours.BernoulliLogit(), _labels),
    "BernoulliProbit": Choice(lambda _: ours.BernoulliProbit(), _labels),
    "Poisson": Choice(lambda _: gl.Poisson(), _counts),
    "NegativeBinomial": Choice(lambda _: ours.NegativeBinomial(), _counts),
    "Exponential": Choice(lambda _: gl.Exponential(), _positive),
    "Gamma": Choice(lambda _: gl.Gamma(), _positive),
    "Beta": Choice(lambda _: gl.Beta(), _proportions),
    "Ordinal": Choice(lambda _: ours.Ordinal(EDGES), _grades),
    "MultiClass": Choice(lambda _: gl.MultiClass(3), _classes, 3),
    "Softmax": Choice(lambda _: gl.Softmax(3), _classes, 3),
    "CategoricalLogit": Choice(lambda _: ours.CategoricalLogit(3), _classes, 3),
    "Binomial": Choice(lambda _: ours.Binomial(), _successes, numbered=True),
    "BetaBinomial": Choice(lambda _: ours.BetaBinomial(5.0), _successes, numbered=True),
    "ZeroInflatedPoisson": Choice(lambda _: ours.ZeroInflatedPoisson(0.3), _some_zeros),
    "ZeroInflatedNegativeBinomial": Choice(
        lambda _: ours.ZeroInflatedNegativeBinomial(0.3, 2.0), _some_zeros
    ),
    "HurdlePoisson": Choice(lambda _: ours.HurdlePoisson(0.3), _some_zeros),
    "HurdleNegativeBinomial": Choice(lambda _: ours.HurdleNegativeBinomial(0.3, 2.0), _some_zeros),
    "CensoredNormal": Choice(
        lambda s: ours.CensoredNormal(s), _with_codes(_noisy), has_scale=True, numbered=True
    ),
    "LogNormal": Choice(lambda _: ours.LogNormal(0.7), _with_codes(_positive), numbered=True),
    "Weibull": Choice(lambda _: ours.Weibull(1.5), _with_codes(_positive), numbered=True),
    "AsymmetricLaplace": Choice(lambda s: ours.AsymmetricLaplace(0.8, s), _noisy, has_scale=True),
    "Tweedie": Choice(lambda _: ours.Tweedie(0.8, 1.4), _amounts),
    "Heteroskedastic": Choice(lambda _: gl.HeteroskedasticTFPConditional(), _one_of_two, 2),
}


def draw_likelihood(rng: np.random.Generator, several: bool) -> tuple[str, int]:
    """The name of a likelihood, a third of the times Gaussian, and how many latents it has.

    :param several: whether more than one latent is possible.
    """
    names = [name for name, choice in LIKELIHOODS.items() if several or choice.latents is None]
    name = "Gaussian" if rng.uniform() < 0.35 else str(rng.choice(names))
    needed = LIKELIHOODS[name].latents
    return name, needed or (int(rng.choice([1, 1, 2, 3])) if several else 1)
