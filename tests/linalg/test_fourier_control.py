"""Choice of the route, doubling, widening, memory limits, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import SkewNormalBase, StudentTBase, base_variable
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.linalg.fourier import (
    Variables,
    choose_route,
    expectation,
    frequencies,
    missed_mass,
    settle,
    widen,
)
from gpflow_decoupled.linalg.frequency_sum import frequency_sum_expectation
from gpflow_decoupled.linalg.lattice import lattice_density, lattice_expectation
from gpflow_decoupled.linalg.projections import Projections, Site
from gpflow_decoupled.linalg.spectral import spectral_density, spectral_expectation
from tests.linalg.fourier_problems import SITES, by_route, projections, variables

SKEW, LOGISTIC = SkewNormalBase(), SITES["logistic"].site()
ANY = Site(smooth=lambda y: -tf.square(y))
Y = projections("skew_normal", 3)


def test_route_is_the_best_that_base_and_site_allow():
    full, no_transform = variables(SKEW), Variables(None, SKEW.cdf)
    assert choose_route(full, LOGISTIC) == "frequency_sum"
    assert choose_route(full, ANY) == "spectral"
    assert choose_route(no_transform, LOGISTIC) == "lattice"
    assert choose_route(full, LOGISTIC, "lattice") == "lattice"
    default = expectation(full, Y, LOGISTIC, 9.5)
    assert_allclose(default, by_route("skew_normal", Y, LOGISTIC, "frequency_sum", 64), rtol=1e-9)
    assert_allclose(expectation(no_transform, Y, LOGISTIC, 9.5), default, atol=1e-3)


def test_frequencies_grow_with_the_range():
    assert [frequencies(R) for R in (6.5, 10.0, 15.0, 54.0)] == [64, 64, 96, 352]
    y = projections("student_t", 3)
    R = float(tf.reduce_max(base_variable("student_t").tail(y.theta)))
    value, fine = (by_route("student_t", y, LOGISTIC, "frequency_sum", T) for T in (frequencies(R), 1024))
    assert_allclose(value, fine, atol=1e-9)


def test_points_are_doubled_until_the_sum_rests():
    def evaluate(K: int) -> tf.Tensor:
        return tf.reduce_sum(lattice_expectation(SKEW.cdf, Y, LOGISTIC, 9.5, K))

    value, size, change = settle(evaluate, 64, tolerance=1e-4)
    exact = tf.reduce_sum(by_route("skew_normal", Y, LOGISTIC, "frequency_sum", 128))
    assert 64 < size < 2**14 and change < 1e-4
    assert_allclose(value, exact, atol=1e-4)
    with pytest.raises(NumericalError, match="still moves by"):
        settle(evaluate, 16, tolerance=1e-12, largest=64)


def test_a_lattice_that_misses_mass_is_noticed_and_widened():
    assert float(tf.reduce_max(missed_mass(SKEW.cdf, Y, 2.0))) > 1e-2
    R = widen(SKEW.cdf, Y, 2.0)
    assert 6.0 < R <= 16.0 and float(tf.reduce_max(missed_mass(SKEW.cdf, Y, R))) < 1e-7
    exact = by_route("skew_normal", Y, LOGISTIC, "frequency_sum", 128)
    narrow, wide = (lattice_expectation(SKEW.cdf, Y, LOGISTIC, reach, 4096) for reach in (2.0, R))
    assert np.max(np.abs(wide - exact)) < 1e-4 < 1e-3 < np.max(np.abs(narrow - exact))
    heavy = StudentTBase()
    y = Y._replace(theta=tf.fill([3, 1], tf.constant(2.2, tf.float64)))
    with pytest.raises(DataError, match="heavy tails"):
        widen(heavy.cdf, y, 8.0, doublings=4)


def test_range_of_the_tail_is_wide_enough():
    for name in ("normal", "laplace", "logistic", "skew_normal", "generalized_normal"):
        base, y = base_variable(name), projections(name, 3)
        assert float(tf.reduce_max(missed_mass(base.cdf, y, tf.reduce_max(base.tail(y.theta))))) < 1e-7


def test_memory_of_a_step_stays_bounded():
    """The largest tensor of the compiled value and gradient, for 4 and for 64 sites under the same limit."""
    sizes = []
    for repeats in (1, 16):
        y = Y._replace(alpha=tf.tile(Y.alpha, [repeats, 1]), beta=tf.tile(Y.beta, [repeats]))
        site = SITES["logistic"].make(tf.tile(tf.constant(SITES["logistic"].parameters[0]), [repeats]))
        rows = []

        def counting(omega: tf.Tensor, theta: tf.Tensor, rows: list = rows) -> tf.Tensor:
            rows.append(int(tf.size(omega)))
            return SKEW.characteristic(omega, theta)

        with tf.GradientTape() as tape:
            tape.watch(y.alpha)
            total = tf.reduce_sum(spectral_expectation(counting, y, site, 9.5, 256, memory=5 * 16 * 3 * 129))
        tape.gradient(total, y.alpha)
        sizes.append(max(rows))
    assert sizes[0] == sizes[1] == 5 * 3 * 129


BAD = {
    "K of 1000 on the lattice": (lambda: lattice_expectation(SKEW.cdf, Y, ANY, 9.5, 1000), "K=1000.*power of two"),
    "K of 1000 for the density": (lambda: lattice_density(SKEW.cdf, Y, 9.5, 1000), "power of two"),
    "K of 0": (lambda: spectral_density(SKEW.characteristic, Y, 9.5, 0), "power of two"),
    "K of 64.0": (lambda: spectral_expectation(SKEW.characteristic, Y, ANY, 9.5, 64.0), "power of two"),
    "one frequency": (lambda: frequency_sum_expectation(SKEW.characteristic, Y, LOGISTIC, 9.5, 1), "two frequencies"),
    "no transform of the site": (lambda: frequency_sum_expectation(SKEW.characteristic, Y, ANY, 9.5), "use the route"),
    "the route of no transform": (
        lambda: choose_route(variables(SKEW), ANY, "frequency_sum"),
        "needs .*transform of the site.*use route='spectral'",
    ),
    "the route of no cdf": (
        lambda: expectation(variables(base_variable("variance_gamma")), Y, LOGISTIC, 9.5, "lattice"),
        "a cdf of the base.*'frequency_sum'",
    ),
    "nothing known of the base": (
        lambda: choose_route(Variables(None, None), LOGISTIC),
        "give the base one of the two",
    ),
    "too much for the memory": (
        lambda: lattice_expectation(SKEW.cdf, Y, ANY, 9.5, 2**14, memory=2.0**16),
        "takes 1 MiB at once.*raise memory",
    ),
    "beta of two columns": (
        lambda: lattice_density(SKEW.cdf, Y._replace(beta=Y.beta[:, None]), 9.5),
        r"they must be \[N, D\] and \[N\]",
    ),
    "beta too short": (
        lambda: lattice_density(SKEW.cdf, Y._replace(beta=Y.beta[1:]), 9.5),
        "beta has shape .* 5 entries",
    ),
    "parameters too short": (
        lambda: spectral_expectation(SKEW.characteristic, Y, SITES["logistic"].make(tf.ones([2], tf.float64)), 9.5),
        "parameter 0 of the site",
    ),
    "theta too short": (
        lambda: lattice_density(SKEW.cdf, Y._replace(theta=Y.theta[1:]), 9.5),
        r"theta must be \[3, P\]",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(DataError, match=message):
        call()


def test_unknown_route():
    with pytest.raises(UnknownOptionError, match="'fft' is not known.*'lattice'"):
        choose_route(variables(SKEW), LOGISTIC, "fft")


def test_projections_default_to_their_own_spread():
    y = Projections(tf.constant([[3.0, 4.0]]), tf.zeros([1]), tf.zeros([2, 0]))
    assert_allclose(y.spread, [5.0])
    assert_allclose(y._replace(noise=tf.constant([11.0])).scale, [6.0])
    assert_allclose(y._replace(frozen_spread=tf.constant([2.0])).scale, [2.0])
