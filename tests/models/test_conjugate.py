"""The bound of a full GP with sites: two forms of it, the evidence, and what moves it."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import RowLikelihood
from gpflow_decoupled.likelihoods.row_likelihood import with_nodes
from gpflow_decoupled.models import CVIGP, StateSpaceGP
from gpflow_decoupled.optimizers import ConjugateComputation
from tests.bounds.registry import matern
from tests.models.conjugate_problems import (
    NOISE,
    PROBLEMS,
    W,
    X,
    conjugate_model,
    gram,
    observations,
    posterior_of_latent,
    prior_mean,
    problem,
    random_sites,
    separate,
    sites_on_f,
    student,
    trend,
)
from tests.reference import conjugate as conj
from tests.reference import decoupled as ref
from tests.reference import likelihoods as lik

problems = pytest.mark.parametrize("name", PROBLEMS)
means = pytest.mark.parametrize("with_mean", [False, True], ids=["zero mean", "linear mean"])


@means
@problems
def test_both_forms_of_the_bound_agree(name, with_mean):
    """At sites of any kind, where none of the terms cancels."""
    model = problem(name, with_mean)
    for seed in range(2):
        random_sites(model, seed)
        assert np.any(model.basis.tau.numpy() < 0)
        assert_allclose(model.elbo_of_sites(), model.elbo(), rtol=1e-11)
        assert_allclose(model.maximum_log_likelihood_objective(), model.elbo(), rtol=1e-13)


@means
@problems
def test_bound_is_that_of_the_textbook(name, with_mean):
    """Expectations at the moments of explicit inverses, less the divergence of two Gaussians."""
    model = problem(name, with_mean)
    X_, Y = model.data
    found = [posterior_of_latent(model, latent) for latent in range(model.num_latent_gps)]
    mean = np.stack([u for u, _ in found], axis=1)
    variance = np.stack([np.diag(V) for _, V in found], axis=1)
    if name == "Student-t, coregionalised":
        mean, variance = mean @ W.T, variance @ (W**2).T
    mean = mean + model.mean_function(X_).numpy()
    if name == "Student-t, coregionalised":
        density = conj.student_t(3.0, 0.3)
        expected = [
            conj.trapezoid_expectation(density, y, m, v).value
            for y, m, v in zip(Y.numpy().T, mean.T, variance.T)
        ]
    else:
        # with enough nodes of GPflow's; MultiClass has its own
        likelihood = with_nodes(model.likelihood, 250) if name == "probit" else model.likelihood
        expected = likelihood.variational_expectations(
            X_, tf.constant(mean), tf.constant(variance), Y
        )
    divergence = sum(
        ref.brute_force_kl(u, V, np.zeros(len(u)), gram(model, latent))
        for latent, (u, V) in enumerate(found)
    )
    assert_allclose(model.elbo(), np.sum(expected) - divergence, rtol=1e-10)
    for left, right in zip(model.predict_f(X_), (mean, variance)):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("likelihood, reference", [
    (gl.Poisson(), lik.poisson()),
    (gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit()),
    (gl.Gaussian(NOISE), lik.gaussian(NOISE)),
    (student(), conj.student_t(3.0, 0.3)),
], ids=["Poisson", "logit", "Gaussian", "Student-t"])  # fmt: skip
def test_bound_is_that_of_the_reference(likelihood, reference):
    """Which shares no code, and has its sites on f, prior mean included."""
    model = conjugate_model(likelihood)
    random_sites(model)
    expect = conj.quadrature(reference, model.data[1].numpy()[:, 0])
    if isinstance(likelihood, gl.StudentT):  # the nodes follow it
        labels = model.data[1].numpy()[:, 0]
        expect = conj.quadrature(reference, labels, 4000, conj.trapezoid_expectation)
    for form in (conj.kl_bound, conj.site_bound):
        assert_allclose(
            form(gram(model), prior_mean(model), sites_on_f(model), expect), model.elbo(), rtol=1e-9
        )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "latents, make", [(1, lambda: matern(1.0, 1.0)), (2, lambda: matern(1.0, 1.0)), (2, separate)]
)
def test_bound_of_gaussian_noise_is_the_evidence_at_every_kernel(latents, make, rng):
    """The sites of Gaussian noise know nothing of the kernel, nor of a mean function once they are
    centred on it.
    """
    model = CVIGP((X, rng.normal(size=(len(X), latents))), make(), gl.Gaussian(NOISE))
    ConjugateComputation().minimize(model)
    for _ in range(4):
        for parameter in model.kernel.parameters:
            parameter.assign(rng.uniform(0.2, 3.0))
        evidence = sum(
            conj.log_evidence(
                gram(model, latent), np.zeros(len(X)), model.data[1].numpy()[:, latent], NOISE
            )
            for latent in range(latents)
        )
        assert_allclose(model.elbo(), evidence, rtol=1e-10)
        assert_allclose(model.elbo_of_sites(), evidence, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", [1e-2, 1e-5])
def test_next_to_no_noise_costs_no_digits(noise, rng):
    """nu - tau u would: both are of the size 1 / noise."""
    inputs = rng.uniform(0, 3, size=(30, 2))
    Y = np.sin(3 * inputs[:, :1]) + inputs[:, 1:]
    model = CVIGP((inputs, Y), matern(1.0, 1.0), gl.Gaussian(noise))
    ConjugateComputation().minimize(model)
    exact = gpflow.models.GPR((inputs, Y), model.kernel, likelihood=model.likelihood)
    assert_allclose(model.elbo(), exact.log_marginal_likelihood(), rtol=1e-10)
    for left, right in zip(model.predict_f(X), exact.predict_f(X)):
        assert_allclose(left, right, rtol=1e-9, atol=1e-11)


@pytest.mark.costly(keep=1)
@means
def test_bound_is_below_the_evidence(with_mean, rng):
    """At random sites and kernels, many of them next to the optimum."""
    Y = rng.normal(size=(len(X), 1))
    model = CVIGP(
        (X, Y), matern(1.0, 1.0), gl.Gaussian(NOISE), mean_function=trend(1) if with_mean else None
    )
    elbo, gaps = tf.function(model.elbo, autograph=False), []
    for _ in range(5):
        model.kernel.variance.assign(rng.uniform(0.3, 3.0))
        evidence = conj.log_evidence(gram(model), prior_mean(model), Y[:, 0], NOISE)
        for scale in 10.0 ** rng.uniform(-4, 0, size=30):
            noise = scale * rng.normal(size=(2, len(X), 1))
            model.basis.nu.assign((Y - prior_mean(model)[:, None]) / NOISE + noise[0])
            model.basis.tau.assign(np.exp(noise[1]) / NOISE)
            gaps.append(evidence - float(elbo()))
    assert min(gaps) > -1e-9
    assert min(gaps) < 1e-4  # else the bound could be wrong unnoticed


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson, separate", "Student-t, coregionalised", "multiclass"])
def test_gradients_of_the_bound_are_finite_differences(name):
    """In kernel, mean function and likelihood, with sites of both signs; the sites themselves are
    not trainable.
    """
    model = problem(name)
    variables = list(model.trainable_variables)
    sites = {id(site.unconstrained_variable) for site in (model.basis.nu, model.basis.tau)}
    assert len(variables) >= 4 and not sites & {id(variable) for variable in variables}
    elbo = tf.function(model.elbo, autograph=False)
    with tf.GradientTape() as tape:
        value = elbo()
    rng, step = np.random.default_rng(0), 1e-5
    for variable, gradient in zip(variables, tape.gradient(value, variables)):
        start, direction, ends = variable.numpy(), rng.normal(size=variable.shape), []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * step * direction)
            ends.append(float(elbo()))
        variable.assign(start)
        assert_allclose(
            np.sum(gradient * direction), (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6
        )


@pytest.mark.exhaustive
def test_gradient_of_positive_sites_in_a_compiled_step():
    """No row is negative there, and none may make the gradient NaN or unknown."""
    model = conjugate_model(gl.Poisson())
    random_sites(model, positive=True)
    loss = model.training_loss_closure()
    before = float(loss())
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 5}, tf_fun_args={"autograph": False}
    )
    assert float(loss()) < before - 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "Gaussian, two latents", "Student-t, coregionalised"])
def test_shifting_data_and_mean_function_together_changes_nothing(name):
    plain = problem(name, with_mean=False)
    shift = trend(PROBLEMS[name][3])
    moved = plain.data[1].numpy() + shift(X).numpy()
    shifted = CVIGP((X, moved), plain.kernel, plain.likelihood, mean_function=shift)
    random_sites(shifted)
    for _ in range(2):
        for model in (plain, shifted):
            ConjugateComputation(0.7).minimize(model)
        assert_allclose(shifted.elbo(), plain.elbo(), rtol=1e-11)
        assert_allclose(shifted.basis.nu, plain.basis.nu, rtol=1e-9, atol=1e-10)
    assert_allclose(
        shifted.predict_f(X)[0] - shift(X), plain.predict_f(X)[0], rtol=1e-9, atol=1e-10
    )


def test_new_data_join_with_sites_of_zero(rng):
    """The posterior stays, at the old inputs and at the new."""
    model = problem("Poisson, separate")
    new = rng.normal(size=(4, 2)), rng.poisson(2.0, size=(4, 2)).astype(float)
    before = model.predict_f(new[0], full_cov=True)
    nu, tau = model.basis.nu.numpy(), model.basis.tau.numpy()
    model.update(new)
    assert model.basis.num_data == len(X) + 4 == len(model.data[0]) == len(model.data[1])
    assert_allclose(model.basis.nu, np.concatenate([nu, np.zeros((4, 2))]))
    assert_allclose(model.basis.tau, np.concatenate([tau, np.zeros((4, 2))]))
    for left, right in zip(model.predict_f(new[0], full_cov=True), before):
        assert_allclose(left, right, rtol=1e-10, atol=1e-12)
    assert_allclose(model.elbo_of_sites(), model.elbo(), rtol=1e-11)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["dense", "state space", "rows"])
def test_new_data_of_gaussian_noise_need_no_training(kind, rng):
    """The exact posterior of all rows, at any Parameters, whether q was trained or not."""
    inputs, outputs = rng.normal(size=(12, 1)), rng.normal(size=(12, 2))
    kernel, mean = gpflow.kernels.Matern32(lengthscales=0.7), gpflow.functions.Constant(0.4)
    likelihood, noise = gl.Gaussian(0.2), np.full((12, 1), 0.2)
    if kind == "rows":
        likelihood = RowLikelihood(likelihood, ["weight"])
        weights = rng.uniform(0.5, 2.0, size=(12, 1))
        outputs, noise = np.hstack([outputs, weights]), noise / weights
    make = StateSpaceGP if kind == "state space" else CVIGP
    model = make((inputs[:7], outputs[:7]), kernel, likelihood, mean_function=mean)
    model.update((inputs[7:], outputs[7:]))
    K, k = kernel(inputs).numpy(), kernel(inputs, X[:, :1]).numpy()
    solved = np.linalg.solve(K + np.diag(noise[:, 0]), np.hstack([outputs[:, :2] - 0.4, k]))
    found = model.predict_f(X[:, :1])
    assert_allclose(found[0], 0.4 + k.T @ solved[:, :2], rtol=1e-8, atol=1e-10)
    expected = 1.0 - np.sum(k * solved[:, 2:], axis=0)
    assert_allclose(found[1], np.repeat(expected[:, None], 2, axis=1), rtol=1e-8, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("new, message", [
    ((X[:2], np.full((2, 1), 7.0)), "Y\\[0, 0\\] = 7 is outside the support of Bernoulli"),
    ((X[:2, :1], np.ones((2, 1))), "X has 1 columns"),
    ((X[:2], np.ones((2, 2))), "Y has 2 columns"),
    ((X[:0], np.ones((0, 1))), "no rows"),
    ((X[:2], np.array([[1.0], [np.nan]])), "Y\\[1, 0\\] is nan"),
    ((1e160 * X[:2], np.ones((2, 1))), "X\\[0\\] is .* covariance is not a number"),
])  # fmt: skip
def test_new_data_that_are_unusable_change_nothing(new, message):
    model = problem("probit")
    basis, data, before = model.basis, model.data, float(model.elbo())
    with pytest.raises(DataError, match=message):
        model.update(new)
    assert model.basis is basis and model.data is data
    assert float(model.elbo()) == before


def test_priors_and_flags_enter_the_loss():
    model = conjugate_model(gl.Gaussian(NOISE), Y=observations(gl.Gaussian(NOISE)))
    random_sites(model)
    assert_allclose(model.training_loss(), -model.elbo(), rtol=1e-12)
    gpflow.utilities.set_trainable(model.kernel, False)
    assert len(model.trainable_variables) == 3  # of noise and mean function
