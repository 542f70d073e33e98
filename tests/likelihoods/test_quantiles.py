"""Quantiles of observations, beside draws and slow integrals."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy.stats import beta, gamma, laplace, nbinom, norm, poisson, t, weibull_min

import gpflow_decoupled as gd
from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.likelihoods import observation_quantiles
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor

DRAWS = 200_000
MEAN, VARIANCE = np.array([[-1.5], [0.3], [2.0]]), np.array([[1.0], [1e-6], [0.3]])
X = np.zeros((3, 1))
LEVELS = (0.01, 0.3, 0.5, 0.95)
Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""f [S, 3] -> y"""


def _hurdle(f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of zeros come again, as often as it takes; 0 with probability 0.3."""
    y = np.zeros(f.shape)
    while np.any(none := y == 0.0):
        y[none] = rng.poisson(np.exp(f[none]))
    return np.where(rng.uniform(size=f.shape) < 0.3, 0.0, y)


def _logit(f: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-f))


def _probit(f: np.ndarray) -> np.ndarray:
    """GPflow's, which keeps 0.001 from 0 and 1."""
    return 1e-3 + (1.0 - 2e-3) * norm.cdf(f)


def _skewed(f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return f + 0.4 * (rng.exponential(1.0 / 0.8, f.shape) - rng.exponential(1.0 / 0.2, f.shape))


def _tweedie(f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A Poisson number of gamma amounts: dispersion 0.7, power 1.4."""
    number = rng.poisson(np.exp(0.6 * f) / (0.7 * 0.6))
    amounts = rng.gamma(np.maximum(number, 1) * 1.5, 0.7 * 0.4 * np.exp(0.4 * f))
    return np.where(number > 0, amounts, 0.0)


CASES: dict[str, tuple[gl.Likelihood, Draw]] = {
    "gaussian": (gl.Gaussian(0.25), lambda f, rng: f + 0.5 * rng.normal(size=f.shape)),
    "student_t": (gl.StudentT(0.3, 3.0), lambda f, rng: f + 0.3 * rng.standard_t(3.0, f.shape)),
    "laplace": (own.Laplace(0.3), lambda f, rng: f + rng.laplace(0.0, 0.3, f.shape)),
    "quantile": (own.AsymmetricLaplace(0.8, 0.4), _skewed),
    "tobit": (own.CensoredNormal(0.6), lambda f, rng: f + 0.6 * rng.normal(size=f.shape)),
    "log_normal": (
        own.LogNormal(0.6), lambda f, rng: np.exp(f + 0.6 * rng.normal(size=f.shape)),
    ),
    "weibull": (own.Weibull(1.7), lambda f, rng: np.exp(f) * rng.weibull(1.7, f.shape)),
    "gamma": (gl.Gamma(shape=2.5), lambda f, rng: rng.gamma(2.5, np.exp(f))),
    "exponential": (gl.Exponential(), lambda f, rng: rng.exponential(np.exp(f))),
    "beta": (
        gl.Beta(scale=5.0), lambda f, rng: rng.beta(5.0 * _probit(f), 5.0 * _probit(-f)),
    ),
    "poisson": (gl.Poisson(binsize=3.0), lambda f, rng: rng.poisson(3.0 * np.exp(f))),
    "softplus": (
        gl.Poisson(invlink=gpflow.utilities.positive().forward),
        lambda f, rng: rng.poisson(np.log1p(np.exp(f))),
    ),
    "negative_binomial": (
        own.NegativeBinomial(2.5),
        lambda f, rng: rng.poisson(rng.gamma(2.5, np.exp(f) / 2.5)),
    ),
    "zero_inflated": (
        own.ZeroInflatedPoisson(0.3),
        lambda f, rng: rng.poisson(np.exp(f)) * (rng.uniform(size=f.shape) > 0.3),
    ),
    "zero_inflated_negative_binomial": (
        own.ZeroInflatedNegativeBinomial(0.2, 2.5),
        lambda f, rng: rng.poisson(rng.gamma(2.5, np.exp(f) / 2.5))
        * (rng.uniform(size=f.shape) > 0.2),
    ),
    "hurdle": (own.HurdlePoisson(0.3), _hurdle),
    "tweedie": (own.Tweedie(0.7, 1.4), _tweedie),
    "ordinal": (
        own.Ordinal([-1.0, 0.2, 1.5], 0.8),
        lambda f, rng: np.digitize(f + 0.8 * rng.normal(size=f.shape), [-1.0, 0.2, 1.5]),
    ),
    "bernoulli": (
        own.BernoulliLogit(), lambda f, rng: 1.0 * (rng.uniform(size=f.shape) < _logit(f)),
    ),
    "probit": (
        gl.Bernoulli(), lambda f, rng: 1.0 * (rng.uniform(size=f.shape) < _probit(f)),
    ),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_draws(name: str) -> None:
    """The share of draws of at most a quantile is its level, up to chance; below it, less."""
    likelihood, draw = CASES[name]
    rng = np.random.default_rng(0)
    f = MEAN[:, 0] + np.sqrt(VARIANCE[:, 0]) * rng.normal(size=(DRAWS, 3))
    y = draw(f, rng)
    for level in LEVELS:
        found = observation_quantiles(likelihood, X, MEAN, VARIANCE, level)[:, 0]
        error = 5.0 * np.sqrt(level * (1.0 - level) / DRAWS)
        assert np.all(np.mean(y <= found, axis=0) > level - error)
        assert np.all(np.mean(y < found, axis=0) < level + error)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", [gl.StudentT, own.LogNormal, gl.Beta])
def test_a_row_does_not_depend_on_the_others(kind: type) -> None:
    """Up to rounding, whose order differs: the others need more steps."""
    together = observation_quantiles(kind(), X, MEAN, VARIANCE, 0.99)
    for n in range(len(X)):
        one = slice(n, n + 1)
        alone = observation_quantiles(kind(), X[one], MEAN[one], VARIANCE[one], 0.99)
        assert_allclose(alone, together[one], rtol=1e-12)


@pytest.mark.exhaustive
def test_zeros_of_another_hurdle() -> None:
    """With a size of 1e9 it is the Poisson one."""
    other, usual = own.HurdleNegativeBinomial(0.3, 1e9), own.HurdlePoisson(0.3)
    for level in LEVELS:
        parts = X, MEAN, VARIANCE, level
        assert_allclose(observation_quantiles(other, *parts), observation_quantiles(usual, *parts))
    labels = observation_quantiles(own.BernoulliLogit(), X, MEAN, VARIANCE, 0.5)
    assert len(np.unique(labels)) == 2
    for trials in (own.Binomial(), own.BetaBinomial(4.0)):
        assert_allclose(observation_quantiles(trials, X, MEAN, VARIANCE, 0.5), labels)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", [1e-5, 1e-2, 10.0])
@pytest.mark.parametrize("kind", [own.CensoredNormal, own.LogNormal])
def test_noise_narrow_or_wide(scale: float, kind: type) -> None:
    """Closed forms, where f has a deviation of 0.001 to 1 and the noise any other."""
    for level in (1e-6, 0.05, 0.5, 1.0 - 1e-4):
        found = observation_quantiles(kind(scale), X, MEAN, VARIANCE, level)
        z = (np.log(found) if kind is own.LogNormal else found) - MEAN
        assert_allclose(z / np.sqrt(VARIANCE + scale**2), norm.ppf(level), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_large_counts() -> None:
    """Of a mean of 3e9 a Poisson count is nearly e^f."""
    found = observation_quantiles(gl.Poisson(), X, MEAN + 20.0, VARIANCE, 0.9)
    usual = np.exp(MEAN + 20.0 + norm.ppf(0.9) * np.sqrt(VARIANCE))
    assert_allclose(found, usual, rtol=1e-4)
    assert_allclose(found, np.round(found))
    with pytest.raises(NumericalError, match="out of the range of floats"):
        observation_quantiles(gl.Poisson(), X, MEAN + 80.0, VARIANCE, 0.9)
    with pytest.raises(NumericalError, match="out of the range of floats"):
        observation_quantiles(own.LogNormal(1e3), X, MEAN, VARIANCE, 0.9)


AT_HALF: dict[gl.Likelihood, Callable[[float], float]] = {
    gl.Gaussian(0.25): lambda p: norm.ppf(p, 0.5, 0.5),
    gl.StudentT(0.3, 3.0): lambda p: t.ppf(p, 3.0, 0.5, 0.3),
    own.Laplace(0.3): lambda p: laplace.ppf(p, 0.5, 0.3),
    # below 0.8 of the observations, so its tail below f has the rate (1 - 0.8) / scale
    own.AsymmetricLaplace(0.8, 0.4): lambda p: 0.5 + 2.0 * np.log(p / 0.8),
    own.CensoredNormal(0.6): lambda p: norm.ppf(p, 0.5, 0.6),
    own.LogNormal(0.6): lambda p: np.exp(norm.ppf(p, 0.5, 0.6)),
    own.Weibull(1.7): lambda p: weibull_min.ppf(p, 1.7, scale=np.exp(0.5)),
    gl.Gamma(shape=2.5): lambda p: gamma.ppf(p, 2.5, scale=np.exp(0.5)),
    gl.Exponential(): lambda p: gamma.ppf(p, 1.0, scale=np.exp(0.5)),
    gl.Beta(scale=5.0): lambda p: beta.ppf(p, 5.0 * _probit(0.5), 5.0 * _probit(-0.5)),
    gl.Poisson(binsize=30.0): lambda p: poisson.ppf(p, 30.0 * np.exp(0.5)),
    own.NegativeBinomial(2.5): lambda p: nbinom.ppf(p, 2.5, 2.5 / (2.5 + np.exp(0.5))),
    own.ZeroInflatedPoisson(0.3): lambda p: poisson.ppf((p - 0.3) / 0.7, np.exp(0.5)),
}
"""Quantiles of y where f is 0.5."""


@pytest.mark.exhaustive
def test_where_f_is_known_they_are_those_of_the_noise() -> None:
    half, none = np.full((1, 1), 0.5), np.zeros((1, 1))
    for likelihood, expected in AT_HALF.items():
        for level in (0.35, 0.6, 0.75):
            found = observation_quantiles(likelihood, X[:1], half, none, level)
            assert_allclose(found, expected(level), rtol=1e-6, err_msg=str(likelihood))


SHARP: dict[str, tuple[gl.Likelihood, Callable[[float, np.ndarray], np.ndarray]]] = {
    "poisson": (gl.Poisson(binsize=100.0), lambda y, f: poisson.cdf(y, 100.0 * np.exp(f))),
    "gamma": (
        gl.Gamma(invlink=gpflow.utilities.positive().forward, shape=5e3),
        lambda y, f: gamma.cdf(y, 5e3, scale=np.logaddexp(0.0, f)),
    ),
    "beta": (
        gl.Beta(scale=2e3), lambda y, f: beta.cdf(y, 2e3 * _probit(f), 2e3 * _probit(-f)),
    ),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHARP)
def test_sharp_beside_f(name: str) -> None:
    """A sum over 20,001 values of f: nodes must lie where the mean, which has a unit, is y."""
    likelihood, below = SHARP[name]
    f = 1.5 + 2.0 * np.linspace(-8.0, 8.0, 20_001)
    weights = norm.pdf(f, 1.5, 2.0) / np.sum(norm.pdf(f, 1.5, 2.0))
    for level in (0.01, 0.5, 0.97):
        moments = np.full((1, 1), 1.5), np.full((1, 1), 4.0)
        found = float(observation_quantiles(likelihood, X[:1], *moments, level)[0, 0])
        assert weights @ below(found, f) >= level - 1e-6
        least = found - 1.0 if name == "poisson" else found
        assert weights @ below(least, f) <= level + 1e-6


def test_a_latent_scale() -> None:
    mean, variance = np.array([[1.0, -0.5]]), np.array([[0.3, 0.4]])
    rng = np.random.default_rng(0)
    draws = mean + np.sqrt(variance) * rng.normal(size=(DRAWS, 2))
    y = draws[:, 0] + np.exp(draws[:, 1]) * rng.normal(size=DRAWS)
    likelihood = gl.HeteroskedasticTFPConditional(scale_transform=gd.probability.tfb.Exp())
    for level in LEVELS:
        found = observation_quantiles(likelihood, X[:1], mean, variance, level)
        assert found.shape == (1, 1)
        assert abs(np.mean(y <= found) - level) < 5.0 * np.sqrt(level * (1.0 - level) / DRAWS)


INPUTS = np.linspace(0.0, 10.0, 30)[:, None]
REAL = 100.0 + 20.0 * np.sin(INPUTS)
BOTH = np.hstack([REAL, 0.01 * REAL])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gaussian", "student_t", "heteroskedastic", "poisson"])
def test_built_models_have_them_in_units(name: str) -> None:
    Y = np.round(REAL) if name == "poisson" else REAL
    model = gd.build(INPUTS, Y, name, verbose=False)
    found = model.predict_quantiles(INPUTS[:4], (0.2, 0.5, 0.9))
    assert found.shape == (4, 1, 3) and np.all(np.diff(found) > 0.0)
    inside = model.model.likelihood, np.asarray(model.encoded(INPUTS[:4]))
    moments = map(np.asarray, model.model.predict_f(inside[1]))
    expected = observation_quantiles(*inside, *moments, 0.9)
    if model.outputs is not None:
        expected = expected * model.outputs.scale.numpy() + model.outputs.mean.numpy()
    assert_allclose(found[..., 2], expected, rtol=1e-6)


def test_several_outputs_have_their_own() -> None:
    both = gd.build(INPUTS, BOTH, "laplace", verbose=False).predict_quantiles(INPUTS[:4])
    for output in range(2):
        one = gd.build(INPUTS, BOTH[:, output], "laplace", verbose=False)
        assert_allclose(both[:, output], one.predict_quantiles(INPUTS[:4])[:, 0], rtol=1e-7)


@pytest.mark.exhaustive
def test_estimators_have_them() -> None:
    options = {"steps": 2, "fit_options": {"compile": False}}
    counts = DecoupledGPRegressor(likelihood="poisson", **options).fit(INPUTS, np.round(REAL[:, 0]))
    found = counts.predict_quantiles(INPUTS, (0.1, 0.9))
    assert found.shape == (30, 2)
    expected = counts.standardized_.predict_quantiles(INPUTS, (0.1, 0.9))[:, 0]
    assert_allclose(found, expected)
    several = DecoupledGPRegressor(likelihood="student_t", **options).fit(INPUTS, BOTH)
    assert several.predict_quantiles(INPUTS, (0.1, 0.9)).shape == (30, 2, 2)


def test_others_are_refused_by_name() -> None:
    labels = np.arange(30)[:, None] % 3
    model = gd.build(INPUTS, labels, "multiclass", verbose=False)
    with pytest.raises(DataError, match="quantiles of y are not known for a Categ"):
        model.predict_quantiles(INPUTS)


def test_another_noise_of_a_latent_scale_is_refused() -> None:
    likelihood = gl.HeteroskedasticTFPConditional(gd.probability.tfd.Laplace)
    with pytest.raises(DataError, match="not known for a Laplace of two latent functions"):
        observation_quantiles(likelihood, X, np.zeros((3, 2)), np.ones((3, 2)), 0.9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("levels", [0.5, (0.0, 0.5), (0.5, 1.0), (np.nan,), ((0.5,),)])
def test_bad_levels_are_refused(levels: object) -> None:
    model = gd.build(INPUTS, np.round(REAL), "poisson", verbose=False)
    with pytest.raises(DataError, match="pass numbers above 0 and below 1"):
        model.predict_quantiles(INPUTS, levels)


def test_f_that_is_not_gaussian_is_refused() -> None:
    model = gd.Standardized(
        lambda X, Y: gd.models.AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), gl.StudentT()
        ),
        (INPUTS[:5], REAL[:5]),
    )
    with pytest.raises(ModelError, match="predict_f_quantiles has those of f"):
        model.predict_quantiles(INPUTS)
