"""Special functions and tables of functions: values and gradients, also where formulas change over
or cancel.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import special

from gpflow_decoupled.special import (
    hermite_lookup,
    owens_t,
    with_slopes,
    x_over_sinh,
    x_over_sinh_and_rest,
)


def gradients(function, *arguments):
    arguments = [tf.constant(argument, tf.float64) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = function(*arguments)
    return value, tape.gradient(value, arguments)


def numeric(function, place, *arguments, h=1e-6):
    sides = []
    for sign in (1.0, -1.0):
        moved = [np.asarray(argument, float) for argument in arguments]
        moved[place] = moved[place] + sign * h
        sides.append(function(*(tf.constant(part) for part in moved)))
    return (sides[0] - sides[1]) / (2 * h)


def test_owens_t_is_accurate_where_tfp_is_not(rng):
    h, a = rng.uniform(-12, 12, 5000), 3.0 * rng.normal(size=5000)
    h[:4], a[:4] = [0.0, 5.5, -6.0, 1e8], [2.0, 0.0, 1e6, 0.3]
    assert_allclose(owens_t(tf.constant(h), tf.constant(a)), special.owens_t(h, a), atol=3e-16)
    ours = gradients(owens_t, h[4:50], a[4:50])[1]
    for place in (0, 1):
        assert_allclose(ours[place], numeric(owens_t, place, h[4:50], a[4:50]), atol=1e-9)


def test_x_over_sinh():
    x = np.array([-800.0, -3.0, -0.1, -1e-3, 0.0, 0.0999, 0.1001, 2.0, 50.0])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        expected = np.where(x == 0, 1.0, x / np.sinh(x))
    value, (slope,) = gradients(x_over_sinh, x)
    assert_allclose(value, expected, rtol=1e-14)
    assert_allclose(slope, numeric(x_over_sinh, 0, x), atol=1e-9)
    rest = x_over_sinh_and_rest(tf.constant(x))[1]
    assert_allclose(rest[3:5], 1 / 6, rtol=1e-6)
    assert_allclose(
        np.delete(rest, 4), np.delete((1.0 - expected) / np.maximum(x**2, 1e-300), 4), rtol=1e-9
    )


def test_with_slopes_replaces_the_gradient():
    value, (slope,) = gradients(
        lambda x: with_slopes(tf.stop_gradient(tf.exp(x)), (x, 3.0 * x)), [0.0, 1.0]
    )
    assert_allclose(value, np.exp([0.0, 1.0]))
    assert_allclose(slope, [0.0, 3.0])


def test_hermite_lookup(rng):
    """A table for each of two functions; at the nodes, beyond the ends, and derivatives in x and in
    the table.
    """
    step, grid = 0.05, 0.05 * np.arange(81)
    derivatives = [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)]
    rates = np.array([1.0, 0.5])[:, None]
    tables = [tf.constant(rates**i * f(rates * grid)) for i, f in enumerate(derivatives)]
    x = tf.constant(rng.uniform(0, 4, size=(7, 2, 5)))
    reshaped = [table[:, None] for table in tables]
    with tf.GradientTape() as tape:
        tape.watch([x, reshaped[0]])
        value = hermite_lookup(reshaped, step, x)
    expected = np.cos(rates * x.numpy())
    assert_allclose(value, expected, atol=2e-10)
    slope, weights = tape.gradient(value, [x, reshaped[0]])
    assert_allclose(slope, -rates * np.sin(rates * x.numpy()), atol=2e-8)
    assert_allclose(
        tf.reduce_sum(weights), 70.0, rtol=1e-12
    )  # the weights of one lookup sum to one
    ends = hermite_lookup(
        [table[0] for table in tables], step, tf.constant([-1.0, 0.0, 4.0, 9.0], tf.float64)
    )
    assert_allclose(ends, np.cos([0.0, 0.0, 4.0, 4.0]), rtol=1e-14)
