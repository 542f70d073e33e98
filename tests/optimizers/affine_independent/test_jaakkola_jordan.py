"""The local bound for logit likelihoods: against numpy, below the Gaussian KL bound, on the models
of both families.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose
from scipy.special import log_expit

from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit, Laplace
from gpflow_decoupled.models import CVIGP, LCLGP, ODVGP, AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent, JaakkolaJordan
from tests.reference import affine_model as ref

tfd = tfp.distributions
X = np.array([[-1.0], [0.2], [0.9]])
Y = np.array([[1.0], [0.0], [1.0]])
MEAN = gpflow.functions.Constant(0.4)


def matern() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(variance=3.0)


def make(kind: str, likelihood: gpflow.likelihoods.Likelihood | None = None):
    likelihood = BernoulliLogit() if likelihood is None else likelihood
    if kind == "sites":
        return CVIGP((X, Y), matern(), likelihood, mean_function=MEAN)
    return AffineIndependentGP((X, Y), matern(), likelihood, mean_function=MEAN)


def evidence() -> float:
    """log p(y) of the three points, by Gauss-Legendre nodes in whitened f."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    w = 8.0 * np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    volume = 512.0 * np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    f = 0.4 + w @ np.linalg.cholesky(matern()(X).numpy()).T
    log_p = np.sum(log_expit((2.0 * Y[:, 0] - 1.0) * f), axis=1)
    log_p -= 0.5 * np.sum(w**2 + np.log(2.0 * np.pi), axis=1)
    return float(np.log(volume @ np.exp(log_p)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["weights", "sites"])
def test_three_points(kind):
    """JJ <= VB <= log p(y); the local bound and its xi are numpy's, which climbs (C39) itself."""
    model, K = make(kind), matern()(X).numpy()
    result = JaakkolaJordan(tolerance=1e-13).run(model)
    bound, xi = ref.jaakkola_jordan(K, np.full(3, 0.4), Y[:, 0])
    assert_allclose(result.elbo, bound, atol=1e-5)  # the jitter of the weights' factor
    mean, variance = model.predict_f(X)
    assert_allclose(np.sqrt(mean**2 + variance)[:, 0], xi, rtol=1e-4)
    assert np.all(np.diff(result.history["elbo"]) >= -1e-12)
    assert result.converged and result.reason == "converged"
    assert result.steps == len(result.history["step"]) == result.history["step"][-1]
    assert result.elbo + 1e-3 < float(model.elbo()) < evidence()
    if kind == "weights":
        AffineIndependentAscent(tolerance=1e-9).run(model)  # its base is normal now
        assert result.elbo + 1e-2 < float(model.elbo()) < evidence()


@pytest.mark.exhaustive
@pytest.mark.parametrize("structure", ["full", "lu"])
def test_linear_models(structure):
    """More weights than labels, so that K is regular; every structure can represent the q that is
    found.
    """
    rng = np.random.default_rng(0)
    inputs, labels = 2.0 * rng.normal(size=(4, 5)), np.array([[1.0], [0.0], [0.0], [1.0]])
    model = AffineIndependentGLM(
        (inputs, labels), BernoulliLogit(), intercept=False, structure=structure
    )
    result = JaakkolaJordan(tolerance=1e-13).run(model)
    bound, xi = ref.jaakkola_jordan(inputs @ inputs.T, np.zeros(4), labels[:, 0])
    assert_allclose(result.elbo, bound, atol=1e-8)
    mean, variance = model.predict_f(inputs)
    assert_allclose(np.sqrt(mean**2 + variance)[:, 0], xi, rtol=1e-4)
    assert model.basis.base.name == "normal" and float(model.elbo()) > result.elbo


def test_inducing_points():
    """(C39) as the expected local bounds less the divergence, f with the variance that the points
    leave.
    """
    data = np.linspace(-2.0, 2.0, 7)[:, None]
    labels = (np.cos(2.0 * data) > 0.0).astype(float)
    model = AffineIndependentGP(
        (data, labels), matern(), BernoulliLogit(), inducing_variable=data[::3].copy()
    )
    result = JaakkolaJordan(tolerance=1e-13).run(model)
    mean, variance = (part.numpy() for part in model.predict_f(data))
    xi = np.sqrt(mean**2 + variance)
    local = log_expit(xi) - 0.5 * xi + (labels - 0.5) * mean
    assert_allclose(result.elbo, np.sum(local) - model.basis.divergence(), atol=1e-8)
    basis, tau = model.basis, np.tanh(0.5 * xi) / (2.0 * xi)
    state = basis.factor(model.kernel)
    phi = basis.whitened_features(state, model.kernel, tf.constant(data)).numpy()
    covariance = np.linalg.inv(np.eye(3) + phi.T @ (tau * phi))
    assert_allclose(basis.matrix().numpy() @ basis.matrix().numpy().T, covariance, atol=1e-6)
    assert_allclose(basis.b, covariance @ phi.T @ (labels[:, 0] - 0.5), atol=1e-6)


def test_both_logits_and_steps_that_run_out():
    bounds = [
        JaakkolaJordan(max_steps=1).run(make("weights", likelihood))
        for likelihood in (BernoulliLogit(), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid))
    ]
    assert bounds[0].elbo == bounds[1].elbo
    assert (bounds[0].steps, bounds[0].reason) == (1, "steps done")
    xi = np.full(3, np.sqrt(3.16))
    first = ref.jaakkola_jordan_bound(matern()(X).numpy(), np.full(3, 0.4), Y[:, 0], xi)
    assert_allclose(bounds[0].elbo, first, atol=1e-5)  # at the xi of the prior


GLM = np.random.default_rng(1).normal(size=(3, 2)), Y
MIXED = gpflow.kernels.LinearCoregionalization
OTHER = "JaakkolaJordan takes a model of .*AffineIndependentGP or CVIGP.*"
REFUSED = {
    "labels of 0 and 1 with a logistic link.*BernoulliProbit": (
        lambda: make("weights", BernoulliProbit())
    ),
    "logistic link": lambda: make("weights", gpflow.likelihoods.Bernoulli()),
    "the likelihood is Laplace": lambda: make("sites", Laplace()),
    "for a Gaussian prior": (
        lambda: AffineIndependentGLM(GLM, BernoulliLogit(), prior=tfd.Laplace(0.0, 1.0))
    ),
    "mixes them": lambda: CVIGP(
        (X, np.c_[Y, Y]), MIXED([matern()], W=np.ones((2, 1))), BernoulliLogit()
    ),
    f"{OTHER}got LCLGP.*LinearlyConstrainedLagrangian": (
        lambda: LCLGP((X, Y), matern(), BernoulliLogit())
    ),
    f"{OTHER}got ODVGP.*NaturalGradient": (
        lambda: ODVGP(matern(), BernoulliLogit(), X.copy(), X[:1] + 0.5, num_data=3)
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    refused = REFUSED[message]()
    before = [parameter.numpy() for parameter in refused.parameters]
    with pytest.raises((DataError, ModelError), match=message):
        JaakkolaJordan().run(refused)
    for parameter, held in zip(refused.parameters, before):
        assert_allclose(parameter, held)


@pytest.mark.parametrize("options", [{"tolerance": 0.0}, {"max_steps": 0}])
def test_settings_are_checked(options):
    with pytest.raises(DataError, match="must be a (whole )?number"):
        JaakkolaJordan(**options)
