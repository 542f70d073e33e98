"""Expected log densities of likelihoods narrower than q(f), against fine panels."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import special, stats
from scipy.special import log_expit, logsumexp, ndtr

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.likelihoods.counts import log_choices
from gpflow_decoupled.likelihoods.log_densities import (
    expected_log_densities,
    observation_log_density,
)
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

# likelihood, log density in NumPy, a row of Y, and places at which the density bends
KINDS: dict[str, tuple[Callable[[], gl.Likelihood], Callable, list[float], list[float]]] = {
    "negative binomial": (
        lambda: own.NegativeBinomial(100.0),
        lambda f: stats.nbinom.logpmf(1000, 100.0, 0.5) + 1100 * np.log(2.0)
        + 1000 * log_expit(f - np.log(100.0)) + 100 * log_expit(np.log(100.0) - f),
        [1000.0], [np.log(1000.0), np.log(100.0)],
    ),
    "Student-t": (
        lambda: gl.StudentT(scale=0.05), lambda f: stats.t.logpdf(0.4, 3.0, f, 0.05),
        [0.4], [0.4],
    ),
    "Student-t, an offset": (
        lambda: own.RowLikelihood(gl.StudentT(0.05), ["offset"]),
        lambda f: stats.t.logpdf(0.4, 3.0, f + 0.2, 0.05), [0.4, 0.2], [0.2],
    ),
    "labels in trials": (
        lambda: own.RowLikelihood(own.BernoulliLogit(), ["trials"]),
        lambda f: stats.binom.logpmf(30, 100, 0.5)
        + 100 * np.log(2.0) - 30 * np.logaddexp(0, -f) - 70 * np.logaddexp(0, f),
        [30.0, 100.0], [0.0],
    ),
    "Beta": (
        lambda: gl.Beta(scale=200.0),
        lambda f: stats.beta.logpdf(
            0.3, *(200.0 * (1e-3 + 0.998 * ndtr(side * f)) for side in (1.0, -1.0))
        ),
        [0.3], [-3.0, -0.5, 3.0],
    ),
    "Poisson, softplus": (
        lambda: gl.Poisson(binsize=0.3, invlink=tf.nn.softplus),
        lambda f: 3 * np.log(0.3 * _softplus(f)) - 0.3 * _softplus(f) - np.log(6.0), [3.0], [0.0],
    ),
    "Bernoulli": (
        gl.Bernoulli, lambda f: np.log(1e-3 + 0.998 * ndtr(f)), [1.0], [-3.0, 0.0, 3.0],
    ),
    "Bernoulli, sigmoid": (
        lambda: gl.Bernoulli(invlink=tf.sigmoid), lambda f: -np.logaddexp(0.0, f), [0.0], [0.0],
    ),
    "Ordinal, between": (
        lambda: own.Ordinal([-1.0, 1.0], sigma=0.6),
        lambda f: stats.norm.logcdf((1.0 - np.abs(f)) / 0.6)
        + np.log1p(-np.exp(stats.norm.logcdf((-1.0 - np.abs(f)) / 0.6)
                           - stats.norm.logcdf((1.0 - np.abs(f)) / 0.6))),
        [1.0], [-1.0, 1.0],
    ),
}  # fmt: skip
MOMENTS = np.array([(0.3, 0.5), (0.0, 1.0), (6.0, 1.0), (0.5, 25.0), (-1.0, 100.0), (1.0, 400.0)])


def _softplus(f: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, f)


def _exact(density: Callable, mean: float, variance: float, places: list[float]) -> np.ndarray:
    """E l, and its slopes in mean and variance, as E z l and E (z^2 - 1) l."""
    s, graded = np.sqrt(variance), 1e-3 * np.sinh(np.linspace(-12.0, 12.0, 101))
    ends = (np.add.outer(places, graded).ravel() - mean) / s
    ends = np.unique(np.clip(np.concatenate([ends, np.linspace(-9.0, 9.0, 200)]), -9.0, 9.0))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(ends)[:, None]
    z = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * nodes).ravel()
    mass = (half * weights).ravel() * stats.norm.pdf(z) * density(mean + s * z)
    return np.array(
        [np.sum(mass), np.sum(z * mass) / s, np.sum((z**2 - 1.0) * mass) / (2.0 * variance)]
    )


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("name", KINDS)
def test_expectations_and_slopes_under_narrow_and_wide_gaussians(name: str) -> None:
    make, density, row, places = KINDS[name]
    likelihood = make()
    mean, variance = (tf.constant(part) for part in np.split(MOMENTS, 2, axis=1))
    X, Y = np.zeros((len(MOMENTS), 1)), np.tile(row, (len(MOMENTS), 1))
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        values = expected_log_densities(likelihood, X, mean, variance, Y)
    slopes = tape.gradient(values, [mean, variance])
    found = np.stack([values, *(part.numpy()[:, 0] for part in slopes)], axis=1)
    with np.errstate(all="ignore"):
        exact = np.array([_exact(density, *pair, places) for pair in MOMENTS])
    assert_allclose(found, exact, rtol=3e-8, atol=3e-8)


@pytest.mark.exhaustive
def test_a_graph_and_a_row_alone_give_the_same() -> None:
    """Rows of several outputs; the wide ones have finer rules than the others."""
    likelihood = gl.Bernoulli()
    mean, variance = np.split(MOMENTS.reshape(3, 2, 2), 2, axis=2)
    mean, variance = tf.constant(mean[..., 0]), tf.constant(variance[..., 0])
    X, Y = np.zeros((3, 1)), np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])

    def slopes(m, v, y):
        with tf.GradientTape() as tape:
            tape.watch([m, v])
            values = expected_log_densities(likelihood, X[: y.shape[0]], m, v, y)
        return values, *tape.gradient(values, [m, v])

    whole = slopes(mean, variance, Y)
    for one, other in zip(whole, tf.function(slopes, autograph=False)(mean, variance, Y)):
        assert_allclose(other, one, rtol=1e-11)
    for n in range(3):
        alone = slopes(mean[n : n + 1], variance[n : n + 1], Y[n : n + 1])
        for one, other in zip(whole, alone):
            assert_allclose(other[0], one[n], rtol=1e-11)


class Gumbel(gl.ScalarLikelihood):
    """A user's log density, f - y - e^(f - y), with closed-form expectations."""

    def _scalar_log_prob(self, X, F, Y):
        return F - Y - tf.exp(F - Y)

    def _conditional_mean(self, X, F):
        return F

    def _conditional_variance(self, X, F):
        return tf.ones_like(F)


def test_a_density_that_falls_like_an_exponential() -> None:
    """The mass of e^f at variance 400 lies 20 deviations from the mean; at variance 0 in it."""
    mean, variance = np.array([[0.3], [0.0], [1.0], [-1.0]]), np.array([[0.0], [4.0], [100], [400]])
    Y = np.full((4, 1), 0.5)
    mean, variance = tf.constant(mean), tf.constant(variance)
    with tf.GradientTape() as tape:
        tape.watch(variance)
        found = expected_log_densities(Gumbel(), 0.0 * Y, mean, variance, Y)
    growth = np.exp(mean - Y + variance / 2.0)
    assert_allclose(found, (mean - Y - growth)[:, 0], rtol=1e-9)
    assert_allclose(tape.gradient(found, variance), -growth / 2.0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_labels_and_axes_of_any_kind(dtype: type) -> None:
    """Extra axes in front, and single precision."""
    mean = np.linspace(-2.0, 2.0, 12).reshape(2, 3, 2).astype(dtype)
    variance = np.full_like(mean, 50.0)
    X, Y = np.zeros((2, 3, 1), dtype), (mean > 0.3).astype(dtype)
    found = expected_log_densities(own.BernoulliProbit(), X, mean, variance, Y)
    assert found.shape == (2, 3) and found.dtype == dtype
    for place in np.ndindex(2, 3):
        exact = 0.0
        for m, y in zip(mean[place].astype(float), Y[place]):
            sign = 2.0 * y - 1.0
            exact += _exact(lambda f: stats.norm.logcdf(sign * f), m, 50.0, [0.0])[0]  # noqa: B023
        assert_allclose(found[place], exact, rtol=1e-9 if dtype is np.float64 else 2e-5)


@pytest.mark.costly(keep=1)
@pytest.mark.filterwarnings("ignore:Y.* is constant", "ignore:A row of X is typically")
@pytest.mark.parametrize("name", ["Student-t", "Beta", "Bernoulli"])
def test_the_bound_is_below_the_evidence(name: str) -> None:
    """Two rows so far apart that the evidence is a product; with 20 nodes bounds were above."""
    make, density, row, _ = KINDS[name]
    X, Y = np.array([[0.0], [100.0]]), np.tile(row, (2, 1))
    kernel = gpflow.kernels.Matern32(variance=100.0, lengthscales=0.1)
    model = CVIGP((X, Y), kernel, make())
    ConjugateComputation().run(model)
    z = np.linspace(-10.0, 10.0, 200_001)
    weights = np.exp(-0.5 * np.square(z)) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    evidence = 2.0 * logsumexp(density(10.0 * z), b=weights)
    assert evidence - 2.0 < float(model.elbo()) < evidence


@pytest.mark.parametrize("rule", [expected_log_densities, observation_log_density])
def test_large_counts_in_single_precision(rule: Callable) -> None:
    """The terms of a density are 1e7 each, and their sum is eight nats."""
    X, Y = np.zeros((2, 1), np.float32), np.array([[1e6], [1_001_000]], np.float32)
    mean, variance = np.log(Y), np.full_like(Y, 1e-6)
    single = rule(gl.Poisson(), X, mean, variance, Y)
    double = rule(gl.Poisson(), *(part.astype(float) for part in (X, mean, variance, Y)))
    assert single.dtype == np.float32
    assert_allclose(single, double, rtol=1e-5)
    trials = tf.constant([2e6, 3e6], tf.float32)
    chosen = log_choices(trials, tf.constant([1e6, 1e6], tf.float32))
    assert_allclose(
        chosen,
        special.gammaln([2e6 + 1, 3e6 + 1])
        - special.gammaln(1e6 + 1.0)
        - special.gammaln([1e6 + 1, 2e6 + 1]),
        rtol=1e-6,
    )
