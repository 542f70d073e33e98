"""`SkewNormal` and `GeneralizedNormal` as TFP distributions, against scipy, TFP's own and finite
differences.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy import stats

from gpflow_decoupled.distributions import GeneralizedNormal, SkewNormal

LOC, SCALE, THETA = (
    np.array([0.3, -1.0, 0.0]),
    np.array([2.0, 0.7, 1.0]),
    np.array([-3.0, 0.5, 20.0]),
)
X = np.linspace(-5.0, 5.0, 11)[:, None]


def skew_normal(dtype=tf.float64) -> SkewNormal:
    return SkewNormal(*(tf.constant(part, dtype) for part in (LOC, SCALE, THETA)))


def test_skew_normal_is_scipys():
    ours, theirs = skew_normal(), stats.skewnorm(THETA, LOC, SCALE)
    assert ours.batch_shape == [3] and ours.event_shape == []
    assert_allclose(ours.log_prob(X), theirs.logpdf(X), rtol=1e-10)
    assert_allclose(ours.cdf(X), theirs.cdf(X), atol=1e-14)
    assert_allclose(ours.survival_function(X), theirs.sf(X), atol=1e-14)
    for name, theirs_too in (
        ("mean", theirs.mean()),
        ("variance", theirs.var()),
        ("stddev", theirs.std()),
    ):
        assert_allclose(getattr(ours, name)(), theirs_too, rtol=1e-12)
    assert_allclose(ours.skewness(), theirs.stats("s"), rtol=1e-10)
    # scipy's quadrature is checked against (A4), to its own accuracy
    assert_allclose(ours.entropy(), theirs.entropy(), rtol=1e-8)


def test_skew_normal_samples():
    """Means and variances of 1e5 draws within five standard errors."""
    draws, ours = skew_normal().sample(100_000, seed=0).numpy(), skew_normal()
    error = ours.stddev().numpy() / np.sqrt(1e5)
    assert np.all(np.abs(draws.mean(0) - ours.mean()) < 5 * error)
    assert_allclose(draws.var(0), ours.variance(), rtol=5 * np.sqrt(3 / 1e5))
    assert_allclose(skew_normal().sample(2, seed=[0, 5]), skew_normal().sample(2, seed=[0, 5]))


def test_skew_normal_transform():
    ours, omega = skew_normal(), np.array([-2.0, 0.4, 3.0])[:, None]
    grid = np.linspace(-30, 30, 200_001)
    density = stats.skewnorm(THETA[:, None], LOC[:, None], SCALE[:, None]).pdf(grid)
    expected = np.einsum("og,bg->ob", np.exp(1j * omega * grid), density) * (grid[1] - grid[0])
    assert_allclose(ours.characteristic(tf.constant(omega)), expected, atol=1e-12)


@pytest.mark.parametrize("make", [SkewNormal, GeneralizedNormal], ids=lambda kind: kind.__name__)
def test_gradients_of_cdf_and_entropy_in_all_parameters(make):
    x = tf.constant([[-0.4], [0.3], [1.1]], tf.float64)  # 0.3 is the location of the second
    weights = tf.constant([[1.0], [-0.6], [0.3]], tf.float64)

    def value(loc, scale, shape):
        distribution = make(loc, scale, shape)
        return tf.reduce_sum(weights * distribution.cdf(x)) + tf.reduce_sum(distribution.entropy())

    point = [tf.constant(part, tf.float64) for part in ([0.0, 0.3], [2.0, 0.5], [1.7, 1.2])]
    with tf.GradientTape() as tape:
        tape.watch(point)
        total = value(*point)
    h = 1e-6
    for i, ours in enumerate(tape.gradient(total, point)):
        for j in range(2):
            step = [tf.one_hot(j, 2, dtype=tf.float64) * h * (k == i) for k in range(3)]
            up, down = (value(*(p + sign * s for p, s in zip(point, step))) for sign in (1.0, -1.0))
            assert_allclose(ours[j], (up - down) / (2 * h), atol=3e-8)


def test_generalized_normal_is_tfps_otherwise():
    arguments = [tf.constant(part, tf.float64) for part in (LOC, SCALE, [1.0, 2.0, 3.5])]
    ours, theirs = GeneralizedNormal(*arguments), tfp.distributions.GeneralizedNormal(*arguments)
    assert_allclose(ours.cdf(X), theirs.cdf(X), atol=1e-14)
    assert_allclose(ours.survival_function(X), theirs.survival_function(X), atol=1e-14)
    assert_allclose(ours.log_prob(X), theirs.log_prob(X), rtol=1e-13)
    assert_allclose(
        ours.entropy(), stats.gennorm([1.0, 2.0, 3.5], LOC, SCALE).entropy(), rtol=1e-12
    )
    wave = ours.characteristic(tf.constant([0.3, 1.0, -2.0], tf.float64)).numpy()
    assert_allclose(wave[1], np.exp(-1j - 0.25 * 0.49), atol=1e-9)  # power 2 is N(loc, scale^2 / 2)
    assert_allclose(wave[0], np.exp(0.09j) / (1 + 0.36), atol=1e-9)  # power 1 is Laplace's


def test_single_precision_and_tracing():
    single, double = skew_normal(tf.float32), skew_normal()
    x = tf.constant(X, tf.float32)
    assert tf.function(single.log_prob, autograph=False)(x).dtype == tf.float32
    assert_allclose(single.log_prob(x), double.log_prob(X), rtol=1e-4)
    assert_allclose(tf.function(single.cdf, autograph=False)(x), double.cdf(X), atol=1e-6)
    assert single.sample(2, seed=0).dtype == tf.float32
