"""The slow log densities of observations against SciPy's, and against one as their sum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from . import observed as ref

F = np.array([-1.3, 0.0, 2.1])


def test_those_that_scipy_has():
    beta = [stats.betabinom.logpmf(3, 7, 2.5 * expit(f), 2.5 * expit(-f)) for f in F]
    assert_allclose(ref.beta_binomial(3.0, 7.0, 2.5)(F), beta)
    negative = stats.nbinom.logpmf(3, 2.5, 2.5 / (2.5 + np.exp(F)))
    assert_allclose(ref.counts(3.0, 2.5)(F), negative)
    for code, name in ((0, "logpdf"), (1, "logsf"), (-1, "logcdf")):
        assert_allclose(
            ref.censored_normal(0.7, code, 0.4)(F), getattr(stats.norm(F, 0.4), name)(0.7)
        )
        law = stats.lognorm(0.4, scale=np.exp(F))
        assert_allclose(ref.log_normal(0.7, code, 0.4)(F), getattr(law, name)(0.7))
        law = stats.weibull_min(1.7, scale=np.exp(F))
        assert_allclose(ref.weibull(0.7, code, 1.7)(F), getattr(law, name)(0.7))


@pytest.mark.parametrize("law", [ref.zero_inflated, ref.hurdle])
@pytest.mark.parametrize("size", [None, 2.5])
def test_counts_sum_to_one(law, size):
    total = sum(np.exp(law(float(y), 0.3, size)(F)) for y in range(400))
    assert_allclose(total, 1.0)
    zero = np.exp(law(0.0, 0.3, size)(F))
    if law is ref.hurdle:
        assert_allclose(zero, 0.3)
    else:
        assert np.all(zero > 0.3)


@pytest.mark.exhaustive
def test_amounts_have_the_moments_of_a_tweedie():
    y = np.linspace(1e-4, 60.0, 6001)
    densities = np.exp([ref.tweedie(value, 0.7, 1.4)(np.array([1.0])) for value in y])[:, 0]
    mean = np.sum(y * densities) * (y[1] - y[0])
    assert_allclose(mean, np.e, rtol=1e-3)
    second = np.sum(y**2 * densities) * (y[1] - y[0])
    assert_allclose(second - mean**2, 0.7 * np.e**1.4, rtol=2e-3)


def test_integrals_of_a_line_and_of_a_normal_density():
    assert_allclose(ref.expectation(lambda f: 2.0 * f, 1.5, 3.0), 3.0, rtol=1e-10)
    normal = ref.censored_normal(30.0, 0, 0.5)
    exact = stats.norm.logpdf(30.0, 1.0, np.sqrt(0.25 + 9.0))
    assert_allclose(ref.log_predictive(normal, 1.0, 3.0), exact, rtol=1e-10)
