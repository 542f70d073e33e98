"""Values and derivatives of every site loss, against SciPy's densities, integrals and
differences.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.expectations.logit_integrals import piecewise_mean
from gpflow_decoupled.likelihoods.count_sites import LogLinearLoss
from tests.likelihoods.sites.site_cases import (
    BINARY,
    CASES,
    CONCAVE,
    COUNTS,
    REAL,
    SIGMA,
    H,
    built,
    points,
    reference,
)

each = pytest.mark.parametrize("name", CASES)
SECOND = {"d_hh": ("d_h", 0), "d_hs": ("d_h", 1), "d_ss": ("d_s", 1)}


def differences(function, h, sigma, axis, step=1e-5):
    """Central differences in h (axis 0) or sigma (axis 1), of what the function returns, by
    field.
    """
    dh, ds = (step, 0.0) if axis == 0 else (0.0, step)
    up, down = function(h + dh, sigma + ds), function(h - dh, sigma - ds)
    return {
        field: (getattr(up, field) - getattr(down, field)) / (2.0 * step) for field in up._fields
    }


@pytest.mark.costly(keep=4)
@each
def test_value_is_the_expectation(name):
    case, loss = CASES[name], built(name)
    exponential = name in ("Poisson", "Exponential", "Gamma")
    for scale in [1.0] if exponential else [0.0, 1.0, 10.0]:
        value = loss.value(tf.constant(H * max(scale, 1.0)), tf.constant(SIGMA * scale)).numpy()
        expected = [
            reference(case, y, h * max(scale, 1.0), s * scale)
            for y, h, s in zip(case.Y[:, 0], H[:, 0], SIGMA[:, 0])
        ]
        assert_allclose(value[:, 0], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.exhaustive
@each
def test_derivatives_are_those_of_the_value(name):
    loss = built(name)
    h, sigma = points((1.0, 1.0), (0.5, 1.1))
    found = loss.expand(h, sigma)
    assert_allclose(found.value, loss.value(h, sigma), rtol=1e-14)
    in_h, in_s = differences(loss.expand, h, sigma, 0), differences(loss.expand, h, sigma, 1)
    scale = 1e-8 * (1.0 + np.abs(found.d_ss))
    for field, expected in [("d_h", in_h["value"]), ("d_s", in_s["value"])]:
        assert np.all(np.abs(getattr(found, field) - expected) < scale), field
    for field, (first, axis) in SECOND.items():
        expected = (in_h, in_s)[axis][first]
        assert np.all(np.abs(getattr(found, field) - expected) < scale), field


@pytest.mark.exhaustive
@each
def test_derivatives_at_large_deviations(name):
    loss = built(name)
    if isinstance(loss, LogLinearLoss):
        pytest.skip("its values overflow there: below")
    h, sigma = points((6.0, 10.0), (1.0, 30.0))
    found = loss.expand(h, sigma)
    for axis, first in enumerate(["d_h", "d_s"]):
        numeric = differences(loss.expand, h, sigma, axis, step=1e-4)
        assert_allclose(getattr(found, first), numeric["value"], rtol=1e-6, atol=1e-7)
        assert_allclose((found.d_hh, found.d_ss)[axis], numeric[first], rtol=1e-6, atol=1e-6)


@pytest.mark.costly(keep=4)
@each
def test_even_in_sigma(name):
    loss = built(name)
    h, sigma = points((1.0, 1.0), (2.0, 2.0))
    plus, minus = loss.expand(h, sigma), loss.expand(h, -sigma)
    for field in plus._fields:
        sign = -1.0 if field in ("d_s", "d_hs") else 1.0
        assert_allclose(
            getattr(minus, field),
            sign * getattr(plus, field),
            rtol=1e-13,
            atol=1e-14,
            err_msg=field,
        )
    assert_allclose(loss.value(h, -sigma), loss.value(h, sigma), rtol=1e-14)


@pytest.mark.exhaustive
@each
def test_gradient_of_the_value_is_its_expansion(name):
    """The bound is differentiated through the value when hyperparameters are learned."""
    loss = built(name)
    h, sigma = points((1.0, 1.0), (2.0, 1.5))
    with tf.GradientTape() as tape:
        tape.watch([h, sigma])
        total = tf.reduce_sum(loss.value(h, sigma))
    found, expected = tape.gradient(total, [h, sigma]), loss.expand(h, sigma)
    assert_allclose(found[0], expected.d_h, rtol=1e-10, atol=1e-12)
    assert_allclose(found[1], expected.d_s, rtol=1e-10, atol=1e-12)


@pytest.mark.costly(keep=5)
@pytest.mark.parametrize(
    "name", ["Gaussian", "Gaussian by scale", "Gamma", "Laplace", "negative binomial", "Student-t"]
)
@pytest.mark.parametrize("outside", [False, True])
def test_gradient_in_the_parameters(name, outside):
    """Whether the loss was built under the tape or before."""
    case = CASES[name]
    likelihood = case.make()
    (parameter,) = likelihood.trainable_parameters
    loss = own.site_loss(likelihood, case.Y)

    def total():
        return tf.reduce_sum(
            (loss if outside else own.site_loss(likelihood, case.Y)).value(H, SIGMA)
        )

    with tf.GradientTape() as tape:
        value = total()
    (found,) = tape.gradient(value, [parameter.unconstrained_variable])
    variable, step = parameter.unconstrained_variable, 1e-5
    start = variable.numpy()
    variable.assign(start + step)
    up = total()
    variable.assign(start - step)
    assert_allclose(found, (up - total()) / (2.0 * step), rtol=1e-7)


@pytest.mark.exhaustive
@each
def test_gradient_lies_in_S_and_reaches_its_ends(name):
    """S is the closure of the range of the derivative at sigma = 0, and f_h stays inside for every
    sigma.
    """
    loss = built(name)
    eta = np.tile(np.linspace(-30.0, 30.0, 6001), (6, 1))
    ends = [np.asarray(end) for end in (loss.lower, loss.upper)]
    slope = loss.expand(tf.constant(eta), tf.constant(np.full_like(eta, 1e-7))).d_h.numpy()
    assert np.all(slope >= ends[0] - 1e-12) and np.all(slope <= ends[1] + 1e-12)
    for end, reached in zip(ends, (slope.min(axis=1), slope.max(axis=1))):
        finite = np.isfinite(end[:, 0])
        assert np.all(np.abs(reached - end[:, 0])[finite] < 2e-3 * (1.0 + np.abs(end[finite, 0])))
        assert np.all(np.abs(reached[~finite]) > 20.0)
    h, sigma = points((1.0, 1.0), (1.0, 1.5), (3.0, 1.0))
    wide = loss.expand(h, sigma).d_h.numpy()
    assert np.all((ends[0] <= wide) & (wide <= ends[1]))


@pytest.mark.exhaustive
@each
def test_curvature_is_the_least_that_makes_the_loss_convex(name):
    loss = built(name)
    eta = np.tile(np.linspace(-12.0, 12.0, 4801), (6, 1))
    bend = loss.expand(tf.constant(eta), tf.constant(np.full_like(eta, 1e-7))).d_hh.numpy()
    curvature = np.asarray(loss.curvature)[:, 0]
    assert np.all(bend >= -curvature[:, None] - 1e-12)
    if name in CONCAVE:
        assert np.all(curvature == 0.0)
    else:
        assert_allclose(bend.min(axis=1), -curvature, rtol=1e-4)


def test_curvature_of_student_t_is_attained():
    loss, residual = built("Student-t"), np.sqrt(3.0 * 4.0) * 0.6  # r^2 = 3 nu s^2
    at = loss.expand(tf.constant(REAL + residual), tf.zeros_like(loss.Y))
    assert_allclose(at.d_hh, -np.asarray(loss.curvature), rtol=1e-12)
    assert_allclose(loss.curvature, 5.0 / (8.0 * 4.0 * 0.36) * np.ones((6, 1)), rtol=1e-14)


@pytest.mark.parametrize("name", CONCAVE)
def test_concave_likelihoods_have_a_convex_loss(name):
    h, sigma = points((1.0, 1.0), (4.0, 1.5), (0.2, 0.3))
    found = built(name).expand(h, sigma)
    determinant = found.d_hh * found.d_ss - tf.square(found.d_hs)
    scale = found.d_hh * found.d_ss + tf.square(found.d_hs)
    assert np.all(found.d_hh >= 0) and np.all(found.d_ss >= 0)
    assert np.all(determinant >= -1e-9 * scale - 1e-16)
    assert np.all(found.d_s >= 0), "it must not fall with sigma"


@pytest.mark.costly(keep=3)
@each
def test_no_argument_gives_nan(name):
    loss = built(name)
    h = np.array([0.0, 1.0, -1.0, 1e3, -1e3, 1e8, -1e8, 1e150, -1e150, 40.0, -40.0])
    for size in [0.0, 1e-300, 1e-9, 1.0, -50.0, 1e4, 1e150]:
        here, sigma = tf.constant(np.tile(h, (6, 1))), tf.constant(np.full((6, len(h)), size))
        for field, array in loss.expand(here, sigma)._asdict().items():
            assert not np.any(np.isnan(array)), (size, field)
        with tf.GradientTape() as tape:
            tape.watch([here, sigma])
            value = loss.value(here, sigma)
        for gradient in tape.gradient(value, [here, sigma]):
            assert not np.any(np.isnan(gradient)), size


@pytest.mark.exhaustive
@each
def test_start_has_about_the_slope(name):
    loss = built(name)
    if name in ("Laplace", "hinge", "probit of GPflow"):
        pytest.skip("they start from the median, or from zero")
    wanted = loss.expand(*points((1.0, 1.0))).d_h
    found = loss.expand(loss.start(wanted), 1e-9 * tf.ones_like(wanted)).d_h
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.costly(keep=1)
@each
def test_in_a_graph_with_unknown_sizes(name):
    likelihood, case = CASES[name].make(), CASES[name]
    unknown = tf.TensorSpec([None, None], tf.float64)

    @tf.function(input_signature=[unknown] * 3, autograph=False)
    def run(Y, h, sigma):
        loss = own.site_loss(likelihood, Y)
        return (
            loss.value(h, sigma),
            *loss.expand(h, sigma),
            loss.lower,
            loss.upper,
            loss.curvature,
        )

    loss = built(name)
    expected = [loss.value(H, SIGMA), *loss.expand(tf.constant(H), tf.constant(SIGMA))]
    for left, right in zip(
        run(case.Y, H, SIGMA), [*expected, loss.lower, loss.upper, loss.curvature]
    ):
        assert_allclose(left, right, rtol=1e-12, atol=1e-13)


@pytest.mark.exhaustive
@each
def test_single_precision(name):
    expected = built(name).expand(tf.constant(H), tf.constant(SIGMA))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        loss = own.site_loss(CASES[name].make(), CASES[name].Y.astype(np.float32))
        found = loss.expand(tf.constant(H, tf.float32), tf.constant(SIGMA, tf.float32))
        assert loss.lower.dtype == loss.curvature.dtype == tf.float32
        for left, right in zip(found, expected):
            assert left.dtype == tf.float32
            assert_allclose(left, right, rtol=2e-4, atol=2e-4)


def test_negative_binomial_becomes_poisson():
    h, sigma = tf.constant(H), tf.constant(SIGMA)
    poisson = own.QuadratureLoss(  # by the same nodes
        gpflow.likelihoods.Poisson(quadrature=own.NegativeBinomial().quadrature),
        COUNTS,
        -COUNTS,
        np.inf,
    ).expand(h, sigma)
    errors = []
    for size in [1e4, 1e6]:
        found = own.site_loss(own.NegativeBinomial(size), COUNTS).expand(h, sigma)
        errors.append(
            max(
                np.max(np.abs(left - right) / (1 + np.abs(right)))
                for left, right in zip(found, poisson)
            )
        )
    assert errors[0] < 0.3 and errors[1] < 1.5e-2 * errors[0]


def test_student_t_becomes_gaussian():
    h, sigma = tf.constant(H), tf.constant(SIGMA)
    gaussian = own.site_loss(gpflow.likelihoods.Gaussian(0.36), REAL).expand(h, sigma)
    errors = []
    for df in [1e5, 1e7]:
        loss = own.site_loss(gpflow.likelihoods.StudentT(0.6, df), REAL)
        errors.append(
            max(
                np.max(np.abs(left - right)) for left, right in zip(loss.expand(h, sigma), gaussian)
            )
        )
        assert np.all(loss.curvature > 0) and np.max(loss.curvature) < 0.36
    assert errors[0] < 1e-2 and errors[1] < 1.5e-2 * errors[0]


@pytest.mark.parametrize("kind, gap", [("piecewise", 1.4215e-4), ("piecewise_convex", 3.0407e-4)])
def test_piecewise_bound_lies_above_within_its_gap(kind, gap):
    h, sigma = points((1.0, 1.0), (5.0, 10.0), (1.0, 40.0))
    exact = own.site_loss(own.BernoulliLogit(), BINARY)
    bound = own.site_loss(own.BernoulliLogit(kind), BINARY)
    excess = bound.value(h, sigma) - exact.value(h, sigma)
    assert np.all(excess >= 0) and np.all(excess <= gap)
    pieces = piecewise_mean((1.0 - 2.0 * BINARY) * h, sigma, convex=kind == "piecewise_convex")
    assert_allclose(bound.value(h, sigma), pieces, rtol=1e-13)
    found, numeric = bound.expand(h, sigma), differences(bound.expand, h, sigma, 0)
    assert_allclose(found.d_h, numeric["value"], rtol=1e-7, atol=1e-8)
    assert_allclose(found.d_hh, numeric["d_h"], rtol=1e-7, atol=1e-8)
    assert_allclose(found.d_hs, numeric["d_s"], rtol=1e-7, atol=1e-8)
    numeric = differences(bound.expand, h, sigma, 1)
    assert_allclose(found.d_s, numeric["value"], rtol=1e-7, atol=1e-8)
    assert_allclose(found.d_ss, numeric["d_s"], rtol=1e-7, atol=1e-8)
