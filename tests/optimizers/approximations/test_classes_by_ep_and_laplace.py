"""Class labels by EP and by Laplace's approximation: the dense references, and refusals."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import Binomial, CategoricalLogit
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    ExpectationPropagation,
    LaplaceApproximation,
)
from tests.reference import classes as ref

N, C = 6, 3
X = np.random.default_rng(0).uniform(-2.0, 2.0, (N, 2))
LABELS = np.argmax(np.sin(2.0 * X[:, :1] + 2.1 * np.arange(C)), axis=1)


def model(rows: int = N, variance: float = 1.3) -> CVIGP:
    """A kernel for each class."""
    kernels = [gpflow.kernels.Matern52(variance * (1.0 + 0.5 * c), 0.8) for c in range(C)]
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    Y = LABELS[:rows, None].astype(float)
    return CVIGP((X[:rows], Y), kernel, CategoricalLogit(C), num_latent_gps=C)


def grams(one: CVIGP) -> np.ndarray:
    return np.array([np.asarray(kernel(one.data[0])) for kernel in one.kernel.kernels])


@pytest.mark.exhaustive
@pytest.mark.parametrize("variance", [1.3, 10.0])
def test_the_mode_and_its_evidence(variance: float) -> None:
    one = model(variance=variance)
    result = LaplaceApproximation().run(one)
    expected = ref.mode(grams(one), LABELS)
    assert result.converged and result.steps <= 15
    assert result.evidence_estimate == pytest.approx(expected.evidence, rel=1e-9)
    mean, variances = one.predict_f(X)
    assert_allclose(mean, expected.f, atol=1e-7)
    # independent latents have the diagonal of the curvature, and no more than the joint's variances
    joint = np.diag(expected.covariance).reshape(C, N).T
    assert np.all(variances <= joint + 1e-9) and np.all(variances >= 0.5 * joint)
    assert result.elbo <= result.evidence_estimate + 1.0


@pytest.mark.exhaustive
def test_moments_are_those_of_one_observation_after_the_other() -> None:
    one = model()
    result = ExpectationPropagation().run(one)
    expected = ref.propagate(grams(one), LABELS)
    assert result.converged
    assert result.evidence_estimate == pytest.approx(expected.evidence, rel=1e-7)
    for mine, theirs in zip(one.predict_f(X), (expected.mean, expected.variance)):
        assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:There is one observation")
def test_one_observation_is_exact() -> None:
    """Its marginals and evidence are those of the prior times the softmax."""
    one = model(rows=1)
    result = ExpectationPropagation().run(one)
    prior = grams(one)[:, 0, 0]
    log_mass, mean, variance = ref.tilted(int(LABELS[0]), np.zeros(C), prior, nodes=40)
    assert result.evidence_estimate == pytest.approx(log_mass, rel=1e-7)
    found = one.predict_f(X[:1])
    assert_allclose(found[0][0], mean, rtol=1e-6)
    assert_allclose(found[1][0], variance, rtol=1e-6)
    # the bound is below
    assert ConjugateComputation().run(model(rows=1)).elbo < log_mass


def test_a_power_is_refused() -> None:
    with pytest.raises(DataError, match=r"power=0.5 has no tilted moments.*power=1.0"):
        ExpectationPropagation(0.5).run(model())


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [ExpectationPropagation, LaplaceApproximation])
@pytest.mark.filterwarnings("ignore:There is one observation")
def test_a_column_of_trials_is_no_latent(kind: type) -> None:
    """Of one label of three trials, all successes, the density counts once."""
    Y = np.array([[3.0, 3.0]])
    one = CVIGP((X[:1], Y), gpflow.kernels.Matern52(1.3), Binomial(), num_latent_gps=1)
    result = kind().run(one)
    f = np.linspace(-12.0, 12.0, 4001)
    joint = -0.5 * f**2 / 1.3 - 3.0 * np.log1p(np.exp(-f)) - 0.5 * np.log(2.0 * np.pi * 1.3)
    if kind is ExpectationPropagation:
        expected = np.log(np.sum(np.exp(joint)) * (f[1] - f[0]))
        assert result.evidence_estimate == pytest.approx(expected, rel=1e-6)
    else:
        assert_allclose(one.predict_f(X[:1])[0], [[f[np.argmax(joint)]]], atol=0.01)
