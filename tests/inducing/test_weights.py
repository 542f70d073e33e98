"""Weights as inducing variables, and the kernel of weights with a full prior covariance, against
weight space in numpy.
"""

from __future__ import annotations

import copy

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.utilities import print_summary, set_trainable
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.inducing import LinearWeights, Weights
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo
from tests.reference import generalised_linear as glm
from tests.reference.cases import spd

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
ONES = np.ones((12, 1))
S = spd(np.random.default_rng(1), 3)
V = np.array([0.5, 2.0, 1.5])
BROAD = 1e4
KERNELS = {  # name: (kernel, prior covariance, the columns that the weights multiply)
    "one variance": (lambda: gpflow.kernels.Linear(0.7), 0.7 * np.eye(3), X),
    "variances": (lambda: gpflow.kernels.Linear(V), np.diag(V), X),
    "two columns": (
        lambda: gpflow.kernels.Linear(V[:2], active_dims=[2, 0]),
        np.diag(V[:2]),
        X[:, [2, 0]],
    ),
    "full": (lambda: LinearWeights(S), S, X),
    "full, two columns": (
        lambda: LinearWeights(S[:2, :2], active_dims=[1, 2]),
        S[:2, :2],
        X[:, 1:],
    ),
    "intercept": (
        lambda: gpflow.kernels.Linear(V) + gpflow.kernels.Constant(3.0),
        np.diag([*V, 3.0]),
        np.hstack([X, ONES]),
    ),
    "broad intercept first": (
        lambda: gpflow.kernels.Bias(BROAD) + LinearWeights(S),
        np.block([[BROAD * np.eye(1), np.zeros((1, 3))], [np.zeros((3, 1)), S]]),
        np.hstack([ONES, X]),
    ),
    "intercept, one variance": (
        lambda: gpflow.kernels.Linear(0.7) + gpflow.kernels.Constant(3.0),
        np.diag([0.7, 0.7, 0.7, 3.0]),
        np.hstack([X, ONES]),
    ),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


@every_kernel
def test_covariances_are_the_prior_and_its_product_with_the_inputs(name):
    make, covariance, columns = KERNELS[name]
    kernel, weights = make(), Weights(len(covariance))
    expected = glm.inducing_matrices(np.linalg.inv(covariance), columns)
    assert_allclose(Kuu(weights, kernel), expected[0], rtol=1e-9, atol=1e-12)
    assert_allclose(
        Kuu(weights, kernel, jitter=0.5), covariance + 0.5 * np.eye(len(covariance)), rtol=1e-12
    )
    assert_allclose(Kuf(weights, kernel, X), expected[1], rtol=1e-9, atol=1e-12)
    assert_allclose(kernel(X, full_cov=False), expected[2], rtol=1e-9)
    assert_allclose(kernel(X), columns @ covariance @ columns.T, rtol=1e-10, atol=1e-12)
    batches = tf.reshape(tf.constant(X), [2, 6, 3])
    assert_allclose(
        np.reshape(Kuf(weights, kernel, batches), [-1, 12]), expected[1], rtol=1e-9, atol=1e-12
    )


def test_kernel_of_a_full_prior_between_two_sets_and_in_batches():
    kernel = LinearWeights(S)
    other = np.random.default_rng(2).normal(size=(2, 5, 3))
    expected = np.einsum("np,pq,bmq->nbm", X, S, other)
    assert_allclose(kernel(X, other), expected, rtol=1e-12)
    assert_allclose(kernel(other), np.einsum("bnp,pq,bmq->bnm", other, S, other), rtol=1e-12)
    assert_allclose(
        kernel(other, full_cov=False), np.einsum("bnp,pq,bnq->bn", other, S, other), rtol=1e-12
    )
    assert_allclose(kernel.covariance, S, rtol=1e-12)
    assert_allclose(LinearWeights(np.diag(V))(X), gpflow.kernels.Linear(V)(X), rtol=1e-12)


def test_a_given_prior_is_trained_only_when_asked():
    kernel = LinearWeights(S)
    assert not kernel.trainable_variables
    set_trainable(kernel, True)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(Kuu(Weights(3), kernel))
    assert np.all(np.isfinite(tape.gradient(value, kernel.trainable_variables[0])))


def _posterior(model: BasisGP) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of q(w)."""
    state = model.basis.factor(model.kernel)
    root = state.chol.numpy()[0] @ state.root.numpy()[0]
    return state.chol.numpy()[0] @ state.mean.numpy()[:, 0], root @ root.T


@every_kernel
def test_inference_is_exact_in_weight_space(name):
    """Bayesian linear regression in one step: jitter on the prior would show at 1e-6 and more."""
    make, covariance, columns = KERNELS[name]
    y, noise = np.random.default_rng(3).normal(size=(12, 1)), 0.3
    basis = CoupledBasis(Weights(len(covariance)))
    model = BasisGP(make(), gpflow.likelihoods.Gaussian(noise), basis, num_data=12)
    NaturalGradient(1.0).minimize(model, (X, y))
    exact = np.linalg.inv(np.linalg.inv(covariance) + columns.T @ columns / noise)
    mean, cov = _posterior(model)
    assert_allclose(mean, exact @ columns.T @ y[:, 0] / noise, rtol=1e-9)
    assert_allclose(cov, exact, rtol=1e-9, atol=1e-12)
    evidence = glm.log_evidence(
        np.linalg.inv(covariance), np.zeros(len(covariance)), columns, y[:, 0], noise
    )
    assert_allclose(model.elbo((X, y)), evidence, rtol=1e-9)
    assert_allclose(collapsed_elbo(model, (X, y)), evidence, rtol=1e-9)
    new = np.random.default_rng(4).normal(size=(3, 3))
    f, var = model.predict_f(new, full_cov=True)
    A = np.linalg.solve(covariance, np.asarray(Kuf(Weights(len(covariance)), model.kernel, new)))
    assert_allclose(f[:, 0], A.T @ mean, rtol=1e-9, atol=1e-12)
    assert_allclose(var[0], A.T @ exact @ A, rtol=1e-7, atol=1e-10)


def test_svgp_of_gpflow_takes_weights():
    y = np.random.default_rng(3).integers(0, 2, size=(12, 1)).astype(float)
    kernel = gpflow.kernels.Linear(V) + gpflow.kernels.Constant(3.0)
    nodes = gpflow.quadrature.NDiagGHQuadrature(1, 200)  # 20 are off by 0.03 nats
    likelihood = gpflow.likelihoods.Bernoulli(quadrature=nodes)
    svgp = gpflow.models.SVGP(kernel, likelihood, Weights(4), num_data=12)
    svgp.q_mu.assign(RNG.normal(size=(4, 1)))
    model = BasisGP(
        kernel,
        svgp.likelihood,
        CoupledBasis(Weights(4), q_mu=svgp.q_mu, q_sqrt=svgp.q_sqrt),
        num_data=12,
    )
    assert_allclose(
        svgp.elbo((X, y)), model.elbo((X, y)), rtol=1e-5
    )  # GPflow's has jitter on the prior
    assert_allclose(svgp.predict_f(X)[1], model.predict_f(X)[1], rtol=1e-5)


def test_latents_with_priors_of_their_own():
    kernel = gpflow.kernels.SeparateIndependent([gpflow.kernels.Linear(V), LinearWeights(S)])
    weights = gpflow.inducing_variables.SharedIndependentInducingVariables(Weights(3))
    model = BasisGP(kernel, gpflow.likelihoods.Gaussian(0.3), CoupledBasis(weights, 2), num_data=12)
    Y = np.random.default_rng(3).normal(size=(12, 2))
    NaturalGradient(1.0).minimize(model, (X, Y))
    expected = sum(
        glm.log_evidence(np.linalg.inv(prior), np.zeros(3), X, y, 0.3)
        for prior, y in zip((np.diag(V), S), Y.T)
    )
    assert_allclose(model.elbo((X, Y)), expected, rtol=1e-10)


def test_weights_of_one_model_can_be_copied_and_shown(capsys):
    model = BasisGP(
        LinearWeights(S), gpflow.likelihoods.Gaussian(), CoupledBasis(Weights(3)), num_data=12
    )
    assert copy.deepcopy(model).basis.beta.num_weights == 3
    print_summary(model)
    assert "scale_tril" in capsys.readouterr().out
    assert int(Weights(np.int64(3)).num_inducing) == 3


LINEAR = gpflow.kernels.Linear
BAD_COVARIANCES = {
    "a vector": (
        V,
        (
            r"covariance has shape \[3\]; it must be \[p,"
            r" p\].*gpflow.kernels.Linear\(variance=variances\)"
        ),
    ),
    "not square": (S[:2], r"covariance has shape \[2, 3\]"),
    "empty": (np.zeros((0, 0)), r"covariance has shape \[0, 0\]"),
    "NaN": (
        np.where(np.eye(3), np.nan, S),
        "covariance has 3 entries that are NaN or infinite: repair them",
    ),
    "not symmetric": (
        np.tril(S),
        r"covariance is not symmetric: \[\d, \d\] is .*pass 0.5 \* \(S \+ S.T\)",
    ),
    "indefinite": (
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        (
            r"covariance \(2 x 2\) is not positive definite: its smallest eigenvalue is -1\."
            r" .*numpy.eye\(p\)"
        ),
    ),
    "singular": (np.zeros((2, 2)), "not positive definite: its smallest eigenvalue is 0"),
}


@pytest.mark.parametrize("case", BAD_COVARIANCES)
def test_what_is_no_covariance_is_refused(case):
    covariance, message = BAD_COVARIANCES[case]
    with pytest.raises(DataError, match=message):
        LinearWeights(covariance)


def test_rounding_does_not_make_a_covariance_unsymmetric():
    assert_allclose(LinearWeights(S + 1e-12 * np.triu(np.ones((3, 3)))).covariance, S, rtol=1e-9)


BAD_USES = {
    "no weights": (
        lambda: Weights(0),
        DataError,
        "num_weights=0 must be a whole number of at least 1",
    ),
    "a matrix": (lambda: Weights(S), DataError, "must be a whole number"),
    "a bool": (lambda: Weights(True), DataError, "must be a whole number"),
    "too few": (
        lambda: Kuu(Weights(2), LINEAR(V)),
        DataError,
        r"Weights\(2\) does not fit the kernel, which has 3 weights",
    ),
    "too many": (lambda: Kuf(Weights(4), LinearWeights(S), X), DataError, "which has 3 weights"),
    "none left": (
        lambda: Kuu(Weights(1), LINEAR() + gpflow.kernels.Constant()),
        DataError,
        r"Weights\(1\) does not fit the kernel, which has 1 or more weights",
    ),
    "ambiguous": (
        lambda: Kuu(Weights(4), LINEAR() + LINEAR(active_dims=[0])),
        DataError,
        "give all but one of them one variance per column",
    ),
    "other inputs": (
        lambda: Kuf(Weights(2), LINEAR(), X),
        DataError,
        "X has 3 columns for 2 weights: pass the X",
    ),
    "polynomial": (
        lambda: Kuu(Weights(3), gpflow.kernels.Polynomial()),
        NotImplementedError,
        (
            "Polynomial is not their kernel; use gpflow.kernels.Linear, LinearWeights,"
            " gpflow.kernels.Constant"
        ),
    ),
    "stationary": (
        lambda: Kuf(Weights(3), LINEAR(V) + gpflow.kernels.Matern32(), X),
        NotImplementedError,
        "Matern32 is not their kernel",
    ),
}


@pytest.mark.parametrize("case", BAD_USES)
def test_what_does_not_fit_is_refused(case):
    use, error, message = BAD_USES[case]
    with pytest.raises(error, match=message):
        use()
