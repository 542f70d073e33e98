"""The hinge loss: expectations, class probabilities, the bound, and multipliers next to zero."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit, Hinge, site_loss
from gpflow_decoupled.models import CVIGP, LCLGLM, LCLGP, weights_posterior
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian
from tests.reference import lcl_sites as sites

RULE = LinearlyConstrainedLagrangian(tolerance=1e-9, compile=False)
POINTS = [(0.3, 1.2), (-2.0, 0.4), (1.0, 0.7), (5.0, 0.1), (-30.0, 2.0)]


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_expected_log_densities(y):
    """Of the likelihood; those of its site are in `sites/`."""
    for h, sigma in POINTS:
        expected = sites.integral(sites.hinge(y), h, sigma, (2.0 * y - 1.0,))
        moments = np.array([[h]]), np.array([[sigma**2]]), np.array([[y]])
        found = Hinge().variational_expectations(np.zeros((1, 1)), *moments)
        assert_allclose(found, [-expected], rtol=1e-11, atol=1e-13)
        loss = site_loss(Hinge(), np.array([[y]])).value(
            *(tf.constant([[x]], tf.float64) for x in (h, sigma))
        )
        assert_allclose(loss, [[expected]], rtol=1e-11, atol=1e-13)


def test_class_probabilities():
    """p(y | f) of both labels sum to 1, are 1/2 at f = 0, and predictions integrate them."""
    likelihood, f = Hinge(), np.linspace(-6.0, 6.0, 41)[:, None]
    p = likelihood.conditional_mean(f, f).numpy()
    exact = 1.0 / (1.0 + np.exp(sites.hinge(1.0)(f) - sites.hinge(0.0)(f)))
    assert_allclose(p, exact, rtol=1e-12)
    assert_allclose(p + p[::-1], 1.0, rtol=1e-12)
    mean, variance = np.linspace(-3.0, 3.0, 7)[:, None], np.full((7, 1), 1.5)
    predicted, spread = likelihood.predict_mean_and_var(f[:7], mean, variance)
    z = np.linspace(-10.0, 10.0, 20001)
    points = mean + np.sqrt(1.5) * z
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    link = 1.0 / (1.0 + np.exp(sites.hinge(1.0)(points) - sites.hinge(0.0)(points)))
    assert_allclose(predicted[:, 0], link @ density, atol=3e-4)
    assert_allclose(spread, predicted * (1.0 - predicted), rtol=1e-12)
    logs = [
        likelihood.predict_log_density(f[:7], mean, variance, np.full((7, 1), y))
        for y in (0.0, 1.0)
    ]
    assert_allclose(np.sum(np.exp(logs), axis=0), 1.0, atol=1e-12)
    assert_allclose(np.exp(logs[1]), predicted[:, 0], rtol=1e-12)


def test_bound_is_below_the_integral_of_the_pseudo_likelihood():
    """With one weight, by a sum over a grid; and it is that of conjugate computation."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 1))
    Y = 1.0 * (X + 0.5 * rng.normal(size=(8, 1)) > 0.0)
    model = LCLGLM((X, Y), Hinge(), intercept=False)
    bound = RULE.run(model).elbo
    w = np.linspace(-9.0, 9.0, 20001)
    loss = sum(sites.hinge(y)(x * w) for x, y in zip(X[:, 0], Y[:, 0]))
    exact = np.log(np.sum(np.exp(-loss - 0.5 * w**2) / np.sqrt(2.0 * np.pi)) * (w[1] - w[0]))
    assert exact - 0.05 < bound < exact
    other = CVIGP((X, Y), gpflow.kernels.Linear() + gpflow.kernels.White(1e-8), Hinge())
    ConjugateComputation().run(other, tolerance=1e-12)
    assert_allclose(other.elbo(), bound, atol=1e-4)


@pytest.mark.exhaustive
def test_most_multipliers_are_next_to_zero_far_from_the_margin():
    """1000 noisy labels of a line: a quarter of the observations carry the covariance; with a
    logistic link all of them.
    """
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, size=(1000, 2))
    Y = 1.0 * (2.0 * X[:, :1] - X[:, 1:] + 3.0 * rng.normal(size=(1000, 1)) > 0.0)
    shares = []
    for likelihood in (Hinge(), BernoulliLogit()):
        model = LCLGLM((X, Y), likelihood, intercept=False)
        assert LinearlyConstrainedLagrangian(tolerance=1e-6).run(model).converged
        lam = model.basis.lam.numpy()[:, 0]
        shares.append(np.mean(lam > 1e-6 * lam.max()))
        if isinstance(likelihood, Hinge):  # the others do not occur in V = (I + X^T Lambda X)^-1
            carry = lam > 1e-6 * lam.max()
            part = np.linalg.inv(np.eye(2) + X[carry].T @ (lam[carry, None] * X[carry]))
            assert_allclose(weights_posterior(model).covariance, part, rtol=1e-4)
    assert shares[0] < 0.35 and shares[1] == 1.0


@pytest.mark.exhaustive
def test_hard_subproblems_are_made_more_cautious():
    """A run whose Newton steps do not solve a subproblem with theta = 0.1 goes on with 1."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-3.0, 3.0, size=(1000, 2))
    Y = 1.0 * (2.0 * X[:, :1] - X[:, 1:] + rng.normal(size=(1000, 1)) > 0.0)
    prior = tfp.distributions.MultivariateNormalDiag(np.zeros(2), 10.0 * np.ones(2))
    ends = []
    for theta in (0.1, 1.0):
        result = LinearlyConstrainedLagrangian(theta=theta, tolerance=1e-7).run(
            LCLGLM((X, Y), Hinge(), intercept=False, prior=prior)
        )
        assert result.converged
        ends.append(result.elbo)
    assert_allclose(ends[0], ends[1], atol=1e-3)


def test_bad_input():
    X = np.array([[0.0], [1.0]])
    with pytest.raises(DataError, match="outside the support of Hinge, which takes 0 or 1"):
        LCLGP((X, np.array([[1.0], [-1.0]])), gpflow.kernels.Matern52(), Hinge())
    with pytest.raises(DataError, match="theta must be above 0: Hinge needs a penalty"):
        model = LCLGP((X, np.array([[1.0], [0.0]])), gpflow.kernels.Matern52(), Hinge())
        LinearlyConstrainedLagrangian(theta=0.0).run(model)
