"""Models with multipliers: the bound against brute force, hyperparameters, predictions, linear
models, bad input.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import CVIGLM, LCLGLM, LCLGP, weights_posterior
from gpflow_decoupled.optimizers import LinearlyConstrainedLagrangian, sweep
from tests.bounds.registry import matern
from tests.models.conjugate_problems import mixed, separate
from tests.optimizers.lagrangian.lcl_problems import (
    KINDS,
    gram,
    inputs,
    labels,
    model,
    prior_mean,
    randomize,
    site_functions,
)
from tests.reference import conjugate as conj
from tests.reference import lcl

RULE = LinearlyConstrainedLagrangian(tolerance=1e-9, compile=False)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("latents, with_mean", [(1, False), (2, True)])
def test_bound_is_that_of_brute_force(name, latents, with_mean):
    built = model(name, 5, latents, with_mean)
    randomize(built)
    expected = 0.0
    for latent in range(latents):
        K, m_0 = gram(built, latent), prior_mean(built, latent)
        alpha, lam = (np.asarray(p)[:, latent] for p in (built.basis.alpha, built.basis.lam))
        expected += lcl.bound(
            K, m_0, *lcl.posterior(K, m_0, alpha, lam), site_functions(name, built, latent)
        )
    assert_allclose(built.elbo(), expected, rtol=1e-9)
    assert_allclose(built.training_loss(), -built.elbo(), rtol=1e-12)


def test_bound_is_below_the_evidence(rng):
    built = model("Gaussian", 8)
    evidence = conj.log_evidence(gram(built), prior_mean(built), built.data[1].numpy()[:, 0], 0.3)
    RULE.run(built)
    best, gaps = (built.basis.alpha.numpy(), built.basis.lam.numpy()), []
    for scale in 10.0 ** rng.uniform(-4, 0, size=60):
        built.basis.alpha.assign(best[0] + scale * rng.normal(size=best[0].shape))
        built.basis.lam.assign(best[1] * np.exp(scale * rng.normal(size=best[0].shape)))
        gaps.append(evidence - float(built.elbo()))
    assert min(gaps) > -1e-9
    assert min(gaps) < 1e-4  # else the bound could be wrong unnoticed


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "Poisson", "Laplace"])
def test_gradient_at_fixed_multipliers_is_that_of_the_best_bound(name):
    """(V24): against a new optimum at kernels, noise and mean functions next by."""
    built = model(name, 8)
    RULE.run(built)
    variables = list(built.trainable_variables)
    with tf.GradientTape() as tape:
        loss = built.training_loss()
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        start, ends = variable.numpy(), []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * 1e-3)
            ends.append(-RULE.run(built).elbo)
        variable.assign(start)
        RULE.run(built)
        assert_allclose(np.sum(gradient), (ends[0] - ends[1]) / 2e-3, rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
def test_hyperparameters_are_learned_by_alternation():
    """Both halves raise the bound, and GPflow's own optimizer serves for one of them."""
    built = model("Poisson", 10)
    bounds = [RULE.run(built).elbo]
    for _ in range(3):
        options = {"maxiter": 5}
        gpflow.optimizers.Scipy().minimize(
            built.training_loss, built.trainable_variables, options=options, compile=False
        )
        bounds += [float(built.elbo()), RULE.run(built).elbo]
    assert np.all(np.diff(bounds) > -1e-8)
    assert bounds[-1] > bounds[0] + 0.1


@pytest.mark.exhaustive
def test_predictions_are_those_of_gpflow(rng):
    """A VGP at its optimum: means, variances, covariances, labels, densities; and a posterior
    object.
    """
    X, Y = inputs(8), labels("Poisson", inputs(8))
    kernel, likelihood = matern(1.3, 0.8), gl.Poisson()
    built = LCLGP((X, Y), kernel, likelihood)
    RULE.run(built)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
        other = gpflow.models.VGP((X, Y), kernel, likelihood)
        for _ in range(40):
            gpflow.optimizers.NaturalGradient(gamma=0.5).minimize(
                other.training_loss, [(other.q_mu, other.q_sqrt)]
            )
        new = rng.uniform(-2, 2, size=(5, 2))
        assert_allclose(built.elbo(), other.elbo(), rtol=1e-6)
        for full in (False, True):
            for left, right in zip(
                built.predict_f(new, full_cov=full), other.predict_f(new, full_cov=full)
            ):
                assert_allclose(left, right, rtol=1e-4, atol=1e-5)
        for left, right in zip(built.predict_y(new), other.predict_y(new)):
            assert_allclose(left, right, rtol=1e-4)
        data = new, labels("Poisson", new)
        assert_allclose(built.predict_log_density(data), other.predict_log_density(data), rtol=1e-4)
    for left, right in zip(
        built.posterior().predict_f(new, full_cov=True), built.predict_f(new, full_cov=True)
    ):
        assert_allclose(left, right, rtol=1e-10)
    assert built.predict_f_samples(new, 3).shape == (3, 5, 1)


@pytest.mark.exhaustive
def test_shifting_data_and_mean_function_together_changes_nothing():
    X, Y = inputs(8), labels("Laplace", inputs(8))
    shift = gpflow.functions.Linear(np.array([[0.5], [1.0]]), np.array([2.0]))
    plain = LCLGP((X, Y), matern(1.3, 0.8), KINDS["Laplace"].make())
    moved = LCLGP(
        (X, Y + shift(X).numpy()), matern(1.3, 0.8), KINDS["Laplace"].make(), mean_function=shift
    )
    assert_allclose(RULE.run(moved).elbo, RULE.run(plain).elbo, atol=1e-7)
    assert_allclose(moved.basis.lam, plain.basis.lam, rtol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [separate, lambda: matern(1.3, 0.8)], ids=["separate", "shared"])
def test_several_latents_are_separate_problems(make):
    X = inputs(8)
    both = LCLGP((X, labels("Poisson", X, 2)), make(), gl.Poisson())
    total = RULE.run(both).elbo
    kernels = getattr(both.kernel, "kernels", 2 * [both.kernel])
    parts = [
        LCLGP((X, both.data[1].numpy()[:, [i]]), k, gl.Poisson()) for i, k in enumerate(kernels)
    ]
    assert_allclose(sum(RULE.run(part).elbo for part in parts), total, atol=1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("intercept", [True, False])
def test_linear_model_is_the_same_in_both_forms(intercept, rng):
    """And the same as by conjugate computation on the weights."""
    X = rng.normal(size=(12, 3))
    Y = rng.poisson(np.exp(0.4 * X[:, :1])).astype(float)
    found = []
    for form in ("weight", "function"):
        built = LCLGLM((X, Y), gl.Poisson(), intercept=intercept, intercept_variance=4.0, form=form)
        assert built.basis.form == form
        for inner in ("newton", "lbfgs"):
            rule = LinearlyConstrainedLagrangian(tolerance=1e-8, inner=inner, compile=False)
            for multipliers in (built.basis.alpha, built.basis.lam):
                multipliers.assign(
                    tf.zeros_like(multipliers)
                )  # the second solver does not start where the first ended
            result = rule.run(built)
        found.append((result.elbo, *(part.numpy() for part in weights_posterior(built))))
    if intercept:
        other = CVIGLM((X, Y), gl.Poisson(), intercept_variance=4.0)
        sweep(other, (X, Y))
        found.append(
            (float(other.elbo((X, Y))), *(part.numpy() for part in weights_posterior(other)))
        )
    for one in found[1:]:
        assert_allclose(one[0], found[0][0], atol=1e-6)
        assert_allclose(one[1], found[0][1], atol=1e-3)  # a bound within 1e-6 knows no more
        assert_allclose(one[2], found[0][2], atol=1e-3)


def test_form_is_chosen_by_cost(rng):
    for rows, form in ((9, "weight"), (2, "function")):
        X, Y = rng.normal(size=(rows, 3)), np.ones((rows, 1))
        Y[0] = 2.0
        assert LCLGLM((X, Y), gl.Poisson(), intercept=False).basis.form == form
        assert LCLGP((X, Y), gpflow.kernels.Linear(), gl.Poisson(), form="auto").basis.form == form
        assert LCLGP((X, Y), matern(1.0, 1.0), gl.Poisson(), form="auto").basis.form == "function"


def test_what_is_refused(rng):
    X, Y = inputs(6), labels("Poisson", inputs(6))
    empty = X.copy()
    empty[2] = 0.0
    with pytest.raises(DataError, match="1 rows of X are all zero, row 2 first"):
        LCLGLM((empty, Y), gl.Poisson(), intercept=False)
    with pytest.raises(UnknownOptionError, match="form='primal'"):
        LCLGLM((X, Y), gl.Poisson(), form="primal")
    with pytest.raises(DataError, match="LinearCoregionalization mixes latents"):
        LCLGP((X, np.ones((6, 3))), mixed(), gl.Poisson())
    with pytest.raises(DataError, match="outside the support of Poisson"):
        LCLGP((X, Y - 0.5), matern(1.0, 1.0), gl.Poisson())
    with pytest.raises(DataError, match="site loss|declare"):
        rates = np.ones((6, 1)) * [0.5] + 0.1 * Y / (1 + Y.max())
        LCLGP((X, rates), matern(1.0, 1.0), gl.Beta(invlink=tf.sigmoid))
    with pytest.raises(DataError, match="Y\\[:, None\\]"):
        LCLGP((X, Y[:, 0]), matern(1.0, 1.0), gl.Poisson())
    with pytest.raises(UnknownOptionError, match="form='both'"):
        LCLGP((X, Y), matern(1.0, 1.0), gl.Poisson(), form="both")
