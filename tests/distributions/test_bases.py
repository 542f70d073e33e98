"""Every base against quadrature of its density: norm, moments, entropy, transform, cdf, samples,
derivatives, precision.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import BASES, NormalMixtureBase, base_variable
from gpflow_decoupled.errors import DataError, UnknownOptionError
from tests.reference import affine_independent as reference

MIXTURE = (0.2, -0.4, -1.0, 1.3, 0.1, -0.5)
SHAPES = {
    "normal": [()],
    "laplace": [()],
    "logistic": [()],
    "student_t": [(3.5,), (30.0,)],
    "skew_normal": [(-4.0,), (1.5,)],
    "generalized_normal": [(1.5,), (3.7,)],
    "normal_mixture": [MIXTURE],
}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]
TOLERANCE = {"generalized_normal": 2e-9, "student_t": 1e-8}
OMEGA = np.array([0.0, -1.0, 2.5, 9.0])


def tensor(shape: tuple[float, ...], rows: int = 1) -> tf.Tensor:
    return tf.constant(np.tile(np.reshape(shape, [1, len(shape)]), [rows, 1]), tf.float64)


def base_of(name: str):
    return NormalMixtureBase(2) if name == "normal_mixture" else base_variable(name)


@pytest.fixture(params=CASES, ids=str)
def case(request):
    """A base, its theta [1, P], the standardised density by scipy."""
    name, shape = request.param
    return base_of(name), tensor(shape), _density(name, shape)


@cache
def _density(name: str, shape: tuple[float, ...]) -> reference.Density:
    return reference.standardised(reference.DENSITIES[name](shape))


def test_every_base_is_tested():
    assert set(SHAPES) == set(BASES)


@pytest.mark.exhaustive
def test_density_is_the_standardised_one(case):
    base, theta, density = case
    v = np.array([-3.1, -0.7, 0.2, 1.9])[:, None]
    assert_allclose(base.log_prob(v, theta)[:, 0], density.log_pdf(v[:, 0]), rtol=1e-7, atol=1e-8)


@pytest.mark.exhaustive
def test_entropy(case):
    base, theta, density = case
    assert_allclose(base.entropy(theta), [reference.entropy(density)], atol=1e-8)


@pytest.mark.exhaustive
def test_characteristic_function(case):
    base, theta, density = case
    omega = OMEGA if base.name != "student_t" else OMEGA[:3]
    expected = [reference.transform(density, value) for value in omega]
    ours = base.characteristic(tf.constant(omega[:, None]), theta)
    assert ours.dtype == (tf.float64 if base.symmetric else tf.complex128)
    assert_allclose(
        tf.cast(ours, tf.complex128)[:, 0], expected, atol=TOLERANCE.get(base.name, 1e-9)
    )


@pytest.mark.exhaustive
def test_cdf_and_its_slope(case):
    base, theta, density = case
    v = tf.constant([[-2.0], [0.0], [0.6], [1e8]], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(v)
        ours = base.cdf(v, theta)
    middle = reference.mass(density, -2.0, 0.6)
    assert_allclose(ours[2, 0] - ours[0, 0], middle, atol=1e-9)
    assert_allclose(ours[3], 1.0, atol=1e-15)
    assert_allclose(
        tape.gradient(ours, v)[:3, 0], np.exp(density.log_pdf(v[:3, 0].numpy())), rtol=1e-7
    )


@pytest.mark.exhaustive
def test_tail_leaves_little_outside(case):
    base, theta, density = case
    R = float(base.tail(theta)[0])
    assert 4.0 < R < 1500.0 and 1.0 - reference.mass(density, -R, R) < 5e-8


@pytest.mark.exhaustive
def test_samples_have_the_distribution(case):
    """Kolmogorov-Smirnov distance of 4000 draws to the density's cdf: above 0.036 once in 1e4 runs
    for a right one.
    """
    base, theta, density = case
    v = np.sort(base.sample(4000, tf.concat([theta, theta], 0), seed=3).numpy()[:, 1])
    grid = np.linspace(-12, 12, 24001)
    cdf = np.cumsum(np.exp(density.log_pdf(grid))) * (grid[1] - grid[0])
    ecdf = np.arange(4000) / 4000
    assert np.max(np.abs(np.interp(v, grid, cdf) - ecdf)) < 0.036


def slopes(function, x: tf.Tensor) -> tuple[tf.Tensor, np.ndarray]:
    """The gradient of the sum of a function of x [..., P], by autodiff and by central
    differences.
    """
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(function(x))
    numeric, h = np.zeros(x.shape), 1e-5
    for place in np.ndindex(*x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        numeric[place] = (tf.reduce_sum(function(x + step)) - tf.reduce_sum(function(x - step))) / (
            2 * h
        )
    return tape.gradient(value, x), numeric


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name, shape", [(name, shape) for name, shape in CASES if shape], ids=str)
def test_derivatives_in_theta(name, shape):
    base, theta = base_of(name), tensor(shape)
    v, omega = (
        tf.constant([[-1.3], [0.0], [0.4], [2.0]], tf.float64),
        tf.constant([[0.2], [-1.7], [5.0]], tf.float64),
    )

    def waves(theta: tf.Tensor) -> tf.Tensor:
        phi = base.characteristic(omega, theta)
        return tf.math.real(phi) * [[1.0], [0.3], [2.0]] + tf.math.imag(
            tf.cast(phi, tf.complex128)
        ) * [
            [0.2],
            [1.0],
            [-1.0],
        ]

    weights = tf.constant([[1.0], [-0.5], [2.0], [0.7]], tf.float64)
    functions = [
        base.entropy,
        lambda theta: weights * base.log_prob(v + 0.1, theta),
        lambda theta: weights * base.cdf(v, theta),
        waves,
    ]
    for function in functions:
        ours, numeric = slopes(function, theta)
        assert_allclose(ours, numeric, rtol=1e-6, atol=2e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name, shape", CASES, ids=str)
def test_derivative_in_omega(name, shape):
    base, theta = base_of(name), tensor(shape)
    omega = tf.constant([[0.0], [0.21], [-1.7], [5.0], [12.0]], tf.float64)
    for part in (tf.math.real, lambda phi: tf.math.imag(tf.cast(phi, tf.complex128))):
        ours, numeric = slopes(lambda omega: part(base.characteristic(omega, theta)), omega)  # noqa: B023
        assert_allclose(ours, numeric, rtol=1e-6, atol=2e-7)


def test_limits():
    v, omega = tf.linspace(-4.0, 4.0, 9)[:, None], tf.linspace(0.0, 8.0, 9)[:, None]
    v, omega = tf.cast(v, tf.float64), tf.cast(omega, tf.float64)
    pairs = [
        ("normal", (), "skew_normal", (0.0,)),
        ("normal", (), "generalized_normal", (2.0,)),
        ("normal", (), "normal_mixture", (0.0, 0.0, 0.3, 0.3, 0.4, 0.4)),
        ("laplace", (), "generalized_normal", (1.0,)),
    ]
    for one, shape, other, other_shape in pairs:
        left, right = (base_of(name) for name in (one, other))
        for method, x in (("log_prob", v), ("characteristic", omega)):
            a, b = (
                getattr(base, method)(x, tensor(s))
                for base, s in ((left, shape), (right, other_shape))
            )
            assert_allclose(tf.math.real(a), tf.math.real(b), atol=1e-9, rtol=1e-9)
        assert_allclose(left.entropy(tensor(shape)), right.entropy(tensor(other_shape)), atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("name", SHAPES)
def test_no_unconstrained_number_leaves_the_range(name, dtype):
    """Steps of an optimizer may be long; what a base has a table for, or a variance, ends
    somewhere.
    """
    base = base_of(name)
    free = tf.constant(
        np.tile([[-200.0], [-20.0], [0.3], [20.0], [200.0]], [1, base.num_shapes]), dtype
    )
    theta = base.bijector(dtype).forward(free)
    assert base.check(theta).dtype == dtype
    if name != "normal_mixture":
        assert np.all(np.isfinite(base.entropy(theta)))


def test_exponents():
    """The t up to which E exp(t abs(v)) is finite."""
    same = [("laplace", ()), ("generalized_normal", (1.0,))]
    assert_allclose(
        [base_of(name).exponent(tensor(shape))[0] for name, shape in same], np.sqrt(2.0)
    )
    assert_allclose(base_of("logistic").exponent(tensor(())), np.pi / np.sqrt(3.0))
    for name, shape in (
        ("normal", ()),
        ("skew_normal", (3.0,)),
        ("generalized_normal", (1.1,)),
        ("normal_mixture", MIXTURE),
    ):
        assert np.isposinf(base_of(name).exponent(tensor(shape)).numpy()).all()
    for name, shape in (("student_t", (30.0,)), ("generalized_normal", (0.95,))):
        assert base_of(name).exponent(tensor(shape)).numpy() == 0.0


def test_half_normal_loses_log_two_of_entropy():
    """Raw, as theta grows: H goes to that of the normal less log 2."""
    raw = base_of("skew_normal").raw_entropy(tensor((1e6,)))
    assert_allclose(raw, 0.5 * np.log(2 * np.pi * np.e) - np.log(2.0), atol=1e-6)


def test_skew_normal_mirrors():
    base, v = base_of("skew_normal"), tf.constant([[-1.2], [0.4]], tf.float64)
    assert_allclose(
        base.log_prob(v, tensor((2.0,))), base.log_prob(-v, tensor((-2.0,))), rtol=1e-14
    )
    assert_allclose(
        base.characteristic(v, tensor((2.0,))), base.characteristic(-v, tensor((-2.0,))), rtol=1e-14
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", SHAPES)
def test_theta_broadcasts_elementwise_and_traces(name):
    base, shapes = base_of(name), SHAPES[name][-1]
    theta = tensor(shapes, 3)
    omega = tf.reshape(tf.linspace(tf.constant(-2.0, tf.float64), 3.0, 24), [2, 3, 4])
    phi = tf.function(base.characteristic, autograph=False)(omega, theta[:, None, :])
    assert phi.shape == [2, 3, 4]
    assert_allclose(
        phi[1, 2, 3], base.characteristic(omega[1:, 2, 3:], theta[:1])[0, 0], rtol=1e-12
    )
    assert base.start(4).shape == [4, base.num_shapes]
    assert base.check(base.start(4)) is not None
    assert base.entropy(theta).shape == base.tail(theta).shape == [3]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHAPES)
def test_single_precision(name):
    base, theta = base_of(name), tensor(SHAPES[name][-1], 2)
    x = tf.constant([[-1.1, 0.3]], tf.float64)
    single, x_single = tf.cast(theta, tf.float32), tf.cast(x, tf.float32)
    for method in ("log_prob", "characteristic", "cdf"):
        ours = getattr(base, method)(x_single, single)
        assert ours.dtype in (tf.float32, tf.complex64)
        assert_allclose(ours, getattr(base, method)(x, theta), rtol=2e-5, atol=2e-5)
    assert_allclose(base.entropy(single), base.entropy(theta), rtol=1e-5)
    assert base.sample(3, single, seed=0).dtype == tf.float32


@pytest.mark.exhaustive
def test_a_table_equals_quadrature():
    law = tfp.distributions.SinhArcsinh(np.float64(0.4), 1.0, skewness=0.35, tailweight=0.85)
    base, theta = base_variable(law), tf.zeros([1, 0], tf.float64)
    grid = np.linspace(-40, 40, 400_001)
    q = law.prob(grid).numpy() * (grid[1] - grid[0])
    mean = np.sum(q * grid)
    sd = np.sqrt(np.sum(q * (grid - mean) ** 2))
    omega = tf.constant([0.3, -1.0, 2.0, 7.0], tf.float64)[:, None]
    expected = np.exp(1j * omega.numpy() * (grid - mean) / sd) @ q
    assert_allclose(base.characteristic(omega, theta)[:, 0], expected, atol=3e-8)
    assert_allclose(base.raw_moments(theta), [[mean], [sd]], rtol=1e-9)
    ours, numeric = slopes(lambda omega: tf.math.imag(base.characteristic(omega, theta)), omega)
    assert_allclose(ours, numeric, rtol=1e-5, atol=1e-7)
    with pytest.raises(DataError, match="has no cdf: use the route"):
        base.cdf(tf.zeros([1], tf.float64), theta)


def test_a_table_of_a_known_base():
    base = base_variable(tfp.distributions.Logistic(3.0, 0.5))
    exact = base_variable("logistic")
    theta, omega = base.start(2), tf.constant([[0.2, -3.0], [1.0, 6.0]], tf.float64)
    for method in ("log_prob", "characteristic"):
        ours = tf.math.real(getattr(base, method)(omega, theta))
        assert_allclose(ours, getattr(exact, method)(omega, theta), atol=3e-6)
    assert_allclose(base.entropy(theta), exact.entropy(theta), atol=1e-6)
    assert_allclose(base.tail(theta), exact.tail(theta), rtol=0.5)
    draws = base.sample(4000, theta, seed=0)
    assert draws.shape == [4000, 2] and draws.dtype == tf.float64
    assert_allclose(np.var(draws, axis=0), 1.0, atol=0.15)
    traced = tf.function(lambda: base_variable(base.distribution).entropy(theta), autograph=False)
    assert_allclose(traced(), base.entropy(theta))


BAD = {
    "two degrees of freedom": (
        lambda: base_of("student_t").entropy(tensor((2.0,))),
        "more than 2, for example 3",
    ),
    "a Cauchy": (
        lambda: base_variable(tfp.distributions.Cauchy(0.0, 1.0)),
        "no finite variance",
    ),
    "a Student-t of TFP": (
        lambda: base_variable(tfp.distributions.StudentT(1.5, 0.0, 1.0)),
        "StudentT with df=3",
    ),
    "a large power": (
        lambda: base_of("generalized_normal").entropy(tensor((9.0,))),
        "between 0.9 and 6",
    ),
    "theta with two columns": (
        lambda: base_of("skew_normal").entropy(tensor((1.0, 2.0))),
        r"needs \[D, 1\]",
    ),
    "theta of NaN": (lambda: base_of("skew_normal").entropy(tensor((np.nan,))), "not finite"),
    "a vector": (
        lambda: base_variable(tfp.distributions.Normal([0.0, 1.0], 1.0)),
        "must be one scalar distribution",
    ),
    "a density with a jump": (
        lambda: base_variable(tfp.distributions.Uniform(np.float64(0.0), 1.0)),
        "smoother",
    ),
    "no component": (lambda: NormalMixtureBase(0), "at least one"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(DataError, match=message):
        call()


def test_unknown_name():
    with pytest.raises(UnknownOptionError, match="skew_normal"):
        base_variable("skewed")
