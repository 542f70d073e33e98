"""Accurate expectations, against sums over many nodes."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.diagnostics.accuracy import accurate_expectations
from gpflow_decoupled.likelihoods.row_likelihood import nodes_of, with_nodes

N = 7
X = np.zeros((N, 1))
MEAN = np.linspace(-2.0, 3.0, N)[:, None]
VARIANCE = np.array([0.0001, 0.04, 1.0, 2.0, 9.0, 0.5, 25.0])[:, None]
REAL = np.array([-1.0, 0.3, 2.0, 0.0, 1.0, 1.0, -4.0])[:, None]
BINARY = 1.0 * (REAL > 0)
CASES = {
    "Student-t": (lambda: gl.StudentT(0.01), REAL),
    "probit": (gl.Bernoulli, BINARY),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), BINARY),
    "Laplace": (lambda: own.Laplace(0.01), REAL),
    "Beta": (gl.Beta, np.clip(0.5 + 0.1 * REAL, 0.1, 0.9)),
    "Poisson": (lambda: gl.Poisson(invlink=tf.nn.softplus), np.abs(np.round(REAL))),
    "switched": (
        lambda: gl.SwitchedLikelihood([gl.StudentT(0.1), gl.Gaussian(0.5)]),
        np.hstack([REAL, BINARY]),
    ),
}


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("name", CASES)
def test_accurate_expectations(name):
    make, Y = CASES[name]
    found = accurate_expectations(make(), *(tf.constant(part) for part in (X, MEAN, VARIANCE, Y)))
    z = np.linspace(-9.0, 9.0, 60_001)
    weights = np.exp(-0.5 * z**2)
    stable = own.BernoulliLogit() if name == "logit" else make()
    for n in range(N):
        f = MEAN[n] + np.sqrt(VARIANCE[n]) * z[:, None]
        values = stable.log_prob(np.zeros((len(z), 1)), f, np.tile(Y[n], (len(z), 1))).numpy()
        assert_allclose(found[n], values @ weights / weights.sum(), rtol=2e-6, atol=2e-6)


def test_several_latents_take_twice_the_nodes():
    likelihood = gl.HeteroskedasticTFPConditional(tfp.distributions.Normal, tfp.bijectors.Exp())
    mean, variance = np.hstack([MEAN, 0.3 * MEAN]), np.hstack([VARIANCE, 0.1 * VARIANCE])
    where = [tf.constant(part) for part in (X, mean, variance, REAL)]
    expected = with_nodes(likelihood, 41).variational_expectations(*where)
    assert_allclose(accurate_expectations(likelihood, *where), expected, rtol=1e-12)
    classes = gl.MultiClass(3)
    where = [
        tf.constant(part)
        for part in (X, np.hstack([MEAN, -MEAN, 0 * MEAN]), np.tile(VARIANCE, 3), BINARY)
    ]
    finer = gl.MultiClass(3)
    finer.num_gauss_hermite_points = 41
    assert_allclose(
        accurate_expectations(classes, *where), finer.variational_expectations(*where), rtol=1e-12
    )
    assert classes.num_gauss_hermite_points == 20, "the likelihood itself is as before"


def test_likelihoods_without_nodes():
    where = [tf.constant(part) for part in (X, MEAN, VARIANCE, BINARY)]
    assert accurate_expectations(gl.Softmax(1), *where) is None and nodes_of(gl.Softmax(1)) is None
    assert with_nodes(gl.Softmax(1), 50).num_monte_carlo_points == 100
    likelihood = gl.StudentT(0.5, quadrature=gpflow.quadrature.NDiagGHQuadrature(1, 33))
    assert (
        nodes_of(likelihood) == 33
        and nodes_of(with_nodes(likelihood, 50)) == 50
        and nodes_of(likelihood) == 33
    )
    assert with_nodes(likelihood, 50).scale is likelihood.scale


def test_a_rule_of_many_nodes_is_not_compared_to_its_loss():
    """Beyond 300 nodes their weights underflow, so that 200 are checked by 100; these are not more
    accurate.
    """
    likelihood = with_nodes(gl.MultiClass(2), 200)
    narrow = np.full_like(VARIANCE, 1e-6)  # p(y | f) is a step, which no rule resolves
    moments = np.hstack([MEAN, MEAN + 0.3]), np.hstack([VARIANCE, narrow])
    labels = BINARY
    found = accurate_expectations(likelihood, *map(tf.constant, (X, *moments, labels)))
    assert (
        np.max(
            np.abs(
                found - with_nodes(likelihood, 100).variational_expectations(X, *moments, labels)
            )
        )
        > 1e-6
    )
    assert_allclose(found, likelihood.variational_expectations(X, *moments, labels), rtol=1e-14)
