"""Gradients of the three routes against finite differences, in blocks, compiled; products and
blocks by themselves.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import base_variable
from gpflow_decoupled.expectations.fourier import ROUTES, expectation
from gpflow_decoupled.expectations.projections import Projections, map_blocks, product
from tests.expectations.fourier_problems import SITES, N, by_route, projections

SIZE = {"frequency_sum": 64, "spectral": 512, "lattice": 256}
WEIGHTS = tf.constant([1.0, -0.5, 2.0, 0.7, 1.3], tf.float64)


def function_of(name: str, site: str, y: Projections, route: str, **options):
    """The weighted sum over sites as a function of alpha, beta, noise, the parameters of the site,
    and theta if any.
    """
    frozen, case = y.scale, SITES[site]
    R = tf.reduce_max(base_variable(name).tail(y.theta))
    point = [y.alpha, y.beta, y.noise, *(tf.constant(part) for part in case.parameters)]
    if y.theta.shape[1]:
        point.append(y.theta)

    def value(alpha, beta, noise, *rest):
        theta = rest[-1] if y.theta.shape[1] else y.theta
        parameters = rest[: len(case.parameters)]
        moved = Projections(alpha, beta, theta, noise, frozen)
        made = case.make(*parameters)
        each = expectation(base_variable(name), moved, made, R, route, SIZE[route], **options)
        return tf.reduce_sum(WEIGHTS * each)

    return value, point


def gradient(value, point):
    with tf.GradientTape() as tape:
        tape.watch(point)
        total = value(*point)
    return tape.gradient(total, point)


def differences(value, point, rng, count=2, h=1e-5):
    """Slopes along some random directions in all arguments at once, one argument at a time:
    (autodiff's pairing, numeric).
    """
    compiled = tf.function(value, autograph=False)
    for place, part in enumerate(point):
        for _ in range(count):
            direction = tf.constant(rng.normal(size=part.shape))
            sides = []
            for sign in (1.0, -1.0):
                moved = list(point)
                moved[place] = part + sign * h * direction
                sides.append(float(compiled(*moved)))
            yield place, direction, (sides[0] - sides[1]) / (2 * h)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "name, site",
    [
        ("skew_normal", "logistic"),
        ("skew_normal", "laplace"),
        ("generalized_normal", "student_t"),
        ("logistic", "gaussian"),
    ],
    ids=str,
)
def test_gradients_are_finite_differences(name, site, route, rng):
    value, point = function_of(name, site, projections(name, 3, noise=True), route)
    ours = gradient(value, point)
    for place, direction, numeric in differences(value, point, rng):
        assert_allclose(tf.reduce_sum(ours[place] * direction), numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["laplace", "student_t"])
def test_gradients_in_the_shape_by_transforms(name, rng):
    value, point = function_of(name, "logistic", projections(name, 2, noise=True), "frequency_sum")
    ours = gradient(value, point)
    for place, direction, numeric in differences(value, point, rng, count=1):
        assert_allclose(tf.reduce_sum(ours[place] * direction), numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("route", ROUTES)
def test_blocks_give_the_same_numbers(route):
    """Two sites a block; with a block for all; traced with an unknown number of sites."""
    name = (
        "generalized_normal" if route == "lattice" else "skew_normal"
    )  # Owen's T takes long to trace
    y, site = projections(name, 3, noise=True), SITES["laplace"]
    one = 16 * 4 * (SIZE[route] + 1) * base_variable(name).work
    results = []
    for memory in (2.0**30, 2.0 * one):
        value, point = function_of(name, "laplace", y, route, memory=memory)
        results.append([value(*point), *gradient(value, point)])
    results.append(
        tf.function(lambda *point: [value(*point), *gradient(value, list(point))], autograph=False)(
            *point
        )
    )
    for other in results[1:]:
        for left, right in zip(results[0], other):
            assert_allclose(left, right, rtol=1e-11, atol=1e-12)
    free = [tf.TensorSpec([None, 3], tf.float64), *3 * [tf.TensorSpec([None], tf.float64)]]

    def unknown(alpha, beta, *parameters):
        free_y = Projections(alpha, beta, y.theta)
        return tf.reduce_sum(
            by_route(name, free_y, site.make(*parameters), route, SIZE[route], memory=2.0 * one)
        )

    traced = tf.function(unknown, input_signature=free, autograph=False)(
        y.alpha, y.beta, *(tf.constant(part) for part in site.parameters)
    )
    expected = tf.reduce_sum(
        by_route(name, y._replace(noise=None), site.site(), route, SIZE[route])
    )
    assert_allclose(traced, expected, rtol=1e-12)


def test_a_weight_of_zero_has_the_right_gradient():
    """By symmetry it vanishes for a symmetric base; for the lattice, where all mass is in one cell,
    it is zero too.
    """
    for route in ROUTES:
        y = projections("logistic", 3, noise=True)
        y = y._replace(alpha=y.alpha * tf.constant([1.0, 0.0, 1.0], tf.float64))
        value, point = function_of("logistic", "logistic", y, route)
        slope = gradient(value, point)[0]
        assert np.all(np.isfinite(slope)) and np.max(np.abs(slope[:, 1])) < 1e-9


@pytest.mark.parametrize("dtype", [tf.float64, tf.complex128])
def test_product_never_divides(dtype, rng):
    """With one factor of zero, with two, with none."""
    factors = rng.normal(size=(2, 4, 6))
    factors[0, 1, 2], factors[1, 0, 3], factors[1, 2, 3] = 0.0, 0.0, 0.0
    if dtype.is_complex:
        factors = factors * np.exp(1j * rng.normal(size=factors.shape))
    factors = tf.constant(factors)
    with tf.GradientTape() as tape:
        tape.watch(factors)
        total = tf.reduce_sum(tf.abs(product(factors)) ** 2) + tf.reduce_sum(
            tf.math.real(product(factors))
        )
    assert_allclose(product(factors), np.prod(factors.numpy(), axis=1))
    with tf.GradientTape() as other:
        other.watch(factors)
        expected = tf.reduce_prod(factors, axis=1)
        literal = tf.reduce_sum(tf.math.real(expected * tf.math.conj(expected))) + tf.reduce_sum(
            tf.math.real(expected)
        )
    assert_allclose(tape.gradient(total, factors), other.gradient(literal, factors), atol=1e-13)


@pytest.mark.parametrize("rows", [1, 3, 7, 20])
def test_map_blocks(rows, rng):
    x, z, c = (
        tf.constant(rng.normal(size=(7, 2))),
        tf.constant(rng.normal(size=7)),
        tf.constant(rng.normal(size=2)),
    )
    function = lambda x, z, c: tf.reduce_sum(tf.sin(x * c), axis=1) * z  # noqa: E731
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, z, c])
        ours, expected = map_blocks(function, [x, z], [c], rows), function(x, z, c)
        totals = tf.reduce_sum(ours**2), tf.reduce_sum(expected**2)
    assert_allclose(ours, expected, rtol=1e-15)
    for left, right in zip(*(tape.gradient(total, [x, z, c]) for total in totals)):
        assert_allclose(left, right, rtol=1e-13)


@pytest.mark.exhaustive
def test_compiled_by_xla():
    y, site = projections("logistic", 3), SITES["logistic"].site()
    assert len(y.beta) == N
    for route in ("frequency_sum", "spectral"):
        run = lambda alpha: by_route("logistic", y._replace(alpha=alpha), site, route, 64)  # noqa: E731, B023
        assert_allclose(
            tf.function(run, jit_compile=True, autograph=False)(y.alpha), run(y.alpha), rtol=1e-9
        )
