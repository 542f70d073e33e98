"""Besag, York & Mollie on two maps, beside the posteriors that GeoBUGS's manual has by MCMC."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy import sparse

from gpflow_decoupled.models import GMRF
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian
from tests.models.areal_data import SCOTLAND, WARDS, Areas

SUM_TO_ZERO, FLAT = 1e3, 1e-5
"""Precisions of the sum of the neighbours' field, which is 0 in GeoBUGS, and of coefficients."""


def field(areas: Areas, sigma: float, apart: float | None = None) -> GMRF:
    """Counts with log rates log E + a + b x + spatial field + effects of each area.

    :param sigma: of the spatial field, of differences between neighbours.
    :param apart: deviation of independent effects; none if not given.
    """
    N, W = len(areas.counts), areas.neighbours
    degrees = np.asarray(W.sum(axis=1)).ravel()
    on_land = np.flatnonzero(degrees)  # an island's field is 0
    laplacian = (sparse.diags(degrees) - W)[on_land][:, on_land]
    ones = np.ones((len(on_land), 1))
    blocks = [sparse.csr_matrix(laplacian / sigma**2 + SUM_TO_ZERO * (ones @ ones.T))]
    columns = [sparse.eye(N).tocsr()[:, on_land]]
    if apart is not None:
        blocks.append(sparse.eye(N) / apart**2)
        columns.append(sparse.eye(N))
    blocks.append(FLAT * sparse.eye(2))
    columns.append(np.stack([np.ones(N), areas.covariate], axis=1))
    return GMRF(
        sparse.block_diag(blocks),
        areas.counts[:, None],
        gpflow.likelihoods.Poisson(),
        design=sparse.hstack(columns),
        offset=np.log(areas.expected),
    )


def log_prior(sigma: float) -> float:
    """Of log sigma, for a precision of Gamma(0.5, 0.0005)."""
    precision = sigma**-2.0
    return 0.5 * np.log(precision) - 0.0005 * precision


def averaged(models: list[GMRF], priors: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and deviations of all weights over the models, and the weights of the models."""
    bounds, means, variances = [], [], []
    for model, prior in zip(models, priors):
        bounds.append(ConjugateComputation().run(model).elbo + prior)
        mean, variance = model.predict_x()
        means.append(mean)
        variances.append(variance)
    shares = np.exp(np.array(bounds) - np.max(bounds))
    shares /= shares.sum()
    mean = shares @ np.array(means)
    second = shares @ (np.array(variances) + np.array(means) ** 2)
    return mean, np.sqrt(second - mean**2), shares


@pytest.mark.exhaustive
def test_lip_cancer_in_scotland() -> None:
    """Mean and deviation by MCMC: a -0.3006 (0.1155), b 0.4474 (0.1204) for ten per cent, sigma
    0.6664 (0.1198); the field of counties 1, 7, 49 is 1.131 (0.293), 0.916 (0.182), -0.706 (0.171).
    """
    areas = SCOTLAND._replace(covariate=SCOTLAND.covariate / 10.0)
    grid = np.exp(np.linspace(np.log(0.35), np.log(1.25), 12))
    mean, deviation, shares = averaged(
        [field(areas, sigma) for sigma in grid], [log_prior(sigma) for sigma in grid]
    )
    places = [-2, -1, 0, 5, 45]  # islands are the sixth, eighth and eleventh county
    found = np.array([mean[places], deviation[places]])
    expected = [[-0.3006, 0.4474, 1.131, 0.9164, -0.7056], [0.1155, 0.1204, 0.2926, 0.1817, 0.1711]]
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert shares @ grid == pytest.approx(0.6664, abs=0.04)


@pytest.mark.exhaustive
def test_lung_cancer_in_london() -> None:
    """With effects of each ward; by MCMC a -0.206 (0.102), b 0.0465 (0.0188), sigmas 0.077 (0.097)
    and 0.144 (0.117), of 300 effective draws.
    """
    grid = np.exp(np.linspace(np.log(0.012), np.log(0.6), 6))
    pairs = [(one, other) for one in grid for other in grid]
    mean, deviation, shares = averaged(
        [field(WARDS, *pair) for pair in pairs],
        [log_prior(one) + log_prior(other) for one, other in pairs],
    )
    np.testing.assert_allclose(mean[-2:], [-0.206, 0.04647], atol=0.01)
    np.testing.assert_allclose(deviation[-2:], [0.1024, 0.01877], rtol=0.1)
    np.testing.assert_allclose(shares @ np.array(pairs), [0.0775, 0.1438], atol=0.06)


@pytest.mark.exhaustive
def test_the_lagrangian_on_the_map() -> None:
    """The same bound as conjugate computation, on 56 counties at one sigma."""
    areas = SCOTLAND._replace(covariate=SCOTLAND.covariate / 10.0)
    found = [
        method().run(field(areas, 0.66)).elbo
        for method in (ConjugateComputation, LinearlyConstrainedLagrangian)
    ]
    assert found[1] == pytest.approx(found[0], abs=1e-3)
