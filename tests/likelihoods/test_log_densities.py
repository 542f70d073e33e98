"""Log densities of rates exp(f) and of everything else, at any f."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from campaign.references import log_expected_density
from gpflow_decoupled.likelihoods import RowLikelihood
from gpflow_decoupled.likelihoods.log_densities import observation_log_density
from gpflow_decoupled.models import CVIGP

DENSITIES = {
    "Poisson": (
        lambda: gpflow.likelihoods.Poisson(binsize=0.5),
        lambda f, row: row[0] * (f + np.log(0.5)) - 0.5 * np.exp(f) - gammaln(row[0] + 1.0),
        [0.0, 1.0, 40.0],
    ),
    "Exponential": (
        gpflow.likelihoods.Exponential,
        lambda f, row: -f - row[0] * np.exp(-f),
        [1e-3, 2.0],
    ),
    "Gamma": (
        lambda: gpflow.likelihoods.Gamma(shape=2.5),
        lambda f, row: stats.gamma.logpdf(row[0] * np.exp(-f), 2.5) - f,
        [0.2, 30.0],
    ),
}
MOMENTS = [(0.3, 0.5), (-1.0, 20.0), (3.0, 1e-6), (2.0, 300.0)]


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_of_rates(name: str) -> None:
    make, density, values = DENSITIES[name]
    for y in values:
        for mean, variance in MOMENTS:
            row = np.array([[y]])
            arguments = np.zeros((1, 1)), np.array([[mean]]), np.array([[variance]]), row
            found = float(observation_log_density(make(), *arguments)[0])
            with np.errstate(all="ignore"):
                expected = log_expected_density(density, mean, variance, row[0])
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-6), (y, mean, variance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rates_beyond_the_range_of_floats(dtype: type) -> None:
    """GPflow's are not a number: the logarithm of exp(f) is taken where that is 0 or infinite."""
    f, v = np.array([[-1e5], [-1e5], [900.0]], dtype), np.full((3, 1), 2.0, dtype)
    y, X = np.array([[0.0], [2.0], [1.0]], dtype), np.zeros((3, 1), dtype)
    found = np.asarray(observation_log_density(gpflow.likelihoods.Poisson(), X, f, v, y))
    expected = [0.0, -2e5 + 4.0 - np.log(2.0)]
    digits = 1e-10 if dtype is np.float64 else 0.02  # the variance is below round-off of f
    np.testing.assert_allclose(found[:2], expected, rtol=digits, atol=digits)
    # f near log(448), where 900 - f and exp(f) balance
    np.testing.assert_allclose(found[2], -200207.0, rtol=1e-5)
    weights = RowLikelihood(gpflow.likelihoods.Poisson(), ["weight"])
    rows = np.concatenate([y, np.ones_like(y)], axis=1)
    again = weights.predict_log_density(X, f, v, rows)
    np.testing.assert_allclose(again, found, rtol=1e-6, atol=1e-6)


def test_a_model_far_below_its_counts() -> None:
    X, Y = np.linspace(0.0, 1.0, 5)[:, None], np.array([[0.0], [0.0], [0.0], [0.0], [1.0]])
    mean = gpflow.functions.Constant(-1e4)
    model = CVIGP(
        (X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson(), mean_function=mean
    )
    density = model.predict_log_density((X, Y))
    np.testing.assert_allclose(density, [0.0, 0.0, 0.0, 0.0, -1e4 + 0.5], atol=1e-6)
