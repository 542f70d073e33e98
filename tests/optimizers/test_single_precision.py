"""Full GPs in single precision, where a step near the optimum may lower the bound by round-off."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, LaplaceApproximation


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        yield


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "optimizer", [ConjugateComputation(), LaplaceApproximation()], ids=["sites", "Laplace"]
)
@pytest.mark.parametrize("size", [30, 100])
def test_a_run_converges_in_as_many_steps_as_in_double_precision(optimizer, size):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 3.0, (size, 1)), axis=0).astype(np.float32)
    counts = rng.poisson(np.exp(2.0 * np.sin(3.0 * X))).astype(np.float32)
    found = {}
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        kernel = gpflow.kernels.Matern52(4.0)
        model = CVIGP((X.astype(dtype), counts.astype(dtype)), kernel, gpflow.likelihoods.Poisson())
        found[dtype] = optimizer.run(model)
    assert found[np.float32].converged
    assert found[np.float32].steps <= found[np.float64].steps + 2
    assert found[np.float32].shortened_steps <= found[np.float64].shortened_steps + 1
    assert_allclose(found[np.float32].elbo, found[np.float64].elbo, rtol=1e-4)
