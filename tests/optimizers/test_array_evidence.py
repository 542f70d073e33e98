"""The evidence on arrays equals the one that TensorFlow computes, with its gradient."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import kernels as gk
from gpflow.likelihoods import Gaussian

import gpflow_decoupled as gd
from gpflow_decoupled.models.neighbours.evidence import log_evidence_of
from gpflow_decoupled.optimizers.array_evidence import array_evidence
from gpflow_decoupled.optimizers.log_climb import LogCoordinates, LogObjective
from gpflow_decoupled.training.stages.sites import EvidenceClimb

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


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_the_evidence_on_arrays(case: str) -> None:
    kernel, mean, likelihood = (gpflow.utilities.deepcopy(part) for part in CASES[case])
    model = gd.models.CVIGP((X, Y), kernel, likelihood, mean_function=mean)
    climb = EvidenceClimb(model, 10, compile=False)
    assert climb.on_arrays is not None
    x = climb.coordinates.pack() + 0.1
    density = log_evidence_of(model, model.data)
    value, gradient = LogObjective.of_model(model, climb.coordinates.variables, density)(x)
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


def test_the_prior_variance_keeps_its_digits_beside_the_noise() -> None:
    """Coordinates that change the prior variance may rise, together, to 1e10 of the noise."""
    kernel = gk.Matern52(2.0) * gk.Matern32(3.0)
    model = gd.models.CVIGP((X, Y), kernel, Gaussian(0.1))
    climb = EvidenceClimb(model, 10, compile=False)
    assert climb.on_arrays is not None
    x = climb.coordinates.pack()
    rise = climb.on_arrays.rise()
    variances = np.isfinite(rise)
    assert np.sum(variances) == 2  # of five coordinates
    climb.coordinates.assign(x + np.where(variances, rise, 0.0))
    noise = 1e-6 + (0.1 - 1e-6) * np.exp(-24.0)  # the least that a climb reaches
    assert np.max(kernel(X, full_cov=False)) == pytest.approx(1e10 * noise, rel=1e-6)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.*has a range of")
def test_a_second_climb_goes_no_further_where_there_is_no_noise() -> None:
    """It ended nats higher, with an evidence of round-off and variances of f below zero."""
    rng = np.random.default_rng(3)
    few = rng.uniform(size=(90, 2))
    smooth = few[:, :1] ** 3 - few[:, 1:] ** 2 + few[:, :1] * few[:, 1:]
    model = gd.build(few, smooth, verbose=False)
    first, second = (gd.fit(model, progress=False) for _ in range(2))
    assert first.reason == second.reason == "converged"
    assert second.elbo == pytest.approx(first.elbo, abs=1e-2)
    assert second.elbo == pytest.approx(float(model.elbo()), abs=1e-2)
    mean, variance = model.predict_f(rng.uniform(size=(500, 2)))
    assert np.min(variance) > 0.0
