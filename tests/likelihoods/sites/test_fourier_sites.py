"""Sites with a closed transform: their density, the transform of its curvature, and the Gaussian
reference.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from gpflow_decoupled.expectations.projections import Site
from gpflow_decoupled.likelihoods.bernoulli import logistic_site
from gpflow_decoupled.likelihoods.gpflow_sites import gaussian_site, student_t_site
from gpflow_decoupled.likelihoods.laplace import laplace_site
from tests.expectations.fourier_problems import KAPPA, NU, SITES, TAU, Y_0, N

Y = np.linspace(-6.0, 6.0, 9)


def columns(site: Site) -> list[tf.Tensor]:
    return [part[:, None] for part in site.parameters]


def log_density(site: Site, y: np.ndarray) -> tf.Tensor:
    """[N, K] at the same y [K] for each site."""
    values = tf.constant(np.tile(y, [N, 1]))
    g = site.smooth(values, *columns(site))
    if site.kink is None:
        return g
    place, slope = site.kink(*columns(site))
    return g + slope * tf.abs(values - place)


@pytest.mark.parametrize("name", SITES)
def test_log_density(name):
    case = SITES[name]
    expected = [case.literal(n, Y) for n in range(N)]
    assert_allclose(log_density(case.site(), Y), expected, rtol=1e-10)


def test_kernel_is_the_transform_of_the_second_derivative():
    """The Laplace site's is a point mass of -2 / tau at its kink."""
    omega = np.array([0.1, 0.9, 4.0])
    logistic, student = SITES["logistic"].site(), SITES["student_t"].site()
    frequencies = tf.constant(np.tile(omega, [N, 1]))
    wave = lambda f, w: 2 * quad(f, 0, np.inf, weight="cos", wvar=w, limit=500, epsabs=1e-11)[0]  # noqa: E731
    for n in range(N):
        k, s, nu = KAPPA[n], TAU[n], NU[n]
        curved = lambda y: -(k**2) * stats.logistic.pdf(k * y)  # noqa: B023, E731
        ours = logistic.kernel(frequencies, *columns(logistic))[n]
        assert_allclose(ours, [wave(curved, w) for w in omega], atol=1e-8)
        a2 = nu * s**2
        heavy = lambda u: -(nu + 1) * (a2 - u**2) / (a2 + u**2) ** 2  # noqa: B023, E731
        ours = student.kernel(frequencies, *columns(student))[n]
        assert_allclose(ours, [wave(heavy, w) for w in omega], atol=1e-7)
    laplace, gaussian = SITES["laplace"].site(), SITES["gaussian"].site()
    assert_allclose(laplace.kernel(frequencies, *columns(laplace)), np.tile(-2.0 / TAU[:, None], 3))
    assert_allclose(gaussian.kernel(frequencies, *columns(gaussian)), 0.0)
    assert_allclose(laplace.centre(*laplace.parameters), Y_0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("spread", [1e-3, 0.5, 4.0, 60.0])
@pytest.mark.parametrize("name", SITES)
def test_gaussian_reference(name, spread):
    case, site = SITES[name], SITES[name].site()
    mean = np.array([0.0, 3.0, -20.0, 0.3, 1.0])
    ours = site.gauss(tf.constant(mean), tf.constant(np.full(N, spread**2)), *site.parameters)
    for n in range(N):
        z = (case.kink[n] - mean[n]) / spread
        ends = sorted(
            {-12.0, 12.0, 0.0, *(point for point in (z - 0.2, z, z + 0.2) if abs(point) < 12)}
        )
        f = lambda z: (  # noqa: E731
            case.literal(n, mean[n] + spread * z) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)  # noqa: B023
        )  # noqa: B023, E731
        expected = sum(quad(f, *pair, limit=300, epsabs=1e-12)[0] for pair in zip(ends, ends[1:]))
        assert_allclose(ours[n], expected, rtol=1e-9, atol=1e-9)


def test_no_variance_is_the_density_itself():
    for case in SITES.values():
        site = case.site()
        m = tf.constant(Y[:N])
        ours = site.gauss(m, tf.zeros([N], tf.float64), *site.parameters)
        assert_allclose(ours, [case.literal(n, Y[n]) for n in range(N)], rtol=1e-9)
        with tf.GradientTape() as tape:
            tape.watch(m)
            total = tf.reduce_sum(site.gauss(m, tf.zeros([N], tf.float64), *site.parameters))
        assert np.all(np.isfinite(tape.gradient(total, m)))


def test_single_precision():
    one = tf.ones([3], tf.float32)
    for site in (
        logistic_site(one),
        laplace_site(one, one),
        student_t_site(one, one, 4.0 * one),
        gaussian_site(one, one),
    ):
        assert site.gauss(one, one, *site.parameters).dtype == tf.float32
        assert np.all(np.isfinite(site.gauss(one, 0.0 * one, *site.parameters)))
