"""Steps of sites on all data: the exact GP, natural gradients of GPflow's models, the reference,
and fixed points.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from tests.bounds.registry import matern
from tests.models.conjugate_problems import (
    NOISE,
    X,
    conjugate_model,
    gram,
    prior_mean,
    problem,
    random_sites,
    separate,
    sites_on_f,
    student,
    trend,
)
from tests.reference import conjugate as conj
from tests.reference import likelihoods as lik

REFERENCES = {
    "Gaussian": (lambda: gl.Gaussian(NOISE), lik.gaussian(NOISE)),
    "logit": (lambda: gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit()),
    "Poisson": (gl.Poisson, lik.poisson()),
    "Student-t": (student, conj.student_t(3.0, 0.3)),
}
LIKELIHOODS = {name: make for name, (make, _) in REFERENCES.items() if name != "Gaussian"} | {
    "probit": gl.Bernoulli
}


def _expect(name: str, model: CVIGP) -> conj.Expect:
    likelihood, labels = REFERENCES[name][1], model.data[1].numpy()[:, 0]
    if name == "Student-t":  # the nodes follow it
        return conj.quadrature(likelihood, labels, 4000, conj.trapezoid_expectation)
    return conj.quadrature(likelihood, labels)


def _vgp(model: CVIGP) -> gpflow.models.VGP:
    """GPflow's model at the same q; its coordinates are whitened by K with jitter, which must be
    next to none.
    """
    gpflow.config.set_default_jitter(1e-14)
    vgp = gpflow.models.VGP(
        model.data,
        model.kernel,
        model.likelihood,
        model.mean_function,
        num_latent_gps=model.num_latent_gps,
    )
    basis = model.basis
    state = basis.factor(model.kernel)
    _, cov = basis.mean_and_cov(state, model.kernel, model.data[0], full_cov=True)
    for latent in range(model.num_latent_gps):
        chol = np.linalg.cholesky(gram(model, latent) + 1e-14 * np.eye(len(X)))
        inverse = np.linalg.inv(chol)
        q_mu, q_sqrt = vgp.q_mu.numpy(), vgp.q_sqrt.numpy()
        q_mu[:, latent] = inverse @ state.mean.numpy()[:, latent]
        q_sqrt[latent] = np.linalg.cholesky(inverse @ cov.numpy()[latent] @ inverse.T)
        vgp.q_mu.assign(q_mu)
        vgp.q_sqrt.assign(q_sqrt)
    return vgp


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("with_mean", [False, True], ids=["zero mean", "linear mean"])
@pytest.mark.parametrize(
    "latents, kernel", [(1, None), (2, None), (2, separate)], ids=["one", "two", "separate"]
)
def test_one_step_of_gaussian_noise_is_the_exact_gp(latents, kernel, with_mean, rng):
    kernel = matern(1.3, 0.8) if kernel is None else kernel()
    Y, noise = rng.normal(size=(len(X), latents)), gl.Gaussian(NOISE)
    model = CVIGP((X, Y), kernel, noise, mean_function=trend(latents) if with_mean else None)
    assert ConjugateComputation(1.0).minimize(model).ok
    parts = kernel.kernels if latents == 2 and hasattr(kernel, "kernels") else [kernel] * latents
    evidence, Xnew = 0.0, rng.normal(size=(4, 2))
    residual, m_new = Y - model.mean_function(X).numpy(), model.mean_function(Xnew).numpy()
    mean, variance = model.predict_f(Xnew)
    for latent, part in enumerate(parts):
        exact = gpflow.models.GPR((X, residual[:, latent : latent + 1]), part, likelihood=noise)
        evidence += float(exact.log_marginal_likelihood())
        for left, right in zip((mean - m_new, variance), exact.predict_f(Xnew)):
            assert_allclose(left[:, latent], right[:, 0], rtol=1e-9, atol=1e-11)
    assert_allclose(model.elbo(), evidence, rtol=1e-11)
    assert_allclose(model.basis.tau, np.full((len(X), latents), 1 / NOISE), rtol=1e-12)
    assert_allclose(model.basis.nu, residual / NOISE, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rho", [0.3, 1.0])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_step_is_that_of_the_reference(name, rho):
    """From sites of both signs, with a mean function."""
    model = conjugate_model(REFERENCES[name][0]())
    random_sites(model)
    sites, K, m_0 = sites_on_f(model), gram(model), prior_mean(model)
    mean, variance = conj.marginals(K, m_0, sites)
    _, g, h = _expect(name, model)(mean, variance)
    expected = conj.site_step(sites, conj.site_target(mean, g, h), rho)
    report = ConjugateComputation(rho).minimize(model)
    assert report.ok and report.shortened == 0
    assert_allclose(sites_on_f(model).nu, expected.nu, rtol=1e-8, atol=1e-9)
    assert_allclose(sites_on_f(model).tau, expected.tau, rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["Poisson, shared", "probit", "multiclass", "heteroscedastic", "Gaussian, two latents"]
)
def test_a_step_is_a_natural_gradient_step_of_gpflow(name):
    """From any sites, also for likelihoods with several latents."""
    model, rho = problem(name), 0.2
    vgp = _vgp(model)
    assert_allclose(vgp.elbo(), model.elbo(), rtol=1e-7)
    gpflow.optimizers.NaturalGradient(rho).minimize(vgp.training_loss, [(vgp.q_mu, vgp.q_sqrt)])
    report = ConjugateComputation(rho).minimize(model)
    assert report.ok and report.shortened == 0
    for left, right in zip(model.predict_f(X, full_cov=True), vgp.predict_f(X, full_cov=True)):
        assert_allclose(left, right, rtol=1e-6, atol=1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fixed_point_is_the_optimum_of_gpflow(name):
    """Its gradient vanishes there, and for one its optimizer, which starts elsewhere, finds nothing
    better.
    """
    model = conjugate_model(LIKELIHOODS[name]())
    result = ConjugateComputation(0.7).run(model, tolerance=1e-22)
    assert result.reason == "converged"
    vgp = _vgp(model)
    # GPflow's 20 points are up to 5e-6 nats off
    vgp.likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 100)
    assert_allclose(vgp.elbo(), model.elbo(), rtol=1e-9)
    variables = [vgp.q_mu.unconstrained_variable, vgp.q_sqrt.unconstrained_variable]
    with tf.GradientTape() as tape:
        loss = vgp.training_loss()
    for gradient in tape.gradient(loss, variables):
        assert np.abs(gradient).max() < 1e-6
    if name == "logit":  # log-concave, so that the optimum is the only one
        vgp.q_mu.assign(0 * vgp.q_mu)
        gpflow.utilities.set_trainable(vgp.kernel, False)
        gpflow.utilities.set_trainable(vgp.mean_function, False)
        gpflow.optimizers.Scipy().minimize(
            vgp.training_loss, vgp.trainable_variables, tf_fun_args={"autograph": False}
        )
        assert_allclose(vgp.elbo(), model.elbo(), rtol=1e-5)
        assert vgp.elbo() <= model.elbo() + 1e-9


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["logit", "Poisson", "probit"])
def test_fixed_point_is_that_of_opper_and_archambeau(name):
    model = conjugate_model(LIKELIHOODS[name]())
    ConjugateComputation().run(model, tolerance=1e-22)
    gpflow.config.set_default_jitter(1e-14)
    other = gpflow.models.VGPOpperArchambeau(
        model.data, model.kernel, model.likelihood, model.mean_function
    )
    other.likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 100)
    other.q_alpha.assign(model.basis.factor(model.kernel).alpha)
    other.q_lambda.assign(tf.sqrt(model.basis.tau))
    assert_allclose(other.elbo(), model.elbo(), rtol=1e-9)
    for left, right in zip(model.predict_f(X + 0.1), other.predict_f(X + 0.1)):
        assert_allclose(left, right, rtol=1e-7, atol=1e-9)
    with tf.GradientTape() as tape:
        loss = other.training_loss()
    for gradient in tape.gradient(
        loss, [p.unconstrained_variable for p in (other.q_alpha, other.q_lambda)]
    ):
        assert np.abs(gradient).max() < 1e-7


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", REFERENCES)
def test_fixed_point_is_stationary(name):
    """alpha = g and tau = -2 h, and the sites are those that the reference ends at."""
    model = conjugate_model(REFERENCES[name][0]())
    ConjugateComputation(0.7).run(model, tolerance=1e-24)
    K, m_0, expect = gram(model), prior_mean(model), _expect(name, model)
    for rest in conj.stationarity(K, m_0, sites_on_f(model), expect):
        assert_allclose(rest, np.zeros(len(X)), atol=1e-9)
    expected = conj.run(K, m_0, conj.no_sites(len(X)), expect)
    assert_allclose(sites_on_f(model).nu, expected.nu, rtol=1e-7, atol=1e-8)
    assert_allclose(sites_on_f(model).tau, expected.tau, rtol=1e-7, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [None, [1, 4, 5]], ids=["all data", "minibatch"])
def test_compiled_and_eager_steps_are_equal(rows):
    """Several in one compiled function too, which must not be traced anew."""
    eager, compiled = (conjugate_model(gl.Poisson()) for _ in range(2))
    optimizer = ConjugateComputation(0.5)
    step = tf.function(lambda: optimizer.minimize(compiled, rows), autograph=False)
    for _ in range(2):
        assert optimizer.minimize(eager, rows).ok and step().ok
    assert step.experimental_get_tracing_count() == 1
    assert_allclose(compiled.basis.nu, eager.basis.nu, rtol=1e-11)
    assert_allclose(compiled.basis.tau, eager.basis.tau, rtol=1e-11)


@pytest.mark.exhaustive
def test_step_sizes_may_be_a_function():
    decaying = ConjugateComputation(lambda t: 1.0 / (1.0 + t))
    assert [decaying.step_size_at(t) for t in (0, 1, 3)] == [1.0, 0.5, 0.25]
    left, right = (conjugate_model(gl.Poisson()) for _ in range(2))
    decaying.minimize(left, step=3)
    ConjugateComputation(0.25).minimize(right)
    assert_allclose(left.basis.nu, right.basis.nu, rtol=1e-12)
    assert_allclose(
        ConjugateComputation(lambda t: 1.0 / (1.0 + t)).run(left, steps=3).history["step_size"],
        [1, 1 / 2, 1 / 3],
    )


def test_a_run_that_ends_while_the_bound_rises_says_so(monkeypatch) -> None:
    """At its default number of steps, which is a caller's own choice otherwise."""
    monkeypatch.setattr("gpflow_decoupled.optimizers.conjugate_computation._STEPS", 3)
    model = conjugate_model(gl.Poisson())
    ConjugateComputation(0.1).run(model, steps=1)
    with pytest.warns(UserWarning, match="The sites have not converged: the last of 3 steps"):
        ConjugateComputation(0.1).run(model, steps=3)
