"""Mean points that beta explains, in single precision: the residual kernel at gamma is round-off,
negative in places.
"""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import OrthogonalBasis, SolveBasis
from gpflow_decoupled.bases.optimum import frame_of

SCALE = 100.0
"""The prior variance: round-off of a difference of such numbers is far above GPflow's jitter of
1e-6.
"""


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-6)):
        yield


def _kernel() -> gpflow.kernels.Kernel:
    """A straight line, which any two points explain."""
    return gpflow.kernels.Linear(SCALE) + gpflow.kernels.Constant(SCALE)


def _points(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """gamma [13, 1] and beta [7, 1]."""
    inputs = np.random.default_rng(seed).uniform(-1.5, 1.5, (20, 1)).astype(np.float32)
    return inputs[7:], inputs[:7]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scaling", ["diagonal", "whitened"])
def test_the_coordinates_of_the_mean_are_finite(scaling: str, seed: int) -> None:
    kernel, (gamma, beta) = _kernel(), _points(seed)
    basis = OrthogonalBasis(gamma, beta, mean_scaling=scaling)
    basis.refresh(kernel)
    basis.a_gamma.assign(np.ones((13, 1), np.float32))
    mean, _ = basis.mean_and_cov(basis.factor(kernel), kernel, gamma)
    # (D22), (D23): a unit of a coordinate moves the mean by less than a standard deviation of the
    # prior
    assert np.abs(mean).max() < np.sqrt(13.0 * 4.0 * SCALE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_solve_gp_and_the_frame_of_streams_have_factors(seed: int) -> None:
    kernel, (gamma, beta) = _kernel(), _points(seed)
    basis = SolveBasis(gamma, beta)
    state = basis.factor(kernel)
    assert bool(state.ok)
    assert_allclose(basis.prior_kl(state), 0.0, atol=1e-4)
    assert bool(frame_of(kernel, [basis.beta, basis.gamma], free=2).ok)
