"""Choice of the route, widening, memory limits, and bad input."""

from __future__ import annotations

import sys
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import SkewNormalBase, StudentTBase, base_variable
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.expectations.fourier import (
    Integration,
    choose_route,
    expectation,
    spectral_density,
    widen,
)
from gpflow_decoupled.expectations.projections import Projections, Site
from gpflow_decoupled.likelihoods.bernoulli import logistic_site
from tests.expectations.fourier_problems import SITES, by_route, projections

SKEW, LOGISTIC = SkewNormalBase(), SITES["logistic"].site()
ANY = Site(smooth=lambda y: -tf.square(y))
Y = projections("skew_normal", 3)


def test_route_is_the_best_that_the_site_allows():
    assert choose_route(SKEW, LOGISTIC, "auto") == "frequency_sum"
    assert choose_route(SKEW, ANY, "auto") == "spectral"
    assert choose_route(SKEW, LOGISTIC, "lattice") == "lattice"
    default = expectation(SKEW, Y, LOGISTIC, 9.5, "auto", 64)
    assert_allclose(default, by_route("skew_normal", Y, LOGISTIC, "frequency_sum", 64), rtol=1e-9)


@pytest.mark.exhaustive
def test_a_lattice_that_misses_mass_is_widened():
    """By `expectation` itself, eagerly and compiled; heavy tails are widened as far as that
    goes.
    """
    assert widen(SKEW.cdf, Y, 2.0) == 8.0 and widen(SKEW.cdf, Y, 9.5) == 9.5
    exact = by_route("skew_normal", Y, LOGISTIC, "frequency_sum", 128)
    run = lambda alpha: expectation(  # noqa: E731
        SKEW, Y._replace(alpha=alpha), LOGISTIC, 2.0, "lattice", 1024
    )
    for wide in (run(Y.alpha), tf.function(run, autograph=False)(Y.alpha)):
        assert np.max(np.abs(wide - exact)) < 1e-4
    heavy = Y._replace(theta=tf.fill([3, 1], tf.constant(2.2, tf.float64)))
    assert widen(StudentTBase().cdf, heavy, 8.0) == 512.0


GROWING = Site(smooth=lambda y, c: -tf.exp(c * y), parameters=(tf.ones([5], tf.float64),))


@pytest.mark.parametrize("route", ["spectral", "lattice"])
def test_growth_beyond_the_grid_is_noticed(route):
    """E exp(y) for spreads of 0.3 and 1, where the grid is wide enough, and of 6 and 20, where its
    ends are rounding.
    """
    alpha = tf.constant([[0.3], [1.0], [6.0], [20.0], [0.1]], tf.float64)
    y = Projections(alpha, tf.zeros([5], tf.float64), tf.constant([[0.0]], tf.float64))
    with tf.GradientTape() as tape:
        tape.watch(alpha)
        found = expectation(SKEW, y._replace(alpha=alpha), GROWING, 8.5, route, 4096)
        total = tf.reduce_sum(found)
    assert np.all(np.isneginf(found.numpy()) == [False, False, True, True, False])
    narrow = [0, 1, 4]
    assert_allclose(found.numpy()[narrow], -np.exp(0.5 * alpha.numpy()[narrow, 0] ** 2), rtol=1e-5)
    assert np.all(np.isfinite(tape.gradient(total, alpha)))


def test_range_of_the_tail_is_wide_enough():
    for name in ("normal", "laplace", "logistic", "skew_normal", "generalized_normal"):
        base, y = base_variable(name), projections(name, 3)
        R = tf.reduce_max(base.tail(y.theta))
        assert widen(base.cdf, y, R) == R


LIMIT = 7.5 * 16.0 * 40 * 1025 * SKEW.work  # bytes: some seven of the 24 sites at once


def _status(key: str) -> int:
    """A size of this process, in bytes."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key)
    )
    return 1024 * int(line.split()[1])


def _peak_of_24_sites() -> int:
    """By how many bytes value and gradient of 24 sites of 40 dimensions raise the peak."""
    alpha = tf.constant(np.random.default_rng(0).normal(size=(24, 40)))
    theta, site = SKEW.start(40), logistic_site(tf.ones([24], tf.float64))

    def both(alpha: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            y = Projections(alpha, alpha[:, 0], theta)
            each = expectation(SKEW, y, site, 9.5, "spectral", 2048, LIMIT)
            total = tf.reduce_sum(each)
        return total, tape.gradient(total, alpha)

    compiled = tf.function(both, autograph=False).get_concrete_function(alpha)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _status("VmRSS")
    compiled(alpha)
    return _status("VmHWM") - before


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read in /proc/self")
def test_memory_stays_under_the_limit():
    # a new process: in this one the peak hides in memory that earlier tests have freed
    with get_context("spawn").Pool(1) as pool:
        try:
            peak = pool.apply(_peak_of_24_sites)
        except OSError:
            pytest.skip("the peak of a process cannot be reset here")
    assert 0.1 * LIMIT < peak < LIMIT + 40 * 2**20


def on_the_lattice(y: Projections, site: Site = ANY, size: int = 256, **options) -> tf.Tensor:
    return expectation(SKEW, y, site, 9.5, "lattice", size, **options)


GUMBEL = base_variable(tfp.distributions.Gumbel(0.0, 1.0))
BAD = {
    "1000 points": (lambda: Integration(points=1000).checked(), "points=1000.*power of two"),
    "no point": (lambda: Integration(points=0).checked(), "power of two"),
    "one frequency": (lambda: Integration(frequencies=1).checked(), "of at least 2"),
    "no transform of the site": (
        lambda: choose_route(SKEW, ANY, "frequency_sum"),
        "needs a transform of the site.*use route='spectral'",
    ),
    "no cdf": (lambda: choose_route(GUMBEL, ANY, "lattice"), "'Gumbel' has no cdf"),
    "too much for the memory": (
        lambda: on_the_lattice(Y, size=2**14, memory=2.0**16),
        (
            "D = 3 dimensions and 16385 points takes 10.5 MiB, more than the memory limit of 0.0625"
            " MiB: raise memory"
        ),
    ),
    "beta of two columns": (
        lambda: on_the_lattice(Y._replace(beta=Y.beta[:, None])),
        r"they must be \[N, D\] and \[N\]",
    ),
    "beta too short": (
        lambda: on_the_lattice(Y._replace(beta=Y.beta[1:])),
        "beta has shape .* 5 entries",
    ),
    "parameters too short": (
        lambda: on_the_lattice(Y, SITES["logistic"].make(tf.ones([2], tf.float64))),
        "parameter 0 of the site",
    ),
    "theta too short": (
        lambda: spectral_density(SKEW.characteristic, Y._replace(theta=Y.theta[1:]), 9.5),
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
        choose_route(SKEW, LOGISTIC, "fft")


def test_projections_default_to_their_own_spread():
    y = Projections(tf.constant([[3.0, 4.0]]), tf.zeros([1]), tf.zeros([2, 0]))
    assert_allclose(y.spread, [5.0])
    assert_allclose(y._replace(noise=tf.constant([11.0])).scale, [6.0])
    assert_allclose(y._replace(frozen_spread=tf.constant([2.0])).scale, [2.0])
