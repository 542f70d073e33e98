"""The mean-field references against each other: evidences by quadrature, optima by a general
optimizer.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import trapezoid
from scipy.optimize import minimize
from scipy.stats import gamma, norm

from . import mean_field as reference

COUNTS = np.array([2, 0, 3, 1, 1])
X = np.array([[1.0, -1.0], [1.0, 0.3], [1.0, 1.1], [1.0, 2.0], [1.0, 0.0]])
Y = np.array([-0.8, 0.2, 1.4, 1.9, -0.1])


def test_gamma_poisson_evidence_is_the_bound_at_the_posterior():
    a, b, evidence = reference.gamma_poisson(COUNTS, 2.0, 0.5)
    rates = np.linspace(1e-6, 30.0, 200001)
    joint = gamma(2.0, scale=2.0).pdf(rates) * np.prod(
        [np.exp(-rates) * rates**y / np.prod(np.arange(1, y + 1)) for y in COUNTS], 0
    )
    assert_allclose(np.log(trapezoid(joint, rates)), evidence, rtol=1e-8)
    assert_allclose(trapezoid(joint * rates, rates) / np.exp(evidence), a / b, rtol=1e-8)


@pytest.mark.exhaustive
def test_normal_gamma_posterior_and_the_divergence_from_it():
    prior = reference.NormalGamma(0.2, 0.5, 2.0, 1.5)
    exact, evidence = reference.normal_gamma(Y, prior)

    m, u = np.meshgrid(np.linspace(-5.0, 5.0, 801), np.linspace(-8.0, 5.0, 801), indexing="ij")
    t = np.exp(u)
    joint = (
        t
        * gamma(prior.a, scale=1 / prior.b).pdf(t)
        * norm(prior.center, (prior.scale * t) ** -0.5).pdf(m)
    )
    for y in Y:
        joint = joint * norm(m, t**-0.5).pdf(y)
    mass = trapezoid(trapezoid(joint, u[0], axis=1), m[:, 0])
    assert_allclose(np.log(mass), evidence, rtol=1e-6)
    rng = np.random.default_rng(0)
    m, t = rng.normal(0.4, 0.3, 200000), rng.gamma(3.0, 1 / 2.0, 200000)
    log_q = norm(0.4, 0.3).logpdf(m) + gamma(3.0, scale=0.5).logpdf(t)
    log_p = norm(exact.center, (exact.scale * t) ** -0.5).logpdf(m) + gamma(
        exact.a, scale=1 / exact.b
    ).logpdf(t)
    gap = log_q - log_p
    found = reference.normal_gamma_divergence(0.4, 0.09, 3.0, 2.0, exact)
    assert abs(found - gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))


def test_message_passing_ends_at_the_best_regression():
    q, prior = reference.Regression(np.zeros(2), np.eye(2), 1.0, 1.0), (0.7, 1.5, 0.4)
    trace = []
    for _ in range(60):
        q = reference.regression_sweep(X, Y, q, *prior)
        trace.append(reference.regression_bound(X, Y, q, *prior))
    assert np.all(np.diff(trace) > -1e-12)

    def loss(x: np.ndarray) -> float:
        root = np.array([[np.exp(x[2]), 0.0], [x[3], np.exp(x[4])]])
        trial = reference.Regression(x[:2], root @ root.T, np.exp(x[5]), np.exp(x[6]))
        return -reference.regression_bound(X, Y, trial, *prior)

    best = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-8})
    assert_allclose(-best.fun, trace[-1], rtol=1e-10)
    assert trace[-1] < reference.regression_evidence(X, Y, *prior) < trace[-1] + 0.5


def test_bounds_of_the_non_conjugate_models_are_below_their_evidence():
    best = reference.best_positive(lambda p: reference.gamma_bound(COUNTS, *p, 0.3, 0.5), 2)
    evidence = reference.gamma_evidence(COUNTS, 0.3, 0.5)
    assert evidence - 0.1 < best[1] < evidence
    best = reference.best_positive(lambda c: reference.beta_bound(3, 10, c, 0.5, 0.8), 2)
    evidence = reference.beta_evidence(3, 10, 0.5, 0.8)
    assert evidence - 0.1 < best[1] < evidence
