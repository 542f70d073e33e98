"""Log densities of rates exp(f) and of everything else, at any f."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import gammaln, logsumexp

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.likelihoods import RowLikelihood
from gpflow_decoupled.likelihoods.log_densities import observation_log_density
from gpflow_decoupled.models import CVIGP
from tests.reference.observed import log_predictive

DENSITIES = {
    "Poisson": (
        lambda: gpflow.likelihoods.Poisson(binsize=0.5),
        lambda f, row: row[0] * (f + np.log(0.5)) - 0.5 * np.exp(f) - gammaln(row[0] + 1.0),
        [0.0, 1.0, 40.0],
    ),
    "Exponential": (
        gpflow.likelihoods.Exponential,
        lambda f, row: -f - row[0] * np.exp(-f),
        [1e-3, 2.0],
    ),
    "Gamma": (
        lambda: gpflow.likelihoods.Gamma(shape=2.5),
        lambda f, row: stats.gamma.logpdf(row[0] * np.exp(-f), 2.5) - f,
        [0.2, 30.0],
    ),
}
MOMENTS = [(0.3, 0.5), (-1.0, 20.0), (3.0, 1e-6), (2.0, 300.0)]


softplus = tf.nn.softplus
KINDS: dict[str, tuple[Callable[[], gl.Likelihood], list[list[float]]]] = {
    # likelihoods, and rows of Y: one by one as wide as q(f), and much narrower
    "negative binomial": (lambda: own.NegativeBinomial(100.0), [[0.0], [1000.0]]),
    "Student-t": (lambda: gl.StudentT(scale=0.05), [[0.0], [6.0]]),
    "labels in trials": (
        lambda: own.RowLikelihood(own.BernoulliLogit(), ["trials"]), [[30.0, 100.0]],
    ),
    "offsets": (lambda: own.RowLikelihood(gl.StudentT(0.05), ["offset"]), [[0.3, 0.5]]),
    "Beta": (lambda: gl.Beta(scale=200.0), [[0.01], [0.5]]),
    "Poisson, softplus": (lambda: gl.Poisson(invlink=softplus), [[0.0], [3.0], [1000.0]]),
    "Exponential, softplus": (lambda: gl.Exponential(invlink=softplus), [[0.1], [30.0]]),
    "Gamma, softplus": (lambda: gl.Gamma(invlink=softplus, shape=2.5), [[0.1], [50.0]]),
    "Bernoulli, another link": (lambda: gl.Bernoulli(invlink=_cauchit), [[1.0]]),
    "switched": (
        lambda: gl.SwitchedLikelihood([gl.StudentT(0.05), gl.Beta(scale=200.0)]),
        [[0.3, 0.0], [0.3, 1.0]],
    ),
}  # fmt: skip
WIDTHS = np.array([(0.3, 0.5), (-1.0, 30.0), (3.0, 1e-6), (6.0, 1.0), (2.0, 300.0)])


def _cauchit(f: tf.Tensor) -> tf.Tensor:
    return 0.5 + tf.atan(f) / np.pi


def _panels(mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes f and weights of N(mean, variance), dense about every place at which KINDS bend."""
    spread, around = np.sqrt(variance), np.sinh(np.linspace(-25.0, 25.0, 150))
    edges = [mean + spread * np.linspace(-37.0, 37.0, 150)]
    for place in (-3.0, -1.0, -0.2, 0.0, 0.3, 1.0, 3.0, 6.0, 6.9, np.log(2.0), np.log(3.0 / 7.0)):
        edges.append(np.clip(place + 1e-4 * around, mean - 37.0 * spread, mean + 37.0 * spread))
    edges = np.unique(np.concatenate(edges))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    f = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
    density = np.exp(-0.5 * np.square((f - mean) / spread)) / np.sqrt(2.0 * np.pi * variance)
    return f[:, None], (half * weights).ravel() * density


@pytest.mark.costly(keep=5)
@pytest.mark.parametrize("name", KINDS)
def test_densities_under_narrow_and_wide_gaussians(name: str) -> None:
    """Against panels in logarithms; and narrow ones alone, which take Gauss-Hermite nodes."""
    make, rows = KINDS[name]
    likelihood = make()
    for row in rows:
        exact = []
        for m, v in WIDTHS:
            f, weights = _panels(m, v)
            with np.errstate(all="ignore"):
                logs = likelihood.log_prob(np.zeros_like(f), f, np.tile(row, (len(f), 1))).numpy()
            kept = weights > 0.0
            exact.append(logsumexp(logs[kept], b=weights[kept]))
        for some in ([0, 1, 2, 3, 4], [2]):
            X, Y = np.zeros((len(some), 1)), np.tile(row, (len(some), 1))
            found = observation_log_density(likelihood, X, *np.split(WIDTHS[some], 2, axis=1), Y)
            assert_allclose(found, np.array(exact)[some], rtol=1e-8, atol=1e-8, err_msg=f"{row}")


def test_labels_of_a_beta_are_not_clipped() -> None:
    """GPflow's are, at 1e-6."""
    X, f, y = np.zeros((1, 1)), np.zeros((1, 1)), np.array([[1e-8]])
    found = observation_log_density(gl.Beta(), X, f, 1e-12 + f, y)
    assert_allclose(found, stats.beta.logpdf(1e-8, 0.5, 0.5), rtol=1e-6)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", DENSITIES)
def test_densities_of_rates(name: str) -> None:
    make, density, values = DENSITIES[name]
    for y in values:
        for mean, variance in MOMENTS:
            row = np.array([[y]])
            arguments = np.zeros((1, 1)), np.array([[mean]]), np.array([[variance]]), row
            found = float(observation_log_density(make(), *arguments)[0])
            with np.errstate(all="ignore"):
                expected = log_predictive(lambda f: density(f, row[0]), mean, variance**0.5)  # noqa: B023
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), (y, mean, variance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rates_beyond_the_range_of_floats(dtype: type) -> None:
    """GPflow's are not a number: the logarithm of exp(f) is taken where that is 0 or infinite."""
    f, v = np.array([[-1e5], [-1e5], [900.0]], dtype), np.full((3, 1), 2.0, dtype)
    y, X = np.array([[0.0], [2.0], [1.0]], dtype), np.zeros((3, 1), dtype)
    found = np.asarray(observation_log_density(gpflow.likelihoods.Poisson(), X, f, v, y))
    expected = [0.0, -2e5 + 4.0 - np.log(2.0)]
    digits = 1e-10 if dtype is np.float64 else 0.02  # the variance is below round-off of f
    np.testing.assert_allclose(found[:2], expected, rtol=digits, atol=digits)
    # f near log(448), where 900 - f and exp(f) balance
    np.testing.assert_allclose(found[2], -200207.0, rtol=1e-5)
    weights = RowLikelihood(gpflow.likelihoods.Poisson(), ["weight"])
    rows = np.concatenate([y, np.ones_like(y)], axis=1)
    again = weights.predict_log_density(X, f, v, rows)
    np.testing.assert_allclose(again, found, rtol=1e-6, atol=1e-6)


def test_a_model_far_below_its_counts() -> None:
    X, Y = np.linspace(0.0, 1.0, 5)[:, None], np.array([[0.0], [0.0], [0.0], [0.0], [1.0]])
    mean = gpflow.functions.Constant(-1e4)
    model = CVIGP(
        (X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson(), mean_function=mean
    )
    density = model.predict_log_density((X, Y))
    np.testing.assert_allclose(density, [0.0, 0.0, 0.0, 0.0, -1e4 + 0.5], atol=1e-6)
