"""The evidence on arrays equals the one that TensorFlow computes, with its gradient."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import kernels as gk
from gpflow.likelihoods import Gaussian

import gpflow_decoupled as gd
from gpflow_decoupled.optimizers.array_evidence import array_evidence
from gpflow_decoupled.optimizers.log_coordinates import LogCoordinates
from gpflow_decoupled.training.stages.evidence_climb import EvidenceClimb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(25, 2))
Y = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1]], axis=1) + 0.1 * RNG.normal(size=(25, 2))


def _composite() -> gk.Kernel:
    trend = gk.SquaredExponential(active_dims=[1]) * gk.Linear(variance=[1.0, 0.5])
    return trend + gk.Constant(2.0) + gk.White(0.1) + gk.Linear(0.3)


def _held() -> gk.Kernel:
    kernel = gk.Matern52(lengthscales=[1.0, 2.0])
    gpflow.set_trainable(kernel.variance, False)
    return kernel


CASES = {
    "columns": (gk.Matern52(lengthscales=[1.0, 2.0]), None, Gaussian(0.1)),
    "a sum of products": (
        _composite(), gpflow.functions.Constant(np.array([0.1, 0.3])), Gaussian([0.1, 0.2]),
    ),
    "a scale": (gk.Matern32(), gpflow.functions.Constant(0.2), Gaussian(scale=0.3)),
    "held": (_held(), None, Gaussian(0.1)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_evidence_on_arrays(case: str) -> None:
    kernel, mean, likelihood = (gpflow.utilities.deepcopy(part) for part in CASES[case])
    model = gd.models.CVIGP((X, Y), kernel, likelihood, mean_function=mean)
    climb = EvidenceClimb(model, 10, compile=False)
    assert climb.on_arrays is not None
    x = climb.objective.coordinates.pack() + 0.1
    value, gradient = climb.objective(x)
    ours = climb.on_arrays(x)
    assert ours[0] == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(ours[1], gradient, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "kernel, mean, noise",
    [
        (gk.Matern12(), None, Gaussian()),
        (gk.Matern52() * gk.Cosine(), None, Gaussian()),
        (gk.Matern52(), gpflow.functions.Linear(np.ones((2, 2))), Gaussian()),
        (gk.Matern52(), None, Gaussian(gpflow.functions.Constant(0.1))),
        (gk.SharedIndependent(gk.Matern52(), 2), None, Gaussian()),
    ],
)
def test_other_parts_stay_with_tensorflow(kernel, mean, noise) -> None:
    model = gd.models.CVIGP((X, Y), kernel, noise, mean_function=mean)
    assert array_evidence(model, LogCoordinates(model.trainable_parameters)) is None
