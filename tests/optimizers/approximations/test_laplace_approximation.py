"""The mode and its curvature: Algorithm 3.1, a general optimizer, scikit-learn, exact Gaussians."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gpflow_decoupled.likelihoods import BernoulliLogit, RowLikelihood
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import LaplaceApproximation
from tests.models.conjugate_problems import (
    X,
    gram,
    prior_mean,
    sites_on_f,
)
from tests.optimizers.approximations.evidence_problems import (
    CASES,
    evidence_model,
    labels_of,
)
from tests.reference import laplace as la


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_mode_and_evidence_are_those_of_the_reference(name):
    model = evidence_model(name)
    result = LaplaceApproximation().run(model)
    assert result.converged and result.clipped_sites == 0
    setting = gram(model), prior_mean(model), labels_of(model), CASES[name][1]
    if name == "Student-t":  # of several modes the same
        a = model.basis.factor(model.kernel).alpha.numpy()[:, 0]
        expected = la.climb(*setting, a + 0.01)
        assert np.min(model.basis.tau) < 0.0
    else:
        expected = la.newton(*setting)
    assert_allclose(result.evidence_estimate, expected.evidence, rtol=1e-9)
    for found, other in zip(sites_on_f(model), expected.sites):
        assert_allclose(found, other, rtol=1e-6, atol=1e-7)
    assert_allclose(result.elbo, model.elbo(), rtol=1e-10)


@pytest.mark.exhaustive
def test_evidence_and_probabilities_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X_, Y = rng.normal(size=(30, 2)), rng.integers(0, 2, size=30).astype(float)
    model = CVIGP((X_, Y[:, None]), gpflow.kernels.SquaredExponential(4.0, 0.7), BernoulliLogit())
    result = LaplaceApproximation().run(model)
    other = GaussianProcessClassifier(ConstantKernel(4.0) * RBF(0.7), optimizer=None).fit(X_, Y)
    assert_allclose(result.evidence_estimate, other.log_marginal_likelihood_value_, rtol=1e-6)
    Xnew = rng.normal(size=(5, 2))  # its predictions approximate an integral, by three digits
    assert_allclose(model.predict_y(Xnew)[0][:, 0], other.predict_proba(Xnew)[:, 1], atol=3e-3)


@pytest.mark.exhaustive
def test_counts_far_from_the_prior_mean_need_shorter_steps():
    """From f = 0 a Newton step for 1,000 counts ends at a rate of e^1000."""
    model = CVIGP(
        (X, 1000.0 + np.arange(len(X))[:, None]), gpflow.kernels.Matern32(50.0), gl.Poisson()
    )
    result = LaplaceApproximation().run(model)
    assert result.converged and result.shortened_steps > 0


def test_rows_with_weights_offsets_and_gaps() -> None:
    """The mode is stationary and the evidence is that of the dense formula, both in NumPy."""
    x, o, w = np.linspace(0.0, 2.0, 5)[:, None], np.array([[0.5, -1.0, 2.0, 0.0, 0.3]]).T, 0.7
    y = np.array([[3.0, 1.0], [0.0, np.nan], [9.0, 4.0], [2.0, 2.0], [np.nan, 1.0]])
    likelihood = RowLikelihood(gl.Poisson(), ["weight", "offset"])
    kernel = gpflow.kernels.Matern32()
    model = CVIGP((x, np.hstack([y, np.full((5, 1), w), o])), kernel, likelihood)
    result = LaplaceApproximation().run(model)
    u, K, seen = model.predict_f(x)[0].numpy(), kernel(x).numpy(), ~np.isnan(y)
    W = np.where(seen, w * np.exp(u + o), 0.0)
    slopes = np.where(seen, w * np.nan_to_num(y), 0.0) - W
    assert_allclose(u, K @ slopes, atol=1e-7)
    expected = np.sum(w * stats.poisson.logpmf(y, np.exp(u + o))[seen])
    for p in range(2):
        expected -= 0.5 * u[:, p] @ np.linalg.solve(K, u[:, p])
        expected -= 0.5 * np.linalg.slogdet(np.eye(5) + K * W[:, p])[1]
    assert_allclose(result.evidence_estimate, expected, rtol=1e-8)
