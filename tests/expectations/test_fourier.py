"""The three routes against quadrature of the product density, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import stats

from gpflow_decoupled.distributions import SkewNormalBase
from gpflow_decoupled.expectations.fourier import (
    ROUTES,
    cell_masses,
    convolve,
    spectral_density,
)
from gpflow_decoupled.expectations.projections import Projections, Site
from gpflow_decoupled.likelihoods.bernoulli import logistic_site
from gpflow_decoupled.likelihoods.gpflow_sites import gaussian_site, student_t_site
from gpflow_decoupled.likelihoods.laplace import laplace_site
from tests.expectations.fourier_problems import (
    SITES,
    by_quadrature,
    by_route,
    densities,
    lattice_masses,
    projections,
)
from tests.reference import affine_independent as reference

SKEW = SkewNormalBase()


@pytest.mark.exhaustive
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    "name, D", [("skew_normal", 1), ("skew_normal", 2), ("logistic", 2)], ids=str
)
def test_frequency_sum_and_spectral_are_quadrature(name, D, site):
    case, y = SITES[site], projections(name, D)
    expected = by_quadrature(name, case, y)
    assert_allclose(by_route(name, y, case.site(), "frequency_sum", 256), expected, atol=2e-9)
    # the spectral route has a grid for Student-t and Laplace sites, and an error of fourth order in
    # its step at kinks
    assert_allclose(
        by_route(name, y, case.site(), "spectral", 2048),
        expected,
        atol=3e-7 if site == "laplace" else 1e-8,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("site", ["logistic", "laplace"])
def test_three_dimensions(site):
    case, y = SITES[site], projections("skew_normal", 3)
    expected = by_quadrature("skew_normal", case, y, count=2, reach=9.0, panels=9)
    assert_allclose(
        by_route("skew_normal", y, case.site(), "frequency_sum", 128)[:2], expected, atol=5e-6
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", ["normal", "generalized_normal", "student_t", "skew_normal"])
def test_routes_agree(name, site):
    y, case = projections(name, 4, noise=True), SITES[site]
    terms = 512 if name == "student_t" else 128
    exact = by_route(name, y, case.site(), "frequency_sum", terms)
    # the grid is short of the second moment of a Student-t base
    tolerance = 3e-5 if name == "student_t" else 5e-7 if site == "laplace" else 2e-8
    assert_allclose(by_route(name, y, case.site(), "spectral", 4096), exact, atol=tolerance)
    if name != "student_t":
        assert_allclose(by_route(name, y, case.site(), "lattice", 2048), exact, atol=1e-4)


def test_rough_bases(rng):
    """A Laplace base has a transform that decays like omega^-2: the frequency sum needs more terms,
    as (A11) says.
    """
    case = SITES["logistic"]
    y = projections("laplace", 1)
    expected = by_quadrature("laplace", case, y, reach=40.0)
    assert_allclose(by_route("laplace", y, case.site(), "frequency_sum", 1024), expected, atol=1e-8)
    c = np.array([0.0, 0.7, -1.5])
    y = Projections(
        tf.fill([3, 1], tf.constant(np.sqrt(2.0))),
        tf.zeros([3], tf.float64),
        tf.zeros([1, 0], tf.float64),
    )
    site = laplace_site(tf.constant(c), tf.ones([3], tf.float64))
    exact = -(np.abs(c) + np.exp(-np.abs(c))) - np.log(2.0)  # E|v - c| = |c| + exp(-|c|)
    assert_allclose(by_route("laplace", y, site, "frequency_sum", 8192), exact, atol=1e-9)
    assert_allclose(by_route("laplace", y, site, "spectral", 2**13), exact, atol=2e-5)
    assert_allclose(by_route("laplace", y, site, "lattice", 2**13), exact, atol=2e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("site", ["logistic", "laplace"])
def test_the_lattice_gains_sixteen_fold_by_four_times_the_points(site):
    y, case = projections("skew_normal", 4), SITES[site]
    exact = by_route("skew_normal", y, case.site(), "frequency_sum", 128)
    errors = [
        np.sum(np.abs(by_route("skew_normal", y, case.site(), "lattice", K) - exact))
        for K in (256, 1024, 4096)
    ]
    assert errors[0] < 1e-3  # the variance of y is kept
    for rough, fine in zip(errors, errors[1:]):
        assert rough / fine > 10.0


def test_rounding_to_the_lattice_adds_the_variance_of_a_cell_each():
    """Sheppard: D steps^2 / 12, which the route takes away."""
    y = projections("skew_normal", 4)._replace(
        alpha=tf.constant(5 * [[1.0, -0.7, 0.8, 1.2]], tf.float64)
    )
    u, rho = lattice_masses(SKEW, y, 9.5, 256)
    mean = tf.reduce_sum(rho * u, axis=1, keepdims=True)
    variance = tf.reduce_sum(rho * (u - mean) ** 2, axis=1)
    step = (u[:, 1] - u[:, 0]).numpy()
    assert_allclose(variance - y.spread**2, 4 * step**2 / 12, rtol=2e-3)
    assert_allclose(mean[:, 0], y.beta, atol=1e-4)
    assert_allclose(tf.reduce_sum(rho, axis=1), 1.0, rtol=1e-13)


def test_masses_and_ring_order_are_those_of_a_literal_convolution():
    K, step, alpha = 64, 0.4, np.array([1.3, -0.7, 0.2])
    shape = [-3.0, 1.2, 6.0]
    cells = []
    for a, theta in zip(alpha, shape):
        d = theta / np.sqrt(1 + theta**2)
        mean, sd = d * np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi * d**2)
        cells.append(
            reference.masses(lambda v: stats.skewnorm.cdf(mean + sd * v, theta), a, step, K)  # noqa: B023
        )  # noqa: B023
    ours = cell_masses(
        SKEW.cdf,
        tf.constant([alpha]),
        tf.constant(shape, tf.float64)[:, None],
        tf.constant([step], tf.float64),
        K,
    )
    assert_allclose(ours[0], cells, atol=1e-14)
    values, expected = reference.lattice(cells, step, 0.0)
    rho = convolve(ours)[0].numpy()
    places = np.rint(values / step).astype(int)
    inside = np.abs(places) < K
    assert_allclose(rho[places[inside] + K], expected[inside], atol=1e-14)


def test_no_weight_puts_all_mass_in_the_middle():
    masses = cell_masses(
        SKEW.cdf,
        tf.zeros([1, 1], tf.float64),
        tf.ones([1, 1], tf.float64),
        tf.ones([1], tf.float64),
        8,
    )
    assert_allclose(masses[0, 0], np.eye(8)[4])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("averaged", [False, True])
def test_densities_are_those_of_the_sum(averaged):
    """They sum to one, and at D = 2 are the integral of the product density; cell averages match
    cell masses.
    """
    y = projections("skew_normal", 2)
    values, q = spectral_density(SKEW.characteristic, y, 9.5, 256, averaged)
    step = (values[:, 1:2] - values[:, :1]).numpy()
    assert_allclose(tf.reduce_sum(q, axis=1) * step[:, 0], 1.0, rtol=1e-12)
    assert_allclose(tf.reduce_sum(q * values, axis=1) * step[:, 0], y.beta, atol=1e-9)
    first, second = densities("skew_normal", 2)
    v = np.linspace(-12, 12, 4001)
    for k in (120, 128, 140):
        places = values[0, k].numpy() + (
            np.linspace(-0.5, 0.5, 201) * step[0] if averaged else np.zeros(1)
        )
        u = (places[:, None] - y.beta[0].numpy() - y.alpha[0, 0].numpy() * v) / y.alpha[
            0, 1
        ].numpy()
        at = (
            np.exp(first.log_pdf(v) + second.log_pdf(u))
            @ np.full(4001, v[1] - v[0])
            / abs(y.alpha[0, 1].numpy())
        )
        mean = np.sum(at * np.r_[0.5, np.ones(199), 0.5]) / 200 if averaged else at[0]
        assert_allclose(q[0, k], mean, rtol=2e-5 if averaged else 1e-8)


def test_densities_match_histograms():
    """10^5 draws in 12 cells: a chi-square statistic above 40 comes once in 10^4 runs."""
    y = projections("skew_normal", 3, noise=True)
    v = SKEW.sample(100_000, y.theta, seed=2).numpy()
    draws = (
        v @ y.alpha[0].numpy()
        + float(y.beta[0])
        + np.sqrt(float(y.noise[0])) * np.random.default_rng(0).normal(size=100_000)
    )
    for values, density in (
        lattice_masses(SKEW, y, 9.5, 2048),
        spectral_density(SKEW.characteristic, y, 9.5, 2048, averaged=True),
    ):
        mass = density[0].numpy() / np.sum(density[0])
        edges = float(y.beta[0]) + float(y.spread[0]) * np.linspace(-2.0, 2.0, 11)
        step = float(values[0, 1] - values[0, 0])
        below = np.interp(edges, values[0] + 0.5 * step, np.cumsum(mass))
        expected = 1e5 * np.diff(np.concatenate([[0.0], below, [1.0]]))
        counted = np.histogram(draws, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
        assert np.sum((counted - expected) ** 2 / expected) < 40.0


@pytest.mark.exhaustive
def test_invariances():
    """Permuting the variables with their shapes; mirroring one with its shape; scaling what is not
    there.
    """
    y, site = projections("skew_normal", 3), SITES["laplace"].site()
    for route, size in (("frequency_sum", 64), ("spectral", 256), ("lattice", 256)):
        value = by_route("skew_normal", y, site, route, size)
        order = [2, 0, 1]
        permuted = y._replace(
            alpha=tf.gather(y.alpha, order, axis=1), theta=tf.gather(y.theta, order)
        )
        assert_allclose(by_route("skew_normal", permuted, site, route, size), value, rtol=1e-11)
        sign = tf.constant([1.0, -1.0, 1.0], tf.float64)
        mirrored = y._replace(alpha=y.alpha * sign, theta=y.theta * sign[:, None])
        assert_allclose(by_route("skew_normal", mirrored, site, route, size), value, rtol=1e-9)
        shift = tf.constant(0.37, tf.float64)
        moved = laplace_site(site.parameters[0] + shift, site.parameters[1])
        assert_allclose(
            by_route("skew_normal", y._replace(beta=y.beta + shift), moved, route, size),
            value,
            rtol=1e-9,
        )


@pytest.mark.exhaustive
def test_noise_is_one_more_normal_variable():
    y, site = projections("skew_normal", 2, noise=True), SITES["logistic"].site()
    wide = Projections(
        tf.concat([y.alpha, tf.sqrt(y.noise)[:, None]], axis=1),
        y.beta,
        tf.concat([y.theta, [[0.0]]], axis=0),
    )
    for route, size in (("frequency_sum", 64), ("spectral", 256), ("lattice", 256)):
        assert_allclose(
            by_route("skew_normal", y, site, route, size),
            by_route("skew_normal", wide, site, route, size),
            atol=1e-9,
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("route", ROUTES)
def test_normal_base_is_the_gaussian_expectation(route):
    y = projections("normal", 3)
    for site in SITES.values():
        expected = site.site().gauss(y.beta, y.spread**2, *site.site().parameters)
        ours = by_route("normal", y, site.site(), route, 4096 if route != "frequency_sum" else 64)
        assert_allclose(ours, expected, atol=1e-9 if route == "frequency_sum" else 5e-8)


@pytest.mark.exhaustive
def test_any_site_goes_by_the_grid():
    """A spike and slab prior, which has no transform."""
    y = projections("skew_normal", 2)
    log_g = lambda values: np.log(  # noqa: E731
        0.3 * stats.norm.pdf(values, 0, 2.0) + 0.7 * stats.norm.pdf(values, 0, 0.2)
    )  # noqa: E731

    def smooth(values: tf.Tensor) -> tf.Tensor:
        normal = [
            np.log(w / s / np.sqrt(2 * np.pi)) - 0.5 * (values / s) ** 2
            for w, s in ((0.3, 2.0), (0.7, 0.2))
        ]
        return tf.reduce_logsumexp(tf.stack(normal), axis=0)

    ours = by_route("skew_normal", y, Site(smooth), "spectral", 1024)
    first = [
        reference.expectation(
            log_g, densities("skew_normal", 2), y.alpha[n].numpy(), float(y.beta[n]), panels=24
        )
        for n in range(2)
    ]
    assert_allclose(ours[:2], first, atol=1e-6)


def test_far_and_narrow_projections():
    """Means of a hundred standard deviations, tiny and huge spreads, exactly zero weights: finite,
    and the limit.
    """
    alpha = tf.constant([[1e-9, 0.0], [0.3, 1e-7], [200.0, 50.0], [0.0, 1.0]], tf.float64)
    beta, theta = (
        tf.constant([0.4, 60.0, -500.0, 0.0], tf.float64),
        tf.constant([[2.0], [-3.0]], tf.float64),
    )
    y, site = (
        Projections(alpha, beta, theta),
        logistic_site(tf.constant([1.0, -1.0, 2.0, 1.0], tf.float64)),
    )
    fine = by_route("skew_normal", y, site, "spectral", 2**14)
    for route, size, tolerance in (("frequency_sum", 128, 1e-9), ("lattice", 4096, 1e-3)):
        ours = by_route("skew_normal", y, site, route, size)
        assert_allclose(ours, fine, rtol=tolerance, atol=tolerance)
    assert_allclose(fine[0], stats.logistic.logcdf(0.4), rtol=1e-9)


def test_sites_far_from_the_mean_are_not_seen_one_period_on():
    """Outliers, for the sums that are periodic; Student-t sites go by the grid, which is centred on
    the mean.
    """
    beta = tf.constant([-300.0, -40.0, -9.0, 25.0, 1000.0], tf.float64)
    y = projections("skew_normal", 3)._replace(beta=beta)
    zero, one = tf.zeros([5], tf.float64), tf.ones([5], tf.float64)
    assert student_t_site(zero, one, 4.0 * one).kernel is None
    for site in (logistic_site(one), logistic_site(-one), laplace_site(zero, one)):
        fine = by_route("skew_normal", y, site, "spectral", 2**12)
        assert_allclose(
            by_route("skew_normal", y, site, "frequency_sum", 64), fine, rtol=1e-8, atol=1e-9
        )


@pytest.mark.exhaustive
def test_single_precision():
    """Good to explore with; sums over sites to 1e-4."""
    for name, case in (("skew_normal", SITES["logistic"]), ("laplace", SITES["laplace"])):
        single, double = (projections(name, 3, dtype=dtype) for dtype in (tf.float32, tf.float64))
        for route, size in (("frequency_sum", 64), ("spectral", 256), ("lattice", 256)):
            ours = by_route(name, single, case.site(tf.float32), route, size)
            assert ours.dtype == tf.float32
            assert_allclose(
                ours, by_route(name, double, case.site(), route, size), rtol=1e-4, atol=1e-4
            )


def test_gaussian_site_needs_moments_alone():
    y = projections("skew_normal", 2)
    site = gaussian_site(tf.zeros([5], tf.float64), tf.ones([5], tf.float64))
    expected = -0.5 * (y.beta**2 + y.spread**2) - 0.5 * np.log(2 * np.pi)
    for route, size in (("frequency_sum", 8), ("spectral", 256), ("lattice", 1024)):
        assert_allclose(by_route("skew_normal", y, site, route, size), expected, rtol=1e-8)
