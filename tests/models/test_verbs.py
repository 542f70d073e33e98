"""Every model answers GPflow's verbs, with GPflow's shapes, for every likelihood, in float64 and
float32.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import ODVGP, SOLVEGP, BasisGP
from tests.bounds.registry import matern
from tests.models.builders import BETA, GAMMA, LIKELIHOODS, MODELS, N, X, build

PAIRS = [("ODVGP", likelihood) for likelihood in LIKELIHOODS]
PAIRS += [
    (model, likelihood)
    for model in MODELS
    if model != "ODVGP"
    for likelihood in ("Gaussian", "MultiClass")
]
FLAGS = [(cov, output) for cov in (False, True) for output in (False, True)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_name, likelihood", PAIRS)
def test_verbs(model_name, likelihood, rng):
    model, data = build(model_name, likelihood)
    L, Xnew, Y = model.num_latent_gps, rng.normal(size=(3, 2)), data[1]
    elbo = model.elbo(data)
    assert elbo.shape == () and np.isfinite(elbo)
    assert_allclose(
        model.maximum_log_likelihood_objective(data),
        elbo,
        rtol=0.5 if likelihood == "Softmax" else 1e-12,
    )
    loss = model.training_loss_closure(data, compile=False)
    assert_allclose(
        loss(), -model.log_prior_density() - elbo, rtol=0.5 if likelihood == "Softmax" else 1e-12
    )
    mean, variance = model.predict_f(Xnew)
    assert mean.shape == variance.shape == (3, L) and np.all(variance > 0)
    samples = model.predict_f_samples(Xnew, 4)
    assert samples.shape == (4, 3, L) and np.all(np.isfinite(samples))
    for left, right in zip(model.posterior().predict_f(Xnew), (mean, variance)):
        assert_allclose(left, right, rtol=1e-10)
    density = model.predict_log_density((Xnew, Y[:3]))
    assert density.shape == (3,) and np.all(np.isfinite(density))
    if likelihood != "Switched":  # GPflow's own cannot: no task is given
        y_mean, y_variance = model.predict_y(Xnew)
        assert y_mean.shape[0] == y_variance.shape[0] == 3
        assert np.all(np.isfinite(y_mean)) and np.all(y_variance > 0)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_bound_and_predictions_agree(name, rng):
    """Over all verbs: one likelihood, one mean function, one covariance."""
    model, (inputs, Y) = build(name)
    mean, variance = model.predict_f(inputs)
    expected = model.likelihood.variational_expectations(inputs, mean, variance, Y)
    bound = 9 / N * tf.reduce_sum(expected) - model.prior_kl()
    assert_allclose(model.elbo((inputs, Y)), bound, rtol=1e-12)
    y_mean, y_variance = model.predict_y(inputs)
    assert_allclose(y_mean, mean)
    assert_allclose(y_variance, variance + 1.0, rtol=1e-12)
    density = -0.5 * (np.log(2 * np.pi * y_variance) + (Y - y_mean) ** 2 / y_variance)
    assert_allclose(model.predict_log_density((inputs, Y)), np.sum(density, axis=1), rtol=1e-10)
    samples = model.predict_f_samples(inputs, 4000, full_cov=False).numpy()
    assert_allclose(samples.mean(axis=0), mean, atol=5 * np.sqrt(np.max(variance) / 4000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_samples_have_the_joint_covariance(name):
    model, _ = build(name)
    near = X[:1] + np.array([[0.0, 0.0], [0.1, 0.2], [0.3, -0.1]])
    _, cov = model.predict_f(near, full_cov=True)
    assert cov.shape == (2, 3, 3)
    samples = model.predict_f_samples(near, 20000).numpy()
    assert samples.shape == (20000, 3, 2)
    empirical = np.cov(samples[:, :, 1].T)
    assert_allclose(empirical, cov[1], atol=0.05 * np.max(cov[1]))
    assert np.abs(cov[1, 0, 1]) > 0.02


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, full_cov, full_output_cov",
    [("ODVGP", *flags) for flags in FLAGS]
    + [(name, True, True) for name in MODELS if name != "ODVGP"],
)
def test_batches_of_inputs_cached_and_fused(name, full_cov, full_output_cov, rng):
    """Xnew [2, 5, D]: each entry as if alone, with each kind of cache."""
    model, _ = build(name)
    batches = rng.normal(size=(2, 5, 2))
    flags = {"full_cov": full_cov, "full_output_cov": full_output_cov}
    fused = model.predict_f(batches, **flags)
    for kind in ("tensor", "variable"):
        for left, right in zip(model.posterior(kind).predict_f(batches, **flags), fused):
            assert left.shape == right.shape
            assert_allclose(left, right, rtol=1e-10, atol=1e-12)
    each = [model.predict_f(batch, **flags) for batch in batches]
    for part, together in enumerate(fused):
        assert_allclose(together, np.stack([one[part] for one in each]), rtol=1e-9, atol=1e-11)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_float32(name):
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    model, (inputs, Y) = build(name)
    single = (inputs.astype(np.float32), Y.astype(np.float32))
    values = [
        model.elbo(single),
        *model.predict_f(single[0]),
        *model.posterior("tensor").predict_f(single[0]),
    ]
    assert all(value.dtype == tf.float32 for value in values)
    gpflow.config.set_default_float(np.float64)
    double, _ = build(name)
    expected = [double.elbo((inputs, Y)), *double.predict_f(inputs), *double.predict_f(inputs)]
    for left, right in zip(values, expected):
        assert_allclose(left, right, rtol=2e-3, atol=2e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", ["Bernoulli", "Softmax"])
def test_labels_may_be_integers_or_floats(likelihood):
    """GPflow's `Softmax` takes integers only, its other likelihoods floats."""
    model, (inputs, Y) = build("ODVGP", likelihood)
    values = []
    for labels in (Y.astype(np.int64), Y.astype(float)):
        tf.random.set_seed(0)  # `Softmax` samples
        values.append(model.elbo((inputs, labels)))
    assert_allclose(*values)


@pytest.mark.exhaustive
def test_number_of_data_scales_the_expectations_only():
    model, data = build("ODVGP")
    at_nine = float(model.elbo(data) + model.prior_kl())
    model.num_data = 18
    assert_allclose(model.elbo(data) + model.prior_kl(), 2 * at_nine, rtol=1e-12)
    model.num_data = None
    with pytest.warns(UserWarning, match="num_data is not set"):
        assert_allclose(model.elbo(data) + model.prior_kl(), N / 9 * at_nine, rtol=1e-12)


def test_minibatches_without_the_size_of_the_data_are_refused():
    model, data = build("ODVGP")
    batches = iter(tf.data.Dataset.from_tensor_slices(data).repeat().batch(3))
    loss = model.training_loss_closure(batches, compile=False)
    assert loss() != loss()  # another batch each
    model.num_data = None
    with pytest.raises(DataError, match="pass num_data=N"):
        model.training_loss_closure(batches)


def test_priors_enter_the_loss():
    model, data = build("ODVGP")
    before = model.training_loss(data)
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    assert_allclose(model.training_loss(data), before - model.log_prior_density(), rtol=1e-12)
    assert abs(float(model.log_prior_density())) > 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "HDVGP", "DVGP", "SOLVEGP"])
def test_number_of_latents_follows_the_likelihood(name):
    for likelihood, expected in (
        (gl.MultiClass(3), 3),
        (gl.HeteroskedasticTFPConditional(), 2),
        (gl.Gaussian(), 1),
    ):
        assert MODELS[name](matern(1.0, 1.0), likelihood, GAMMA, BETA).num_latent_gps == expected


def test_numbers_of_latents_that_disagree_are_refused():
    with pytest.raises(
        DataError, match="num_latent_gps says 2, the likelihood MultiClass says 3; change one"
    ):
        ODVGP(matern(1.0, 1.0), gl.MultiClass(3), GAMMA, BETA, num_latent_gps=2)
    kernel = gpflow.kernels.SharedIndependent(matern(1.0, 1.0), 2)
    with pytest.raises(DataError, match="the kernel SharedIndependent says 2"):
        SOLVEGP(kernel, gl.MultiClass(3), GAMMA, BETA)
    with pytest.raises(DataError, match="not consistent"):
        BasisGP(matern(1.0, 1.0), gl.MultiClass(3), CoupledBasis(BETA, 1))


@pytest.mark.parametrize("argument", ["q_mu", "q_sqrt"])
def test_initial_values_of_the_wrong_shape_are_refused(argument):
    wrong = {"q_mu": np.zeros((2, 4)), "q_sqrt": np.zeros((4, 4, 2))}[argument]
    with pytest.raises(DataError, match=f"{argument} has shape .* it must be \\[.*M.*\\]"):
        OrthogonalBasis(GAMMA, BETA, 2, **{argument: wrong})


def test_initial_values_are_used_and_parameters_are_shared(rng):
    q_mu, q_sqrt = rng.normal(size=(4, 2)), np.tril(rng.normal(size=(2, 4, 4)))
    basis = OrthogonalBasis(GAMMA, BETA, 2, q_mu=q_mu, q_sqrt=q_sqrt)
    assert_allclose(basis.q_mu, q_mu)
    assert_allclose(basis.q_sqrt, q_sqrt)
    assert CoupledBasis(BETA, 2, q_mu=basis.q_mu, q_sqrt=basis.q_sqrt).q_mu is basis.q_mu
