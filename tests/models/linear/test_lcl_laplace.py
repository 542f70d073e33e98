"""Laplace priors of weights in the Lagrangian: the best Gaussian, the evidence, the Gaussian in
their place, bad input.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.certificates.certificate import divergence
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.inducing.weights import weight_parts
from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import LCLGLM, LCLGP, weights_posterior
from gpflow_decoupled.optimizers import (
    CholeskyKL,
    ConstraintSubset,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
)
from gpflow_decoupled.pathwise import pathwise_samples
from gpflow_decoupled.training import fit
from tests.reference import laplace_prior as reference
from tests.reference import lcl_sites as sites

tfd = tfp.distributions
RULE = LinearlyConstrainedLagrangian(tolerance=1e-9, compile=False)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
WIDE = RNG.normal(size=(8, 15))
LOCATION, SCALE, VARIANCE = np.array([0.3, -0.2]), np.array([0.5, 1.5]), 4.0
LIKELIHOODS = {  # GPflow's, the loss in the reference, the nodes of its quadrature
    "gaussian": (lambda: gl.Gaussian(0.3), lambda y: sites.gaussian(y, 0.3), 20),
    "logit": (BernoulliLogit, sites.bernoulli_logit, 100),
}


def labels(name: str, inputs: np.ndarray = X) -> np.ndarray:
    """Y [N, 1] of a model in which the first weight matters most."""
    rng = np.random.default_rng(1)
    eta = 1.5 * inputs[:, :1] + 0.2
    if name == "logit":
        return 1.0 * (rng.uniform(size=eta.shape) < 1.0 / (1.0 + np.exp(-eta)))
    return eta + 0.5 * rng.normal(size=eta.shape)


def build(name: str = "logit", inputs: np.ndarray = X, prior: Any = None, **options: Any) -> LCLGP:
    """A model at multipliers of zero."""
    options = {"intercept_variance": VARIANCE, "prior": tfd.Laplace(LOCATION, SCALE), **options}
    options = options if prior is None else {**options, "prior": prior}
    return LCLGLM((inputs, labels(name, inputs)), LIKELIHOODS[name][0](), **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_posterior_is_the_best_gaussian(name, intercept):
    """By a general optimizer over mean and covariance, with the Laplace densities as they are."""
    _, loss, order = LIKELIHOODS[name]
    model = build(name, intercept=intercept)
    result = RULE.run(model)
    f = [partial(sites.hermite, loss(y), order=order) for y in labels(name)[:, 0]]
    columns = np.hstack([X, np.ones((len(X), 1))]) if intercept else X
    priors = reference.Priors(LOCATION, SCALE, VARIANCE if intercept else None)
    mean, covariance, bound = reference.best(columns, f, priors)
    assert result.converged
    assert_allclose(result.elbo, bound, atol=1e-6)
    found = weights_posterior(model)
    assert_allclose(found.mean, mean, atol=2e-4)
    assert_allclose(found.covariance, covariance, atol=2e-4)
    again = reference.bound(columns, f, priors, *map(np.asarray, found))
    assert_allclose(model.elbo(), again, atol=1e-8)
    if intercept:  # (V31): each subproblem is below the bound, from multipliers far from the best
        rng, loss = np.random.default_rng(0), model.site_loss()
        low, high = np.maximum(loss.lower, -2.0), np.minimum(loss.upper, 2.0)
        model.basis.alpha.assign(low + (high - low) * rng.uniform(0.05, 0.95, size=low.shape))
        model.basis.lam.assign(rng.uniform(0.05, 2.0, size=low.shape))
        rule = LinearlyConstrainedLagrangian(tolerance=1e-8, compile=False, accelerate=False)
        ascent = rule.run(model)
        assert np.all(np.diff(ascent.history["elbo"]) >= -1e-9) and ascent.converged
        assert_allclose(ascent.elbo, bound, atol=1e-6)
    new = np.random.default_rng(2).normal(size=(4, 2))
    features = np.hstack([new, np.ones((4, 1))]) if intercept else new
    f_mean, f_variance = model.predict_f(new)
    variance = np.einsum("np,pq,nq->n", features, covariance, features)
    assert_allclose(f_mean[:, 0], features @ mean, atol=2e-3)
    assert_allclose(f_variance[:, 0], variance, rtol=1e-2)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_bound_is_below_the_evidence(name, columns, rng):
    """By sums over a grid of weights; at the optimum, where it is close, and at other
    multipliers.
    """
    inputs, scale = X[:, :columns], SCALE[:columns]
    model = build(name, inputs, tfd.Laplace(np.zeros(columns), scale), intercept=False)
    losses = [LIKELIHOODS[name][1](y) for y in labels(name)[:, 0]]
    evidence = reference.log_evidence(inputs, losses, reference.Priors(np.zeros(columns), scale))
    gaps = [evidence - RULE.run(model).elbo]
    best = model.basis.alpha.numpy(), model.basis.lam.numpy()
    for size in 10.0 ** rng.uniform(-3, 0, size=30):
        model.basis.alpha.assign(best[0] + size * rng.normal(size=best[0].shape))
        model.basis.lam.assign(best[1] * np.exp(size * rng.normal(size=best[0].shape)))
        gaps.append(evidence - float(model.elbo()))
    gaps = [gap for gap in gaps if np.isfinite(gap)]
    assert len(gaps) > 15
    assert min(gaps) == gaps[0]
    assert 1e-5 < gaps[0] < 0.2


@pytest.mark.exhaustive
@pytest.mark.parametrize("inputs", [X, WIDE], ids=["few weights", "more weights than data"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_optimum_does_not_depend_on_the_gaussian_that_plays_the_prior(name, inputs):
    """tau from b to 100 b: the same bound and weights, and the bound of the same q at each tau."""
    found = []
    for factor in (0.01, 1.0, 100.0):
        model = build(name, inputs, tfd.Laplace(0.1, 0.4))
        variance = weight_parts(model.kernel)[0].variance
        variance.assign(factor * variance)  # another Gaussian in the place of the priors
        result = RULE.run(model)
        assert result.converged
        found.append((result.elbo, *(part.numpy().ravel() for part in weights_posterior(model))))
    for elbo, mean, covariance in found[1:]:
        assert_allclose(elbo, found[0][0], atol=1e-7)
        assert_allclose(mean, found[0][1], atol=1e-4)
        assert_allclose(covariance, found[0][2], atol=1e-4)


OPTIONS = [
    {"accelerate": False}, {"inner": "lbfgs"}, {"sweeps": 0}, {"theta": 1.0},
    {"trust_region": 5.0}, {"curvature": False},
]  # fmt: skip
RULES = [LinearlyConstrainedLagrangian(tolerance=1e-8, compile=False, **one) for one in OPTIONS]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "rule", [*RULES, CholeskyKL(tolerance=1e-10), OpperArchambeau(tolerance=1e-13)], ids=repr
)
def test_options_and_other_methods_change_the_way_and_not_the_end(rule):
    for parts in (("logit", WIDE, tfd.Laplace(0.0, 0.4)), ("logit",)):
        if len(parts) == 1 or rule in RULES:
            assert_allclose(rule.run(build(*parts)).elbo, RULE.run(build(*parts)).elbo, atol=1e-6)


@pytest.mark.exhaustive
def test_relations_at_the_solution():
    """(V11) for every site; and the multipliers of the data are feasible for the dual of the
    lasso.
    """
    prior = tfd.Laplace(0.0, 0.4)
    model = build("logit", WIDE, prior, intercept=False)
    RULE.run(model)
    state, loss = model.basis.factor(model.kernel), model.site_loss()
    sigma = tf.sqrt(state.variance)
    at = loss.expand(model.prior_mean() + state.mean, sigma)
    assert_allclose(model.basis.alpha, at.d_h, atol=1e-5)
    assert_allclose(model.basis.lam, at.d_s / sigma, rtol=1e-4, atol=1e-5)
    assert np.all(np.abs(WIDE.T @ model.basis.alpha.numpy()[:8]) < 1.0 / 0.4)


@pytest.mark.exhaustive
def test_strong_priors_shrink_weights_that_do_not_matter_more_than_gaussian_ones():
    """A sparse signal: the same data, priors of one variance."""
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(60, 20))
    w = np.concatenate([[3.0, -3.0], np.zeros(18)])
    data = inputs, (inputs @ w + 0.5 * rng.normal(size=60))[:, None]
    errors = []
    for prior in (tfd.Laplace(0.0, 0.1), tfd.Normal(0.0, 0.1 * np.sqrt(2.0))):
        model = LCLGLM(data, gl.Gaussian(0.25), prior=prior, intercept=False)
        RULE.run(model)
        errors.append(np.linalg.norm(weights_posterior(model).mean.numpy() - w))
    assert errors[0] < errors[1]


@pytest.mark.exhaustive
def test_latents_have_the_same_priors():
    Y = np.hstack([labels("gaussian"), -labels("gaussian")])
    options = {"prior": tfd.Laplace(LOCATION, SCALE), "intercept_variance": VARIANCE}
    both, *singles = (
        LCLGLM((X, part), gl.Gaussian(0.3), **options) for part in (Y, Y[:, :1], Y[:, 1:])
    )
    total = RULE.run(both).elbo
    assert_allclose(sum(RULE.run(single).elbo for single in singles), total, atol=1e-7)
    assert weights_posterior(both).covariance.shape == (2, 3, 3)


@pytest.mark.exhaustive
def test_likelihood_that_is_not_log_concave():
    """Student-t noise has curvature terms of its own."""
    model = build("gaussian")
    model.likelihood = gl.StudentT(0.3, 4.0)
    other = build("gaussian")
    other.likelihood = gl.StudentT(0.3, 4.0)
    assert_allclose(RULE.run(model).elbo, CholeskyKL(tolerance=1e-10).run(other).elbo, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "prior", [tfd.Laplace(0.2, 0.7), tfd.Laplace(LOCATION, SCALE)], ids=["shared", "own"]
)
def test_gradient_of_the_scale_is_that_of_the_best_bound(prior):
    """(V24): against new optima at scales next by."""
    model = build("logit", prior=prior)
    gpflow.set_trainable(model.weight_prior.scale, True)
    RULE.run(model)
    (variable,) = model.trainable_variables
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    gradient, start, ends = tape.gradient(loss, variable), variable.numpy(), []
    for sign in (1.0, -1.0):
        variable.assign(start + sign * 1e-3)
        ends.append(-RULE.run(model).elbo)
    assert_allclose(np.sum(gradient), (ends[0] - ends[1]) / 2e-3, rtol=1e-3)


@pytest.mark.exhaustive
def test_scale_is_learned_by_fit_and_is_fixed_otherwise():
    model = build("gaussian", prior=tfd.Laplace(0.0, 0.05))
    gpflow.set_trainable(model.likelihood, False)
    assert not model.trainable_variables
    before = RULE.run(model).elbo
    gpflow.set_trainable(model.weight_prior.scale, True)
    fit(model, steps=6, learning_rate=0.1, compile=False, progress=False)
    assert float(model.weight_prior.scale.numpy()) > 0.07
    assert float(model.elbo()) > before + 0.1


@pytest.mark.exhaustive
def test_divergence_is_that_from_the_laplace_priors():
    """The bound is the data's part less it; a certificate takes this divergence."""
    model = build()
    RULE.run(model)
    state, count = model.basis.factor(model.kernel), len(X)
    mean, sigma = (model.prior_mean() + state.mean)[:count], tf.sqrt(state.variance)[:count]
    data = tf.reduce_sum(model.observation_loss().value(mean, sigma))
    assert_allclose(model.prior_kl(), -model.elbo() - data, rtol=1e-9)
    assert_allclose(divergence(model), model.prior_kl(), rtol=1e-12)
    features, q = np.hstack([X, np.ones((count, 1))]), map(np.asarray, weights_posterior(model))
    priors = reference.Priors(LOCATION, SCALE, VARIANCE)
    assert_allclose(model.prior_kl(), -reference.bound(features, [], priors, *q), rtol=1e-8)


@pytest.mark.exhaustive
def test_saved_model_predicts_the_same(tmp_path):
    model = build()
    RULE.run(model)
    gd.save(model, tmp_path / "model.zip")
    again = gd.load(tmp_path / "model.zip")
    assert_allclose(again.elbo(), model.elbo(), rtol=1e-12)
    for left, right in zip(again.predict_y(X), model.predict_y(X)):
        assert_allclose(left, right, rtol=1e-12)
    posterior = model.posterior().predict_f(X, full_cov=True)
    for left, right in zip(posterior, model.predict_f(X, full_cov=True)):
        assert_allclose(left, right, rtol=1e-9)


BAD = {
    "scale that is not finite and positive: repair": lambda: build(prior=tfd.Laplace(0.0, -1.0)),
    "location that is not finite": lambda: build(prior=tfd.Laplace(np.nan, 1.0)),
    "must be a finite number above 1e-06": lambda: build(prior=tfd.Laplace(0.0, 1e-9)),
    r"batch shape \(3,\) and X has 2": lambda: build(prior=tfd.Laplace(np.zeros(3), 1.0)),
    "batch shape": lambda: build(prior=tfd.Laplace(np.zeros((2, 2)), 1.0)),
    "prior is a StudentT; LCLGLM takes a Laplace.*AffineIndependentGLM": lambda: build(
        prior=tfd.StudentT(4.0, 0.0, 1.0)
    ),
    'Laplace priors need form="weight"': lambda: build(form="function"),
    "rows of X are all zero": lambda: build(inputs=np.zeros((6, 2)), intercept=False),
    "intercept_variance=-1.0 must be a number": lambda: build(intercept_variance=-1.0),
    "has Laplace priors.*Use LinearlyCons": lambda: ConstraintSubset(3).run(build()),
    "theta must be above 0": lambda: LinearlyConstrainedLagrangian(theta=0.0).run(build()),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("message", BAD)
def test_bad_input(message: str) -> None:
    with pytest.raises(DataError, match=message):
        BAD[message]()


def test_functions_are_not_drawn_from_weights():
    with pytest.raises(DataError, match="Pathwise samples need a model in function space"):
        pathwise_samples(build(), 2)


@pytest.mark.exhaustive
def test_other_refusals():
    with pytest.raises(UnknownOptionError, match="form"):
        build(form="weights")
    model = build()
    RULE.run(model)
    extreme = LCLGLM((X, labels("gaussian")), Laplace(1e-5), prior=tfd.Laplace(0.0, 1.0))
    extreme.data = (extreme.data[0], extreme.data[1] * 1e300)
    with pytest.raises((DataError, NumericalError), match="row|observation|finite"):
        RULE.run(extreme)
