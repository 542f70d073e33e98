"""The entropy of a mixture of Gaussians: both bounds against sums over a grid, below the entropy,
and where they are exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled.optimizers.mixture import (
    bhattacharyya_entropy,
    jensen_entropy,
    sampled_entropy,
)
from tests.reference import normal_mixture as reference

D = 2
NORMAL = np.log(2.0 * np.pi * np.e)
"""The entropy of a standard normal variable in the plane."""


def mixture(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log weights [3], means [3, 2] and roots [3, 2, 2] of components that overlap."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3))
    roots = np.tril(0.4 * rng.standard_normal((3, D, D)), -1) + np.eye(D) * rng.uniform(
        0.5, 1.5, (3, 1, D)
    )
    return np.log(weights), rng.standard_normal((3, D)), roots


def as_reference(log_weights, means, roots):
    return np.exp(log_weights), means, roots @ np.swapaxes(roots, 1, 2)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("seed", [0, 1])
def test_bounds_are_those_of_a_grid_and_below_the_entropy(seed):
    parts = mixture(seed)
    truth = reference.entropy(*as_reference(*parts))
    close, far = float(bhattacharyya_entropy(*parts)), float(jensen_entropy(*parts))
    assert_allclose(close, reference.bhattacharyya_bound(*as_reference(*parts)), atol=1e-8)
    assert_allclose(far, reference.jensen_bound(*as_reference(*parts)), atol=1e-8)
    assert far < close < truth
    value, error = sampled_entropy(*parts, 40_000, np.random.default_rng(0))
    assert 0.0 < error < 0.005 and abs(value - truth) < 4.0 * error  # fails for one seed in 16,000


def test_one_component():
    root = np.array([[2.0, 0.0], [0.7, 0.5]])
    parts = np.zeros(1), np.array([[3.0, -1.0]]), root[None]
    exact = NORMAL + np.log(np.linalg.det(root))
    assert_allclose(bhattacharyya_entropy(*parts), exact, rtol=1e-12)
    assert_allclose(exact - jensen_entropy(*parts), 0.5 * D * (1.0 - np.log(2.0)), rtol=1e-12)
    assert_allclose(sampled_entropy(*parts, 10, np.random.default_rng(0)), [exact, 0.0], atol=1e-12)


def test_components_that_are_the_same_and_components_far_apart():
    log_weights = np.log([0.2, 0.8])
    together = log_weights, np.zeros((2, D)), np.stack([np.eye(D)] * 2)
    assert_allclose(bhattacharyya_entropy(*together), NORMAL, rtol=1e-12)
    apart = log_weights, np.array([[0.0, 0.0], [40.0, 0.0]]), np.stack([np.eye(D)] * 2)
    assert_allclose(
        bhattacharyya_entropy(*apart), NORMAL - np.exp(log_weights) @ log_weights, rtol=1e-12
    )
