"""Predictive densities of Laplace noise against numerical integrals, with noise far smaller than
sd(f) or far larger.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.integrate import quad

from gpflow_decoupled.likelihoods import Laplace

CASES = [(100.0, 2e-6), (1.0, 1e-3), (1.0, 3e-3), (1.0, 1.0), (10.0, 100.0), (1e-3, 1.0)]
"""Pairs of the deviation of f and the scale of the noise."""


def _integral(y: float, sigma: float, scale: float) -> float:
    """log p(y) for f ~ N(0, sigma^2), by quadrature over the noise, in units of its scale, on both
    sides of the kink.
    """

    def inside(u: float) -> float:
        return (
            0.5
            * np.exp(-abs(u) - 0.5 * ((y - scale * u) / sigma) ** 2)
            / (sigma * np.sqrt(2.0 * np.pi))
        )

    middle = y / scale  # where f is 0: the integrand is narrow there if the noise is wide
    width = 12.0 * sigma / scale
    ends = sorted(
        {-60.0, 0.0, 60.0, *(u for u in (middle - width, middle, middle + width) if abs(u) < 60.0)}
    )
    parts = [
        quad(inside, a, b, epsabs=0.0, epsrel=1e-11, limit=200)[0]
        for a, b in zip(ends[:-1], ends[1:])
    ]
    return float(np.log(sum(parts)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sigma, scale", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 3e-6)])
def test_the_predictive_density_keeps_its_digits(dtype, tolerance, sigma, scale):
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        likelihood = Laplace(scale)
        for deviations in (0.0, 0.7, 4.0):
            y = deviations * max(sigma, scale)
            moments = [tf.constant([[value]], dtype) for value in (0.0, sigma**2)]
            with tf.GradientTape() as tape:
                tape.watch(moments)
                found = likelihood.predict_log_density(
                    tf.zeros([1, 1], dtype), *moments, tf.constant([[y]], dtype)
                )
            assert_allclose(found[0], _integral(y, sigma, scale), rtol=tolerance, atol=tolerance)
            assert all(np.all(np.isfinite(gradient)) for gradient in tape.gradient(found, moments))


def test_one_scale_per_observation():
    scales = np.array([[0.5], [2.0]])
    variance = Laplace(scales).conditional_variance(np.zeros((2, 1)), np.zeros((2, 1)))
    assert_allclose(variance, 2.0 * scales**2)
