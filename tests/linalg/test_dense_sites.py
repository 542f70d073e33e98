"""Sites by LAPACK equal those of TensorFlow, and their gradients those of the evidence."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.linalg.site_posterior import dense_sites, normal_density, site_posterior

RNG = np.random.default_rng(0)
N = 12
ROOT = RNG.normal(size=(N, N))
K = ROOT @ ROOT.T / N
NU = RNG.normal(size=N)
TAU = {
    "positive": RNG.uniform(0.1, 3.0, N),
    "none": np.zeros(N),
    "large and small": 10.0 ** np.linspace(-12.0, 10.0, N),
    "some negative": np.where(np.arange(N) % 3 == 0, -0.02, 1.0),
}


@pytest.mark.parametrize("kind", TAU)
def test_posterior_of_sites(kind: str) -> None:
    ours = dense_sites(K, NU, TAU[kind])
    theirs = site_posterior(tf.constant(K[None]), NU[:, None], TAU[kind][:, None])
    assert ours is not None and bool(theirs.ok)
    for name in ("mean", "variance", "alpha"):
        expected = getattr(theirs, name)[:, 0]
        np.testing.assert_allclose(getattr(ours, name), expected, rtol=1e-6, atol=1e-9)
    assert ours.log_det == pytest.approx(float(theirs.log_det), abs=1e-9)


def test_gradient_by_the_covariance() -> None:
    tau = TAU["some negative"] + 0.0
    found = dense_sites(K, NU, tau)
    assert found is not None
    direction = np.outer(NU, NU) + np.eye(N)

    def evidence(step: float) -> float:  # of the sites, whose gradient is the same
        at = dense_sites(K + step * direction, NU, tau)
        assert at is not None
        return 0.5 * float(NU @ at.mean - at.log_det)

    slope = (evidence(1e-5) - evidence(-1e-5)) / 2e-5
    assert np.vdot(found.of_covariance(), direction) == pytest.approx(slope, rel=1e-6)
    positive = TAU["positive"]
    sites = dense_sites(K, NU, positive)
    assert sites is not None
    density = normal_density(K + np.diag(1.0 / positive), (NU / positive)[:, None])
    np.testing.assert_allclose(sites.of_covariance(), density.of_covariance, atol=1e-10)


def test_sites_without_a_posterior() -> None:
    assert dense_sites(K, NU, np.full(N, -100.0)) is None
    assert dense_sites(-10.0 * K, NU, np.ones(N)) is None
