"""What a random problem is made of: inputs, kernels, mean functions, and likelihoods with
observations that they accept, of every size and scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gpflow import functions, kernels
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as ours

ROWS = (1, 1, 2, 2, 3, 3, 5, 8, 12, 20, 30, 40)
COLUMNS = (1, 1, 1, 2, 3, 5)
WIDEST = {np.float64: 8, np.float32: 4}
"""Decimal orders of magnitude of the scales: the squares of wider ones leave the range of
float32.
"""


def draw_scale(rng: np.random.Generator, dtype: type) -> float:
    """One in half of the cases, otherwise a power of ten."""
    return (
        1.0
        if rng.uniform() < 0.5
        else float(10.0 ** rng.integers(-WIDEST[dtype], WIDEST[dtype] + 1))
    )


def draw_inputs(
    rng: np.random.Generator, rows: int, columns: int, scale: float
) -> tuple[np.ndarray, str]:
    """X [N, D], and what is special about it."""
    X, notes = rng.uniform(-2.0, 2.0, (rows, columns)), []
    if rows > 1 and rng.uniform() < 0.3:  # duplicates, up to all rows the same
        X[rng.uniform(size=rows) < rng.uniform()] = X[0]
        notes.append("duplicates")
    if columns > 1 and rng.uniform() < 0.1:
        X[:, rng.integers(columns)] = 0.7
        notes.append("constant column of X")
    if rng.uniform() < 0.1:
        X += 100.0
        notes.append("X far from 0")
    return scale * X, ", ".join(notes)


Make = Callable[[float, float, int], kernels.Kernel]
"""Of variance, lengthscale and D."""

STATIONARY: dict[str, Make] = {
    "SquaredExponential": lambda v, s, _: kernels.SquaredExponential(v, s),
    "SquaredExponential ARD": lambda v, s, D: kernels.SquaredExponential(v, np.full(D, s)),
    "Matern12": lambda v, s, _: kernels.Matern12(v, s),
    "Matern32": lambda v, s, _: kernels.Matern32(v, s),
    "Matern52": lambda v, s, _: kernels.Matern52(v, s),
}
"""Kernels that have forgotten the data a thousand lengthscales away."""

KERNELS: dict[str, Make] = {
    **STATIONARY,
    "RationalQuadratic": lambda v, s, _: kernels.RationalQuadratic(v, s),
    "Linear": lambda v, s, _: kernels.Linear(v / s**2),
    "Linear + Constant": lambda v, s, _: kernels.Linear(v / s**2) + kernels.Constant(v),
    "Polynomial": lambda v, s, _: kernels.Polynomial(2, v ** (1 / 2) / s**2, v ** (1 / 2)),
    "Periodic": lambda v, s, _: kernels.Periodic(
        kernels.SquaredExponential(v, 1.0), period=3.0 * s
    ),
    "Cosine": lambda v, s, _: kernels.Cosine(v, s),
    "ArcCosine": lambda v, s, _: kernels.ArcCosine(1, v, 1.0 / s**2, 1.0),
    "Matern52 + White": lambda v, s, _: kernels.Matern52(v, s) + kernels.White(0.1 * v),
    "Matern32 * Linear": lambda v, s, _: kernels.Matern32(v, s) * kernels.Linear(1.0 / s**2),
    "SquaredExponential of one column": lambda v, s, D: kernels.SquaredExponential(
        v, s, active_dims=[D - 1]
    ),
}


def draw_kernel(
    rng: np.random.Generator, variance: float, scale: float, columns: int, latents: int
) -> tuple[kernels.Kernel, str]:
    """A kernel and its name; for several latents at times with parameters of their own, or
    mixed.
    """
    name = str(rng.choice(list(STATIONARY if rng.uniform() < 0.4 else KERNELS)))
    make = KERNELS[name]
    if latents == 1 or rng.uniform() < 0.5:
        return make(variance, scale, columns), name
    if rng.uniform() < 0.3:
        return kernels.SharedIndependent(
            make(variance, scale, columns), latents
        ), f"SharedIndependent {name}"
    several = [make(variance * (1.0 + latent), scale, columns) for latent in range(latents)]
    if rng.uniform() < 0.3:
        W = rng.normal(size=(latents, latents))
        return kernels.LinearCoregionalization(several, W=W), f"LinearCoregionalization {name}"
    return kernels.SeparateIndependent(several), f"SeparateIndependent {name}"


def draw_mean(
    rng: np.random.Generator, X: np.ndarray, outputs: int, size: float
) -> tuple[functions.MeanFunction | None, str]:
    """A mean function [N, D] -> [N, P] whose values have about the given size, and its name; None
    is zero.
    """
    columns, reach = X.shape[1], max(float(np.max(np.abs(X))), 1e-30)
    kind = str(rng.choice(["none", "none", "Zero", "Constant", "Linear", "Additive"]))
    if kind == "none":
        return None, kind
    if kind == "Zero":
        return functions.Zero(outputs), kind
    constant = functions.Constant(size * rng.normal(size=outputs))
    if kind == "Constant":
        return constant, kind
    linear = functions.Linear(
        size / reach * rng.normal(size=(columns, outputs)), size * rng.normal(size=outputs)
    )
    return (linear if kind == "Linear" else functions.Additive(linear, constant)), kind


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
