"""The reference of Laplace priors against adaptive integrals, and against Laplace noise with unit
features.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import laplace_prior as reference
from . import lcl_sites as sites


@pytest.mark.parametrize("h, sigma", [(0.3, 1.2), (-2.0, 0.1), (0.5, 0.01), (30.0, 1.0)])
def test_expected_loss_is_the_integral(h, sigma):
    expected = sites.integral(sites.laplace(0.5, 0.7), h, sigma, (0.5,))
    assert_allclose(reference.expected_loss(h, sigma, 0.5, 0.7), expected, rtol=1e-11)


def test_bound_of_a_narrow_gaussian_is_the_joint_density():
    """Plus the entropy, and without it at any width the bound would not be one."""
    X, priors = (
        np.array([[0.5, -1.0], [2.0, 0.3]]),
        reference.Priors(np.array([0.2, -0.1]), np.array([0.5, 2.0])),
    )
    losses = [sites.gaussian(1.0, 0.3), sites.gaussian(-0.5, 0.3)]
    f = [lambda h, s, loss=loss: sites.hermite(loss, h, s, 20) for loss in losses]
    w, small = np.array([0.7, -0.4]), 1e-5
    joint = -sum(loss(x @ w) for loss, x in zip(losses, X)) - np.sum(
        np.abs(w - priors.location) / priors.scale + np.log(2.0 * priors.scale)
    )
    entropy = np.log(2.0 * np.pi * np.e) + 2.0 * np.log(small)
    assert_allclose(
        reference.bound(X, f, priors, w, small**2 * np.eye(2)), joint + entropy, atol=1e-7
    )


def test_evidence_of_one_weight_is_a_convolution():
    """Of y = w + noise the log density of a Laplace variable plus a normal one."""
    y, noise, scale = 0.8, 0.3, 0.6
    found = reference.log_evidence(
        np.ones((1, 1)),
        [sites.gaussian(y, noise)],
        reference.Priors(np.zeros(1), np.array([scale])),
        nodes=20001,
    )
    expected = sites.log_predictive(sites.laplace(0.0, scale), y, np.sqrt(noise))
    assert_allclose(found, expected, atol=1e-6)
