"""200 resampled data sets of a problem whose risk is known: the certificate is violated no more
often than delta.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy.stats import norm

from gpflow_decoupled.certificates import PacBayesCertificate, pac_bayes_certificate
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import SparseCVIGP
from tests.reference.grams import squared_exponential

INPUTS = np.linspace(-2.0, 2.0, 9)[:, None]
PROBABILITY = 1.0 / (1.0 + np.exp(-4.0 * np.sin(1.5 * INPUTS[:, 0])))
JITTER = 1e-6
PRIOR = squared_exponential(INPUTS, INPUTS, 4.0, 1.0) + JITTER * np.eye(9)
N, DELTA, SETS = 60, 0.1, 200


def _posterior(places: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [9] and covariance [9, 9] of the values at the nine inputs, by the iteration of Jaakkola
    and Jordan.
    """
    counts = np.bincount(places, minlength=9)
    nu = np.bincount(places, Y[:, 0] - 0.5, minlength=9)
    xi, inverse = np.ones(9), np.linalg.inv(PRIOR)
    for _ in range(20):
        cov = np.linalg.inv(inverse + np.diag(counts * np.tanh(0.5 * xi) / (2.0 * xi)))  # (C39)
        mean = cov @ nu
        xi = np.sqrt(mean**2 + np.diag(cov))
    return mean, cov


@pytest.mark.exhaustive
def test_violations() -> None:
    """An example is one of nine inputs, with a label of its own PROBABILITY."""
    rng = np.random.default_rng(0)
    kernel = gpflow.kernels.SquaredExponential(4.0, 1.0)
    model = SparseCVIGP(kernel, BernoulliLogit(), INPUTS, num_data=N)
    root = np.linalg.cholesky(PRIOR)
    certificates: list[PacBayesCertificate] = []
    risks = []
    for _ in range(SETS):
        places = rng.integers(0, 9, N)
        Y = (rng.uniform(size=N) < PROBABILITY[places]).astype(float)[:, None]
        mean, cov = _posterior(places, Y)
        whitened = np.linalg.solve(root, np.linalg.solve(root, cov).T)
        model.basis.q_mu.assign(np.linalg.solve(root, mean)[:, None])
        model.basis.q_sqrt.assign(np.linalg.cholesky(whitened)[None])
        certificates.append(
            pac_bayes_certificate(model, (INPUTS[places], Y), DELTA, hyperparameters="fixed")
        )
        positive = norm.sf(0.0, mean, np.sqrt(np.diag(cov)))
        risks.append(np.mean(PROBABILITY * (1.0 - positive) + (1.0 - PROBABILITY) * positive))
    for name in ("seeger", "maurer", "pinsker", "mcallester"):
        bounds = np.array([getattr(one, name) for one in certificates])
        assert np.mean(risks > bounds) <= DELTA, name
        assert np.mean(bounds) < 0.6, "vacuous"
    assert (
        np.mean(risks > np.array([one.gibbs_error for one in certificates])) > 3.0 * DELTA
    )  # which is no bound
