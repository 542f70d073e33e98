"""Expectations of log(1 + e^eta) at every standard deviation, against adaptive quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import expit

from gpflow_decoupled.expectations import logit_integrals as li
from tests.reference import lcl_sites as ref

SIGMAS = [0.0, 0.3, 0.999, 1.0, 1.5, 5.0, 10.0, 50.0, 300.0]


def moments(h, sigma):
    """At h [M] and one sigma."""
    return li.softplus_moments(tf.constant(h), tf.fill([len(h)], tf.constant(sigma, tf.float64)))


def means(sigma: float) -> np.ndarray:
    """Some h, far ones among them."""
    return np.array([0.0, 0.7, -3.0, 10.0, -40.0, 4.0 * sigma + 1.0, -9.5 * sigma - 31.0, 400.0])


def dense(h: float, sigma: float) -> list[float]:
    """The value and five derivatives, by a sum over a grid."""
    z = np.linspace(-13.0, 13.0, 200_001)
    weights = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) * 26.0 / 200_000
    eta = h + sigma * z
    s, bend = expit(eta), expit(eta) * expit(-eta)
    values = [(np.logaddexp(0.0, eta), 0), (s, 0), (s, 1), (bend, 0), (bend, 1), (bend, 2)]
    return [float(np.sum(weights * z**power * value)) for value, power in values]


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_moments_against_integrals(sigma):
    h = means(sigma)
    found = np.array(moments(h, sigma))
    expected = np.array([dense(*pair) for pair in zip(h, [sigma] * len(h))]).T
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    exact = [ref.integral(ref.bernoulli_logit(0.0), mean, sigma) for mean in h[:4]]
    assert_allclose(found[0, :4], exact, rtol=1e-12, atol=1e-12)
    assert_allclose(
        li.softplus_mean(tf.constant(h), sigma + tf.zeros_like(h)), found[0], rtol=1e-15
    )


@pytest.mark.parametrize("sigma", SIGMAS[1:])
def test_identities_of_price(sigma):
    """Derivatives in sigma are higher ones in h; they hold for the integral, not for quadrature."""
    found, step = moments(means(sigma), sigma), 1e-4 * max(1.0, sigma)
    assert_allclose(found.d_s, sigma * found.d_hh, rtol=1e-9, atol=1e-12)
    up, down = (moments(means(sigma) + shift, sigma) for shift in (step, -step))
    assert_allclose(found.d_hs, sigma * (up.d_hh - down.d_hh) / (2 * step), rtol=1e-5, atol=1e-9)
    assert_allclose(
        found.d_ss, found.d_hh + sigma * (up.d_hs - down.d_hs) / (2 * step), rtol=1e-5, atol=1e-9
    )


def test_no_step_where_the_rules_change():
    h = np.linspace(-8.0, 8.0, 33)
    below, above = moments(h, li.CROSSOVER * (1.0 - 1e-15)), moments(h, li.CROSSOVER)
    for field, left, right in zip(below._fields, below, above):
        assert_allclose(left, right, rtol=1e-12, atol=2e-13, err_msg=field)


def test_each_element_by_its_own_rule_and_any_shape():
    h, sigma = (
        np.random.default_rng(0).normal(size=(2, 3, 4, 5))
        * np.array([3.0, 4.0])[:, None, None, None]
    )
    found = li.softplus_moments(tf.constant(h), tf.constant(sigma))
    assert np.any(np.abs(sigma) < 1.0) and np.any(sigma > 1.0) and np.any(sigma < -1.0)
    for index in [(0, 0, 0), (2, 3, 4), (1, 2, 3)]:
        alone = moments([h[index]], sigma[index])
        for left, right in zip(found, alone):
            assert_allclose(left[index], right[0], rtol=1e-12, atol=1e-14)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", [None, 50])
def test_blocks_change_nothing(sizes, monkeypatch):
    h, sigma = tf.constant(np.linspace(-20.0, 20.0, 50)), tf.constant(np.geomspace(0.1, 30.0, 50))
    expected = [*li.softplus_moments(h, sigma), *li.softplus_moments(h[:3], sigma[:3])]
    monkeypatch.setattr(li, "_BLOCK", 7)
    blocks = tf.function(
        li.softplus_moments,
        input_signature=[tf.TensorSpec([sizes], tf.float64)] * 2,
        autograph=False,
    )
    few = li.softplus_moments if sizes else blocks
    for left, right in zip([*blocks(h, sigma), *few(h[:3], sigma[:3])], expected):
        assert_allclose(left, right, rtol=1e-13, atol=1e-15)
    assert [len(part) for part in few(h[:0], sigma[:0])] == [0] * 6
    assert_allclose(li.softplus_mean(h, sigma), expected[0], rtol=1e-13)


@pytest.mark.exhaustive
def test_no_more_elements_at_once_than_a_block(monkeypatch):
    """So that memory does not grow with the data."""
    rule, seen = li._fourier_moments, []

    def spy(h, sigma):
        seen.append(len(h))
        return rule(h, sigma)

    monkeypatch.setattr(li, "_BLOCK", 7)
    monkeypatch.setattr(li, "_fourier_moments", spy)
    moments(np.linspace(-20.0, 20.0, 50), 3.0)
    assert seen == [7] * 8


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype, tolerance", [(tf.float64, 1e-11), (tf.float32, 2e-5)])
def test_graphs_with_and_without_sizes(dtype, tolerance):
    h, sigma = np.linspace(-30.0, 30.0, 41), np.geomspace(0.01, 60.0, 41)
    expected = li.softplus_moments(tf.constant(h), tf.constant(sigma))
    for shape in [None], [41]:
        traced = tf.function(
            li.softplus_moments, input_signature=[tf.TensorSpec(shape, dtype)] * 2, autograph=False
        )
        for field, left, right in zip(
            expected._fields, traced(tf.cast(h, dtype), tf.cast(sigma, dtype)), expected
        ):
            assert left.dtype == dtype
            assert_allclose(left, right, rtol=tolerance, atol=tolerance, err_msg=field)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("traced", [False, True])
def test_gradient_of_the_mean(traced):
    h, sigma = tf.constant(np.linspace(-5.0, 5.0, 9)), tf.constant(np.geomspace(0.1, 20.0, 9))

    def gradients():
        with tf.GradientTape() as outer:
            outer.watch([h, sigma])
            with tf.GradientTape() as tape:
                tape.watch([h, sigma])
                value = tf.reduce_sum(li.softplus_mean(h, sigma))
            first = tape.gradient(value, [h, sigma])
            total = tf.reduce_sum(first[0] * 2.0 + first[1])
        return [*first, *outer.gradient(total, [h, sigma])]

    found = tf.function(gradients, autograph=False)() if traced else gradients()
    exact = li.softplus_moments(h, sigma)
    expected = [exact.d_h, exact.d_s, 2.0 * exact.d_hh + exact.d_hs, 2.0 * exact.d_hs + exact.d_ss]
    for left, right in zip(found, expected):
        assert_allclose(left, right, rtol=1e-8, atol=1e-10)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0, 7.0, 12.0, 20.0, 50.0, 300.0])
def test_log_predictive_density_in_the_tail(sigma):
    h = np.array(
        [
            5.0,
            0.0,
            -5.0,
            -60.0,
            -3.8 * sigma,
            -5.0 * sigma,
            -20.0 * sigma,
            -0.49 * sigma**2,
            -0.51 * sigma**2,
        ]
    )
    found = li.log_sigmoid_mean(tf.constant(h), sigma + tf.zeros_like(h))
    expected = [ref.log_predictive(ref.bernoulli_logit(1.0), mean, sigma) for mean in h]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_log_predictive_density_in_single_precision():
    h, sigma = np.meshgrid(np.linspace(-200.0, 20.0, 23), [0.1, 2.0, 9.0, 30.0])
    exact = li.log_sigmoid_mean(tf.constant(h), tf.constant(sigma))
    found = li.log_sigmoid_mean(tf.constant(h, tf.float32), tf.constant(sigma, tf.float32))
    assert_allclose(found, exact, rtol=2e-3, atol=1e-4)
